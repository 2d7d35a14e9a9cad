"""How likely do learned networks make unseen samples, beside trains of the same size?

Bars and stripes on 3x3 and 4x4 pixels (14 and 30 patterns, all equally likely: no network can have less than
log 14 and log 30 nats): networks are fitted to all patterns within a budget of parameters. Two real data sets
that come with scikit-learn: handwritten digits, averaged to 4x4 pixels and cut at half of the range (1,797
samples), and the ten mean features of breast cancer cells, cut at their medians, with the diagnosis (569
samples); a fifth of the samples is for the test, a tenth of the others is held out to choose by.

Rivals: a tensor train over the columns in their order (pixels row by row), of the largest uniform rank that
is not larger than the learned network, what is left of the parameters spent on middle edges; the best of
several random starts, by held-out samples where there are some, trained with the same options. A train whose
ranks grow as ours do (``edges="chain"``), within the size of the learned network and the same time. And
independent variables. All are Born densities unless the key says "nonnegative".

Two of the twenty binary sets that density estimators are compared on, with their published split: nltcs (16
variables) and plants (69, so 2,346 edges to choose from), within a minute and five, beside a train of rank 32
in the order of the variables, trained in the same way for as long, and a probabilistic circuit over the
Chow-Liu tree of the data where the library cirkit is on PYTHONPATH, for as long too. Nats are per variable
there.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tensorgrow as tg
from tensorgrow.baselines.formats import capped_train
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Case, Results, Row, median, stopwatch

from .benchmark import Benchmark, BenchmarkSettings, Option

__all__ = ["BENCHMARK"]

# Name: budget of parameters (None: held-out samples decide), limit in seconds, kinds.
PARTS: dict[str, dict[str, Any]] = {
    "bars3": {"max_parameters": 130, "max_seconds": 60.0, "kinds": ("born", "nonnegative")},
    "cancer": {"max_parameters": None, "max_seconds": 60.0, "kinds": ("born", "nonnegative")},
    "digits": {"max_parameters": None, "max_seconds": 150.0, "kinds": ("born",)},
    "bars4": {"max_parameters": 300, "max_seconds": 240.0, "kinds": ("born",)},
}

# Binary sets with a published split, by the seconds they get.
PUBLISHED = {"nltcs": 60.0, "plants": 300.0}
UNITS = 16  # of every input and sum of a circuit
CHAIN_RANK = 32  # of the trains that others report: 29,000 parameters on nltcs
# Nats per variable that others report, on validation samples; other methods, other machines.
REPORTED = {
    "nltcs": "chain of rank 32 0.3759, DMRG 0.3839, Einsum network 0.38",
    "plants": "chain of rank 32 0.2410, DMRG 0.2016, Einsum network 0.20",
}


# -- data ----------------------------------------------------------------------------------------------


def bars_and_stripes(side: int) -> np.ndarray:
    """Every pattern once."""
    lines = np.array(list(itertools.product((0, 1), repeat=side)))
    bars = np.repeat(lines[:, :, None], side, 2).reshape(len(lines), -1)
    stripes = np.repeat(lines[:, None, :], side, 1).reshape(len(lines), -1)
    return np.unique(np.concatenate([bars, stripes]), axis=0)


def digits() -> np.ndarray:
    """Handwritten digits, 4x4 pixels, black and white."""
    from sklearn.datasets import load_digits

    small = load_digits().images.reshape(-1, 4, 2, 4, 2).mean((2, 4))
    return (small.reshape(-1, 16) > 8).astype(int)


def cancer() -> np.ndarray:
    """Ten features above their medians or not, and the diagnosis."""
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    features = found.data[:, :10]
    return np.column_stack([features > np.median(features, 0), found.target]).astype(int)


def split(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples to learn from, and for the test; the same ones where every pattern is known."""
    if name.startswith("bars"):
        x = bars_and_stripes(int(name[-1]))
        return x, x
    x = {"digits": digits, "cancer": cancer}[name]()
    order = np.random.default_rng(seed).permutation(len(x))
    count = round(0.2 * len(x))
    return x[order[count:]], x[order[:count]]


