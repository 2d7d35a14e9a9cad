"""CP, Tucker and tensor trains by TensorLy at rising ranks (extra `baselines`)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, Unpack

import numpy as np

from ..errors import DataError
from ..network import TensorNetwork
from ..results import Result
from ..structure import Structure
from .common import DenseKeywords, Setting, explore, refuse_vectors, require
from .exploration import Strategy
from .formats import capped_train, cp_network, cp_size, train_network, tucker_network, tucker_ranks


@contextmanager
def tensorly_backend(method: str) -> Iterator[Any]:
    """TensorLy with its NumPy backend; afterwards the backend is what it was before."""
    tensorly = require("tensorly", method)
    with tensorly.backend_context("numpy"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield tensorly
        except np.linalg.LinAlgError as error:
            raise DataError(
                f"{method}: TensorLy cannot fit this data ({error}); try a smaller rank"
            ) from error


def cp(
    x: Any,
    *,
    ranks: Iterable[int] | None = None,
    iterations: int = 500,
    tolerance: float = 1e-8,
    **common: Unpack[DenseKeywords],
) -> Result:
    """CP by alternating least squares (TensorLy's `parafac`), rank by rank.

    Parameters
    ----------
    ranks
        Ranks to try, rising; by default 1, 2, 3, ... until the error or the budget is reached.
    iterations, tolerance
        Of each fit.

    Notes
    -----
    ``num_parameters`` counts the factors; ``network`` also has copy tensors of fixed zeros and ones.
    """

    def fit(setting: Setting, rank: int) -> TensorNetwork:
        with tensorly_backend("cp"):
            from tensorly.decomposition import parafac

            weights, factors = parafac(
                setting.target.cpu().numpy(),
                rank,
                n_iter_max=iterations,
                tol=tolerance,
                init="random",
                random_state=int(setting.rng.integers(2**31)),
                callback=lambda *_: setting.context.is_out_of_time,
            )
        return cp_network([factors[0] * weights, *factors[1:]])

    return _raise_rank("cp", x, cp_size, fit, ranks, common)


def tucker(
    x: Any,
    *,
    ranks: Iterable[int] | None = None,
    iterations: int = 100,
    tolerance: float = 1e-10,
    **common: Unpack[DenseKeywords],
) -> Result:
    """Tucker by orthogonal iteration (TensorLy's `tucker`) with one rank for all modes, rising."""

    def size(dims: Sequence[int], rank: int) -> int:
        return Structure.tucker(dims, tucker_ranks(dims, rank)).num_parameters

    def fit(setting: Setting, rank: int) -> TensorNetwork:
        with tensorly_backend("tucker"):
            from tensorly.decomposition import tucker as decompose

            modes = list(tucker_ranks(setting.dims, rank))
            core, factors = decompose(
                setting.target.cpu().numpy(), modes, n_iter_max=iterations, tol=tolerance
            )
        return tucker_network(core, factors)

    return _raise_rank("tucker", x, size, fit, ranks, common)


def tensorly_tt(x: Any, *, ranks: Iterable[int] | None = None, **common: Unpack[DenseKeywords]) -> Result:
    """Tensor train (TensorLy's `tensor_train`) with one rank for all edges, rising; see also `tt_svd`."""

    def size(dims: Sequence[int], rank: int) -> int:
        return capped_train(dims, rank).num_parameters

    def fit(setting: Setting, rank: int) -> TensorNetwork:
        with tensorly_backend("tt"):
            from tensorly.decomposition import tensor_train

            structure = capped_train(setting.dims, rank)
            inner = [structure.rank(k, k + 1) for k in range(setting.order - 1)]
            train = tensor_train(setting.double.cpu().numpy(), [1, *inner, 1])
        return train_network([np.array(f) for f in train.factors], range(setting.order))

    return _raise_rank("tt", x, size, fit, ranks, common)


def _raise_rank(
    method: str,
    x: Any,
    size: Callable[[Sequence[int], int], int],
    fit: Callable[[Setting, int], TensorNetwork],
    ranks: Iterable[int] | None,
    common: DenseKeywords,
) -> Result:
    """Raise a rank until the error is reached, the budget is used up or nothing is gained."""

    def strategy(setting: Setting) -> Strategy:
        refuse_vectors(method, setting.dims)
        goal = setting.goal
        # Without a budget ranks rise until there are four parameters per entry: far beyond any use.
        most = 4 * setting.target.numel() if goal.max_parameters is None else goal.max_parameters
        before = 0
        for rank in count(1) if ranks is None else ranks:
            parameters = size(setting.dims, rank)
            if parameters > most or (ranks is None and parameters == before):
                return
            network = fit(setting, rank)
            outcome = setting.outcome(network, None if network.num_parameters == parameters else parameters)
            yield [outcome]
            if goal.is_reached(outcome):
                return
            before = parameters

    return explore(x, method, strategy, common, needs_goal=ranks is None)
