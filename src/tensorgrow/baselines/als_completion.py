"""TT-ALS and TR-ALS completion (Wang, Aggarwal, Aeron; ICCV 2017) by least squares on observed entries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn, Unpack

import torch

from ..data.arrays import as_dtype
from ..data.observations import Observations, as_observations
from ..errors import OptionError, check_choice
from ..network import TensorNetwork, as_generator
from ..results import Result, StopReason
from ..search import Context, Fitted, Limits, NetworkSearch, NetworkState
from ..structure import Structure
from ..tasks.fit import fit
from ..tasks.task import Task, run_task
from .common import Common, parse_request, refuse_checkpoint
from .formats import capped_train
from .svd import train_of_ranks

__all__ = ["tr_als", "tt_als"]

# Ranks in a row that may fail to lower the held-out error.
PATIENCE = 3
# A zero-filled tensor of more entries is not formed for the start: half a gigabyte in double precision.
SPECTRAL_ENTRIES = 1 << 26
# Size of what a spectral start is padded with, relative to the mean size of its cores' entries.
PADDING = 0.1
# Keywords that are not those of a single fit.
OUTSIDE = (
    "max_parameters",
    "max_seconds",
    "max_evaluations",
    "progress",
    "callbacks",
    "random_state",
    "checkpoint",
)


class EntryKeywords(Common, total=False):
    """Keywords of completions by ALS; they mean what they mean for `fit` where entries are missing."""

    weights: Any
    validation: Any
    truth: Any
    ridge: float | None
    max_sweeps: int | None
    tolerance: float | None


def tt_als(
    x: Any,
    mask: Any = None,
    *,
    ranks: Iterable[int] | None = None,
    start: Literal["spectral", "random"] = "spectral",
    **common: Unpack[EntryKeywords],
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
    Held-out entries choose the ridge unless it is set; the published method has none.
    """
    return _raise_rank("tt_als", capped_train, x, mask, ranks, start, common)


def tr_als(
    x: Any,
    mask: Any = None,
    *,
    ranks: Iterable[int] | None = None,
    start: Literal["spectral", "random"] = "spectral",
    **common: Unpack[EntryKeywords],
) -> Result:
    """Complete a tensor by a tensor ring of uniform rank; see `tt_als`.

    A spectral start is that of a train, its ends joined by slices of small noise.
    """
    return _raise_rank("tr_als", Structure.tensor_ring, x, mask, ranks, start, common)


def _raise_rank(
    method: str,
    structure_of: Callable[[tuple[int, ...], int], Structure],
    x: Any,
    mask: Any,
    ranks: Iterable[int] | None,
    start: str,
    keywords: EntryKeywords,
) -> Result:
    check_choice("start", start, ("spectral", "random"))
    request = parse_request(method, keywords, EntryKeywords)
    seen = as_observations(x, mask, keywords.get("weights"), as_dtype(keywords.get("dtype")))
    generator = as_generator(request.random_state)
    seed = int(torch.randint(2**62, (), generator=generator))
    options: dict[str, Any] = {k: v for k, v in keywords.items() if k not in OUTSIDE}

    def fit_structure(structure: Structure, seconds: float | None) -> Result:
        init = _spectral(seen, structure, seed) if start == "spectral" else None
        return fit(
            x, structure, mask, **options, init=init, max_seconds=seconds, random_state=seed, progress=False
        )

    most = request.limits.max_parameters
    problem = RankProblem(
        method,
        fit_structure,
        lambda rank: structure_of(seen.shape, rank),
        None if ranks is None else tuple(ranks),
        len(seen) if most is None else most,
        keywords.get("max_evaluations"),
    )
    return run_task(RankTask(problem, request.limits, generator), request.audience)


@dataclass(frozen=True)
class RankProblem:
    """Structures of rising rank.

    Attributes
    ----------
    fit
        Fits a structure within some seconds.
    structure
        The structure of a rank.
    ranks
        Ranks to try; None: 1, 2, 3, ... until the held-out error no longer falls.
    """

    method: str
    fit: Callable[[Structure, float | None], Result]
    structure: Callable[[int], Structure]
    ranks: tuple[int, ...] | None
    max_parameters: int
    max_evaluations: int | None


