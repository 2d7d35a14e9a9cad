"""Least squares on entries in parts: the numbers of entries in memory."""

from __future__ import annotations

import pickle
from itertools import combinations

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.data.partitions.parts import ThreadParts
from tensorgrow.objectives import Census, EntryPart, ObservedLeastSquares, PartitionedLeastSquares
from tensorgrow.objectives import entry_cores as slices
from tensorgrow.objectives import partition_slices as partitioned_pairs
from tests.oracles import assert_close, pair_gradient, random_network

RING = tg.Structure.tensor_ring((6, 5, 7, 4), (2, 3, 2, 2))
TREE = tg.Structure((6, 5, 7, 4), {(0, 4): 2, (1, 4): 2, (2, 4): 3, (2, 3): 2}, num_nodes=5)


def both(structure: tg.Structure, dtype: torch.dtype, ridge: float, parts: int = 3):
    """The same weighted entries in memory and in parts."""
    rng = np.random.default_rng(0)
    dims = structure.dims
    indices = torch.tensor(np.argwhere(rng.random(dims) < 0.5))
    count = len(indices)
    values = torch.tensor(rng.standard_normal(count)).to(dtype)
    if dtype.is_complex:
        values = values + 1j * torch.tensor(rng.standard_normal(count))
    weights = torch.tensor(rng.uniform(0.5, 2.0, count))
    held = torch.tensor(rng.random(count) < 0.2)
    whole = ObservedLeastSquares(indices, values, dims, weights=weights, held_out=held, ridge=ridge)
    cut = [torch.arange(k, count, parts) for k in range(parts)]

    def load(where: torch.Tensor):
        objective = ObservedLeastSquares(
            indices[where], values[where], dims, weights=weights[where], held_out=held[where], rows=count
        )
        return lambda: pickle.loads(pickle.dumps(EntryPart(objective)))

    fitted = indices[~held].numpy()
    counts = tuple(np.bincount(fitted[:, k], minlength=d) for k, d in enumerate(dims))
    census = Census(len(fitted), int(held.sum()), counts, tuple(map(len, cut)))
    threads = ThreadParts([load(w) for w in cut], 1, keep=True)
    return whole, PartitionedLeastSquares(threads, dims, dtype, census, ridge=ridge)


@pytest.mark.parametrize("structure", [RING, TREE], ids=["ring", "tree"])
def test_parts_give_the_numbers_of_entries_in_memory(structure, double):
    whole, parts = both(structure, double, ridge=1e-6)
    network = random_network(structure, 2, double)
    assert parts.norm == pytest.approx(whole.norm)
    assert parts.validation_norm == pytest.approx(whole.validation_norm)
    assert (parts.num_fitted, parts.num_held_out) == (whole.num_fitted, whole.num_held_out)
    a, b = whole.to_arrays(network), parts.to_arrays(network)
    assert parts.losses(structure, b) == pytest.approx(whole.losses(structure, a))
    for edge in ((0, 1), (1, 3), (0, 2)):
        assert_close(pair_gradient(parts, network, edge), pair_gradient(whole, network, edge), 1e-10)
    rest, same = whole.residual(network), parts.residual(network)
    assert same.norm == pytest.approx(rest.norm)
    assert_close(pair_gradient(same, network, (0, 2)), pair_gradient(rest, network, (0, 2)), 1e-10)
    for _ in range(2):
        assert parts.sweep(structure, b, 1e-14) == pytest.approx(whole.sweep(structure, a, 1e-14))
    for x, y in zip(a, b):
        assert_close(y, x, 1e-8)
    assert parts.sweep_flops(structure) == whole.sweep_flops(structure)


@pytest.mark.parametrize("small", [False, True], ids=["all at once", "slice by slice"])
def test_slices_of_all_edges_equal_those_in_memory(small, monkeypatch):
    if small:
        monkeypatch.setattr(slices, "GRAM_BYTES", {"cpu": 1, "cuda": 1})
        monkeypatch.setattr(partitioned_pairs, "GRAM_BYTES", {"cpu": 1, "cuda": 1})
    whole, parts = both(RING, torch.float64, ridge=1e-6)
    network = random_network(RING, 2)
    edges = list(combinations(range(4), 2))
    a, b = whole.to_arrays(network), parts.to_arrays(network)
    assert parts.sweep(RING, b, 1e-14) == pytest.approx(whole.sweep(RING, a, 1e-14))
    before = parts.parts.rounds
    ours, theirs = parts.pair_problems(RING, b, edges), whole.pair_problems(RING, a, edges)
    for mine, other in zip(ours, theirs):
        found, expected = mine.fit(None, 2), other.fit(None, 2)
        assert mine.edge == other.edge
        assert_close(found.left, expected.left, 1e-6)
        assert_close(found.right, expected.right, 1e-6)
        assert found.explained == pytest.approx(expected.explained, rel=1e-6)
    if not small:  # two to start, two per sweep, one for the gains, whatever the number of edges
        assert parts.parts.rounds - before == 7
    assert_close(ours[0].gradient, theirs[0].gradient, 1e-8)
    start = theirs[0].gradient[0]
    assert ours[0].fit(start, 1).explained == pytest.approx(theirs[0].fit(start, 1).explained)
