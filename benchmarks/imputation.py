"""How well are missing values of tables filled in, in rows that were not seen before?

Tables of scikit-learn with 10, 30 or 50 % of their values hidden at random. Imputers are fitted to every
other row and fill in the rest; the error is the root mean square over the hidden values there, in standard
deviations of their column. Rivals: means of the columns; `KNNImputer` on standardised columns;
`IterativeImputer` with Bayesian ridge regressions. All have their defaults.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tensorgrow as tg
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Case, Results, Row, mean, stopwatch

from .benchmark import Benchmark, BenchmarkSettings, Option

__all__ = ["BENCHMARK"]

PARTS = ("iris", "wine", "diabetes", "breast_cancer", "digits")
METHODS = ("ours", "mean", "neighbours", "iterative")
SHARES = (0.1, 0.3, 0.5)
NAMES = {
    "ours": "`TNImputer`",
    "mean": "means",
    "neighbours": "`KNNImputer`",
    "iterative": "`IterativeImputer`",
}


def imputer(method: str, max_seconds: float) -> Any:
    """What fills in tables."""
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if method == "ours":
        return tg.TNImputer(max_seconds=max_seconds, keep_empty_features=True)
    if method == "neighbours":
        return make_pipeline(StandardScaler(), KNNImputer(keep_empty_features=True))
    kind = SimpleImputer if method == "mean" else IterativeImputer
    return kind(keep_empty_features=True)


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """One method on one table with one mask."""
    from sklearn import datasets

    params = case.params
    table = getattr(datasets, f"load_{params['data']}")().data
    table = table[:, table.std(0) > 0]
    table = table / table.std(0)
    order = np.random.default_rng(params["seed"]).permutation(len(table))
    hidden = np.random.default_rng(params["seed"]).random(table.shape) < params["share"]
    table, gaps = table[order], np.where(hidden, np.nan, table[order])
    model = imputer(params["method"], params["max_seconds"])
    with stopwatch() as watch:
        model.fit(gaps[::2])
    with stopwatch() as use:
        filled = model.transform(gaps[1::2])
    if params["method"] == "neighbours":
        filled = model[0].inverse_transform(filled)
    row: Row = {"error": float(np.sqrt(np.mean((filled - table[1::2])[hidden[1::2]] ** 2)))}
    if params["method"] == "ours":
        row["rank"] = max(model.structure_.ranks.values(), default=1)
    return row | {"seconds": watch.wall, "cpu_seconds": watch.cpu, "transform_cpu_seconds": use.cpu}


def cases(settings: BenchmarkSettings) -> list[Case]:
    """All measurements."""
    return [
        Case(
            f"{part}/{share}/{method}/{seed}",
            {
                "data": part,
                "share": share,
                "method": method,
                "seed": seed,
                "max_seconds": settings["max_seconds"],
            },
            uses=None if method == "ours" else (),
        )
        for part in settings.parts
        for share in SHARES
        for seed in range(settings["seeds"])
        for method in METHODS
    ]


def beside(summary: Row) -> list[Row]:
    """A line per table and share of hidden values; the smallest error is bold."""
    lines = []
    for part in PARTS:
        for share in SHARES:
            found = {m: summary[k] for m in METHODS if (k := f"{part}/{share}/{m}") in summary}
            if set(found) == set(METHODS):
                least = min(v["error"] for v in found.values())
                line: Row = {"table": part.replace("_", " "), "hidden": f"{share:.0%}"}
                for method, name in NAMES.items():
                    text = f"{found[method]['error']:.3f}"
                    line[name] = f"**{text}**" if found[method]["error"] == least else text
                seconds = (f"{found[m]['cpu_seconds']:.2g}" for m in ("ours", "iterative"))
                line["CPU seconds of `fit`: ours, iterative"] = ", ".join(seconds)
                lines.append(line)
    return lines


def report(results: Results) -> Report:
    """Errors and times, means over the masks."""
    out = Report("Imputation")
    out.summary, table = {}, []
    for part in PARTS:
        for share in SHARES:
            row: list[Any] = [f"{part}, {share:.0%}"]
            for method in METHODS:
                rows = results.rows(f"{part}/{share}/{method}/")
                if rows:
                    found = {k: mean(r[k] for r in rows) for k in ("error", "cpu_seconds")} | {
                        "runs": len(rows)
                    }
                    out.summary[f"{part}/{share}/{method}"] = found
                    row += [found["error"], found["cpu_seconds"]]
            if len(row) > 1:
                table.append(tuple(row))
    head = [f"{m}{what}" for m in METHODS for what in (": error", ": CPU seconds of fit")]
    out.tabulate("Means over the masks", ("table, hidden", *head), table)
    lines = beside(out.summary)
    out.tabulate_rows("Beside others", lines)
    ahead = sum(str(line[NAMES["ours"]]).startswith("**") for line in lines)
    out.say(f"`TNImputer` has the smallest error in {ahead} of {len(lines)} settings.")
    return out


BENCHMARK = Benchmark(
    "imputation",
    "errors of TNImputer beside column means, nearest neighbours and iterated regressions",
    cases,
    work,
    report,
    parts=PARTS,
    uses=("estimators.imputer",),
    options=(
        Option("seeds", 3, "masks for every table and share", quick=1),
        Option("max_seconds", 120.0, "limit of one fit", quick=1.0),
    ),
)