def published(file: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Samples to learn from, which of them to hold out, and those for the test."""
    with np.load(file) as parts:
        fitted, held, test = (parts[name].astype(np.int64) for name in ("train", "valid", "test"))
    return np.concatenate([fitted, held]), np.arange(len(fitted) + len(held)) >= len(fitted), test


# -- methods -------------------------------------------------------------------------------------------


def train_of_size(dims: tuple[int, ...], budget: int) -> tg.Structure:
    """The train of the largest uniform rank within a budget, its middle edges one larger where they fit."""
    p = len(dims)
    most = [min(math.prod(dims[: k + 1]), math.prod(dims[k + 1 :])) for k in range(p - 1)]
    ranks = [1] * (p - 1)
    middle_first = sorted(range(p - 1), key=lambda k: abs(2 * k - (p - 2)))
    rank, found = 1, tg.Structure.tensor_train(dims, ranks)
    while any(r < m for r, m in zip(ranks, most)):
        rank += 1
        for k in middle_first:
            tried = [*ranks]
            tried[k] = min(rank, most[k])
            larger = tg.Structure.tensor_train(dims, tried)
            if larger.num_parameters > budget:
                return found
            ranks, found = tried, larger
    return found


def independent(x: np.ndarray, test: np.ndarray, dims: tuple[int, ...]) -> float:
    """Nats per test sample where every variable has its frequencies alone."""
    total = 0.0
    for k, d in enumerate(dims):
        counts = np.bincount(x[:, k], minlength=d) + 0.5
        total -= float(np.log(counts / counts.sum())[test[:, k]].mean())
    return total


def describe(r: tg.DensityResult, test: np.ndarray) -> Row:
    """Size and nats of a run."""
    return {
        "size": r.num_parameters,
        "train": r.train_nll,
        "validation": r.validation_nll,
        "test": r.model.nll(test),
        "stop": r.stop.name,
        "ranks": r.structure.to_dict()["ranks"],
    }


def common_options(params: Row, x: np.ndarray) -> Row:
    """What all methods share."""
    held: Any = False
    if not params["data"].startswith("bars"):
        held = np.random.default_rng(params["seed"]).permutation(len(x)) < round(0.1 * len(x))
    dims = (2,) * x.shape[1]
    return {"dims": dims, "kind": params["kind"], "validation": held, "random_state": params["seed"]}


def grow_chain(params: Row) -> Row:
    """A train whose ranks are learned."""
    x, test = split(params["data"], params["seed"])
    with stopwatch() as watch:
        found = tg.learn_density(
            x,
            edges="chain",
            max_parameters=params["max_parameters"],
            max_seconds=params["max_seconds"],
            **common_options(params, x),
        )
    return {"chain": {**describe(found, test), "seconds": watch.wall, "cpu_seconds": watch.cpu}}


def learn(params: Row) -> Row:
    """Every other method on one data set."""
    name, kind, seed = params["data"], params["kind"], params["seed"]
    x, test = split(name, seed)
    common = common_options(params, x)
    dims = common["dims"]
    with stopwatch() as watch:
        learned = tg.learn_density(
            x, max_parameters=params["max_parameters"], max_seconds=params["max_seconds"], **common
        )
    structure = train_of_size(dims, learned.num_parameters)
    best: tg.DensityResult | None = None
    with stopwatch() as train_watch:
        for start in range(params["starts"]):
            drawn = tg.TensorNetwork.random(structure, random_state=1000 * seed + start)
            if kind == "nonnegative":
                drawn = tg.TensorNetwork(structure, [c.abs() for c in drawn.cores])
            found = tg.learn_density(x, init=drawn, max_steps=0, **common)
            score = found.train_nll if found.validation_nll is None else found.validation_nll
            if best is None or score < (
                best.train_nll if best.validation_nll is None else best.validation_nll
            ):
                best = found
    assert best is not None
    return {
        "samples": len(x),
        "least": math.log(len(x)) if name.startswith("bars") else None,
        "independent": independent(x, test, dims),
        "learned": {**describe(learned, test), "seconds": watch.wall, "cpu_seconds": watch.cpu},
        "train": {**describe(best, test), "seconds": train_watch.wall, "cpu_seconds": train_watch.cpu},
        "hit_limit": learned.stop is tg.StopReason.MAX_SECONDS,
    }


def learn_published(params: Row, folder: Path) -> Row:
    """One run with the defaults, or a train of fixed rank trained for as long."""
    x, held, test = published(folder / f"{params['data']}.npz")
    options: Row = {"validation": held, "max_seconds": params["max_seconds"], "random_state": params["seed"]}
    if "rank" in params:
        chain = capped_train((x.max(0) + 1).tolist(), params["rank"])  # a variable of plants has one value
        start = tg.TensorNetwork.random(chain, random_state=params["seed"])
        options |= {"init": start, "max_steps": 0}
    with stopwatch() as watch:
        learned = tg.learn_density(x, **options)
    found = describe(learned, test)
    return {
        "variables": x.shape[1],
        "independent": independent(x[~held], test, learned.structure.dims),
        "published": {**found, "seconds": watch.wall, "cpu_seconds": watch.cpu},
    }


def learn_circuit(params: Row, folder: Path) -> Row:
    """A probabilistic circuit over the Chow-Liu tree of the data, by the library cirkit and Adam.

    The epoch with the best held-out likelihood counts.
    """
    from cirkit.pipeline import compile as compile_circuit
    from cirkit.templates.data_modalities import tabular_data

    x, held, test = published(folder / f"{params['data']}.npz")
    fitted, kept, unseen = (torch.from_numpy(part) for part in (x[~held], x[held], test))
    torch.manual_seed(params["seed"])
    with stopwatch() as watch:
        circuit = compile_circuit(
            tabular_data(
                region_graph="chow-liu-tree",
                data=fitted,
                input_layers={"name": "categorical", "args": {"num_categories": 2}},
                num_input_units=params["units"],
                sum_product_layer="cp",
                num_sum_units=params["units"],
            )
        )
        adam = torch.optim.Adam(circuit.parameters(), lr=1e-2)
        best, deadline = (math.inf, math.inf), time.perf_counter() + params["max_seconds"]
        while time.perf_counter() < deadline:
            for rows in torch.randperm(len(fitted)).split(256):
                adam.zero_grad()
                (-circuit(fitted[rows]).mean()).backward()
                adam.step()
            with torch.no_grad():
                best = min(best, (-float(circuit(kept).mean()), -float(circuit(unseen).mean())))
    size = sum(p.numel() for p in circuit.parameters())
    return {
        "variables": x.shape[1],
        "independent": independent(x[~held], test, (2,) * x.shape[1]),
        "published": {
            "size": size,
            "validation": best[0],
            "test": best[1],
            "seconds": watch.wall,
            "cpu_seconds": watch.cpu,
        },
    }


# -- cases and tables ----------------------------------------------------------------------------------


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Seeds come last, so that a run that is stopped has some of everything."""
    found = []
    for seed in range(settings["seeds"]):
        for name in settings.parts:
            if name in PUBLISHED:
                settings.folder("density")  # refused before anything is run
                params = {"data": name, "seed": seed, "max_seconds": PUBLISHED[name] * settings["patience"]}
                found.append(Case(f"{name}/{seed}", params))
                found.append(Case(f"{name}/{seed}/chain{CHAIN_RANK}", {**params, "rank": CHAIN_RANK}))
                if importlib.util.find_spec("cirkit") is not None:
                    found.append(Case(f"{name}/{seed}/circuit", {**params, "units": UNITS}, uses=()))
                continue
            part = PARTS[name]
            for kind in part["kinds"]:
                params = {
                    "data": name,
                    "kind": kind,
                    "seed": seed,
                    "starts": settings["starts"],
                    "max_parameters": part["max_parameters"],
                    "max_seconds": part["max_seconds"] * settings["patience"],
                }
                found.append(Case(f"{name}/{kind}/{seed}", params))
    return found


def chain_cases(results: Results, first: Sequence[Case]) -> list[Case]:
    """A grown train for every finished case, of its size at most."""
    found = []
    for case in first:
        row = results.cases.get(case.key, {})
        if "learned" in row:
            names = ("data", "kind", "seed", "max_seconds")
            params = {**{n: case.params[n] for n in names}, "max_parameters": row["learned"]["size"]}
            found.append(Case(f"{case.key}/chain", params))
    return found


def table(results: Results) -> list[Row]:
    """Medians over the seeds."""
    rows = []
    for name, part in PARTS.items():
        for kind in part["kinds"]:
            rows_of = results.rows(f"{name}/{kind}/")
            found = [r for r in rows_of if "learned" in r]
            chains = [r["chain"] for r in rows_of if "chain" in r]
            if not found:
                continue
            if len(chains) < len(found):  # medians over other seeds could not be compared
                chains = []
            rows.append(
                {
                    "data": name,
                    "kind": kind,
                    "least possible": found[0]["least"],
                    "independent": median(r["independent"] for r in found),
                    "train (nats)": median(r["train"]["test"] for r in found),
                    "grown train (nats)": median(r["test"] for r in chains),
                    "learned (nats)": median(r["learned"]["test"] for r in found),
                    "train size": median(r["train"]["size"] for r in found),
                    "grown train size": median(r["size"] for r in chains),
                    "learned size": median(r["learned"]["size"] for r in found),
                    "seconds": median(r["learned"]["seconds"] for r in found),
                    "seeds": len(found),
                }
            )
    return rows


def beside(rows: list[Row]) -> list[Row]:
    """Nats per sample, parameters in brackets; the least is bold."""
    ways = {"train": "fixed train", "grown train": "grown train", "learned": "learned"}
    lines = []
    for row in rows:
        nats = {name: row[f"{way} (nats)"] for way, name in ways.items()}
        least = min(n for n in nats.values() if n is not None)
        line: Row = {c: row[c] for c in ("data", "kind", "seeds", "least possible", "independent")}
        for way, name in ways.items():
            text = None if nats[name] is None else f"{nats[name]:.3f} ({row[f'{way} size']:.0f})"
            line[name] = f"**{text}**" if nats[name] == least else text
        lines.append(line)
    return lines


def published_table(results: Results) -> list[Row]:
    """Nats per variable of the sets with a published split, medians over the seeds."""
    rows = []
    for name in PUBLISHED:
        groups: dict[str, list[Row]] = {
            "learned": [],
            f"chain of rank {CHAIN_RANK}": [],
            "circuit (cirkit)": [],
        }
        for row in (r for r in results.rows(f"{name}/") if "published" in r):
            which = 1 if "rank" in row["params"] else 2 if "units" in row["params"] else 0
            groups[list(groups)[which]].append(row)
        for label, found in groups.items():
            if not found:
                continue
            row = {"data": name, "network": label}
            row["independent"] = median(r["independent"] / r["variables"] for r in found)
            for part in ("validation", "test"):
                row[part] = median(r["published"][part] / r["variables"] for r in found)
            row |= {key: median(r["published"][key] for r in found) for key in ("size", "cpu_seconds")}
            rows.append({**row, "seeds": len(found), "elsewhere": REPORTED[name]})
    return rows


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """A grown train, a run on a published split, or every other method."""
    if "units" in case.params:
        return learn_circuit(case.params, settings.folder("density"))
    if case.params["data"] in PUBLISHED:
        return learn_published(case.params, settings.folder("density"))
    return grow_chain(case.params) if case.key.endswith("/chain") else learn(case.params)


def report(results: Results) -> Report:
    """Nats per sample and sizes."""
    out = Report("Densities")
    rows = table(results)
    out.summary = {"densities": rows}
    out.tabulate_rows("Medians over the seeds", rows)
    out.tabulate_rows("Beside trains", beside(rows))
    splits = published_table(results)
    if splits:
        out.summary["published splits"] = splits
        out.tabulate_rows("Published splits, nats per variable", splits)
    return out


BENCHMARK = Benchmark(
    "density",
    "nats per sample of learned densities beside trains of the same size and independent variables",
    cases,
    work,
    report,
    follow_up=chain_cases,
    parts=(*PARTS, *PUBLISHED),
    uses=("tasks.density",),
    options=(
        Option("seeds", 2, "splits and starts per data set", quick=1),
        Option("starts", 3, "random starts of the train", quick=1),
        Option("patience", 1.0, "multiplies the time limits", quick=0.05),
    ),
)
