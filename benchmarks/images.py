"""How small do networks of natural images get at a given error, and how soon?

Claims measured; images are 256x256 grey, reshaped column-major to 4^8:

* balanced: default options, mean over 5 seeds: image A at most 12,500 parameters at error 0.105 and 7,300 at
  0.137, image C at most 960 at 0.080.
* thorough: in 60 s C at most 905 at 0.080, A at most 6,900 at 0.137; mean over 5 seeds.
* live10: ten images at 0.15, one seed: at least 2.5 times fewer parameters than interleaved TT-SVD on the
  geometric mean. The truncation of TT-SVD is bisected to the same error.
* curves: error against size and against time of the balanced and fast presets, of the paper's rules and of
  TT-SVD; drawn in docs/figures/images.png.

A run that ends at its time limit without the error counts as not reaching it; it is never left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tensorgrow as tg
from tensorgrow.baselines.svd import truncated_train
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.figures import pyplot, save_figure
from tensorgrow.experiments.harness import Case, Results, Row, geometric_mean, mean, median, stopwatch
from tensorgrow.experiments.images import LIVE_ERROR, PUBLISHED, load
from tensorgrow.experiments.methods import front

from .benchmark import Benchmark, BenchmarkSettings, Option
from .timing import timed_decompose

__all__ = ["BENCHMARK"]

INTERLEAVED = (0, 4, 1, 5, 2, 6, 3, 7)
# Image, error, claimed size; thorough runs also have a time.
BALANCED = (("A", 0.105, 12_500), ("A", 0.137, 7_300), ("C", 0.080, 960))
THOROUGH = (("C", 0.080, 905, 60.0), ("A", 0.137, 6_900, 60.0))
LIVE_RATIO = 2.5
LIVE_NAMES = (
    "bikes",
    "caps",
    "lighthouse2",
    "monarch",
    "paintedhouse",
    "plane",
    "sailing1",
    "sailing3",
    "statue",
    "woman",
)
CURVE_ERRORS = {"A": 0.105, "C": 0.080}
TT_ERRORS = {
    "A": (0.5, 0.4, 0.35, 0.3, 0.25, 0.2, 0.175, 0.15, 0.137, 0.12, 0.105),
    "C": (0.2, 0.175, 0.15, 0.135, 0.12, 0.11, 0.1, 0.09, 0.08),
}


# -- cases ---------------------------------------------------------------------------------------------


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """One run or one TT-SVD on one image."""
    params = case.params
    x = load(settings.folder("bsd_tnga4").parent, params["image"])
    if params["method"] == "tt_svd":
        return run_both_orders(x, params["errors"])
    options: Row = {"max_error": params["max_error"], "max_seconds": params["max_seconds"]}
    if params["method"] == "paper":
        options["options"] = tg.GreedyOptions.paper("images")
    else:
        options["effort"] = params["method"]
    result, row = timed_decompose(torch.from_numpy(x), random_state=params["seed"], **options)
    steps = [[s.kind, s.num_parameters, s.relative_error, s.seconds, s.start] for s in result.history]
    return {**row, "history": steps}


def run_both_orders(x: np.ndarray, errors: Iterable[float]) -> Row:
    """TT-SVD in the stored and in the interleaved order of modes at each error."""
    orders = {"stored": x, "interleaved": np.ascontiguousarray(x.transpose(INTERLEAVED))}
    return {name: [{"target": e, **run_tt_svd(y, e)} for e in errors] for name, y in orders.items()}


def run_tt_svd(x: np.ndarray, max_error: float) -> Row:
    """Smallest train within a relative `max_error`; the whole bisection, and one train, timed."""
    with stopwatch() as watch:
        result = tg.baselines.tt_svd(x, max_error=max_error)
    with stopwatch() as once:
        truncated_train(
            torch.from_numpy(x), range(x.ndim), max_error * float(np.linalg.norm(x)) / math.sqrt(x.ndim)
        )
    return {
        "size": result.num_parameters,
        "error": result.relative_error,
        "ranks": [result.structure.rank(k, k + 1) for k in range(x.ndim - 1)],
        "seconds": watch.wall,
        "seconds_one_threshold": once.wall,
    }


def _run(method: str, image: str, error: float, seed: int, limit: float) -> Row:
    return {"method": method, "image": image, "max_error": error, "seed": seed, "max_seconds": limit}


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Cases of the chosen parts, the quick ones first."""
    settings.folder("bsd_tnga4")  # refused before anything is run
    limit, cases = settings["max_seconds_per_run"], []
    if "live10" in settings.parts:
        for k in range(settings["live_images"]):
            tt = {"method": "tt_svd", "image": str(k), "errors": [LIVE_ERROR]}
            cases.append(Case(f"live10/{k}/tt_svd", tt))
            cases.append(Case(f"live10/{k}/balanced", _run("balanced", str(k), LIVE_ERROR, 0, limit)))
    if "curves" in settings.parts:
        for image, error in CURVE_ERRORS.items():
            tt = {"method": "tt_svd", "image": image, "errors": list(TT_ERRORS[image])}
            cases.append(Case(f"curves/{image}/tt_svd", tt))
            cases.append(Case(f"curves/{image}/fast", _run("fast", image, error, 0, limit)))
            cases.append(
                Case(f"curves/{image}/paper", _run("paper", image, error, 0, settings["paper_seconds"]))
            )
    if "balanced" in settings.parts:
        for image, error, _ in reversed(BALANCED):
            for seed in range(settings["seeds"]):
                key = f"balanced/{image}@{error}/seed{seed}"
                cases.append(Case(key, _run("balanced", image, error, seed, limit)))
    if "thorough" in settings.parts:
        for image, error, _, seconds in THOROUGH:
            for seed in range(settings["seeds"]):
                key = f"thorough/{image}@{error}/seed{seed}"
                cases.append(Case(key, _run("thorough", image, error, seed, min(seconds, limit))))
    return cases


