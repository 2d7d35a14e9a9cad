"""Options of the searches: groups of frozen dataclasses, presets by effort, and the paper's choices.

A function that needs one group asks for that group; users give `GreedyOptions`, which is all of them.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..errors import OptionError, check_choice

if TYPE_CHECKING:
    from .search import AnySearch

Effort = Literal["fast", "balanced", "thorough"]
EdgeScore = Literal["per_parameter", "drop"] | Callable[[float, float, int], float]

# Sweeps of a refit in a growth that is fast. The first growth of "balanced" with so many, with 30: networks
# for 27 fields, pictures and noisy rings have 0.2 % fewer parameters in the mean, from 6 % fewer to 6 % more.
QUICK_SWEEPS = 10

T = TypeVar("T")
Experiment = Literal["decomposition", "images", "completion", "layers"]
# Iterations or epochs for the new slices of a candidate edge, in the experiments of the paper.
PAPER_ITERATIONS = {"decomposition": 2, "images": 5, "completion": 10, "layers": 10}


def _number(default: T, least: float, *, off: T | None = None, none: bool = False) -> T:
    """An option with a smallest value, and a whole number if that is one.

    Parameters
    ----------
    off
        The value that does without what the option is about; a search that never does it accepts that.
    none
        Whether None has a meaning.
    """
    off = default if off is None else off
    return field(default=default, metadata={"least": least, "off": off, "none": none})


def _switch(default: bool) -> bool:
    return field(default=default, metadata={"off": False})


@dataclass(frozen=True, kw_only=True)
class _Options:
    def __post_init__(self) -> None:
        for option in fields(self):
            value, least = getattr(self, option.name), option.metadata.get("least")
            if least is None or (value is None and option.metadata["none"]):
                continue
            number = float(value) if isinstance(value, Real) else math.nan
            if not (number >= least and math.isfinite(number)):
                raise OptionError(
                    f"{option.name}={value!r} is too small or not a number; at least {least} is needed"
                )
            if isinstance(least, int) and not number.is_integer():
                raise OptionError(f"{option.name}={value!r} must be a whole number")

    @classmethod
    def names(cls) -> frozenset[str]:
        """Names of the options in this group."""
        return frozenset(f.name for f in fields(cls))


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(_Options):
    """How the next edge is chosen.

    Attributes
    ----------
    edge_score
        ``"per_parameter"``: log of (loss before / loss after) per added parameter; where sweeps are costly,
        longer ones count as parameters too. ``"drop"``: the steepest
        decrease of the loss, as in the paper. Or a function of (loss before, loss after, added parameters);
        the largest value wins.
    least_growth
        For gains per parameter, every growth counts as at least this share of the network. An edge that
        costs next to nothing may gain next to nothing, again and again, and each time everything is
        refitted.
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
        None: the first growth goes without, and makes no more sweeps than that of "fast" while they are
        cheap; where they stay cheap and the error target is above `exact_below`, a second growth uses 8 and
        the better result is returned.
    lookahead_sweeps
        Full sweeps of a refit during lookahead.
    second_looks
        Where data is held out: so many of the edges with the largest gains, whatever they cost, are refitted
        beside the best-scored one.
    """

    edge_score: EdgeScore = "per_parameter"
    least_growth: float = _number(0.0, 0.0)
    scoring: Literal["slices", "full"] = "slices"
    slice_init: Literal["spectral", "random"] = "spectral"
    slice_noise: float = _number(1e-2, 0.0)
    slice_sweeps: int = _number(2, 1)
    lookahead: int | None = _number(None, 1, off=1, none=True)
    lookahead_sweeps: int = _number(6, 1)
    second_looks: int = _number(2, 0)

    def __post_init__(self) -> None:
        if not callable(self.edge_score):
            check_choice("edge_score", self.edge_score, ("per_parameter", "drop"))
        check_choice("scoring", self.scoring, ("slices", "full"))
        check_choice("slice_init", self.slice_init, ("spectral", "random"))
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class FitOptions(_Options):
    """How a network is fitted, and kept from overfitting.

    Attributes
    ----------
    sweeps, tolerance
        Full sweeps after each growth at most, and the relative decrease per sweep below which they stop.
    least_sweeps
        So many sweeps are made whatever they gain, also in the last fit.
    absolute_tolerance
        The paper's stopping rule for sweeps, on the relative squared error; off when 0.
    final_sweeps, final_tolerance
        The same for the last fit of a run that ended on its budget, and for fits that try to stay under the
        error target with fewer parameters.
    ridge
        Of a completion: the ridge, relative to the mean diagonal of the Gram matrices in the balanced gauge.
        None: chosen on the held-out entries.
    tune_every
        Where data is held out: choose the ridge again when the network has grown by this factor; where sweeps
        are costly, by 1.25 at least.
    rounding_ridge
        Added to the unit diagonal of every scaled Gram matrix, against rounding.
    patience
        Where held-out data or a loss decides: growths in a row that may fail to lower it before growth ends.
    balance_every
        Sweeps between two gauge balancings.
    accelerate
        Extrapolate between sweeps where the target is not exact (near exact solutions it can degenerate).
    compress
        Where long modes of a tensor have small multilinear ranks, search on its core in orthonormal bases.
        What these leave out is part of the error.
    """

    sweeps: int = _number(30, 1)
    tolerance: float = _number(1e-4, 0.0)
    least_sweeps: int = _number(1, 1)
    absolute_tolerance: float = _number(0.0, 0.0)
    final_sweeps: int = _number(60, 1)
    final_tolerance: float = _number(1e-5, 0.0)
    ridge: float | None = _number(None, 0.0, none=True)
    tune_every: float = _number(1.0, 1.0)
    rounding_ridge: float = _number(1e-14, 0.0)
    patience: int = _number(8, 1)
    balance_every: int = _number(5, 1)
    accelerate: bool = _switch(True)
    compress: bool = _switch(True)


@dataclass(frozen=True, kw_only=True)
class GrowthOptions(_Options):
    """How a network grows.

    Attributes
    ----------
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
    """

    transfer: bool = _switch(True)
    rank_increment: int = _number(1, 1)
    terms: bool = _switch(True)
    max_degree: int | None = _number(None, 1, none=True)
    thicken_costly: bool = _switch(True)


@dataclass(frozen=True, kw_only=True)
class ReductionOptions(_Options):
    """How a network gets smaller.

    Attributes
    ----------
    split_threshold
        Splits while growing may drop this much, relative to the error target; where data is held out, to the
        error on it.
    split_below
        The paper's rule for these splits instead: drop singular values of a core below this number. Off when
        0.
    split_while_growing
        Look for splits after every growth, as the paper does, instead of only while pruning. Where data is
        held out, its error after a refit decides.
    max_internal_nodes
        Internal nodes that splits may add beyond one per leg.
    prune
        Remove rank that no longer pays once the target is reached.
    prune_candidates
        How many removals are refitted before pruning stops.
    certify
        Use singular values of the target's matricizations as lower bounds on the rank across every cut, to
        skip hopeless removals, to propose tree structures and to know when more starts are pointless.
    """

    split_threshold: float = _number(0.1, 0.0)
    split_below: float = _number(0.0, 0.0)
    split_while_growing: bool = _switch(False)
    max_internal_nodes: int = _number(4, 0, off=0)
    prune: bool = _switch(True)
    prune_candidates: int = _number(5, 1)
    certify: bool = _switch(True)


@dataclass(frozen=True, kw_only=True)
class EffortOptions(_Options):
    """What is tried beyond one growth.

    Attributes
    ----------
    starts
        Growths from scratch, the later ones with randomised scores. Without a time limit the later ones are
        only made while the target looks exactly representable and the best structure is not certified; after
        growth on a core, only for exact targets. Where entries are missing, only where refits are cheap or
        `regrow_cycles` are made, and not once the fit is exact.
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
    after_target
        Work on making a network smaller that meets the error target, as a multiple of the work of the first
        growth: arithmetic of sweeps, of which two seconds' worth are always done. Cycles that
        `regrow_cycles` asks for are made anyway. None: no bound.
    """

    starts: int = _number(4, 1, off=1)
    score_noise: float = _number(0.1, 0.0)
    overshoot: float = _number(0.0, 0.0)
    regrow_cycles: int | None = _number(0, 0, none=True)
    regrow_depth: int = _number(8, 1)
    exact_below: float = _number(1e-4, 0.0)
    after_target: float | None = _number(4.0, 0.0, none=True)


@dataclass(frozen=True, kw_only=True)
class GreedyOptions(EffortOptions, ReductionOptions, GrowthOptions, FitOptions, ScoreOptions):
    """Everything rarer about the search. A task refuses options that its search ignores."""

    @classmethod
    def for_effort(cls, effort: Effort) -> GreedyOptions:
        """Options behind ``effort=``."""
        check_choice("effort", effort, ("fast", "balanced", "thorough"))
        if effort == "fast":
            return cls(
                lookahead=1,
                sweeps=QUICK_SWEEPS,
                certify=False,
                starts=1,
                max_internal_nodes=0,
                after_target=1.0,
            )
        if effort == "balanced":
            return cls()
        return cls(regrow_cycles=None, after_target=None)

    @classmethod
    def for_completion(cls, effort: Effort) -> GreedyOptions:
        """Options behind ``effort=`` where entries are missing: overfitting is the risk, not slow fits."""
        check_choice("effort", effort, ("fast", "balanced", "thorough"))
        return cls._for_completion(effort)

    @classmethod
    @lru_cache(maxsize=8)  # options cannot be changed, and checking them all takes as long as a small sweep
    def _for_completion(cls, effort: Effort) -> GreedyOptions:
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
    def for_update(cls, effort: Effort) -> GreedyOptions:
        """Options behind ``effort=`` of `Result.update`: a network is known, and may grow a little."""
        base = cls.for_completion(effort).replace(starts=1)
        if effort == "thorough":
            return base
        # Few growths pay here: whether any does matters more than which one is best.
        return base.replace(
            patience={"fast": 1, "balanced": 2}[effort], prune=False, overshoot=0.0, second_looks=0
        )

    @classmethod
    def for_learning(cls, effort: Effort) -> GreedyOptions:
        """Options behind ``effort=`` of `learn`: every growth is trained by gradients."""
        check_choice("effort", effort, ("fast", "balanced", "thorough"))
        return cls(patience={"fast": 1, "balanced": 3, "thorough": 8}[effort])

    @classmethod
    def paper(cls, experiment: Experiment = "decomposition") -> GreedyOptions:
        """The paper's choices: steepest drop, random slices near zero, its threshold of splits, no way back.

        One thing differs: a growth starts from the slices that were fitted to score the edge, where the paper
        draws small ones again.

        Parameters
        ----------
        experiment
            "decomposition", "images", "completion" or "layers": it fits candidates for 2, 5, 10 and 10
            iterations. "layers" go with ``nn.grow(candidate_epochs=10)``, "completion" with
            ``complete(validation=False)``: the paper holds nothing out, and has no ridge.
        """
        check_choice("experiment", experiment, tuple(PAPER_ITERATIONS))
        return cls(
            edge_score="drop",
            slice_init="random",
            slice_sweeps=PAPER_ITERATIONS[experiment],
            lookahead=1,
            sweeps=100,
            tolerance=0.0,
            absolute_tolerance=1e-7,
            ridge=0.0 if experiment == "completion" else None,
            accelerate=False,
            compress=False,
            terms=False,
            thicken_costly=False,
            split_below=1e-5,
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
        values = dict(vars(self))  # in the order of the fields; `fields` would take longer than a sweep
        if callable(self.edge_score):
            values["edge_score"] = f"callable {getattr(self.edge_score, '__name__', 'score')}"
        return values

    def check_for(self, search: type[AnySearch], task: str) -> None:
        """Refuse options that a search would ignore: those set to something else than the default.

        Values that switch something off which the search does not do anyway are accepted.

        Parameters
        ----------
        search
            The class that is going to run; it names the options it uses.
        task
            What the user called, for the message.
        """
        ignored = {
            f.name: value
            for f in fields(self)
            if f.name not in search.uses
            and (value := getattr(self, f.name)) not in (f.default, f.metadata.get("off", f.default))
        }
        if ignored:
            listed = ", ".join(f"{name}={value!r}" for name, value in ignored.items())
            raise OptionError(
                f"{task} ignores {listed}: its search uses {', '.join(sorted(search.uses))}. Leave out what "
                "it ignores, or start from the preset of the task: GreedyOptions.for_effort of decompose, "
                "for_completion of complete, for_learning of learn"
            )


def _collect_docs(cls: type) -> None:
    """List the options of all groups where users look them up."""
    docs = [inspect.getdoc(group) or "" for group in reversed(cls.__bases__)]
    sections = "\n".join(doc.split("----------\n", 1)[-1] for doc in docs)
    cls.__doc__ = f"{cls.__doc__}\n\nAttributes\n----------\n{sections}"


_collect_docs(GreedyOptions)
