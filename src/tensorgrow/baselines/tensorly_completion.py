"""CP and Tucker completion by TensorLy: ALS on a tensor whose missing entries are imputed by the model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import count
from typing import Any, TypedDict, Unpack

import numpy as np
import torch

from ..callbacks.base import Callbacks
from ..data.arrays import as_dtype
from ..data.observations import as_observations
from ..errors import DataError, OptionError
from ..network import RandomState, TensorNetwork, as_generator
from ..results import Errors, Result
from ..steps import Step, StopReason
from ..tasks.task import describe, run_task
from .common import parse_request, refuse_vectors
from .formats import cp_network, cp_size, tucker_network, tucker_ranks
from .rank_search import RankProblem, RankTask
from .tensorly_sweeps import tensorly_backend


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

    def decompose(filled: np.ndarray, known: np.ndarray, seed: int, note: Note) -> None:
        from tensorly.decomposition import parafac

        done = count()  # the first call is for the start

        def note_model(model: Any, *_: Any) -> bool:
            weights, factors = model
            return note(cp_network([factors[0] * weights, *factors[1:]]), next(done))

        parafac(
            filled,
            rank,
            n_iter_max=iterations,
            init="random",
            mask=known,
            tol=tolerance,
            random_state=seed,
            callback=note_model,
        )

    return _impute("cp_completion", decompose, x, mask, rank, common)


def tucker_completion(
    x: Any, mask: Any = None, *, rank: int, iterations: int = 1000, **common: Unpack[ImputationKeywords]
) -> Result:
    """Complete a tensor by Tucker with one rank in all modes (TensorLy's `tucker` with a mask)."""

    def decompose(filled: np.ndarray, known: np.ndarray, seed: int, note: Note) -> None:
        import tensorly as tl
        from tensorly.decomposition import tucker

        ranks, done, change = list(tucker_ranks(filled.shape, rank)), 0, math.inf
        model = tucker(filled, ranks, n_iter_max=1, tol=0, random_state=seed)
        before = tl.tucker_to_tensor(model)
        # Converged: a whole block of iterations changes next to nothing.
        while not note(tucker_network(*model), done) and done < iterations and change >= 1e-4:
            # TensorLy's Tucker has no callback: its iterations come in blocks.
            model = tucker(filled, ranks, n_iter_max=10, init=model, mask=known, tol=0, random_state=seed)
            done += 10
            now = tl.tucker_to_tensor(model)
            change = float(np.linalg.norm(now - before) / np.linalg.norm(now))
            before = now

    return _impute("tucker_completion", decompose, x, mask, rank, common)


Note = Callable[[TensorNetwork, int], bool]
"""Takes the network after that many iterations; returns whether time is up."""


def _impute(
    method: str,
    decompose: Callable[[np.ndarray, np.ndarray, int, Note], None],
    x: Any,
    mask: Any,
    rank: int,
    keywords: ImputationKeywords,
) -> Result:
    """Run a completion.

    Parameters
    ----------
    decompose
        Takes the tensor with the mean of the observed entries in place of the missing ones, an array that is
        1 where an entry is observed and 0 elsewhere, a seed, and whom to tell of every network.
    """
    if rank < 1:
        raise OptionError(f"rank={rank} must be at least 1")
    request = parse_request(method, keywords, ImputationKeywords)
    seen = as_observations(x, mask, dtype=as_dtype("float64"))
    refuse_vectors(method, seen.shape)
    indices, values = seen.indices.cpu(), seen.values.cpu()
    where = tuple(indices.T.numpy())
    known = np.zeros(seen.shape)
    known[where] = 1.0
    filled = np.full(seen.shape, values.numpy().mean())
    filled[where] = values.numpy()
    generator = as_generator(request.random_state)
    seed = int(torch.randint(2**31, (), generator=generator))
    truth = keywords.get("truth")

    def fit(rank: int, seconds: float | None) -> Result:
        begin = time.perf_counter()
        network: TensorNetwork | None = None
        iterations = 0

        def is_late() -> bool:
            return seconds is not None and time.perf_counter() - begin > seconds

        def note(now: TensorNetwork, done: int) -> bool:
            nonlocal network, iterations
            network, iterations = now, done
            return is_late()

        stop = StopReason.CONVERGED
        try:
            with tensorly_backend(method):
                decompose(filled, known, seed, note)
        except KeyboardInterrupt:
            if network is None:
                raise
            stop = StopReason.INTERRUPTED
        if is_late():
            stop = StopReason.MAX_SECONDS
        assert network is not None
        error = _relative_error(network, indices, values)
        test = None if truth is None else _test_error(network, truth, known)
        info = describe(values, rank=rank, iterations=iterations)
        size = cp_size(seen.shape, rank) if method == "cp_completion" else network.num_parameters
        if size != network.num_parameters:
            info["num_parameters"] = size
        loss = error * float(torch.linalg.vector_norm(values))
        step = Step(0, "fit", None, size, loss, error, None, 0.0, network.structure)
        errors = Errors(error, train=error, test=test)
        return Result(network, errors, (step,), stop, info=info, axes=seen.axes)

    problem = RankProblem(method, fit, lambda rank: rank, (rank,), math.inf, is_single=True)
    return run_task(RankTask(problem, request.limits, generator), request.audience)


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
