"""The search for a structure."""

from .cuts import CutBounds
from .gradient import LearningProblem, LearningSearch, fit_by_gradient
from .greedy import GreedySearch
from .grow import Fitted, Problem
from .held_out import CompletionSearch
from .limits import Limits
from .options import Effort, GreedyOptions
from .score import EdgePolicy
from .search import Search, SearchState

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
