r"""The likelihood as a function of the new slices of an edge, everything else contracted once.

A network grown by slices ``a`` and ``b`` along edge ``(i, j)`` is the old one plus a term that is linear in
both: with ``V`` all other cores contracted at a sample and ``K`` the Gram matrix of the same over all values,

.. math:: f(x) = f_0(x) + a_{x_i}^T V(x) b_{x_j}, \qquad
    \|f\|^2 = \|f_0\|^2 + 2 \Re\, a^T G b + \langle (a^T \bar a) \otimes (b^T \bar b), K \rangle

where ``G`` is ``K`` applied to the two old cores. Training a candidate then never touches the network again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..contraction import pair_gram_plan
from ..contraction.sums import OPEN, SET, SUMMED, partial_plan
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .base import SliceLoss

if TYPE_CHECKING:
    from .density import DensityLoss

# Numbers that the environments of an edge at all samples may hold: 64 MB.
MOST_ENTRIES = 1 << 23


@torch.no_grad()
def slice_losses(
    objective: DensityLoss,
    network: TensorNetwork,
    edges: Sequence[Edge],
    values: torch.Tensor,
    whole: torch.Tensor,
    norms: Sequence[float],
) -> Callable[[Edge], SliceLoss | None]:
    """Losses of candidate edges; None for an edge without this shortcut.

    Parameters
    ----------
    network
        The network that gives likelihoods, with cores of norm one (those of a non-negative density squared).
    values, whole
        Its entries at the fitted samples, and its partition function.
    norms
        Norms that the cores had before.
    """
    structure, cores = network.structure, [c.detach() for c in network.cores]
    grams: dict[Edge, torch.Tensor] = {}
    if objective.kind == "born":
        for pair in pair_gram_plan(structure, tuple(edges), network.is_complex, True).run(None, cores):
            if pair.is_pair_gram and pair.gram is not None:
                grams[pair.edge] = pair.gram
            elif structure.num_nodes == 2:  # there is no other core
                grams[pair.edge] = cores[0].new_ones(1, 1)

    @torch.no_grad()
    def loss_of(edge: Edge) -> SliceLoss | None:
        sizes = [structure.bond_product(a, without=b) for a, b in (edge, edge[::-1])]
        rows = objective.fitted.rows
        too_many = len(rows) * math.prod(sizes) > MOST_ENTRIES
        if max(edge) >= structure.order or too_many or (objective.kind == "born" and edge not in grams):
            return None
        opened = _Opened(structure, cores, edge, sizes)
        gram = grams.get(edge)
        cross = opened.sums(SUMMED) if gram is None else _apply_gram(structure, cores, edge, sizes, gram)
        environments = opened.at(rows)
        columns = [rows[:, k] for k in edge]

        def change(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            """By how much the partition function grows."""
            if gram is None:
                return a.sum(0) @ cross @ b.sum(0)
            linear = 2.0 * (a.reshape(-1) @ cross @ b.reshape(-1))
            square = (a.T @ a.conj()).reshape(-1) @ gram @ (b.T @ b.conj()).reshape(-1)
            total = linear + square
            return total.real if total.is_complex() else total

        def loss(a: torch.Tensor, b: torch.Tensor, batch: Any) -> torch.Tensor:
            slices = [
                (s * s if gram is None else s).reshape(-1, size) / norms[node]
                for s, size, node in zip((a, b), sizes, edge)
            ]
            batch = slice(None) if batch is None else batch
            left, right = (s[c[batch]] for s, c in zip(slices, columns))
            added = (left * (environments[batch] @ right[:, :, None])[:, :, 0]).sum(1)
            return objective.mean_nll(values[batch] + added, whole + change(*slices), batch)

        return loss

    return loss_of


class _Opened:
    """A network with the cores of two nodes taken out; their legs are those of the cut bonds."""

    def __init__(
        self, structure: Structure, cores: Sequence[torch.Tensor], edge: Edge, sizes: Sequence[int]
    ) -> None:
        dims, ranks = list(structure.dims), dict(structure.ranks)
        ranks.pop(edge, None)
        self._cores = list(cores)
        for node, size in zip(edge, sizes):
            dims[node] = size
        self._structure = Structure(tuple(dims), ranks, num_nodes=structure.num_nodes)
        for node, size in zip(edge, sizes):
            eye = torch.eye(size, dtype=cores[0].dtype, device=cores[0].device)
            self._cores[node] = eye.reshape(self._structure.core_shape(node))
        self._edge = edge

    def sums(self, others: str, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Environments ``(..., n_i, n_j)``: summed over the other legs, or one for each row of these."""
        roles = "".join(OPEN if k in self._edge else others for k in range(self._structure.order))
        plan = partial_plan(self._structure, roles, False)
        if rows is None:
            return plan.run(self._cores)
        step = max(1, (1 << 22) // plan.widest)  # intermediates of 32 MB at most
        return torch.cat([plan.run(self._cores, part) for part in torch.split(rows, step)])

    def at(self, rows: torch.Tensor) -> torch.Tensor:
        """Environments at samples, ``(n, n_i, n_j)``."""
        environments = self.sums(SET, rows if self._structure.order > 2 else None)
        return environments.expand(len(rows), *environments.shape[-2:])


def _apply_gram(
    structure: Structure,
    cores: Sequence[torch.Tensor],
    edge: Edge,
    sizes: Sequence[int],
    gram: torch.Tensor,
) -> torch.Tensor:
    """The Gram matrix applied to the two old cores, ``(d_i n_i, d_j n_j)``."""
    pair = []
    for node, other, size in zip(edge, edge[::-1], sizes):
        core = cores[node]
        if structure.rank(*edge) > 1:
            core = core.movedim(structure.axis(node, other), -1)
        pair.append(core.reshape(structure.leg_dim(node), size, -1).conj())
    joined = torch.einsum("xar,ybr->xayb", *pair)
    n, m = sizes
    full = gram.reshape(n, n, m, m)  # ket, then bra
    applied = torch.einsum("caeb,xayb->xcye", full, joined)
    return applied.reshape(structure.leg_dim(edge[0]) * n, structure.leg_dim(edge[1]) * m)
