"""Least squares on samples against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tensorgrow as tg
from tensorgrow.algebra.linalg import solve_ridge
from tensorgrow.data.devices import one_thread
from tensorgrow.objectives import RegressionLeastSquares
from tensorgrow.objectives.samples import COMPRESSED_FEATURES, SampleData
from tensorgrow.solvers import ALSSettings, als
from tensorgrow.structure import Structure
from tensorgrow.tasks.regress import regress
from tests import oracles
from tests.samples import PLANTED, data, planted, responses

DIMS = (3, 4, 2, 3)
# Node 4 is internal in the first, and the output in the second, where node 5 is internal.
ONE = Structure(DIMS, {(0, 1): 2, (1, 2): 2, (0, 2): 3, (2, 3): 2, (1, 4): 2, (3, 4): 2})
SEVERAL = Structure((*DIMS, 3), {(0, 1): 2, (1, 2): 2, (2, 3): 2, (3, 4): 2, (0, 4): 2, (1, 5): 2, (2, 5): 2})
ALONE = Structure((5,))
LOOSE = Structure((*DIMS, 2))
STRUCTURES = {"one": ONE, "several": SEVERAL, "order 1": ALONE, "rank one, two responses": LOOSE}


def design(structure: Structure, cores, node: int, x) -> np.ndarray:
    """Responses for every unit core, by plain einsum."""
    shape = structure.core_shape(node)
    columns = []
    for k in range(int(np.prod(shape))):
        unit = np.zeros(int(np.prod(shape)))
        unit[k] = 1.0
        changed = [*cores[:node], unit.reshape(shape), *cores[node + 1 :]]
        columns.append(responses(x, oracles.dense(structure, changed)).reshape(-1))
    return np.stack(columns, 1)


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("count", [9, 400])  # fewer and more samples than unknowns and features
def test_losses_and_residual(name, count, dtype, use_numpy):
    structure = STRUCTURES[name]
    x, y = data(structure, count, dtype)
    held = torch.arange(count) % 3 == 0
    network = oracles.random_network(structure, 1, dtype)
    objective = RegressionLeastSquares(x, y, held_out=held, use_numpy=use_numpy)
    arrays = objective.to_arrays(network)
    rest = oracles.to_numpy(y) - responses(x, oracles.dense(structure, network.cores))
    expected = np.linalg.norm(rest[~held.numpy()]), np.linalg.norm(rest[held.numpy()])
    assert objective.losses(structure, arrays) == pytest.approx(expected, rel=1e-4)
    assert objective.loss(structure, arrays) == objective.losses(structure, arrays)[0]
    assert objective.validation_loss(structure, arrays) == objective.losses(structure, arrays)[1]
    left = objective.residual(network)
    assert (left.norm, left.validation_norm) == pytest.approx(expected, rel=1e-4)
    outputs = int(np.prod(y.shape[1:]))
    assert objective.num_held_out == int(held.sum()) * outputs
    assert objective.num_fitted == int((~held).sum()) * outputs
    assert objective.sweep_flops(structure) > 0
    assert objective.memory_needed(structure) > 0
    assert objective.to_network(structure, arrays).structure == structure


def test_without_held_out_samples():
    x, y = data(ONE, 30)
    for held in (None, torch.zeros(30, dtype=torch.bool)):
        objective = RegressionLeastSquares(x, y, held_out=held)
        arrays = objective.to_arrays(oracles.random_network(ONE, 0))
        assert objective.validation_norm is None
        assert objective.validation_loss(ONE, arrays) is None
        assert objective.losses(ONE, arrays)[1] is None
        assert objective.num_held_out == 0


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("count", [9, 400])
def test_the_problem_of_one_core_is_that_of_lstsq(name, count, double, use_numpy):
    structure = STRUCTURES[name]
    x, y = data(structure, count, double)
    network = oracles.random_network(structure, 1, double)
    cores = [oracles.to_numpy(c) for c in network.cores]
    objective = RegressionLeastSquares(x, y, use_numpy=use_numpy)
    flat = oracles.to_numpy(y).reshape(-1)
    for node in range(structure.num_nodes):
        d = design(structure, cores, node, x)
        ridge = 1e-3
        gram = d.conj().T @ d
        mu = ridge * np.trace(gram).real / len(gram)
        # The penalty as extra rows: NumPy's solver then never squares the condition.
        stacked = np.vstack([d, np.sqrt(mu) * np.eye(len(gram))])
        best = np.linalg.lstsq(stacked, np.r_[flat, np.zeros(len(gram))], rcond=None)[0]
        given = objective.fitted.design(structure, objective.to_arrays(network), node, objective.output)
        matrix, answers = objective.as_problem(objective.fitted, node, given)
        dual = matrix.conj().T
        oracles.assert_close((dual @ answers).T.reshape(-1), d.conj().T @ flat, 1e-10)
        core, explained = solve_ridge(matrix, answers, ridge, 0.0)
        oracles.assert_close(core.reshape(-1), best, 1e-6)
        drop = np.linalg.norm(flat) ** 2 - np.linalg.norm(flat - d @ best) ** 2
        assert explained == pytest.approx(drop, rel=1e-6)
        if node != objective.output:
            oracles.assert_close(dual @ matrix, gram, 1e-10)


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("count", [9, 400])
def test_a_sweep_solves_every_core_in_turn(name, count, double, use_numpy):
    structure = STRUCTURES[name]
    x, y = data(structure, count, double)
    network = oracles.random_network(structure, 1, double)
    objective = RegressionLeastSquares(x, y, ridge=1e-2, use_numpy=use_numpy)
    arrays = objective.to_arrays(network)
    squared = objective.sweep(structure, arrays, 0.0)
    assert squared == pytest.approx(objective.loss(structure, arrays) ** 2, abs=1e-9 * objective.norm**2)
    assert squared <= objective.loss(structure, objective.to_arrays(network)) ** 2
    # The core that was solved last is at its optimum: solving for it again changes nothing.
    order = [k for k in range(structure.num_nodes) if not np.allclose(arrays[k], network.cores[k])]
    assert len(order) == structure.num_nodes
    again = [a.copy() if use_numpy else a.clone() for a in arrays]
    unchanged = 0
    for node in range(structure.num_nodes):
        d = objective.fitted.design(structure, again, node, objective.output)
        core, _ = solve_ridge(*objective.as_problem(objective.fitted, node, d), 1e-2, 0.0)
        unchanged += bool(np.allclose(core.reshape(-1), arrays[node].reshape(-1), rtol=1e-6, atol=1e-9))
    assert unchanged >= 1


@pytest.mark.parametrize("edge", [(0, 1), (0, 3), (3, 4), (2, 4)])
@pytest.mark.parametrize("name", ["one", "several"])
@pytest.mark.parametrize("count", [12, 400])
def test_slices_gain_what_they_promise(name, edge, count, double, use_numpy):
    structure = STRUCTURES[name]
    x, y = data(structure, count, double)
    network = oracles.random_network(structure, 1, double)
    for held in (None, torch.arange(count) % 4 == 0):
        objective = RegressionLeastSquares(x, y, held_out=held, ridge=1e-3, use_numpy=use_numpy)
        arrays = objective.to_arrays(network)
        [problem] = objective.pair_problems(structure, arrays, [edge])
        fit = problem.fit(None, 2)
        slices = tuple(torch.as_tensor(s) for s in (fit.left, fit.right))
        grown = network.grow_edge(*edge, slices=slices)
        before = objective.losses(structure, arrays)
        after = objective.losses(grown.structure, objective.to_arrays(grown))
        k = 0 if held is None else 1
        gain = before[k] ** 2 - after[k] ** 2
        assert fit.explained == pytest.approx(gain, abs=1e-8 * before[k] ** 2)
        assert after[0] <= before[0]
    # The gradient, entry by entry: the gain of unit slices to first order.
    left = np.eye(1, problem.gradient.shape[0], 2)[0]
    right = np.eye(1, problem.gradient.shape[1], 1)[0]
    added = responses(x[~held], oracles.added_by_slices(structure, network.cores, edge, left, right))
    residual = oracles.to_numpy(y[~held]) - responses(x[~held], oracles.dense(structure, network.cores))
    assert oracles.to_numpy(problem.gradient)[2, 1] == pytest.approx((added.conj() * residual).sum())


def test_slices_of_nothing():
    x, y = data(ONE, 20)
    objective = RegressionLeastSquares(x, 0 * y)
    zero = tg.TensorNetwork(ONE, [0 * c for c in oracles.random_network(ONE, 0).cores])
    assert objective.pair_problems(ONE, objective.to_arrays(zero), []) == []
    [problem] = objective.pair_problems(ONE, objective.to_arrays(zero), [(0, 1)])
    fit = problem.fit(None, 1)
    assert fit.explained == 0.0
    assert not bool(np.asarray(fit.left).any())


@given(
    count=st.integers(20, 60), outputs=st.integers(1, 3), is_complex=st.booleans(), seed=st.integers(0, 99)
)
def test_many_samples_are_compressed_without_changing_least_squares(count, outputs, is_complex, seed):
    rng = np.random.default_rng(seed)
    dtype = torch.complex128 if is_complex else torch.float64
    x = oracles.random_array(rng, (count, 2, 3), dtype)
    y = oracles.random_array(rng, (count, outputs), dtype)
    samples = SampleData(x, y, use_numpy=True)
    assert samples.count == count
    assert samples.rows == 6 + outputs < COMPRESSED_FEATURES
    w = oracles.random_array(rng, (6, outputs), dtype).numpy()
    direct = np.linalg.norm(oracles.to_numpy(y) - oracles.to_numpy(x).reshape(count, 6) @ w)
    assert np.linalg.norm(samples.residual(w)) == pytest.approx(direct)
    oracles.assert_close(samples.correlation(), x.reshape(count, 6).mH @ y, 1e-10)


def test_a_sweep_reads_the_samples_a_few_times_only():
    structure = Structure.tensor_train((6,) * 5, 2)
    objective = RegressionLeastSquares(*data(Structure((6,) * 5), 100))
    read = 2.0 * objective.fitted.rows * 6**5
    grams = sum(objective.fitted.rows * float(np.prod(s)) ** 2 for s in structure.core_shapes)
    assert objective.sweep_flops(structure) - grams <= 6 * read  # rank 2 either way, and what is left


@pytest.mark.parametrize("count", [150, 1500])
def test_als_finds_planted_coefficients(count, double):
    structure = PLANTED["tt"]
    network = oracles.random_network(structure, 3, double)
    x, _ = data(Structure(structure.dims), count, double)
    y = torch.tensor(responses(x, oracles.dense(structure, network.cores)), dtype=double)
    objective = RegressionLeastSquares(x, y, ridge=0.0)
    start = oracles.perturbed(network, 0.2, 5)
    with one_thread():
        fit = als(objective, start, ALSSettings(max_sweeps=200, tolerance=1e-9, accelerate=True))
    assert fit.loss <= 1e-7 * objective.norm


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu():
    x, y, w = planted(PLANTED["tr"], 400, 0.0, 0)
    found = regress(x, y, random_state=0, device="cuda")
    assert found.network.device.type == "cuda"
    oracles.assert_close(found.network.to_dense(), w, 1e-6)
