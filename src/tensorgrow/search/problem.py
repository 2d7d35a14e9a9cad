"""What a search for a network works on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import torch

from ..data.devices import gigabytes
from ..errors import warn
from ..objectives import LeastSquares
from ..solvers import ALSSettings
from ..structure import Edge, Structure
from .cuts import CutBounds
from .edges import EdgePolicy
from .options import GreedyOptions
from .pace import Pace
from .search import Context


@dataclass(frozen=True)
class Place:
    """A device to compute on, and the bytes that may be taken there."""

    device: torch.device
    memory_limit: float


@dataclass(frozen=True)
class Problem:
    """What one search works on; all its phases share it, and none changes it.

    Attributes
    ----------
    target
        Loss to get under, in the units of the data; 0 when there is only a budget.
    max_parameters
        Parameters allowed.
    memory_limit
        Bytes that may be taken at a time, beyond the data. What does not fit is not tried.
    is_patient
        Whether cheap refits may take more sweeps than the options say.
    elsewhere
        Where the run goes on once sweeps are costly; None: it stays.
    """

    objective: LeastSquares
    options: GreedyOptions
    policy: EdgePolicy
    context: Context
    target: float = 0.0
    max_parameters: int | None = None
    memory_limit: float = math.inf
    split_nodes: bool = True
    is_patient: bool = True
    elsewhere: Place | None = None
    bounds: CutBounds | None = field(default=None, repr=False)

    @cached_property
    def pace(self) -> Pace:
        return Pace(self.objective)

    def fits(self, structure: Structure, edges: Sequence[Edge] = ()) -> bool:
        """Whether a sweep, and scoring `edges` in one go, stay within the memory limit."""
        return self.objective.memory_needed(structure, edges) <= self.memory_limit

    def moved(self, structure: Structure) -> Self | None:
        """The problem where it is to be computed on with a network; None where that is here.

        Where sweeps are costly, and there is room for them elsewhere.
        """
        if self.elsewhere is None or not self.pace.is_costly(structure):
            return None
        there = replace(self, elsewhere=None)
        needed, free = self.objective.memory_needed(structure), self.elsewhere.memory_limit
        if needed > free:
            warn(
                f"sweeps have become costly, but on {self.elsewhere.device} they need about "
                f"{gigabytes(needed)} and {gigabytes(free)} are free: the run stays where it is"
            )
            return there
        objective = self.objective.on(self.elsewhere.device)
        is_there = torch.device(objective.device).type == self.elsewhere.device.type
        return replace(there, objective=objective, memory_limit=free) if is_there else there

    def admits(self, structure: Structure) -> bool:
        """Whether the bounds, where there are some, allow a structure to reach the error target."""
        return self.bounds is None or self.bounds.admits(structure)

    @property
    def is_exact(self) -> bool:
        """Whether the error target asks for an exact representation."""
        return 0.0 < self.target <= self.options.exact_below * self.objective.norm

    @property
    def holds_out(self) -> bool:
        """Whether the search judges by the error on held-out data."""
        return self.objective.validation_norm is not None

    @property
    def scale(self) -> float:
        """Norm of the data that the search judges by: what is held out, unless that is zero."""
        return self.objective.validation_norm or self.objective.norm or 1.0

    @property
    def merges_nodes(self) -> bool:
        """Whether internal nodes may go: not those of a graph that must stay."""
        pairs, order = self.policy.pairs, len(self.objective.dims)
        return pairs is None or all(j < order for _, j in pairs)

    def refits_fully(self, structure: Structure) -> bool:
        """Whether a refit may take many sweeps: they are cheap, and held-out data guards against too many."""
        return self.is_patient and self.holds_out and self.pace.is_cheap(structure)

    def momentum(self, structure: Structure) -> float:
        """What refits extrapolate with at first.

        Those that are cut short converge slowly and begin with longer steps than ALS by itself does; full
        ones would stop too soon after a step too long.
        """
        is_short = self.holds_out and not self.refits_fully(structure)
        return 0.8 if is_short else ALSSettings.momentum

    def lookahead(self, structure: Structure) -> int:
        """Candidates to refit before one grows."""
        if self.options.lookahead is not None:
            return self.options.lookahead
        return 1 if self.is_exact or self.pace.is_costly(structure) else 8

    def increment(self, structure: Structure, edge: Edge) -> int:
        """Ranks to add at once."""
        if not self.holds_out:
            return self.options.rank_increment
        return self.pace.increment(structure, edge, self.options)

    def edges_in_turn(self, structure: Structure) -> list[list[Edge]]:
        """Edges that may grow, in sets: those of a later set are scored where none of the earlier helps.

        Once cuts are wide and sweeps are costly for it, edges that exist come first: every new edge widens
        the cuts, and the cost of a sweep grows with their squares, while the topology is settled long before
        the ranks are. Sweeps that are costly because there is much data say nothing about the topology.

        Of exact targets, bounds tell legs that nothing joins: edges between these come last. Triangles and
        trains of 7^5, not those of the results, take 0.88 times the time, and 239 of 240 are exact, not 236.
        """
        edges = self.objective.screen(structure, self.policy.growable(structure, self.max_parameters))
        sets = [edges]
        if self.options.thicken_costly and self.pace.has_wide_cuts(structure):
            sets = [[e for e in edges if (structure.rank(*e) > 1) is old] for old in (True, False)]
        if self.bounds is None or not self.is_exact:
            return sets
        apart = self.bounds.apart
        return [[e for e in some if (e in apart) is later] for later in (False, True) for some in sets]
