"""How well are gaps of traffic counts filled in, on masks that others have published errors for?

Birmingham car parks (30 x 77 days x 18 half-hours) and New York taxis (30 x 30 zones x 1464 hours), with 40
or 60 % of the entries removed at random, or 40 % of the days of a car park or of a pair of zones. The masks
are those of the published experiments (numpy's generator with seed 1000 before each); 0 means missing, and
errors are on removed entries that are not 0.

Ours by default settings of `tensorgrow.complete` on the array as it is, and with `bounds=(0, None)`, as
counts are not negative; taxis also with days and hours as axes of their own. Published values are those of
the experiments of the authors of BGCP, BATF and BTMF. HaLRTC and its truncated form are run here too, at the
truncation with the smallest true error. Claimed: RMSE and MAPE below the best published value in every row.
Other masks and rates are in the part `traffic` of `completion`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Case, Results, Row

from .benchmark import DEVICE, Benchmark, BenchmarkSettings, Option
from .completion.quality import mape, relative_error, rmse
from .completion.rivals import LABELS, fill
from .completion.runs import claim, report_claims, time_complete, time_rival
from .completion.traffic import load

__all__ = ["BENCHMARK", "make_mask", "published_mask"]

SEED = 1000
HOURS = 24
GAPS = {
    "parking": ("random40", "random60", "days40"),
    "taxi": ("random40", "random60", "days40"),
}
# RMSE and MAPE in per cent as printed; None where there is none.
PUBLISHED: dict[str, dict[str, tuple[float, float | None]]] = {
    "parking/random40": {"BGCP": (25.6, 7.7), "BATF": (25.2, 7.3), "BTMF": (18.2, 3.4)},
    "parking/random60": {"BGCP": (27.9, 8.4), "BATF": (29.7, 8.4), "BTMF": (25.9, 6.2)},
    "parking/days40": {"BGCP": (74.3, 12.2), "BATF": (113.0, 17.7), "BTMF": (69.5, 13.4)},
    "taxi/random40": {
        "BGCP": (4.84, 52.6),
        "BATF": (4.90, None),
        "BTMF": (4.59, 44.3),
        "HaLRTC": (6.84, None),
    },
    "taxi/random60": {"BTMF": (4.81, 45.6), "HaLRTC": (8.13, None)},
    "taxi/days40": {"BATF": (4.86, None), "BTMF": (4.77, 44.8), "HaLRTC": (7.03, None)},
}
VARIANTS: dict[str, Row] = {"default": {}, "bounds": {"bounds": [0.0, None]}, "hours": {}}
TRUNCATIONS = (0.05, 0.1, 0.2, 0.3)


def make_mask(shape: tuple[int, ...], kind: str, rate: float, seed: int = SEED) -> np.ndarray:
    """Which entries are not removed; `kind` is "random", or "days" of the last axis or of 24 hours of it."""
    draw = np.random.RandomState(seed).rand  # numpy's old generator, as in the published code
    if kind == "random":
        return np.asarray(np.round(draw(*shape) + 0.5 - rate) == 1.0)
    if shape[-1] > HOURS:
        days = np.round(draw(*shape[:-1], shape[-1] // HOURS) + 0.5 - rate)
        return np.asarray(np.repeat(days, HOURS, -1) == 1.0)
    return np.broadcast_to(np.round(draw(*shape[:-1]) + 0.5 - rate)[..., None] == 1.0, shape)


def published_mask(y: np.ndarray, gaps: str, seed: int = SEED) -> tuple[np.ndarray, np.ndarray]:
    """What is observed of counts and what is judged, both without zeros."""
    kind, rate = gaps[:-2], int(gaps[-2:]) / 100
    kept = make_mask(y.shape, kind, rate, seed)
    return (y != 0) & kept, (y != 0) & ~kept


def counts(settings: BenchmarkSettings, source: str) -> np.ndarray:
    """The tensor of order 3."""
    y, _ = load(settings.folder("traffic").parent, source)
    return y if y.ndim == 3 else y.reshape(*y.shape[:2], -1)


def cases(settings: BenchmarkSettings) -> list[Case]:
    """All masks, ours in several ways, and HaLRTC."""
    settings.folder("traffic")
    made = []
    for source in settings.parts[:1] if settings.quick else settings.parts:
        for gaps in GAPS[source][:1] if settings.quick else GAPS[source]:
            made += _item_cases(settings, source, gaps)
    return made


def _item_cases(settings: BenchmarkSettings, source: str, gaps: str) -> list[Case]:
    common = {"source": source, "gaps": gaps, "max_seconds": settings["max_seconds"]}
    device = settings["device"]
    made = []
    for name, options in VARIANTS.items():
        if name != "hours" or source == "taxi":
            params = {**common, "method": "ours", "variant": name, "options": options, "device": device}
            made.append(Case(f"{source}/{device}/{gaps}/ours/{name}", params))
    for share in (0.0, *TRUNCATIONS[: 0 if settings.quick else None]):
        method, name = ("tnn", f"truncation{share:g}") if share else ("halrtc", "default")
        params = {**common, "method": method, "truncation": share, "device": "cpu"}
        made.append(Case(f"{source}/cpu/{gaps}/{method}/{name}", params))
    return made


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """Predict what was removed with one method."""
    params = case.params
    y = counts(settings, params["source"])
    seen, judged = published_mask(y, params["gaps"])
    x, limit = np.where(seen, y, 0.0), params["max_seconds"]
    if params["method"] == "ours":
        shape = (*y.shape[:-1], -1, HOURS) if params["variant"] == "hours" else y.shape
        result, row = time_complete(
            x.reshape(shape),
            seen.reshape(shape),
            device=params["device"],
            random_state=0,
            max_seconds=limit,
            **params["options"],
        )
        row["gaps"] = result.info.get("gaps")
        found = result.fill(x.reshape(shape), seen.reshape(shape), keep_observed=False).reshape(y.shape)
    else:
        rival = functools.partial(fill, params["method"], x, seen, limit, params["truncation"])
        found, row = time_rival("cpu", rival, limit)
    errors = {
        "rmse": rmse(found[judged], y[judged]),
        "mape": mape(found[judged], y[judged]),
        "error": relative_error(found[judged], y[judged]),
    }
    return {**row, **errors, "observed": int(seen.sum()), "judged": int(judged.sum())}


# -- report --------------------------------------------------------------------------------------------


def best_published(item: str, metric: str) -> float:
    """The smallest published value of a row."""
    column = ("rmse", "mape").index(metric)
    return min(v[column] or math.inf for v in PUBLISHED[item].values())


def claims(results: Results) -> list[Row]:
    """Both errors below the best published ones, for every way of ours."""
    found = []
    for variant in VARIANTS:
        for item in PUBLISHED:
            source, gaps = item.split("/")
            keys = (f"{source}/{device}/{gaps}/ours/{variant}" for device in ("cpu", "cuda"))
            rows = [r for k in keys for r in [results.cases.get(k, {})] if "rmse" in r]
            for metric in ("rmse", "mape"):
                limit = best_published(item, metric)
                measured = max((r[metric] for r in rows), default=None)
                text = f"{item}, {variant}: {metric.upper()} below the best published"
                met = None if measured is None else measured < limit
                found.append(claim(text, limit, measured, met, len(rows)))
    return [c for c in found if c["met"] is not None]


def tables(results: Results) -> list[Row]:
    """One line per row of the published table and method."""
    rows: list[Row] = []
    for item, printed in PUBLISHED.items():
        source, gaps = item.split("/")
        empty = {"variant": "published", "size": None, "seconds": None, "hit_limit": None}
        for name, (root, share) in printed.items():
            rows.append({"gaps": item, "method": name, "rmse": root, "mape": share, **empty})
        mine = [(k, r) for k, r in results.finished(f"{source}/").items() if k.split("/")[2] == gaps]
        best: dict[Any, Row] = {}
        for key, row in mine:
            *_, method, variant = key.split("/")
            line = {"gaps": item, "method": LABELS[method], **{c: row[c] for c in ("rmse", "mape")}}
            line |= {"variant": variant, **{c: row[c] for c in ("size", "seconds", "hit_limit")}}
            group = key if method == "ours" else method
            if group not in best or line["rmse"] < best[group]["rmse"]:
                best[group] = line
        rows += best.values()
    return rows if results.finished() else []


def beside(results: Results) -> list[Row]:
    """The defaults, the best published value of each column, and HaLRTC at its best truncation."""
    lines = []
    found = [r for r in tables(results) if r["variant"] != "published"]
    has_rivals = any(r["method"] != LABELS["ours"] for r in found)
    for item in PUBLISHED:
        source, gaps = item.split("/")
        mine = [r for r in found if r["gaps"] == item]
        ours = [r for r in mine if r["method"] == LABELS["ours"] and r["variant"] == "default"]
        others = [r for r in mine if r["method"] != LABELS["ours"]]
        best = min(others, key=lambda r: float(r["rmse"]), default=None)
        if ours:
            row = min(ours, key=lambda r: float(r["rmse"]))
            printed = [best_published(item, m) for m in ("rmse", "mape")]
            lines.append(
                {
                    "data, removed": f"{source}, {gaps[-2:]} % of {'days' if 'days' in gaps else 'entries'}",
                    "ours": _both(row["rmse"], row["mape"]),
                    "best published": _both(*printed),
                    **(
                        {"HaLRTC, run here": best and _both(best["rmse"], best["mape"])} if has_rivals else {}
                    ),
                    "both below published": "yes"
                    if row["rmse"] < printed[0] and row["mape"] < printed[1]
                    else "**no**",
                    "parameters": f"{row['size']:,}",
                    "s": row["seconds"],
                }
            )
    return lines


def _both(root: float, share: float) -> str:
    return f"{root:.3g} / {share:.3g}"


def report(results: Results) -> Report:
    """The published table with ours in it, and the claims."""
    out = Report("Traffic on published masks")
    found = claims(results)
    rows = tables(results)
    out.summary = {"claims": found, "errors": rows}
    out.tabulate_rows("RMSE and MAPE (%) on removed entries", rows)
    out.tabulate_rows("Beside the best published", beside(results))
    report_claims(out, found)
    return out


BENCHMARK = Benchmark(
    "traffic",
    "gaps of parking and taxi counts filled in, beside published errors on the same masks",
    cases,
    work,
    report,
    parts=tuple(GAPS),
    uses=("tasks.complete",),
    options=(DEVICE, Option("max_seconds", 1800.0, "limit of one run", quick=2.0)),
)