# -- summary -------------------------------------------------------------------------------------------


def claim_summary(results: Results, part: str, image: str, error: float, claim: int) -> Row:
    """Mean size over the seeds; only given when every run reached the error."""
    prefix = f"{part}/{image}@{error}/"
    rows, failed = results.rows(prefix), results.failures(prefix)
    reached = [r for r in rows if r["reached"]]
    all_reached = bool(rows) and not failed and len(reached) == len(rows)
    size = mean(r["size"] for r in reached) if all_reached else None
    return {
        "claim": claim,
        "runs": len(rows) + failed,
        "reached": len(reached),
        "mean_size": size,
        "claim_met": None if not rows else bool(size is not None and size <= claim),
        "sizes": [r["size"] if r["reached"] else None for r in rows],
        "errors_not_reached": [r["error"] for r in rows if not r["reached"]],
        "hit_time_limit": sum(r["hit_limit"] for r in rows),
        "max_seconds": max((r["params"]["max_seconds"] for r in rows), default=None),
        "mean_seconds": mean(r["seconds"] for r in rows),
        "mean_cpu_seconds": mean(r["cpu_seconds"] for r in rows),
        "median_seconds_per_growth": median(
            r["seconds_per_growth"] for r in rows if r["seconds_per_growth"] is not None
        ),
    }


def live_summary(results: Results) -> Row:
    """Ratio of sizes, interleaved TT-SVD over ours, per image."""
    images = []
    for key in sorted(k for k in results.cases if k.startswith("live10/") and k.endswith("/balanced")):
        ours, theirs = results.cases[key], results.cases.get(key.replace("/balanced", "/tt_svd"), {})
        if "failed" in ours or "interleaved" not in theirs:
            continue
        interleaved, stored = theirs["interleaved"][0], theirs["stored"][0]
        images.append(
            {
                "image": int(ours["params"]["image"]),
                "size": ours["size"],
                "error": ours["error"],
                "reached": ours["reached"],
                "seconds": ours["seconds"],
                "tt_svd_interleaved": interleaved["size"],
                "tt_svd_stored": stored["size"],
                "ratio": interleaved["size"] / ours["size"] if ours["reached"] else None,
            }
        )
    all_reached = bool(images) and all(i["reached"] for i in images)
    ratio = geometric_mean(i["ratio"] for i in images) if all_reached else None
    reached = [i["ratio"] for i in images if i["reached"]]
    return {
        "images": images,
        "reached": sum(i["reached"] for i in images),
        "geometric_mean_ratio": ratio,
        "geometric_mean_of_reached": geometric_mean(reached),
        "claim": LIVE_RATIO,
        "claim_met": None if not images else bool(ratio is not None and ratio >= LIVE_RATIO),
    }


def beside(results: Results) -> list[Row]:
    """Ours, TT-SVD and what the paper prints for itself and for its genetic algorithm, at the same errors."""
    lines = []
    names = {"greedy": "the paper", "genetic6": "its GA, rank 6", "genetic7": "its GA, rank 7"}
    for image, error in dict.fromkeys((i, e) for i, e, *_ in (*BALANCED, *THOROUGH)):
        trains = results.cases.get(f"curves/{image}/tt_svd", {})
        line: Row = {"image": f"{image} at {error}"}
        for effort in ("balanced", "thorough"):
            rows = results.rows(f"{effort}/{image}@{error}/")
            reached = bool(rows) and all(r["reached"] for r in rows)
            size = mean(r["size"] for r in rows) if reached else None
            line[f"ours, {effort}"] = None if size is None else f"{size:,.0f}"
        for order in ("interleaved", "stored"):
            sizes = [t["size"] for t in trains.get(order, ()) if t["target"] == error]
            line[f"TT-SVD {order}"] = f"{sizes[0]:,}" if sizes else None
        for method, name in names.items():
            size, at = PUBLISHED.get((image, method), (0, None))
            line[name] = f"{size:,}" if at == error else None
        lines.append(line)
    return lines if results.finished() else []


