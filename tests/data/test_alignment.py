"""Slices of new data among those of before."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tensorgrow.data.alignment import Before, draw_kept, relabel
from tensorgrow.data.axes import Axes, Coordinate
from tensorgrow.errors import DataError, OptionError

DAYS = np.array(["2024-03-01", "2024-03-02", "2024-03-03"], dtype="datetime64[D]")
AXES = Axes(("place", "day"), {"day": Coordinate(("day",), DAYS, {"zone": "UTC"})})
LATER = Axes(("place", "day"), {"day": Coordinate(("day",), DAYS + 2)})


def days(before: Before, axes: Axes | None, size: int, **how: bool) -> list[list[int]]:
    options = {"listed": False, "keep": False, **how}
    match = before.match((2, size), axes, **options)[1]
    return [match.old.tolist(), match.given.tolist()]


def test_labels_say_which_slices_are_which():
    before = Before((2, 3), AXES)
    assert days(before, LATER, 3) == [[2, -1, -1], [0, 1, 2]]
    assert days(before, LATER, 3, keep=True) == [[0, 1, 2, -1, -1], [2, 3, 4]]
    assert days(before.without({"day": 1}), LATER, 3, keep=True) == [[1, 2, -1, -1], [1, 2, 3]]
    assert days(before, AXES, 3) == [[0, 1, 2], [0, 1, 2]]
    kept = relabel(AXES, before.match((2, 3), LATER, listed=True, keep=True))
    assert (kept.labels[1] == DAYS[0] + np.arange(5)).all() and kept.coordinates["day"].attrs == {
        "zone": "UTC"
    }


def test_positions_grow_at_the_end():
    before = Before((2, 3))
    assert days(before, None, 5)[0] == [0, 1, 2, -1, -1]
    assert days(before.without({1: 2}), None, 2)[0] == [2, -1]
    assert days(before, None, 1, listed=True)[0] == [0, 1, 2]
    assert before.without({0: 1, 1: 1}).share == pytest.approx(1 / 3)


def test_what_does_not_fit():
    before = Before((2, 3), AXES)
    for shape, axes, text in (
        ((2, 3, 1), None, "number of axes"),
        ((2, 2), None, "forget={1: 1}"),
        ((2, 4), None, "no labels for them"),
        ((2, 3), LATER.renamed(("place", "date")), "must be the same"),
        ((2, 3), Axes.of_columns({"place": None, "day": np.array(["mon", "tue", "wed"])}), "of one kind"),
    ):
        with pytest.raises(DataError, match=text):
            before.match(shape, axes, listed=False, keep=False)
    with pytest.raises(DataError, match="positions are needed"):
        Before((2, 3)).match((2, 3), LATER, listed=True, keep=False)
    for forget, text in (({"hour": 1}, "known are 0 to 1, 'place', 'day'"), ({1: 3}, "leaves none")):
        with pytest.raises(OptionError, match=text):
            before.without(forget)


@pytest.mark.parametrize("size", [3, 10_000_000])
def test_positions_are_drawn_among_old_slices(size):
    before = Before((2, size))
    matches = before.without({1: 1}).match((2, size + 1), None, listed=False, keep=True)
    drawn = draw_kept(matches, 3, torch.Generator().manual_seed(0))
    assert drawn.shape == (3, 2) and len({tuple(p) for p in drawn.tolist()}) == 3
    assert int(drawn[:, 1].max()) < size - 1
