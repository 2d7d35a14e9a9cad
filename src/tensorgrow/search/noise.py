"""Noise that grows with the level of entries: how much less large ones are to count.

Least squares fit large counts best, whose noise is largest, and get small ones wrong by as much. Weights that
are the inverse of the variance would be best if the network could stand for every mean exactly; as it cannot,
what they gain at small entries they lose at large ones, whose structure is fitted less. So the weights are a
power of the level, ``level**-power``, and held-out entries choose it: as near to the inverse variance as
their squared error allows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import torch

from .grow import refit
from .knobs import FINE_SWEEPS, FINE_TOLERANCE, HeldOutProblem
from .state import Fitted

# Powers of the level that are tried, in turn.
POWERS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)


def choose_power(problem: HeldOutProblem, fitted: Fitted) -> tuple[Fitted, float] | None:
    """Refit a network with weights from its own levels; return it with the power, or None for no weights.

    Powers up to that of the noise are tried for as long as each raises the likelihood of held-out entries.
    The largest is taken whose squared error on them is above the least by no more than a standard error, of
    sums over fibres: entries of one are off together.
    """
    data, structure = problem.objective, fitted.network.structure
    pairs = data.held_out_pairs(structure, data.to_arrays(fitted.network))
    if pairs is None:
        return None
    values, levels = pairs[0], data.levels(pairs[1])
    grows = noise_power(values - pairs[1], levels)
    if not grows:
        return None
    last = _refit(problem, fitted)
    rest = _residuals(problem, last, values)
    likely, tried = deviance(rest, levels, grows), [(last, 0.0, rest.square())]
    for power in POWERS:
        if power > grows or problem.context.is_out_of_time:
            break
        last = _refit(replace(problem, objective=data.weighed(fitted.network, power)), last)
        rest = _residuals(problem, last, values)
        now = deviance(rest, levels, grows)
        if now >= likely:
            break
        likely = now
        tried.append((last, power, rest.square()))
    least = min((squares for *_, squares in tried), key=lambda squares: float(squares.mean()))
    fibres = data.held_out_fibres()
    network, power, _ = next(t for t in reversed(tried) if excess(t[2] - least, fibres) <= 1.0)
    return (network, power) if power else None


def excess(numbers: torch.Tensor, fibres: Iterable[torch.Tensor]) -> float:
    """The mean of numbers in standard errors: the largest for groups of them that may go together."""
    mean = float(numbers.mean())
    if mean <= 0.0:
        return 0.0
    rest = numbers - mean
    sums = (torch.zeros_like(rest).index_add_(0, fibre, rest) for fibre in fibres)
    return mean * len(rest) / max(float(s.norm()) for s in (rest, *sums))


def noise_power(residuals: torch.Tensor, levels: torch.Tensor) -> float:
    """The power of the level that the variance of residuals grows with, by maximum likelihood.

    0 where that is not likelier than equal variances by 2, the 95 % quantile of chance.
    """
    found = min(POWERS, key=lambda power: deviance(residuals, levels, power))
    gain = deviance(residuals, levels, 0.0) - deviance(residuals, levels, found)
    return found if len(levels) * gain > 2.0 else 0.0


def deviance(residuals: torch.Tensor, levels: torch.Tensor, power: float) -> float:
    """Minus the mean log-likelihood of residuals with the variance ``c * level**power``, at its best c.

    Apart from a constant. They are taken to have Laplace's distribution: by the normal one a few outliers
    would decide (of 2,118 held-out counts of car parks they hid that noise grows at all).
    """
    logs = 0.5 * power * levels.log()
    mean = float((residuals.abs() * (-logs).exp()).mean())
    return math.log(max(mean, 1e-300)) + float(logs.mean())


def _refit(problem: HeldOutProblem, fitted: Fitted) -> Fitted:
    # Every power has the same sweeps: otherwise what more sweeps gain would count for the last one.
    return refit(problem, fitted.network, sweeps=FINE_SWEEPS, tolerance=FINE_TOLERANCE)


def _residuals(problem: HeldOutProblem, fitted: Fitted, values: torch.Tensor) -> torch.Tensor:
    data = problem.objective
    pairs = data.held_out_pairs(fitted.network.structure, data.to_arrays(fitted.network))
    assert pairs is not None
    return values - pairs[1]
