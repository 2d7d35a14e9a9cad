"""Labels along an axis: text, numbers or dates that stand for positions."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import DataError

Labels = npt.NDArray[Any]
Positions = npt.NDArray[np.int64]

# Whole numbers from 0 on are positions where at least this share of those up to the largest occurs; ids that
# happen to start at 0 would make a tensor of mostly empty slices.
LEAST_USED = 0.1
# Kinds of NumPy's dtypes that labels may have: bools, whole numbers, floats, text, dates, durations.
KINDS = "bifUMm"
# What to do where an index column cannot be one because the frame is not a list of entries.
WIDE = "If the frame is a matrix, give frame.to_numpy(): result.fill(frame) then returns a frame"


def as_labels(values: Any, name: str) -> Labels:
    """Return labels of one kind, or raise `DataError`; `name` is that of the axis."""
    array = np.asarray(values)
    if array.dtype.kind == "O":
        array = _from_objects(array, name)
    if array.dtype.kind == "u":
        if array.size and int(array.max()) >= 2**63:
            raise DataError(f"labels of {name!r} go beyond 63 bits; give text, frame[{name!r}].astype(str)")
        array = array.astype(np.int64)
    if array.dtype.kind not in KINDS:
        raise DataError(
            f"the labels of {name!r} have dtype {array.dtype}; text, numbers or dates are needed, such as "
            f"frame[{name!r}].astype(str)"
        )
    return array


def _from_objects(array: Labels, name: str) -> Labels:
    kinds = {type(v) for v in array.flat}

    def all_are(*wanted: type) -> bool:
        return all(issubclass(k, wanted) for k in kinds)

    if all_are(str):
        return array.astype(str)
    if all_are(datetime.date, np.datetime64):  # those of a time zone are compared in UTC
        plain = [v.astimezone(datetime.UTC).replace(tzinfo=None) if _has_zone(v) else v for v in array]
        return np.array(plain, dtype="datetime64[us]")
    if all_are(bool, np.bool_):
        return array.astype(np.bool_)
    if all_are(int, np.integer) and not kinds & {bool}:
        return array.astype(np.int64)
    found = " and ".join(sorted(k.__name__ for k in kinds)[:3])
    raise DataError(
        f"the labels of {name!r} are of the kinds {found}; one is needed: text, numbers or dates, such as "
        f"frame[{name!r}].astype(str)"
    )


def _has_zone(moment: Any) -> bool:
    return getattr(moment, "tzinfo", None) is not None


def number_labels(
    values: Any, name: str, *, is_counted: bool | None = None, is_named: bool = False
) -> tuple[Positions, Labels | None]:
    """Turn a column into positions, and the labels they stand for.

    Whole numbers are positions where they are counted from 0: the smallest is 0, and at least a tenth of
    those up to the largest occurs. All other values are labels, numbered in sorted order; but negative
    numbers, which often stand for "missing", stay positions, that is, will be refused.

    Parameters
    ----------
    is_counted
        Whether whole numbers are positions, where that is known: the user says how large the tensor is, or
        there was data before. None: by the rule above.
    is_named
        The user named the column as an index: numbers with fractions or below 0 are labels.

    Returns
    -------
    positions, labels
        Labels are None where positions were given.
    """
    array = np.asarray(values)
    missing = find_missing(array)
    if missing.any():
        raise _missing_labels(missing, name)
    array = as_labels(array, name)
    if array.dtype.kind == "f":
        has_fraction = array != np.floor(array)
        if not has_fraction.any():
            array = array.astype(np.int64)
        elif not is_named:
            raise DataError(
                f"the index column {name!r} has numbers with fractions, such as {array[has_fraction][0]:g}. "
                "If they are coordinates, name the columns: Observations.from_frame(frame, index=[...]). "
                f"{WIDE}"
            )
    distinct, codes = np.unique(array, return_inverse=True)
    is_negative = array.dtype.kind == "i" and not is_named and bool((distinct[:1] < 0).any())
    counted = _is_counted(distinct) if is_counted is None and array.dtype.kind == "i" else is_counted
    if array.dtype.kind == "i" and (counted or (is_negative and is_counted is None)):
        return array.astype(np.int64), None
    return codes.reshape(-1).astype(np.int64), distinct


def merge_labels(name: str, parts: Sequence[Labels | None]) -> Labels | None:
    """Return the labels of a column of which each part has some; None where they are positions.

    Parts are what `distinct_labels` returns, without those of no rows.
    """
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    kinds = {part.dtype.kind for part in known}
    if len(kinds) > 1:
        raise DataError(f"the index column {name!r} holds different kinds of labels in different partitions")
    distinct = np.unique(np.concatenate(known))
    return None if kinds == {"i"} and _is_counted(distinct) else distinct


def distinct_labels(values: Labels, name: str) -> Labels | None:
    """Return the distinct labels of a column of a part, sorted; None where they can only be positions.

    These are numbers below 0, with fractions or missing, which are refused when the entries are read.
    """
    missing = find_missing(values)
    if values.dtype.kind in "iuf":
        is_odd = missing.any() or bool((values < 0).any()) or not bool((values == np.floor(values)).all())
        return None if is_odd else np.unique(values.astype(np.int64))
    if missing.any():
        raise _missing_labels(missing, name)
    return np.unique(as_labels(values, name))


def _missing_labels(missing: npt.NDArray[np.bool_], name: str) -> DataError:
    return DataError(
        f"{int(missing.sum())} of {len(missing)} rows have no value in the index column {name!r}; the first "
        f"is row {int(missing.argmax())}. Drop such rows: frame.dropna(subset=[{name!r}]). {WIDE}"
    )


def _is_counted(distinct: Labels) -> bool:
    """Whether sorted whole numbers are positions and not ids."""
    return len(distinct) > 0 and distinct[0] == 0 and len(distinct) >= LEAST_USED * (int(distinct[-1]) + 1)


def find_missing(array: Labels) -> npt.NDArray[np.bool_]:
    """Tell where a column of a frame has no value."""
    if array.dtype.kind == "O":  # None, NaN, NaT or pandas.NA
        return np.array(
            [not isinstance(v, str) and str(v) in ("None", "nan", "NaT", "<NA>") for v in array], dtype=bool
        )
    if array.dtype.kind == "f":
        return np.isnan(array)
    return np.isnat(array) if array.dtype.kind in "Mm" else np.zeros(len(array), dtype=bool)


def find_labels(name: str, known: Labels | None, wanted: Any) -> Positions:
    """Return the positions of labels along an axis.

    Parameters
    ----------
    name
        Of the axis, for messages.
    known
        Labels of the axis; None where positions are the labels.
    """
    given = np.asarray(wanted)
    if known is None:
        given = as_labels(given, name)
        whole = given.astype(np.int64) if given.dtype.kind in "if" else None
        if whole is None or not bool((whole == given).all()):
            raise DataError(f"the axis {name!r} has no labels: positions are needed, not {_listed(given)}")
        return whole
    if len(given) == 0:
        return np.empty(0, np.int64)
    place, found = look_up(known, as_labels(given, name))
    if not found.all():
        unknown = given[~found]
        raise DataError(
            f"{len(unknown)} of {len(given)} labels of {name!r} are not known, such as {_listed(unknown)}; "
            f"the {len(known)} known ones are {_listed(known)}. Only labels of the data can be predicted"
        )
    return place


def look_up(known: Labels, labels: Labels) -> tuple[Positions, npt.NDArray[np.bool_]]:
    """Return the positions of labels among those that are known, and whether they are; others are at 0."""
    comparable = in_kind(labels, known)
    if comparable is None or not len(known):
        return np.zeros(len(labels), np.int64), np.zeros(len(labels), bool)
    order = np.argsort(known, kind="stable")
    place = order[np.searchsorted(known, comparable, sorter=order).clip(max=len(known) - 1)]
    found = known[place] == comparable
    return np.where(found, place, 0), found


def in_kind(labels: Labels, known: Labels) -> Labels | None:
    """Return labels that can be compared with those that are known; None where they cannot."""
    kinds = known.dtype.kind, labels.dtype.kind
    if kinds[0] == kinds[1] or kinds in (("i", "f"), ("f", "i")):
        return labels
    try:
        return labels.astype(known.dtype) if kinds == ("M", "U") else None
    except ValueError:  # no date
        return None


def _listed(values: Labels) -> str:
    some = values[:4]
    texts = map(str, some) if values.dtype.kind in "Mm" else map(repr, some.tolist())
    return ", ".join(texts) + (", ..." if len(values) > len(some) else "")


def pack_labels(values: Labels) -> dict[str, Any]:
    """JSON-friendly form; `unpack_labels` is its inverse."""
    numbers = values.astype(np.int64) if values.dtype.kind in "Mm" else values
    dtype = "U" if values.dtype.kind == "U" else values.dtype.str
    return {"dtype": dtype, "shape": list(values.shape), "values": numbers.ravel().tolist()}


def unpack_labels(data: Mapping[str, Any]) -> Labels:
    """Rebuild labels; what is wrong raises ValueError, TypeError or KeyError."""
    dtype = np.dtype(data["dtype"])
    if dtype.kind not in KINDS:
        raise ValueError(f"labels of dtype {dtype}")
    array = np.array(data["values"], dtype=np.int64 if dtype.kind in "Mm" else dtype)
    return array.astype(dtype).reshape(data["shape"])
