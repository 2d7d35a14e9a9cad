"""Growth on the core of a tensor with long modes; the bases of its modes are attached as legs.

What a long mode costs belongs to its basis, not to the edges of the core. Grown on the core, at the prices of
its short modes, an edge costs what it costs once the bases hang on nodes of their own.
"""

from __future__ import annotations

from dataclasses import replace

from ..algebra import moves
from ..network import TensorNetwork
from ..objectives import CompressedLeastSquares
from ..structure import Edge
from .edges import EdgePolicy
from .problem import Problem
from .state import Fitted


class CoreGrowth:
    """Growth steps of a problem as steps on its core.

    Attributes
    ----------
    problem
        The same problem, with the core for the tensor.
    """

    def __init__(self, problem: Problem, objective: CompressedLeastSquares) -> None:
        self._objective = objective
        self.problem = replace(problem, objective=objective.alone())

    @classmethod
    def of(cls, problem: Problem) -> CoreGrowth | None:
        """None where there is no core, or bases may not hang on nodes of their own.

        Nor with a budget of parameters: it is kept at the prices of the full tensor.
        """
        objective = problem.objective
        if not isinstance(objective, CompressedLeastSquares) or problem.policy != EdgePolicy(None):
            return None
        is_free = problem.split_nodes and problem.options.compress and problem.max_parameters is None
        return cls(problem, objective) if is_free and problem.target > 0.0 else None

    def lower(self, fitted: Fitted) -> Fitted:
        """The network on the core, with legs in the nodes they hang on where that is not larger."""
        network = self._objective.lower(fitted.network)
        for leg in range(network.structure.order):
            structure = network.structure
            around = structure.neighbours[leg]
            if len(around) != 1 or around[0] < structure.order:
                continue
            merged = moves.merge_structure(structure, leg, around[0])
            if merged.num_parameters <= structure.num_parameters:
                network = network.merge_nodes(leg, around[0])
        return replace(fitted, network=network)

    def lift(self, fitted: Fitted, edge: Edge | None) -> tuple[Fitted, Edge | None]:
        """The network on the tensor, with bases as legs where that is smaller, and what `edge` is there."""
        structure, cores = fitted.network.structure, list(fitted.network.cores)
        holders = {}
        for leg, size in enumerate(self._objective.dims):
            rank, bonds = structure.leg_dim(leg), structure.bond_product(leg)
            if rank * (size + bonds) < size * bonds:
                holders[leg] = structure.num_nodes
                structure, cores, _ = moves.split(structure, cores, leg, [0], rank=rank)
        if edge is not None:
            i, j = sorted(holders.get(k, k) for k in edge)
            edge = i, j
        return replace(fitted, network=self._objective.lift(TensorNetwork(structure, cores))), edge
