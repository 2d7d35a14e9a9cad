from __future__ import annotations

import math

import pytest
import torch

import tensorgrow as tg
from tensorgrow.nn import Layout
from tensorgrow.nn.compression.calibration import Metric
from tensorgrow.nn.compression.polish import polish
from tests.oracles import assert_close

LAYOUT = Layout((4, 3), (4, 2), paired=True)


def weight_and_moments() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A weight, and second moments of inputs and of gradients that fill a third of the directions."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(8, 12, generator=generator, dtype=torch.float64)
    halves = (torch.randn(4, 12, generator=generator), torch.randn(3, 8, generator=generator))
    inputs, outputs = (h.double().T @ h.double() for h in halves)
    return weight, inputs + 1e-3 * torch.eye(12), outputs + 1e-3 * torch.eye(8)


def start(rank: int) -> tg.TensorNetwork:
    structure = tg.Structure(LAYOUT.dims, {(0, 1): rank})
    return tg.TensorNetwork.random(structure, random_state=0, dtype=torch.float64)


def matrix(network: tg.TensorNetwork) -> torch.Tensor:
    return LAYOUT.to_matrix(network.to_dense())


def test_what_the_moments_do_not_see_is_given_up():
    """As many numbers as the seen part of the weight has are enough for it; no truncated SVD comes near."""
    weight, inputs, outputs = weight_and_moments()
    metric = Metric(weight, inputs, outputs)
    before = start(2)
    after = polish(metric, LAYOUT, before)
    assert after.structure == before.structure
    assert metric.error(matrix(after)) < 0.1 * metric.error(matrix(before))
    rank = before.num_parameters // (8 + 12)
    left, right = metric.project(rank)
    assert metric.error(matrix(after)) < 0.5 * metric.error(left @ right)


def test_the_best_network_stays():
    _, inputs, outputs = weight_and_moments()
    network = start(3)
    metric = Metric(matrix(network), inputs, outputs)
    assert_close(matrix(polish(metric, LAYOUT, network)), matrix(network), 1e-6)


@pytest.mark.parametrize("deadline", [-math.inf, 0.0])
def test_no_time_changes_nothing(deadline):
    weight, inputs, _ = weight_and_moments()
    network = start(2)
    assert polish(Metric(weight, inputs), LAYOUT, network, deadline) is network
