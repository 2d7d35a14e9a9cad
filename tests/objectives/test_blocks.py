"""Least squares on blocks, and on a core in bases: the numbers of the dense objective."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.data.blocks import (
    ArraySource,
    Form,
    ThreadReducer,
)
from tensorgrow.objectives import BlockedLeastSquares, CompressedLeastSquares, DenseLeastSquares
from tensorgrow.objectives.block_kernels import dots, largest_of, norms_squared, sum_of_squares
from tensorgrow.solvers import ALSSettings, als
from tests.oracles import (
    TOLERANCE,
    assert_close,
    node_equations,
    pair_gradient,
    random_array,
    random_network,
    to_numpy,
)

SHAPE = (6, 7, 5, 4)
STRUCTURE = tg.Structure(SHAPE, {(0, 1): 2, (2, 3): 3, (0, 4): 2, (1, 4): 2, (2, 4): 2}, num_nodes=5)
PAIRS = list(combinations(range(5), 2))


def blocked(x: torch.Tensor, max_entries: int = 30, device: str | None = None, threads: int = 1):
    source = ArraySource(x)
    form = Form(str(x.dtype).removeprefix("torch."), device)
    return BlockedLeastSquares(ThreadReducer(source, source.boxes(max_entries), form, threads))


def test_sums_of_squares_and_largest_entries(dtype):
    x = random_array(np.random.default_rng(0), (3, 1025), dtype)
    expected = float((np.abs(to_numpy(x)) ** 2).sum())
    parts = to_numpy(x)
    largest = max(abs(parts.real).max(), abs(parts.imag).max())
    for array in (x, x.numpy()):
        assert sum_of_squares(array) == pytest.approx(expected, rel=1e-6)
        assert largest_of(array) == pytest.approx(largest, rel=1e-6)
    rows = torch.view_as_real(x).reshape(3, -1) if x.is_complex() else x
    assert float(dots(rows)) == pytest.approx(expected, rel=1e-6)
    assert float(norms_squared(rows)) == pytest.approx(expected, rel=1e-6)
    x[1, 3] = math.nan
    assert math.isnan(largest_of(x)) and math.isnan(largest_of(x.numpy()))


@pytest.mark.parametrize("form", [None, "cpu"], ids=["numpy", "torch"])
@pytest.mark.parametrize("most", [30, 160])
def test_blockwise_equals_dense(dtype, form, most):
    x = random_array(np.random.default_rng(1), SHAPE, dtype)
    network = random_network(STRUCTURE, 2, dtype)
    dense, blocks = DenseLeastSquares(x), blocked(x, most, form)
    tolerance = TOLERANCE[dtype]
    assert blocks.norm == pytest.approx(dense.norm, rel=tolerance)
    assert blocks.dims == dense.dims
    a, b = dense.to_arrays(network), blocks.to_arrays(network)
    assert blocks.loss(STRUCTURE, b) == pytest.approx(dense.loss(STRUCTURE, a), rel=tolerance)
    ours, theirs = node_equations(blocks, network), node_equations(dense, network)
    for node in range(STRUCTURE.num_nodes):
        for mine, other in zip(ours[node], theirs[node]):
            assert_close(mine, other, tolerance)
    for edge in PAIRS:
        assert_close(pair_gradient(blocks, network, edge), pair_gradient(dense, network, edge), tolerance)
    rest, same = dense.residual(network), blocks.residual(network)
    assert same.norm == pytest.approx(rest.norm, rel=tolerance)
    assert_close(pair_gradient(same, network, (0, 2)), pair_gradient(rest, network, (0, 2)), tolerance)


def test_sweeps_and_slices_equal_dense(double):
    x = random_array(np.random.default_rng(1), SHAPE, double)
    network = random_network(STRUCTURE, 2, double)
    dense, blocks = DenseLeastSquares(x, use_numpy=True), blocked(x)
    a, b = dense.to_arrays(network), blocks.to_arrays(network)
    for _ in range(3):
        assert blocks.sweep(STRUCTURE, b, 1e-14) == pytest.approx(dense.sweep(STRUCTURE, a, 1e-14), rel=1e-9)
    for ours, theirs in zip(b, a):
        assert_close(ours, theirs, 1e-7)
    for ours, theirs in zip(
        blocks.pair_problems(STRUCTURE, b, PAIRS), dense.pair_problems(STRUCTURE, a, PAIRS)
    ):
        assert ours.edge == theirs.edge
        assert_close(ours.gradient, theirs.gradient, 1e-7)
        assert ours.fit(None, 2).explained == pytest.approx(theirs.fit(None, 2).explained, rel=1e-5)
        assert ours.fit_separable().explained == pytest.approx(theirs.fit_separable().explained, rel=1e-5)


@pytest.mark.parametrize("form", [None, "cpu"], ids=["numpy", "torch"])
@pytest.mark.parametrize("seed", [0, 1])
def test_losses_of_single_precision_are_those_of_the_residual(form, seed):
    """Smooth data makes Gram matrices ill-conditioned; a sweep gains less than their rounding would cost."""
    rng = np.random.default_rng(seed)
    a, b, c = (rng.standard_normal((24, 3, 3)).cumsum(0) for _ in range(3))
    x = np.einsum("ipq,jqr,krp->ijk", a, b, c)
    x = (x / abs(x).max() + 1e-3 * rng.standard_normal(x.shape)).astype(np.float32)
    structure = tg.Structure(x.shape, {(0, 1): 3, (1, 2): 3, (0, 2): 2})
    objective = blocked(torch.from_numpy(x), 2500, form)
    start = random_network(structure, 0, torch.float32)
    fit = als(objective, start, ALSSettings(max_sweeps=30, tolerance=0.0, accelerate=True))
    arrays = objective.to_arrays(fit.network)
    for _ in range(5):
        squared = objective.sweep(structure, arrays, 1e-14)
        assert math.sqrt(squared) == pytest.approx(objective.loss(structure, arrays), rel=1e-4)
    assert all(a.dtype == b.dtype for a, b in zip(arrays, objective.to_arrays(fit.network)))


def test_passes_are_as_few_as_promised():
    x = random_array(np.random.default_rng(1), SHAPE, torch.float64)
    blocks = blocked(x)
    network = random_network(STRUCTURE, 2)
    arrays = blocks.to_arrays(network)
    count = blocks.reducer.passes
    assert blocks.norm > 0
    for call, passes in (
        (lambda: blocks.norm, 1),
        (lambda: blocks.sweep(STRUCTURE, arrays, 1e-14), 3),
        (lambda: blocks.loss(STRUCTURE, arrays), 4),
        (lambda: blocks.pair_problems(STRUCTURE, arrays, PAIRS), 5),
        (lambda: node_equations(blocks, network), 7),
    ):
        call()
        assert blocks.reducer.passes - count == passes


def test_threads_give_the_same_bits():
    x = random_array(np.random.default_rng(1), SHAPE, torch.float64)
    network = random_network(STRUCTURE, 2)
    found = []
    for threads in (1, 4):
        objective = blocked(x, threads=threads)
        found.append(als(objective, network, ALSSettings(max_sweeps=3)))
    assert found[0].losses == found[1].losses
    for a, b in zip(found[0].network.cores, found[1].network.cores):
        assert torch.equal(a, b)


def test_a_core_in_bases_stands_for_the_whole_tensor(double):
    rng = np.random.default_rng(3)
    bases = [torch.linalg.qr(random_array(rng, (n, r), double))[0] for n, r in zip(SHAPE, (3, 4, 2, 3))]
    core = random_array(rng, (3, 4, 2, 3), double)
    x = torch.einsum("abcd,ia,jb,kc,ld->ijkl", core, *bases)
    outside = random_array(rng, SHAPE, double)
    for k, u in enumerate(bases):  # what is left has no part in the bases
        inside = torch.tensordot(u @ u.mH, outside.movedim(k, 0), dims=1).movedim(0, k)
        outside = outside - inside
    dense = DenseLeastSquares(x + outside)
    small = CompressedLeastSquares(core, bases, float(torch.linalg.vector_norm(outside)))
    assert small.norm == pytest.approx(dense.norm)
    network = random_network(STRUCTURE, 2, double)
    a, b = dense.to_arrays(network), small.to_arrays(network)
    for _ in range(2):  # from the second sweep on all cores lie in the bases
        ours, theirs = small.sweep(STRUCTURE, b, 1e-14), dense.sweep(STRUCTURE, a, 1e-14)
    fitted = small.to_network(STRUCTURE, b)
    assert small.loss(STRUCTURE, b) == pytest.approx(dense.loss(STRUCTURE, dense.to_arrays(fitted)))
    assert ours == pytest.approx(theirs, rel=0.5)
    for problem in small.pair_problems(STRUCTURE, b, PAIRS):
        left, right, explained = problem.fit(None, 2)
        grown = fitted.grow_edge(*problem.edge, slices=(torch.as_tensor(left), torch.as_tensor(right)))
        after = dense.loss(grown.structure, dense.to_arrays(grown)) ** 2
        assert after == pytest.approx(small.loss(STRUCTURE, b) ** 2 - explained, rel=1e-6)
    assert small.residual(fitted).norm == pytest.approx(small.loss(STRUCTURE, b))


def test_large_blocks_through_torch_give_the_same_numbers(monkeypatch):
    x = random_array(np.random.default_rng(1), SHAPE, torch.float64)
    network = random_network(STRUCTURE, 2)
    plain = blocked(x.numpy(), 160)
    losses = [
        plain.sweep(STRUCTURE, plain.to_arrays(network), 1e-14),
        plain.loss(STRUCTURE, plain.to_arrays(network)),
    ]
    monkeypatch.setattr("tensorgrow.data.blocks.reducer.LARGE_BLOCK", 1)
    through = blocked(x.numpy(), 160)
    assert through.sweep(STRUCTURE, through.to_arrays(network), 1e-14) == pytest.approx(losses[0])
    assert through.loss(STRUCTURE, through.to_arrays(network)) == pytest.approx(losses[1])
    x.numpy().flags.writeable = False


def test_several_networks_are_measured_in_one_pass():
    x = random_array(np.random.default_rng(1), SHAPE, torch.float64)
    blocks = blocked(x)
    networks = [random_network(STRUCTURE, k) for k in range(3)]
    before = blocks.reducer.passes
    found = blocks.losses_of(networks)
    assert blocks.reducer.passes == before + 1
    for (loss, held_out), network in zip(found, networks):
        assert loss == pytest.approx(blocks.loss(STRUCTURE, blocks.to_arrays(network)))
        assert held_out is None
    assert blocks.losses_of([]) == []
