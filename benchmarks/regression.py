"""How well is a planted coefficient tensor recovered from samples, and with how many parameters?

``y = <X, W> + noise`` with standard normal samples and ``W`` a random network: a train of rank 3 over 4^5,
a ring of rank 3 over 5^4 and the paper's graph with a triangle over 4^5. Several numbers of samples per
planted parameter; noise of 0 and 10 % of the standard deviation of the response. The test error is the
relative error of noiseless responses on fresh samples; predicting zero has 1.

Rivals: scikit-learn's ridge on the entries of a sample, its weight chosen by leave-one-out; TensorLy's CP
and Tucker regressors, at the rank (and one of two weights of their penalty) that does best on a tenth of
the samples, then fitted to all of them. tensorgrow runs with its defaults. Seconds include the choice of
ranks and weights.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import math
from collections.abc import Callable, Sequence
from typing import Any

from _common import Case, Results, Row, make_parser, median, open_results, print_table, run_cases, stopwatch

# isort: split
import numpy as np

import tensorgrow as tg
from _completing import finished, skippable
from _measure import clear_plans
from _rivals import NotInstalledError, size_of
from tensorgrow.baselines.formats import tucker_ranks

PART = "recovery"
PLANTED = {
    "tt": tg.Structure.tensor_train((4,) * 5, 3),
    "tr": tg.Structure.tensor_ring((5,) * 4, 3),
    "triangle": tg.Structure((4,) * 5, {(0, 1): 3, (1, 2): 2, (2, 3): 3, (1, 4): 2, (2, 4): 2}),
}
METHODS = ("ours", "ridge", "cp", "tucker")
LABELS = {
    "ours": "tensorgrow",
    "ridge": "ridge",
    "cp": "CPRegressor",
    "tucker": "TuckerRegressor",
}
RANKS = {"cp": (1, 2, 3, 4, 6, 8, 12), "tucker": (1, 2, 3, 4)}
PENALTIES = (1e-3, 1.0)
ITERATIONS = 100
TEST_SAMPLES = 2000

Model = Callable[[np.ndarray], np.ndarray]


def problem(params: Row) -> tuple[np.ndarray, np.ndarray, np.ndarray, tg.Structure]:
    """Samples, responses, planted coefficients of norm one, and their structure."""
    structure = PLANTED[params["planted"]]
    w = tg.TensorNetwork.random(structure, random_state=params["seed"]).to_dense().numpy()
    w /= np.linalg.norm(w)
    rng = np.random.default_rng(params["seed"])
    x = rng.standard_normal((params["samples"], *structure.dims))
    y = np.tensordot(x, w, w.ndim)
    return x, y + params["noise"] * rng.standard_normal(len(y)), w, structure


# -- methods -------------------------------------------------------------------------------------------


def ours(x: np.ndarray, y: np.ndarray, seed: int) -> tuple[Model, Row]:
    """`tensorgrow.TNRegressor`, default options."""
    clear_plans()
    model = tg.TNRegressor(random_state=seed).fit(x, y)
    return model.predict, {
        "size": model.result_.num_parameters,
        "stop": model.result_.stop.name,
        "ranks": model.structure_.to_dict()["ranks"],
        "ridge": model.result_.info["ridge"],
    }


def ridge(x: np.ndarray, y: np.ndarray, seed: int) -> tuple[Model, Row]:
    """`sklearn.linear_model.RidgeCV`."""
    from sklearn.linear_model import RidgeCV

    flat = x.reshape(len(x), -1)
    model = RidgeCV(alphas=np.logspace(-6, 4, 21)).fit(flat, y)
    predict = lambda z: model.predict(z.reshape(len(z), -1))  # noqa: E731
    return predict, {"size": flat.shape[1], "alpha": float(model.alpha_)}


def tensorly_regressor(method: str, rank: int, penalty: float, dims: Sequence[int], seed: int) -> Any:
    """A regressor that is not fitted yet."""
    from tensorly.regression import CPRegressor, TuckerRegressor

    common = {"tol": 1e-7, "n_iter_max": ITERATIONS, "reg_W": penalty, "random_state": seed, "verbose": 0}
    if method == "cp":
        return CPRegressor(weight_rank=rank, **common)
    return TuckerRegressor(weight_ranks=list(tucker_ranks(dims, rank)), **common)


def tensorly_best(method: str, x: np.ndarray, y: np.ndarray, seed: int) -> tuple[Model, Row]:
    """The rank and penalty with the smallest error on held-out samples, fitted to all."""
    if importlib.util.find_spec("tensorly") is None:
        raise NotInstalledError("tensorly is not installed (pip install tensorly)")
    dims = x.shape[1:]
    held = np.random.default_rng(seed).permutation(len(x)) < round(0.1 * len(x))
    best: tuple[float, int, float] | None = None
    with contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):  # it prints, and it diverges
        # A Tucker network of full rank is ridge with more parameters than features.
        for rank in (r for r in RANKS[method] if method == "cp" or r < max(dims)):
            for penalty in PENALTIES:
                model = tensorly_regressor(method, rank, penalty, dims, seed)
                try:
                    found = model.fit(x[~held], y[~held]).predict(x[held])
                except np.linalg.LinAlgError:  # a singular system
                    continue
                error = float(np.linalg.norm(found - y[held]))
                if not math.isfinite(error):
                    continue
                if best is None or error < best[0]:
                    best = error, rank, penalty
        assert best is not None
        model = tensorly_regressor(method, best[1], best[2], dims, seed).fit(x, y)
    return model.predict, {"size": size_of(method, dims, best[1]), "rank": best[1], "penalty": best[2]}


@skippable
def run(params: Row) -> Row:
    """One method on one problem."""
    x, y, w, structure = problem(params)
    method, seed = params["method"], params["seed"]
    if method in ("ours", "ridge") and importlib.util.find_spec("sklearn") is None:
        raise NotInstalledError("scikit-learn is not installed (pip install scikit-learn)")
    tg.TensorNetwork.random(structure).to_dense()  # first calls are not part of any measurement
    fit = {"ours": ours, "ridge": ridge}.get(method)
    with stopwatch() as watch:
        predict, row = fit(x, y, seed) if fit else tensorly_best(method, x, y, seed)
    fresh = np.random.default_rng(10_000 + seed).standard_normal((TEST_SAMPLES, *w.shape))
    truth = np.tensordot(fresh, w, w.ndim)
    error = float(np.linalg.norm(predict(fresh) - truth) / np.linalg.norm(truth))
    return {
        **row,
        "error": error,
        "planted_size": structure.num_parameters,
        "seconds": watch.wall,
        "cpu_seconds": watch.cpu,
    }


# -- cases and tables ----------------------------------------------------------------------------------


def cases(args: argparse.Namespace) -> list[Case]:
    """Every combination; the seeds come last, so that a run that is stopped has some of everything."""
    found = []
    for seed in range(args.seeds):
        for name, structure in PLANTED.items():
            for per in args.samples:
                for noise in args.noise:
                    for method in args.methods:
                        params = {
                            "planted": name,
                            "samples": round(per * structure.num_parameters),
                            "per_parameter": per,
                            "noise": noise,
                            "method": method,
                            "seed": seed,
                        }
                        found.append(Case(f"{PART}/{name}/{per:g}/{noise:g}/{method}/{seed}", params))
    return found


def table(results: Results) -> list[Row]:
    """Medians over the seeds."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for key, row in finished(results, f"{PART}/").items():
        groups.setdefault(tuple(key.split("/")[1:5]), []).append(row)
    order = {name: k for k, name in enumerate((*PLANTED, *METHODS))}
    rows = []
    for (name, _, noise, method), found in sorted(
        groups.items(), key=lambda g: (order[g[0][0]], float(g[0][1]), float(g[0][2]), order[g[0][3]])
    ):
        rows.append(
            {
                "planted": f"{name} ({PLANTED[name].num_parameters})",
                "samples": found[0]["params"]["samples"],
                "features": math.prod(PLANTED[name].dims),
                "noise": float(noise),
                "method": LABELS[method],
                "test error": median(r["error"] for r in found),
                "worst": max(r["error"] for r in found),
                "parameters": median(r["size"] for r in found),
                "CPU seconds": median(r["cpu_seconds"] for r in found),
                "seeds": len(found),
            }
        )
    return rows


def main() -> None:
    """Run what is missing and print the table."""
    parser = make_parser(__doc__, "regression")
    parser.add_argument("--seeds", type=int, default=3, help="random problems of every kind")
    parser.add_argument("--samples", type=float, nargs="+", default=[2.0, 4.0, 8.0], help="per parameter")
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.1], help="of the response")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), help="to run")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    args = parser.parse_args()
    results = open_results(args, [PART], args.jobs)
    report = lambda r: (  # noqa: E731
        r.get("skipped") or f"error {r['error']:.3g}, size {r['size']}, {r['seconds']:.2f} s"
    )
    run_cases(results, cases(args), run, report=report)
    rows = table(results)
    results.summarise({"recovery": rows})
    if rows:
        print_table(list(rows[0]), [list(r.values()) for r in rows])


if __name__ == "__main__":
    main()
