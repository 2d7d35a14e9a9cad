"""What the baselines share: their keywords, and the way from a tensor through a strategy to a `Result`."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import DataError, OptionError, check_positive, check_whole, import_package
from ..network import TensorNetwork
from ..results import Errors, PathPoint, Result
from ..search import Context, GreedyOptions, GreedySearch
from ..tasks.decompose import TensorTask
from ..tasks.request import Request, RunKeywords, pick
from ..tasks.task import describe, run_task
from ..tasks.tensor_data import DenseTensor
from .exploration import Exploration, ExplorationProblem, Goal, Map, Outcome, Strategy
from .inner_fit import Fit, FitOptions, InnerFit


class Common(RunKeywords, total=False):
    """Keywords of every baseline that searches, as for `decompose`; at most `max_evaluations` fits."""

    max_evaluations: int | None


class DenseKeywords(Common, total=False):
    """Keywords of every baseline for dense tensors; the `map` of an executor fits a round in parallel."""

    map: Map


def parse_request(method: str, keywords: Mapping[str, Any], known: type) -> Request:
    """Check the keywords of a baseline; those that it shares with `decompose` become a request.

    The `TypedDict` `known` names all keywords. A checkpoint is refused when the run starts.
    """
    unknown = set(keywords) - set(known.__annotations__) - {"checkpoint"}
    if unknown:
        raise OptionError(f"{method} does not know {', '.join(sorted(unknown))}")
    if keywords.get("max_evaluations") is not None:
        check_whole("max_evaluations", keywords["max_evaluations"])
    return Request.parse(method, GreedySearch, GreedyOptions.for_effort, limited=False, **pick(keywords))


@dataclass(frozen=True)
class Setting:
    """What a strategy may know: the data, the goal, and where random numbers come from."""

    data: DenseTensor
    goal: Goal
    rng: np.random.Generator
    context: Context

    @property
    def target(self) -> torch.Tensor:
        return self.data.target

    @property
    def double(self) -> torch.Tensor:
        """The tensor in double precision, for closed forms: their rounding is never repaired by a sweep."""
        return self.target.to(torch.complex128 if self.target.is_complex() else torch.float64)

    @property
    def dims(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def order(self) -> int:
        return len(self.dims)

    def outcome(self, network: TensorNetwork, counted: int | None = None) -> Outcome:
        """What came of a network, in the precision of the data and with its error recomputed."""
        network = network.to(self.target.device, self.target.dtype)
        return Outcome(network.structure, self.data.error(network), network, counted)


def explore(
    x: Any,
    method: str,
    strategy: Callable[[Setting], Strategy],
    keywords: DenseKeywords,
    *,
    fit: Fit = "als",
    error_weight: float | None = None,
    needs_goal: bool = False,
    **notes: Any,
) -> Result:
    """Run a strategy on a dense tensor.

    Parameters
    ----------
    strategy
        Returns the generator of rounds for a setting.
    error_weight
        ``lambda`` of the fitness; None for methods that have none.
    needs_goal
        Whether `max_error` or `max_parameters` must say when to stop.
    notes
        What else goes into ``Result.info``.
    """
    request = parse_request(method, keywords, DenseKeywords)
    if needs_goal and request.limits.max_error is None and request.limits.max_parameters is None:
        raise OptionError(f"nothing says when {method} should stop: give max_error or max_parameters")
    if error_weight is not None:
        check_positive("error_weight", error_weight)
    inner = fit if isinstance(fit, FitOptions) else FitOptions(fit)
    data = DenseTensor(x, request)
    problem = ExplorationProblem(
        InnerFit(data.target, inner),
        Goal(request.limits.max_error, request.limits.max_parameters, error_weight),
        data.error,
        map=keywords.get("map") or builtins.map,
        memory_limit=data.memory_limit,
        max_evaluations=keywords.get("max_evaluations"),
    )
    notes = {"method": method, "fit": inner.method, **notes}
    return run_task(ExplorationTask(data, problem, strategy, notes), request.audience)


class ExplorationTask(TensorTask[Exploration]):
    """A baseline on a dense tensor."""

    data: DenseTensor

    def __init__(
        self,
        data: DenseTensor,
        problem: ExplorationProblem,
        strategy: Callable[[Setting], Strategy],
        notes: Mapping[str, Any],
    ) -> None:
        super().__init__(data)
        self.problem = problem
        self.strategy = strategy
        self.notes = notes

    def search(self) -> Exploration:
        rng = np.random.default_rng(int(torch.randint(2**62, (), generator=self.generator)))
        context = Context(self.generator)
        strategy = self.strategy(Setting(self.data, self.problem.goal, rng, context))
        return Exploration(self.problem, self.request.limits, strategy, context)

    def identity(self, search: Exploration) -> NoReturn:
        refuse_checkpoint(self.notes["method"])

    def threads(self) -> AbstractContextManager[None]:
        return nullcontext()

    def finish(self, search: Exploration) -> Result:
        state, goal = search.state, self.problem.goal
        winner, stop = state.winner, state.stop
        if winner is None or winner.network is None or not goal.holds(winner):
            raise OptionError(
                f"{self.notes['method']} proposed no structure that fits in: all are larger than the data, "
                "max_parameters or memory_limit. Allow more, or smaller ranks"
            )
        assert stop is not None
        info = describe(
            self.probe,
            evaluations=state.evaluations,
            seed=self.seed,
            rounds=state.rounds,
            seconds=state.elapsed,
            **self.notes,
        )
        if goal.error_weight is not None:
            info |= {"error_weight": goal.error_weight, "fitness": goal.fitness(winner)}
        if winner.counted is not None:
            info["num_parameters"] = winner.counted
        return self.build(
            self.bring_home(winner.network),
            Errors(self.data.error(winner.network)),
            self.history(search),
            stop,
            tuple(PathPoint(self.bring_home(p.network), p.error, p.counted) for p in state.path),
            info,
        )


def copy_known(x: Any, mask: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return a copy of an array in double precision, and which of its entries are known and not NaN."""
    filled = np.array(x, dtype=np.complex128 if np.iscomplexobj(x) else np.float64)
    known = np.ones(filled.shape, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
    if known.shape != filled.shape:
        raise DataError(f"mask has shape {known.shape}, x has {filled.shape}")
    known = known & ~np.isnan(filled)
    if not known.any():
        raise DataError(f"none of the {filled.size:,} entries of x is known; at least one is needed")
    return filled, known


def refuse_vectors(method: str, dims: Sequence[int]) -> None:
    """Raise the error for tensors of one axis, which have no format but themselves."""
    if len(dims) < 2:
        raise OptionError(f"{method} needs a tensor with at least two axes")


def refuse_checkpoint(method: str) -> NoReturn:
    """Raise the error for a checkpoint of a run that cannot be resumed."""
    raise OptionError(f"{method} takes no checkpoint: its runs cannot be resumed")


def require(module: str, method: str) -> Any:
    """Import a module of an optional package; the error for a missing one names the extra that brings it."""
    package = module.partition(".")[0]
    return import_package(module, f"{method} needs {package}", "baselines")
