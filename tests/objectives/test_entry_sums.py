from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensorgrow.contraction import RowTree
from tensorgrow.network import TensorNetwork
from tensorgrow.objectives import ObservedLeastSquares, entry_cores
from tensorgrow.objectives import entry_sums as slices
from tensorgrow.structure import Structure
from tests.objectives.entry_data import RING, TRAIN, TUCKER, Data, arrays_of, slice_equations
from tests.oracles import (
    TOLERANCE,
    assert_close,
    environment,
    random_network,
    to_numpy,
)
from tests.strategies import networks, seeds


@given(st.data())
def test_normal_equations(dtype, device, data):
    network = data.draw(networks(dtype))
    structure = network.structure
    d = Data(structure.dims, data.draw(seeds), dtype, device=device, weighted=data.draw(st.booleans()))
    for node in range(structure.num_nodes):
        gram, rhs = slice_equations(d.objective, network.to(device), node)
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


def by_route(monkeypatch, d: Data, network: TensorNetwork, node: int, add: str, **constants):
    with monkeypatch.context() as patch:
        for name, value in constants.items():
            patch.setattr(slices, name, value)
        objective = d.make()  # whose tables are built under the constants
        return slice_equations(objective, network, node, add), objective.index.table(node)


SMALL_CHUNKS = {"cpu": 200, "cuda": 200}


ROUTES = {
    "loop": {"add": "sums_by_slice"},
    "loop in short runs": {"add": "sums_by_slice", "RUN_BYTES": 1},
    "loop in threads": {"add": "sums_by_slice", "WORTH_THREADS": -1, "RUN_BYTES": 1},
    "blocks": {"add": "sums_by_block"},
    "blocks in chunks": {"add": "sums_by_block", "CHUNK_BYTES": SMALL_CHUNKS},
    "one block at a time": {"add": "sums_by_block", "CHUNK_BYTES": {"cpu": 1, "cuda": 1}},
    "short blocks": {"add": "sums_by_block", "LONGEST_BLOCK": 2},
    "blocks of one": {"add": "sums_by_block", "LONGEST_BLOCK": 1},
    "whichever is faster": {"add": "sums", "LOOP_ABOVE": 40},
}


@pytest.mark.parametrize(
    "structure", [RING, TUCKER, Structure.rank_one((40,)), Structure.tensor_train((2, 300), 2)]
)
@pytest.mark.parametrize("route", ROUTES)
def test_every_route_to_the_grams_gives_the_same(route, structure, dtype, monkeypatch):
    d = Data(structure.dims, 0, dtype, share=0.8)
    network = random_network(structure, 1, dtype)
    for node in range(structure.num_nodes):
        (gram, rhs), _ = by_route(monkeypatch, d, network, node, **ROUTES[route])
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


@pytest.mark.parametrize("add", ["sums_by_slice", "sums_by_block"])
def test_rows_in_pieces_add_up_to_the_same(add, dtype, monkeypatch):
    """Nearly as many entries as combinations of two parts: the table is left as its product leaves it."""
    structure = Structure.complete((6, 7, 3), 3)
    d = Data(structure.dims, 0, dtype, share=0.3)
    network = random_network(structure, 1, dtype)
    tree = RowTree(d.objective.index.entries, structure, d.objective.to_arrays(network))
    source = tree.environment(2)
    assert source.pieces == 3
    table, (design, y) = source.table(), d.design(network, 2)[1]
    assert table is not None and table[0].shape == (6 * 3 * 7, 3) and table[1].shape == (len(d.values), 3)
    (gram, rhs), _ = by_route(monkeypatch, d, network, 2, add=add)
    size = np.linalg.norm(design)
    expected = design.conj().T @ design
    assert_close(gram[1].reshape(expected.shape), expected, TOLERANCE[dtype], size**2)
    assert_close(rhs[1].reshape(-1), design.conj().T @ y, TOLERANCE[dtype], size * np.linalg.norm(y))


def test_long_slices_are_summed_in_runs(monkeypatch):
    """More entries in a slice than one run or one block takes."""
    structure = Structure.tensor_train((2, 900), 3)
    d = Data(structure.dims, 0, share=0.9)
    network = random_network(structure, 1)
    (a, y) = d.design(network, 0)[0]
    for constants in (
        {"add": "sums_by_slice", "RUN_BYTES": 1},
        {"add": "sums_by_block", "LONGEST_BLOCK": 64},
    ):
        (gram, rhs), table = by_route(monkeypatch, d, network, 0, **constants)
        assert table.starts[1] > 600
        assert_close(gram[0], a.T @ a, 1e-12)
        assert_close(rhs[0], a.T @ y, 1e-12)


