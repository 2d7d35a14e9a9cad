"""Tables for pages: ours beside every rival, a line per picture or kind of gap, and who ran into limits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensorgrow.experiments.harness import Results, Row, mean

from .pictures import EINSTEIN_SIZES, IMAGES, VIDEO
from .rivals import LABELS
from .runs import items_of
from .scaling import series

__all__ = ["tables"]

RIVALS = ("cp", "tucker", "tt", "tr")
NAMES = {"means": "slot means", **{m: LABELS[m] for m in RIVALS}}
DEVICES = {"cpu": "CPU", "cuda": "GPU"}
# Views of ours: the one that rivals have too, then another.
VIEWS = {"images": ("stored", "paired"), "video": ("split", "plain")}
# Errors in per cent that the paper prints for Einstein, by parameters, and for TR-ALS at its best rank.
PAPER = {21_375: 9.45, 10_096: 10.60}
PAPER_RING = 10.83
# Ways to complete Einstein, by how the variant ends.
WAYS = {
    "": "one network",
    "-thorough": 'one network, `effort="thorough"`',
    "-members4": "four members, other entries held out",
    "-shifts4": "four members, picture shifted",
}


def tables(results: Results) -> dict[str, list[Row]]:
    """By title; an empty list where nothing was measured."""
    return {
        "einstein: ours": einstein(results),
        "einstein: rivals": einstein_rivals(results),
        **{f"{name}: beside rivals": beside(results, name) for name in VIEWS},
        **{f"{name}: counts": counts(results, name) for name in VIEWS},
        "images: limits": limits(results, "images"),
        "traffic: beside rivals": traffic(results),
        "traffic: counts": traffic_counts(results),
        "traffic: limits": limits(results, "traffic"),
        "scaling: seconds per sweep": sweeps(results),
        "scaling: a whole completion": whole(results),
    }


def _found(results: Results, part: str, item: str, method: str) -> dict[str, Row]:
    """Runs of a method on an item by device and variant."""
    rows = results.finished(f"{part}/")
    return {k: r for k, r in rows.items() if k.split("/")[2] == item and k.split("/")[3] == method}


def _ours(results: Results, part: str, item: str, variant: str) -> Row | None:
    """One run of ours: the CPU's where there is one, never the better of two."""
    for device in DEVICES:
        row = results.cases.get(f"{part}/{device}/{item}/ours/{variant}", {})
        if not {"failed", "skipped"} & set(row) and row:
            return row
    return None


def _best(results: Results, part: str, item: str, method: str, metric: str) -> Row | None:
    """The run with the smallest value, over ranks, views and devices."""
    rows = _found(results, part, item, method).values()
    return min(rows, key=lambda r: float(r[metric]), default=None)


# -- einstein ------------------------------------------------------------------------------------------


def einstein(results: Results) -> list[Row]:
    """Ours by way, size and device, over the masks."""
    rows = results.finished("einstein/")
    found = []
    for size in EINSTEIN_SIZES:
        for ending, way in WAYS.items():
            for device, name in DEVICES.items():
                runs = [
                    r
                    for k, r in rows.items()
                    if k.startswith(f"einstein/{device}/") and k.endswith(f"/ours/{size:05}{ending}")
                ]
                if runs:
                    found.append(
                        {
                            "way": way,
                            "parameters at most": f"{size:,}" + (" each" if "four" in way else ""),
                            "device": name,
                            "masks": len(runs),
                            "mean error %": 100 * (mean(r["error"] for r in runs) or 0.0),
                            "worst %": 100 * max(r["error"] for r in runs),
                            "mean s": mean(r["seconds"] for r in runs),
                        }
                    )
    return found


def einstein_rivals(results: Results) -> list[Row]:
    """The best rank of every rival and view on the first mask, and how many of its fits were cut off."""
    found = []
    for method in ("tr", "tt", "cp", "tucker"):
        runs = list(_found(results, "einstein", "seed0", method).values())
        for view in ("stored", "plain"):
            mine = [r for r in runs if r["params"]["view"] == view]
            if mine:
                best = min(mine, key=lambda r: float(r["error"]))
                found.append(
                    {
                        "method": LABELS[method],
                        "of": "the folded image" if view == "stored" else "600x600x3",
                        "best rank": best["params"]["rank"],
                        "parameters": f"{best['size']:,}",
                        "error %": 100 * best["error"],
                        "fits": len(mine),
                        "cut off": sum(r["hit_limit"] for r in mine),
                    }
                )
    return found


