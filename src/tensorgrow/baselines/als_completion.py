"""TT-ALS and TR-ALS completion (Wang, Aggarwal, Aeron; ICCV 2017) by least squares on observed entries."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypedDict, Unpack

import torch

from ..callbacks.base import as_callbacks, progress_callback
from ..data.arrays import as_dtype
from ..data.observations import Observations, as_observations
from ..errors import OptionError, check_choice
from ..network import RandomState, TensorNetwork, as_generator
from ..results import PathPoint, Result, Step, StopReason, add_to_path
from ..search import Fitted, Limits, Search
from ..structure import Structure
from ..tasks.api import fit
from ..tasks.task import run
from .formats import capped_train
from .svd import train_of_ranks

__all__ = ["Completing", "tr_als", "tt_als"]

MAX_RANK = 10_000
# Ranks in a row that may fail to lower the held-out error.
PATIENCE = 3
# A zero-filled tensor of more entries is not formed for the start.
SPECTRAL_ENTRIES = 1 << 26
# Size of what a spectral start is padded with, relative to the mean size of its cores' entries.
PADDING = 0.1
# Keywords that are not those of a single fit.
OUTSIDE = ("max_parameters", "max_seconds", "max_evaluations", "progress", "callbacks", "random_state")


class Completing(TypedDict, total=False):
    """Keywords of completion baselines; they mean what they mean for `complete`."""

    weights: Any
    validation: Any
    truth: Any
    ridge: float | None
    max_error: float | None
    max_parameters: int | None
    max_seconds: float | None
    max_evaluations: int | None
    max_sweeps: int | None
    tolerance: float | None
    random_state: RandomState
    device: torch.device | str | None
    dtype: Any
    memory_limit: float | None
    progress: bool | None
    callbacks: Any


def tt_als(
    x: Any,
    mask: Any = None,
    *,
    ranks: Iterable[int] | None = None,
    start: Literal["spectral", "random"] = "spectral",
    **common: Unpack[Completing],
) -> Result:
    """Complete a tensor by a tensor train of uniform rank, cores updated in turn by least squares.

    Parameters
    ----------
    x, mask
        As for `complete`.
    ranks
        Ranks to try; by default 1, 2, 3, ... until the parameter budget is used up or the held-out error has
        not fallen for three ranks. The rank with the smallest held-out error is the answer.
    start
        "spectral": successive SVDs of the zero-filled tensor, as published. "random".

    Notes
    -----
    The ridge is chosen on held-out entries unless given, which the published method does not have.
    """
    return _rising("tt_als", capped_train, x, mask, ranks, start, common)


def tr_als(
    x: Any,
    mask: Any = None,
    *,
    ranks: Iterable[int] | None = None,
    start: Literal["spectral", "random"] = "spectral",
    **common: Unpack[Completing],
) -> Result:
    """Complete a tensor by a tensor ring of uniform rank; see `tt_als`.

    A spectral start is that of a train, its ends joined by slices of small noise.
    """
    return _rising("tr_als", Structure.tensor_ring, x, mask, ranks, start, common)


def _rising(
    method: str,
    structure_of: Callable[[tuple[int, ...], int], Structure],
    x: Any,
    mask: Any,
    ranks: Iterable[int] | None,
    start: str,
    common: Completing,
) -> Result:
    check_choice("start", start, ("spectral", "random"))
    unknown = set(common) - set(Completing.__annotations__)
    if unknown:
        raise OptionError(f"{method} does not know {', '.join(sorted(unknown))}")
    seen = as_observations(x, mask, common.get("weights"), as_dtype(common.get("dtype")))
    seed = int(torch.randint(2**62, (), generator=as_generator(common.get("random_state"))))
    options: dict[str, Any] = {k: v for k, v in common.items() if k not in OUTSIDE}

    def fit_rank(rank: int, seconds: float | None) -> Result:
        structure = structure_of(seen.shape, rank)
        init = _spectral(seen, structure, seed) if start == "spectral" else None
        return fit(x, structure, mask, **options, init=init, max_seconds=seconds, random_state=seed)

    most = common.get("max_parameters")
    limits = Limits(common.get("max_error"), most, None, common.get("max_seconds"), held_out=True)
    search = RankSearch(
        limits,
        fit_rank,
        lambda rank: structure_of(seen.shape, rank).num_parameters,
        ranks,
        len(seen) if most is None else most,
        common.get("max_evaluations"),
    )
    run(search, [*as_callbacks(common.get("callbacks")), *progress_callback(common.get("progress"))])
    best, state = search.found, search.state
    if best is None or state.stop is None:
        raise OptionError("nothing was fitted: ranks is empty, or the smallest rank is above max_parameters")
    info = {**best.info, "method": method, "evaluations": len(state.steps), "seconds": state.elapsed}
    return replace(best, history=tuple(state.steps), path=tuple(state.path), stop=state.stop, info=info)


class RankSearch(Search):
    """Fits one rank after the other and keeps the one with the smallest held-out error; see `Search`."""

    def __init__(
        self,
        limits: Limits,
        fit_rank: Callable[[int, float | None], Result],
        size_of: Callable[[int], int],
        ranks: Iterable[int] | None,
        max_parameters: int,
        max_evaluations: int | None,
    ) -> None:
        super().__init__(Unused(), limits)
        self.fit_rank = fit_rank
        self.size_of = size_of
        self.patient = ranks is not None
        self.ranks = iter(range(1, MAX_RANK) if ranks is None else ranks)
        self.max_parameters = max_parameters
        self.max_evaluations = max_evaluations
        self.found: Result | None = None

    def __iter__(self) -> Iterator[Step]:
        """Advance until done; every rank is yielded."""
        begin, stale, before = time.perf_counter(), 0, 0
        state, limit = self.state, self.limits.max_seconds
        for rank in self.ranks:
            size = self.size_of(rank)
            if size > self.max_parameters:
                return self._end(StopReason.MAX_PARAMETERS)
            if size == before and not self.patient:
                return self._end(StopReason.SATURATED)
            before = size
            result = self.fit_rank(rank, None if limit is None else max(limit - state.elapsed, 0.0))
            state.elapsed = time.perf_counter() - begin
            better = self.found is None or measure(result) < measure(self.found)
            stale = 0 if better else stale + 1
            self._note(result, better)
            yield state.steps[-1]
            if self.limits.max_error is not None and measure(result) <= self.limits.max_error:
                return self._end(StopReason.TARGET_REACHED)
            if limit is not None and state.elapsed >= limit:
                return self._end(StopReason.MAX_SECONDS)
            if self.max_evaluations is not None and len(state.steps) >= self.max_evaluations:
                return self._end(StopReason.MAX_EVALUATIONS)
            if stale >= PATIENCE and not self.patient:
                return self._end(StopReason.VALIDATION)
        return self._end(StopReason.FINISHED)

    def _note(self, result: Result, better: bool) -> None:
        state, last = self.state, result.history[-1]
        number = len(state.steps)
        held_out = result.validation_error
        state.steps.append(replace(last, index=number, seconds=state.elapsed, validation_error=held_out))
        add_to_path(state.path, PathPoint(result.network, measure(result)))
        state.current = Fitted(result.network, last.loss)
        if better:
            self.found, state.best = result, state.current


@dataclass
class Unused:
    """The problem of a search that leaves everything to `fit`."""

    generator: torch.Generator = field(default_factory=torch.Generator)
    deadline: float = math.inf


def measure(result: Result) -> float:
    """Held-out error, else the error on what was fitted."""
    return result.relative_error if result.validation_error is None else result.validation_error


def _spectral(seen: Observations, structure: Structure, seed: int) -> TensorNetwork | None:
    """SVDs of the zero-filled tensor divided by the share of observed entries; noise where they give none."""
    if structure.num_entries > SPECTRAL_ENTRIES or not bool(seen.values.any()):
        return None
    filled = seen.values.new_zeros(math.prod(seen.shape)).reshape(seen.shape)
    filled[tuple(seen.indices.T)] = seen.values / seen.density
    chain = [structure.rank(k, k + 1) for k in range(structure.order - 1)]
    train = train_of_ranks(filled, chain)
    generator = torch.Generator().manual_seed(seed)
    noise = TensorNetwork.random(structure, random_state=generator, dtype=filled.dtype)
    cores = []
    for k, (core, pad) in enumerate(zip(train, noise.cores)):
        size = float(core.abs().mean()) * PADDING
        padded = (size * pad).to(core.device)
        where: list[Any] = [slice(None)] * padded.dim()
        for n, j in enumerate(structure.neighbours[k]):
            along = core.shape[0] if j == k - 1 else core.shape[2] if j == k + 1 else 1
            where[n + 1] = slice(0, along)
        padded[tuple(where)] = core.movedim(1, 0).reshape(padded[tuple(where)].shape)
        cores.append(padded)
    return TensorNetwork(structure, cores)
