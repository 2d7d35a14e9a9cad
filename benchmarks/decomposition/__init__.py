"""Does the search find planted structures exactly, and how fast?

Claims measured:

* recovery: the four 7^5 targets of the paper (TT 427, TR 511, Tucker 242, triangle 378), `max_error=1e-6`,
  default options: exact size on at least 19 of 20 seeds.
* unseen: the same rate on random connected graphs of order 5 and 6 and on hierarchical Tucker of order 4 and
  6, real and complex, none of which anything was tuned for.
* speed: one thread, in units (one unit: a float64 `gelsd` solve of a 2401x60 system with 7 right-hand sides,
  timed in the same process): a whole TR run in at most 180 units, a sweep on a 4^8 network of about 2,000
  parameters in at most 2; seconds per growth step; where the time goes. Contraction plans are forgotten
  before every run.
* baselines: TensorLy's TT, Tucker and CP up to 3,000 parameters, TT-SVD and HOSVD truncated at the error, and
  the paper's own rules (`GreedyOptions.paper()`).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence

import numpy as np
import torch

import tensorgrow as tg
from tensorgrow.algebra.moves import merge_structure
from tensorgrow.contraction import clear_plans
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Case, Results, Row, median, stopwatch
from tensorgrow.experiments.methods import describe_run
from tensorgrow.experiments.targets import PLANTED_ERROR, TARGETS, planted_tensor, random_graph
from tensorgrow.objectives import DenseLeastSquares

from ..benchmark import Benchmark, BenchmarkSettings, Option
from ..timing import IMAGE_RANKS, sweep_seconds, timed_decompose, unit_seconds, warm_up
from .shares import measure_shares

__all__ = ["BENCHMARK"]

BUDGET = 3000  # parameters of the iterative baselines and of the paper's rules
IMAGE_LIKE = tg.Structure((4,) * 8, IMAGE_RANKS)


# -- planted structures --------------------------------------------------------------------------------


def seeded_graph(order: int, dim: int, num_edges: int, seed: int) -> tg.Structure:
    """A random connected graph, ranks 2 or 3."""
    return random_graph((dim,) * order, num_edges, np.random.default_rng([order, num_edges, seed]))


def random_hierarchical_tucker(order: int, dim: int, seed: int) -> tg.Structure:
    """Balanced tree with ranks 2 or 3, in its smallest form: nodes that only cost parameters are absorbed."""
    rng = np.random.default_rng([order, dim, seed])
    edges = len(tg.Structure.hierarchical_tucker((dim,) * order, 2).edges)
    return absorb_nodes(tg.Structure.hierarchical_tucker((dim,) * order, rng.integers(2, 4, edges).tolist()))


def absorb_nodes(structure: tg.Structure) -> tg.Structure:
    """Contract internal nodes into neighbours while that lowers the number of parameters."""
    while True:
        smaller = [
            merge_structure(structure, target, node)
            for node in range(structure.order, structure.num_nodes)
            for target in structure.neighbours[node]
        ]
        best = min(smaller, key=lambda s: s.num_parameters, default=structure)
        if best.num_parameters >= structure.num_parameters:
            return structure
        structure = best


def recovery_cases(seeds: int) -> list[Case]:
    """The four targets of the paper."""
    return [
        Case(f"recovery/{name}/seed{seed:02}", _planted(structure, seed, False))
        for name, structure in TARGETS.items()
        for seed in range(seeds)
    ]


def unseen_cases(seeds: int) -> list[Case]:
    """Structures that nothing was tuned for, real and complex."""
    kinds: dict[str, Callable[[int], tg.Structure]] = {
        "graph5": lambda k: seeded_graph(5, 7, 5 + k % 4, k),
        "graph6": lambda k: seeded_graph(6, 6, 5 + k % 4, k),
        "htucker4": lambda k: random_hierarchical_tucker(4, 7, k),
        "htucker6": lambda k: random_hierarchical_tucker(6, 5, k),
    }
    return [
        Case(f"unseen/{kind}-{field}/seed{seed:02}", _planted(make(seed), seed, field == "complex"))
        for kind, make in kinds.items()
        for field in ("real", "complex")
        for seed in range(seeds)
    ]


def _planted(structure: tg.Structure, seed: int, is_complex: bool) -> Row:
    return {
        "structure": structure.to_dict(),
        "planted": structure.num_parameters,
        "seed": seed,
        "complex": is_complex,
        "max_error": PLANTED_ERROR,
    }


def recover(params: Row) -> Row:
    """Run with default options on a planted tensor."""
    structure = tg.Structure.from_dict(params["structure"])
    x = planted_tensor(structure, params["seed"], params["complex"])
    result, row = timed_decompose(x, max_error=params["max_error"], random_state=params["seed"])
    row["exact"] = bool(row["reached"] and row["size"] <= params["planted"])
    row["exact_after_seconds"] = first_exact(result, params["planted"], params["max_error"])
    return row


def first_exact(result: tg.Result, planted: int, max_error: float) -> float | None:
    """When a network of the planted size within the error first appeared."""
    found = (
        s.seconds for s in result.history if s.num_parameters <= planted and s.relative_error <= max_error
    )
    return next(found, None)


# -- speed ---------------------------------------------------------------------------------------------


def speed_cases(seeds: int) -> list[Case]:
    """Whole TR runs, shares of the time, one sweep."""
    ring = [
        Case(f"speed/tr/seed{k:02}", {"what": "run", **_planted(TARGETS["tr"], k, False)}, alone=True)
        for k in range(seeds)
    ]
    return [
        Case("speed/sweep", {"what": "sweep", "structure": IMAGE_LIKE.to_dict()}, alone=True),
        *ring,
        Case("speed/shares", {"what": "shares", "target": "tr", "seeds": min(seeds, 5)}, alone=True),
    ]


def measure_speed(params: Row) -> Row:
    """A whole run, a sweep, or where the time goes."""
    return {"run": time_ring, "sweep": time_sweep, "shares": measure_ring_shares}[params["what"]](params)


def time_ring(params: Row) -> Row:
    """A run with cold plans as `recover` makes it, and the same run again with its plans known."""
    row = recover(params)
    x = planted_tensor(tg.Structure.from_dict(params["structure"]), params["seed"])
    with stopwatch() as watch:
        tg.decompose(x, max_error=params["max_error"], random_state=params["seed"], progress=False)
    unit = row["unit_ms"] / 1e3
    exact = row["exact_after_seconds"]
    return {
        **row,
        "exact_after_units": None if exact is None else exact / unit,
        "seconds_plans_known": watch.wall,
        "units_plans_known": watch.wall / unit,
    }


def time_sweep(params: Row) -> Row:
    """A sweep of a network as found on images; the values of the target do not matter."""
    structure = tg.Structure.from_dict(params["structure"])
    x = torch.randn(structure.dims, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    unit = unit_seconds()
    seconds, sweeps = sweep_seconds(DenseLeastSquares(x), structure)
    return {
        "size": structure.num_parameters,
        "seconds": seconds,
        "units": seconds / unit.wall,
        "unit_ms": 1e3 * unit.wall,
        "sweeps_per_fit": sweeps,
    }


def measure_ring_shares(params: Row) -> Row:
    """Where whole runs spend their time; plans are forgotten before each."""
    warm_up()
    structure = TARGETS[params["target"]]
    tensors = [planted_tensor(structure, k) for k in range(params["seeds"])]
    with measure_shares() as shares:
        for k, x in enumerate(tensors):
            clear_plans()
            tg.decompose(x, max_error=PLANTED_ERROR, random_state=k, progress=False)
        return shares.to_row()


# -- baselines -----------------------------------------------------------------------------------------


# TT-SVD and HOSVD are not held to the budget of the others.
BASELINES: dict[str, tuple[str, Row]] = {
    "tt_svd": ("tt_svd", {}),
    "hosvd": ("hosvd", {}),
    "tensorly_tt": ("tt", {"max_parameters": BUDGET}),
    "tensorly_tucker": ("tucker", {"max_parameters": BUDGET, "tolerance": 1e-12}),
    "tensorly_cp": ("cp", {"max_parameters": BUDGET, "tolerance": 1e-12}),
}


def baseline_cases(settings: BenchmarkSettings) -> list[Case]:
    """Fixed formats and the paper's rules on the four targets."""
    methods = ["tt_svd", "hosvd", "paper"]
    if importlib.util.find_spec("tensorly") is None:
        print("tensorly is not installed: its baselines are left out (pip install tensorly)")
    else:
        methods += ["tensorly_tt", "tensorly_tucker", "tensorly_cp"]
    extra: dict[str, Row] = {
        "paper": {"max_seconds": settings["paper_seconds"]},
        "tensorly_cp": {"ranks": list(settings["cp_ranks"]), "iterations": settings["cp_iterations"]},
    }
    cases = []
    for method in methods:
        for name in TARGETS:
            for seed in range(settings["baseline_seeds"]):
                params = {"method": method, "target": name, "seed": seed, "max_error": PLANTED_ERROR}
                params |= extra.get(method, {})
                uses = () if method.startswith("tensorly") else None
                cases.append(Case(f"baselines/{method}/{name}/seed{seed:02}", params, uses=uses))
    return cases


