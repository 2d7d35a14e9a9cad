"""Seconds per iteration of the greedy search on the tensor-ring target, with and without splits."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ..structure import Structure
from .experiment import Experiment, Report, Settings
from .harness import Case, Results, Row, median
from .methods import LABELS, run_method
from .targets import PLANTED_ERROR, TARGETS, planted_tensor

SMALL = Structure.tensor_ring((4,) * 4, 2)
METHODS = ("greedy", "greedy_int", "default")
# Seconds on a V100.
PAPER = {"greedy": 0.91, "greedy_int": 1.18}


def cases(settings: Settings) -> list[Case]:
    return [
        Case(f"{method}/seed{seed:03}", {"method": method, "seed": seed})
        for method in METHODS
        for seed in range(settings.runs or (3 if settings.quick else 20))
    ]


def work(case: Case, settings: Settings) -> Row:
    """One run, after a small one that takes the time of lazy imports."""
    params = case.params
    run_method(params["method"], planted_tensor(SMALL, 0), max_error=1e-3, random_state=0)
    x = planted_tensor(TARGETS["tr"], params["seed"])
    result, row = run_method(
        params["method"], x, max_error=PLANTED_ERROR, max_parameters=3000, random_state=params["seed"]
    )
    steps = [b.seconds - a.seconds for a, b in pairwise(result.history) if b.kind == "grow"]
    return {**row, "iterations": len(steps), "seconds_per_iteration": median(steps)}


def report(results: Results) -> Report:
    out = Report("Seconds per greedy iteration, TR target 7^5")
    rows = results.groups("method")
    lines = [
        {
            "method": LABELS[m],
            "paper (V100)": PAPER.get(m),
            "seconds": median(r["seconds_per_iteration"] for r in runs if r["seconds_per_iteration"]),
            "iterations": median(r["iterations"] for r in runs),
            "whole run, s": median(r["seconds"] for r in runs),
            "runs": len(runs),
        }
        for m in METHODS
        if (runs := rows.get((m,)))
    ]
    title = "Seconds per growth: score all edges, grow, refit (and look for splits)"
    out.tabulate_rows(f"{title}; median over runs of the median", lines)
    out.say(
        "The paper's figures are means on a V100. The default splits nodes while pruning, not at every "
        "iteration, and grows from several starts."
    )
    if set(PAPER) <= (seconds := {m: s for (m,), s in _seconds(rows).items()}).keys():
        without, with_ = seconds["greedy"], seconds["greedy_int"]
        out.judge(
            [
                (
                    "an iteration on TR takes 0.91 s, and 1.18 s, 1.3 times as long, with the internal node "
                    "search (V100)",
                    f"{without:.3f} s and {with_:.3f} s, {with_ / without:.1f} times as long",
                    1.0 if without < PAPER["greedy"] and with_ < PAPER["greedy_int"] else 0.0,
                )
            ]
        )
    return out


def _seconds(rows: dict[tuple[Any, ...], list[Row]]) -> dict[tuple[Any, ...], float]:
    """Seconds per iteration of every method that has some."""
    values = {
        m: median(r["seconds_per_iteration"] for r in runs if r["seconds_per_iteration"])
        for m, runs in rows.items()
    }
    return {m: v for m, v in values.items() if v is not None}


EXPERIMENT = Experiment(
    "timing", "seconds per iteration of the greedy search", cases, work, report, uses=("baselines",)
)
