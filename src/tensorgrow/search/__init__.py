"""The search for a structure."""

from .base import Search, SearchState
from .candidates import EdgePolicy
from .completion import CompletionSearch
from .cuts import CutBounds
from .greedy import GreedySearch
from .growth import Fitted, Problem
from .learning import LearningProblem, LearningSearch, fit_by_gradient
from .options import Effort, GreedyOptions
from .stopping import Limits

__all__ = [
    "CompletionSearch",
    "CutBounds",
    "EdgePolicy",
    "Effort",
    "Fitted",
    "GreedyOptions",
    "GreedySearch",
    "LearningProblem",
    "LearningSearch",
    "Limits",
    "Problem",
    "Search",
    "SearchState",
    "fit_by_gradient",
]
