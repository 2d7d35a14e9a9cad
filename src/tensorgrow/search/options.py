"""Options of the greedy search: one frozen dataclass, presets by effort, and the paper's choices."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any, Literal

from ..errors import OptionError, check_choice

__all__ = ["Effort", "GreedyOptions"]

Effort = Literal["fast", "balanced", "thorough"]
EdgeScore = Literal["per_parameter", "drop"] | Callable[[float, float, int], float]


@dataclass(frozen=True)
class GreedyOptions:
    """Everything rarer about the search.

    Attributes
    ----------
    edge_score
        ``"per_parameter"``: log of (loss before / loss after) per added parameter. ``"drop"``: the steepest
        decrease of the loss, as in the paper. Or a function of (loss before, loss after, added parameters);
        the largest value wins.
    least_growth
        For gains per parameter, every growth counts as this share of the network at least. An edge that costs
        next to nothing may gain next to nothing, again and again, and each time everything is refitted.
    scoring
        ``"slices"`` optimises only the new slices of each candidate edge; ``"full"`` refits everything.
    slice_init
        Start of the new slices: leading singular pair of the pair gradient, or random.
    slice_noise
        Size of random slices.
    slice_sweeps
        Sweeps over the two new slices while scoring.
    lookahead
        How many of the best-scored candidates are refitted and ranked again by the same score; 1 is off.
        None: the first growth goes without; where sweeps stay cheap and the error target is above
        `exact_below`, a second growth uses 8 and the better result is kept.
    lookahead_sweeps
        Full sweeps of a refit during lookahead.
    sweeps, tolerance
        Full sweeps after each growth at most, and the relative decrease per sweep below which they stop.
    absolute_tolerance
        The paper's stopping rule for sweeps, on the relative squared error; off when 0.
    final_sweeps, final_tolerance
        The same for the last fit of a run that ended on its budget, and for fits that try to stay under the
        error target with fewer parameters.
    ridge
        Of a completion: the ridge, relative to the mean diagonal of the Gram matrices in the balanced gauge.
        None: chosen on the held-out entries.
    rounding_ridge
        Added to the unit diagonal of every scaled Gram matrix, against rounding.
    patience
        Of a completion: growths in a row that may fail to lower the held-out error before it stops.
    balance_every
        Sweeps between two gauge balancings.
    accelerate
        Extrapolate between sweeps where the target is not exact (near exact solutions it can degenerate).
    transfer
        Keep the weights when an edge grows. Off: every growth starts from random cores (for ablations).
    rank_increment
        Ranks added per growth.
    terms
        Where no edge helps alone, add a rank-one term to the network, by a rank more along a spanning tree.
    max_degree
        Largest number of edges at a node.
    thicken_costly
        Once a sweep costs about 0.05 s or more, and 16 times that of a network of rank one, raise edges that
        exist; new ones where none of these helps.
    split_threshold
        Splits may drop this much, relative to the error target.
    split_while_growing
        Look for splits after every growth, as the paper does, instead of only while pruning.
    max_internal_nodes
        Internal nodes that splits may add beyond one per leg.
    prune
        Remove rank that no longer pays once the target is reached.
    prune_candidates
        How many removals are refitted before pruning stops.
    certify
        Use singular values of the target's matricizations as lower bounds on the rank across every cut, to
        skip hopeless removals, to propose tree structures and to know when more starts are pointless.
    starts
        Growths from scratch, the later ones with randomised scores. Without a time limit the later ones are
        only made while the target looks exactly representable and the best structure is not certified. Where
        entries are missing, only where refits are cheap or `regrow_cycles` are made, and not once the fit is
        exact.
    score_noise
        Log-normal noise on the scores of later starts.
    overshoot
        Where held-out entries guide a search within a budget and some of it is left over at its end: grow
        this share beyond the budget and give up other ranks instead, if that helps; 0: do not.
    regrow_cycles
        Ruin-and-regrow cycles after the starts; None: until the time is spent.
    regrow_depth
        Ranks dropped per cycle at most.
    exact_below
        Error targets below this are taken for exact representations.
    """

    edge_score: EdgeScore = "per_parameter"
    least_growth: float = 0.0
    scoring: Literal["slices", "full"] = "slices"
    slice_init: Literal["spectral", "random"] = "spectral"
    slice_noise: float = 1e-2
    slice_sweeps: int = 2
    lookahead: int | None = None
    lookahead_sweeps: int = 6
    sweeps: int = 30
    tolerance: float = 1e-4
    absolute_tolerance: float = 0.0
    final_sweeps: int = 60
    final_tolerance: float = 1e-5
    ridge: float | None = None
    rounding_ridge: float = 1e-14
    patience: int = 8
    balance_every: int = 5
    accelerate: bool = True
    transfer: bool = True
    rank_increment: int = 1
    terms: bool = True
    max_degree: int | None = None
    thicken_costly: bool = True
    split_threshold: float = 0.1
    split_while_growing: bool = False
    max_internal_nodes: int = 4
    prune: bool = True
    prune_candidates: int = 5
    certify: bool = True
    starts: int = 4
    score_noise: float = 0.1
    overshoot: float = 0.0
    regrow_cycles: int | None = 0
    regrow_depth: int = 8
    exact_below: float = 1e-4

    def __post_init__(self) -> None:
        if not callable(self.edge_score):
            check_choice("edge_score", self.edge_score, ("per_parameter", "drop"))
        check_choice("scoring", self.scoring, ("slices", "full"))
        check_choice("slice_init", self.slice_init, ("spectral", "random"))
        for name, low in _LOWEST.items():
            value = getattr(self, name)
            if value is None and name in _MAY_BE_NONE:
                continue
            number = float(value) if isinstance(value, Real) else math.nan
            if not (number >= low and math.isfinite(number)):
                raise OptionError(f"{name}={value!r} is too small or not a number; at least {low} is needed")
            if isinstance(low, int) and not number.is_integer():
                raise OptionError(f"{name}={value!r} must be a whole number")

    @classmethod
    def for_effort(cls, effort: Effort) -> GreedyOptions:
        """Options behind ``effort=``."""
        check_choice("effort", effort, ("fast", "balanced", "thorough"))
        if effort == "fast":
            return cls(lookahead=1, sweeps=10, certify=False, starts=1, max_internal_nodes=0)
        if effort == "balanced":
            return cls()
        return cls(regrow_cycles=None)

    @classmethod
    def for_completion(cls, effort: Effort) -> GreedyOptions:
        """Options behind ``effort=`` where entries are missing: overfitting is the risk, not slow fits."""
        check_choice("effort", effort, ("fast", "balanced", "thorough"))
        base = cls(
            least_growth=0.02,
            overshoot=0.1,
            score_noise=0.3,
            slice_sweeps=1,
            lookahead=1,
            lookahead_sweeps=4,
            sweeps=10,
            tolerance=1e-3,
            final_sweeps=50,
            final_tolerance=1e-4,
            thicken_costly=False,
            max_internal_nodes=0,
            certify=False,
            starts=2,
        )
        if effort == "fast":
            return base.replace(sweeps=5, patience=4, prune=False, overshoot=0.0, starts=1)
        if effort == "balanced":
            return base
        return base.replace(
            lookahead=4, lookahead_sweeps=3, sweeps=20, slice_sweeps=2, patience=16, regrow_cycles=8, starts=3
        )

    @classmethod
    def for_learning(cls, effort: Effort) -> GreedyOptions:
        """Options behind ``effort=`` of `learn`: every growth is trained by gradients."""
        check_choice("effort", effort, ("fast", "balanced", "thorough"))
        return cls(patience={"fast": 1, "balanced": 3, "thorough": 8}[effort])

    @classmethod
    def paper(cls) -> GreedyOptions:
        """The paper to the letter: steepest drop, random slices of 1e-2, absolute tolerance, no way back."""
        return cls(
            edge_score="drop",
            slice_init="random",
            lookahead=1,
            sweeps=100,
            tolerance=0.0,
            absolute_tolerance=1e-7,
            accelerate=False,
            terms=False,
            thicken_costly=False,
            split_threshold=1.0,
            split_while_growing=True,
            max_internal_nodes=8,
            prune=False,
            certify=False,
            starts=1,
        )

    def replace(self, **changes: Any) -> GreedyOptions:
        """A copy with some options changed."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """JSON-friendly form; a callable score is named, not stored."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        if callable(self.edge_score):
            values["edge_score"] = f"callable {getattr(self.edge_score, '__name__', 'score')}"
        return values


_MAY_BE_NONE = ("lookahead", "ridge", "max_degree", "regrow_cycles")
_LOWEST: dict[str, float] = {
    "least_growth": 0.0,
    "slice_noise": 0.0,
    "slice_sweeps": 1,
    "lookahead": 1,
    "lookahead_sweeps": 1,
    "sweeps": 1,
    "tolerance": 0.0,
    "absolute_tolerance": 0.0,
    "final_sweeps": 1,
    "final_tolerance": 0.0,
    "ridge": 0.0,
    "rounding_ridge": 0.0,
    "patience": 1,
    "balance_every": 1,
    "rank_increment": 1,
    "max_degree": 1,
    "split_threshold": 0.0,
    "max_internal_nodes": 0,
    "prune_candidates": 1,
    "starts": 1,
    "score_noise": 0.0,
    "overshoot": 0.0,
    "regrow_cycles": 0,
    "regrow_depth": 1,
    "exact_below": 0.0,
}
