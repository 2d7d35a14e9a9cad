"""TnALE: alternating local enumeration of ranks and permutation (Li, Zeng, Li, Caiafa, Zhao; ICML 2023)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any, Unpack

from ..errors import OptionError
from ..results import Result
from .common import DenseKeywords, Setting, explore
from .exploration import Goal, Outcome, Proposal, Strategy
from .inner_fit import Fit
from .templates import Point, Template, TemplateName, make_template, name_of


def tnale(
    x: Any,
    *,
    template: TemplateName = "ring",
    max_rank: int = 7,
    error_weight: float = 50.0,
    radius: int = 1,
    first_radius: int = 2,
    first_rounds: int = 1,
    rounds: int = 20,
    fit: Fit = "als",
    **common: Unpack[DenseKeywords],
) -> Result:
    """Ranks of a template and the modes on its vertices, one variable at a time.

    A round goes over the edges forwards, then over the permutation, then over the edges backwards. For an
    edge all ranks within `radius` of the present one are fitted with everything else fixed, for the
    permutation all exchanges of two modes; the best by ``F = parameters / entries + error_weight * error^2``
    is kept. The search ends when a round changes nothing.

    Parameters
    ----------
    template, max_rank, error_weight, fit
        As for `tnls`.
    radius, rounds
        Of the main phase; rounds at most.
    first_radius, first_rounds
        Of the first phase, where only the two ends of a neighbourhood are fitted; the squared errors between
        them and the centre are estimated by a straight line in logarithms.

    Notes
    -----
    Starts like `tnls`. The published estimate of values in between is not specified in our source; the
    straight line is the simplest reading.
    """
    if min(radius, first_radius, rounds) < 1 or first_rounds < 0:
        raise OptionError("radius, first_radius and rounds must be at least 1, first_rounds at least 0")

    def strategy(setting: Setting) -> Strategy:
        shape = make_template(template, setting.dims, max_rank)
        start = shape.random_point(setting.rng)
        walk = _Walk(shape, setting.goal, start, (yield [Proposal(shape.structure(start))])[0])
        for _ in range(first_rounds):
            yield from walk.round(first_radius, coarse=True)
        for _ in range(rounds):
            before = walk.point
            yield from walk.round(radius, coarse=False)
            if walk.point == before:
                return

    return explore(
        x, "tnale", strategy, common, fit=fit, error_weight=error_weight, template=name_of(template)
    )


class _Walk:
    """The present point and what came of it."""

    def __init__(self, shape: Template, goal: Goal, point: Point, outcome: Outcome) -> None:
        self.shape = shape
        self.goal = goal
        self.point = point
        self.outcome = outcome

    def round(self, radius: int, *, coarse: bool) -> Strategy:
        edges = range(len(self.shape.edges))
        for edge in edges:
            yield from self._edge(edge, radius, coarse)
        if self.shape.permutes:
            pairs = combinations(range(len(self.shape.dims)), 2)
            yield from self._take_best([self.point.swap(a, b) for a, b in pairs])
        for edge in reversed(edges):
            yield from self._edge(edge, radius, coarse)

    def _edge(self, edge: int, radius: int, coarse: bool) -> Strategy:
        here = self.point.ranks[edge]
        ranks = range(max(1, here - radius), min(self.shape.max_rank, here + radius) + 1)
        if not coarse:
            yield from self._take_best([self.point.with_rank(edge, r) for r in ranks if r != here])
            return
        center = self.point
        ends = [r for r in (ranks[0], ranks[-1]) if r != here]
        outcomes = yield [Proposal(self.shape.structure(center.with_rank(edge, r))) for r in ends]
        known = {here: self.outcome, **dict(zip(ends, outcomes))}
        best = min(ranks, key=lambda r: self._guess(center.with_rank(edge, r), r, known))
        yield from self._take_best([center.with_rank(edge, r) for r in {best, *ends}])

    def _guess(self, point: Point, rank: int, known: dict[int, Outcome]) -> float:
        """Fitness of a point, its error from the known ranks on either side."""
        if rank in known:
            return self.goal.fitness(known[rank])
        low, high = max(r for r in known if r < rank), min(r for r in known if r > rank)
        logs = [math.log(max(known[r].relative_error, 1e-12)) for r in (low, high)]
        error = math.exp(logs[0] + (logs[1] - logs[0]) * (rank - low) / (high - low))
        return self.goal.fitness(Outcome(self.shape.structure(point), error))

    def _take_best(self, points: Sequence[Point]) -> Strategy:
        """Fit some points and move to the best of them, if it improves."""
        if not points:
            return
        outcomes = yield [Proposal(self.shape.structure(p)) for p in points]
        for point, outcome in zip(points, outcomes):
            if self.goal.fitness(outcome) < self.goal.fitness(self.outcome):
                self.point, self.outcome = point, outcome