@dataclass
class RankState(NetworkState):
    """Of a `RankSearch`.

    Attributes
    ----------
    size
        Parameters of the last structure.
    stale
        Ranks since the held-out error fell.
    last, winner
        What the last fit returned, and the fit with the smallest held-out error.
    """

    size: int = 0
    stale: int = 0
    last: Result | None = None
    winner: Result | None = None


class RankSearch(NetworkSearch[RankProblem, RankState]):
    """Fits one rank after the other and keeps the one with the smallest held-out error; see `Search`."""

    @property
    def patience(self) -> int | None:
        """Ranks without a lower held-out error after which the run ends."""
        return PATIENCE if self.problem.ranks is None else None

    @property
    def _phases(self) -> Mapping[str, Callable[[], None]]:
        return {"start": self._fit_next, "rise": self._fit_next}

    def _fit_next(self) -> None:
        state, problem, number = self.state, self.problem, len(self.state.steps)
        if problem.ranks is not None and number == len(problem.ranks):
            return self._end(StopReason.FINISHED)
        structure = problem.structure(number + 1 if problem.ranks is None else problem.ranks[number])
        size = structure.num_parameters
        if size > problem.max_parameters:
            return self._end(StopReason.MAX_PARAMETERS)
        if size == state.size and problem.ranks is None:
            return self._end(StopReason.SATURATED)
        left = self.context.seconds_left
        result = problem.fit(structure, None if left is None else max(left, 0.0))
        state.phase, state.size, state.last = "rise", size, result
        state.current = Fitted(result.network, result.history[-1].loss, result.validation_error)
        state.stale += 1
        if state.winner is None or _measure(result) < _measure(state.winner):
            state.winner, state.best, state.stale = result, state.current, 0
        self._record(result.history[-1].kind)
        return self._stop_if_done(result)

    def _stop_if_done(self, result: Result) -> None:
        state, problem = self.state, self.problem
        if result.stop is StopReason.INTERRUPTED:  # the fit ended early, and so must the run
            self._end(StopReason.INTERRUPTED)
        elif self.limits.max_error is not None and _measure(result) <= self.limits.max_error:
            self._end(StopReason.TARGET_REACHED)
        elif self.context.is_out_of_time:
            self._end(StopReason.MAX_SECONDS)
        elif problem.max_evaluations is not None and len(state.steps) >= problem.max_evaluations:
            self._end(StopReason.MAX_EVALUATIONS)
        elif problem.ranks is None and state.stale >= PATIENCE:
            self._end(StopReason.VALIDATION)

    def _errors(self, fitted: Fitted) -> tuple[float | None, float | None]:
        assert self.state.last is not None
        return self.state.last.history[-1].relative_error, fitted.validation


class RankTask(Task[RankSearch, Result]):
    """A completion at rising rank."""

    def __init__(self, problem: RankProblem, limits: Limits, generator: torch.Generator) -> None:
        self.problem = problem
        self.limits = limits
        self.generator = generator

    def search(self) -> RankSearch:
        """A search over ranks."""
        return RankSearch(self.problem, self.limits, RankState(), Context(self.generator))

    def identity(self, search: RankSearch) -> NoReturn:
        """Refuse a checkpoint."""
        refuse_checkpoint(self.problem.method)

    def finish(self, search: RankSearch) -> Result:
        """The best fit, with the history of all."""
        state = search.state
        if state.winner is None or state.stop is None:
            raise OptionError(
                "nothing was fitted: ranks is empty, or the smallest rank is above max_parameters"
            )
        about = {"method": self.problem.method, "evaluations": len(state.steps), "seconds": state.elapsed}
        return replace(
            state.winner,
            history=tuple(state.steps),
            path=tuple(state.path),
            stop=state.stop,
            info={**state.winner.info, **about},
        )


def _measure(result: Result) -> float:
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
