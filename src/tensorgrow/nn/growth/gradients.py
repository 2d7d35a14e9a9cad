"""Edges judged by the gradient of the loss: one pass over some batches for all layers, no training of slices.

Raising the rank of edge ``(i, j)`` adds an outer product of two slices, contracted with all other cores. To
first order the loss changes by what the gradient with respect to the weight has in common with it, so that
the best slices are the leading singular vectors of that gradient contracted with all other cores.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import islice

import torch
from torch import nn

from ...contraction import pair_gradient_plan
from ...structure import Edge
from ..layer.tied import TiedLinear, linear_like
from ..layer.tn_layer import TNLayer, column_scale
from ..modules import gradients_of_calls, recorded_calls, switch_mode
from .candidates import Candidate, GrowProblem
from .trainer import Trainer, fix_seed


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
        ranks = {
            e: int(min(problem.options.rank_increment, room // layers[name].structure.growth_cost(*e)))
            for e in by_layer[name]
        }
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


def weight_gradients(trainer: Trainer, layers: Mapping[str, TNLayer], seed: int) -> dict[str, torch.Tensor]:
    """Gradient of the training loss with respect to the tensor of every layer, in evaluation mode."""
    dense = {name: layer.to_dense().requires_grad_(True) for name, layer in layers.items()}
    # A head that is tied to a table uses its weight too.
    names = {id(layer): name for name, layer in layers.items()}
    used: dict[str, nn.Module] = dict(layers)
    for name, module in trainer.model.named_modules():
        if isinstance(module, TiedLinear) and id(module.source) in names:
            used[name] = module
            dense[name] = linear_like(dense[names[id(module.source)]])
    with (
        fix_seed(seed, trainer.training.device) as generator,
        switch_mode(trainer.model, training=False),
        recorded_calls(used) as calls,
        torch.enable_grad(),
    ):
        # Some batches are enough: which edge is best is plain long before the gradient is exact.
        for batch in islice(trainer.training.shuffle(generator), 16):
            calls.clear()
            loss = trainer.batch_loss(batch)
            for call, grad in gradients_of_calls(loss, calls):
                x = call.input.to(grad.dtype) if call.input.is_floating_point() else call.input
                # The output is linear in the weight: any weight gives the gradient.
                torch.autograd.backward(dense[call.name](x), grad)
    return {name: _tensor_gradient(layer, dense[name]) for name, layer in layers.items()}


@torch.no_grad()
def _tensor_gradient(layer: TNLayer, dense: nn.Module) -> torch.Tensor:
    """The gradient of a dense weight as that of the tensor that the cores make."""
    weight = dense.weight
    assert isinstance(weight, torch.Tensor)
    weight.copy_(torch.zeros_like(weight) if weight.grad is None else weight.grad)
    matrix = layer.matrix_of(dense).double()
    if layer.input_scale is not None:
        matrix = matrix * column_scale(layer.input_scale, matrix.shape[1])
    return layer.layout.to_tensor(matrix)


def _candidates(
    name: str, layer: TNLayer, ranks: Mapping[Edge, int], gradient: torch.Tensor
) -> list[Candidate]:
    """Every edge with the best slices for so many ranks; the score is the gain of slices as large as cores.

    That gain is of first order, and does not depend on how cores share their scale.
    """
    structure, cores = layer.structure, [c.detach().double() for c in layer.cores]
    target = gradient.reshape([structure.leg_dim(k) for k in range(structure.num_nodes)])
    plan = pair_gradient_plan(structure, tuple(ranks), False)
    out = []
    for environment in plan.run([target], cores):
        edge = environment.edge
        matrix = torch.as_tensor(environment.gradient).cpu()
        u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
        # Norms that slices of the cores' own size have; a core of zeros, as adapters start with, has none.
        sizes = [
            float(cores[k].norm()) * math.sqrt(len(side) / cores[k].numel())
            for k, side in zip(edge, (u, vh.T))
        ]
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