def run_baseline(params: Row) -> Row:
    """One method on one target: the smallest size within the error, else the best error within the budget."""
    x = planted_tensor(TARGETS[params["target"]], params["seed"])
    method = params["method"]
    if method == "paper":
        limits: Row = {"max_error": params["max_error"], "max_parameters": BUDGET}
        limits |= {"max_seconds": params["max_seconds"], "options": tg.GreedyOptions.paper()}
        return timed_decompose(x, random_state=params["seed"], **limits)[1]
    name, options = BASELINES[method]
    names = ("ranks", "iterations")
    options = {**options, **{k: params[k] for k in names if k in params}}
    with stopwatch() as watch:
        result = tg.baselines.run(
            name, x, max_error=params["max_error"], random_state=params["seed"], **options
        )
    return {**describe_run(result, params["max_error"]), "seconds": watch.wall}


# -- report --------------------------------------------------------------------------------------------


def _rows_by_target(results: Results, part: str) -> dict[str, list[Row]]:
    """Rows of a part by the middle of their key; failed cases count as rows without values."""
    rows: dict[str, list[Row]] = {}
    for key, row in sorted(results.cases.items()):
        if key.startswith(f"{part}/") and "/seed" in key:
            rows.setdefault(key[len(part) + 1 : key.index("/seed")], []).append(row)
    return rows


