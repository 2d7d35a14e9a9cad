"""What comes back from compressing a model: the model, a report, files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...data.sizes import bytes_text
from ...errors import OptionError, counted
from ...files import check_fields, loads, read_file, reading, write_file
from ...search import packable
from ...steps import Record
from ...structure import Structure
from ..kinds.catalogue import kind_of
from ..layer.attention import unpack_attention
from ..layer.layout import Layout, check_cores
from ..layer.tied import sharers, tie
from ..modules import (
    copy_architecture,
    count_bytes,
    count_parameters,
    load_tensors,
    model_tensors,
    move_hooks,
    replace_module,
)

COMPRESSED_KIND = "compressed model"


@packable
@dataclass(frozen=True)
class LayerSearch(Record):
    """The forms of a layer that its search found.

    Attributes
    ----------
    kind
        "layer".
    index, count
        Which of how many layers.
    num_parameters, loss, relative_error
        Of the smallest form, without the bias.
    name
        Of the layer.
    choices
        Kind, parameters without the bias, and relative error of each form that no other one beats, by size.
    is_complete
        Whether the search had all its time; otherwise most forms are truncated SVDs.
    """

    count: int
    name: str
    in_features: int
    out_features: int
    choices: tuple[tuple[str, int, float], ...]
    is_complete: bool

    def move(self) -> str:
        return f"{self.kind} {self.name or 'model'} ({self.index + 1} of {self.count})"


@dataclass(frozen=True)
class LayerReport:
    """What became of a layer.

    Attributes
    ----------
    kind
        "network", "low rank" or "dense" (left as it was: nothing smaller was within the limits).
    parameters_before, parameters_after
        Biases and input scales included.
    relative_error
        ``||W - W'|| / ||W||`` of the layer as it is stored.
    weighted_error
        With calibration data: the relative error of the outputs about their mean that is expected there.
    latency_before, latency_after
        Median seconds for 32 rows or tokens; of a convolution for its input in the calibration data, or for
        a map of 14 x 14.
    bytes_before, bytes_after
        Parameters, input, output and the largest intermediates for the same input; counted.
    seconds
        What the search took.
    in_features, out_features
        Columns and rows of the weight as a matrix; the columns of a convolution are those of its patches.
    note
        Of a layer that was left alone: the smaller form it could have had and what would be worse, "slower"
        or "larger in use", by counted work for 32 rows. Of a replaced one: what is worse now. Else empty.
    module
        The class of the layer before.
    """

    name: str
    kind: str
    in_features: int
    out_features: int
    parameters_before: int
    parameters_after: int
    relative_error: float
    weighted_error: float | None
    latency_before: float | None
    latency_after: float | None
    bytes_before: int
    bytes_after: int
    seconds: float
    layout: Layout | None = None
    structure: Structure | None = None
    note: str = ""
    module: str = "Linear"

    def to_dict(self) -> dict[str, Any]:
        """JSON-friendly form."""
        return {
            **self.__dict__,
            "layout": None if self.layout is None else self.layout.to_dict(),
            "structure": None if self.structure is None else self.structure.to_dict(),
        }


@dataclass(frozen=True)
class CompressResult:
    """A model with smaller layers.

    Attributes
    ----------
    model
        A copy of the model, chosen layers replaced by those with networks as weights.
    layers
        A report for every chosen layer.
    left
        Layers that could have been chosen by name and were left as they are: why, by name.
    parameters_before, bytes_before
        Of the whole model.
    latency_before, latency_after
        Of the whole model on the first calibration batch, median seconds; None without one.
    """

    model: nn.Module
    layers: tuple[LayerReport, ...]
    parameters_before: int
    bytes_before: int
    latency_before: float | None = None
    latency_after: float | None = None
    info: Mapping[str, Any] = field(repr=False, default_factory=dict)
    left: Mapping[str, str] = field(repr=False, default_factory=dict)

    @property
    def num_parameters(self) -> int:
        """Of the whole model now."""
        return count_parameters(self.model)

    @property
    def num_bytes(self) -> int:
        """Memory of its parameters."""
        return count_bytes(self.model)

    @property
    def compression_ratio(self) -> float:
        """Parameters before per parameter now."""
        return self.parameters_before / self.num_parameters

    def table(self) -> str:
        """One line per layer and one for the model, before -> after."""
        head = ("layer", "form", "parameters", "error", "output error", "latency", "memory")
        rows: list[tuple[str, ...]] = [head]
        for r in self.layers:
            shape = "" if r.layout is None or r.kind == "low rank" else f" {r.layout}"
            rows.append(
                (
                    r.name,
                    r.kind + shape + (f" ({r.note})" if r.note else ""),
                    f"{r.parameters_before:,} -> {r.parameters_after:,}",
                    f"{r.relative_error:.3g}",
                    "-" if r.weighted_error is None else f"{r.weighted_error:.3g}",
                    _times(r.latency_before, r.latency_after),
                    f"{bytes_text(r.bytes_before)} -> {bytes_text(r.bytes_after)}",
                )
            )
        rows += [
            (name or "model", f"left alone: {why}", *[""] * (len(head) - 2))
            for name, why in self.left.items()
        ]
        rows.append(
            (
                "model",
                f"{self.compression_ratio:.3g}x smaller",
                f"{self.parameters_before:,} -> {self.num_parameters:,}",
                "",
                "",
                _times(self.latency_before, self.latency_after),
                f"{bytes_text(self.bytes_before)} -> {bytes_text(self.num_bytes)} (parameters)",
            )
        )
        widths = [max(len(row[k]) for row in rows) for k in range(len(head))]
        return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in rows)

    def report(self, path: str | Path, *, title: str | None = None) -> Path:
        """Write one HTML page: every layer with its network drawn, sizes, errors, latency and memory.

        The page is one file that asks the network for nothing; returns its path.
        """
        from ...report.compression import write_compression

        return write_compression(self, path, title=title)

    def save(self, path: str | Path) -> None:
        """Write the model's state and the report to one safetensors file; `load_compressed` reads it."""
        header = {
            "layers": [r.to_dict() for r in self.layers],
            "parameters_before": self.parameters_before,
            "bytes_before": self.bytes_before,
            "latency": [self.latency_before, self.latency_after],
            "info": dict(self.info),
            "left": dict(self.left),
        }
        write_file(path, COMPRESSED_KIND, header, model_tensors(self.model))

    def __repr__(self) -> str:
        return (
            f"CompressResult({self.parameters_before:,} -> {self.num_parameters:,} parameters, "
            f"{self.compression_ratio:.3g}x smaller, {counted(len(self.layers), 'layer')})"
        )


