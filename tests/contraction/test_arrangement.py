"""Orders of intermediate results: the same numbers, fewer copies."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from tensorgrow.contraction import arrangement, clear_plans, dense_plan, program, sweep_plan
from tensorgrow.contraction.arrangement import arrange_product, arrange_square, keep_result
from tensorgrow.contraction.program import SLABS
from tensorgrow.structure import Structure
from tests.contraction.cases import LARGE, MIXED, sweep_with_random_updates
from tests.oracles import as_arrays, assert_close, dense, random_network
from tests.strategies import seeds, structures

# Cuts so wide that results are written for those who read them, and small enough for an oracle.
WIDE = Structure((2,) * 7, {(i, j): 2 for i in range(7) for j in range(i + 1, 7) if (i + j) % 3})


@pytest.fixture
def eager(monkeypatch):
    """Look for orders in every program, and multiply slabs however small."""
    monkeypatch.setattr(program, "MANY_COPIES", 0.0)
    monkeypatch.setattr(arrangement, "LEAST_BATCH", 1)
    clear_plans()
    yield
    clear_plans()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(structures(), seeds)
def test_sweeps_are_right_in_any_order(eager, use_numpy, double, structure, seed):
    sweep_with_random_updates(structure, sweep_plan, use_numpy, double, seed)


@pytest.mark.parametrize("structure", [MIXED, WIDE, LARGE["scattered"]], ids=["mixed", "wide", "scattered"])
def test_wide_networks_are_right_in_any_order(eager, use_numpy, double, structure):
    sweep_with_random_updates(structure, sweep_plan, use_numpy, double)
    net = random_network(structure, 1, double)
    for in_order in (False, True):
        result = dense_plan(structure, net.is_complex, in_order).run(as_arrays(net, use_numpy))
        assert_close(result, dense(structure, net.cores), 1e-11)


def test_orders_spare_copies_and_change_nothing_else(monkeypatch):
    ranks = {(0, 1): 9, (0, 4): 5, (1, 2): 11, (1, 7): 7, (2, 3): 4, (2, 6): 6, (3, 5): 3, (3, 6): 2}
    wide = Structure((4,) * 8, ranks | {(3, 7): 3, (4, 5): 10, (5, 6): 12, (6, 7): 5})  # of a photograph
    clear_plans()
    chosen = sweep_plan(wide, False).program
    monkeypatch.setattr(program, "MANY_COPIES", np.inf)
    clear_plans()
    plain = sweep_plan(wide, False).program
    clear_plans()
    assert chosen.flops == plain.flops and len(chosen.instructions) == len(plain.instructions)
    assert chosen.copies < 0.7 * plain.copies
    assert any(i[0] == SLABS for i in chosen.instructions)


def test_a_result_is_written_for_its_reader():
    sizes = [20] * 8
    # The first operand leaves 0 and 1, the second 2 and 3; the reader sums over 1 and 2.
    how = arrange_product((1, 0, 7), (7, 3, 2), [frozenset({1, 2})], sizes)
    assert set(how.result[1:3]) == {1, 2}
    square = arrange_square((0, 1, 7), (4, 5, 7), [frozenset({1, 5})], sizes)
    assert square.right == tuple({0: 4, 1: 5}[x] for x in square.left)


def test_a_run_in_the_middle_is_multiplied_slab_by_slab():
    how = arrange_product((0, 1), (2, 1, 3), [], [3, 50, 4, 90])
    assert (how.batch, how.left, how.shared, how.right) == ((2,), (0,), (1,), (3,))


def test_a_result_that_lasts_keeps_its_order():
    how = keep_result((0, 7), (7, 1, 2), (2, 1, 0))
    assert (how.left, how.right, how.swaps) == ((2, 1), (0,), True)


def test_orders_do_not_depend_on_the_precision(eager):
    for dtype in (torch.float32, torch.complex64):
        sweep_with_random_updates(WIDE, sweep_plan, True, dtype)


def test_legs_of_size_one_copy_nothing():
    sizes = [40, 40, 40, 1, 5]
    how = arrange_product((2, 4), (0, 1, 2, 3), [], sizes)  # as if the last leg were not there
    assert how.shared == (2,) and set(how.result) == {0, 1, 3, 4}
    plain = arrange_product((2, 4), (0, 1, 2), [], sizes)
    assert how._replace(left=tuple(x for x in how.left if x != 3), right=plain.right) == plain
    square = arrange_square((0, 3, 1), (2, 3, 1), [], [4, 7, 4, 1])
    assert square.shared == (1, 3) and square.left == (0,) and square.right == (2,)
