from __future__ import annotations

import numpy as np
import pytest
import torch

from tensorgrow.contraction import RowTree
from tensorgrow.objectives import entry_grid, entry_sums
from tensorgrow.objectives.entry_grid import CoreGrid, grid_for_product, grid_where_cheap
from tensorgrow.structure import Structure
from tests.objectives.entry_data import RING, TUCKER, Data, arrays_of, best_core
from tests.oracles import TOLERANCE, assert_close, environment, random_array, random_network, to_numpy

COMPLETE = Structure.complete((4, 3, 4, 3), 2)
STRUCTURES = pytest.mark.parametrize("structure", [RING, TUCKER, COMPLETE])
FIXED = pytest.mark.parametrize("fixed", [0, 1])


def sources(d: Data, network):
    """Tables and environments of the nodes whose environment has two parts."""
    objective = d.objective
    tree = RowTree(objective.index.entries, network.structure, objective.to_arrays(network))
    for node in tree.order:
        source = tree.environment(node)
        if len(source.parts) == 2:
            yield node, objective.index.table(node), source


@FIXED
@STRUCTURES
@pytest.mark.parametrize("weighted", [False, True])
def test_the_map_is_the_product_with_rows(structure, fixed, weighted, dtype):
    d = Data(structure.dims, 0, dtype, share=0.8, weighted=weighted)
    for _, table, source in sources(d, random_network(structure, 1, dtype)):
        grid, rows = CoreGrid(table, source, fixed), source.rows(table.order)
        rng = np.random.default_rng(0)
        x = random_array(rng, (table.size, source.width), dtype)
        size = float(rows.abs().square().sum()) ** 0.5
        scale = size * np.linalg.norm(to_numpy(x))
        assert_close(grid.times(x), to_numpy((rows * x[table.slices]).sum(1)), TOLERANCE[dtype], scale)
        y = random_array(rng, (len(rows),), dtype)
        expected = torch.zeros_like(x).index_add_(0, table.slices, rows.conj() * y[:, None])
        assert_close(
            grid.adjoint(y), to_numpy(expected), TOLERANCE[dtype], size * np.linalg.norm(to_numpy(y))
        )
        assert grid.squared_norm() == pytest.approx(table.squared_norm(source), rel=10 * TOLERANCE[dtype])


@STRUCTURES
@pytest.mark.parametrize("weighted", [False, True])
def test_products_on_a_grid_are_those_with_rows(structure, weighted, dtype, monkeypatch):
    d = Data(structure.dims, 0, dtype, share=0.8, weighted=weighted)
    for _, table, source in sources(d, random_network(structure, 1, dtype)):
        rows = source.rows(table.order)
        rng = np.random.default_rng(0)
        variance = random_array(rng, (table.size, source.width), torch.float64).square()
        found = []
        for factor in (1e9, 0.0):  # always, and never on the grid
            monkeypatch.setattr(entry_grid, "DENSE_FACTOR", factor)
            grid = grid_for_product(table, source, np.inf)
            assert (grid is None) == (factor == 0.0)
            assert grid_for_product(table, source, 0.0) is None or table.device.type == "cuda"
            monkeypatch.setattr(table, "_direct_flops", lambda _: np.inf)
            right = table.right_hand_side(source, d.objective.values)
            found.append((right, table.diagonals(source), table.leverage(source, variance)))
        assert found[0][0].dtype == source.dtype
        for one, other in zip(*found):
            assert_close(one, to_numpy(other), TOLERANCE[dtype], 10 * float(abs(other).max()))
        # It takes the place of the source, so that it comes last.
        squares = source.squares()
        assert_close(squares.rows(table.order), to_numpy(rows.abs().double().square()), 1e-5)
        held = sum(part.array.numel() for part in squares.parts)  # of complex rows, real and imaginary parts
        assert held == source.square_entries * (2 if rows.is_complex() else 1)


@FIXED
@STRUCTURES
def test_the_mean_gram_is_exact_where_all_entries_are_known(structure, fixed, dtype):
    d = Data(structure.dims, 0, dtype, share=2.0, weighted=False, hold_out=0.0)
    network = random_network(structure, 1, dtype)
    for node, table, source in sources(d, network):
        gram, _ = table.sums(source, d.objective.values, 0, table.size)
        found, expected = CoreGrid(table, source, fixed).mean_gram(), to_numpy(gram).mean(0)
        size = np.linalg.norm(environment(structure, network.cores, node)) ** 2
        assert_close(found, expected, TOLERANCE[dtype], size)


