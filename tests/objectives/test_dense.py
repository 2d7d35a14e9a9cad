from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tensorgrow.contraction.execution as execution
import tensorgrow.contraction.sweeps
import tensorgrow.objectives.dense
from tensorgrow.algebra.linalg import is_single, solve_normal
from tensorgrow.contraction import clear_plans, sweep_plan
from tensorgrow.contraction.program import Layout
from tensorgrow.network import TensorNetwork
from tensorgrow.objectives import DenseLeastSquares
from tensorgrow.structure import Structure
from tests.contraction.cases import (
    MIXED,
    assert_normal_equations,
    random_target,
)
from tests.oracles import (
    TOLERANCE,
    assert_close,
    best_core,
    dense,
    environment,
    node_equations,
    pair_gradient,
    random_array,
    random_network,
    to_numpy,
)
from tests.strategies import networks, seeds

RING = Structure.tensor_ring((6,) * 4, (2, 3, 2, 3))
TUCKER = Structure.tucker((7, 6, 5, 6), (2, 3, 2, 3))


@given(st.data())
def test_normal_equations_are_those_of_the_environment_matrix(use_numpy, dtype, data):
    net = data.draw(networks(dtype))
    structure = net.structure
    target = random_target(structure, data.draw(seeds), dtype)
    node = data.draw(st.integers(0, structure.num_nodes - 1))
    found = node_equations(DenseLeastSquares(target, use_numpy=use_numpy), net)[node]
    assert_normal_equations(structure, net.cores, node, target, *found, TOLERANCE[dtype])


@given(st.data())
def test_normal_equations_solve_to_what_lstsq_finds(use_numpy, double, data):
    net = data.draw(networks(double))
    structure = net.structure
    target = random_target(structure, data.draw(seeds), double)
    node = data.draw(st.integers(0, structure.num_nodes - 1))
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    core, explained = solve_normal(*node_equations(objective, net)[node], 1e-14)
    env = environment(structure, net.cores, node)
    wanted = best_core(structure, net.cores, node, target).reshape(structure.leg_dim(node), -1)
    fitted = to_numpy(core).reshape(wanted.shape) @ env
    norm = np.linalg.norm(to_numpy(target))
    assert_close(fitted, wanted @ env, 1e-6, scale=norm)
    assert explained == pytest.approx(np.linalg.norm(wanted @ env) ** 2, abs=1e-9 * norm**2)


def test_sweep_on_the_device(dtype, device):
    net = random_network(MIXED, 4, dtype)
    target = random_target(MIXED, 5, dtype)
    objective = DenseLeastSquares(target.to(device))
    for node in range(MIXED.num_nodes):
        gram, rhs = node_equations(objective, net.to(device))[node]
        assert_normal_equations(MIXED, net.cores, node, target, gram, rhs, TOLERANCE[dtype])


def test_one_objective_serves_structures_that_want_other_axis_orders(use_numpy):
    paths_through = [(0, 1, 2, 3, 4), (2, 0, 4, 1, 3), (3, 2, 4, 0, 1), (0, 1, 2, 3, 4)]
    chains = [Structure((2, 3, 4, 3, 2), dict.fromkeys(pairwise(p), 2)) for p in paths_through]
    assert len({sweep_plan(s, False).leg_order for s in chains}) > 1
    target = random_target(chains[0], 0, torch.float64)
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    for structure in chains:
        net = random_network(structure, 1)
        for node in range(5):
            found = node_equations(objective, net)[node]
            assert_normal_equations(structure, net.cores, node, target, *found, 1e-11)


def test_what_products_read_of_a_target_is_copied_once(use_numpy, monkeypatch):
    structure = Structure.tensor_ring((7,) * 5, 4)
    assert sweep_plan(structure, False).layouts  # products want it in other orders
    made = []
    of = Layout.of
    monkeypatch.setattr(Layout, "of", lambda how, x: made.append(how) or of(how, x))
    net, target = random_network(structure, 1), random_target(structure, 0, torch.float64)
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    for _ in range(2):
        for node, found in node_equations(objective, net).items():
            assert_normal_equations(structure, net.cores, node, target, *found, 1e-11)
    assert made == list(sweep_plan(structure, False).layouts.values())


