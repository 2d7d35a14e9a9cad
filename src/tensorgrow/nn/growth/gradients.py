"""Edges judged by the gradient of the loss: one pass over some batches for all layers, no training of slices.

Raising the rank of edge ``(i, j)`` adds an outer product of two slices, contracted with all other cores. To
first order the loss changes by what the gradient with respect to the weight has in common with it, so that
the best slices are the leading singular vectors of that gradient contracted with all other cores.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import torch
from torch import nn

from ...contraction import pair_gradient_plan
from ...structure import Edge
from ..layer.linear import TNLinear
from ..modules import switch_mode
from .candidates import Candidate, GrowProblem
from .trainer import Trainer, fix_seed

# Batches that the gradient is the mean over: which edge is best is plain long before the gradient is exact.
GRADIENT_BATCHES = 16


def gradient_candidates(
    problem: GrowProblem, edges: Iterable[tuple[str, Edge]], seed: int, room: float
) -> list[Candidate]:
    """The edges with the largest predicted gain, one of each layer at most, that fit in `room` together.

    New slices start with zeros at one end, so that the model's function stays as it is.
    """
    by_layer: dict[str, list[Edge]] = {}
    for name, edge in edges:
        by_layer.setdefault(name, []).append(edge)
    layers = {name: problem.layers[name] for name in by_layer}
    gradients = weight_gradients(problem.trainer, layers, seed)
    per_parameter = problem.options.edge_score != "drop"
    found = []
    for name, gradient in gradients.items():
        ranks = {e: int(min(problem.options.rank_increment, room // layers[name].structure.growth_cost(*e)))
                 for e in by_layer[name]}
        known = _candidates(name, layers[name], ranks, gradient)
        scored = [(c, c.score / c.added if per_parameter else c.score) for c in known]
        found.append(max(scored, key=lambda pair: (pair[1], -pair[0].added))[0])
    found.sort(key=lambda c: -c.score / c.added if per_parameter else -c.score)
    chosen: list[Candidate] = []
    for candidate in found:
        if len(chosen) < problem.edges_per_step and candidate.added <= room:
            chosen.append(candidate)
            room -= candidate.added
    return chosen


def weight_gradients(trainer: Trainer, layers: Mapping[str, TNLinear], seed: int) -> dict[str, torch.Tensor]:
    """Gradient of the training loss with respect to the tensor of every layer, in evaluation mode."""
    sums = {name: torch.zeros(layer.layout.dims, device=layer.cores[0].device, dtype=torch.float64)
            for name, layer in layers.items()}
    calls: list[tuple[str, torch.Tensor, torch.Tensor]] = []

    def listen(name: str) -> Any:
        def hook(_: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
            known = output if output.requires_grad else output.requires_grad_()
            calls.append((name, inputs[0].detach(), known))
            return known

        return hook

    handles = [layer.register_forward_hook(listen(name)) for name, layer in layers.items()]
    try:
        with fix_seed(seed, trainer.training.device) as generator, switch_mode(trainer.model, training=False):
            for batch in islice(trainer.training.shuffle(generator), GRADIENT_BATCHES):
                calls.clear()
                loss = trainer.batch_loss(batch)
                grads = torch.autograd.grad(loss, [out for _, _, out in calls], allow_unused=True)
                for (name, x, _), grad in zip(calls, grads):
                    if grad is not None:
                        sums[name] += _tensor_gradient(layers[name], x, grad)
    finally:
        for handle in handles:
            handle.remove()
    return sums


def _tensor_gradient(layer: TNLinear, x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """What a batch adds to the gradient of the tensor, from inputs and the gradients of the outputs."""
    rows = x.reshape(-1, layer.in_features).to(grad.dtype)
    if layer.input_scale is not None:
        rows = rows * layer.input_scale.detach()
    return layer.layout.to_tensor(grad.reshape(-1, layer.out_features).T @ rows).double()


def _candidates(
    name: str, layer: TNLinear, ranks: Mapping[Edge, int], gradient: torch.Tensor
) -> list[Candidate]:
    """Every edge with the best slices for so many ranks; the score is the gain of slices as large as cores.

    That gain is of first order, and does not depend on how cores share their scale.
    """
    structure, cores = layer.structure, [c.detach().double() for c in layer.cores]
    target = gradient.reshape([structure.leg_dim(k) for k in range(structure.num_nodes)])
    plan = pair_gradient_plan(structure, tuple(ranks), False)
    out = []
    for environment in plan.run(target, list(cores)):
        edge = environment.edge
        matrix = torch.as_tensor(environment.gradient).cpu()
        u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
        # Norms that slices of the cores' own size have; a core of zeros, as adapters start with, has none.
        sizes = [float(cores[k].norm()) * math.sqrt(len(side) / cores[k].numel())
                 for k, side in zip(edge, (u, vh.T))]
        left = sizes[0] >= sizes[1]
        size = max(sizes) or 1.0
        slices = []
        for k in range(min(ranks[edge], len(s))):
            vectors = (size * u[:, k], 0.0 * vh[k]) if left else (0.0 * u[:, k], size * vh[k])
            slices.append((vectors[0].to(layer.cores[0]), vectors[1].to(layer.cores[0])))
        added = len(slices) * structure.growth_cost(*edge)
        gain = float(s[: len(slices)].sum()) * sizes[0] * sizes[1]
        out.append(Candidate(name, edge, tuple(slices), added, gain))
    return out