def paper(results: Results) -> list[tuple[str, str, float]]:
    """What the paper says about Einstein, beside ours by default: words, numbers, the share that holds."""
    found = []
    means = {}
    for size, printed in PAPER.items():
        rows = [
            r for r in einstein(results) if (r["way"], r["parameters at most"]) == (WAYS[""], f"{size:,}")
        ]
        if rows:
            means_by_device = [
                f"{r['mean error %']:.2f} % on {r['masks']} masks ({r['device']})" for r in rows
            ]
            means[size] = max(r["mean error %"] for r in rows)
            words = f"{printed:.2f} % with {size:,} parameters"
            found.append((words, "; ".join(means_by_device), float(means[size] < printed)))
    rivals: dict[str, Row] = {}
    for row in einstein_rivals(results):
        known = rivals.setdefault(row["method"], row)
        rivals[row["method"]] = min(known, row, key=lambda r: float(r["error %"]))
    best = {name: float(r["error %"]) for name, r in rivals.items()}
    ring = LABELS["tr"]
    if ring in best and min(PAPER) in means:
        small = means[min(PAPER)]
        words = f"the smaller of the two is below TR-ALS, whose best error is {PAPER_RING:.2f} %"
        told = f"{small:.2f} %; TR-ALS {best[ring]:.2f} % with {rivals[ring]['parameters']} parameters"
        found.append((words, told, float(small < best[ring])))
        told = ", ".join(f"{name} {error:.2f} %" for name, error in best.items())
        found.append(("TR-ALS is the second best", told, float(best[ring] == min(best.values()))))
    return found


# -- pictures ------------------------------------------------------------------------------------------


def _items(results: Results, name: str) -> list[str]:
    sources = (VIDEO,) if name == "video" else IMAGES
    return [i for i in items_of(results, "images") if i.split("@")[0] in sources]


def _columns(results: Results, name: str, item: str) -> dict[str, Row | None]:
    """Two views of ours, then the rivals."""
    ours = {f"ours, {view}": _ours(results, "images", item, view) for view in VIEWS[name]}
    return ours | {NAMES[m]: _best(results, "images", item, m, "error") for m in RIVALS}


def beside(results: Results, name: str) -> list[Row]:
    """Error, PSNR, SSIM and parameters; the smallest error is bold."""
    lines = []
    for item in _items(results, name):
        rows = _columns(results, name, item)
        least = min(r["error"] for r in rows.values() if r)
        source, rate = item.split("@")
        line: Row = {"picture, known": f"{source}, {rate} %"}
        for column, row in rows.items():
            line[column] = row and " / ".join(
                [
                    _bold(f"{row['error']:.3f}", row["error"] == least),
                    f"{row['psnr']:.1f}",
                    f"{row['ssim']:.2f}",
                    f"{row['size']:,}",
                ]
            )
        lines.append(line)
    return lines


def counts(results: Results, name: str) -> list[Row]:
    """How often a view of ours has a smaller error than every rival, and the best rival's error over it."""
    lines = []
    for view in VIEWS[name]:
        ratios = []
        for item in _items(results, name):
            rows = _columns(results, name, item)
            ours, theirs = rows[f"ours, {view}"], [r["error"] for m in RIVALS if (r := rows[NAMES[m]])]
            if ours and theirs:
                ratios.append(min(theirs) / ours["error"])
        if ratios:
            lines.append(
                {
                    "ours": view,
                    "pictures": len(ratios),
                    "smallest error": sum(r > 1 for r in ratios),
                    "best rival / ours, least": min(ratios),
                    "most": max(ratios),
                }
            )
    return lines


def limits(results: Results, part: str) -> list[Row]:
    """Fits that ended at their limit of time; for the gaps of counts, ladders whose last rank is the best."""
    lines = []
    for method in ("ours", *RIVALS):
        runs = {k: r for k, r in results.finished(f"{part}/").items() if k.split("/")[3] == method}
        if not runs:
            continue
        seconds = sorted({r["params"]["max_seconds"] for r in runs.values() if "max_seconds" in r["params"]})
        line: Row = {
            "method": LABELS[method],
            "runs": len(runs),
            "at their limit": sum(bool(r["hit_limit"]) for r in runs.values()),
            "limits, s": ", ".join(f"{s:g}" for s in seconds) or "none",
        }
        if part == "traffic":
            ends = [_is_last(results, item, method) for item in items_of(results, part)]
            line["gaps where the largest rank is the best"] = None if method == "ours" else sum(ends)
        lines.append(line)
    return lines


