"""Internal nodes, found from some of the entries."""

from __future__ import annotations

import pytest

import tensorgrow as tg
from tensorgrow import GreedyOptions, Structure
from tests.tasks.completions import StopAfter, assert_same, error_at, noisy, planted, some

# A hierarchical Tucker tensor: its root can be absorbed, and then one internal node is left.
TREE = Structure.hierarchical_tucker((6,) * 4, 2)
SMALLEST = TREE.num_parameters - 4
ONE_START = GreedyOptions.for_completion("balanced").replace(starts=1)


@pytest.fixture(scope="module")
def entries():
    return planted(TREE), some(TREE.dims, 0.6)


def test_noise_does_not_hide_an_internal_node():
    """Without splits the graph has parameters to spare, and these fit noise."""
    tucker, found = Structure.tucker((6,) * 4, 2), []
    x, mask = planted(tucker), some(tucker.dims, 0.6, seed=1)
    for split in (None, False):
        result = tg.complete(noisy(tucker, 0.01), mask, random_state=0, options=ONE_START, split_nodes=split)
        found.append((result.num_parameters, error_at(result, x, ~mask)))
        assert len(result.structure.internal_nodes) == (split is None)
    (size, error), (other_size, other_error) = found
    assert size == tucker.num_parameters < other_size
    assert error < 0.9 * other_error


def test_within_a_budget_a_split_makes_room(entries):
    """The budget is too small for any network without an internal node: a train has 72 parameters."""
    result = tg.complete(*entries, max_parameters=TREE.num_parameters, random_state=0, options=ONE_START)
    assert result.num_parameters == SMALLEST
    assert result.validation_error < 1e-6
    kinds = [s.kind for s in result.history]
    assert "grow" in kinds[kinds.index("split") :]  # the room was used
    assert all(s.num_parameters <= TREE.num_parameters for s in result.history)
    never = tg.complete(
        *entries, max_parameters=TREE.num_parameters, random_state=0, options=ONE_START, split_nodes=False
    )
    assert never.validation_error > 0.05
    assert not any(s.structure.internal_nodes for s in never.history)


def test_a_run_is_resumed_after_a_split(entries, tmp_path):
    keywords = {"max_parameters": TREE.num_parameters, "random_state": 0, "options": ONE_START}
    whole = tg.complete(*entries, **keywords)
    after = 1 + [s.kind for s in whole.history].index("split")
    file = tmp_path / "run.safetensors"
    part = tg.complete(*entries, **keywords, checkpoint=file, callbacks=StopAfter(after))
    assert part.stop is tg.StopReason.CALLBACK
    assert_same(tg.complete(*entries, **keywords, checkpoint=file), whole)


@pytest.mark.parametrize(
    "options",
    [ONE_START.replace(split_while_growing=True), GreedyOptions.paper("completion").replace(ridge=1e-10)],
    ids=["judged by held-out entries", "the paper's rule"],
)
def test_nodes_are_split_while_growing(entries, options):
    (x, mask), by_rule = entries, options.split_below > 0
    result = tg.complete(
        x,
        mask,
        validation=False if by_rule else 0.1,
        max_error=1e-6,
        random_state=0,
        options=options,
    )
    assert result.structure.internal_nodes
    assert result.num_parameters == SMALLEST or by_rule  # the rule asks nothing but singular values
    assert error_at(result, x, ~mask) < 1e-5
    grown = [s for s in result.history if s.kind == "grow" and s.structure.internal_nodes]
    assert grown  # a step that grows may split as well
