"""What is done once the error target is met is bounded, by arithmetic and not by time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import GreedyOptions
from tensorgrow.callbacks.progress import LogLines
from tensorgrow.search import greedy

GRID = np.indices((7, 7, 7, 7)).sum(0) / 6.0
FIELD = 1.0 / (1.0 + GRID) + np.exp(-((GRID - 1.0) ** 2)) * np.indices((7, 7, 7, 7))[0]


def run(after: float | None, **more) -> tg.Result:
    return tg.decompose(
        FIELD, max_error=1e-3, random_state=0, options=GreedyOptions(after_target=after), **more
    )


@pytest.fixture
def impatient(monkeypatch):
    """Let the bound hold for runs of no time, too."""
    monkeypatch.setattr(greedy, "NOT_LONG", 0.0)


def test_small_runs_are_as_they_were():
    free, bounded = run(None), run(2.0)
    assert [s.structure for s in free.history] == [s.structure for s in bounded.history]
    assert all(map(torch.equal, free.network.cores, bounded.network.cores))


def test_a_bound_ends_the_search_early_and_keeps_the_target(impatient):
    free, none, some = run(None), run(0.0), run(1.0)
    assert len(none.history) < len(some.history) <= len(free.history)
    for result in (none, some):
        assert result.stop is tg.StopReason.TARGET_REACHED
        assert result.relative_error <= 1e-3
    assert free.num_parameters <= some.num_parameters <= none.num_parameters
    same = run(1.0)
    assert [s.structure for s in same.history] == [s.structure for s in some.history]


def test_a_resumed_run_is_bounded_by_all_it_did(impatient, tmp_path):
    whole = run(1.0)
    file = tmp_path / "state.safetensors"
    for steps in range(2, len(whole.history) + 2, 3):
        result = run(1.0, checkpoint=file, max_steps=steps)
    result = run(1.0, checkpoint=file)
    assert [s.structure for s in result.history] == [s.structure for s in whole.history]


def test_efforts_differ():
    bounds = [GreedyOptions.for_effort(e).after_target for e in ("fast", "balanced", "thorough")]
    assert bounds == [1.0, 4.0, None]


def test_lines_say_that_the_target_is_met(impatient):
    lines: list[str] = []
    tg.decompose(FIELD, max_error=1e-3, random_state=0, callbacks=LogLines(lines.append, every=0.0))
    assert "target met, making it smaller; Ctrl-C keeps it" in lines[-1]
    assert not any("target met" in line for line in lines[:3])
    few: list[str] = []
    tg.decompose(FIELD, max_error=1e-3, random_state=0, callbacks=LogLines(few.append, every=60.0))
    assert few == []
