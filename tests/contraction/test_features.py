"""Products of features with a network."""

from __future__ import annotations

import pytest
import torch

import tensorgrow as tg
from tensorgrow.contraction import product_plan
from tensorgrow.tasks.classify import auto_edges

DOUBLE = torch.float64


# Chain, loops, a star around the classes, internal nodes, pieces that are not joined to the classes.
STRUCTURES = [
    {},
    {(0, 1): 2, (1, 4): 3, (2, 4): 2, (2, 3): 2},
    {(0, 1): 2, (1, 2): 3, (0, 2): 2, (2, 3): 2, (0, 3): 2},
    {(0, 1): 2, (1, 4): 2, (0, 4): 3, (2, 5): 2, (3, 5): 2, (4, 5): 2},
    {(0, 5): 2, (1, 5): 2, (3, 5): 2},
    {(0, 4): 2, (1, 4): 2, (2, 4): 2, (3, 4): 2},
]


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("ranks", STRUCTURES)
def test_products_agree_with_the_dense_weights(ranks, count):
    structure = tg.Structure((3, 3, 3, 3, 4), ranks)
    network = tg.TensorNetwork.random(structure, random_state=0)
    features = torch.randn(count, 4, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))
    found = product_plan(structure).run(network.cores, features)
    exact = torch.einsum("abcdk,na,nb,nc,nd->nk", network.to_dense(), *features.unbind(1))
    assert torch.allclose(found, exact, rtol=1e-12, atol=1e-12)


def test_products_can_be_differentiated():
    structure = tg.Structure((2, 2, 3), {(0, 1): 2, (1, 2): 2, (0, 2): 2})
    cores = [c.requires_grad_() for c in tg.TensorNetwork.random(structure, random_state=0).cores]
    features = torch.randn(3, 2, 2, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    assert torch.autograd.gradcheck(lambda *c: product_plan(structure).run(c, features), cores)


def test_a_long_chain_costs_little():
    ranks = dict.fromkeys(auto_edges(201), 8)
    structure = tg.Structure((2,) * 200 + (10,), ranks)
    assert product_plan(structure).cost < 2 * 200 * 2 * 64
