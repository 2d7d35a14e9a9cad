"""SVDinsTN: a complete graph with sparse diagonal factors on its edges (Zheng et al., CVPR 2024)."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence
from typing import Any, Unpack

from ..errors import OptionError
from ..results import Result
from .common import Common, Setting, explore
from .exploration import Outcome, Proposal, Strategy
from .inner_fit import Fit
from .svd_ins_tn_steps import Descent

__all__ = ["svd_ins_tn"]

# Sparsity weights that are tried, strongest first, where none is given.
LADDER = (0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)


def svd_ins_tn(
    x: Any,
    *,
    max_rank: int = 4,
    sparsity: float | Iterable[float] | None = None,
    ridge: float = 1.0,
    proximal: float = 1e-4,
    warm_up: int = 50,
    iterations: int = 600,
    tolerance: float = 1e-4,
    refinements: int = 2,
    polish: bool = True,
    fit: Fit = "als",
    **common: Unpack[Common],
) -> Result:
    """Start with every edge and let sparse diagonal factors cut ranks and edges, in one run per sparsity.

    Minimises ``1/2 ||x - TN(G, S)||^2 + mu/2 sum ||G_k||^2 + sum lambda_ij ||S_ij||_1`` in turn: cores by
    regularised least squares with a proximal term, diagonals by coordinate descent with soft thresholds.
    Zeros in a diagonal are cut at once.

    Parameters
    ----------
    max_rank
        Largest rank of an edge at the start.
    sparsity
        ``lambda_ij``, the same for all edges, for a tensor of norm 1. Several values are run one after the
        other; by default a falling ladder, until the error asked for is reached or the network outgrows
        `max_parameters`.
    ridge
        ``mu`` relative to ``lambda``.
    proximal
        Weight of the squared change of a core, relative to the mean diagonal of its normal equations.
    warm_up
        Sweeps over which ``mu`` and ``lambda`` rise to their values: at full strength they would kill the
        random cores of the start, all of them.
    iterations, tolerance
        Sweeps at most, and the relative change of the loss below which they end.
    refinements
        Once the error is reached, how often the weight is bisected between the last that did not reach it and
        the one that did.
    polish
        Fit the structure that was found once more without penalties (`fit`): they bias the error.

    Notes
    -----
    Diagonals start as the leading singular values of the mean of `x` over all modes but two, cores at random.
    Where the complete graph would be too costly to contract, small singular values are dropped first, which
    removes edges before the start. Real tensors only.
    """
    if max_rank < 2 or iterations < 1 or min(ridge, proximal, tolerance, warm_up, refinements) < 0:
        raise OptionError("max_rank must be at least 2, iterations at least 1, and no other number negative")
    weights = _weights(sparsity)

    def strategy(setting: Setting) -> Strategy:
        if setting.target.is_complex():
            raise OptionError(
                "svd_ins_tn is for real tensors; split real and imaginary part along a new mode"
            )
        descent = Descent(ridge, proximal, warm_up, iterations, tolerance, setting.deadline)
        goal, most = setting.goal, setting.goal.max_parameters

        def attempt(weight: float) -> Generator[Sequence[Proposal | Outcome], list[Outcome], Outcome]:
            network, error = descent.run(setting, max_rank, weight)
            outcome = Outcome(network.structure, error, network)
            yield [outcome]
            if polish and network.structure.edges:
                outcome = (yield [Proposal(network.structure, network)])[0]
            return outcome

        strong: float | None = None
        for weight in weights:
            outcome = yield from attempt(weight)
            if goal.reached(outcome):
                break
            if most is not None and outcome.num_parameters > most:
                return
            strong = weight
        else:
            return
        for _ in range(refinements if strong is not None else 0):
            assert strong is not None
            middle = math.sqrt(strong * weight)
            if goal.reached((yield from attempt(middle))):
                weight = middle
            else:
                strong = middle

    return explore(x, "svd_ins_tn", strategy, common, fit=fit, needs_goal=sparsity is None)


def _weights(sparsity: float | Iterable[float] | None) -> tuple[float, ...]:
    if sparsity is None:
        return LADDER
    values = tuple(sparsity) if isinstance(sparsity, Iterable) else (sparsity,)
    if not values or not all(0 < v < 1 for v in values):
        raise OptionError(f"sparsity={sparsity!r} must be numbers between 0 and 1")
    return values
