"""Labels of an axis against dictionaries: what is a label and what a position, and how they are found."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorgrow as tg
from tensorgrow.data.labels import as_labels, find_labels, number_labels, pack_labels, unpack_labels

DAYS = np.array(["2024-01-03", "2024-01-01"], dtype="datetime64[D]")
NOON = datetime.datetime(2024, 1, 3, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        ([0, 2, 1, 0], None),
        ([7, 0, 3], None),
        ([0.0, 2.0, 1.0], None),  # whole numbers that a gap elsewhere made floats
        ([100_000, 100_049, 100_000], [100_000, 100_049]),
        ([1, 2, 3, 2], [1, 2, 3]),  # ids that count from 1: no empty slice for 0
        ([0, 5, 1000], [0, 5, 1000]),
        ([-1, 0, 1], None),  # often a code for "missing"; refused as a position
        (["b", "a", "b"], ["a", "b"]),
        ([True, False, True], [False, True]),
        (DAYS, sorted(DAYS)),
        (np.array([7, 3], dtype=np.uint8), [3, 7]),
    ],
)
def test_what_is_a_label_and_what_a_position(column, labels):
    positions, found = number_labels(np.asarray(column), "a")
    if labels is None:
        assert found is None and positions.tolist() == [int(v) for v in column]
        return
    assert list(found) == list(labels)
    assert [found[k] for k in positions] == list(column)


def test_the_shape_makes_whole_numbers_positions_and_a_name_makes_fractions_labels():
    assert number_labels(np.array([3, 900]), "a", is_counted=True)[1] is None
    assert list(number_labels(np.array([0.5, 0.25]), "a", is_named=True)[1]) == [0.25, 0.5]
    assert list(number_labels(np.array([3, -3]), "a", is_named=True)[1]) == [-3, 3]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1.0, np.nan, 3.0], "1 of 3 rows have no value in the index column 'a'; the first is row 1"),
        (np.array(["x", None], dtype=object), "1 of 2 rows have no value"),
        (np.array(["NaT", "2024-01-01"], dtype="datetime64[D]"), "1 of 2 rows have no value"),
        ([0.5, 1.0], "'a' has numbers with fractions, such as 0.5.*from_frame.*to_numpy"),
        (np.array(["x", 1], dtype=object), "of the kinds int and str"),
        (np.array([1j, 2j]), "dtype complex128"),
        (np.array([2**63, 1], dtype=np.uint64), "beyond 63 bits"),
    ],
)
def test_columns_that_cannot_be_an_index(column, message):
    with pytest.raises(tg.DataError, match=message):
        number_labels(np.asarray(column), "a")


@given(st.lists(st.one_of(st.integers(-(2**40), 2**40)), min_size=1, unique=True), st.data())
def test_labels_are_found_where_they_are(known, data):
    wanted = data.draw(st.lists(st.sampled_from(known), max_size=5))
    found = find_labels("a", np.array(known), wanted)
    assert [known[k] for k in found] == wanted


@pytest.mark.parametrize(
    ("known", "wanted", "place"),
    [
        (["b", "a"], ["a"], 1),
        (["b", "a"], np.array(["b"], dtype=object), 0),
        ([2.5, 1.0], [1], 1),
        ([20, 10], [10.0], 1),
        (DAYS, ["2024-01-01"], 1),
        (DAYS, [datetime.date(2024, 1, 3)], 0),
        (np.array(["2024-01-03T10:00"], dtype="datetime64[s]"), np.array([NOON], dtype=object), 0),
        (None, [3], 3),
    ],
)
def test_labels_of_another_kind_that_mean_the_same(known, wanted, place):
    assert find_labels("a", None if known is None else np.asarray(known), wanted).tolist() == [place]


@pytest.mark.parametrize(
    ("known", "wanted", "message"),
    [
        (
            list("abcdef"),
            ["a", "z"],
            r"1 of 2 labels of 'u' are not known, such as 'z'; the 6 known .*'a', 'b'",
        ),
        ([10, 20], ["10"], "1 of 1 labels of 'u' are not known, such as '10'"),
        ([10, 20], [15], "not known, such as 15"),
        (DAYS, ["noon"], "not known, such as 'noon'.*2024-01-03"),
        (None, ["a"], "'u' has no labels: positions are needed, not 'a'"),
        (None, [0.5], "positions are needed, not 0.5"),
    ],
)
def test_unknown_labels(known, wanted, message):
    with pytest.raises(tg.DataError, match=message):
        find_labels("u", None if known is None else np.asarray(known), wanted)


@pytest.mark.parametrize(
    "labels",
    [["a", "ß"], [1, 2], [0.1, 0.2], DAYS, [True], np.array([5], dtype="timedelta64[h]"), [[1], [2]]],
)
def test_labels_survive_json(labels):
    before = as_labels(labels, "a")
    after = unpack_labels(json.loads(json.dumps(pack_labels(before))))
    assert after.dtype == before.dtype and np.array_equal(after, before)


@pytest.mark.parametrize("dtype", ["O", "c16", "nonsense"])
def test_labels_of_other_kinds_are_not_read(dtype):
    with pytest.raises((ValueError, TypeError)):
        unpack_labels({"dtype": dtype, "shape": [1], "values": [1]})
