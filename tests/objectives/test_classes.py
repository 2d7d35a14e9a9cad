"""The cross-entropy of class weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.contraction import product_plan
from tensorgrow.data.features import FeatureMap
from tensorgrow.objectives import Classification, Screening
from tensorgrow.tasks.linear_classifier import (
    linear_network,
)

DOUBLE = torch.float64


def xor(count: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).uniform(-1, 1, (count, 2))
    return x, np.where(x[:, 0] * x[:, 1] > 0, "same", "opposite")


def small_objective() -> tuple[Classification, tg.TensorNetwork]:
    generator = torch.Generator().manual_seed(0)
    x, y = xor(200)
    features = FeatureMap.fit(x, "linear")(x)
    labels = torch.from_numpy((y == "same").astype(np.int64))
    held = torch.zeros(200, dtype=torch.bool)
    held[:50] = True
    objective = Classification(features, labels, 2, held_out=held, generator=generator)
    alone = tg.Structure.rank_one(objective.dims)
    start = linear_network(alone, torch.zeros(2, 3, dtype=DOUBLE), noise=0.03, generator=generator)
    return objective, start


def test_objective():
    objective, start = small_objective()
    assert isinstance(objective, Screening)
    assert objective.dims == (2, 2, 2) and objective.holds_out and objective.num_batches == 3
    batches = list(objective.batches())
    assert sorted(torch.cat(batches).tolist()) == list(range(150))
    values = product_plan(start.structure).run(start.cores, objective.features)
    exact = torch.nn.functional.cross_entropy(values, objective.labels)
    assert objective.total(start) == pytest.approx(float(exact))
    assert objective.total(start) == pytest.approx(np.log(2), abs=0.05)  # neutral
    held = objective.held_out_losses(start)
    assert held.shape == (50,) and objective.validate(start) == pytest.approx(float(held.mean()))


def test_the_ridge_is_on_the_whole_tensor():
    objective, start = small_objective()
    ridged = Classification(
        objective.features, objective.labels, 2, generator=torch.Generator().manual_seed(0), ridge=0.1
    )
    every = torch.arange(150)
    added = ridged.loss(start, every) - objective.loss(start, every)
    assert float(added) == pytest.approx(0.1 * float((start.to_dense() ** 2).sum()))
    assert ridged.total(start) == objective.total(start)


def test_screening_finds_the_leading_singular_pair_of_the_pair_gradient():
    objective, start = small_objective()
    edges = [(0, 1), (0, 2), (1, 2)]
    batch = torch.arange(150)
    generator = torch.Generator().manual_seed(0)
    found = objective.leading_slices(start, edges, batch, generator)
    for edge in edges:
        shape = [start.structure.leg_dim(k) for k in edge]
        # f + <M, a b^T>: the matrix of derivatives, by autograd on the dense weights.
        rest = next(k for k in range(3) if k not in edge)
        new = torch.zeros(shape, dtype=DOUBLE, requires_grad=True)
        letters = "abc"
        added = torch.einsum(
            f"{''.join(letters[k] for k in edge)},{letters[rest]}->abc", new, start.cores[rest]
        )
        values = torch.einsum(
            "abc,na,nb->nc", start.to_dense() + added, objective.features[:, 0], objective.features[:, 1]
        )
        torch.nn.functional.cross_entropy(values, objective.labels).backward()
        value, (left, right) = found[edge]
        assert value == pytest.approx(float(torch.linalg.matrix_norm(new.grad, 2)), rel=0.05)
        assert float(left @ new.grad @ right) == pytest.approx(-value, rel=0.05)
    chosen, grown = objective.screen(start, edges, None, generator)
    assert grown.structure.ranks == {chosen[0]: 2} and len(chosen) == 1
    assert objective.total(grown) < objective.total(start)
    assert objective.screen(start, edges, 6, generator) == ([], start)  # no room
