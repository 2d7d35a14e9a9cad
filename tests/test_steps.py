from __future__ import annotations

import pytest

from tensorgrow import Step, Structure
from tensorgrow import StopReason as Stop


def test_every_reason_says_what_to_try():
    assert {s.name for s in Stop} >= {
        "TARGET_REACHED",
        "MAX_PARAMETERS",
        "MAX_STEPS",
        "MAX_SECONDS",
        "NO_PROGRESS",
        "SATURATED",
        "MEMORY_LIMIT",
        "CONVERGED",
        "INTERRUPTED",
        "CALLBACK",
    }
    texts = [s.text for s in Stop]
    assert all(len(t) > 20 and t.endswith(".") for t in texts)
    assert len(set(texts)) == len(texts) == len(list(Stop))
    assert "budget" in Stop.MAX_PARAMETERS.text
    assert "steps" in Stop.MAX_STEPS.text
    assert "time" in Stop.MAX_SECONDS.text
    assert "memory" in Stop.MEMORY_LIMIT.text


@pytest.mark.parametrize(("relative", "held_out"), [(0.25, None), (None, 0.125), (None, None)])
def test_records_say_what_a_run_goes_by(relative, held_out):
    structure = Structure.rank_one((3, 4))
    step = Step(1, "grow", (0, 1), 7, 2.0, relative, held_out, 1.5, structure)
    error = 2.0 if relative is None else relative
    assert step.error == error
    assert step.measure == (error if held_out is None else held_out)
    name = "loss" if relative is None else "relative_error"
    expected = {name: error, "validation_error": held_out, "num_parameters": 7, "seconds": 1.5}
    expected["compression_ratio"] = 12 / 7
    assert step.metrics() == {k: v for k, v in expected.items() if v is not None}


@pytest.mark.parametrize("reason", Stop, ids=lambda r: r.name)
def test_stop_texts_are_plain_words(reason):
    """They are shown on the command line too, where `max_error` is called --max-error."""
    assert reason.text.endswith(".") and not set(reason.text) & set("_='`")
