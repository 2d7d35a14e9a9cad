"""How many evaluations does a function take, and how many parameters, if the search chooses its points?

Ten standard test functions of seven variables with 16 points each, on even grids over their usual domains,
the variables in a random order; and a train, a ring and two triangles of rank 3 with normal cores over 16^6.
Beside `tensorgrow.approximate`, from the package teneva in the same run: TT-cross, whose ranks rise from one,
and ANOVA followed by ALS on random points. The rivals are told their error on 10,000 points free of charge,
and stop when it is met; ours pays for the points that it judges itself by. Errors are on 10,000 other points.
Rivals are left out where teneva is not installed (the extra "functions").
"""

from __future__ import annotations

import importlib
import importlib.util
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import tensorgrow as tg
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Case, Results, Row, stopwatch

from .benchmark import Benchmark, BenchmarkSettings, Option
from .completion.blind import TARGETS

__all__ = ["BENCHMARK"]

Function = Callable[[np.ndarray], np.ndarray]

VARIABLES, POINTS = 7, 16
TESTED = 10_000
ERRORS = (1e-3, 1e-6)
# Evaluations after which TT-cross has had enough; and the random points and ranks that ANOVA + ALS tries in
# turn.
MOST_EVALUATIONS = 200_000
RANDOM_POINTS, RANKS = (2_000, 10_000), (4, 8)


def schaffer(x: np.ndarray) -> np.ndarray:
    """Pairs of neighbours, oscillating."""
    z = x[:, :-1] ** 2 + x[:, 1:] ** 2
    return np.sum(0.5 + (np.sin(np.sqrt(z)) ** 2 - 0.5) / (1 + 0.001 * z) ** 2, 1)


def rosenbrock(x: np.ndarray) -> np.ndarray:
    """Pairs of neighbours, polynomial."""
    return np.sum(100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (x[:, :-1] - 1) ** 2, 1)


def ackley(x: np.ndarray) -> np.ndarray:
    """Of the distance from the origin, with waves."""
    far = -20 * np.exp(-0.2 * np.sqrt(np.mean(x**2, 1)))
    return far - np.exp(np.mean(np.cos(2 * np.pi * x), 1)) + 20 + np.e


def alpine(x: np.ndarray) -> np.ndarray:
    """A sum over variables."""
    return np.sum(np.abs(x * np.sin(x) + 0.1 * x), 1)


def griewank(x: np.ndarray) -> np.ndarray:
    """A sum and a product over variables."""
    return np.sum(x**2, 1) / 4000 - np.prod(np.cos(x / np.sqrt(_numbers(x))), 1) + 1


def dixon(x: np.ndarray) -> np.ndarray:
    """Pairs of neighbours, polynomial."""
    pairs = _numbers(x)[1:] * (2 * x[:, 1:] ** 2 - x[:, :-1]) ** 2
    return (x[:, 0] - 1) ** 2 + np.sum(pairs, 1)


def rastrigin(x: np.ndarray) -> np.ndarray:
    """A sum over variables."""
    return 10 * x.shape[1] + np.sum(x**2 - 10 * np.cos(2 * np.pi * x), 1)


def schwefel(x: np.ndarray) -> np.ndarray:
    """A sum over variables."""
    return -np.mean(x * np.sin(np.sqrt(np.abs(x))), 1)


def qing(x: np.ndarray) -> np.ndarray:
    """A sum over variables."""
    return np.sum((x**2 - _numbers(x)) ** 2, 1)


def pathological(x: np.ndarray) -> np.ndarray:
    """Pairs of neighbours of full rank."""
    a, b = x[:, :-1], x[:, 1:]
    waves = np.sin(np.sqrt(100 * a**2 + b**2)) ** 2 - 0.5
    return np.sum(0.5 + waves / (1 + 0.001 * (a - b) ** 4), 1)


def _numbers(x: np.ndarray) -> np.ndarray:
    return np.arange(1, x.shape[1] + 1)


