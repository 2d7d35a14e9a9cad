"""The state of a run: what the rest of it depends on, what it reports, and how both are saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, TypeAlias, TypeVar

import torch

from ..errors import FileFormatError
from ..files import check_fields
from ..network import TensorNetwork
from ..results import PathPoint
from ..steps import Record, Step, StopReason
from ..structure import Structure

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Tensors = dict[str, torch.Tensor]

C = TypeVar("C", bound=type)
S = TypeVar("S", bound="SearchState")

_PACKABLE: dict[str, type] = {"Step": Step, "PathPoint": PathPoint}


def packable(cls: C) -> C:
    """Let a dataclass be part of a saved state; no other classes are ever built from a file."""
    _PACKABLE[cls.__name__] = cls
    return cls


@packable
@dataclass(frozen=True)
class Fitted:
    """A network with its loss on the fitted data, and on the held-out data where there is some.

    Attributes
    ----------
    counted
        Parameters, where the network also holds fixed numbers.
    """

    network: TensorNetwork
    loss: float
    validation: float | None = None
    counted: int | None = None

    @property
    def measure(self) -> float:
        """What the search judges by: the loss on held-out data, else the loss."""
        return self.loss if self.validation is None else self.validation

    @property
    def size(self) -> int:
        return self.network.num_parameters if self.counted is None else self.counted


@dataclass
class SearchState:
    """What every run keeps.

    Attributes
    ----------
    phase
        The move that comes next.
    start
        Number of the growth from scratch that is under way.
    elapsed
        Seconds spent, those before a resume included.
    stop
        Why the run ended; None while it can be resumed.
    """

    later: ClassVar[frozenset[str]] = (
        frozenset()
    )  # fields that older files lack: they begin with their defaults

    phase: str = "start"
    start: int = 0
    elapsed: float = 0.0
    stop: StopReason | None = None
    steps: Sequence[Record] = field(default_factory=list)

    @contextmanager
    def transaction(self, generator: torch.Generator) -> Iterator[None]:
        """Undo a move that is interrupted, so that it can be repeated with the same random numbers.

        A first result stays: it is better than none.
        """
        before = {f.name: getattr(self, f.name) for f in fields(self)}
        before = {k: type(v)(v) if isinstance(v, list | dict) else v for k, v in before.items()}
        random = generator.get_state()
        try:
            yield
        except BaseException:
            if before.get("current", self) is None:
                del before["current"]
            for name, value in before.items():
                setattr(self, name, value)
            generator.set_state(random)
            raise

    def pack(self) -> tuple[dict[str, Json], Tensors]:
        """Header and tensors of a file; `unpack` is the inverse."""
        packer = _Packer()
        return {f.name: packer.pack(getattr(self, f.name)) for f in fields(self)}, packer.tensors

    @classmethod
    def unpack(cls: type[S], header: Mapping[str, Json], tensors: Tensors) -> S:
        """Rebuild a state from what `pack` returned."""
        names = {f.name for f in fields(cls)}
        if names - cls.later != set(header) - cls.later:
            raise FileFormatError(
                f"the file keeps a run of another kind or version: it lacks {sorted(names - set(header))} "
                f"and has {sorted(set(header) - names)}. Delete it to start anew"
            )
        try:
            return check_fields(cls(**{name: _unpack(value, tensors) for name, value in header.items()}))
        except FileFormatError:
            raise
        except (AssertionError, KeyError, StopIteration, TypeError, ValueError) as error:
            raise FileFormatError(f"the file is damaged or of another version: {error!r}") from error


@dataclass
class NetworkState(SearchState):
    """What every search for a network keeps.

    Attributes
    ----------
    current
        The network that the next move starts from.
    best
        The best network so far.
    path
        Networks that no other one beats in both size and error.
    """

    steps: list[Step] = field(default_factory=list)
    current: Fitted | None = None
    best: Fitted | None = None
    path: list[PathPoint] = field(default_factory=list)


class _Packer:
    """Values as JSON, with their tensors beside it. A tensor that occurs several times is stored once."""

    def __init__(self) -> None:
        self.tensors: Tensors = {}
        self._names: dict[int, str] = {}

    def pack(self, value: object) -> Json:
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, torch.Tensor):
            name = self._names.setdefault(id(value), str(len(self._names)))
            self.tensors[name] = value
            return {"tensor": name}
        if isinstance(value, list):
            return [self.pack(v) for v in value]
        if isinstance(value, tuple):
            return {"tuple": [self.pack(v) for v in value]}
        if isinstance(value, dict):
            return {"dict": [[self.pack(k), self.pack(v)] for k, v in value.items()]}
        if isinstance(value, StopReason):
            return {"stop": value.name}
        if isinstance(value, Structure):
            return {"structure": self.pack(value.to_dict())}
        if isinstance(value, TensorNetwork):
            return {"network": [self.pack(value.structure), [self.pack(c) for c in value.cores]]}
        if is_dataclass(value) and type(value).__name__ in _PACKABLE:
            values = {f.name: self.pack(getattr(value, f.name)) for f in fields(value)}
            return {"object": type(value).__name__, "fields": values}
        raise TypeError(f"a {type(value).__name__} cannot be part of a state; mark its class as packable")


def _unpack(value: Json, tensors: Tensors) -> Any:
    if isinstance(value, list):
        return [_unpack(v, tensors) for v in value]
    if not isinstance(value, dict):
        return value
    kind, content = next(iter(value.items()))
    match kind:
        case "tensor":
            return tensors[str(content)]
        case "tuple" | "dict" | "network":
            assert isinstance(content, list)
            parts = [_unpack(v, tensors) for v in content]
            if kind == "tuple":
                return tuple(parts)
            return dict(parts) if kind == "dict" else TensorNetwork(*parts)
        case "stop":
            return StopReason[str(content)]
        case "structure":
            return Structure.from_dict(_unpack(content, tensors))
        case "object" if content in _PACKABLE:
            values = value["fields"]
            assert isinstance(values, dict)
            return check_fields(
                _PACKABLE[str(content)](**{k: _unpack(v, tensors) for k, v in values.items()})
            )
    unknown = content if kind == "object" else kind
    raise FileFormatError(f"the file holds a {unknown!r:.80}, which this version does not know")