def test_targets_may_be_strided_or_conjugated_views(use_numpy):
    rng = np.random.default_rng(0)
    structure = Structure.tensor_ring((3, 4, 2), 2)
    net = random_network(structure, 0, torch.complex128)
    target = random_array(rng, (2, 4, 3), torch.complex128).permute(2, 1, 0)
    for view in (target, target.conj()):
        objective = DenseLeastSquares(view, use_numpy=use_numpy)
        for node in range(3):
            gram, rhs = node_equations(objective, net)[node]
            assert_normal_equations(structure, net.cores, node, view, gram, rhs, 1e-11)


@given(networks(torch.float64, min_nodes=3), seeds)
def test_sweeps_without_copies_of_the_target(net, seed):
    """What is done on a GPU, where no product may copy the target."""
    x = random_array(np.random.default_rng(seed), net.structure.dims, torch.float64)
    plain, spared = (DenseLeastSquares(x, use_numpy=False) for _ in range(2))
    nodes = range(net.structure.num_nodes)
    expected = node_equations(plain, net)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execution, "is_worthwhile", lambda *_: True)
        found = node_equations(spared, net)
    for k in nodes:
        assert_close(found[k][1], expected[k][1], 1e-10)


@given(st.data())
def test_loss_norm_and_residual(use_numpy, dtype, data):
    net = data.draw(networks(dtype))
    target = random_array(np.random.default_rng(data.draw(seeds)), net.structure.dims, dtype)
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    expected = to_numpy(target) - dense(net.structure, net.cores)
    tolerance = 1e-4 if is_single(dtype) else 1e-11
    scale = np.linalg.norm(to_numpy(target)) + np.linalg.norm(dense(net.structure, net.cores))
    loss = objective.loss(net.structure, objective.to_arrays(net))
    assert objective.dims == net.structure.dims
    assert objective.norm == pytest.approx(np.linalg.norm(to_numpy(target)), rel=1e-12)
    assert loss == pytest.approx(np.linalg.norm(expected), abs=tolerance * scale)
    rest = objective.residual(net)
    assert rest.target.dtype == dtype
    assert rest.use_numpy == use_numpy
    assert rest.norm == pytest.approx(loss, rel=1e-6, abs=tolerance * scale)
    assert_close(rest.target, expected, tolerance, scale)


@settings(max_examples=20)
@given(st.data())
def test_residual_has_the_pair_gradient_of_the_slice_problems(use_numpy, double, data):
    net = data.draw(networks(double, min_nodes=2))
    structure = net.structure
    target = random_array(np.random.default_rng(data.draw(seeds)), structure.dims, double)
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    edge = (0, structure.num_nodes - 1)
    (problem,) = objective.pair_problems(structure, objective.to_arrays(net), [edge])
    zero = TensorNetwork(structure, [0 * net.cores[0], *net.cores[1:]])  # the pair itself takes no part
    gradient = pair_gradient(objective.residual(net), zero, edge)
    assert tuple(gradient.shape) == tuple(problem.gradient.shape)
    assert_close(gradient, problem.gradient, 1e-10, scale=np.linalg.norm(to_numpy(problem.gradient)) + 1e-8)


def test_at_the_optimum_of_a_node_its_residual_has_no_right_hand_side(use_numpy, double):
    structure = RING
    net = random_network(structure, 0, double)
    target = random_array(np.random.default_rng(1), structure.dims, double)
    cores = list(net.cores)
    cores[2] = torch.from_numpy(best_core(structure, cores, 2, target))
    best = TensorNetwork(structure, cores)
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    _, rhs = node_equations(objective.residual(best), best)[2]
    scale = np.linalg.norm(to_numpy(node_equations(objective, best)[2][1]))
    assert np.linalg.norm(to_numpy(rhs)) < 1e-10 * scale


