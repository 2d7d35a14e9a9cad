"""What the user asked for: the keywords that all tasks share, parsed and checked once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

import torch

from ..callbacks.base import Callbacks, as_callbacks
from ..callbacks.progress import progress_callbacks
from ..data.arrays import as_dtype
from ..data.devices import (
    SMALL_BYTES,
    TYPICAL_WIDTH,
    check_memory,
    choose_device,
    gigabytes,
    memory_for,
    parse_memory_limit,
)
from ..data.tensorization import Shape, Tensorization, plan
from ..data.tensorization.digits import LONG_AXIS
from ..errors import OptionError, check_bounds, check_kind, warn
from ..network import RandomState, TensorNetwork, as_generator
from ..priors import Priors
from ..search import AnySearch, EdgePolicy, Edges, Effort, GreedyOptions, Limits, Listener, Place
from ..solvers import TrainingOptions

Bounds = tuple[float | None, float | None]
"""Least and largest value that predictions may have; None where there is no such bound."""

# Seconds that searches without an end of their own take by default.
THOROUGH_SECONDS = 60.0
# Copies of the data that a run takes on a GPU: the data, in the order of a sweep, and a product of that size.
COPIES = 3


@dataclass(frozen=True)
class Audience:
    """Who hears of a run.

    Attributes
    ----------
    progress
        Whether to show a live line; None: where a person watches.
    checkpoint
        A file to store the state in, and to resume from.
    begin
        Since when they wait, a value of ``time.perf_counter()``: taking the data in counts as time.
    """

    progress: bool | None = False
    callbacks: Callbacks = None
    checkpoint: str | Path | None = None
    begin: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        if not isinstance(self.checkpoint, str | Path | None):
            raise OptionError(f"checkpoint={self.checkpoint!r} must be the path of a file, or None")

    def listeners(self) -> list[Listener]:
        """Return the callbacks, and the live line."""
        return [*as_callbacks(self.callbacks), *progress_callbacks(self.progress)]


class RunKeywords(TypedDict, total=False):
    """Keywords of whatever searches; `tensorgrow.decompose` says what they mean."""

    max_error: float | None
    max_parameters: int | None
    max_seconds: float | None
    random_state: RandomState
    device: torch.device | str | None
    dtype: Any
    memory_limit: float | None
    progress: bool | None
    callbacks: Callbacks


class SearchKeywords(RunKeywords, total=False):
    """Keywords of every task that grows networks."""

    max_steps: int | None
    effort: Effort
    checkpoint: str | Path | None
    options: GreedyOptions | None


class Keywords(SearchKeywords, total=False):
    """Keywords of `decompose` and its kin."""

    edges: Edges
    split_nodes: bool | None
    init: TensorNetwork | None
    training: TrainingOptions | None
    names: Sequence[str] | None
    bounds: Bounds | None
    tensorize: Shape | Tensorization | None
    priors: Priors | None


def pick(arguments: Mapping[str, Any]) -> Keywords:
    """Return the common keywords among the arguments of a task; ``pick(locals())`` forgets none."""
    return cast(Keywords, {k: v for k, v in arguments.items() if k in Keywords.__annotations__})


@dataclass(frozen=True)
class Request:
    """What the user asked for.

    Attributes
    ----------
    limits
        With `held_out` unset; a task that holds data out sets it.
    effort
        Name of the preset; "custom" where the user gave options or a training.
    training
        None where nothing is trained by gradients.
    names
        Of the axes of the data, where the user gives them.
    bounds
        Least and largest value that predictions may have.
    tensorize
        How the array becomes a tensor of more modes; None where it stays as it is.
    priors
        What is known of the axes, as the user says it.
    """

    limits: Limits
    options: GreedyOptions
    effort: str
    audience: Audience
    edges: Edges = "all"
    split_nodes: bool | None = None
    init: TensorNetwork | None = None
    random_state: RandomState = None
    device: torch.device | str | None = None
    dtype: torch.dtype | None = None
    memory_limit: float | None = None
    training: TrainingOptions | None = None
    names: Sequence[str] | None = None
    bounds: Bounds | None = None
    tensorize: Shape | Tensorization | None = None
    priors: Priors | None = None

    @classmethod
    def parse(
        cls,
        task: str,
        search: type[AnySearch],
        preset: Callable[[Effort], GreedyOptions],
        *,
        limited: bool = True,
        signed: bool = False,
        **keywords: Unpack[Keywords],
    ) -> Request:
        """Check the keywords of a task.

        Parameters
        ----------
        task, search
            Name of the task for messages, and the search it runs: options that this ignores are refused.
        preset
            The options that an effort stands for.
        limited
            Whether a limit must say when to stop; otherwise held-out data may.
        signed
            Whether `max_error` is the value of a loss, which may be negative.
        """
        unknown = sorted(keywords.keys() - Keywords.__annotations__.keys())
        if unknown:
            raise TypeError(f"{task}() got an unexpected keyword argument {unknown[0]!r}")
        options, effort = keywords.get("options"), keywords.get("effort", "balanced")
        training = keywords.get("training")
        if options is not None:
            check_kind("options", options, GreedyOptions)
            options.check_for(search, task)
        if training is not None:
            check_kind("training", training, TrainingOptions)
        by_effort = preset(effort)  # checks the effort, whatever the options
        settled = by_effort if options is None else options
        seconds = keywords.get("max_seconds")
        if limited and settled.regrow_cycles is None and seconds is None:
            seconds = THOROUGH_SECONDS  # steps alone may never run out: cycles without gain make none
        edges = keywords.get("edges", "all")
        if isinstance(edges, Iterable) and not isinstance(edges, str):
            edges = tuple(edges)  # read more than once
        return cls(
            limits=Limits(
                keywords.get("max_error"),
                keywords.get("max_parameters"),
                keywords.get("max_steps"),
                seconds,
                held_out=not limited,
                signed=signed,
            ),
            options=settled,
            effort=effort if options is None and training is None else "custom",
            audience=Audience(
                keywords.get("progress"), keywords.get("callbacks"), keywords.get("checkpoint")
            ),
            edges=edges,
            split_nodes=keywords.get("split_nodes"),
            init=keywords.get("init"),
            random_state=keywords.get("random_state"),
            device=keywords.get("device"),
            dtype=as_dtype(keywords.get("dtype")),
            memory_limit=parse_memory_limit(keywords.get("memory_limit")),
            training=training,
            names=keywords.get("names"),
            bounds=check_bounds(keywords.get("bounds")),
            tensorize=keywords.get("tensorize"),
            priors=keywords.get("priors"),
        )

    def cut_modes(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the axes of an array that are cut into digits, or may be."""
        wish = self.tensorize
        if wish is None:
            return ()
        if isinstance(wish, str):
            return tuple(k for k, d in enumerate(shape) if d >= LONG_AXIS)
        return (wish if isinstance(wish, Tensorization) else plan(shape, wish)).cut_axes

    def policy(self, order: int) -> EdgePolicy:
        """Return the edges that may be used."""
        return EdgePolicy.parse(self.edges, order, self.options.max_degree)

    def splits_nodes(self, policy: EdgePolicy) -> bool:
        """Whether internal nodes may be added: by default where all edges are allowed."""
        return policy.pairs is None if self.split_nodes is None else self.split_nodes

    def memory(self, device: torch.device) -> float:
        """Return the bytes that may be taken on a device."""
        return memory_for(device, self.memory_limit)

    def check_modes(self, shape: tuple[int, ...]) -> None:
        """Refuse modes that are so long that not even one number per slice fits in memory."""
        check_memory(8 * sum(shape), self.memory(torch.device("cpu")), f"a tensor of shape {shape}")

    def width(self, shape: Sequence[int]) -> float:
        """Return the columns that the environment of a core will have: those that the budget allows."""
        size = self.limits.max_parameters
        return TYPICAL_WIDTH if size is None else max(TYPICAL_WIDTH, size / sum(shape))

    def places(
        self, data: torch.Tensor, flops: float, needed: int | None = None
    ) -> tuple[torch.device, torch.device]:
        """Choose where to compute, and where the result goes: with "auto", back to the data.

        Data that a GPU has no room for stays where it is, with a warning.

        Parameters
        ----------
        flops
            Of one sweep.
        needed
            Bytes that a small network takes there at least; by default a few copies of the data.
        """
        where = choose_device(self.device, data, flops)
        needed = COPIES * data.numel() * data.element_size() if needed is None else needed
        if where.type == "cuda" and data.device != where and needed > SMALL_BYTES:
            free = memory_for(where, self.memory_limit)
            if needed > free:
                warn(
                    f"the run needs about {gigabytes(needed)} of the memory of the GPU, which has "
                    f"{gigabytes(free)} free: it uses the CPU"
                    + ("" if data.ndim < 2 else ". tg.Blocks(x) computes there with a part at a time")
                )
                where = data.device
        return where, data.device if self.device == "auto" else where

    def elsewhere(self, where: torch.device) -> Place | None:
        """Where a run goes on once it is costly: with "auto", on a GPU that it has not begun on."""
        if self.device != "auto" or where.type != "cpu" or not torch.cuda.is_available():
            return None
        device = torch.device("cuda")
        return Place(device, memory_for(device, self.memory_limit))

    def holding_out(self, held_out: int, *, wanted: bool) -> Request:
        """Return the request for so much held-out data: that, or a limit, must say when to stop.

        Parameters
        ----------
        wanted
            Whether the user wants data held out; where there is too little, nothing grows, as a warning says.
        """
        steps = 0 if held_out == 0 and wanted and not self.limits.has_any else self.limits.max_steps
        return replace(self, limits=replace(self.limits, max_steps=steps, held_out=held_out > 0))

    def generators(self) -> tuple[torch.Generator, torch.Generator]:
        """Return generators for the choice of held-out data, and for the search.

        Without a seed the first is the same each time, so that a checkpoint can be resumed.
        """
        if self.random_state is None:
            return as_generator(0), as_generator(None)
        both = as_generator(self.random_state)
        return both, both