def load_compressed(path: str | Path, model: nn.Module) -> CompressResult:
    """Read what `CompressResult.save` wrote.

    Parameters
    ----------
    model
        The architecture before compression; weights do not matter. It is not modified.
    """
    header, tensors = read_file(path, (COMPRESSED_KIND,))
    with reading(path):
        return _unpack(header, tensors, model)


def _unpack(
    header: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], model: nn.Module
) -> CompressResult:
    own = copy_architecture(model)
    # Attentions whose packed weights are not in the file were taken apart.
    names = [n for n, m in own.named_modules() if isinstance(m, nn.MultiheadAttention)]
    whole = ("in_proj_weight", "q_proj_weight")
    own = unpack_attention(
        own, [n for n in names if not any(f"{n}.{w}".strip(".") in tensors for w in whole)]
    )
    modules = dict(own.named_modules())
    reports = []
    for data in header["layers"]:
        layout = None if data["layout"] is None else Layout.from_dict(data["layout"])
        structure = None if data["structure"] is None else Structure.from_dict(data["structure"])
        reports.append(check_fields(LayerReport(**{**data, "layout": layout, "structure": structure})))
        if layout is None:
            continue
        old = modules.get(data["name"])
        kind = None if old is None else kind_of(old)
        sizes = (data["in_features"], data["out_features"])
        if old is None or kind is None or kind.sizes(old) != sizes:
            raise OptionError(
                f"the file has a layer {data['name']!r} with {sizes[0]} inputs and {sizes[1]} outputs; the "
                f"model has {_describe(old)} there. Give the model that was compressed, or one made like it"
            )
        prefix = f"{data['name']}." if data["name"] else ""
        assert structure is not None
        check_cores(tensors, prefix, layout, structure)
        scaled = f"{prefix}input_scale" in tensors
        new = kind.layer.untrained(old, layout, structure, input_scale=scaled, random_state=0)
        shared = sharers(own, old)
        move_hooks(old, new)
        own = tie(replace_module(own, old, new), shared.values(), new)
    return check_fields(
        CompressResult(
            load_tensors(own, tensors),
            tuple(reports),
            header["parameters_before"],
            header["bytes_before"],
            header["latency"][0],
            header["latency"][1],
            header["info"],
            header.get("left", {}),  # files from before the layers that were left had a name
        )
    )


loads(COMPRESSED_KIND, _unpack)


def _describe(module: nn.Module | None) -> str:
    if module is None or kind_of(module) is None:
        return f"a {type(module).__name__}"
    return repr(module)


def _times(before: float | None, after: float | None) -> str:
    return "-" if before is None or after is None else f"{before * 1e3:.3g} -> {after * 1e3:.3g} ms"
