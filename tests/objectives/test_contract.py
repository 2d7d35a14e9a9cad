"""One set of checks that every least-squares objective passes."""

from __future__ import annotations

import inspect
import math
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch

from tensorgrow.network import TensorNetwork
from tensorgrow.objectives import HeldOut, LeastSquares, SharesPasses
from tensorgrow.solvers import ALSSettings, als
from tensorgrow.structure import Structure
from tests.objectives.cases import CASES, DIMS, REAL_ONLY, Case
from tests.oracles import added_by_slices, assert_close, dense, random_network, to_numpy

# A triangle with an internal node: every kind of pair occurs.
STRUCTURE = Structure(DIMS, {(0, 1): 2, (1, 2): 2, (0, 2): 2, (2, 3): 2, (0, 3): 2}, num_nodes=4)
EDGES = list(combinations(range(4), 2))
# Relative to the norm of the data: losses, and gains of slices.
CLOSE = {torch.float32: 1e-5, torch.complex64: 1e-5, torch.float64: 1e-11, torch.complex128: 1e-11}
GAIN = {torch.float32: 3e-4, torch.complex64: 3e-4, torch.float64: 1e-7, torch.complex128: 1e-7}


@pytest.fixture(params=list(CASES))
def name(request):
    return request.param


@pytest.fixture
def case(name, dtype) -> Case:
    if name in REAL_ONLY and dtype.is_complex:
        pytest.skip("entry losses are for real values")
    return CASES[name](dtype)


@pytest.fixture
def double_case(name, double) -> Case:
    if name in REAL_ONLY and double.is_complex:
        pytest.skip("entry losses are for real values")
    return CASES[name](double)


def concrete(kind: type) -> set[type]:
    """All classes below one that can be instantiated, in the library."""
    below = set().union({kind}, *(concrete(c) for c in kind.__subclasses__()))
    return {c for c in below if not inspect.isabstract(c) and c.__module__.startswith("tensorgrow.")}


def test_every_objective_is_here():
    assert {type(make(torch.float64).objective) for make in CASES.values()} == concrete(LeastSquares)


def assert_losses(found, expected, tolerance: float) -> None:
    """Compare losses on fitted and held-out data; None where nothing is held out."""
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        assert a is None or a == pytest.approx(b, abs=tolerance)


def start(case: Case, seed: int = 0) -> tuple[TensorNetwork, list]:
    """A random network that the objective can represent, and its arrays."""
    o = case.objective
    arrays = o.to_arrays(random_network(STRUCTURE, seed, o.dtype))
    return o.to_network(STRUCTURE, arrays), arrays


def copies(arrays: list) -> list:
    return [a.copy() if isinstance(a, np.ndarray) else a.clone() for a in arrays]


def test_losses_are_those_of_the_oracle(case):
    o = case.objective
    network, arrays = start(case)
    tensor, close = dense(STRUCTURE, network.cores), CLOSE[o.dtype]
    zero, expected = case.losses(0 * tensor), case.losses(tensor)
    assert o.dims == DIMS
    assert o.epsilon == torch.finfo(o.dtype).eps
    tolerance = close * (zero[0] + expected[0])
    assert_losses((o.norm, o.validation_norm), zero, tolerance)
    both = o.loss(STRUCTURE, arrays), o.validation_loss(STRUCTURE, arrays)
    assert_losses(both, expected, tolerance)
    if isinstance(o, HeldOut):
        assert_losses(o.losses(STRUCTURE, arrays), expected, tolerance)
        assert (o.num_fitted, o.num_held_out) == (
            len(case.fitted.values),
            0 if case.held_out is None else len(case.held_out.values),
        )
        assert (o.num_held_out > 0) == (case.held_out is not None)
    if isinstance(o, SharesPasses):
        other, _ = start(case, 1)
        pairs = [case.losses(dense(STRUCTURE, n.cores)) for n in (network, other)]
        for found, wanted in zip(o.losses_of([network, other]), pairs, strict=True):
            assert_losses(found, wanted, 10 * tolerance)
        assert o.losses_of([]) == []


def test_arrays_convert_both_ways(case):
    o = case.objective
    network, arrays = start(case)
    assert all(isinstance(a, np.ndarray) == o.use_numpy for a in arrays)
    assert network.dtype == o.dtype
    again = o.to_network(STRUCTURE, o.to_arrays(network))
    for a, b in zip(again.cores, network.cores):
        assert_close(a, b, 10 * CLOSE[o.dtype])


def test_a_sweep_lowers_the_loss_and_says_to_what(case):
    o = case.objective
    _, arrays = start(case)
    kept, before = copies(arrays), list(arrays)
    losses = [o.loss(STRUCTURE, arrays)]
    for _ in range(4):
        squared = o.sweep(STRUCTURE, arrays, 1e-14)
        tensor = dense(STRUCTURE, o.to_network(STRUCTURE, arrays).cores)
        losses.append(case.losses(tensor)[0])
        assert squared == pytest.approx(losses[-1] ** 2, abs=GAIN[o.dtype] * o.norm**2)
        assert o.loss(STRUCTURE, arrays) == pytest.approx(losses[-1], abs=CLOSE[o.dtype] * o.norm)
    assert all(b <= a + GAIN[o.dtype] * o.norm for a, b in pairwise(losses))
    assert losses[-1] < 0.95 * losses[0]
    for a, b in zip(before, kept):  # only the list changes
        assert_close(a, b, 0.0)