DOMAINS: dict[str, tuple[Function, float, float]] = {
    "schaffer": (schaffer, -100.0, 100.0),
    "rosenbrock": (rosenbrock, -2.048, 2.048),
    "ackley": (ackley, -32.768, 32.768),
    "alpine": (alpine, -10.0, 10.0),
    "griewank": (griewank, -100.0, 100.0),
    "dixon": (dixon, -10.0, 10.0),
    "rastrigin": (rastrigin, -5.12, 5.12),
    "schwefel": (schwefel, 0.0, 500.0),
    "qing": (qing, 0.0, 500.0),
    "pathological": (pathological, -100.0, 100.0),
}
# Where TT-cross pays for the order of variables, or for cycles: at most a third of its evaluations is the
# goal.
SHUFFLED = ("schaffer", "rosenbrock", "dixon", "pathological", "ring", "two-triangles")
METHODS = ("tensorgrow", "TT-cross", "ANOVA + ALS")


def target(name: str, seed: int) -> tuple[Function, tuple[int, ...]]:
    """A function of positions, and its grid."""
    if name in DOMAINS:
        function, low, high = DOMAINS[name]
        grid = np.linspace(low, high, POINTS)
        order = np.random.default_rng(seed).permutation(VARIABLES)
        return lambda index: function(grid[index][:, order]), (POINTS,) * VARIABLES
    network = tg.TensorNetwork.random(TARGETS[name], random_state=seed)
    return lambda index: network.entries(torch.from_numpy(np.array(index))).numpy(), TARGETS[name].dims


def _learn(f: Function, shape: tuple[int, ...], error: float, seed: int) -> tuple[Row, Function]:
    result = tg.approximate(f, shape, max_error=error, max_evaluations=MOST_EVALUATIONS, random_state=seed)
    row = {
        "evaluations": result.info["evaluations"],
        "size": result.num_parameters,
        "judged": result.validation_error,
        "stop": result.stop.name,
    }
    return row, lambda index: np.asarray(result.predict(index))


def _cross(f: Function, shape: tuple[int, ...], error: float, seed: int) -> tuple[Row, Function]:
    teneva = importlib.import_module("teneva")
    where, values = _draw(f, shape, [seed, 1])
    told: dict[str, Any] = {"I_vld": where, "y_vld": values, "e_vld": error}
    info: Row = {}
    first = teneva.rand(list(shape), 1, seed=seed)
    cores = teneva.cross(f, first, m=MOST_EVALUATIONS, nswp=50, info=info, cache={}, **told)
    raw = sum(c.size for c in cores)
    cores = teneva.truncate(cores, 0.3 * error)
    row = {"evaluations": info["m"], "size": sum(c.size for c in cores), "raw": raw, "stop": info["stop"]}
    return row, lambda index: teneva.get_many(cores, index)


def _anova(f: Function, shape: tuple[int, ...], error: float, seed: int) -> tuple[Row, Function]:
    teneva = importlib.import_module("teneva")
    test, values = _draw(f, shape, [seed, 1])
    best: tuple[float, Row, Any] | None = None
    for count in RANDOM_POINTS:
        where = np.random.default_rng([seed, 2]).integers(0, shape, (count, len(shape)))
        known = f(where)
        for rank in RANKS:
            cores = teneva.anova(where, known, rank, order=1, seed=seed)
            cores = teneva.als(where, known, cores, nswp=50)
            found = _error(teneva.get_many(cores, test), values)
            size = sum(c.size for c in cores)
            if best is None or found < best[0]:
                best = found, {"evaluations": count, "size": size, "stop": f"rank {rank}"}, cores
            if found <= error:
                break
        if best is not None and best[0] <= error:
            break
    assert best is not None
    cores = best[2]
    return best[1], lambda index: teneva.get_many(cores, index)


RUNS = dict(zip(METHODS, (_learn, _cross, _anova)))


def _draw(f: Function, shape: tuple[int, ...], seed: list[int]) -> tuple[np.ndarray, np.ndarray]:
    where = np.random.default_rng(seed).integers(0, shape, (TESTED, len(shape)))
    return where, f(where)