def test_arrays_and_networks_convert_both_ways(use_numpy, dtype):
    net = random_network(TUCKER, 0, torch.float64).to(dtype=dtype)
    objective = DenseLeastSquares(torch.zeros(net.structure.dims, dtype=dtype), use_numpy=use_numpy)
    arrays = objective.to_arrays(net)
    assert all(isinstance(a, np.ndarray if use_numpy else torch.Tensor) for a in arrays)
    again = objective.to_network(net.structure, arrays)
    assert again.dtype == dtype
    assert all(torch.equal(a, b) for a, b in zip(again.cores, net.cores))


def test_small_targets_use_numpy_by_default(device):
    small = DenseLeastSquares(torch.zeros(4, 4, device=device))
    assert small.use_numpy == (device == "cpu")


def test_norms_are_accumulated_in_double(use_numpy):
    # Squares of these underflow in single precision.
    target = torch.full((100, 100), 1e-30, dtype=torch.float32)
    assert DenseLeastSquares(target, use_numpy=use_numpy).norm == pytest.approx(1e-28, rel=1e-6)


def test_memory_estimate_covers_target_and_residual():
    structure = RING
    for dtype, size in ((torch.float32, 4), (torch.float64, 8), (torch.complex128, 16)):
        objective = DenseLeastSquares(torch.zeros(structure.dims, dtype=dtype))
        needed = objective.memory_needed(structure)
        peak = sweep_plan(structure, dtype.is_complex).program.peak_entries
        assert needed >= size * (2 * math.prod(structure.dims) + peak)
        assert needed <= size * (4 * math.prod(structure.dims) + 4 * peak)


# -- in single precision ---------------------------------------------------------------------------------


@pytest.fixture
def rounds(monkeypatch):
    """Every sweep counts as costly."""
    monkeypatch.setattr(tensorgrow.objectives.dense, "SINGLE_FLOPS", 0.0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_where_sweeps_round_losses_and_networks_do_not(rounds, use_numpy, double, data):
    net = data.draw(networks(double))
    structure = net.structure
    target = random_target(structure, data.draw(seeds), double)
    objective = DenseLeastSquares(target, use_numpy=use_numpy, may_round=True)
    arrays = objective.to_arrays(net)
    rest = to_numpy(target) - dense(structure, net.cores)
    assert objective.loss(structure, arrays) == pytest.approx(np.linalg.norm(rest), rel=1e-12)
    residual = objective.residual(net)
    assert residual.is_rounded(structure) and residual.target.dtype == double
    assert_close(residual.target, rest, 1e-11)
    objective.sweep(structure, arrays, 1e-14)
    assert all(is_single(a.dtype) for a in arrays)
    fitted = objective.to_network(structure, arrays)
    assert fitted.dtype == double
    rest = to_numpy(target) - dense(structure, fitted.cores)
    assert objective.loss(structure, arrays) == pytest.approx(np.linalg.norm(rest), rel=1e-12)


def test_a_sweep_that_rounds_is_that_in_double(rounds, use_numpy):
    target, net = random_target(RING, 1, torch.float64), random_network(RING, 0)
    losses = []
    for may_round in (False, True):
        objective = DenseLeastSquares(target, use_numpy=use_numpy, may_round=may_round)
        arrays = objective.to_arrays(net)
        squared = objective.sweep(RING, arrays, 1e-14)
        losses.append(objective.loss(RING, arrays))
        assert math.sqrt(squared) == pytest.approx(losses[-1], rel=1e-5)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_cheap_sweeps_and_single_data_are_never_rounded(use_numpy):
    for dtype in (torch.float64, torch.float32):
        objective = DenseLeastSquares(random_target(RING, 1, dtype), use_numpy=use_numpy, may_round=True)
        assert not objective.is_rounded(RING) and objective.least_ridge(RING) == 0.0


@given(networks(torch.float64, min_nodes=2), seeds, st.integers(1, 40))
def test_a_loss_in_parts_is_that_at_once(net, seed, entries):
    target = random_array(np.random.default_rng(seed), net.structure.dims, torch.float64)
    objective = DenseLeastSquares(target, use_numpy=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensorgrow.objectives.dense, "MANY_ENTRIES", 0)
        patch.setattr(tensorgrow.contraction.sweeps, "PART_ENTRIES", entries)
        loss = objective.loss(net.structure, objective.to_arrays(net))
    expected = np.linalg.norm(to_numpy(target) - dense(net.structure, net.cores))
    assert loss == pytest.approx(expected, rel=1e-10, abs=1e-12)


@given(networks(torch.float64, min_nodes=2), seeds)
def test_sweeps_over_a_target_in_the_order_it_comes_in(net, seed):
    x = random_array(np.random.default_rng(seed), net.structure.dims, torch.float64)
    expected = node_equations(DenseLeastSquares(x, use_numpy=True), net)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensorgrow.contraction.sweeps, "MANY_ENTRIES", 0)
        patch.setattr(tensorgrow.contraction.sweeps, "COPY_SHARE", math.inf)
        clear_plans()
        plan = sweep_plan(net.structure, False)
        found = node_equations(DenseLeastSquares(x, use_numpy=True), net)
    clear_plans()
    assert plan.leg_order == tuple(range(net.structure.num_nodes))
    for node, (_, rhs) in expected.items() if isinstance(expected, dict) else enumerate(expected):
        assert_close(found[node][1], rhs, 1e-10)


