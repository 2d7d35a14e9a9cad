"""Part `update`: a day more of the traffic data, by `Result.update` and by a run from scratch.

For every number of days: a run on all days before the last, then the last day too, three times: from scratch,
by an update with all entries, and by an update with the entries of that day alone. Of the known entries 40 %
are removed; errors are on these. A day of which nothing is known says nothing and is left out.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

import tensorgrow as tg
from tensorgrow.experiments.harness import Case, Results, Row, median, stopwatch

from ..benchmark import BenchmarkSettings
from .quality import relative_error
from .runs import claim, time_complete
from .traffic import DAY_AXIS, choose, load

__all__ = ["cases", "claims", "run", "table"]

# The last days but one, and days of the third week of the larger data: from scratch takes minutes there.
DAYS = {"parking": range(68, 73), "taxi": range(15, 17)}
REMOVED = 0.4
FASTER, WORSE = 10.0, 1.02


def cases(settings: BenchmarkSettings) -> list[Case]:
    """One for each new day."""
    device, days = settings["device"], {"parking": range(20, 21)} if settings.quick else DAYS
    return [
        Case(
            f"update/{device}/{name}/day{count:02}",
            {"source": name, "days": count, "seed": 0, "device": device},
        )
        for name, counts in days.items()
        for count in counts
    ]


@functools.lru_cache(maxsize=2)
def _data(data: Path, source: str, days: int, seed: int) -> tuple[np.ndarray, ...]:
    """The first days: all counts, which of them are seen, and which are removed."""
    y, known = load(data, source)
    axis, removed = DAY_AXIS[source], choose(known, "random", REMOVED, seed)
    has_data = known.any(tuple(k for k in range(known.ndim) if k != axis))
    keep = (slice(None),) * axis + (np.flatnonzero(has_data)[:days],)
    return y[keep], (known & ~removed)[keep], removed[keep]


@functools.lru_cache(maxsize=2)
def _from_scratch(data: Path, source: str, days: int, seed: int, device: str) -> tuple[tg.Result, Row]:
    y, seen, _ = _data(data, source, days, seed)
    return time_complete(np.where(seen, y, 0.0), seen, device=device, random_state=seed)


def run(params: Row, settings: BenchmarkSettings) -> Row:
    """One new day."""
    source, days, seed, device = (params[k] for k in ("source", "days", "seed", "device"))
    folder, axis = settings.folder("traffic").parent, DAY_AXIS[source]
    y, seen, removed = _data(folder, source, days, seed)
    old, _ = _from_scratch(folder, source, days - 1, seed, device)
    fresh, times = _from_scratch(folder, source, days, seed, device)
    last = np.zeros(y.shape, bool)
    last[(slice(None),) * axis + (slice(-1, None),)] = True
    row: Row = {k: times[k] for k in ("seconds", "cpu_seconds")}
    row |= _errors("fresh", fresh, y, removed, removed & last)
    for name, known in (("update", seen), ("only_new", seen & last)):
        x = np.where(known, y, 0.0)
        with stopwatch() as watch:
            updated = old.update(x, known, random_state=seed, device=device, progress=False)
        row |= {f"{name}_seconds": watch.wall, f"{name}_cpu_seconds": watch.cpu}
        row |= _errors(name, updated, y, removed, removed & last)
    row["faster"] = row["seconds"] / row["update_seconds"]
    return {**row, "worse": row["update_error"] / row["fresh_error"], "observed": int(seen.sum())}


def _errors(name: str, result: tg.Result, y: Any, removed: Any, today: Any) -> Row:
    """Errors on everything that was removed, and on the last day."""
    found = np.asarray(result.to_array())
    return {
        f"{name}_error": relative_error(found[removed], y[removed]),
        f"{name}_error_today": relative_error(found[today], y[today]),
        f"{name}_held_out": result.validation_error,
        f"{name}_size": result.num_parameters,
    }


def claims(results: Results) -> list[Row]:
    """Medians over the days."""
    found = []
    for name in DAYS:
        rows = [r for r in results.finished("update/").values() if r["params"]["source"] == name]
        faster = median(r["faster"] for r in rows) if rows else None
        worse = median(r["worse"] for r in rows) if rows else None
        days = f"a day more of {name}, median of {len(rows)} days"
        is_fast = None if faster is None else faster >= FASTER
        is_good = None if worse is None else worse <= WORSE
        found.append(
            claim(f"update, {days}: times faster than from scratch", FASTER, faster, is_fast, len(rows))
        )
        found.append(claim(f"update, {days}: error over that from scratch", WORSE, worse, is_good, len(rows)))
    return found


def table(results: Results) -> list[Row]:
    """One line per day."""
    columns = ["seconds", "update_seconds", "only_new_seconds", "faster", "worse"]
    columns += [f"{n}_{e}" for e in ("error", "error_today", "size") for n in ("fresh", "update", "only_new")]
    rows = results.finished("update/")
    return [{"day": key.removeprefix("update/"), **{c: row[c] for c in columns}} for key, row in rows.items()]