def recovery_summary(results: Results, part: str) -> Row:
    """Success counts, sizes and times per kind of target."""
    out: Row = {}
    for name, rows in _rows_by_target(results, part).items():
        done = [r for r in rows if "failed" not in r]
        missed = [r for r in done if not r["exact"]]
        out[name] = {
            "exact": sum(r["exact"] for r in done),
            "of": len(rows),
            "failed": len(rows) - len(done),
            "misses": [[r["params"]["seed"], r["size"], r["params"]["planted"]] for r in missed],
            "worst_error": max((r["error"] for r in done), default=None),
            "median_seconds": median(r["seconds"] for r in done),
            "median_units": median(r["units"] for r in done),
        }
    return out


def speed_summary(results: Results) -> Row:
    """The speed claims in one place."""
    rows = results.rows("speed/tr/")
    sweep = results.cases.get("speed/sweep", {})
    columns = ("units", "cpu_units", "units_plans_known", "exact_after_units", "seconds", "unit_ms")
    medians = {c: median(r[c] for r in rows if r[c] is not None) for c in columns}
    shares = results.cases.get("speed/shares", {})
    return {
        "tr_runs": len(rows),
        "tr_exact": sum(r["exact"] for r in rows),
        **{f"tr_median_{c}": v for c, v in medians.items()},
        "tr_median_seconds_per_growth": median(r["seconds_per_growth"] or 0.0 for r in rows),
        "sweep_parameters": sweep.get("size"),
        "sweep_seconds": sweep.get("seconds"),
        "sweep_units": sweep.get("units"),
        "shares": shares.get("shares"),
        "scoring_with_its_contractions_and_solves": shares.get("scoring_with_its_contractions_and_solves"),
    }


