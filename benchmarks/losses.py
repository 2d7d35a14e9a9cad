"""Do counts and bits get a better likelihood from their own loss than from squared errors?

Hourly taxi pick-ups in New York, 30x30 cells x 61 days x 24 hours, a few per cent of them observed: the
counts with the Poisson loss, and whether there was any pick-up with the logistic loss, against the squared
loss on the same entries. The likelihood is that of 200,000 entries nobody saw, in nats per entry. Predictions
of the squared loss are taken for rates and probabilities and kept away from zero (and one) at the level that
suits them best, which a user could not know. Beside them the best constant.
"""

from __future__ import annotations

import argparse
import functools
from pathlib import Path

from _common import (
    Case,
    Results,
    Row,
    data_folder,
    make_parser,
    open_results,
    print_table,
    run_cases,
    stopwatch,
)

# isort: split
import numpy as np
import torch

import tensorgrow as tg
from _completing import finished
from _part_traffic import load

PART = "likelihood"
LOSSES = {"counts": "poisson", "any": "logistic"}
RATES = (0.01, 0.03, 0.1)
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


def run(params: Row, data: Path) -> Row:
    """One loss on one set of observed entries."""
    what = params["what"]
    y, seen, test = problem(params, data)
    true = y[tuple(test.T)]
    if params["loss"] == "constant":
        return {"size": 1, "nats": nats(what, np.full(len(true), y[seen].mean()), true), "seconds": 0.0}
    with stopwatch() as watch:
        result = tg.complete(
            y, seen, loss=params["loss"], random_state=params["seed"], max_seconds=params["max_seconds"]
        )
    expected = result.predict(test).numpy()
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


def cases(args: argparse.Namespace) -> list[Case]:
    """Counts and bits, three shares of observed entries, each loss."""
    made = []
    for what, own in LOSSES.items():
        for rate in RATES[:1] if args.quick else RATES:
            for seed in range(1 if args.quick else args.seeds):
                for loss in ("constant", "squared", own):
                    params = {"what": what, "rate": rate, "seed": seed, "loss": loss}
                    params["max_seconds"] = 5.0 if args.quick else args.max_seconds
                    made.append(Case(f"{PART}/{what}/{rate:g}/seed{seed}/{loss}", params))
    return made


def report(results: Results) -> None:
    """A table of every case, and whether the own loss wins throughout."""
    rows = list(finished(results, f"{PART}/").values())
    names = ("size", "nats", "rmse", "seconds", "stop")
    told = ("what", "rate", "seed", "loss")
    print_table(
        (*told, *names), [[*(r["params"][n] for n in told), *(r.get(n) for n in names)] for r in rows]
    )
    groups: dict[tuple[str, float, int], dict[str, float]] = {}
    for r in rows:
        p = r["params"]
        groups.setdefault((p["what"], p["rate"], p["seed"]), {})[p["loss"]] = r["nats"]
    whole = {k: g for k, g in groups.items() if len(g) == 3}
    won = sum(min(g, key=lambda name: g[name]) == LOSSES[k[0]] for k, g in whole.items())
    claim = {"claim": "own loss has the best likelihood", "cases": len(whole), "won": won}
    results.summarise({"claims": [{**claim, "met": bool(whole) and won == len(whole)}]})
    print(f"own loss best in {won} of {len(whole)}")


def main() -> None:
    """Run what is not done yet, and report."""
    parser = make_parser(__doc__, "losses")
    parser.add_argument("--data", help="folder of the data (default: TENSORGROW_DATA or ../shared/data)")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--max-seconds", type=float, default=120.0, help="limit of one run")
    parser.add_argument("--quick", action="store_true", help="a tiny trial")
    args = parser.parse_args()
    results = open_results(args, [PART])
    line = lambda r: f"size {r['size']}, {r['nats']:.4f} nats, {r['seconds']:.1f} s"  # noqa: E731
    run_cases(results, cases(args), functools.partial(run, data=data_folder(args.data)), report=line)
    report(results)


if __name__ == "__main__":
    main()