def _error(found: np.ndarray, true: np.ndarray) -> float:
    return float(np.linalg.norm(found - true) / np.linalg.norm(true))


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """One method on one function at one error."""
    p = case.params
    f, shape = target(p["function"], p["seed"])
    with stopwatch() as watch:
        row, found = RUNS[p["method"]](f, shape, p["error"], p["seed"])
    test, values = _draw(f, shape, [p["seed"], 3])
    error = _error(found(test), values)
    return {**row, "tested": error, "seconds": watch.wall}


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Every function, error and method."""
    methods = METHODS if importlib.util.find_spec("teneva") else METHODS[:1]
    found = []
    for name in settings["functions"]:
        for error in ERRORS[: 1 if settings.quick else None]:
            for seed in range(settings["first"], settings["first"] + settings["seeds"]):
                for method in methods:
                    params = {"function": name, "error": error, "seed": seed, "method": method}
                    # Rivals depend on the library where it plants the network.
                    uses = None if method == METHODS[0] else () if name in DOMAINS else ("network",)
                    key = f"points/{name}/{error:g}/seed{seed}/{method}"
                    found.append(Case(key, params, uses=uses))
    return found


def _medians(pairs: dict[tuple[str, float, int], tuple[Row, Row]]) -> list[list[Any]]:
    """Evaluations and parameters of both methods, and how often TT-cross met the error."""
    groups: dict[tuple[str, float], list[tuple[Row, Row]]] = {}
    for (function, error, _), pair in pairs.items():
        groups.setdefault((function, error), []).append(pair)
    lines = []
    for (function, error), group in groups.items():
        fields = ("evaluations", "size")
        numbers = [statistics.median(r[n] for r in side) for side in zip(*group) for n in fields]
        reached = sum(cross["tested"] <= error for _, cross in group)
        lines.append([function, error, *numbers, f"{reached}/{len(group)}"])
    return lines


def report(results: Results) -> Report:
    """A table of every case, and the goals."""
    out = Report("Functions from chosen points")
    rows = results.rows("points/")
    labels = ("function", "error", "seed", "method")
    numbers = ("evaluations", "size", "tested", "seconds", "stop")
    out.tabulate(
        "Evaluations and parameters",
        (*labels, *numbers),
        [[*(r["params"][n] for n in labels), *(r.get(n) for n in numbers)] for r in rows],
    )
    pairs: dict[tuple[str, float, int], dict[str, Row]] = {}
    for r in rows:
        p = r["params"]
        pairs.setdefault((p["function"], p["error"], p["seed"]), {})[p["method"]] = r
    both = {
        k: (g[METHODS[0]], g[METHODS[1]]) for k, g in pairs.items() if METHODS[1] in g and METHODS[0] in g
    }
    out.tabulate(
        "Medians over seeds",
        ("function", "error", "ours", "parameters", "TT-cross", "its parameters", "it reached"),
        _medians(both),
    )
    shuffled = {k: g for k, g in both.items() if k[0] in SHUFFLED}
    goals = (
        ("the error is met on other points", both, lambda k, ours, _: ours["tested"] <= k[1]),
        (
            "at most TT-cross's evaluations",
            both,
            lambda _, ours, cross: ours["evaluations"] <= cross["evaluations"],
        ),
        (
            "at most a third of them, shuffled neighbours and cycles",
            shuffled,
            lambda _, ours, cross: 3 * ours["evaluations"] <= cross["evaluations"],
        ),
        (
            "never more parameters than its truncated train",
            both,
            lambda _, ours, cross: ours["size"] <= cross["size"],
        ),
    )
    claims = []
    for text, among, met in goals:
        won = sum(bool(met(k, *pair)) for k, pair in among.items())
        claims.append({"claim": text, "cases": len(among), "won": won, "met": 0 < len(among) == won})
        out.say(f"{text}: {won} of {len(among)}")
    out.summary = {"claims": claims}
    return out


BENCHMARK = Benchmark(
    "functions",
    "evaluations and parameters of functions on a grid, from chosen points, beside TT-cross and ANOVA + ALS",
    cases,
    work,
    report,
    uses=("tasks.approximate",),
    options=(
        Option("functions", (*DOMAINS, *TARGETS), "functions", quick=("rosenbrock", "ring")),
        # The search was made with seeds below 60.
        Option("first", 100, "first seed"),
        Option("seeds", 2, "orders of variables, or cores", quick=1),
    ),
)
