"""The search for a structure."""

from .candidates import EdgePolicy
from .cuts import CutBounds
from .greedy import GreedySearch, SearchState
from .growth import Fitted, Problem
from .options import Effort, GreedyOptions
from .stopping import Limits

__all__ = [
    "CutBounds",
    "EdgePolicy",
    "Effort",
    "Fitted",
    "GreedyOptions",
    "GreedySearch",
    "Limits",
    "Problem",
    "SearchState",
]
