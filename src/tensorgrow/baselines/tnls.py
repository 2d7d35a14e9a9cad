"""TNLS: random local sampling of ranks and permutation (Li, Zhao, Zhao, Zhao; ICML 2022)."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from ..errors import OptionError
from ..results import Result
from .common import DenseKeywords, Setting, explore
from .exploration import Proposal, Strategy
from .inner_fit import Fit
from .templates import Point, Template, TemplateName, make_template, name_of


def tnls(
    x: Any,
    *,
    template: TemplateName = "ring",
    max_rank: int = 7,
    error_weight: float = 50.0,
    samples: int = 60,
    iterations: int = 20,
    width: float = 1.0,
    shrink: float = 0.9,
    swaps: float = 1.0,
    fit: Fit = "als",
    **common: Unpack[DenseKeywords],
) -> Result:
    """Ranks of a template and the modes on its vertices, by sampling around the best point so far.

    Every iteration draws `samples` points: ranks with rounded normal noise of shrinking width, modes with a
    few random transpositions. All are fitted, and the best becomes the centre if it improves ``F = parameters
    / entries + error_weight * error^2``.

    Parameters
    ----------
    template
        "ring", "chain", "lattice", "tree", "complete" or pairs of vertices.
    max_rank
        Largest rank of an edge.
    samples, iterations
        Points per iteration, and iterations.
    width, shrink
        Standard deviation of the noise on ranks at first, and its factor per iteration.
    swaps
        Mean number of transpositions per sample at first; shrinks by the same factor.
    fit
        "als", or "adam" as published, or `FitOptions`.

    Notes
    -----
    The start is random: ranks uniform in ``1..max_rank``, modes in random order. Too large structures are not
    fitted and no structure is fitted twice; see `genetic`.
    """
    if samples < 1 or iterations < 1 or not (width > 0 and 0 < shrink <= 1 and swaps >= 0):
        raise OptionError("samples and iterations must be at least 1, width positive, shrink in (0, 1]")

    def strategy(setting: Setting) -> Strategy:
        shape = make_template(template, setting.dims, max_rank)
        rng, goal = setting.rng, setting.goal
        best = shape.random_point(rng)
        lowest = goal.fitness((yield [Proposal(shape.structure(best))])[0])
        for iteration in range(iterations):
            factor = shrink**iteration
            points = [_near(best, shape, width * factor, swaps * factor, rng) for _ in range(samples)]
            outcomes = yield [Proposal(shape.structure(p)) for p in points]
            values = [goal.fitness(o) for o in outcomes]
            first = int(np.argmin(values))
            if values[first] < lowest:
                best, lowest = points[first], values[first]

    return explore(
        x, "tnls", strategy, common, fit=fit, error_weight=error_weight, template=name_of(template)
    )


def _near(center: Point, shape: Template, width: float, swaps: float, rng: np.random.Generator) -> Point:
    ranks = tuple(shape.clip(r + width * rng.standard_normal()) for r in center.ranks)
    point = Point(ranks, center.modes)
    if shape.permutes:
        for _ in range(int(rng.poisson(swaps))):
            a, b = rng.choice(len(shape.dims), 2, replace=False)
            point = point.swap(int(a), int(b))
    return point
