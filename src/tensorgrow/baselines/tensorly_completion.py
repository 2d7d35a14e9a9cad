"""CP and Tucker completion by TensorLy: ALS on a tensor whose missing entries are imputed by the model."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..data.arrays import as_dtype
from ..data.observations import as_observations
from ..errors import DataError, OptionError
from ..network import RandomState, TensorNetwork, as_generator
from ..results import PathPoint, Result, Step, StopReason
from ..tasks.task import describe
from .formats import cp_network, cp_size, tucker_network, tucker_ranks
from .tensorly_sweeps import tensorly_backend

__all__ = ["cp_completion", "tucker_completion"]

# TensorLy's Tucker has no callback: its iterations come in blocks, until one changes little.
BLOCK = 10
BLOCK_TOLERANCE = 1e-4


def cp_completion(
    x: Any,
    mask: Any = None,
    *,
    rank: int,
    iterations: int = 1000,
    tolerance: float = 1e-6,
    truth: Any = None,
    max_seconds: float | None = None,
    random_state: RandomState = None,
) -> Result:
    """Complete a tensor by CP of one rank (TensorLy's `parafac` with a mask).

    Missing entries begin as the mean of the observed ones, factors at random: TensorLy's own start with a
    mask takes minutes and is no better. ``relative_error`` is on the observed entries.
    """

    def decompose(filled: np.ndarray, known: np.ndarray, seed: int, late: Callable[[], bool]) -> Any:
        from tensorly.decomposition import parafac

        done = 0

        def stop(*_: Any) -> bool:
            nonlocal done
            done += 1
            return late()

        weights, factors = parafac(
            filled,
            rank,
            n_iter_max=iterations,
            init="random",
            mask=known,
            tol=tolerance,
            random_state=seed,
            callback=stop,
        )
        return cp_network([factors[0] * weights, *factors[1:]]), cp_size(filled.shape, rank), done - 1

    return _imputed("cp_completion", decompose, x, mask, truth, rank, max_seconds, random_state)


def tucker_completion(
    x: Any,
    mask: Any = None,
    *,
    rank: int,
    iterations: int = 1000,
    truth: Any = None,
    max_seconds: float | None = None,
    random_state: RandomState = None,
) -> Result:
    """Complete a tensor by Tucker with one rank in all modes (TensorLy's `tucker` with a mask)."""

    def decompose(filled: np.ndarray, known: np.ndarray, seed: int, late: Callable[[], bool]) -> Any:
        import tensorly as tl
        from tensorly.decomposition import tucker

        ranks, done = list(tucker_ranks(filled.shape, rank)), 0
        found = tucker(filled, ranks, n_iter_max=1, tol=0, random_state=seed)
        before = tl.tucker_to_tensor(found)
        while done < iterations and not late():
            found = tucker(filled, ranks, n_iter_max=BLOCK, init=found, mask=known, tol=0, random_state=seed)
            done += BLOCK
            now = tl.tucker_to_tensor(found)
            change = float(np.linalg.norm(now - before) / np.linalg.norm(now))
            before = now
            if change < BLOCK_TOLERANCE:
                break
        network = tucker_network(*found)
        return network, network.num_parameters, done

    return _imputed("tucker_completion", decompose, x, mask, truth, rank, max_seconds, random_state)


def _imputed(
    method: str,
    decompose: Callable[[np.ndarray, np.ndarray, int, Callable[[], bool]], Any],
    x: Any,
    mask: Any,
    truth: Any,
    rank: int,
    max_seconds: float | None,
    random_state: RandomState,
) -> Result:
    if rank < 1:
        raise OptionError(f"rank={rank} must be at least 1")
    seen = as_observations(x, mask, dtype=as_dtype("float64"))
    where = tuple(seen.indices.T.cpu().numpy())
    values = seen.values.cpu().numpy()
    known = np.zeros(seen.shape)
    known[where] = 1.0
    filled = np.full(seen.shape, values.mean())
    filled[where] = values
    seed = int(torch.randint(2**31, (), generator=as_generator(random_state)))
    begin = time.perf_counter()
    with tensorly_backend(method):
        network, size, iterations = decompose(
            filled, known, seed, lambda: max_seconds is not None and time.perf_counter() - begin > max_seconds
        )
    seconds = time.perf_counter() - begin
    error = _relative(network, seen.indices.cpu(), torch.from_numpy(values))
    late = max_seconds is not None and seconds > max_seconds
    loss = error * float(np.linalg.norm(values))
    step = Step(0, "fit", None, size, loss, error, None, seconds, network.structure)
    counted = None if size == network.num_parameters else size
    info = describe(
        torch.from_numpy(values), method=method, rank=rank, iterations=iterations, seconds=seconds
    )
    if counted is not None:
        info["num_parameters"] = counted
    return Result(
        network,
        error,
        (step,),
        StopReason.MAX_SECONDS if late else StopReason.CONVERGED,
        (PathPoint(network, error, counted),),
        info,
        train_error=error,
        test_error=None if truth is None else _test_error(network, truth, known),
    )


def _test_error(network: TensorNetwork, truth: Any, known: np.ndarray) -> float:
    """Relative error on what was not observed."""
    full = torch.as_tensor(np.asarray(truth))
    if tuple(full.shape) != known.shape:
        raise DataError(f"truth has shape {tuple(full.shape)}, the data {known.shape}")
    missing = torch.from_numpy(known == 0).nonzero()
    return _relative(network, missing, full[tuple(missing.T)])


def _relative(network: TensorNetwork, indices: torch.Tensor, values: torch.Tensor) -> float:
    rest = network.entries(indices) - values
    return float(torch.linalg.vector_norm(rest)) / (float(torch.linalg.vector_norm(values)) or 1.0)
