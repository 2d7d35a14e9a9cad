"""A smaller network for a tensor that a completion has filled in."""

from __future__ import annotations

import math

from ..network import TensorNetwork
from ..objectives import DenseLeastSquares
from .cuts import SVD_COPIES, CutBounds
from .greedy import GreedySearch
from .knobs import HeldOutProblem
from .limits import Limits
from .options import GreedyOptions
from .problem import Problem
from .search import Context, Start
from .state import Fitted

# Networks with more parameters than this share of the entries of their tensor are not decomposed again, but
# for exact ones: one of 16,757 for 41,580 counts took 147 s after a completion of 35 s, and was not improved.
COMPACT = 0.1


def decompose_completed(problem: HeldOutProblem, fitted: Fitted, *, is_exact: bool) -> TensorNetwork | None:
    """A smaller network for the completed tensor from the search on full data, if there is any.

    Bounds on the rank across every cut, closed forms for trees and restarts are only available there. The
    completed tensor is itself uncertain: by about the noise times the root of parameters per entry.

    Parameters
    ----------
    is_exact
        Whether the network meets held-out entries to rounding.
    """
    structure, context = fitted.network.structure, problem.context
    if problem.objective.nonnegative(structure):
        return None  # that search knows no such cores
    if structure.num_entries > 2_000_000 or context.is_out_of_time:
        return None  # more entries take longer than the completion
    if not is_exact and structure.num_parameters > max(COMPACT * structure.num_entries, 1000):
        return None  # large for what it stands for: many solves of wide cores, and nothing found
    if structure.num_entries * fitted.network.dtype.itemsize > problem.memory_limit / SVD_COPIES:
        return None
    dense = fitted.network.to_dense().cpu()
    target = DenseLeastSquares(dense)
    noise = fitted.measure / problem.scale * math.sqrt(fitted.size / problem.objective.num_fitted)
    error = 0.5 * math.sqrt(target.epsilon) if is_exact else noise
    full = Problem(
        target,
        GreedyOptions() if is_exact else GreedyOptions(starts=1, lookahead=1),
        problem.policy,
        Context(context.generator),
        target=error * target.norm,
        max_parameters=structure.num_parameters - 1,
        memory_limit=problem.memory_limit,
        split_nodes=problem.split_nodes,
        bounds=CutBounds.within(problem.memory_limit, dense, error),
    )
    limits = Limits(max_error=error, max_seconds=context.seconds_left)
    search = GreedySearch(full, limits, Start(dtype=dense.dtype))
    for _ in search:
        pass
    if search.answer is None or search.answer.size >= fitted.size:
        return None
    network = search.answer.network
    return network if problem.fits(network.structure) else None
