"""Members of committees: what they predict, and whether they held out the same entries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tensorgrow.losses import as_loss
from tensorgrow.search import GreedyOptions, HeldOutSearch
from tensorgrow.tasks.committee import run_member
from tensorgrow.tasks.entry_task import EntryTask
from tensorgrow.tasks.member import hold_out_the_same
from tensorgrow.tasks.observation_task import Observed
from tensorgrow.tasks.request import Request

SCALE = 2.0**40  # far from one: the task has units of its own


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = SCALE * (1.0 + rng.random((5, 1, 1)) * rng.random((1, 6, 1)) + 0.1 * rng.random((5, 6, 4)))
    return x, rng.random(x.shape) < 0.7


@pytest.fixture(scope="module")
def members(data):
    request = Request.parse(
        "complete", HeldOutSearch, GreedyOptions.for_completion, limited=False, random_state=0, max_steps=2
    )
    task = EntryTask(Observed(*data, as_loss("squared"), None, 0.2, None), request)
    return [run_member(t, request.audience) for t in (task, task.holding_out_others(1))]


def test_entries_are_those_of_the_result_in_the_units_computed_in(data, members):
    member, hidden = members[0], np.argwhere(~data[1])
    unit = 2.0**member.task.exponent
    assert unit > 1.0
    assert np.allclose(unit * member.entries(torch.from_numpy(hidden)).numpy(), member.result.predict(hidden))
    assert torch.equal(member.entries(), member.entries(member.task.indices))


def test_what_was_judged_did_not_know_what_was_held_out(members):
    for member in members:
        errors = member.task.errors_at(member.judged, member.entries())
        assert errors.validation == pytest.approx(member.result.validation_error, rel=1e-6)
        assert errors.total == pytest.approx(member.result.relative_error, rel=1e-6)


def test_held_out_entries_are_compared(members):
    one, other = members
    assert not hold_out_the_same(members)
    copied = replace(one, task=other.task.in_shape(None))
    copied.task.held_out = one.task.held_out.clone()
    assert hold_out_the_same([one, copied])
    copied.task.held_out = None
    assert not hold_out_the_same([one, copied]) and hold_out_the_same([copied, copied])
