"""The paper's ablation: Greedy-TN with and without weight transfer on tensor trains of ranks 6, 3, 6, 5."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..search import GreedyOptions
from ..structure import Structure
from .experiment import Experiment, Report, Settings, best_error, groups, mean_and_deviation, run_method
from .harness import Case, Results, Row, median, pyplot
from .targets import DIMS, planted_tensor

__all__ = ["EXPERIMENT"]

TRAIN = Structure.tensor_train(DIMS, (6, 3, 6, 5))
MAX_ERROR = 1e-6
BUDGET = 1500
SIZES = (100, 200, 300, 400, TRAIN.num_parameters, 800, 1200)
RUNS, QUICK_RUNS = 50, 3
# Errors this close to each other are the same optimum.
SAME = 0.01


def cases(settings: Settings) -> list[Case]:
    """The same targets with weights kept and with random starts."""
    runs = QUICK_RUNS if settings.quick else RUNS
    limit = {"max_seconds": 20.0 if settings.quick else 300.0}
    return [
        Case(
            f"{'transfer' if transfer else 'random'}/seed{seed:03}",
            {"transfer": transfer, "seed": seed, **limit},
        )
        for transfer in (True, False)
        for seed in range(runs)
    ]


def work(params: Row, _: Settings) -> Row:
    """One growth by the paper's rules."""
    x = planted_tensor(TRAIN, params["seed"])
    options = GreedyOptions.paper().replace(transfer=params["transfer"])
    return run_method(
        "default",
        x,
        max_error=MAX_ERROR,
        max_parameters=BUDGET,
        max_seconds=params["max_seconds"],
        random_state=params["seed"],
        split_nodes=False,
        options=options,
    )[1]


def report(results: Results) -> Report:
    """Errors at the same sizes."""
    out = Report("Ablation: weight transfer")
    rows = groups(results, "transfer")
    kept, random = rows.get((True,), []), rows.get((False,), [])
    out.say(
        "Paper (figure only, 50 runs): at the same number of parameters the loss is lower with weight "
        "transfer than with random starts at every greedy step."
    )
    table = []
    for size in SIZES:
        with_, without = ({r["params"]["seed"]: best_error(r, size) for r in g} for g in (kept, random))
        pairs = [(a, without.get(s)) for s, a in with_.items()]
        both = [(a, b) for a, b in pairs if a is not None and b is not None]
        lower = sum(a < b * (1 - SAME) for a, b in both)
        higher = sum(a > b * (1 + SAME) for a, b in both)
        means = [mean_and_deviation(g.values()) for g in (with_, without)]
        cells = ["-" if m is None else f"{m[0]:.3g} ({m[1]:.1g})" for m in means]
        table.append([f"{size:,}", *cells, f"{lower} / {len(both) - lower - higher} / {higher}"])
    out.tabulate(
        f"Mean relative error (deviation) within so many parameters; the target has {TRAIN.num_parameters}",
        ["parameters", "weights kept", "random start", "runs where transfer is lower / same / higher"],
        table,
    )
    out.tabulate(
        f"Whole runs, to error {MAX_ERROR:g} or {BUDGET:,} parameters",
        ["start of each fit", "runs", "reached", "median size", "median s"],
        [
            [
                name,
                len(found),
                sum(r["reached"] for r in found),
                median(r["size"] for r in found if r["reached"]),
                median(r["seconds"] for r in found),
            ]
            for name, found in (("weights kept", kept), ("random", random))
        ],
    )
    return out


def draw(results: Results, folder: Path) -> list[Path]:
    """Mean curves with deviations."""
    plt = pyplot()
    rows = groups(results, "transfer")
    if plt is None or not rows:
        return []
    grid = np.unique(np.geomspace(35, BUDGET, 60).astype(int))
    figure, axis = plt.subplots(figsize=(6, 4.5), layout="constrained")
    for (transfer,), found in sorted(rows.items(), reverse=True):
        stats = [(n, mean_and_deviation(best_error(r, n) for r in found)) for n in grid]
        known = [(n, *s) for n, s in stats if s is not None]
        size, mean, deviation = (np.array(v, dtype=float) for v in zip(*known))
        axis.plot(size, np.maximum(mean, 1e-8), label="weights kept" if transfer else "random start")
        axis.fill_between(size, np.maximum(mean - deviation, 1e-8), mean + deviation, alpha=0.2)
    axis.axvline(TRAIN.num_parameters, color="k", linestyle=":", linewidth=1)
    axis.set(xscale="log", yscale="log", xlabel="parameters", ylabel="relative error")
    axis.legend()
    axis.grid(True, alpha=0.3)
    path = folder / f"{results.path.stem}.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return [path]


EXPERIMENT = Experiment("ablation", "weight transfer on and off", cases, work, report, draw)