@FIXED
@STRUCTURES
@pytest.mark.parametrize("weighted", [False, True])
def test_iterations_end_at_the_least_squares_solution(structure, fixed, weighted, dtype, monkeypatch):
    is_double = dtype in (torch.float64, torch.complex128)
    monkeypatch.setattr(entry_grid, "ENOUGH", 1e-24 if is_double else 1e-12)
    monkeypatch.setattr(entry_grid, "ROUNDS", 300)
    d = Data(structure.dims, 2, dtype, share=0.8, weighted=weighted, ridge=0.05)
    network = random_network(structure, 1, dtype)
    for node, table, source in sources(d, network):
        found = CoreGrid(table, source, fixed).solve(
            d.objective.values, torch.zeros(table.size, source.width, dtype=dtype), 0.05
        )
        assert found is not None
        x, explained = found
        edges = structure.edges_of(node)
        sizes = [structure.ranks[e] for e in source.edges]
        moved = x.reshape(len(x), *sizes).permute(0, *(1 + source.edges.index(e) for e in edges))
        expected = best_core(d, network, node, 0.05)
        filled = table.filled.tolist()
        assert_close(moved[filled], expected[filled], 1e-5 if is_double else 1e-3)
        design = d.design(network, node)
        left = sum(
            np.linalg.norm(y - a @ c.reshape(-1)) ** 2
            for (a, y), c in zip(design, to_numpy(moved))
        )  # fmt: skip
        total = sum(np.linalg.norm(y) ** 2 for _, y in design)
        assert float(explained) == pytest.approx(total - left, abs=100 * TOLERANCE[dtype] * total)


@STRUCTURES
def test_rounds_that_nobody_watches_end_there_too(structure, dtype, monkeypatch):
    is_double = dtype in (torch.float64, torch.complex128)
    for name, value in {"ENOUGH": 1e-24 if is_double else 1e-12, "ROUNDS": 300}.items():
        monkeypatch.setattr(entry_grid, name, value)
    d = Data(structure.dims, 2, dtype, share=0.8, ridge=0.05)
    for _, table, source in sources(d, random_network(structure, 1, dtype)):
        grid, start = CoreGrid(table, source, 0), torch.zeros(table.size, source.width, dtype=dtype)
        watched = grid.solve(d.objective.values, start, 0.05)
        monkeypatch.setattr(entry_grid, "UNWATCHED_ROUNDS", 60)
        x, gain = grid.solve(d.objective.values, start, torch.tensor(0.05), careful=False)
        assert float(gain) == pytest.approx(float(watched[1]), rel=1e-4)
        assert_close(x, to_numpy(watched[0]), 1e-5 if is_double else 1e-3)
        bad = -1e9 * torch.eye(source.width, dtype=x.dtype)
        monkeypatch.setattr(grid, "mean_gram", bad.clone)
        assert grid.solve(d.objective.values, start, torch.tensor(0.05), careful=False)[0].isnan().all()


def everywhere(monkeypatch, **constants):
    """Iterate wherever that is possible."""
    monkeypatch.setattr(entry_grid, "LEAST_ENTRIES", 0.0)
    monkeypatch.setattr(entry_grid, "DENSE_FACTOR", 1e9)
    monkeypatch.setattr(entry_sums, "SOLVE", 1e12)
    for name, value in constants.items():
        monkeypatch.setattr(entry_grid, name, value)


def test_sweeps_by_iteration_and_by_gram_matrices_agree(monkeypatch):
    d = Data(COMPLETE.dims, 3, share=0.9, ridge=0.01)
    network = random_network(COMPLETE, 1)
    direct = arrays_of(d, network)
    squared = d.objective.sweep(COMPLETE, direct, 1e-14)
    everywhere(monkeypatch, ENOUGH=1e-14, ROUNDS=200)
    iterated = arrays_of(d, network)
    solved = []
    solve = CoreGrid.solve
    monkeypatch.setattr(
        CoreGrid, "solve", lambda *args, **how: solved.append(solve(*args, **how)) or solved[-1]
    )
    assert d.objective.sweep(COMPLETE, iterated, 1e-14) == pytest.approx(squared, rel=1e-5)
    assert len(solved) == 4 and all(x is not None for x in solved)
    for a, b in zip(direct, iterated):
        assert_close(a, b, 1e-3)


def test_what_does_not_converge_is_solved_directly(monkeypatch):
    d = Data(COMPLETE.dims, 3, share=0.9, ridge=0.01)
    network = random_network(COMPLETE, 1)
    direct = arrays_of(d, network)
    d.objective.sweep(COMPLETE, direct, 1e-14)
    everywhere(monkeypatch, ENOUGH=0.0, ROUNDS=1)
    again = arrays_of(d, network)
    d.objective.sweep(COMPLETE, again, 1e-14)
    for a, b in zip(direct, again):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_where_iterations_are_not_tried():
    d = Data(RING.dims, 0, share=0.9, weighted=False)
    for _, table, source in sources(d, random_network(RING, 1)):
        wide_enough = len(table.order) >= 2 * source.width * len(table.filled)
        assert (grid_where_cheap(table, source, 1e-2, 1e12) is not None) == wide_enough
        assert grid_where_cheap(table, source, 1e-6, 1e12) is None
        assert grid_where_cheap(table, source, 1e-2, 1.0) is None