def test_losses_from_sums_have_their_digits_or_are_refused(monkeypatch):
    monkeypatch.setattr(tensorgrow.objectives.dense, "MANY_ENTRIES", 0)
    structure = Structure.tucker((6, 5, 7), 3)
    net = random_network(structure, 0, torch.float64)
    target = net.to_dense()
    noise = torch.randn(target.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for share, is_told in ((1.0, True), (1e-3, False), (0.0, False)):
        objective = DenseLeastSquares(target + share * noise, use_numpy=True)
        arrays = objective.to_arrays(net)
        found = objective.loss_from_sums(structure, arrays)
        assert (found is not None) == is_told
        if found is not None:
            assert math.isclose(found, objective.loss(structure, arrays), rel_tol=1e-11)
    assert DenseLeastSquares(target, use_numpy=False).loss_from_sums(structure, net.cores) is None


def test_the_sums_of_the_last_sweep_are_those_of_its_network_alone(monkeypatch):
    monkeypatch.setattr(tensorgrow.objectives.dense, "MANY_ENTRIES", 0)
    structure = Structure.tensor_ring((4, 4, 4), 2)
    target = random_target(structure, 0, torch.float64)
    objective = DenseLeastSquares(target, use_numpy=True)
    arrays = objective.to_arrays(random_network(structure, 1, torch.float64))
    reads = []
    thin = tensorgrow.objectives.dense.thin_product
    monkeypatch.setattr(
        tensorgrow.objectives.dense, "thin_product", lambda a, b: reads.append(1) or thin(a, b)
    )
    objective.sweep(structure, arrays, 1e-14)
    ended = [a.copy() for a in arrays]
    twisted = [a.transpose(0, 2, 1) for a in arrays]  # cores of the same shapes
    for cores, is_read in ((ended, False), (twisted, True), (ended, False)):
        reads.clear()
        found = objective.loss_from_sums(structure, cores)
        expected = np.linalg.norm(to_numpy(target) - dense(structure, [torch.from_numpy(c) for c in cores]))
        assert found == pytest.approx(expected, rel=1e-11)
        assert bool(reads) == is_read
    chain = Structure((4, 4, 4), {(0, 1): 4, (1, 2): 4})
    shaped = objective.to_arrays(random_network(chain, 1, torch.float64))
    objective.sweep(chain, shaped, 1e-14)
    swapped = Structure((4, 4, 4), {(0, 2): 4, (1, 2): 4})
    assert objective._squared_after_sweep(chain, shaped) is not None
    assert objective._squared_after_sweep(swapped, shaped) is None