def test_als_fits_every_objective(name):
    case = CASES[name](torch.float64)
    structure = Structure.tensor_train(DIMS, 2)
    fit = als(case.objective, random_network(structure, 3), ALSSettings(max_sweeps=30))
    assert fit.loss == pytest.approx(case.losses(dense(structure, fit.network.cores))[0], rel=1e-6)
    assert all(b <= a * (1 + 1e-9) for a, b in pairwise(fit.losses))
    assert fit.loss < case.objective.norm


def test_the_residual_is_what_is_left(double_case):
    case, o = double_case, double_case.objective
    network, arrays = start(case)
    other, _ = start(case, 1)
    both = dense(STRUCTURE, network.cores) + dense(STRUCTURE, other.cores)
    rest = o.residual(network)
    unit = rest.norm / o.loss(STRUCTURE, arrays)
    if case.unit == 1.0:  # that of a loss of entries is the residual of its parabola, in units of its own
        assert unit == pytest.approx(1.0, rel=1e-9)
    expected = case.losses(both)
    assert rest.loss(STRUCTURE, rest.to_arrays(other)) == pytest.approx(unit * expected[0], rel=1e-8)
    if expected[1] is None:
        assert rest.validation_norm is None
    else:
        held_out = rest.validation_loss(STRUCTURE, rest.to_arrays(other))
        assert held_out == pytest.approx(unit * expected[1], rel=1e-8)
    assert o.loss(STRUCTURE, arrays) == pytest.approx(case.losses(dense(STRUCTURE, network.cores))[0])


def test_slices_gain_what_they_promise(case):
    o = case.objective
    network, arrays = start(case)
    o.sweep(STRUCTURE, arrays, 1e-14)
    network = o.to_network(STRUCTURE, arrays)
    tensor = dense(STRUCTURE, network.cores)
    before = case.measure(tensor)
    kept = copies(arrays)
    problems = o.pair_problems(STRUCTURE, arrays, EDGES)
    assert [p.edge for p in problems] == EDGES
    for problem in problems:
        fits = [problem.fit(None, n) for n in (1, 3)]
        for left, right, explained in fits:
            grown = tensor + added_by_slices(STRUCTURE, network.cores, problem.edge, left, right)
            gain = before**2 - case.measure(grown) ** 2
            assert explained == pytest.approx(gain, abs=GAIN[o.dtype] * o.norm**2)
            if case.held_out is None:
                assert explained > -GAIN[o.dtype] * o.norm**2
        if case.held_out is None:
            assert fits[1].explained >= fits[0].explained - GAIN[o.dtype] * o.norm**2
        # From a start of one's own.
        right = 0 * problem.gradient[0] + 1
        assert math.isfinite(problem.fit(right, 1).explained)
    for a, b in zip(arrays, kept):
        assert_close(a, b, 0.0)
    assert o.pair_problems(STRUCTURE, arrays, []) == []


def test_gradients_are_those_of_the_oracle(name, double):
    if name in REAL_ONLY or name == "compressed":
        pytest.skip("the gradient is in other units, or in other bases")
    case = CASES[name](double)
    network, arrays = start(case)
    rest = case.fitted.values - case.fitted.predict(dense(STRUCTURE, network.cores))
    for problem in case.objective.pair_problems(STRUCTURE, arrays, EDGES):
        gradient = to_numpy(problem.gradient)
        for a, b in ((0, 0), (1, 2), (gradient.shape[0] - 1, gradient.shape[1] - 1)):
            b = min(b, gradient.shape[1] - 1)
            left, right = np.eye(gradient.shape[0])[a], np.eye(gradient.shape[1])[b]
            added = added_by_slices(STRUCTURE, network.cores, problem.edge, left, right)
            slope = np.vdot(case.fitted.predict(added), rest)
            assert gradient[a, b] == pytest.approx(slope, abs=1e-10 * np.abs(gradient).max())


def test_ridges_share_the_data(double_case):
    case, o = double_case, double_case.objective
    if not isinstance(o, HeldOut):
        pytest.skip("has no ridge")
    _, arrays = start(case)
    strong, weak = o.with_ridge(1.0), o.with_ridge(1e-9)
    assert (o.ridge, strong.ridge, weak.ridge) == (1e-6, 1.0, 1e-9)
    assert type(strong) is type(o)
    losses, sizes = [], []
    for variant in (strong, weak):
        assert variant.norm == o.norm and variant.validation_norm == o.validation_norm
        assert_losses(variant.losses(STRUCTURE, arrays), o.losses(STRUCTURE, arrays), 1e-12 * o.norm)
        mine = list(arrays)
        variant.sweep(STRUCTURE, mine, 0.0)
        losses.append(variant.loss(STRUCTURE, mine))
        sizes.append(np.linalg.norm(dense(STRUCTURE, mine)))
    assert losses[1] < losses[0] and sizes[0] < sizes[1]


def test_costs_are_positive_and_grow_with_the_ranks(double_case):
    o = double_case.objective
    structures = [Structure.rank_one(DIMS), Structure.tensor_train(DIMS, 2), Structure.tensor_ring(DIMS, 3)]
    for cost in (o.memory_needed, o.sweep_flops):
        found = [cost(s) for s in structures]
        assert found[0] > 0
        assert all(a <= b for a, b in pairwise(found)) and found[0] < found[-1]
