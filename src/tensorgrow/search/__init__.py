"""Searches for structures: their problems, options, limits, states and moves."""

from .cross import CrossProblem, CrossSearch
from .cuts import CutBounds, ForestBounds
from .edges import EdgePolicy, Edges
from .fixed_structure import FitProblem, FitSearch
from .gradient import GradientProblem, GradientSearch, fit_by_gradient
from .greedy import GreedySearch
from .held_out import HeldOutSearch
from .knobs import HeldOutProblem
from .limits import Limits
from .options import Effort, GreedyOptions
from .problem import Place, Problem
from .run import Listener, run
from .search import AnySearch, Context, NetworkSearch, Search, Start
from .state import Fitted, NetworkState, SearchState, packable

__all__ = [
    "AnySearch",
    "Context",
    "CrossProblem",
    "CrossSearch",
    "CutBounds",
    "EdgePolicy",
    "Edges",
    "Effort",
    "FitProblem",
    "FitSearch",
    "Fitted",
    "ForestBounds",
    "GradientProblem",
    "GradientSearch",
    "GreedyOptions",
    "GreedySearch",
    "HeldOutProblem",
    "HeldOutSearch",
    "Limits",
    "Listener",
    "NetworkSearch",
    "NetworkState",
    "Place",
    "Problem",
    "Search",
    "SearchState",
    "Start",
    "fit_by_gradient",
    "packable",
    "run",
]
