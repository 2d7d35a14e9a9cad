from __future__ import annotations

import pytest

import tensorgrow as tg
from tensorgrow import StopReason as Stop
from tensorgrow.search import Limits


def test_limits():
    limits = Limits(max_error=0.1, max_parameters=50, max_steps=3, max_seconds=2.0)
    assert limits.stop_reason(2, 1.9) is None
    assert limits.stop_reason(3, 0.0) is Stop.MAX_STEPS
    assert limits.stop_reason(0, 2.0) is Stop.MAX_SECONDS
    assert Limits(max_error=0.1).stop_reason(10**9, 1e9) is None
    limits.check_size(50)
    with pytest.raises(tg.OptionError, match=r"max_parameters=50.*51"):
        limits.check_size(51)
    for zero in ({"max_error": 0}, {"max_steps": 0}, {"max_seconds": 0.0}):
        Limits(**zero)
    with pytest.raises(tg.OptionError, match="max_error, max_parameters, max_steps or max_seconds"):
        Limits()


@pytest.mark.parametrize(
    ("reason", "error", "settled"),
    [
        (Stop.MAX_SECONDS, 0.1, Stop.TARGET_REACHED),
        (Stop.MAX_PARAMETERS, 0.09, Stop.TARGET_REACHED),
        (Stop.MAX_PARAMETERS, 0.11, Stop.MAX_PARAMETERS),
        (Stop.TARGET_REACHED, 0.1000001, Stop.NO_PROGRESS),
        (Stop.INTERRUPTED, 0.0, Stop.INTERRUPTED),
        (Stop.CALLBACK, 0.0, Stop.CALLBACK),
    ],
)
def test_the_recomputed_error_decides_whether_the_target_was_reached(reason, error, settled):
    assert Limits(max_error=0.1, max_parameters=50).settle(reason, error) is settled
    assert Limits(max_parameters=50).settle(reason, error) is reason
