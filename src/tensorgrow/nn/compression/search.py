"""Forms for one layer of a model after the other: what `compress` spends its time on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from ...errors import DataError
from ...search import Effort
from ..layer.layout import Layout
from .calibration import Inputs, Metric
from .choices import Choice, Clock, choices_for

__all__ = ["CompressRun", "LayerSearch", "Work", "metric_of"]


@dataclass(frozen=True)
class Work:
    """A layer and the ways to store it."""

    name: str
    layer: nn.Linear
    inputs: Inputs | None
    choices: list[Choice]
    seconds: float


@dataclass(frozen=True)
class LayerSearch:
    """What was found for a layer.

    Attributes
    ----------
    index, count
        Which of how many layers.
    choices
        Kind, parameters without the bias, and relative error of each form that no other one beats, by size.
    is_complete
        Whether the search had its time; otherwise there are mostly truncated SVDs.
    """

    index: int
    count: int
    name: str
    in_features: int
    out_features: int
    choices: tuple[tuple[str, int, float], ...]
    seconds: float
    is_complete: bool


class CompressRun:
    """A search in progress: iterate over it for one `LayerSearch` after the other.

    Parameters
    ----------
    room
        Parameters that the layers may have together; None: any number.
    seconds
        For everything.
    tell
        Gets a line of text now and then.

    Attributes
    ----------
    works
        What was found, by the name of the layer.
    spent
        Seconds before a resume.
    """

    def __init__(
        self,
        layers: Mapping[str, nn.Linear],
        inputs: Mapping[str, Inputs],
        layouts: Mapping[str, Sequence[Layout]],
        *,
        max_error: float | None,
        room: int | None,
        effort: Effort,
        seconds: float,
        seed: int,
        tell: Callable[[str], None],
    ) -> None:
        self.layers, self.inputs, self.layouts = layers, inputs, layouts
        self.max_error, self.room, self.effort, self.seed = max_error, room, effort, seed
        self.seconds, self.tell = seconds, tell
        self.works: dict[str, Work] = {}
        self.spent = 0.0
        self._begin = time.perf_counter()
        self._clock = Clock(seconds)

    @property
    def elapsed(self) -> float:
        """Seconds, those before a resume included."""
        return self.spent + time.perf_counter() - self._begin

    @property
    def is_stopped(self) -> bool:
        """Whether the search was ended before its time."""
        return self._clock.is_ended

    def stop(self) -> None:
        """Layers that are left get truncated SVDs only."""
        self._clock.end()

    def __iter__(self) -> Iterator[LayerSearch]:
        self._clock = Clock(self.seconds - self.spent)
        for index, (name, layer) in enumerate(self.layers.items()):
            if name in self.works:
                continue
            in_time = self._clock.left > 0
            try:
                work = self._search(index, name, layer)
            except KeyboardInterrupt:  # outside of a decomposition, which would have handled it
                self.stop()
                work = self._search(index, name, layer)
            self.works[name] = work
            yield LayerSearch(
                index=index,
                count=len(self.layers),
                name=name,
                in_features=layer.in_features,
                out_features=layer.out_features,
                choices=tuple((c.kind, c.num_parameters, c.error) for c in work.choices),
                seconds=work.seconds,
                is_complete=in_time and not self.is_stopped,
            )

    def _search(self, index: int, name: str, layer: nn.Linear) -> Work:
        begin = time.perf_counter()
        if not bool(torch.isfinite(layer.weight).all()):
            raise DataError(f"the weight of {name} has entries that are not finite; leave it out of `layers`")
        inputs, size = self.inputs.get(name), layer.weight.numel()
        title = f"{name or 'model'} ({index + 1} of {len(self.layers)})"
        choices = choices_for(
            metric_of(layer, inputs),
            self.layouts[name],
            max_error=self.max_error,
            max_parameters=size if self.room is None else min(self.room, size),
            effort=self.effort,
            clock=self._clock,
            share=1.0 / (len(self.layers) - len(self.works)),
            seed=self.seed,
            tell=lambda text: self.tell(f"{title}: {text}"),
        )
        return Work(name, layer, inputs, choices, time.perf_counter() - begin)


def metric_of(layer: nn.Linear, inputs: Inputs | None) -> Metric:
    """The error that counts. It is as large as the weight, and not kept."""
    return Metric(layer.weight.detach().double(), None if inputs is None else inputs.moment)
