"""Do counts and bits get a better likelihood from their own loss than from squared errors?

Hourly taxi pick-ups in New York, 30x30 cells x 61 days x 24 hours, a few per cent of them observed: the
counts with the Poisson loss, and whether there was any pick-up with the logistic loss, against the squared
loss on the same entries. The likelihood is that of 200,000 entries nobody saw, in nats per entry. Predictions
of the squared loss are taken for rates and probabilities and kept away from zero (and one) at the level that
suits them best, which a user could not know. Beside them the best constant.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import tensorgrow as tg
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Case, Results, Row, stopwatch

from .benchmark import Benchmark, BenchmarkSettings, Option
from .completion.traffic import load

__all__ = ["BENCHMARK"]

LOSSES = {"counts": "poisson", "any": "logistic"}
TEST_ENTRIES = 200_000
# How far from impossible predictions of the squared loss are kept.
FLOORS = (1e-3, 1e-2, 3e-2, 1e-1)


def problem(params: Row, data: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, what is observed, and positions to test on."""
    counts, _ = load(data, "taxi")
    y = counts if params["what"] == "counts" else (counts > 0).astype(float)
    rng = np.random.default_rng(params["seed"])
    order = rng.permutation(y.size)
    seen = np.zeros(y.size, dtype=bool)
    seen[order[: round(params["rate"] * y.size)]] = True
    return y, seen.reshape(y.shape), np.stack(np.unravel_index(order[-TEST_ENTRIES:], y.shape), 1)


def nats(what: str, expected: np.ndarray, true: np.ndarray) -> float:
    """Mean negative log-likelihood of expected values."""
    loss = tg.losses.as_loss(LOSSES[what])
    link = np.log(expected) if what == "counts" else np.log(expected) - np.log1p(-expected)
    return float(loss(torch.from_numpy(link), torch.from_numpy(true)))


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """One loss on one set of observed entries."""
    params = case.params
    what = params["what"]
    y, seen, test = problem(params, settings.folder("traffic").parent)
    true = y[tuple(test.T)]
    if params["loss"] == "constant":
        return {"size": 1, "nats": nats(what, np.full(len(true), y[seen].mean()), true), "seconds": 0.0}
    with stopwatch() as watch:
        result = tg.complete(
            y, seen, loss=params["loss"], random_state=params["seed"], max_seconds=params["max_seconds"]
        )
    expected = np.asarray(result.predict(test))
    if params["loss"] == "squared":
        top = np.inf if what == "counts" else 1.0
        scores = {f: nats(what, np.clip(expected, f, top - f if top == 1.0 else top), true) for f in FLOORS}
    else:
        scores = {0.0: nats(what, np.clip(expected, 1e-12, None if what == "counts" else 1 - 1e-12), true)}
    floor = min(scores, key=lambda f: scores[f])
    return {
        "size": result.num_parameters,
        "nats": scores[floor],
        "floor": floor,
        "rmse": float(np.sqrt(np.mean((expected - true) ** 2))),
        "stop": result.stop.name,
        "ridge": result.info["ridge"],
        "seconds": watch.wall,
    }


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Counts and bits, three shares of observed entries, each loss."""
    settings.folder("traffic")  # refused before anything is run
    cases = []
    for what, own in LOSSES.items():
        for rate in settings["rates"]:
            for seed in range(settings["seeds"]):
                for loss in ("constant", "squared", own):
                    params = {"what": what, "rate": rate, "seed": seed, "loss": loss}
                    params["max_seconds"] = settings["max_seconds"]
                    uses = () if loss == "constant" else None
                    cases.append(Case(f"likelihood/{what}/{rate:g}/seed{seed}/{loss}", params, uses=uses))
    return cases


def report(results: Results) -> Report:
    """A table of every case, and whether the own loss wins throughout."""
    out = Report("Losses of counts and bits")
    rows = results.rows("likelihood/")
    labels, numbers = ("what", "rate", "seed", "loss"), ("size", "nats", "rmse", "seconds", "stop")
    out.tabulate(
        "Nats per unseen entry",
        (*labels, *numbers),
        [[*(r["params"][n] for n in labels), *(r.get(n) for n in numbers)] for r in rows],
    )
    groups: dict[tuple[str, float, int], dict[str, float]] = {}
    for r in rows:
        p = r["params"]
        groups.setdefault((p["what"], p["rate"], p["seed"]), {})[p["loss"]] = r["nats"]
    whole = {k: g for k, g in groups.items() if len(g) == 3}
    won = sum(min(g, key=lambda name: g[name]) == LOSSES[k[0]] for k, g in whole.items())
    claim = {"claim": "own loss has the best likelihood", "cases": len(whole), "won": won}
    out.summary = {"claims": [{**claim, "met": bool(whole) and won == len(whole)}]}
    out.say(f"own loss best in {won} of {len(whole)}")
    return out


BENCHMARK = Benchmark(
    "losses",
    "likelihood of unseen taxi counts and bits with their own loss and with squared errors",
    cases,
    work,
    report,
    uses=("tasks.complete",),
    options=(
        Option("rates", (0.01, 0.03, 0.1), "shares of observed entries", quick=(0.01,)),
        Option("seeds", 2, "sets of observed entries", quick=1),
        Option("max_seconds", 120.0, "limit of one run", quick=5.0),
    ),
)
