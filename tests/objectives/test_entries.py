from __future__ import annotations

import math
from functools import partialmethod
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorgrow.algebra import linalg
from tensorgrow.network import TensorNetwork
from tensorgrow.objectives import DenseLeastSquares, ObservedLeastSquares
from tensorgrow.objectives import entries as observed
from tensorgrow.objectives import entry_solve as slice_solve
from tensorgrow.objectives import entry_sums as slices
from tensorgrow.solvers import ALSSettings, als
from tensorgrow.structure import Structure
from tests.oracles import (
    TOLERANCE,
    added_by_slices,
    assert_close,
    dense,
    environment,
    matricize,
    perturbed,
    random_array,
    random_network,
    to_numpy,
)
from tests.strategies import networks, seeds

RING = Structure.tensor_ring((4, 5, 3, 4), (2, 3, 2, 2))
TRAIN = Structure.tensor_train((4, 5, 3, 4), 2)
TUCKER = Structure.tucker((4, 5, 3), (2, 3, 2))


class Data:
    """Some entries of a random tensor, and a copy of everything as dense NumPy arrays.

    `weight` is 0 where nothing is fitted.
    """

    def __init__(
        self,
        dims,
        seed: int,
        dtype: torch.dtype = torch.float64,
        *,
        share: float = 0.6,
        weighted: bool = True,
        hold_out: float = 0.2,
        target: torch.Tensor | None = None,
        device: str = "cpu",
        ridge: float = 0.0,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.dense = random_array(rng, dims, dtype) if target is None else target
        seen = rng.random(dims) < share
        seen[(0,) * len(dims)] = True  # at least one entry
        where = np.argwhere(seen)
        rng.shuffle(where)
        self.indices = torch.tensor(where)
        self.values = self.dense[tuple(self.indices.T)]
        held = rng.random(len(where)) < hold_out
        held[0] = False
        self.held = torch.tensor(held)
        real = self.values.real.dtype
        weights = torch.tensor(rng.uniform(0.2, 3.0, len(where)), dtype=real) if weighted else None
        self.weight = np.zeros(dims)
        fitted = tuple(self.indices[~self.held].T.numpy())
        self.weight[fitted] = 1.0 if weights is None else weights[~self.held].double().numpy()
        self.objective = ObservedLeastSquares(
            self.indices.to(device),
            self.values.to(device),
            dims,
            weights=None if weights is None else weights.to(device),
            held_out=self.held.to(device) if held.any() else None,
            ridge=ridge,
        )
        self.weights = weights

    def design(self, network: TensorNetwork, node: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """For every slice of a node: rows of the environment and values, by the root of the weights."""
        structure = network.structure
        env = environment(structure, network.cores, node)
        target = matricize(structure, self.dense, node)
        root = np.sqrt(matricize(structure, self.weight, node))
        return [
            ((env[:, w > 0] * w[w > 0]).T, t[w > 0] * w[w > 0])
            for t, w in zip(target, root)
        ]  # fmt: skip

    def loss(self, tensor: np.ndarray) -> float:
        rest = to_numpy(self.dense) - tensor
        return float(np.linalg.norm(np.sqrt(self.weight) * rest))


def best_core(data: Data, network: TensorNetwork, node: int, ridge: float) -> np.ndarray:
    """The core by NumPy's SVD-based solver, with a ridge relative to the mean diagonal of all Grams."""
    structure = network.structure
    shape = structure.core_shape(node)
    design = data.design(network, node)
    width = math.prod(shape[1:])
    mean = sum(np.linalg.norm(a) ** 2 for a, _ in design) / (len(design) * width)
    extra = math.sqrt(ridge * mean) * np.eye(width)
    found = [np.linalg.lstsq(np.r_[a, extra], np.r_[y, np.zeros(width)], rcond=None)[0] for a, y in design]
    filled = [x for x, (a, _) in zip(found, design) if len(a)]
    return np.stack([x if len(a) else np.mean(filled, 0) for x, (a, _) in zip(found, design)]).reshape(shape)


def arrays_of(data: Data, network: TensorNetwork) -> list[torch.Tensor]:
    return [a.clone() for a in data.objective.to_arrays(network)]


# -- what is measured --------------------------------------------------------------------------------------


@given(st.data())
def test_losses(dtype, device, data):
    network = data.draw(networks(dtype))
    structure = network.structure
    d = Data(structure.dims, data.draw(seeds), dtype, device=device, weighted=data.draw(st.booleans()))
    o, arrays = d.objective, arrays_of(d, network)
    tensor = dense(structure, network.cores)
    scale = np.linalg.norm(tensor) + np.linalg.norm(to_numpy(d.dense))
    tolerance = 10 * TOLERANCE[dtype] * scale
    assert o.norm == pytest.approx(d.loss(np.zeros(structure.dims)), abs=tolerance)
    assert o.loss(structure, arrays) == pytest.approx(d.loss(tensor), abs=tolerance)
    assert o.num_fitted + o.num_held_out == len(d.indices)
    found = o.predict(structure, arrays)
    assert_close(found, tensor[tuple(d.indices.T.numpy())], TOLERANCE[dtype], scale)
    if not d.held.any():
        assert o.validation_norm is None and o.validation_loss(structure, arrays) is None
        assert o.losses(structure, arrays)[1] is None
        return
    held = tuple(d.indices[d.held].T.numpy())
    root = np.ones(len(held[0])) if d.weights is None else np.sqrt(to_numpy(d.weights[d.held]))
    true = to_numpy(d.dense)[held]
    assert o.validation_norm == pytest.approx(np.linalg.norm(root * true), abs=tolerance)
    expected = np.linalg.norm(root * (true - tensor[held]))
    assert o.validation_loss(structure, arrays) == pytest.approx(expected, abs=tolerance)
    assert o.losses(structure, arrays)[1] == pytest.approx(expected, abs=tolerance)


@given(st.data())
def test_residual_is_what_is_left(double, data):
    network = data.draw(networks(double))
    d = Data(network.structure.dims, data.draw(seeds), double)
    other = perturbed(network, 0.5, data.draw(seeds))
    rest = d.objective.residual(network)
    assert rest.norm == pytest.approx(d.objective.loss(network.structure, network.cores), rel=1e-9)
    expected = d.loss(dense(network.structure, network.cores) + dense(other.structure, other.cores))
    assert rest.loss(other.structure, other.cores) == pytest.approx(expected, rel=1e-8)
    assert_close(d.objective.values, d.values, 0.0)  # the objective itself stays


# -- normal equations --------------------------------------------------------------------------------------


@given(st.data())
def test_normal_equations(dtype, device, data):
    network = data.draw(networks(dtype))
    structure = network.structure
    d = Data(structure.dims, data.draw(seeds), dtype, device=device, weighted=data.draw(st.booleans()))
    for node in range(structure.num_nodes):
        gram, rhs = d.objective.normal_equations(network.to(device), node)
        bonds = structure.core_shape(node)[1:]
        assert gram.shape == (structure.leg_dim(node), *bonds, *bonds)
        assert rhs.shape == structure.core_shape(node)
        assert gram.dtype == rhs.dtype == dtype
        width = math.prod(bonds)
        size = np.linalg.norm(environment(structure, network.cores, node))
        for s, (a, y) in enumerate(d.design(network, node)):
            found = to_numpy(gram[s]).reshape(width, width)
            assert_close(found, a.conj().T @ a, TOLERANCE[dtype], 10 * size**2)
            m = to_numpy(rhs[s]).reshape(-1)
            assert_close(m, a.conj().T @ y, TOLERANCE[dtype], 10 * size * np.linalg.norm(to_numpy(d.dense)))


def _spied(table, used: set, name: str, real, *arguments):
    used.add(name)
    return real(table, *arguments)


def routes(monkeypatch, d: Data, network: TensorNetwork, node: int, **constants):
    with monkeypatch.context() as patch:
        for name, value in constants.items():
            patch.setattr(slices, name, value)
        used = set()
        for name in ("_add_by_slice", "_add_by_block"):
            real = getattr(slices.SliceTable, name)
            patch.setattr(slices.SliceTable, name, partialmethod(_spied, used, name, real))
        d.objective.index._tables.clear()  # built under the constants
        found = d.objective.normal_equations(network, node)
        table = d.objective.index.table(node)
        d.objective.index._tables.clear()
    assert used == {"_add_by_slice" if constants["LOOP_ABOVE"] == 0 else "_add_by_block"}
    return found, table


SMALL_CHUNKS = {"cpu": 200, "cuda": 200}
ROUTES = {
    "loop": {"LOOP_ABOVE": 0},
    "loop in short runs": {"LOOP_ABOVE": 0, "RUN_BYTES": 1},
    "loop in threads": {"LOOP_ABOVE": 0, "WORTH_THREADS": -1, "RUN_BYTES": 1},
    "blocks": {"LOOP_ABOVE": 10**9},
    "blocks in chunks": {"LOOP_ABOVE": 10**9, "CHUNK_BYTES": SMALL_CHUNKS},
    "one block at a time": {"LOOP_ABOVE": 10**9, "CHUNK_BYTES": {"cpu": 1, "cuda": 1}},
    "short blocks": {"LOOP_ABOVE": 10**9, "LONGEST_BLOCK": 2},
    "blocks of one": {"LOOP_ABOVE": 10**9, "LONGEST_BLOCK": 1},
}


@pytest.mark.parametrize(
    "structure", [RING, TUCKER, Structure.rank_one((40,)), Structure.tensor_train((2, 300), 2)]
)
@pytest.mark.parametrize("route", ROUTES)
def test_every_route_to_the_grams_gives_the_same(route, structure, dtype, monkeypatch):
    d = Data(structure.dims, 0, dtype, share=0.8)
    network = random_network(structure, 1, dtype)
    for node in range(structure.num_nodes):
        (gram, rhs), _ = routes(monkeypatch, d, network, node, **ROUTES[route])
        width = math.prod(structure.core_shape(node)[1:])
        for s, (a, y) in enumerate(d.design(network, node)):
            assert_close(
                gram[s].reshape(width, width),
                a.conj().T @ a,
                TOLERANCE[dtype],
                np.linalg.norm(a) ** 2 + 1e-30,
            )
            size = np.linalg.norm(a) * np.linalg.norm(y) + 1e-30
            assert_close(rhs[s].reshape(-1), a.conj().T @ y, TOLERANCE[dtype], size)


def test_long_slices_are_summed_in_runs(monkeypatch):
    """More entries in a slice than one run or one block takes."""
    structure = Structure.tensor_train((2, 900), 3)
    d = Data(structure.dims, 0, share=0.9)
    network = random_network(structure, 1)
    (a, y) = d.design(network, 0)[0]
    for constants in ({"LOOP_ABOVE": 0, "RUN_BYTES": 1}, {"LOOP_ABOVE": 10**9, "LONGEST_BLOCK": 64}):
        (gram, rhs), table = routes(monkeypatch, d, network, 0, **constants)
        assert table.starts[1] > 600
        assert_close(gram[0], a.T @ a, 1e-12)
        assert_close(rhs[0], a.T @ y, 1e-12)


def test_slices_of_very_different_length(monkeypatch):
    """Padding: one slice has nearly all entries, some have one, some none."""
    structure = Structure.tensor_train((50, 200), 2)
    rng = np.random.default_rng(0)
    where = np.r_[
        np.c_[np.full(180, 7), rng.permutation(200)[:180]], np.c_[np.arange(10, 30), np.arange(20)]
    ]  # fmt: skip
    indices = torch.tensor(where)
    values = torch.tensor(rng.standard_normal(len(where)))
    network = random_network(structure, 1)
    objective = ObservedLeastSquares(indices, values, structure.dims)
    env = network.cores[1].numpy()
    for constants in ({"LOOP_ABOVE": 0}, {"LOOP_ABOVE": 10**9}):
        with monkeypatch.context() as patch:
            for name, value in constants.items():
                patch.setattr(slices, name, value)
            objective.index._tables.clear()
            gram, rhs = objective.normal_equations(network, 0)
        for s in range(50):
            mine = where[:, 0] == s
            a, y = env[where[mine, 1]], values.numpy()[mine]
            np.testing.assert_allclose(gram[s].numpy(), a.T @ a, atol=1e-10)
            np.testing.assert_allclose(rhs[s].numpy(), a.T @ y, atol=1e-10)
        table = objective.index.table(0)
        assert table.filled.tolist() == [7, *range(10, 30)]
        assert len(table.empty) == 50 - 21


@pytest.mark.parametrize("weighted", [False, True])
def test_small_memory_for_grams_changes_nothing(weighted, dtype, monkeypatch):
    d = Data(
        RING.dims,
        3,
        dtype,
        weighted=weighted,
        ridge=0.05 if dtype in (torch.float32, torch.complex64) else 1e-6,
    )
    network = random_network(RING, 1, dtype)
    whole = arrays_of(d, network)
    squared = d.objective.sweep(RING, whole, 1e-14)
    monkeypatch.setattr(slices, "GRAM_BYTES", {"cpu": 1, "cuda": 1})
    monkeypatch.setattr(slices, "CHUNK_BYTES", SMALL_CHUNKS)
    assert len(slices.ranges_of(RING.dims[0], 4, "cpu")) == RING.dims[0]  # slice by slice
    parts = arrays_of(d, network)
    again = d.objective.sweep(RING, parts, 1e-14)
    assert again == pytest.approx(squared, rel=100 * TOLERANCE[dtype])
    for a, b in zip(whole, parts):
        assert_close(a, b, 100 * TOLERANCE[dtype])


def test_slices_solved_a_few_at_a_time_give_the_same(dtype, monkeypatch):
    d = Data(RING.dims, 8, dtype, ridge=0.05)
    network = random_network(RING, 4, dtype)
    whole = arrays_of(d, network)
    squared = d.objective.sweep(RING, whole, 1e-14)
    monkeypatch.setattr(slice_solve, "SOLVE_BYTES", {"cpu": 1, "cuda": 1})
    parts = arrays_of(d, network)
    assert d.objective.sweep(RING, parts, 1e-14) == pytest.approx(squared, rel=100 * TOLERANCE[dtype])
    for a, b in zip(whole, parts):
        assert_close(a, b, 100 * TOLERANCE[dtype])


# -- sweeps ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [1e-12, 1e-2])
@pytest.mark.parametrize(
    "structure", [RING, TUCKER, TRAIN, Structure.rank_one((3, 4)), Structure.rank_one((6,))]
)
def test_a_sweep_solves_every_core_in_turn(structure, ridge, double, device):
    d = Data(structure.dims, 5, double, share=0.9, ridge=ridge, device=device)
    network = random_network(structure, 2, double)
    single = ridge >= observed.SINGLE_ABOVE
    tolerance = 1e-4 if single else 1e-6
    found = arrays_of(d, network)
    squared = d.objective.sweep(structure, found, 0.0)
    order = observed.RowTree(d.objective.index.entries, structure, network.cores).order
    cores = list(network.cores)
    for node in order:
        now = TensorNetwork(structure, cores)
        cores[node] = torch.tensor(best_core(d, now, node, ridge)).to(double)
        assert_close(found[node], cores[node], tolerance)
    expected = d.loss(dense(structure, cores))
    assert squared == pytest.approx(expected**2, rel=1e-3, abs=1e-6 * d.objective.norm**2)
    assert found[0].dtype == double


def test_a_solved_core_cannot_be_improved(dtype):
    """The gradient of the penalised loss vanishes at the last core of a sweep."""
    d = Data(RING.dims, 5, dtype, share=0.9, ridge=1e-3)
    arrays = arrays_of(d, random_network(RING, 2, dtype))
    d.objective.sweep(RING, arrays, 0.0)
    network = TensorNetwork(RING, arrays)
    node = observed.RowTree(d.objective.index.entries, RING, arrays).order[-1]
    design = d.design(network, node)
    width = math.prod(RING.core_shape(node)[1:])
    weight = 1e-3 * sum(np.linalg.norm(a) ** 2 for a, _ in design) / (len(design) * width)
    for x, (a, y) in zip(to_numpy(arrays[node]).reshape(len(design), width), design):
        slope = a.conj().T @ (a @ x - y) + weight * x
        assert np.linalg.norm(slope) <= 1e-4 * np.linalg.norm(a) * np.linalg.norm(y)


def test_weights_of_two_count_like_two_entries_of_the_same_value():
    """Least squares with integer weights by repeating rows, through NumPy alone."""
    d = Data(TRAIN.dims, 1, weighted=False, hold_out=0.0, ridge=1e-12)
    weights = torch.tensor(np.random.default_rng(0).integers(1, 4, len(d.values)).astype(float))
    objective = ObservedLeastSquares(d.indices, d.values, TRAIN.dims, weights=weights, ridge=1e-12)
    network = random_network(TRAIN, 0)
    gram, rhs = objective.normal_equations(network, 1)
    env = environment(TRAIN, network.cores, 1)
    others = np.ravel_multi_index(d.indices[:, [0, 2, 3]].T.numpy(), (4, 3, 4))
    for s in range(5):
        mine = (d.indices[:, 1] == s).numpy()
        repeat = weights[mine].int().tolist()
        a = np.repeat(env[:, others[mine]].T, repeat, axis=0)
        y = np.repeat(d.values[mine].numpy(), repeat)
        assert_close(gram[s].reshape(4, 4), a.T @ a, 1e-12)
        assert_close(rhs[s].reshape(4), a.T @ y, 1e-12)


@pytest.mark.parametrize("structure", [RING, TUCKER, TRAIN])
@pytest.mark.parametrize("weighted", [False, True])
def test_plain_als_never_raises_the_loss(structure, weighted, double):
    """Request 3 of ECOSYSTEM.md: other libraries' masked ALS goes up."""
    for seed in range(2):
        d = Data(structure.dims, seed, double, share=0.5, weighted=weighted, ridge=1e-13)
        arrays = arrays_of(d, random_network(structure, seed, double))
        losses = [d.objective.loss(structure, arrays)]
        for _ in range(15):
            squared = d.objective.sweep(structure, arrays, 0.0)
            losses.append(d.loss(dense(structure, arrays)))
            assert squared == pytest.approx(losses[-1] ** 2, rel=1e-5, abs=1e-9 * d.objective.norm**2)
        slack = 1e-8 * d.objective.norm
        assert all(b <= a + slack for a, b in pairwise(losses)), losses
        assert losses[-1] < 0.95 * losses[0]


def test_als_recovers_a_planted_network(dtype, device):
    truth = random_network(RING, 3, dtype)
    target = torch.tensor(dense(RING, truth.cores)).to(dtype)
    d = Data(RING.dims, 0, dtype, share=0.9, target=target, weighted=False, hold_out=0.1, device=device)
    fit = als(d.objective, perturbed(truth, 0.05, 1), ALSSettings(max_sweeps=120, tolerance=1e-9))
    small = dtype in (torch.float32, torch.complex64)
    error = np.linalg.norm(dense(RING, fit.network.cores) - to_numpy(target)) / np.linalg.norm(
        to_numpy(target)
    )
    assert error < (1e-3 if small else 1e-6)  # on entries that were not observed too
    assert fit.network.dtype == dtype and fit.network.device.type == device


@given(st.data())
@settings(max_examples=20)
def test_a_full_mask_is_the_dense_problem(dtype, data):
    network = data.draw(networks(dtype, min_dim=2))
    structure = network.structure
    d = Data(structure.dims, data.draw(seeds), dtype, share=2.0, weighted=False, hold_out=0.0, ridge=1e-14)
    whole = DenseLeastSquares(d.dense, use_numpy=False)
    assert d.objective.norm == pytest.approx(whole.norm, rel=1e-5)
    for node in range(structure.num_nodes):
        gram, rhs = d.objective.normal_equations(network, node)
        full = whole.normal_equations(network, node)
        width = structure.bond_product(node)
        size = np.linalg.norm(environment(structure, network.cores, node))
        assert_close(rhs, full.rhs, 10 * TOLERANCE[dtype], size * whole.norm)
        if full.gram is None:
            assert_close(gram.reshape(-1), np.ones(structure.leg_dim(node)), TOLERANCE[dtype])
            continue
        for g in gram:  # bra before ket here, ket before bra there
            assert_close(
                g.reshape(width, width).T, full.gram.reshape(width, width), 10 * TOLERANCE[dtype], size**2
            )


def test_a_full_mask_sweeps_like_the_dense_objective(double):
    d = Data(RING.dims, 0, double, share=2.0, weighted=False, hold_out=0.0, ridge=1e-14)
    start = random_network(RING, 4, double)
    settings = ALSSettings(max_sweeps=60, tolerance=0.0)
    some = als(d.objective, start, settings)
    whole = als(DenseLeastSquares(d.dense), start, settings)
    assert some.loss == pytest.approx(whole.loss, rel=0.02)  # the orders of the cores differ
    assert some.loss == pytest.approx(d.loss(dense(RING, some.network.cores)), rel=1e-6)


# -- what must have no influence ---------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [1e-10, 1e-2])
def test_held_out_entries_never_influence_fits(ridge, double):
    d = Data(RING.dims, 0, double, ridge=ridge)
    changed = d.values.clone()
    changed[d.held] = 1e6
    other = ObservedLeastSquares(
        d.indices, changed, RING.dims, weights=d.weights, held_out=d.held, ridge=ridge
    )
    rows = ~d.held
    without = ObservedLeastSquares(
        d.indices[rows], d.values[rows], RING.dims, weights=d.weights[rows], ridge=ridge
    )
    network = random_network(RING, 1, double)
    results = []
    for objective in (d.objective, other, without):
        arrays = [c.clone() for c in network.cores]
        assert objective.norm == pytest.approx(d.objective.norm, rel=1e-12)
        squared = objective.sweep(RING, arrays, 1e-14)
        gradient = objective.pair_gradient(network, (0, 2))
        results.append((squared, arrays, gradient))
    tolerance = 1e-4 if ridge >= observed.SINGLE_ABOVE else 1e-7
    for squared, arrays, gradient in results[1:]:
        assert squared == pytest.approx(results[0][0], rel=tolerance)
        assert_close(gradient, results[0][2], 1e-12)
        for a, b in zip(arrays, results[0][1]):
            assert_close(a, b, tolerance)
    assert other.validation_norm > 100 * d.objective.validation_norm


def test_empty_slices_become_the_mean_of_the_others(double):
    target = random_array(np.random.default_rng(0), RING.dims, double)
    where = torch.tensor(np.argwhere(np.ones(RING.dims, bool)))
    keep = (where[:, 1] != 2) & (where[:, 3] != 0)
    objective = ObservedLeastSquares(where[keep], target[tuple(where[keep].T)], RING.dims, ridge=1e-8)
    arrays = list(random_network(RING, 0, double).cores)
    objective.sweep(RING, arrays, 1e-14)
    for node, s in ((1, 2), (3, 0)):
        core = arrays[node]
        assert bool(torch.isfinite(core).all())
        others = [k for k in range(RING.dims[node]) if k != s]
        assert_close(core[s], core[others].mean(0), 1e-12)


def test_inputs_are_not_modified(monkeypatch):
    d = Data(RING.dims, 0, ridge=1e-2)
    before = [t.clone() for t in (d.indices, d.values, d.weights, d.held)]
    network = random_network(RING, 0)
    cores = [c.clone() for c in network.cores]
    arrays = d.objective.to_arrays(network)
    d.objective.sweep(RING, list(arrays), 1e-14)
    for p in d.objective.pair_problems(RING, arrays, [(0, 1), (0, 2)]):
        p.fit(None, 2)
    d.objective.normal_equations(network, 1)
    d.objective.residual(network)
    for a, b in zip((d.indices, d.values, d.weights, d.held, *network.cores), [*before, *cores]):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


# -- new slices of an edge ---------------------------------------------------------------------------------


@given(st.data())
def test_pair_gradient_is_that_of_the_zero_filled_weighted_tensor(dtype, device, data):
    network = data.draw(networks(dtype, min_order=2))
    structure = network.structure
    d = Data(structure.dims, data.draw(seeds), dtype, device=device, weighted=data.draw(st.booleans()))
    spread = d.dense * torch.tensor(d.weight).to(dtype)
    whole = DenseLeastSquares(spread, use_numpy=False)
    edge = data.draw(st.sampled_from(list(combinations(range(structure.num_nodes), 2))))
    found = d.objective.pair_gradient(network.to(device), edge)
    expected = whole.pair_gradient(network, edge)
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
    assert_close(found, DenseLeastSquares(spread, use_numpy=False).pair_gradient(network, (0, 3)), 1e-10)


# -- single precision where the ridge is large -------------------------------------------------------------


def test_the_loss_after_a_sweep_is_right_where_single_rows_cancel(double):
    """A ridge from 1e-4 on computes rows in single precision; the squared loss must not be its rounding."""
    truth = random_network(TRAIN, 3, double)
    target = torch.tensor(dense(TRAIN, truth.cores)).to(double)
    d = Data(TRAIN.dims, 0, double, share=0.9, target=target, weighted=False, ridge=observed.SINGLE_ABOVE)
    arrays = arrays_of(d, truth.balanced())
    for _ in range(3):
        squared = d.objective.sweep(TRAIN, arrays, 0.0)
        exact = d.loss(dense(TRAIN, arrays))
        assert exact < 2e-3 * d.objective.norm
        assert squared == pytest.approx(exact**2, rel=0.05)


def test_ridges_share_the_data():
    d = Data(RING.dims, 0, ridge=1e-2)
    other = d.objective.with_ridge(1e-9)
    assert (d.objective.ridge, other.ridge) == (1e-2, 1e-9)
    assert other.values is d.objective.values
    assert other.num_held_out == d.objective.num_held_out > 0
    start = list(random_network(RING, 0).cores)
    strong, weak = list(start), list(start)
    d.objective.with_ridge(1.0).sweep(RING, strong, 0.0)
    other.sweep(RING, weak, 0.0)
    assert other.loss(RING, weak) < 0.9 * other.loss(RING, strong)


# -- batched solver ----------------------------------------------------------------------------------------


def psd(rng, width: int, rank: int, dtype: torch.dtype) -> torch.Tensor:
    a = random_array(rng, (rank, width), dtype)
    return a.mH @ a


@pytest.mark.parametrize("width", [1, 2, 7])
def test_solve_slices(width, double):
    rng = np.random.default_rng(width)
    gram = torch.stack([psd(rng, width, width + 2, double) for _ in range(5)])
    rhs = random_array(rng, (5, width), double)
    found = linalg.solve_slices(gram, rhs, 0.0)
    expected = np.stack([np.linalg.solve(to_numpy(g), to_numpy(m)) for g, m in zip(gram, rhs)])
    assert_close(found, expected, 1e-8)
    ridge = linalg.solve_slices(gram, rhs, 0.5)
    for g, m, x in zip(gram, rhs, ridge):
        scaled = to_numpy(g) + 0.5 * np.diag(np.diag(to_numpy(g)))
        assert_close(x, np.linalg.solve(scaled, to_numpy(m)), 1e-8)


def test_solve_slices_is_finite_on_singular_and_zero_matrices(double):
    rng = np.random.default_rng(0)
    gram = torch.stack([psd(rng, 4, 2, double), torch.zeros(4, 4, dtype=double), psd(rng, 4, 6, double)])
    x = random_array(rng, (3, 4), double)
    rhs = (gram @ x[:, :, None])[:, :, 0]
    found = linalg.solve_slices(gram, rhs, 0.0)
    assert bool(torch.isfinite(torch.view_as_real(found) if found.is_complex() else found).all())
    again = (gram @ found[:, :, None])[:, :, 0]
    assert_close(again, rhs, 1e-6)
    assert_close(found[2], x[2], 1e-8)
    assert_close(found[1], np.zeros(4), 1e-12)


@pytest.mark.parametrize("factor", [1e-120, 1e-30, 1e30, 1e120])
def test_solve_slices_does_not_mind_the_scale(factor):
    rng = np.random.default_rng(0)
    gram = torch.stack([psd(rng, 3, 5, torch.float64) for _ in range(2)])
    rhs = random_array(rng, (2, 3), torch.float64)
    assert_close(
        linalg.solve_slices(gram * factor, rhs * factor, 1e-14), linalg.solve_slices(gram, rhs, 1e-14), 1e-9
    )


# -- cost --------------------------------------------------------------------------------------------------


def test_memory_does_not_grow_with_the_dense_size():
    needed = []
    for side in (100, 1_000, 10_000):
        dims = (side, side, side)
        rng = np.random.default_rng(0)
        indices = torch.tensor(rng.integers(0, side, (300, 3)))
        objective = ObservedLeastSquares(indices, torch.ones(300, dtype=torch.float64), dims)
        needed.append(objective.memory_needed(Structure.tensor_train(dims, 3)))
    assert needed[0] <= needed[1] <= needed[2]
    assert needed[2] - needed[0] < 1e8  # linear in the side at most; dense would be 8e12


def test_work_is_linear_in_the_entries():
    flops = []
    for n in (100, 200, 400):
        indices = torch.tensor(np.random.default_rng(0).integers(0, 4, (n, 4)))
        objective = ObservedLeastSquares(indices, torch.ones(n, dtype=torch.float64), (4, 4, 4, 4))
        flops.append(objective.sweep_flops(Structure.tensor_ring((4, 4, 4, 4), 2)))
    assert flops[1] == pytest.approx(2 * flops[0]) and flops[2] == pytest.approx(4 * flops[0])
