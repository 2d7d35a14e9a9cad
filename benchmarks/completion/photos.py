"""Part `photos`: four test images by `complete(x, mask, tensorize="auto")` beside what people try first.

256x256x3 with 10, 20 or 30 % of the entries known, which keep their values in what is judged: PSNR and SSIM
of the filled picture. Ours with 4 members (the default) and with 7, one after the other on a core, each cut
off after `member_seconds` if that is given (`hit_limit`). Rivals: linear and cubic interpolation,
biharmonic functions, HaLRTC, truncated HaLRTC and CP; and those of part `images`, which has the same masks:
TT-ALS, TR-ALS (all of it to convergence on a GPU), CP and Tucker. Of truncations and ranks the best by the
truth counts, for PSNR and SSIM each: an advantage to the rivals.
"""

from __future__ import annotations

from tensorgrow.experiments.harness import Case, Results, Row, mean

from ..benchmark import BenchmarkSettings
from .pictures import IMAGES, RATES, picture_case, rival_cases
from .rivals import LABELS
from .runs import claim, items_of

__all__ = ["cases", "claims", "table"]

MEMBERS = (4, 7)
# Shares of free singular values: 0.02 is best on facade at 10 %, 0.1 is already worse than none.
TRUNCATIONS = (0.01, 0.02, 0.05, 0.1)
# CP was cut off after 30 s in part `images`: views, ranks and the size of the largest rank, 38 and 100.
LADDERS = [("plain", (10,), 20_000), ("stored", (30,), 3_500)]
GAIN = 1.5
PLACES = ("linear", "cubic", "biharmonic", "halrtc", "tnn", "tr", "cp", "tt", "tucker")


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Every picture and rate with every method."""
    made = []
    for source in ("house",) if settings.quick else IMAGES:
        for rate in (30,) if settings.quick else RATES:
            common = {"source": source, "rate": rate, "seed": 0}
            made += _item_cases(settings, f"{source}@{rate}", common)
    return made


def _item_cases(settings: BenchmarkSettings, item: str, common: Row) -> list[Case]:
    plain = {**common, "view": "plain"}
    each = settings["member_seconds"]
    made = []
    for n in MEMBERS:
        limit: Row = {} if each is None else {"max_seconds": n * each}
        ours = {**plain, "tensorize": "auto", "members": n, **limit}
        made.append(picture_case(settings, "photos", item, "ours", f"members{n}", **ours))
    limit = {"max_seconds": settings["photo_seconds"]}
    for method in ("linear", "cubic", "biharmonic", "halrtc"):
        made.append(picture_case(settings, "photos", item, method, "default", **plain, **limit))
    for share in TRUNCATIONS[1:2] if settings.quick else TRUNCATIONS:
        name = f"truncation{share:g}"
        made.append(picture_case(settings, "photos", item, "tnn", name, **plain, truncation=share, **limit))
    for view, rungs, size in LADDERS:
        for case in rival_cases(settings, "photos", item, [("cp", view, rungs)], size, common):
            made.append(Case(case.key, {**case.params, **limit}))
    return made


# -- report --------------------------------------------------------------------------------------------


def _best(results: Results, item: str, metric: str) -> dict[str, float]:
    """Ours by number of members, and every rival by its best run."""
    best: dict[str, float] = {}
    for part in ("photos", "images"):
        for key, row in results.finished(f"{part}/").items():
            _, _, of, method, variant = key.split("/")
            if of != item or (part == "images" and method == "ours"):
                continue
            name = variant if method == "ours" else method
            best[name] = max(row[metric], best.get(name, float("-inf")))
    return best


def claims(results: Results) -> list[Row]:
    """Ahead of the best rival on every picture and rate, and by how much."""
    found = []
    for members in MEMBERS:
        for metric, label in (("psnr_filled", "PSNR"), ("ssim_filled", "SSIM")):
            gains = []
            for item in items_of(results, "photos"):
                best = _best(results, item, metric)
                theirs = [best[m] for m in PLACES if m in best]
                if f"members{members}" in best and theirs:
                    gains.append(best[f"members{members}"] - max(theirs))
            ahead, count = sum(g > 0.0 for g in gains), len(gains)
            text = f"photos, {members} members: cells with a higher {label} than every rival"
            found.append(claim(text, count, ahead, ahead == count if gains else None, count))
            if metric == "psnr_filled":
                gain = mean(gains)
                text = f"photos, {members} members: mean PSNR above the best rival of each cell, dB"
                found.append(claim(text, GAIN, gain, None if gain is None else gain >= GAIN, count))
    return found


def table(results: Results, metric: str) -> list[Row]:
    """One line per picture and rate, one column per method."""
    every = results.finished("photos/")
    names = [*(f"members{n}" for n in MEMBERS), *PLACES]
    rows = []
    for item in items_of(results, "photos"):
        best = _best(results, item, metric)
        row: Row = {"item": item, **{LABELS.get(n, f"ours, {n}"): best.get(n) for n in names}}
        for count in MEMBERS:
            seconds = [r["seconds"] for k, r in every.items() if k.endswith(f"/{item}/ours/members{count}")]
            row[f"seconds, {count} members"] = min(seconds, default=None)
        rows.append(row)
    return rows
