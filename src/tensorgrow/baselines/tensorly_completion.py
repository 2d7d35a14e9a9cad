"""CP and Tucker completion by TensorLy: ALS on a tensor whose missing entries are imputed by the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, NoReturn, TypedDict, Unpack

import numpy as np
import torch

from ..callbacks.base import Callbacks
from ..data.arrays import as_dtype
from ..data.observations import as_observations
from ..errors import DataError, OptionError
from ..network import RandomState, TensorNetwork, as_generator
from ..results import Errors, Result, StopReason
from ..search import Context, Fitted, Limits, NetworkSearch, NetworkState
from ..tasks.task import Task, describe, run_task
from .common import parse_request, refuse_checkpoint
from .formats import cp_network, cp_size, tucker_network, tucker_ranks
from .tensorly_sweeps import tensorly_backend

__all__ = ["cp_completion", "tucker_completion"]

# TensorLy's Tucker has no callback: its iterations come in blocks.
BLOCK = 10


class ImputationKeywords(TypedDict, total=False):
    """Keywords of completions by TensorLy; they mean what they mean for `complete`."""

    truth: Any
    max_seconds: float | None
    random_state: RandomState
    progress: bool | None
    callbacks: Callbacks


def cp_completion(
    x: Any,
    mask: Any = None,
    *,
    rank: int,
    iterations: int = 1000,
    tolerance: float = 1e-6,
    **common: Unpack[ImputationKeywords],
) -> Result:
    """Complete a tensor by CP of one rank (TensorLy's `parafac` with a mask).

    Missing entries begin as the mean of the observed ones, factors at random: TensorLy's own start with a
    mask takes minutes and is no better. ``relative_error`` is on the observed entries.
    """

    def decompose(problem: ImputationProblem, note: Note) -> None:
        from tensorly.decomposition import parafac

        done = count()  # the first call is for the start

        def note_model(model: Any, *_: Any) -> bool:
            weights, factors = model
            return note(cp_network([factors[0] * weights, *factors[1:]]), next(done))

        parafac(
            problem.filled,
            rank,
            n_iter_max=iterations,
            init="random",
            mask=problem.known,
            tol=tolerance,
            random_state=problem.seed,
            callback=note_model,
        )

    return _impute("cp_completion", decompose, x, mask, rank, common)


def tucker_completion(
    x: Any,
    mask: Any = None,
    *,
    rank: int,
    iterations: int = 1000,
    **common: Unpack[ImputationKeywords],
) -> Result:
    """Complete a tensor by Tucker with one rank in all modes (TensorLy's `tucker` with a mask)."""

    def decompose(problem: ImputationProblem, note: Note) -> None:
        import tensorly as tl
        from tensorly.decomposition import tucker

        filled, seed = problem.filled, problem.seed
        ranks, done, change = list(tucker_ranks(filled.shape, rank)), 0, math.inf
        model = tucker(filled, ranks, n_iter_max=1, tol=0, random_state=seed)
        before = tl.tucker_to_tensor(model)
        # Converged: a whole block of iterations changes next to nothing.
        while not note(tucker_network(*model), done) and done < iterations and change >= 1e-4:
            model = tucker(
                filled, ranks, n_iter_max=BLOCK, init=model, mask=problem.known, tol=0, random_state=seed
            )
            done += BLOCK
            now = tl.tucker_to_tensor(model)
            change = float(np.linalg.norm(now - before) / np.linalg.norm(now))
            before = now

    return _impute("tucker_completion", decompose, x, mask, rank, common)


Note = Callable[[TensorNetwork, int], bool]
"""Told of the network after so many iterations; returns whether time is up."""


@dataclass(frozen=True)
class ImputationProblem:
    """Observed entries, and the method that imputes the others.

    Attributes
    ----------
    filled
        The tensor with the mean of the observed entries in place of the missing ones.
    known
        1 where an entry is observed, else 0.
    counted
        Parameters, where the network also holds fixed numbers.
    """

    method: str
    decompose: Callable[[ImputationProblem, Note], None]
    counted: int | None
    indices: torch.Tensor
    values: torch.Tensor
    filled: np.ndarray
    known: np.ndarray
    seed: int


@dataclass
class ImputationState(NetworkState):
    """Of an `Imputation`: the iterations it made."""

    iterations: int = 0


class Imputation(NetworkSearch[ImputationProblem, ImputationState]):
    """One decomposition, which is one step; see `Search`. Ctrl-C ends it with the model so far."""

    @property
    def _phases(self) -> Mapping[str, Callable[[], None]]:
        return {"start": self._fit}

    def _fit(self) -> None:
        state, problem = self.state, self.problem
        network: TensorNetwork | None = None

        def note(now: TensorNetwork, iterations: int) -> bool:
            nonlocal network
            network, state.iterations = now, iterations
            return self.context.is_out_of_time

        reason = StopReason.CONVERGED
        try:
            with tensorly_backend(problem.method):
                problem.decompose(problem, note)
        except KeyboardInterrupt:
            if network is None:
                raise
            reason = StopReason.INTERRUPTED
        assert network is not None
        loss = _relative_error(network, problem.indices, problem.values) * self._norm
        counted = None if problem.counted == network.num_parameters else problem.counted
        state.current = state.best = Fitted(network, loss, counted=counted)
        self._record("fit")
        out_of_time = reason is StopReason.CONVERGED and self.context.is_out_of_time
        self._end(StopReason.MAX_SECONDS if out_of_time else reason)

    @property
    def _norm(self) -> float:
        return float(torch.linalg.vector_norm(self.problem.values)) or 1.0

    def _errors(self, fitted: Fitted) -> tuple[float | None, float | None]:
        return fitted.loss / self._norm, None


class ImputationTask(Task[Imputation, Result]):
    """A completion by TensorLy."""

    def __init__(
        self, problem: ImputationProblem, keywords: ImputationKeywords, generator: torch.Generator, rank: int
    ) -> None:
        self.problem = problem
        self.keywords = keywords
        self.generator = generator
        self.rank = rank

    def search(self) -> Imputation:
        """A search of one step."""
        limits = Limits(max_seconds=self.keywords.get("max_seconds"), held_out=True)
        return Imputation(self.problem, limits, ImputationState(), Context(self.generator))

    def identity(self, search: Imputation) -> NoReturn:
        """Refuse a checkpoint."""
        refuse_checkpoint(self.problem.method)

    def finish(self, search: Imputation) -> Result:
        """The network, with its error on entries that were not observed where the truth is known."""
        state, problem, truth = search.state, self.problem, self.keywords.get("truth")
        (step,) = state.steps
        error, fitted = step.error, search.best
        info = describe(
            problem.values,
            method=problem.method,
            rank=self.rank,
            iterations=state.iterations,
            seconds=state.elapsed,
            **({} if fitted.counted is None else {"num_parameters": fitted.counted}),
        )
        test = None if truth is None else _test_error(fitted.network, truth, problem.known)
        errors = Errors(error, train=error, test=test)
        assert state.stop is not None
        return Result(fitted.network, errors, (step,), state.stop, tuple(state.path), info)


def _impute(
    method: str,
    decompose: Callable[[ImputationProblem, Note], None],
    x: Any,
    mask: Any,
    rank: int,
    keywords: ImputationKeywords,
) -> Result:
    if rank < 1:
        raise OptionError(f"rank={rank} must be at least 1")
    request = parse_request(method, keywords, ImputationKeywords)
    seen = as_observations(x, mask, dtype=as_dtype("float64"))
    indices, values = seen.indices.cpu(), seen.values.cpu()
    where = tuple(indices.T.numpy())
    known = np.zeros(seen.shape)
    known[where] = 1.0
    filled = np.full(seen.shape, values.numpy().mean())
    filled[where] = values.numpy()
    generator = as_generator(request.random_state)
    seed = int(torch.randint(2**31, (), generator=generator))
    counted = cp_size(seen.shape, rank) if method == "cp_completion" else None
    problem = ImputationProblem(method, decompose, counted, indices, values, filled, known, seed)
    return run_task(ImputationTask(problem, keywords, generator, rank), request.audience)


def _test_error(network: TensorNetwork, truth: Any, known: np.ndarray) -> float:
    """Relative error on what was not observed."""
    full = torch.as_tensor(np.asarray(truth))
    if tuple(full.shape) != known.shape:
        raise DataError(f"truth has shape {tuple(full.shape)}, the data {known.shape}")
    missing = torch.from_numpy(known == 0).nonzero()
    return _relative_error(network, missing, full[tuple(missing.T)])


def _relative_error(network: TensorNetwork, indices: torch.Tensor, values: torch.Tensor) -> float:
    rest = network.entries(indices) - values
    return float(torch.linalg.vector_norm(rest)) / (float(torch.linalg.vector_norm(values)) or 1.0)
