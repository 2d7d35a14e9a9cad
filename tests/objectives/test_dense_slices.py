from __future__ import annotations

import math
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tensorgrow.contraction.pairs as contraction_pairs
import tensorgrow.objectives.dense as objective_dense
import tensorgrow.objectives.dense_slices as objective_pairs
from tensorgrow.algebra.linalg import is_single
from tensorgrow.contraction import (
    clear_plans,
)
from tensorgrow.objectives import DenseLeastSquares
from tensorgrow.structure import Structure
from tests.contraction.cases import (
    MIXED,
    all_pairs,
    expected_gradient,
    random_target,
)
from tests.oracles import (
    TOLERANCE,
    added_by_slices,
    assert_close,
    dense,
    pair_environment,
    pair_gradient,
    pair_matricize,
    random_array,
    random_network,
    to_numpy,
)
from tests.strategies import networks, seeds, trees


def unshared_pair_plan(structure, edges, is_complex):
    return contraction_pairs.compile_pairs(structure, edges, is_complex, share=False)


PAIR_MODES = {
    "pair gram": {},
    "shared gram": {"PAIR_GRAM_ENTRIES": 0},
    "no gram": {"PAIR_GRAM_ENTRIES": 0, "SHARED_GRAM_ENTRIES": 0},
    "gram too expensive": {"SHARED_GRAM_FLOPS": 0},
    "nothing shared": {"pair_plan": unshared_pair_plan},
    "separable": {"PAIR_GRAM_ENTRIES": 0, "EXACT_SECONDS": -1},
}


EXACT_MODES = [m for m in PAIR_MODES if m != "separable"]


@contextmanager
def pair_mode(name):
    """Take one of the ways to come by the Gram of a pair."""
    with pytest.MonkeyPatch.context() as patch:
        for key, value in PAIR_MODES[name].items():
            places = (objective_dense,) if key == "pair_plan" else (contraction_pairs, objective_pairs)
            patch.setattr(next(m for m in places if key in vars(m)), key, value)
        clear_plans()
        yield
    clear_plans()


@given(st.data())
def test_pair_gradient_is_the_target_with_all_other_cores(use_numpy, dtype, data):
    net = data.draw(networks(dtype, min_nodes=2))
    structure = net.structure
    target = random_target(structure, data.draw(seeds), dtype)
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    i, j = data.draw(st.sampled_from(all_pairs(structure)))
    residual = to_numpy(target) - dense(structure, net.cores)
    expected, scale = expected_gradient(structure, net.cores, residual, i, j)
    assert_close(pair_gradient(objective, net, (i, j)), expected, 2 * TOLERANCE[dtype], scale)


def best_slice(structure, cores, residual, i, j, given):
    """Least-squares slice of node i when node j holds the slice `given`."""
    env = pair_environment(structure, cores, i, j)
    held = to_numpy(given).reshape(structure.leg_dim(j), env.shape[1])
    design = np.einsum("abr,yb->ayr", env, held).reshape(env.shape[0], -1)
    unfolded = pair_matricize(structure, residual, i, j).reshape(structure.leg_dim(i), -1)
    return np.linalg.lstsq(design.T, unfolded.T, rcond=1e-9)[0].T.reshape(-1)


@pytest.mark.parametrize("mode", EXACT_MODES)
@settings(max_examples=15)
@given(st.data())
def test_slice_fit_alternates_exact_least_squares(mode, use_numpy, double, data):
    net = data.draw(networks(double, min_nodes=2))
    structure = net.structure
    target = random_target(structure, data.draw(seeds), double)
    i, j = data.draw(st.sampled_from(all_pairs(structure)))
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    residual = to_numpy(target) - dense(structure, net.cores)
    total = np.linalg.norm(residual) ** 2
    gradient, scale = expected_gradient(structure, net.cores, residual, i, j)
    start = random_array(np.random.default_rng(0), gradient.shape[1:], double)
    with pair_mode(mode):
        (problem,) = objective.pair_problems(structure, objective.to_arrays(net), [(i, j)])
        fit = problem.fit(start.numpy() if use_numpy else start, 1)
    assert problem.edge == (i, j)
    assert_close(problem.gradient, gradient, 1e-10, scale)
    added = added_by_slices(structure, net.cores, (i, j), fit.left, fit.right)
    decrease = total - np.linalg.norm(residual - added) ** 2
    assert fit.explained == pytest.approx(decrease, abs=1e-6 * total + 1e-200)

    left = best_slice(structure, net.cores, residual, i, j, start)
    right = best_slice(structure, net.cores, residual, j, i, left)
    wanted = added_by_slices(structure, net.cores, (i, j), left, right)
    assert_close(added, wanted, 1e-5, scale=math.sqrt(total))