def report(results: Results) -> Report:
    """Sizes beside what is claimed."""
    out = Report("Images")
    claims = [("balanced", *c) for c in BALANCED] + [("thorough", *c[:3]) for c in THOROUGH]
    runs = {f"{c[0]}/{c[1]}@{c[2]}": claim_summary(results, *c) for c in claims}
    live = live_summary(results)
    out.summary = {**runs, "live10": live}
    out.tabulate(
        "Images A and C",
        ["run", "reached", "mean size", "claim", "sizes", "mean s", "mean CPU s"],
        [
            [
                k,
                f"{s['reached']}/{s['runs']}",
                None if s["mean_size"] is None else f"{s['mean_size']:,.0f}",
                f"{s['claim']:,}",
                "; ".join("missed" if n is None else f"{n:,}" for n in s["sizes"]),
                s["mean_seconds"],
                s["mean_cpu_seconds"],
            ]
            for k, s in runs.items()
            if s["runs"]
        ],
    )
    out.tabulate_rows("Images A and C beside others: parameters at the same error", beside(results))
    names = ("size", "error", "seconds", "tt_svd_interleaved", "tt_svd_stored", "ratio")
    out.tabulate(
        f"Ten images at {LIVE_ERROR}",
        ["image", "size", "error", "s", "TT-SVD interleaved", "TT-SVD stored", "ratio"],
        [
            [
                f"{i['image']}, {LIVE_NAMES[i['image']]}",
                *(f"{i[c]:,}" if isinstance(i[c], int) else i[c] for c in names),
            ]
            for i in live["images"]
        ],
    )
    out.say(f"geometric mean of the ratios: {live['geometric_mean_ratio']} (claim {LIVE_RATIO})")
    return out


# -- figure --------------------------------------------------------------------------------------------


def by_size(history: list[list[Any]]) -> tuple[list[float], list[float]]:
    """Sizes and errors of the steps that no other step beats in both."""
    sizes, errors = zip(*front((s[1], s[2]) for s in history))
    return list(sizes), list(errors)


def by_time(history: list[list[Any]]) -> tuple[list[float], list[float]]:
    """Seconds and lowest error so far."""
    seconds, errors = [s[3] for s in history], np.minimum.accumulate([s[2] for s in history]).tolist()
    return seconds, errors


def draw(results: Results, settings: BenchmarkSettings) -> list[Path]:
    """Error against parameters and against seconds, both images."""
    plt = pyplot()
    if not {"curves", "balanced"} & set(settings.parts):
        return []
    figure, axes = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
    for row, (image, error) in enumerate(CURVE_ERRORS.items()):
        curves = {
            "tensorgrow, balanced": results.cases.get(f"balanced/{image}@{error}/seed0"),
            "tensorgrow, fast": results.cases.get(f"curves/{image}/fast"),
            "the paper's rules": results.cases.get(f"curves/{image}/paper"),
        }
        for column, pick in enumerate((by_size, by_time)):
            _panel(axes[row, column], curves, results.cases.get(f"curves/{image}/tt_svd"), pick)
            axes[row, column].set_title(f"image {image}")
            axes[row, column].set_xlabel("seconds, one core" if column else "parameters")
            axes[row, column].set_ylabel("relative error")
    axes[0, 0].legend()
    return save_figure(figure, settings.figures / "images.png")


def _panel(axis: Any, curves: dict[str, Row | None], trains: Row | None, pick: Callable[..., Any]) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    for (label, row), style in zip(curves.items(), ("C0-", "C1-", "C3-")):
        if row and "failed" not in row:
            axis.plot(*pick(row["history"]), style, label=label)
    for order, style in (("interleaved", "kx--"), ("stored", "k+:")):
        points = trains.get(order, []) if trains else []
        x = [p["size" if pick is by_size else "seconds_one_threshold"] for p in points]
        label = f"TT-SVD, {order} modes"
        style = style if pick is by_size else style[:2]
        axis.plot(x, [p["error"] for p in points], style, label=label, linewidth=1)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.set_yticks([0.08, 0.1, 0.15, 0.2, 0.3, 0.5])
    axis.grid(True, which="both", alpha=0.3)


BENCHMARK = Benchmark(
    "images",
    "parameters of images at an error: A and C, ten LIVE images against TT-SVD; error by size and time",
    cases,
    work,
    report,
    draw,
    parts=("balanced", "thorough", "live10", "curves"),
    uses=("tasks.decompose", "baselines.svd"),
    options=(
        Option("seeds", 5, "seeds of balanced and thorough runs", quick=1),
        Option("live_images", 10, "how many of the ten images", quick=1),
        Option("paper_seconds", 120.0, "limit of a run of the paper preset", quick=5.0),
        Option("max_seconds_per_run", 1800.0, "limit of every other run; recorded", quick=5.0),
    ),
)
