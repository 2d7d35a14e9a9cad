from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensorgrow.network import TensorNetwork
from tensorgrow.objectives import DenseLeastSquares
from tests.objectives.entry_data import RING, TRAIN, TUCKER, Data
from tests.oracles import (
    TOLERANCE,
    added_by_slices,
    assert_close,
    dense,
    pair_gradient,
    random_network,
    to_numpy,
)
from tests.strategies import networks, seeds


def gradient_of(target: torch.Tensor, network: TensorNetwork, edge) -> torch.Tensor:
    """A dense target contracted with all cores but two."""
    cores = list(network.cores)
    cores[edge[0]] = 0 * cores[edge[0]]  # the pair itself takes no part
    return pair_gradient(
        DenseLeastSquares(target, use_numpy=False), TensorNetwork(network.structure, cores), edge
    )


@given(st.data())
def test_pair_gradient_is_that_of_the_zero_filled_weighted_tensor(dtype, device, data):
    network = data.draw(networks(dtype, min_order=2))
    structure = network.structure
    d = Data(structure.dims, data.draw(seeds), dtype, device=device, weighted=data.draw(st.booleans()))
    rest = d.dense - torch.tensor(dense(structure, network.cores)).to(dtype)
    spread = rest * torch.tensor(d.weight).to(dtype)
    edge = data.draw(st.sampled_from(list(combinations(range(structure.num_nodes), 2))))
    found = pair_gradient(d.objective, network.to(device), edge)
    expected = gradient_of(spread, network, edge)
    scale = np.linalg.norm(to_numpy(spread)) * math.prod(
        np.linalg.norm(to_numpy(c)) for k, c in enumerate(network.cores) if k not in edge
    )
    assert_close(found, expected, 10 * TOLERANCE[dtype], scale + 1e-30)


PAIRS = [(RING, (0, 1)), (RING, (0, 2)), (TUCKER, (0, 3)), (TUCKER, (0, 1)), (TRAIN, (1, 3))]


@pytest.mark.parametrize(("structure", "edge"), PAIRS)
@pytest.mark.parametrize("hold_out", [0.0, 0.3])
def test_slices_explain_what_they_say(structure, edge, hold_out, dtype):
    d = Data(structure.dims, 0, dtype, hold_out=hold_out, ridge=1e-8)
    network = random_network(structure, 1, dtype)
    problem = d.objective.pair_problems(structure, list(network.cores), [edge])[0]
    assert problem.edge == edge
    left, right, explained = problem.fit(None, 3)
    grown = dense(structure, network.cores) + added_by_slices(structure, network.cores, edge, left, right)
    before, after = d.loss(dense(structure, network.cores)), d.loss(grown)
    gain = before**2 - after**2
    tolerance = 20 * TOLERANCE[dtype] * before**2
    if not d.objective.num_held_out:
        assert gain > 0
        assert explained == pytest.approx(gain, abs=tolerance)
        return
    held = tuple(d.indices[d.held].T.numpy())
    root = np.sqrt(to_numpy(d.weights[d.held]))
    true, old = to_numpy(d.dense)[held], dense(structure, network.cores)[held]
    there = np.linalg.norm(root * (true - old)) ** 2 - np.linalg.norm(root * (true - grown[held])) ** 2
    assert explained == pytest.approx(there, abs=tolerance)


@pytest.mark.parametrize(("structure", "edge"), PAIRS)
def test_more_sweeps_over_slices_fit_better(structure, edge):
    d = Data(structure.dims, 2, hold_out=0.0, ridge=1e-12)
    arrays = list(random_network(structure, 1).cores)
    gains = [d.objective.pair_problems(structure, arrays, [edge])[0].fit(None, n)[2] for n in (1, 2, 4, 8)]
    assert all(b >= a - 1e-9 * abs(a) for a, b in pairwise(gains))
    assert gains[0] > 0


def test_the_right_slice_is_the_best_for_its_left_one():
    edge, structure = (0, 2), RING
    d = Data(structure.dims, 2, hold_out=0.0, ridge=1e-13)
    network = random_network(structure, 1)
    left, right, explained = d.objective.pair_problems(structure, list(network.cores), [edge])[0].fit(None, 2)
    rest = to_numpy(d.dense) - dense(structure, network.cores)
    root = np.sqrt(d.weight)
    columns = []
    for k in range(right.numel()):
        unit = torch.zeros(right.numel(), dtype=torch.float64)
        unit[k] = 1.0
        columns.append((root * added_by_slices(structure, network.cores, edge, left, unit)).ravel())
    best = np.linalg.lstsq(np.stack(columns, 1), (root * rest).ravel(), rcond=None)[0]
    assert_close(right, best, 1e-6)
    assert explained > 0


def test_slices_from_a_given_start_and_no_edges():
    d = Data(RING.dims, 0, ridge=1e-8)
    network = random_network(RING, 1)
    assert d.objective.pair_problems(RING, list(network.cores), []) == []
    problem = d.objective.pair_problems(RING, list(network.cores), [(1, 3)])[0]
    assert problem.gradient.shape == (5 * 2 * 3, 4 * 2 * 2)
    fit = problem.fit(torch.ones(16, dtype=torch.float64), 2)
    assert fit.left.shape == (30,) and fit.right.shape == (16,)
    assert math.isfinite(fit.explained)


def test_the_gradient_of_a_pair_is_on_the_residual():
    d = Data(RING.dims, 0, ridge=1e-8)
    network = random_network(RING, 1)
    found = d.objective.pair_problems(RING, list(network.cores), [(0, 3)])[0].gradient
    spread = (d.dense - torch.tensor(dense(RING, network.cores))) * torch.tensor(d.weight)
    assert_close(found, gradient_of(spread, network, (0, 3)), 1e-10)
