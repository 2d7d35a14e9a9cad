"""Part `traffic`: real counts with more entries removed than are missing anyway.

* parking: 30 car parks x 77 days x 18 half-hours; 0 means missing.
* taxi: 30 pick-up zones x 30 drop-off zones x 61 days x 24 hours; every entry is known, zeros are zeros.

Removed are known entries at random, or whole days: fibres (car park, day) or (zone, zone, day). Errors are on
the removed entries only; MAPE on those whose true value is positive. Rivals are shown at the rank with the
smallest RMSE on the removed entries, which a user could not know: an advantage to them. Every rank has as
long as ours has in all, another advantage.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import numpy as np

from tensorgrow.experiments.harness import Case, Results, Row

from ..benchmark import BenchmarkSettings
from .quality import mape, relative_error, rmse
from .rivals import predict_means, run_rival, size_of
from .runs import claim, compare, count_wins, time_complete, time_rival

__all__ = ["cases", "claims", "load", "run", "table"]

DATASETS = ("parking", "taxi")
DAY_AXIS = {"parking": 1, "taxi": 2}
# Ranks rise until there are as many parameters as known entries. On the taxis the largest rank of an earlier,
# shorter ladder was nearly always the best.
RANKS = {
    "tt": (2, 4, 6, 10, 15, 20, 30, 40, 60, 80),
    "tr": (2, 3, 4, 6, 8, 11, 15, 20, 25),
    "cp": (2, 5, 10, 20, 40, 80, 160, 320),
    "tucker": (2, 4, 8, 12, 16, 20, 24, 30),
}
SHAPES = {"parking": (30, 77, 18), "taxi": (30, 30, 61, 24)}


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


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Both datasets, both kinds of gaps, three rates, every method."""
    made = []
    for name in DATASETS[:1] if settings.quick else DATASETS:
        for removal in ("random", "days"):
            for rate in (30,) if settings.quick else (30, 50, 70):
                common = {"source": name, "removal": removal, "rate": rate, "seed": 0}
                made += _item_cases(settings, f"{name}@{removal}{rate}", common)
    return made


def _item_cases(settings: BenchmarkSettings, item: str, common: Row) -> list[Case]:
    limit = 5.0 if settings.quick else settings["traffic_seconds"]
    ours: Row = {**common, "method": "ours", "device": settings["device"], "max_seconds": limit}
    made = [
        Case(f"traffic/cpu/{item}/means/slot", {**common, "method": "means", "device": "cpu"}),
        Case(f"traffic/{settings['device']}/{item}/ours/default", {**ours, "hold_out_days": False}),
    ]
    if common["removal"] == "days":
        made.append(
            Case(f"traffic/{settings['device']}/{item}/ours/held-out-days", {**ours, "hold_out_days": True})
        )
    known = (1 - common["rate"] / 100) * math.prod(SHAPES[common["source"]])
    for method in RANKS:
        device = settings["device"] if method in ("tt", "tr") else "cpu"
        ranks = ranks_within(method, common["source"], known)
        for rank in ranks[:1] if settings.quick else ranks:
            params = {**common, "method": method, "rank": rank, "device": device}
            # All the time of ours for every single rank.
            params["max_seconds"] = settings["rival_seconds"] if settings.quick else limit
            made.append(Case(f"traffic/{device}/{item}/{method}/rank{rank:03}", params))
    return made


def ranks_within(method: str, source: str, most: float) -> list[int]:
    """Ranks of the ladder with at most so many parameters, and the smallest one anyway."""
    first, *more = RANKS[method]
    return [first, *(r for r in more if size_of(method, SHAPES[source], r) <= most)]


def run(params: Row, settings: BenchmarkSettings) -> Row:
    """Predict what was removed with one method."""
    y, known = load(settings.folder("traffic").parent, params["source"])
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
            options["validation"] = choose(seen, "days", 0.1, [params["seed"], 1])
        result, row = time_complete(x, seen, device=device, **options)
        return result.fill(x, seen, keep_observed=False), row
    if params["method"] == "means":
        rival = functools.partial(predict_means, x, seen, DAY_AXIS[params["source"]])
    else:
        options = {k: params[k] for k in ("rank", "max_seconds", "seed", "device")}
        rival = functools.partial(run_rival, params["method"], x, seen, **options)
    return time_rival(device, rival, limit)


# -- report --------------------------------------------------------------------------------------------


def claims(results: Results) -> list[Row]:
    """How often ours is ahead of every rival; nothing was promised."""
    found = []
    for device in ("cuda", "cpu"):
        wins = count_wins(results, "traffic", "rmse", device)
        text = f"traffic, {device}: gaps with a smaller RMSE than the best rank of any rival (not promised)"
        found.append(claim(text, len(wins), sum(wins), all(wins) if wins else None, len(wins)))
    return found


def table(results: Results) -> list[Row]:
    """One line per gap and method."""
    return compare(results, "traffic", "rmse", "gaps", ("rmse", "mape", "size", "seconds", "hit_limit"))
