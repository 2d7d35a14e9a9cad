"""The demo tensors that the authors of TNGA and TNLS publish with their code: who recovers the graph?"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..structure import Structure
from .experiment import Experiment, Report, Settings
from .harness import Case, Results, Row, median
from .methods import LABELS, run_method

FOLDER = "tn_demo"
FILES = {"TNGA 2^4": "tnga_demo_2pow4.npz", "TNLS 3^6": "tnls_demo_3pow6.npz"}
MAX_ERROR = 1e-3  # the tensors are stored in single precision
OURS = ("default", "thorough")
# Options of each search: ranks up to those of the target, and the weight of the error it was published with.
OPTIONS: dict[str, dict[str, Row]] = {
    "TNGA 2^4": {
        "genetic": {"rank": 2, "population": 20, "generations": 12, "density": 0.3, "error_weight": 200.0},
        "tnls": {"max_rank": 2, "samples": 20, "template": "complete"},
        "tnale": {"max_rank": 2, "template": "complete"},
        "svd_ins_tn": {"max_rank": 2},
    },
    # Without TNGA: it has one rank for all edges, which this ring does not have.
    "TNLS 3^6": {"tnls": {"max_rank": 4}, "tnale": {"max_rank": 4}, "svd_ins_tn": {"max_rank": 4}},
}
SECONDS = 20.0  # for `thorough`, which searches until its time is up


def load(folder: Path, demo: str) -> tuple[np.ndarray, Structure]:
    """A tensor and the structure it was generated from."""
    data = np.load(folder / FILES[demo])
    x, ranks = data["goal"].astype(float), data["adj_matrix"]
    pairs = zip(*np.nonzero(np.triu(ranks, 1)))
    return x, Structure(x.shape, {(int(i), int(j)): int(ranks[i, j]) for i, j in pairs})


def cases(settings: Settings) -> list[Case]:
    """Ours and the searches that can represent the target."""
    settings.folder(FOLDER)  # fails here, before anything runs
    return [
        Case(f"{demo}/{method}/seed{seed}", {"demo": demo, "method": method, "seed": seed})
        for demo in FILES
        for method in (*OURS, *OPTIONS[demo])
        for seed in range(1 if settings.quick else 3)
    ]


def work(case: Case, settings: Settings) -> Row:
    params = case.params
    demo, method = params["demo"], params["method"]
    x, hidden = load(settings.folder(FOLDER), demo)
    options = dict(OPTIONS[demo].get(method, {}))
    if method == "thorough":
        options["max_seconds"] = SECONDS
    result, row = run_method(method, x, max_error=MAX_ERROR, random_state=params["seed"], **options)
    return {**row, "true_size": hidden.num_parameters, "found": result.structure == hidden}


def report(results: Results) -> Report:
    out = Report("Demo tensors of TNGA and TNLS")
    out.say(
        "Made by the authors of these searches: two separate pairs of modes (16 parameters), and a ring in "
        f"the order 0-3-2-1-4-5 (126). Error: {MAX_ERROR:g}. `thorough` has {SECONDS:g} s."
    )
    lines = [
        {
            "tensor": demo,
            "method": LABELS[method],
            "found": f"{sum(r['found'] for r in rows)} of {len(rows)}",
            "sizes": ", ".join(str(r["size"]) if r["reached"] else f"({r['error']:.2g})" for r in rows),
            "structures fitted": median(r["evaluations"] for r in rows),
            "s": median(r["seconds"] for r in rows),
        }
        for (demo, method), rows in results.groups("demo", "method").items()
    ]
    out.tabulate_rows("Runs that find the planted graph and ranks", lines)
    return out


EXPERIMENT = Experiment(
    "demos",
    "demo tensors of TNGA and TNLS: who finds the planted graph",
    cases,
    work,
    report,
    uses=("baselines",),
)