@pytest.mark.parametrize("mode", PAIR_MODES)
@settings(max_examples=15)
@given(st.data())
def test_slice_fit_from_the_spectrum_lowers_the_loss_by_what_it_says(mode, use_numpy, double, data):
    net = data.draw(networks(double, min_nodes=2))
    structure = net.structure
    target = random_target(structure, data.draw(seeds), double)
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    residual = to_numpy(target) - dense(structure, net.cores)
    total = np.linalg.norm(residual) ** 2
    edges = data.draw(st.lists(st.sampled_from(all_pairs(structure)), min_size=1, max_size=3, unique=True))
    with pair_mode(mode):
        problems = objective.pair_problems(structure, objective.to_arrays(net), edges)
        fits = [(p.fit(None, 1), p.fit(None, 3)) for p in problems]
    assert [p.edge for p in problems] == edges
    for edge, (one, three) in zip(edges, fits):
        for fit in (one, three):
            assert isinstance(fit.left, np.ndarray if use_numpy else torch.Tensor)
            added = added_by_slices(structure, net.cores, edge, fit.left, fit.right)
            decrease = total - np.linalg.norm(residual - added) ** 2
            assert fit.explained == pytest.approx(decrease, abs=1e-4 * total + 1e-200)
            assert fit.explained >= -1e-9 * total
        assert three.explained >= one.explained - 1e-4 * total


def test_slices_next_to_an_unconnected_part_when_the_pair_gram_is_too_large(use_numpy):
    # Nodes 3 and 4 have no bonds: their Gram is a number, and it must not get lost.
    structure = Structure((2, 2, 2, 2, 2), {(0, 2): 20, (1, 2): 20})
    net = random_network(structure, 0)
    target = random_target(structure, 1, torch.float64)
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    (problem,) = objective.pair_problems(structure, objective.to_arrays(net), [(0, 1)])
    fit = problem.fit(None, 2)
    residual = to_numpy(target) - dense(structure, net.cores)
    added = added_by_slices(structure, net.cores, (0, 1), fit.left, fit.right)
    decrease = np.linalg.norm(residual) ** 2 - np.linalg.norm(residual - added) ** 2
    assert fit.explained == pytest.approx(decrease, rel=1e-6)


def test_slices_of_a_matrix_are_its_leading_singular_pair(use_numpy, dtype):
    structure = Structure.rank_one((6, 5))
    rng = np.random.default_rng(3)
    u, v = (np.linalg.qr(to_numpy(random_array(rng, (n, n), dtype)))[0] for n in (6, 5))
    matrix = torch.tensor((u[:, :5] * [5, 1, 0.5, 0.2, 0.1]) @ v, dtype=dtype)
    objective = DenseLeastSquares(matrix, use_numpy=use_numpy)
    zero = random_network(structure, 0, dtype)
    zero = type(zero)(structure, [0 * c for c in zero.cores])
    (problem,) = objective.pair_problems(structure, objective.to_arrays(zero), [(0, 1)])
    fit = problem.fit(None, 10)
    tolerance = 1e-5 if is_single(dtype) else 1e-10
    assert fit.explained == pytest.approx(25, rel=tolerance)
    assert_close(np.outer(to_numpy(fit.left), to_numpy(fit.right)), 5 * np.outer(u[:, 0], v[0]), tolerance)


def test_slice_fits_on_the_device(dtype, device):
    net = random_network(MIXED, 4, dtype)
    target = random_target(MIXED, 5, dtype)
    residual = to_numpy(target) - dense(MIXED, net.cores)
    objective = DenseLeastSquares(target.to(device))
    problems = objective.pair_problems(MIXED, objective.to_arrays(net), all_pairs(MIXED))
    assert len(problems) == 15
    for problem in problems:
        fit = problem.fit(None, 2)
        added = added_by_slices(MIXED, net.cores, problem.edge, fit.left, fit.right)
        total = np.linalg.norm(residual) ** 2
        decrease = total - np.linalg.norm(residual - added) ** 2
        assert fit.explained == pytest.approx(decrease, abs=(1e-2 if is_single(dtype) else 1e-6) * total)
        assert fit.explained > 0


def test_no_edges_no_problems():
    objective = DenseLeastSquares(torch.ones(2, 3))
    net = random_network(Structure.rank_one((2, 3)), 0, torch.float32)
    assert objective.pair_problems(net.structure, objective.to_arrays(net), []) == []