def baseline_summary(results: Results) -> Row:
    """Sizes of the runs that reached the error, and the best error of those that did not."""
    out: Row = {}
    for name, rows in _rows_by_target(results, "baselines").items():
        done = [r for r in rows if "failed" not in r]
        out[name] = {
            "reached": sum(r["reached"] for r in done),
            "of": len(rows),
            "sizes": [r["size"] if r["reached"] else None for r in done],
            "least_error_missed": min((r["error"] for r in done if not r["reached"]), default=None),
            "median_seconds": median(r["seconds"] for r in done),
        }
    return out


def baselines_by_target(results: Results) -> list[Row]:
    """A line per target, a column per method: median size, or the best error in brackets."""
    rows = baseline_summary(results)
    targets = dict.fromkeys(name.split("/")[1] for name in rows)
    methods = dict.fromkeys(name.split("/")[0] for name in rows)
    lines = []
    for target in targets:
        line: Row = {"target": target, "planted": f"{TARGETS[target].num_parameters:,}"}
        for method in methods:
            found = rows.get(f"{method}/{target}")
            size = median(n for n in found["sizes"] if n is not None) if found else None
            missed = found["least_error_missed"] if found else None
            line[method] = (
                f"({missed:.2g})" if size is None and missed is not None else size and f"{size:,.0f}"
            )
        lines.append(line)
    return lines


def report(results: Results) -> Report:
    """Recovery, speed and baselines."""
    out = Report("Decomposition of planted targets")
    planted = {part: recovery_summary(results, part) for part in ("recovery", "unseen")}
    speed, baselines = speed_summary(results), baseline_summary(results)
    out.summary = {**planted, "speed": speed, "baselines": baselines}
    out.tabulate(
        "Planted structures",
        ["target", "exact", "median s", "median units", "misses: size for planted"],
        [
            (
                k,
                f"{v['exact']}/{v['of']}",
                v["median_seconds"],
                v["median_units"],
                ", ".join(f"{size:,} for {planted:,}" for _, size, planted in v["misses"]),
            )
            for part in planted.values()
            for k, v in part.items()
        ],
    )
    numbers = [(k, v) for k, v in speed.items() if not isinstance(v, dict)]
    out.tabulate("Speed", ["speed", "value"], [*numbers, *(speed["shares"] or {}).items()])
    shares = sorted((speed["shares"] or {}).items(), key=lambda item: -item[1])
    out.tabulate_rows(
        "Where the time goes", [{"part": name, "share": f"{100 * value:.0f} %"} for name, value in shares]
    )
    columns = ("least_error_missed", "median_seconds")
    out.tabulate(
        "Baselines",
        ["baseline", "reached", "sizes", "best error", "median s"],
        [
            (
                k,
                f"{v['reached']}/{v['of']}",
                "; ".join("missed" if n is None else f"{n:,}" for n in v["sizes"]),
                *(v[c] for c in columns),
            )
            for k, v in baselines.items()
        ],
    )
    out.tabulate_rows("Baselines by target", baselines_by_target(results))
    return out


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Cases of the chosen parts."""
    seeds = settings["seeds"]
    makers: dict[str, Callable[[], Sequence[Case]]] = {
        "recovery": lambda: recovery_cases(seeds),
        "unseen": lambda: unseen_cases(seeds),
        "baselines": lambda: baseline_cases(settings),
        "speed": lambda: speed_cases(seeds),
    }
    return [c for part, make in makers.items() if part in settings.parts for c in make()]


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """Run one case."""
    return {"speed": measure_speed, "baselines": run_baseline}.get(case.part, recover)(case.params)


BENCHMARK = Benchmark(
    "decomposition",
    "planted structures found at their exact size, and how fast; TensorLy, TT-SVD, HOSVD, the paper's rules",
    cases,
    work,
    report,
    parts=("recovery", "unseen", "speed", "baselines"),
    uses=("tasks.decompose", "baselines"),
    options=(
        Option("seeds", 20, "seeds per target", quick=1),
        Option("baseline_seeds", 5, "seeds per target of the baselines", quick=1),
        Option("paper_seconds", 120.0, "limit of a run by the paper's rules", quick=5.0),
        Option("cp_ranks", (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 85), "of the CP baseline", quick=(1, 4)),
        Option("cp_iterations", 200, "sweeps of the CP baseline"),
    ),
)
