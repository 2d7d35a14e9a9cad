"""The search for a structure."""

from .candidates import EdgePolicy
from .completion import DEFAULT_RIDGE, CompletionSearch
from .cuts import CutBounds
from .greedy import GreedySearch, SearchState
from .growth import Fitted, Problem
from .options import Effort, GreedyOptions
from .stopping import Limits

__all__ = [
    "DEFAULT_RIDGE",
    "CompletionSearch",
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