@pytest.mark.parametrize("mode", ["pair gram", "separable"])
@pytest.mark.parametrize("structure", [Structure.rank_one((2, 3)), MIXED], ids=["pair", "mixed"])
def test_nothing_to_explain_gives_finite_slices(structure, mode, use_numpy, dtype):
    net = random_network(structure, 0, dtype)
    zero = type(net)(structure, [0 * c for c in net.cores])
    objective = DenseLeastSquares(torch.zeros(structure.dims, dtype=dtype), use_numpy=use_numpy)
    for network in (zero, type(net)(structure, [zero.cores[0], *net.cores[1:]])):
        arrays = objective.to_arrays(network)
        with pair_mode(mode):
            fits = [p.fit(None, 2) for p in objective.pair_problems(structure, arrays, all_pairs(structure))]
        for fit in fits:
            assert np.isfinite(to_numpy(fit.left)).all()
            assert np.isfinite(to_numpy(fit.right)).all()
            assert fit.explained == pytest.approx(0.0, abs=1e-12)


@settings(max_examples=25)
@given(st.data())
def test_separable_fit_is_optimal_on_the_edges_of_a_tree(use_numpy, double, data):
    # Without the edge, a tree falls in two: the Gram of the pair is a product and the metric is exact. The
    # best slices are the leading singular pair of the residual between orthonormal bases of both halves.
    structure = data.draw(trees(min_dim=2, max_internal=1))
    net = random_network(structure, data.draw(seeds), double)
    i, j = data.draw(st.sampled_from(structure.edges))
    residual = random_target(structure, data.draw(seeds), double)
    env = pair_environment(structure, net.cores, i, j)
    roots = []
    for gram in (np.einsum("abr,cbr->ac", env, env.conj()), np.einsum("abr,acr->bc", env, env.conj())):
        values, vectors = np.linalg.eigh(gram)
        assume(values[0] > 1e-4 * values[-1])  # worse ones are regularised
        roots.append((vectors / np.sqrt(values)) @ vectors.conj().T)
    gradient = expected_gradient(structure, net.cores, residual, i, j)[0]
    shaped = gradient.reshape(structure.leg_dim(i), env.shape[0], structure.leg_dim(j), env.shape[1])
    white = np.einsum("xayb,ac,bd->xcyd", shaped, roots[0], roots[1]).reshape(gradient.shape)
    singular = np.append(np.linalg.svd(white, compute_uv=False), 0.0)
    assume(singular[1] < 0.7 * singular[0])  # ten power iterations separate these
    best = singular[0] ** 2 * np.linalg.norm(env) ** 2

    target = residual + torch.from_numpy(dense(structure, net.cores))
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    with pair_mode("separable"):
        (problem,) = objective.pair_problems(structure, objective.to_arrays(net), [(i, j)])
        assert problem.fit(None, 2).explained == pytest.approx(best, rel=1e-2)


def test_separable_fit_in_single_precision(use_numpy):
    structure = Structure.tensor_ring((4, 4, 4, 4), 2)
    for dtype in (torch.float32, torch.complex64):
        net = random_network(structure, 0, dtype)
        target = random_target(structure, 1, dtype)
        objective = DenseLeastSquares(target, use_numpy=use_numpy)
        residual = to_numpy(target) - dense(structure, net.cores)
        total = np.linalg.norm(residual) ** 2
        with pair_mode("separable"):
            problems = objective.pair_problems(structure, objective.to_arrays(net), all_pairs(structure))
            fits = [p.fit(None, 2) for p in problems]
        for problem, fit in zip(problems, fits):
            added = added_by_slices(structure, net.cores, problem.edge, fit.left, fit.right)
            decrease = total - np.linalg.norm(residual - added) ** 2
            assert fit.explained == pytest.approx(decrease, abs=1e-4 * total)
            assert fit.explained > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128])
@pytest.mark.parametrize(
    ("structure", "edge"),
    [
        (Structure.tensor_train((4, 4, 4, 4), 2), (1, 2)),
        (Structure.tensor_ring((4, 4, 4, 4), 2), (0, 1)),
        (Structure.tensor_ring((4, 4, 4, 4), 2), (0, 2)),
    ],
    ids=["of a tree", "on a cycle", "new"],
)
def test_several_slices_lower_the_loss_as_they_promise(structure, edge, dtype, use_numpy):
    net, target = random_network(structure, 0, dtype), random_target(structure, 1, dtype)
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    residual = to_numpy(target) - dense(structure, net.cores)
    gains = []
    for count in (1, 2, 4):
        (problem,) = objective.pair_problems(structure, objective.to_arrays(net), [edge])
        fits = problem.fit_several(count)
        assert len(fits) == count
        added = sum(added_by_slices(structure, net.cores, edge, f.left, f.right) for f in fits)
        decrease = np.linalg.norm(residual) ** 2 - np.linalg.norm(residual - added) ** 2
        gains.append(sum(f.explained for f in fits))
        assert gains[-1] == pytest.approx(decrease, abs=1e-4 * np.linalg.norm(residual) ** 2)
    assert min(gains) > 0.0
    if len(structure.edges) == 3:  # without the edge two pieces are left, and the metric is exact
        assert gains == sorted(gains)
