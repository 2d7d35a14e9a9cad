"""Programs that are made from those of usual ranks: the same numbers and the same bills."""

from __future__ import annotations

import pytest
from hypothesis import given

from tensorgrow.contraction import dense_plan, gram_plan, pair_plan, sweep_plan, usual
from tensorgrow.contraction.program import Legs
from tensorgrow.structure import Structure
from tests.contraction.cases import sweep_with_random_updates
from tests.oracles import as_arrays, assert_close, dense, random_network
from tests.strategies import seeds, structures

RING = Structure.tensor_ring((5, 4, 6, 3), (2, 3, 4, 2))


@given(structures(), seeds)
def test_sweeps_and_tensors_are_right(use_numpy, double, structure, seed):
    sweep_with_random_updates(structure, sweep_plan, use_numpy, double, seed)
    net = random_network(structure, seed, double)
    result = dense_plan(structure, net.is_complex).run(as_arrays(net, use_numpy))
    assert_close(result, dense(structure, net.cores), 1e-11)


@given(structures(min_nodes=3))
def test_the_sizes_that_it_had_give_the_same_program(structure):
    for plan in (
        sweep_plan(structure, False),
        dense_plan(structure, True),
        pair_plan(structure, ((0, 1),), False),
    ):
        program = plan.program
        again = program.resized(Legs(structure).sizes)
        assert again.instructions == program.instructions
        assert (again.flops, again.copies) == (program.flops, program.copies)
        assert again.peak_entries == program.peak_entries


def test_which_ranks_came_first_does_not_matter():
    usual_ring = usual.usual_ranks(RING, 100)
    assert usual_ring == Structure.tensor_ring(RING.dims, 2)
    wanted = usual.resized_for(RING, sweep_plan(usual_ring, False).program)
    assert wanted is not None
    assert sweep_plan(RING, False).program.instructions == wanted.instructions


@pytest.mark.parametrize(
    "structure",
    [
        Structure((3, 4)),
        Structure.tensor_ring((5, 4, 6, 3), 2),
        Structure.tensor_ring((40, 40, 40), 3),
        Structure.tucker((12, 12, 12), 6),
    ],
    ids=["no edge", "usual ranks", "large", "wide Gram matrices"],
)
def test_others_have_programs_of_their_own(structure):
    assert usual.usual_ranks(structure, 100) is None


def test_programs_that_became_costly_are_made_anew(monkeypatch):
    monkeypatch.setattr(usual, "FEW_FLOPS", 1e5)
    costly = Structure.complete((4, 4, 4, 4), 6)
    plain = gram_plan(Structure.complete((4, 4, 4, 4), 2), 0, False).program
    assert usual.resized_for(costly, plain) is None
