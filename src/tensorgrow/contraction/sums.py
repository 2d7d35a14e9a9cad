"""Sums over some legs of a network, or of its square, with other legs open or set row by row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import opt_einsum
import torch

from ..structure import Structure
from .cache import cached

# What becomes of a leg.
OPEN, SET, SUMMED = "o", "r", "s"


@dataclass(frozen=True)
class PartialPlan:
    """Equation and path of one kind of sum."""

    structure: Structure
    roles: str
    squared: bool
    equation: str
    path: Any
    widest: int  # numbers per row of the largest operand, intermediate or result

    def run(self, cores: Sequence[torch.Tensor], rows: torch.Tensor | None = None) -> torch.Tensor:
        """The sums.

        Parameters
        ----------
        rows
            ``(n, order)``: values of the legs that are set; other columns are not read.

        Returns
        -------
        torch.Tensor
            One axis per open leg, ascending, after an axis of rows where legs are set.
        """
        operands = []
        for k, core in enumerate(cores):
            if k >= self.structure.order:
                core = core[0]
            elif self.roles[k] == SET:
                assert rows is not None
                core = core[rows[:, k]]
            elif self.roles[k] == SUMMED and not self.squared:
                core = core.sum(0)
            operands += [core, core.conj()] if self.squared else [core]
        value: torch.Tensor = opt_einsum.contract(self.equation, *operands, optimize=self.path)
        return value.real if self.squared and value.is_complex() else value


@cached
def partial_plan(structure: Structure, roles: str, squared: bool) -> PartialPlan:
    """Plan for a structure; `roles` has one letter per leg."""
    order, edges = structure.order, structure.edges
    batch = opt_einsum.get_symbol(0)
    leg = [opt_einsum.get_symbol(1 + k) for k in range(order)]
    inputs: list[str] = []
    shapes: list[tuple[int, ...]] = []
    for node in range(structure.num_nodes):
        role = roles[node] if node < order else None
        for layer in range(1 + squared):
            number = {e: 1 + order + layer * len(edges) + k for k, e in enumerate(edges)}
            bonds = [opt_einsum.get_symbol(number[e]) for e in structure.edges_of(node)]
            first: list[str] = []
            if role == SET:
                first = [batch]
            elif role == OPEN or (role == SUMMED and squared):
                first = [leg[node]]
            inputs.append("".join([*first, *bonds]))
            size = [] if not first else [1 if role == SET else structure.leg_dim(node)]
            shapes.append((*size, *structure.core_shape(node)[1:]))
    output = (batch if SET in roles else "") + "".join(leg[k] for k in range(order) if roles[k] == OPEN)
    equation = ",".join(inputs) + "->" + output
    optimize = "dp" if len(inputs) <= 14 else "auto"  # the best order, while searching for it is cheap
    path, info = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize=optimize)
    widest = max(int(info.largest_intermediate), *(math.prod(s) for s in shapes))
    return PartialPlan(structure, roles, squared, equation, path, widest)
