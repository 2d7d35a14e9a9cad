"""Do intervals of 90 % hold 90 % of the values that were not observed, and how wide are they?

Five masks of everything, default settings:

* pictures: the four test images as 2x2 block means at 128x128, 10 or 30 % of the entries known,
  tensorize="auto" (`--side 256` for whole ones);
* traffic: car parks and taxis with 40 % of the entries or of the days removed: masks as
  in `traffic`, from that seed and the next ones;
* planted: networks with noise of 1 or 10 % of their size, 10 entries per parameter; judged on noisy values.

Claimed: a share between 88 and 92 % of the values that were hidden (at most 50,000 of each mask, drawn at
random), mean over the masks. Beside them the intervals of a Bayesian CP factorisation by Gibbs sampling (the
package `smurff`, extra "bayes"; skipped without it), at the rank with the smallest
true error, which a user could not know: mean and standard deviation of 100 samples after 100 others, with the
noise of the fit, taken as normal.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

import tensorgrow as tg
from tensorgrow.errors import import_package
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Case, Results, Row, mean
from tensorgrow.experiments.methods import random_mask
from tensorgrow.experiments.targets import TARGETS, planted_tensor

from .benchmark import Benchmark, BenchmarkSettings, Option
from .completion.command import block_means
from .completion.pictures import IMAGES, load
from .completion.quality import rmse
from .completion.rivals import LABELS
from .completion.runs import claim, report_claims, time_complete, time_rival
from .traffic import SEED, counts, published_mask

__all__ = ["BENCHMARK"]

LEVEL, LOW, HIGH = 0.9, 0.88, 0.92
NORMAL_90 = 1.6448536269514722
JUDGED = 50_000
SAMPLES = 100  # and as many before them that do not count
ITEMS = {
    "pictures": tuple(f"{name}@{rate}" for name in IMAGES for rate in (10, 30)),
    "traffic": ("parking@random40", "parking@days40", "taxi@random40", "taxi@days40"),
    "planted": tuple(f"{name}@{noise}" for name in ("tt", "tr", "triangle") for noise in (1, 10)),
}
QUICK = {"pictures": ("house@30",), "traffic": ("parking@random40",), "planted": ("tt@10",)}
RANKS = {"pictures": (5, 10, 20), "traffic": (10, 30), "planted": (5, 10, 20)}


class Problem(NamedTuple):
    """Values, those that are seen, and those that intervals are judged on."""

    values: np.ndarray
    seen: np.ndarray
    judged: np.ndarray


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Every item and mask, ours and the ranks of the rival."""
    folders = {"pictures": "testimages", "traffic": "traffic"}
    for part in folders.keys() & set(settings.parts):
        settings.folder(folders[part])
    made = []
    for part in settings.parts:
        for item in (QUICK if settings.quick else ITEMS)[part]:
            for mask in range(settings["masks"]):
                common: Row = {"part": part, "item": item, "mask": mask}
                if part == "pictures":
                    common["side"] = settings["side"]
                limit = {"max_seconds": settings["max_seconds"]}
                params: Row = {**common, **limit, "method": "ours"}
                made.append(Case(f"{part}/{item}/ours/default/mask{mask}", params))
                for rank in RANKS[part][: 1 if settings.quick else None]:
                    params = {**common, "method": "bcp", "rank": rank, "samples": settings["samples"]}
                    uses = ("network",) if part == "planted" else ()
                    made.append(Case(f"{part}/{item}/bcp/rank{rank:02}/mask{mask}", params, uses=uses))
    return made


@functools.lru_cache(maxsize=2)
def _planted(name: str, noise: int, mask: int) -> Problem:
    structure = TARGETS[name]
    x = planted_tensor(structure, mask).numpy()
    seen = random_mask(x.shape, min(0.9, 10 * structure.num_parameters / x.size), mask)
    spread = noise / 100 * float(np.sqrt(np.mean(x**2)))
    y = x + spread * np.random.default_rng([mask, 1]).standard_normal(x.shape)
    return Problem(y, seen, ~seen)