def _is_last(results: Results, item: str, method: str) -> bool:
    rows = list(_found(results, "traffic", item, method).values())
    if not rows or "rank" not in rows[0]["params"]:
        return False
    best = min(rows, key=lambda r: float(r["rmse"]))
    return bool(best["params"]["rank"] == max(r["params"]["rank"] for r in rows))


# -- gaps of counts ------------------------------------------------------------------------------------


def _gaps(results: Results, item: str) -> dict[str, Row | None]:
    rivals = {name: _best(results, "traffic", item, m, "rmse") for m, name in NAMES.items()}
    ours = {"ours": _ours(results, "traffic", item, "default")}
    return rivals | ours | {"ours, whole days held out": _ours(results, "traffic", item, "held-out-days")}


def traffic(results: Results) -> list[Row]:
    """RMSE and MAPE on what was removed; the smallest of each is bold."""
    lines = []
    for item in items_of(results, "traffic"):
        rows = _gaps(results, item)
        least = {m: min(r[m] for r in rows.values() if r) for m in ("rmse", "mape")}
        source, gaps = item.split("@")
        kind, rate = gaps[:-2], gaps[-2:]
        line: Row = {"removed": f"{source}, {rate} % of {'entries' if kind == 'random' else 'days'}"}
        for column, row in rows.items():
            line[column] = row and " / ".join(
                _bold(text, row[m] == least[m])
                for m, text in (("rmse", _three_digits(row["rmse"])), ("mape", f"{row['mape']:.1f}"))
            )
        lines.append(line)
    return lines


def _three_digits(value: float) -> str:
    """With the zeros at its end: 6.00, 14.0, 238."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(max(value, 1.0))))}f}"


def traffic_counts(results: Results) -> list[Row]:
    """How often ours is ahead of every rival at the best rank of each."""
    every = [_gaps(results, item) for item in items_of(results, "traffic")]
    lines = []
    for name, columns in (
        ("default", ("ours",)),
        ("whole days held out", ("ours, whole days held out",)),
        ("the better of both", ("ours", "ours, whole days held out")),
    ):
        pairs = [([r for c in columns if (r := rows[c])], _rivals(rows)) for rows in every]
        pairs = [(ours, theirs) for ours, theirs in pairs if ours and theirs]
        if pairs:
            lines.append(
                {
                    "ours": name,
                    "gaps": len(pairs),
                    **{f"smallest {m.upper()}": sum(_ahead(*pair, m) for pair in pairs) for m in METRICS},
                }
            )
    return lines


METRICS = ("rmse", "mape")


def _rivals(rows: dict[str, Row | None]) -> list[Row]:
    return [r for name in NAMES.values() if (r := rows[name])]


def _ahead(ours: Sequence[Row], theirs: Sequence[Row], metric: str) -> bool:
    return bool(min(r[metric] for r in ours) < min(r[metric] for r in theirs))


# -- scaling -------------------------------------------------------------------------------------------


def sweeps(results: Results) -> list[Row]:
    """Seconds per sweep by number of observations and rank, a column per device."""
    points: dict[tuple[int, int], dict[str, float]] = {}
    for name in ("observations", "rank"):
        for device in DEVICES:
            for row in series(results, device, name):
                points.setdefault((row["observations"], row["rank"]), {}).setdefault(device, row["seconds"])
    return [
        {
            "observations": f"{count:,}",
            "rank": rank,
            **{f"{name}, s": found.get(device) for device, name in DEVICES.items()},
        }
        for (count, rank), found in sorted(points.items(), key=lambda item: (item[0][1] != 8, item[0]))
    ]


def whole(results: Results) -> list[Row]:
    """Completions of a tensor far too large to be held."""
    return [
        {
            "device": name,
            "shape": "x".join(map(str, row["params"]["dims"])),
            "observations": f"{row['params']['observations']:,}",
            "parameters": f"{row['size']:,}",
            "planted": f"{row['planted']:,}",
            "stopped by": row["stop"],
            "error": row["error"],
            "s": row["seconds"],
            "GB": row["peak_bytes"] / 1e9,
            "GB of the GPU": row["peak_bytes_gpu"] and row["peak_bytes_gpu"] / 1e9,
        }
        for device, name in DEVICES.items()
        for row in series(results, device, "whole")
    ]


def _bold(text: str, is_best: bool) -> str:
    return f"**{text}**" if is_best else text
