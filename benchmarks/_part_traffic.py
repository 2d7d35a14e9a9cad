"""Part `traffic`: real counts with more entries removed than are missing anyway.

* parking: 30 car parks x 77 days x 18 half-hours; 0 means missing.
* taxi: 30 pick-up zones x 30 drop-off zones x 61 days x 24 hours; every entry is known, zeros are zeros.

Removed are known entries at random, or whole days: fibres (car park, day) or (zone, zone, day). Errors are on
the removed entries only; MAPE on those whose true value is positive. Rivals are shown at the rank with the
smallest RMSE on the removed entries, which a user could not know: an advantage to them.
"""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from typing import Any

from _common import Case, Results, Row

# isort: split
import numpy as np

from _completing import (
    LABELS,
    Folders,
    best_rows,
    claim,
    finished,
    items_of,
    skippable,
    timed,
    timed_complete,
    timing_row,
)
from _quality import mape, relative_error, rmse
from _rivals import run_rival, slot_means

DATASETS = ("parking", "taxi")
DAY_AXIS = {"parking": 1, "taxi": 2}
REMOVALS, RATES = ("random", "days"), (30, 50, 70)
RANKS = {
    "tt": (2, 4, 6, 10, 15),
    "tr": (2, 3, 4, 6, 8),
    "cp": (2, 5, 10, 20, 40),
    "tucker": (2, 4, 8, 12),
}
# Share of the remaining day fibres that the second row of ours holds out.
HELD_OUT_DAYS = 0.1


@functools.lru_cache(maxsize=2)
def load(data: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Counts, and which are known."""
    file = {"parking": "birmingham_parking.npz", "taxi": "nyc_taxi.npz"}[name]
    y = np.load(data / "traffic" / file)["tensor"].astype(float)
    if name == "parking":
        return y, y > 0
    y = y.reshape(*y.shape[:2], 61, 24)
    return y, np.ones(y.shape, dtype=bool)


def choose(known: np.ndarray, removal: str, rate: float, seed: Any) -> np.ndarray:
    """A share of the known entries, or of the day fibres that have one; the last axis is the time of day."""
    rng = np.random.default_rng(seed)
    places = np.flatnonzero(known if removal == "random" else known.any(-1))
    chosen = rng.permutation(places)[: round(rate * len(places))]
    picked = np.zeros(known.shape if removal == "random" else known.shape[:-1], dtype=bool)
    picked.flat[chosen] = True
    return known & (picked if removal == "random" else picked[..., None])


def cases(args: argparse.Namespace) -> list[Case]:
    """Both datasets, both kinds of gaps, three rates, every method."""
    made = []
    for name in DATASETS[:1] if args.quick else DATASETS:
        for removal in REMOVALS:
            for rate in RATES[:1] if args.quick else RATES:
                common = {"source": name, "removal": removal, "rate": rate, "seed": 0}
                made += _item_cases(args, f"{name}@{removal}{rate}", common)
    return made


def _item_cases(args: argparse.Namespace, item: str, common: Row) -> list[Case]:
    limit = 5.0 if args.quick else args.traffic_seconds
    ours: Row = {**common, "method": "ours", "device": args.device, "max_seconds": limit}
    made = [
        Case(f"traffic/cpu/{item}/means/slot", {**common, "method": "means", "device": "cpu"}),
        Case(f"traffic/{args.device}/{item}/ours/default", {**ours, "hold_out_days": False}),
    ]
    if common["removal"] == "days":
        made.append(Case(f"traffic/{args.device}/{item}/ours/held-out-days", {**ours, "hold_out_days": True}))
    for method, ranks in RANKS.items():
        device = args.device if method in ("tt", "tr") else "cpu"
        for rank in ranks[:1] if args.quick else ranks:
            params = {**common, "method": method, "rank": rank, "device": device}
            params["max_seconds"] = args.rival_seconds
            made.append(Case(f"traffic/{device}/{item}/{method}/rank{rank:03}", params))
    return made


@skippable
def run(params: Row, where: Folders) -> Row:
    """Predict what was removed with one method."""
    y, known = load(where.data, params["source"])
    removed = choose(known, params["removal"], params["rate"] / 100, params["seed"])
    seen = known & ~removed
    x = np.where(seen, y, 0.0)
    found, row = _predict(params, x, seen)
    error = {
        "rmse": rmse(found[removed], y[removed]),
        "mape": mape(found[removed], y[removed]),
        "error": relative_error(found[removed], y[removed]),
    }
    return {**row, **error, "observed": int(seen.sum()), "removed": int(removed.sum())}


def _predict(params: Row, x: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, Row]:
    device, limit = params["device"], params.get("max_seconds")
    if params["method"] == "ours":
        options: Row = {"random_state": params["seed"], "max_seconds": limit}
        if params["hold_out_days"]:
            options["validation"] = choose(seen, "days", HELD_OUT_DAYS, [params["seed"], 1])
        result, row = timed_complete(x, seen, device=device, **options)
        return result.fill(x, seen, keep_observed=False), row
    if params["method"] == "means":
        (found, row), watch = timed(device, lambda: slot_means(x, seen, DAY_AXIS[params["source"]]))
    else:
        options = {k: params[k] for k in ("rank", "max_seconds", "seed", "device")}
        (found, row), watch = timed(device, lambda: run_rival(params["method"], x, seen, **options))
    return found, {**row, **timing_row(watch, limit)}


# -- report --------------------------------------------------------------------------------------------


def claims(results: Results) -> list[Row]:
    """How often ours is ahead of every rival; nothing was promised."""
    found = []
    for device in ("cuda", "cpu"):
        wins = []
        for item in items_of(results, "traffic"):
            best = best_rows(results, "traffic", item, "rmse")
            theirs = [row["rmse"] for (_, method), (_, row) in best.items() if method != "ours"]
            if (device, "ours") in best and theirs:
                wins.append(best[device, "ours"][1]["rmse"] < min(theirs))
        text = f"traffic, {device}: gaps with a smaller RMSE than the best rank of any rival (not promised)"
        found.append(claim(text, len(wins), sum(wins), all(wins) if wins else None, len(wins)))
    return found


def table(results: Results) -> list[Row]:
    """One line per gap and method."""
    rows = []
    for item in items_of(results, "traffic"):
        chosen = {
            k: r for k, r in finished(results, "traffic/").items() if f"/{item}/" in k and "/ours/" in k
        }
        best = best_rows(results, "traffic", item, "rmse")
        chosen |= dict(pair for (_, method), pair in best.items() if method != "ours")
        for key, row in chosen.items():
            _, device, _, method, variant = key.split("/")
            columns = ("rmse", "mape", "size", "seconds", "hit_limit")
            rows.append(
                {"gaps": item, "method": LABELS[method], "variant": variant, "device": device}
                | {c: row[c] for c in columns}
            )
    return rows
