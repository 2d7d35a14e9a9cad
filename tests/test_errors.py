"""One check per kind of argument, and warnings that point at the caller's line."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.errors import check_choice, check_kind, check_positive, check_whole, counted, needs, warn


def test_warnings_point_at_the_line_outside_the_package():
    x = np.full((3, 4), math.nan)
    x[0, :], x[:, 0] = 1.0, 2.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tg.complete(x, max_steps=0)
        tg.fit(x, tg.Structure.rank_one(x.shape))
        warn("of our own")
    assert len(caught) >= 3
    assert {Path(w.filename).name for w in caught} == {"test_errors.py"}
    assert all(issubclass(w.category, tg.DataWarning) for w in caught)


@pytest.mark.parametrize("value", [1, 7, np.int32(3), True + 1])
def test_whole_numbers(value):
    found = check_whole("n", value)
    assert found == value and type(found) is int


@pytest.mark.parametrize("value", [0, -1, 1.0, 2.5, "3", None, True, math.nan])
def test_what_is_no_whole_number(value):
    with pytest.raises(tg.OptionError, match=r"^n=.* must be a whole number of at least 1, or else$"):
        check_whole("n", value, more=", or else")
    with pytest.raises(tg.OptionError, match="at least 8"):
        check_whole("n", 7, 8)


def test_positive_numbers():
    assert check_positive("size", 2) == 2.0 and check_positive("size", np.float32(0.5)) == 0.5
    for value in (0, -1.0, math.nan, "1", None, True, 1j):
        with pytest.raises(tg.OptionError, match=r"^size=.* must be a positive number of bytes$"):
            check_positive("size", value, more=" of bytes")


def test_choices_and_kinds():
    check_choice("kind", "a", ("a", "b"))
    with pytest.raises(tg.OptionError, match="kind='c' is not known; choose one of 'a', 'b'"):
        check_choice("kind", "c", ("a", "b"))
    check_kind("options", tg.GreedyOptions(), tg.GreedyOptions)
    with pytest.raises(tg.OptionError, match="options must be GreedyOptions, not dict"):
        check_kind("options", {}, tg.GreedyOptions)
    with pytest.raises(tg.OptionError, match="init must be a TensorNetwork, not list"):
        check_kind("init", [], tg.TensorNetwork)


def test_one_is_not_a_plural():
    assert [counted(n, "step") for n in (0, 1, 2, 1200)] == ["0 steps", "1 step", "2 steps", "1,200 steps"]
    result = tg.fit(np.ones((2, 2)), tg.Structure.rank_one((2, 2)), random_state=0)
    assert "1 step," in repr(result)


def test_hints_work_in_a_clone_and_in_an_installed_copy(monkeypatch):
    assert (
        needs("a film needs Pillow", "plot") == 'a film needs Pillow: pip install -e ".[plot]" in the clone'
    )
    monkeypatch.setattr(Path, "is_file", lambda self: False)
    assert needs("a film needs Pillow", "plot") == 'a film needs Pillow: pip install "tensorgrow[plot]"'


def test_every_hint_is_made_in_one_place():
    source = Path(tg.__file__).parent
    with_hints = {p.name for p in source.rglob("*.py") if "pip install" in p.read_text(encoding="utf-8")}
    assert with_hints == {"errors.py"}
