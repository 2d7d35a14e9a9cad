from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensorgrow.contraction import (
    dense_plan,
    gram_plan,
    inner_plan,
    pair_plan,
    sweep_plan,
)
from tensorgrow.contraction.execution import MATMUL, SELF
from tensorgrow.contraction.program import Program
from tensorgrow.structure import Structure
from tests.oracles import (
    random_network,
)
from tests.strategies import structures


def test_an_input_laid_out_saves_its_copy_and_changes_nothing(use_numpy):
    def build():
        program = Program([2, 3, 4, 5], is_complex=False)
        a, b = program.input((1, 3)), program.input((0, 1, 2, 3))
        result = program.matmul(a, b)
        return program, (a, b), result, program.finish([result])

    rng = np.random.default_rng(0)
    values = [rng.standard_normal(shape) for shape in ((3, 5), (2, 3, 4, 5))]
    expected = np.einsum("bd,abcd->ac", *values)
    plain, inputs, result, _ = build()
    arrays = values if use_numpy else [torch.from_numpy(v) for v in values]
    wanted = plain.value(plain.run(dict(zip(inputs, arrays))), result)
    program, inputs, result, _ = build()
    layouts = program.lay_out(inputs[1])
    ((register, how),) = layouts.items()
    np.testing.assert_array_equal(how.of(arrays[1]), values[1].transpose(how.order).reshape(how.shape))
    assert program.lay_out(inputs[1]) == {} and program.lay_out(inputs[0]) == {}  # no copy is left to save
    # The input itself is not read any more.
    found = program.value(program.run({inputs[0]: arrays[0], register: how.of(arrays[1])}), result)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(("is_complex", "factor"), [(False, 2), (True, 8)])
def test_flops_of_a_matrix_by_hand(is_complex, factor):
    structure = Structure((3, 5), {(0, 1): 2})
    program = dense_plan(structure, is_complex).program
    assert program.flops == factor * 3 * 2 * 5
    assert program.peak_entries == 15
    # Each node: the target by the other core, and the other core by itself, of which real numbers need half.
    sweep = sweep_plan(structure, is_complex).program
    half = factor if is_complex else factor // 2
    assert sweep.flops == factor * (3 * 5 * 2 + 5 * 3 * 2) + half * (2 * 2 * 5 + 2 * 2 * 3)


def test_flops_of_a_chain_by_hand(path_finder):
    structure = Structure((2, 3, 4), {(0, 1): 2, (1, 2): 3})
    # (0 1) 2: 2*2*9 + 6*3*4; 0 (1 2): 6*3*4 + 2*2*12: the first is 108, the second 120 multiplications.
    assert dense_plan(structure, False).program.flops in (2 * 108, 2 * 120)
    assert gram_plan(structure, 2, False).program.flops > 0


@given(structures(min_nodes=2))
def test_every_plan_has_a_positive_bill(structure):
    largest = max(math.prod(s) for s in structure.core_shapes)
    programs = [
        dense_plan(structure, False).program,
        sweep_plan(structure, False).program,
        gram_plan(structure, 0, False).program,
        inner_plan(structure, structure, False).program,
        pair_plan(structure, ((0, 1),), False).program,
    ]
    if structure.num_nodes == 2:
        programs.pop()  # the pair is all there is
    for program in programs:
        assert program.flops > 0
        assert program.peak_entries > 0
        assert program.cost > program.flops
    assert programs[0].peak_entries >= structure.num_entries
    assert programs[1].flops >= 2 * largest
    assert dense_plan(structure, True).program.flops == 4 * programs[0].flops


@given(structures(min_nodes=2), st.booleans())
def test_intermediates_are_freed_and_results_kept(structure, is_complex):
    net = random_network(structure, 0, torch.complex128 if is_complex else torch.float64)
    plan = dense_plan(structure, is_complex)
    slots = plan.program.run(dict(zip(plan.inputs, net.cores)))
    kept = {plan.program.slot[r] for r in (*plan.inputs, plan.result)}
    assert {n for n, x in enumerate(slots) if x is not None} == kept


@given(structures(min_nodes=2))
def test_peak_covers_what_is_alive_during_a_run(structure):
    plan = sweep_plan(structure, False)
    program = plan.program
    inputs = {program.slot[r] for r in (*plan.cores, plan.data)}
    alive, peak = {}, 0
    for instruction in program.instructions:
        if instruction[0] == MATMUL:
            alive[instruction[1]] = math.prod(instruction[8])
        elif instruction[0] == SELF:
            alive[instruction[1]] = math.prod(instruction[5])
        peak = max(peak, sum(alive.values()))
        for slot in instruction[-1]:
            alive.pop(slot, None)
        assert not inputs & set(instruction[-1])
    assert program.peak_entries >= peak
    assert not alive


def test_a_sweep_over_long_modes_does_not_copy_the_target(path_finder):
    structure = Structure.tucker((40,) * 4, 5)
    assert sweep_plan(structure, False).program.copies < structure.num_entries


@pytest.mark.parametrize("turn", range(4))
def test_a_large_operand_is_contracted_alike_in_every_order_of_the_operands(turn, monkeypatch, path_finder):
    monkeypatch.setattr("tensorgrow.contraction.program.MANY_COPIES", 1.0)
    sizes = [3, 4, 5, 2, 2, 2]
    operands = [(0, 1, 2), (0, 3), (1, 4), (2, 5)]
    operands = operands[turn:] + operands[:turn]
    arrays = [torch.randn([sizes[x] for x in legs], dtype=torch.double) for legs in operands]
    program = Program(sizes, is_complex=False)
    inputs = [program.input(legs) for legs in operands]
    result = program.arrange(program.contract(inputs, (3, 4, 5)), (3, 4, 5))
    program.finish([result])
    found = program.value(program.run(dict(zip(inputs, arrays))), result)
    wanted = torch.einsum(*(x for pair in zip(arrays, map(list, operands)) for x in pair), [3, 4, 5])
    torch.testing.assert_close(found, wanted)
