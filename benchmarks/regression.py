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

import contextlib
import importlib.util
import io
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tensorgrow as tg
from tensorgrow.baselines.formats import tucker_ranks
from tensorgrow.contraction import clear_plans
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Case, Results, Row, median, stopwatch

from .benchmark import Benchmark, BenchmarkSettings, Option
from .completion.rivals import size_of

__all__ = ["BENCHMARK"]

PLANTED = {
    "tt": tg.Structure.tensor_train((4,) * 5, 3),
    "tr": tg.Structure.tensor_ring((5,) * 4, 3),
    "triangle": tg.Structure((4,) * 5, {(0, 1): 3, (1, 2): 2, (2, 3): 3, (1, 4): 2, (2, 4): 2}),
}
METHODS = {"ours": "tensorgrow", "ridge": "ridge", "cp": "CPRegressor", "tucker": "TuckerRegressor"}
# Samples per parameter of the table that pages show; the error below which coefficients count as found.
FOUR, EXACT = 4.0, 1e-6
RANKS = {"cp": (1, 2, 3, 4, 6, 8, 12), "tucker": (1, 2, 3, 4)}

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


def fit_ours(x: np.ndarray, y: np.ndarray, seed: int) -> tuple[Model, Row]:
    """`tensorgrow.TNRegressor`, default options."""
    clear_plans()
    model = tg.TNRegressor(random_state=seed).fit(x, y)
    return model.predict, {
        "size": model.result_.num_parameters,
        "stop": model.result_.stop.name,
        "ranks": model.structure_.to_dict()["ranks"],
        "ridge": model.result_.info["ridge"],
    }


def fit_ridge(x: np.ndarray, y: np.ndarray, seed: int) -> tuple[Model, Row]:
    """`sklearn.linear_model.RidgeCV`."""
    from sklearn.linear_model import RidgeCV

    flat = x.reshape(len(x), -1)
    model = RidgeCV(alphas=np.logspace(-6, 4, 21)).fit(flat, y)
    predict = lambda z: model.predict(z.reshape(len(z), -1))  # noqa: E731
    return predict, {"size": flat.shape[1], "alpha": float(model.alpha_)}


def tensorly_regressor(method: str, rank: int, penalty: float, dims: Sequence[int], seed: int) -> Any:
    """A regressor that is not fitted yet."""
    from tensorly.regression import CPRegressor, TuckerRegressor

    common = {"tol": 1e-7, "n_iter_max": 100, "reg_W": penalty, "random_state": seed, "verbose": 0}
    if method == "cp":
        return CPRegressor(weight_rank=rank, **common)
    return TuckerRegressor(weight_ranks=list(tucker_ranks(dims, rank)), **common)


def fit_best(method: str, x: np.ndarray, y: np.ndarray, seed: int) -> tuple[Model, Row]:
    """The rank and penalty with the smallest error on held-out samples, fitted to all."""
    dims = x.shape[1:]
    held = np.random.default_rng(seed).permutation(len(x)) < round(0.1 * len(x))
    best: tuple[float, int, float] | None = None
    with contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):  # it prints, and it diverges
        # A Tucker network of full rank is ridge with more parameters than features.
        for rank in (r for r in RANKS[method] if method == "cp" or r < max(dims)):
            for penalty in (1e-3, 1.0):
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


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """One method on one problem."""
    params = case.params
    package = "sklearn" if params["method"] in ("ours", "ridge") else "tensorly"
    if importlib.util.find_spec(package) is None:
        return {"skipped": f"{package} is not installed"}
    x, y, w, structure = problem(params)
    method, seed = params["method"], params["seed"]
    tg.TensorNetwork.random(structure).to_dense()  # first calls are not part of any measurement
    fit = {"ours": fit_ours, "ridge": fit_ridge}.get(method)
    with stopwatch() as watch:
        predict, row = fit(x, y, seed) if fit else fit_best(method, x, y, seed)
    fresh = np.random.default_rng(10_000 + seed).standard_normal((2000, *w.shape))
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


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Every combination; the seeds come last, so that a run that is stopped has some of everything."""
    cases = []
    for seed in range(settings["seeds"]):
        for name, structure in PLANTED.items():
            for per in settings["samples"]:
                for noise in settings["noise"]:
                    for method in settings["methods"]:
                        params = {
                            "planted": name,
                            "samples": round(per * structure.num_parameters),
                            "per_parameter": per,
                            "noise": noise,
                            "method": method,
                            "seed": seed,
                        }
                        uses = None if method == "ours" else ()  # models of other libraries
                        key = f"recovery/{name}/{per:g}/{noise:g}/{method}/{seed}"
                        cases.append(Case(key, params, uses=uses))
    return cases


def table(results: Results) -> list[Row]:
    """Medians over the seeds."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for key, row in results.finished("recovery/").items():
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
                "method": METHODS[method],
                "test error": median(r["error"] for r in found),
                "worst": max(r["error"] for r in found),
                "parameters": median(r["size"] for r in found),
                "CPU seconds": median(r["cpu_seconds"] for r in found),
                "seeds": len(found),
            }
        )
    return rows


def report(results: Results) -> Report:
    """Test errors, sizes and times."""
    out = Report("Regression with planted coefficients")
    rows = table(results)
    out.summary = {"recovery": rows}
    out.tabulate_rows("Medians over the seeds", rows)
    out.tabulate_rows("Four samples per parameter", beside(results))
    ladders = [
        {"method": m, "ranks": ", ".join(map(str, RANKS[k]))} for k, m in (("cp", "CP"), ("tucker", "Tucker"))
    ]
    out.tabulate_rows("Ranks", ladders)
    clean = [(k, r) for k, r in results.finished("recovery/").items() if float(k.split("/")[3]) == 0.0]
    ours = [(k.split("/")[1], r) for k, r in clean if k.split("/")[4] == "ours"]
    exact = sum(r["error"] < EXACT and r["size"] <= PLANTED[name].num_parameters for name, r in ours)
    out.say(f"Without noise, planted size and coefficients are recovered in {exact} of {len(ours)} runs.")
    return out


def beside(results: Results) -> list[Row]:
    """A line per target and noise: test errors of every seed, parameters in brackets."""
    lines: dict[tuple[str, ...], Row] = {}
    for key, row in results.finished("recovery/").items():
        _, name, share, noise, method, _ = key.split("/")
        if float(share) == FOUR:
            line = lines.setdefault((name, noise), dict.fromkeys(METHODS))
            line[method] = [*(line[method] or ()), row]
    return [
        {
            "planted, noise": f"{name} ({PLANTED[name].num_parameters}), {float(noise):.0%}",
            **{METHODS[m]: found and _seeds(found) for m, found in line.items()},
        }
        for (name, noise), line in sorted(lines.items())
    ]


def _seeds(rows: list[Row]) -> str:
    errors = ", ".join(f"{r['error']:.2g}" for r in rows)
    return f"{errors} ({', '.join(str(r['size']) for r in rows)})"


BENCHMARK = Benchmark(
    "regression",
    "planted coefficient tensors recovered from samples, beside ridge and TensorLy's regressors",
    cases,
    work,
    report,
    uses=("estimators.regressor",),
    options=(
        Option("seeds", 3, "random problems of every kind", quick=1),
        Option("samples", (2.0, 4.0, 8.0), "per parameter", quick=(2.0,)),
        Option("noise", (0.0, 0.1), "of the response", quick=(0.1,)),
        Option("methods", tuple(METHODS), "to run", choices=tuple(METHODS), quick=("ours", "ridge")),
    ),
)