def test_slices_of_very_different_length():
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
    for add in ("sums_by_slice", "sums_by_block"):
        gram, rhs = slice_equations(objective, network, 0, add)
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
    monkeypatch.setattr(entry_cores, "GRAM_BYTES", {"cpu": 1, "cuda": 1})
    for module in (slices, entry_cores):
        monkeypatch.setattr(module, "CHUNK_BYTES", SMALL_CHUNKS)
    assert len(entry_cores.ranges_of(RING.dims[0], 4, "cpu")) == RING.dims[0]  # slice by slice
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
    monkeypatch.setattr(entry_cores, "CHUNK_BYTES", {"cpu": 1, "cuda": 1})
    parts = arrays_of(d, network)
    assert d.objective.sweep(RING, parts, 1e-14) == pytest.approx(squared, rel=100 * TOLERANCE[dtype])
    for a, b in zip(whole, parts):
        assert_close(a, b, 100 * TOLERANCE[dtype])


def test_weights_of_two_count_like_two_entries_of_the_same_value():
    """Least squares with integer weights by repeating rows, through NumPy alone."""
    d = Data(TRAIN.dims, 1, weighted=False, hold_out=0.0, ridge=1e-12)
    weights = torch.tensor(np.random.default_rng(0).integers(1, 4, len(d.values)).astype(float))
    objective = ObservedLeastSquares(d.indices, d.values, TRAIN.dims, weights=weights, ridge=1e-12)
    network = random_network(TRAIN, 0)
    gram, rhs = slice_equations(objective, network, 1)
    env = environment(TRAIN, network.cores, 1)
    others = np.ravel_multi_index(d.indices[:, [0, 2, 3]].T.numpy(), (4, 3, 4))
    for s in range(5):
        mine = (d.indices[:, 1] == s).numpy()
        repeat = weights[mine].int().tolist()
        a = np.repeat(env[:, others[mine]].T, repeat, axis=0)
        y = np.repeat(d.values[mine].numpy(), repeat)
        assert_close(gram[s].reshape(4, 4), a.T @ a, 1e-12)
        assert_close(rhs[s].reshape(4), a.T @ y, 1e-12)


@pytest.mark.parametrize("fixed", [0, 1])
@pytest.mark.parametrize("structure", [RING, TUCKER, Structure.complete((4, 3, 4, 3), 2)])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_by_cell(structure, fixed, weighted, dtype, monkeypatch):
    """Whichever part of the environment is multiplied last, and however many cells are held."""
    d = Data(structure.dims, 0, dtype, share=0.7, weighted=weighted)
    network = random_network(structure, 1, dtype)
    tree = RowTree(d.objective.index.entries, structure, d.objective.to_arrays(network))
    for node in tree.order:
        source, table = tree.environment(node), d.objective.index.table(node)
        if len(source.parts) == 1:
            continue
        gram, rhs = table.sums_by_block(source, d.objective.values, 0, table.size)
        for cell_bytes in (1, 1 << 24):
            monkeypatch.setattr(slices, "CELL_BYTES", cell_bytes)
            found = table.sums_by_cell(source, d.objective.values, 0, table.size, fixed)
            assert_close(found[0], to_numpy(gram), TOLERANCE[dtype], float(gram.abs().max()) * 10)
            assert_close(found[1], to_numpy(rhs), TOLERANCE[dtype], float(rhs.abs().max()) * 10)
        last = table.sums_by_cell(source, d.objective.values, table.size - 1, table.size, fixed)
        assert_close(last[0], to_numpy(gram[-1:]), TOLERANCE[dtype], float(gram.abs().max()) * 10)


def test_cells_are_sorted_once_for_all_weights():
    d = Data(RING.dims, 0)
    table, rows = d.objective.index.table(0), d.objective.index.entries.leaf(1)
    grid = table.grid(rows)
    assert grid.size == RING.dims[0] * RING.dims[1]
    other = table.with_scale(2.0 * d.objective.index.scale)
    again = other.grid(rows)
    assert again.order is grid.order
    torch.testing.assert_close(again.scale, 2.0 * grid.scale)


def test_runs_of_slices_cover_all_entries():
    table = slices.SliceTable(torch.arange(100), torch.arange(100) // 30, 5, None)
    for size in (1, 7, 10, 29, 30, 31, 200):
        for first, last in ((0, 5), (1, 3), (3, 5), (4, 5)):
            tasks = list(table._tasks(first, last, size))
            begin, end = table.starts[first], table.starts[last]
            assert [a for a, _ in tasks] == [begin, *(b for _, b in tasks[:-1])] if tasks else begin == end
            assert not tasks or tasks[-1][1] == end
            assert all(a < b <= a + 3 * size for a, b in tasks)