def make_problem(params: Row, settings: BenchmarkSettings) -> Problem:
    """The data of a case."""
    (name, how), mask = params["item"].split("@"), params["mask"]
    if params["part"] == "planted":
        return _planted(name, int(how), mask)
    if params["part"] == "traffic":
        y = counts(settings, name)
        return Problem(y, *published_mask(y, how, SEED + mask))
    picture = block_means(load(settings, name), params["side"])
    seen = random_mask(picture.shape, int(how) / 100, mask)
    return Problem(picture, seen, ~seen)


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """Intervals of one method on one mask. Without smurff the rival leaves a note."""
    params = case.params
    y, seen, judged = make_problem(params, settings)
    where = np.argwhere(judged)
    if len(where) > JUDGED:
        where = where[np.random.default_rng(params["mask"]).permutation(len(where))[:JUDGED]]
    true = y[tuple(where.T)]
    x = np.where(seen, y, 0.0)
    if params["method"] == "ours":
        options: Row = {"tensorize": "auto"} if params["part"] == "pictures" else {}
        result, row = time_complete(
            x, seen, device="cpu", random_state=0, max_seconds=params["max_seconds"], **options
        )
        found, low, high = (np.asarray(a) for a in result.predict(where, interval=LEVEL))
        row = {k: row[k] for k in ("size", "seconds", "cpu_seconds", "hit_limit", "validation_error")}
        row |= {"gaps": result.info.get("gaps"), "members": max(1, len(result.members))}
    else:
        rival = functools.partial(sample_cp, y, seen, where, params["rank"], params["samples"])
        try:
            (found, half), row = time_rival("cpu", rival, None)
        except tg.MissingPackageError as error:
            return {"skipped": str(error)}
        low, high = found - half, found + half
    return {
        **row,
        "coverage": float(np.mean((low <= true) & (true <= high))),
        "width": float(np.mean(high - low)),
        "rmse": rmse(found, true),
        "spread": float(true.std()),
        "observed": int(seen.sum()),
        "judged": len(where),
    }


def sample_cp(
    y: np.ndarray, seen: np.ndarray, where: np.ndarray, rank: int, samples: int
) -> tuple[tuple[np.ndarray, np.ndarray], Row]:
    """Means and half widths of intervals at positions by a Bayesian CP factorisation; its size."""
    smurff: Any = import_package("smurff", "the Bayesian CP needs smurff", "bayes")
    known = y[seen]
    middle, scale = known.mean(), known.std()

    def listed(places: np.ndarray) -> Any:
        columns = tuple(c.astype(np.int32) for c in places.T)
        return smurff.SparseTensor(((y[tuple(places.T)] - middle) / scale, columns), shape=y.shape)

    session = smurff.TrainSession(
        priors=["normal"] * y.ndim,
        num_latent=rank,
        num_threads=1,
        burnin=samples,
        nsamples=samples,
        seed=0,
        verbose=0,
    )
    # The values at `where` are only compared with. The largest signal-to-noise ratio is no limit.
    session.addTrainAndTest(listed(np.argwhere(seen)), listed(where), smurff.AdaptiveNoise(1.0, 1e12))
    session.init()
    noise = []
    while (status := session.step()) is not None:
        if str(status.phase) == "Sample":
            noise.append(status.train_rmse**2)
    predictions = session.getTestPredictions()
    order = np.lexsort(np.array([p.coords for p in predictions]).T[::-1])
    variance = np.array([p.var for p in predictions])[order] / (samples - 1) + np.mean(noise)
    # Ours are in the order of `where`; those of smurff in an order of its own.
    back = np.empty(len(where), dtype=np.int64)
    back[np.lexsort(where.T[::-1])] = np.arange(len(where))
    found = np.array([p.pred_avg for p in predictions])[order][back] * scale + middle
    half = NORMAL_90 * scale * np.sqrt(variance[back])
    return (found, half), {"size": rank * sum(y.shape)}


# -- report --------------------------------------------------------------------------------------------


