"""Which edge of which layer to grow: new slices are trained alone and judged on validation data."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from ...errors import check_choice
from ...search import EdgePolicy
from ...structure import Edge
from ..layer.linear import TNLinear
from .trainer import Trainer, frozen

__all__ = ["Candidate", "EdgeScore", "best_candidate", "growable"]

EdgeScore = Literal["drop", "per_parameter"]


@dataclass(frozen=True)
class Candidate:
    """An edge of a layer with its trained slices."""

    layer: str
    edge: Edge
    slices: tuple[torch.Tensor, torch.Tensor]
    added: int
    validation: float
    score: float


def growable(
    layers: Mapping[str, TNLinear], policies: Mapping[str, EdgePolicy], room: float
) -> Iterator[tuple[str, Edge]]:
    """Edges that may grow by one within `room` more parameters."""
    for name, layer in layers.items():
        for edge in policies[name].growable(layer.structure):
            if layer.structure.growth_cost(*edge) <= room:
                yield name, edge


def best_candidate(
    trainer: Trainer,
    layers: Mapping[str, TNLinear],
    edges: list[tuple[str, Edge]],
    seed: int,
    before: float,
    *,
    edge_score: EdgeScore,
    noise: float,
    deadline: float,
) -> Candidate | None:
    """Train the new slices of every edge with everything else frozen; None when the time is over.

    All candidates see the same batches and dropout masks, so that their difference is that of the edges. Ties
    go to the cheaper edge, then to the first.
    """
    check_choice("edge_score", edge_score, ("drop", "per_parameter"))
    found: list[Candidate] = []
    for name, edge in edges:
        if time.perf_counter() > deadline:
            return None
        layer = layers[name]
        slices = _new_slices(layer, edge, noise, seed)
        with frozen(trainer.model), layer.trial(*edge, slices):
            done = trainer.fit(slices, seed, epochs=trainer.options.candidate_epochs, deadline=deadline)
        added = layer.structure.growth_cost(*edge)
        drop = before - done.measure
        score = drop / added if edge_score == "per_parameter" else drop
        kept = (slices[0].detach(), slices[1].detach())
        found.append(Candidate(name, edge, kept, added, done.measure, score))
    return max(found, key=lambda c: (c.score, -c.added), default=None)


def _new_slices(layer: TNLinear, edge: Edge, noise: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    made = []
    for node, other in (edge, edge[::-1]):
        core = layer.cores[node]
        count = layer.structure.leg_dim(node) * layer.structure.bond_product(node, without=other)
        drawn = noise * torch.randn(count, generator=generator, dtype=torch.float64)
        made.append(drawn.to(core.detach()).requires_grad_())
    return made[0], made[1]
