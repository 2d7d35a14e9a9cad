"""Growth on the core of a tensor with long modes; the bases of its modes are attached as legs.

What a long mode costs belongs to its basis, not to the edges of the core. Grown on the core, at the prices of
its short modes, an edge costs what it costs once the bases hang on nodes of their own.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..algebra import moves
from ..network import TensorNetwork
from ..objectives import CompressedLeastSquares
from ..structure import Edge, Structure
from .edges import EdgePolicy
from .problem import Problem


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

        With a budget of parameters every growth must be paid in full.
        """
        objective, is_free = problem.objective, problem.policy == EdgePolicy(None) and problem.split_nodes
        if not isinstance(objective, CompressedLeastSquares) or not is_free:
            return None
        return cls(problem, objective) if problem.target and problem.max_parameters is None else None

    def lower(self, network: TensorNetwork) -> TensorNetwork:
        """The network on the core: legs that are as short as their bonds go into the nodes they hang on."""
        network = self._objective.lower(network)
        for leg in range(network.structure.order):
            structure = network.structure
            around = structure.neighbours[leg]
            if len(around) != 1 or around[0] < structure.order:
                continue
            merged = moves.merge_structure(structure, leg, around[0])
            if merged.num_parameters <= structure.num_parameters:
                network = network.merge_nodes(leg, around[0])
        return network

    def lift(self, network: TensorNetwork, edge: Edge | None = None) -> tuple[TensorNetwork, Edge | None]:
        """The network on the tensor, with bases as legs where that is smaller, and what `edge` is there."""
        ranks = network.structure.dims
        dims = self._objective.dims
        structure = Structure(dims, network.structure.ranks, num_nodes=network.structure.num_nodes)
        cores = self._objective.lift(network.cores)
        holders = {}
        for leg, (size, rank) in enumerate(zip(dims, ranks)):
            bonds = math.prod(structure.core_shape(leg)[1:])
            if rank * (size + bonds) < size * bonds:
                holders[leg] = structure.num_nodes
                structure, cores, _ = moves.split(structure, cores, leg, [0], rank=rank)
        if edge is not None:
            i, j = sorted(holders.get(k, k) for k in edge)
            edge = i, j
        return TensorNetwork(structure, cores), edge
