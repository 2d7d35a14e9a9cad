"""The paper's ablation: Greedy-TN with and without weight transfer on tensor trains of ranks 6, 3, 6, 5."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..search import GreedyOptions
from ..structure import Structure
from .experiment import Experiment, Report, Settings
from .figures import plot_mean_error, pyplot, save_figure
from .harness import Case, Results, Row, median
from .methods import best_error, mean_and_deviation, run_method
from .targets import DIMS, PLANTED_ERROR, planted_tensor

TRAIN = Structure.tensor_train(DIMS, (6, 3, 6, 5))
BUDGET = 1500  # parameters, nearly three times those of the target
SIZES = (100, 200, 300, 400, TRAIN.num_parameters, 800, 1200)
SAME = 0.01  # errors within this share of each other are the same optimum
# Targets in a full and in a quick run.
RUNS = {False: 50, True: 3}


def cases(settings: Settings) -> list[Case]:
    """Each target with weights transferred and with random starts."""
    limit = {"max_seconds": 20.0 if settings.quick else 300.0}
    return [
        Case(
            f"{'transfer' if transfer else 'random'}/seed{seed:03}",
            {"transfer": transfer, "seed": seed, **limit},
        )
        for transfer in (True, False)
        for seed in range(settings.runs or RUNS[settings.quick])
    ]


def work(case: Case, settings: Settings) -> Row:
    params = case.params
    x = planted_tensor(TRAIN, params["seed"])
    options = GreedyOptions.paper().replace(transfer=params["transfer"])
    return run_method(
        "default",
        x,
        max_error=PLANTED_ERROR,
        max_parameters=BUDGET,
        max_seconds=params["max_seconds"],
        random_state=params["seed"],
        split_nodes=False,
        options=options,
    )[1]


def report(results: Results) -> Report:
    out = Report("Ablation: weight transfer")
    rows = results.groups("transfer")
    transferred, random = rows.get((True,), []), rows.get((False,), [])
    out.say(
        "Paper (figure only, 50 runs): at the same number of parameters the loss is lower with weight "
        "transfer than with random starts at every greedy step."
    )
    table, means = [], []
    for size in SIZES:
        with_, without = (
            {r["params"]["seed"]: best_error(r, size) for r in g} for g in (transferred, random)
        )
        pairs = [(a, without.get(s)) for s, a in with_.items()]
        both = [(a, b) for a, b in pairs if a is not None and b is not None]
        lower = sum(a < b * (1 - SAME) for a, b in both)
        higher = sum(a > b * (1 + SAME) for a, b in both)
        pair = [mean_and_deviation(g.values()) for g in (with_, without)]
        means.append(pair)
        cells = ["-" if m is None else f"{m[0]:.3g} ({m[1]:.1g})" for m in pair]
        table.append([f"{size:,}", *cells, f"{lower} / {len(both) - lower - higher} / {higher}"])
    out.tabulate(
        f"Mean relative error (deviation) within so many parameters; the target has {TRAIN.num_parameters}",
        ["parameters", "weights kept", "random start", "runs where transfer is lower / same / higher"],
        table,
    )
    lines = [
        {
            "start of each fit": name,
            "runs": len(runs),
            "reached": sum(r["reached"] for r in runs),
            "median size": median(r["size"] for r in runs if r["reached"]),
            "median s": median(r["seconds"] for r in runs),
        }
        for name, runs in (("weights kept", transferred), ("random", random))
    ]
    out.tabulate_rows(f"Whole runs, to error {PLANTED_ERROR:g} or {BUDGET:,} parameters", lines)
    if transferred and random:
        ratios = [a[0] / b[0] for a, b in means if a and b]
        lower, higher = sum(r < 1 - SAME for r in ratios), sum(r > 1 + SAME for r in ratios)
        kept, drawn = (line["reached"] for line in lines)
        out.judge(
            [
                (
                    "weight transfer gives a lower loss at the same number of parameters",
                    f"lower at {lower} of {len(ratios)} sizes, within {SAME:.0%} at "
                    f"{len(ratios) - lower - higher}, higher at {higher}",
                    0.0 if higher >= lower else 1.0 if not higher else 0.5,
                ),
                (
                    "the knowledge of earlier iterations leads to a better start (run to convergence)",
                    f"{kept} of {len(transferred)} runs with weights kept reach the error, {drawn} of "
                    f"{len(random)} from random starts",
                    1.0 if kept >= drawn else 0.0,
                ),
            ]
        )
    return out


def draw(results: Results, settings: Settings) -> list[Path]:
    plt = pyplot()
    rows = results.groups("transfer")
    sizes = [int(n) for n in np.unique(np.geomspace(35, BUDGET, 60).astype(int))]
    figure, axis = plt.subplots(figsize=(6, 4.5), layout="constrained")
    for transfer, color, label in ((True, "C0", "weights kept"), (False, "C1", "random start")):
        plot_mean_error(axis, rows.get((transfer,), []), sizes, color, label)
    axis.axvline(TRAIN.num_parameters, color="k", linestyle=":", linewidth=1)
    axis.set(xscale="log", yscale="log", xlabel="parameters", ylabel="relative error")
    axis.legend()
    axis.grid(True, alpha=0.3)
    return save_figure(figure, settings.figures / f"{results.path.stem}.png")


EXPERIMENT = Experiment(
    "ablation",
    "the paper's ablation: weight transfer on and off",
    cases,
    work,
    report,
    draw,
    uses=("baselines",),
)