def summarise(results: Results) -> list[Row]:
    """One line per item: means over the masks; of the rival, at the rank with the smallest true error."""
    lines = []
    for part, items in ITEMS.items():
        for item in items:
            ours = results.rows(f"{part}/{item}/ours/")
            ranks: dict[int, list[Row]] = {}
            for row in results.rows(f"{part}/{item}/bcp/"):
                ranks.setdefault(row["params"]["rank"], []).append(row)
            theirs = min(ranks.values(), key=lambda rows: mean(r["rmse"] for r in rows) or 0.0, default=[])
            if not ours:
                continue
            line: Row = {"item": f"{part}/{item}", "masks": len(ours)}
            for name, rows in (("ours", ours), ("bcp", theirs)):
                label = "tensorgrow" if name == "ours" else LABELS[name]
                for column in ("coverage", "width", "rmse"):
                    line[f"{label}: {column}"] = mean(r[column] for r in rows)
            line["least"] = min(r["coverage"] for r in ours)
            line["most"] = max(r["coverage"] for r in ours)
            width = mean(r["width"] for r in theirs)
            line["width ratio"] = None if not width else (mean(r["width"] for r in ours) or 0.0) / width
            line["rank"] = theirs[0]["params"]["rank"] if theirs else None
            line["seconds"] = mean(r["seconds"] for r in ours)
            lines.append(line)
    return lines


def claims(lines: list[Row]) -> list[Row]:
    """Coverage of every item and part; widths beside the rival's."""
    found = []
    for part in ITEMS:
        mine = [line for line in lines if line["item"].startswith(f"{part}/")]
        if not mine:
            continue
        share = mean(line["tensorgrow: coverage"] for line in mine) or 0.0
        limits = f"{LOW:.0%} to {HIGH:.0%}"
        found.append(claim(f"{part}: coverage", limits, share, LOW <= share <= HIGH, len(mine)))
        inside = sum(LOW <= line["tensorgrow: coverage"] <= HIGH for line in mine)
        text = f"{part}: items with a coverage from {limits}"
        found.append(claim(text, len(mine), inside, inside == len(mine), len(mine)))
        ratios = [line["width ratio"] for line in mine if line["width ratio"] is not None]
        if ratios:
            narrower = sum(r < 1.0 for r in ratios)
            text = f"{part}: items with narrower intervals than the Bayesian CP's (not promised)"
            found.append(claim(text, len(ratios), narrower, narrower == len(ratios), len(ratios)))
    return found


def beside(lines: list[Row]) -> list[Row]:
    """Shares inside in per cent, and widths over the rival's."""
    rival = LABELS["bcp"]
    return [
        {
            "data": line["item"],
            "inside %": 100 * line["tensorgrow: coverage"],
            "least, most %": f"{100 * line['least']:.1f}, {100 * line['most']:.1f}",
            "width over the Bayesian CP's": line["width ratio"],
            "the latter's inside %": inside and 100 * inside,
        }
        for line in lines
        for inside in [line[f"{rival}: coverage"]]
    ]


def report(results: Results) -> Report:
    """Coverage and widths, and the claims."""
    out = Report("Intervals of completions")
    lines = summarise(results)
    found = claims(lines)
    out.summary = {"claims": found, "intervals": lines}
    out.tabulate_rows("Intervals of 90 %, means over the masks", lines)
    out.tabulate_rows("Beside a Bayesian CP", beside(lines))
    report_claims(out, found)
    if without := [k for k, r in results.cases.items() if "skipped" in r]:
        out.say(f"without a result: {', '.join(without)}")
    return out


BENCHMARK = Benchmark(
    "uncertainty",
    "share of hidden values in intervals of completions, and their widths, beside a Bayesian CP",
    cases,
    work,
    report,
    parts=tuple(ITEMS),
    uses=("tasks.complete",),
    options=(
        Option("masks", 5, "masks of every item", quick=1),
        Option("max_seconds", 900.0, "limit of one run of ours", quick=1.0),
        Option("side", 128, "pixels of a picture along each axis", quick=32),
        Option("samples", SAMPLES, "samples of the Bayesian CP", quick=5),
    ),
)
