"""Which edge of which layer to grow: new slices are trained alone and judged on validation data."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from ...errors import OptionError
from ...search import EdgePolicy, GreedyOptions
from ...structure import Edge
from ..layer.tn_layer import TNLayer, tn_layers
from .trainer import Trainer, freeze


@dataclass(frozen=True)
class GrowProblem:
    """What a growing model works on."""

    trainer: Trainer  # the model with its data; the search changes the model, nothing else
    layers: Mapping[str, TNLayer]  # those that may grow, by name
    policies: Mapping[str, EdgePolicy]  # which of their edges may
    options: GreedyOptions
    patience: int | None  # growths in a row without a better score before the run ends; None: any number
    candidates: Literal["trained", "gradient"] = "trained"  # how edges are judged
    edges_per_step: int = 1  # edges that grow before the next training, by gradients only

    def growable(self, room: float) -> Iterator[tuple[str, Edge]]:
        """Edges that may grow by one within `room` more parameters."""
        for name, layer in self.layers.items():
            for edge in self.policies[name].growable(layer.structure):
                if layer.structure.growth_cost(*edge) <= room:
                    yield name, edge


@dataclass(frozen=True)
class Candidate:
    """An edge of a layer with its trained slices."""

    layer: str
    edge: Edge
    slices: tuple[tuple[torch.Tensor, torch.Tensor], ...]  # one pair for every rank that it grows by
    added: int
    score: float


def best_candidate(
    problem: GrowProblem, edges: Iterable[tuple[str, Edge]], seed: int, before: float, deadline: float
) -> Candidate | None:
    """Train the new slices of every edge with everything else frozen; None when the time is over.

    All candidates see the same batches and dropout masks, so that their difference is that of the edges. Ties
    go to the cheaper edge, then to the first. The score without any growth is `before`.
    """
    trainer, options = problem.trainer, problem.options
    candidates: list[Candidate] = []
    for name, edge in edges:
        if time.perf_counter() > deadline:
            return None
        layer = problem.layers[name]
        slices = _draw_slices(layer, edge, options.slice_noise, seed)
        with freeze(trainer.model), layer.trial(*edge, slices):
            done = trainer.fit(slices, seed, epochs=trainer.options.candidate_epochs, deadline=deadline)
        added, drop = layer.structure.growth_cost(*edge), before - done.measure
        if callable(options.edge_score):
            score = float(options.edge_score(before, done.measure, added))
        else:
            score = drop / added if options.edge_score == "per_parameter" else drop
        pair = (slices[0].detach(), slices[1].detach())
        candidates.append(Candidate(name, edge, (pair,), added, score))
    return max(candidates, key=lambda c: (c.score, -c.added), default=None)


def _draw_slices(layer: TNLayer, edge: Edge, noise: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    slices = []
    for node, other in (edge, edge[::-1]):
        core = layer.cores[node]
        count = layer.structure.leg_dim(node) * layer.structure.bond_product(node, without=other)
        values = noise * torch.randn(count, generator=generator, dtype=torch.float64)
        slices.append(values.to(core.detach()).requires_grad_())
    return slices[0], slices[1]


def layers_to_grow(model: nn.Module, names: Iterable[str] | None) -> dict[str, TNLayer]:
    """Layers with networks by name; those that are frozen only when they are named."""
    known = tn_layers(model)
    if not known:
        raise OptionError(
            "the model has no TNLinear or other network layer to grow; put tensorgrow.nn layers in it"
        )
    owners = [(id(core), name) for name, layer in known.items() for core in layer.cores]
    uses = Counter(core for core, _ in owners)
    shared = sorted({name for core, name in owners if uses[core] > 1})
    if shared:
        raise OptionError(
            f"the layers {shared} have cores in common, so that none can grow alone; use one module "
            "in several places instead"
        )
    if not any(p.requires_grad for p in model.parameters()):
        raise OptionError("all parameters of the model are frozen; set requires_grad where it is trained")
    if names is None:
        free = {n: m for n, m in known.items() if any(c.requires_grad for c in m.cores)}
        if not free:
            raise OptionError(f"all cores of {list(known)} are frozen: set requires_grad, or name `layers`")
        return free
    listed = [names] if isinstance(names, str) else list(names)
    if not listed or not set(listed) <= set(known):
        raise OptionError(
            f"layers={listed} are not network layers (TNLinear, ...) of the model; it has {list(known)}"
        )
    return {n: known[n] for n in listed}
