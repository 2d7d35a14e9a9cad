"""Many edges at once against one at a time, on the CPU too, where the library takes them one by one."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tensorgrow.algebra.linalg import is_single
from tensorgrow.contraction import RowTree
from tensorgrow.network import TensorNetwork
from tensorgrow.objectives import entry_batches
from tensorgrow.objectives.entry_batches import EntryPairBatch, batch_bytes, may_batch, padded
from tensorgrow.objectives.entry_slices import EntryPairProblem
from tensorgrow.objectives.penalties import Penalties
from tensorgrow.priors import Nonnegative
from tensorgrow.structure import Structure
from tests.objectives.entry_data import RING, TRAIN, TUCKER, Data, arrays_of
from tests.oracles import assert_close, perturbed, random_network

ONE = Structure.rank_one((4, 5, 3))


def batch_of(d, network, edges=None, *, keeps_layouts=True):
    """A batch of edges, all of them by default, and the edges."""
    structure, arrays, o = network.structure, arrays_of(d, network), d.objective
    edges = list(combinations(range(structure.num_nodes), 2)) if edges is None else edges
    rows = [a.to(o.row_dtype) for a in arrays]
    tree = RowTree(o.index.entries, structure, rows, keeps_layouts=keeps_layouts)
    return EntryPairBatch(o, tree, edges, o.values - o.predict(structure, arrays)), edges


def assert_same_fits(d, network, sweeps=2, tolerance=1e-6):
    batch, edges = batch_of(d, network)
    arrays = arrays_of(d, network)
    for edge, problem in zip(edges, d.objective.pair_problems(network.structure, arrays, edges)):
        found, expected = batch.fit(edge, sweeps), problem.fit(None, sweeps)
        assert found is not None
        assert found.left.dtype == expected.left.dtype and found.left.shape == expected.left.shape
        assert found.right.shape == expected.right.shape
        scale = d.objective.norm**2
        assert found.explained == pytest.approx(expected.explained, rel=tolerance, abs=tolerance * scale)
        # Slices of both ends may share their scale otherwise; what they add may not.
        ours, theirs = (torch.outer(f.left.reshape(-1), f.right.reshape(-1)) for f in (found, expected))
        assert_close(ours, theirs, 100 * tolerance, float(theirs.abs().max()) + 1e-30)


@pytest.mark.parametrize("structure", [RING, TUCKER, TRAIN, ONE])
@pytest.mark.parametrize("hold_out", [0.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_batch_fits_what_each_edge_would(structure, hold_out, weighted, double, device):
    d = Data(
        structure.dims, 0, double, share=0.9, hold_out=hold_out, weighted=weighted, ridge=1e-5, device=device
    )
    for sweeps in (1, 2):
        assert_same_fits(d, random_network(structure, 1, double), sweeps)


def test_every_number_type(dtype):
    d = Data(RING.dims, 4, dtype, share=0.9, hold_out=0.2, ridge=1e-3)
    assert_same_fits(d, random_network(RING, 1, dtype), tolerance=1e-3 if is_single(dtype) else 1e-4)


@pytest.mark.parametrize("ridge", [1e-3, 1e-1])
def test_rows_in_single_precision(ridge, double):
    d = Data(RING.dims, 3, double, share=0.9, ridge=ridge)
    assert d.objective.row_dtype != double
    assert_same_fits(d, random_network(RING, 2, double), tolerance=1e-4)


def test_slices_without_entries(double):
    d = Data(RING.dims, 1, double, share=0.03, hold_out=0.0, ridge=1e-3)
    tables = [d.objective.index.table(k) for k in range(4)]
    assert any(len(t.empty) for t in tables)
    assert_same_fits(d, random_network(RING, 1, double), tolerance=1e-4)


def test_small_stacks_are_as_good_as_large_ones(monkeypatch):
    d = Data(RING.dims, 0, share=0.9, ridge=1e-5)
    network = random_network(RING, 1)
    widest = max(5 * 6 * 6, 4 * 4 * 4)
    monkeypatch.setattr(entry_batches, "STACK_BYTES", 8 * 2 * widest)
    batch, edges = batch_of(d, network)
    runs = list(batch._runs())
    assert len(runs) > 1 and [e for run in runs for e in run] == edges
    for run in runs:
        for side in (0, 1):
            for stack in batch._side(run, side).stacks:
                assert 8 * stack.count * stack.width**2 <= entry_batches.STACK_BYTES
    assert_same_fits(d, network)


def test_stacks_hold_edges_of_about_the_same_width():
    d = Data(RING.dims, 0)
    batch, edges = batch_of(d, random_network(RING, 1))
    for side in (0, 1):
        made = batch._side(tuple(edges), side)
        assert sorted(k for s in made.stacks for k in s.members) == list(range(len(edges)))
        for stack in made.stacks:
            assert stack.width == max(width for _, _, width in stack.runs)
            assert len({padded(width) for _, _, width in stack.runs}) == 1
            assert stack.bounds.tolist() == [0, *(last for _, last, _ in stack.runs)]
            assert stack.owners.tolist() == [k for k, (a, b, _) in enumerate(stack.runs) for _ in range(a, b)]


def test_edges_with_a_prior_and_wide_ones_are_fitted_by_themselves(monkeypatch):
    d = Data(RING.dims, 0, ridge=1e-3)
    o = d.objective.with_penalties(Penalties({0: (Nonnegative(),)}, RING.dims))
    assert not may_batch(o, RING, (0, 2)) and may_batch(o, RING, (1, 2))
    monkeypatch.setattr(entry_batches, "WIDE", 6)
    assert not may_batch(d.objective, RING, (0, 2)) and may_batch(d.objective, RING, (0, 1))
    batch, _ = batch_of(d, random_network(RING, 1))
    assert batch.fit((0, 2), 2) is None and batch.fit((0, 1), 2) is not None


def test_an_edge_that_failed_is_fitted_carefully(monkeypatch):
    """Only that one: what the others found is kept."""
    d = Data(RING.dims, 0, hold_out=0.3, ridge=1e-3)
    network = random_network(RING, 1)
    plain = entry_batches.solve_or_nan

    def fail(matrices, right):
        x = plain(matrices, right)
        x[0] = math.nan
        return x

    monkeypatch.setattr(entry_batches, "solve_or_nan", fail)
    batch, edges = batch_of(d, network)
    found = {e: batch.fit(e, 2) for e in edges}
    failed = [e for e in edges if found[e] is None]
    assert 0 < len(failed) < len(edges)
    arrays = arrays_of(d, network)
    for edge in edges:
        (problem,) = d.objective.pair_problems(RING, arrays, [edge])
        problem._batch = batch
        (alone,) = d.objective.pair_problems(RING, arrays, [edge])
        assert problem.fit(None, 2).explained == pytest.approx(alone.fit(None, 2).explained, rel=1e-3)


def test_a_network_that_is_zero_adds_nothing(double):
    d = Data(RING.dims, 0, double, hold_out=0.0, ridge=1e-3)
    network = random_network(RING, 1, double)
    zero = TensorNetwork(RING, [0.0 * c for c in network.cores])
    batch, edges = batch_of(d, zero)
    for edge in edges:
        fit = batch.fit(edge, 2)
        assert fit is None or fit.explained == pytest.approx(0.0, abs=1e-12)


def test_the_same_slices_each_time():
    d = Data(RING.dims, 0, ridge=1e-3)
    network = random_network(RING, 1)
    (first, edges), (again, _) = batch_of(d, network), batch_of(d, network)
    for edge in edges:
        a, b = first.fit(edge, 2), again.fit(edge, 2)
        assert torch.equal(a.left, b.left) and torch.equal(a.right, b.right) and a.explained == b.explained


# -- what it is for ----------------------------------------------------------------------------------------


class Operations(TorchDispatchMode):
    """Counts operations that are more than a view, and looks of the host at a number."""

    VIEWS = ("view", "permute", "transpose", "expand", "slice", "select", "diagonal", "split", "detach", "t")

    def __init__(self) -> None:
        super().__init__()
        self.launches = self.looks = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.removeprefix("aten::").strip("_")
        if "local_scalar" in name:
            self.looks += 1
        elif name not in self.VIEWS and "unsqueeze" not in name and "unsafe_view" not in name:
            self.launches += 1
        return func(*args, **(kwargs or {}))


def test_a_batch_issues_fewer_operations_and_looks_once(monkeypatch):
    """Than the same fits one by one, unwatched as on a GPU; sums over the entries are the same ones."""
    dims = (6, 5, 4, 5, 6)
    structure = Structure.tensor_ring(dims, (2, 3, 2, 2, 3))
    d = Data(dims, 0, share=0.5, ridge=1e-3)
    network = perturbed(random_network(structure, 1), 0.1, 2)
    batch, edges = batch_of(d, network)
    single, _ = batch_of(d, network, keeps_layouts=False)
    problems = [EntryPairProblem(d.objective, single._tree, e, batch._residual) for e in edges]
    for table in (d.objective.index.table(k) for k in range(len(dims))):
        monkeypatch.setattr(table, "sums", table.sums_by_block)
        table.keep(batch._residual, d.objective.row_dtype)
    for run in (lambda: [p._fit(p._start(), 2, False) for p in problems], lambda: batch.fit(edges[0], 2)):
        run()  # what is made once for all fits
    batch._fits.clear()
    with Operations() as alone:
        for p in problems:
            p._fit(p._start(), 2, False)
    with Operations() as together:
        batch.fit(edges[0], 2)
    assert together.looks == 0 and alone.looks >= 2 * len(edges)
    assert together.launches < 0.75 * alone.launches


def test_memory_of_a_batch_is_bounded():
    wide = Structure.rank_one((10,) * 6).with_rank(0, 1, 30).with_rank(0, 2, 12).with_rank(0, 3, 4)
    edges = list(combinations(range(6), 2))
    most = (entry_batches.COPIES + 1) * entry_batches.STACK_BYTES
    assert 0 < batch_bytes(ONE, [(0, 1)], 0, 4) < batch_bytes(ONE, [(0, 1), (1, 2)], 10, 4) < 1e5
    assert batch_bytes(wide, edges, 10**9, 8) <= most
