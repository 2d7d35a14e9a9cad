"""Cores in orthonormal bases: what they leave out, and when they are worth it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorgrow.objectives import DenseLeastSquares, compressed
from tensorgrow.objectives.compressed import compress, least_error, truncate
from tensorgrow.solvers import ALSSettings, als
from tensorgrow.structure import Structure
from tests.oracles import dense, random_array, random_network
from tests.strategies import seeds

DIMS = (40, 30, 35)


def hidden(dtype=torch.float64, noise=0.0, dims=DIMS, ranks=(3, 4, 2)):
    """A tensor of small multilinear ranks, and noise of this relative norm."""
    net = random_network(Structure.tucker(dims, ranks), 0, dtype)
    x = torch.as_tensor(dense(net.structure, net.cores)).to(dtype)
    rest = random_array(np.random.default_rng(1), dims, dtype)
    return x + noise * rest * (torch.linalg.vector_norm(x) / torch.linalg.vector_norm(rest))


def lift(core, bases):
    for k, u in enumerate(bases):
        if u is not None:
            core = torch.tensordot(u, core.movedim(k, 0), dims=1).movedim(0, k)
    return core


@pytest.mark.parametrize("allowed", [0.1, 1e-3, 1e-7])
def test_what_is_left_out_is_known(allowed, dtype):
    x = hidden(dtype, noise=1e-2)
    wide = x.to(torch.complex128 if x.is_complex() else torch.float64)
    norm = float(torch.linalg.vector_norm(wide))
    small = compress(x, allowed)
    if allowed < 1e-2:
        assert small is None  # noise has full ranks
        return
    assert tuple(small.core.shape) == (3, 4, 2)
    left = float(torch.linalg.vector_norm(wide - lift(small.core, small.bases)))
    assert small.rest == pytest.approx(left, rel=1e-6)
    assert small.rest <= allowed * norm
    inside = float(torch.linalg.vector_norm(small.core))
    assert math.hypot(inside, small.rest) == pytest.approx(norm, rel=1e-9)


def test_exact_ranks_are_found_far_below_the_rounding_of_gram_matrices(double):
    x = hidden(double)
    small = compress(x, 1e-10)
    assert tuple(small.core.shape) == (3, 4, 2)
    left = float(torch.linalg.vector_norm(x - lift(small.core, small.bases)))
    assert left <= 1e-10 * float(torch.linalg.vector_norm(x))


@settings(max_examples=20)
@given(seeds, st.sampled_from([0.3, 0.05]))
def test_truncation_keeps_its_promise(seed, share):
    x = random_array(np.random.default_rng(seed), (5, 6, 4), torch.complex128)
    norm = float(torch.linalg.vector_norm(x))
    core, bases, lost = truncate(x, share * norm)
    left = float(torch.linalg.vector_norm(x - lift(core, bases)))
    assert lost == pytest.approx(left**2, rel=1e-9, abs=1e-20)
    assert left <= share * norm


@pytest.mark.parametrize("dims", [(30, 30), (12, 12, 12), (200, 200)])
def test_few_entries_and_matrices_stay_as_they_are(dims):
    assert compress(hidden(dims=dims, ranks=(1,) * len(dims)), 0.1) is None


def test_long_modes_stay_as_they_are(monkeypatch):
    monkeypatch.setattr(compressed, "LONGEST_MODE", 32)
    small = compress(hidden(), 1e-3)
    assert [u is None for u in small.bases] == [True, False, True]


@given(seeds)
@settings(max_examples=10)
def test_no_network_within_a_budget_is_better_than_the_bound(seed):
    x = torch.as_tensor(np.random.default_rng(seed).standard_normal((8, 6, 5)))
    objective = DenseLeastSquares(x)
    for ranks in ((1, 1), (2, 1), (2, 2)):
        structure = Structure.tensor_train((8, 6, 5), ranks)
        fit = als(objective, random_network(structure, seed, torch.float64), ALSSettings(60))
        assert least_error(x, structure.num_parameters) <= fit.loss / objective.norm
    assert least_error(x, 19) > least_error(x, 40) > 0.0
    assert least_error(x, 10_000) == pytest.approx(0.0, abs=1e-7)
