"""Pairs of modes that interact, as magnitudes tell."""

from __future__ import annotations

import torch

from tensorgrow import Structure, TensorNetwork
from tensorgrow.objectives.magnitudes import interactions

DIMS = (10,) * 5
ENTRIES = 6000


def _positions(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randint(d, (ENTRIES,), generator=generator) for d in DIMS], 1)


def test_edges_of_a_network_of_mean_zero_interact_most():
    for seed, structure in enumerate((Structure.tensor_train(DIMS, 2), Structure.tensor_ring(DIMS, 2))):
        network, where = TensorNetwork.random(structure, random_state=seed), _positions(seed)
        found = interactions(where, network.entries(where), DIMS)
        strongest = sorted(found, key=lambda e: -found[e])[: len(structure.edges)]
        assert sorted(strongest) == sorted(structure.edges)
        assert min(found[e] for e in structure.edges) > 5.0


def test_noise_does_not_interact():
    generator = torch.Generator().manual_seed(0)
    scales = torch.rand(10, generator=generator, dtype=torch.float64) + 0.5
    where = _positions(1)
    # Slices of different sizes are no interaction.
    noise = torch.randn(ENTRIES, generator=generator, dtype=torch.float64) * scales[where].prod(1)
    assert max(abs(z) for z in interactions(where, noise, DIMS).values()) < 4.0


def test_magnitudes_that_are_all_alike_say_nothing():
    where = _positions(0)
    for value in (0.0, 1.0):
        signs = 1.0 - 2.0 * (where.sum(1) % 2).double()
        assert set(interactions(where, value * signs, DIMS).values()) == {0.0}


def test_complex_entries_count_by_their_magnitude():
    network, where = TensorNetwork.random(Structure.tensor_train(DIMS, 2), random_state=0), _positions(0)
    values = network.entries(where)
    turned = values * torch.exp(1j * torch.arange(ENTRIES, dtype=torch.float64))
    plain = interactions(where, values, DIMS)
    for edge, z in interactions(where, turned, DIMS).items():
        assert abs(z - plain[edge]) < 1e-6
