"""Growths without our rules: the paper's steepest drop, and edges drawn at random."""

from __future__ import annotations

from typing import Any, Unpack

from ..network import TensorNetwork
from ..results import Result
from ..search import EdgePolicy, GreedyOptions
from ..search.options import Experiment
from ..structure import Structure
from ..tasks.decompose import decompose
from .common import DenseKeywords, Setting, explore
from .exploration import Proposal, Strategy
from .inner_fit import Fit, FitOptions


def greedy(
    x: Any,
    *,
    split_nodes: bool = True,
    experiment: Experiment = "decomposition",
    **common: Unpack[DenseKeywords],
) -> Result:
    """Greedy-TN by the paper's rules (``GreedyOptions.paper(experiment)``).

    Parameters
    ----------
    split_nodes
        With splits it is the paper's Greedy-int.
    experiment
        Whose settings to take.
    """
    shared = {k: v for k, v in common.items() if k not in ("max_evaluations", "map")}
    return decompose(
        x,
        **shared,  # type: ignore[arg-type]
        max_steps=common.get("max_evaluations"),
        split_nodes=split_nodes,
        options=GreedyOptions.paper(experiment),
    )


def random_walk(
    x: Any,
    *,
    noise: float = 1e-2,
    fit: Fit = FitOptions(sweeps=100, tolerance=1e-4),  # noqa: B008 - frozen
    **common: Unpack[DenseKeywords],
) -> Result:
    """Greedy-TN with the edge drawn uniformly at every step; weights are kept, new slices are small noise.

    Parameters
    ----------
    noise
        Size of the entries of new slices.
    """

    def strategy(setting: Setting) -> Strategy:
        goal, policy = setting.goal, EdgePolicy(None)
        start = yield [Proposal(Structure.rank_one(setting.dims), kind="start")]
        now = start[0]
        while now.network is not None and not goal.is_reached(now):  # None: it outgrew the data
            edges = policy.growable(now.structure, goal.max_parameters)
            if not edges:
                return
            edge = edges[int(setting.rng.integers(len(edges)))]
            grown: TensorNetwork = now.network.grow_edge(*edge, noise=noise, random_state=setting.rng)
            now = (yield [Proposal(grown.structure, grown, kind="grow", edge=edge)])[0]

    return explore(x, "random_walk", strategy, common, fit=fit, needs_goal=True)
