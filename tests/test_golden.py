"""The golden record is complete; ``make golden`` compares with it, on the machine it was written on."""

from __future__ import annotations

import json
from pathlib import Path

from tests.golden.calls import CALLS
from tests.golden.refusals import REFUSALS

RECORD = json.loads((Path(__file__).parent / "golden" / "record.json").read_text(encoding="utf-8"))


def test_every_call_is_in_the_record():
    assert RECORD["calls"].keys() == CALLS.keys() | REFUSALS.keys()


def test_no_recorded_run_failed():
    assert not [name for name in CALLS if "raised" in RECORD["calls"][name]]
