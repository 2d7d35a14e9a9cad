"""Do networks get smaller again after they were computed with?

*Copies*: the sum of eight equal copies of a random train, ring or graph must return to the size of one.
*Squares*: entrywise squares of smooth fields, given as trains, against `round` of torchTT at the same error.
*Order*: trains over 30 binary legs of which neighbours were swapped, many times and exactly, so that ranks
rose; the right order is not told. *Qubits*: states over 40 qubits, in a process of its own. *Fit*: a smaller
train for a train, the graph given, beside `fit` of quimb from the same start, both in processes of their own.
*States*: a GHZ and a W state, a cluster state of 4x4 qubits and a random circuit's, as quimb has them.

None of the tensors is formed, except to measure torchTT's error. Trains like those of *order*, and a ring and
graphs like those of *copies*, were at hand while the search was written.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import reduce
from multiprocessing import get_context
from operator import add
from typing import Any

import numpy as np
import torch

import tensorgrow as tg
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Case, Results, Row, stopwatch

from .benchmark import Benchmark, BenchmarkSettings, Option
from .scale.disk import status

__all__ = ["BENCHMARK"]

COPIES = 8
LEGS = 30


def random_graph(seed: int) -> tg.Structure:
    """Eight nodes, a random tree and three more edges, all of rank 2."""
    rng = random.Random(seed)
    edges = {(rng.randrange(k), k): 2 for k in range(1, 8)}
    while len(edges) < 10:
        i, j = sorted(rng.sample(range(8), 2))
        edges[i, j] = 2
    return tg.Structure((5,) * 8, edges)


GRAPHS: dict[str, Callable[[int], tg.Structure]] = {
    "train": lambda seed: tg.Structure.tensor_train((4,) * 12, 3),
    "ring": lambda seed: tg.Structure.tensor_ring((4,) * 10, 3),
    "graph": random_graph,
}
FIELDS: dict[str, Callable[..., Any]] = {
    "waves": lambda x, y, z, t: np.sin(3 * x * z + t) * np.exp(-y * t),
    "source": lambda x, y, z, t: 1 / (1 + (x - y) ** 2 + (z - t) ** 2),
    "front": lambda x, y, z, t: np.tanh(4 * (x + 0.5 * y - t)) + 0.3 * np.cos(5 * z * y),
}


def normalised(structure: tg.Structure, seed: int) -> tg.TensorNetwork:
    network = tg.TensorNetwork.random(structure, random_state=seed)
    return network / network.norm()


def copies(params: Row) -> Row:
    """The sum of equal networks."""
    one = normalised(GRAPHS[params["graph"]](params["seed"]), params["seed"])
    total = reduce(add, [one] * COPIES)
    with stopwatch() as watch:
        result = tg.decompose(total, max_error=1e-6, random_state=params["seed"])
    return {
        "size": one.num_parameters,
        "given": total.num_parameters,
        "found": result.num_parameters,
        "error": result.relative_error,
        "seconds": watch.wall,
    }


def squares(params: Row) -> Row:
    """The entrywise square of a field, rounded at the error that torchTT ends with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its compiled part, which is not there
        import torchtt
    axes = np.meshgrid(*[np.linspace(0, 1, 24)] * 4, indexing="ij")
    train = torchtt.TT(torch.tensor(FIELDS[params["field"]](*axes)), eps=1e-6)
    square = train * train
    with stopwatch() as theirs:
        rounded = square.round(params["eps"])
    full = square.full()
    error = float((rounded.full() - full).norm() / full.norm())
    structure = tg.Structure.tensor_train((24,) * 4, [int(r) for r in square.R[1:-1]])
    cores = [c.movedim(1, 0).reshape(structure.core_shape(k)) for k, c in enumerate(square.cores)]
    with stopwatch() as ours:
        result = tg.decompose(tg.TensorNetwork(structure, cores), max_error=error, random_state=0)
    return {
        "given": structure.num_parameters,
        "torchtt": sum(c.numel() for c in rounded.cores),
        "torchtt_error": error,
        "torchtt_seconds": theirs.wall,
        "found": result.num_parameters,
        "error": result.relative_error,
        "seconds": ours.wall,
    }


def swapped_train(rank: int, swaps: int, seed: int) -> tg.TensorNetwork:
    """A random train after so many random swaps of neighbouring legs, each by an SVD."""
    one = tg.Structure.tensor_train((2,) * LEGS, rank)
    source = tg.TensorNetwork.random(one, random_state=seed)
    cores = [c.movedim(0, 1) if c.dim() == 3 else c for c in source.cores]
    cores = [c[None] if k == 0 else c.T[..., None] if k == LEGS - 1 else c for k, c in enumerate(cores)]
    rng = random.Random(seed)
    for _ in range(swaps):
        k = rng.randrange(LEGS - 1)
        pair = torch.einsum("aib,bjc->ajic", cores[k], cores[k + 1])
        a, j, i, c = pair.shape
        u, s, vh = torch.linalg.svd(pair.reshape(a * j, i * c), full_matrices=False)
        r = int((s > 1e-12 * s[0]).sum())
        cores[k], cores[k + 1] = (u[:, :r] * s[:r]).reshape(a, j, r), vh[:r].reshape(r, i, c)
    structure = tg.Structure.tensor_train((2,) * LEGS, [c.shape[2] for c in cores[:-1]])
    return tg.TensorNetwork(
        structure, [c.movedim(1, 0).reshape(structure.core_shape(k)) for k, c in enumerate(cores)]
    )


def order(params: Row) -> Row:
    """A train in a wrong order of its legs."""
    target = swapped_train(params["rank"], params["swaps"], params["seed"])
    ranks = [min(params["rank"], 2 ** min(k + 1, LEGS - 1 - k)) for k in range(LEGS - 1)]
    with stopwatch() as watch:
        result = tg.decompose(target, max_error=1e-8, random_state=0)
    return {
        "right": tg.Structure.tensor_train((2,) * LEGS, ranks).num_parameters,
        "given": target.num_parameters,
        "largest_rank": max(target.structure.ranks.values()),
        "found": result.num_parameters,
        "error": result.relative_error,
        "seconds": watch.wall,
    }


def qubits(params: Row) -> Row:
    """A state over 40 qubits: a train plus a multiple of it."""
    one = normalised(tg.Structure.tensor_train((2,) * params["qubits"], 4), 0)
    total = one + 0.5 * one
    before = status("VmRSS")
    with stopwatch() as watch:
        result = tg.decompose(total, max_error=params["max_error"], random_state=0)
    return {
        "given": total.num_parameters,
        "found": result.num_parameters,
        "error": result.relative_error,
        "process_bytes": status("VmHWM"),
        "taken_bytes": status("VmHWM") - before,
        "seconds": watch.wall,
    }


def fit(params: Row) -> Row:
    """A train of a smaller rank for a train, from the same random start."""
    dims = (2,) * 20
    target = tg.interop.to_quimb(normalised(tg.Structure.tensor_train(dims, 16), 0))
    structure = tg.Structure.tensor_train(dims, params["rank"])
    start = normalised(structure, 1)
    before = status("VmRSS")
    with stopwatch() as watch:
        if params["method"] == "quimb":
            begin = tg.interop.to_quimb(start)
            fitted = begin.fit(target, method="als", steps=100, tol=1e-7, progbar=False)
            network = tg.interop.from_quimb(fitted)
        else:
            network = tg.fit(target, structure, init=start, max_sweeps=100, random_state=0).network
    given = tg.interop.from_quimb(target)
    return {
        "error": (given - network).norm() / given.norm(),
        "taken_bytes": status("VmHWM") - before,
        "seconds": watch.wall,
    }


def cluster_state() -> Any:
    """The cluster state of 4x4 qubits, a tensor for every gate of quimb's circuit."""
    import quimb.tensor as qtn

    circuit = qtn.Circuit(16)
    for qubit in range(16):
        circuit.h(qubit)
    for qubit in range(16):
        if qubit % 4 < 3:
            circuit.cz(qubit, qubit + 1)
        if qubit < 12:
            circuit.cz(qubit, qubit + 4)
    return circuit.psi


def circuit_state() -> Any:
    """The state of a random circuit on ten qubits, four layers of gates."""
    import quimb.tensor as qtn

    rng = random.Random(0)
    circuit = qtn.Circuit(10)
    for layer in range(4):
        for qubit in range(10):
            circuit.u3(*(3 * rng.random() for _ in range(3)), qubit)
        for qubit in range(layer % 2, 9, 2):
            circuit.cz(qubit, qubit + 1)
    return circuit.psi


def named_state(name: str) -> Any:
    import quimb.tensor as qtn

    makers = {
        "GHZ": lambda: qtn.MPS_ghz_state(20),
        "W": lambda: qtn.MPS_w_state(20),
        "cluster": cluster_state,
        "circuit": circuit_state,
    }
    return makers[name]()


def states(params: Row) -> Row:
    """A quantum state as quimb has it."""
    given = tg.interop.from_quimb(named_state(params["state"]))
    with stopwatch() as watch:
        result = tg.decompose(given, max_error=1e-6, random_state=0)
    return {
        "given": given.num_parameters,
        "found": result.num_parameters,
        "edges": len(result.structure.edges),
        "error": result.relative_error,
        "seconds": watch.wall,
    }


WORK = {"copies": copies, "squares": squares, "order": order, "qubits": qubits, "fit": fit, "states": states}


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """One case; what memory is measured of runs in a process of its own."""
    part = case.key.split("/")[0]
    if part not in ("qubits", "fit"):
        return WORK[part](case.params)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # quimb starts processes of its own
        return pool.submit(WORK[part], case.params).result()


def cases(settings: BenchmarkSettings) -> list[Case]:
    """All parts."""
    found = [
        Case(f"copies/{graph}/seed{seed}", {"graph": graph, "seed": seed})
        for graph in GRAPHS
        for seed in range(settings["seeds"])
    ]
    found += [
        Case(f"squares/{field}/{eps:g}", {"field": field, "eps": eps})
        for field in FIELDS
        for eps in settings["errors"]
    ]
    found += [
        Case(f"order/rank{rank}/seed{seed}", {"rank": rank, "swaps": swaps, "seed": seed})
        for rank, swaps in ((2, 300), (3, 100))
        for seed in range(settings["orders"])
    ]
    found += [Case(f"qubits/40/{error:g}", {"qubits": 40, "max_error": error}) for error in (1e-10, 1e-1)]
    found += [
        Case(f"fit/rank{rank}/{method}", {"rank": rank, "method": method})
        for rank in (4, 8)
        for method in ("tensorgrow", "quimb")
    ]
    found += [Case(f"states/{name}", {"state": name}) for name in ("GHZ", "W", "cluster", "circuit")]
    return [case for case in found if case.key.split("/")[0] in settings.parts]


def report(results: Results) -> Report:
    """A table per part, and what was to be shown."""
    out = Report("Rounding")
    claims = []

    def claim(text: str, won: int, of: int, needed: float = 1.0) -> None:
        claims.append({"claim": text, "cases": of, "won": won, "met": of > 0 and won >= needed * of})
        out.say(f"{text}: {won} of {of}")

    for graph in GRAPHS:
        rows = results.rows(f"copies/{graph}/")
        won = sum(r["found"] <= r["size"] for r in rows)
        claim(f"eight copies of a {graph} return to its size", won, len(rows), 0.95)
    columns = {
        "copies": ("size", "given", "found", "error", "seconds"),
        "squares": ("given", "torchtt", "torchtt_error", "torchtt_seconds", "found", "error", "seconds"),
        "order": ("right", "given", "largest_rank", "found", "error", "seconds"),
        "qubits": ("given", "found", "error", "process_bytes", "taken_bytes", "seconds"),
        "fit": ("error", "taken_bytes", "seconds"),
        "states": ("given", "found", "edges", "error", "seconds"),
    }
    for part, names in columns.items():
        rows = results.rows(f"{part}/")
        table = [[" ".join(map(str, r["params"].values())), *(r.get(n) for n in names)] for r in rows]
        out.tabulate(part, ("case", *names), table)
    rows = results.rows("squares/")
    won = sum(r["found"] < r["torchtt"] and r["error"] <= r["torchtt_error"] for r in rows)
    claim("squares of fields are smaller than torchTT's at its error", won, len(rows))
    rows = results.rows("order/")
    claim("at most the train in the right order", sum(r["found"] <= r["right"] for r in rows), len(rows))
    rows = results.rows("qubits/")
    claim("40 qubits in a process under 1 GB", sum(r["process_bytes"] < 1e9 for r in rows), len(rows))
    pairs: dict[int, dict[str, Row]] = {}
    for r in results.rows("fit/"):
        pairs.setdefault(r["params"]["rank"], {})[r["params"]["method"]] = r
    both = [p for p in pairs.values() if len(p) == 2]
    good = [p for p in both if p["tensorgrow"]["error"] <= 1.001 * p["quimb"]["error"]]
    faster = [p for p in good if p["tensorgrow"]["seconds"] <= p["quimb"]["seconds"]]
    claim("fits are no worse than quimb's, and faster", len(faster), len(both))
    seconds = [r["seconds"] for r in results.rows("copies/")]
    if seconds:
        out.say(f"copies: {math.fsum(seconds) / len(seconds):.1f} s on average")
    out.summary = {"claims": claims}
    return out


BENCHMARK = Benchmark(
    "calculus",
    "networks that were computed with, made small again, beside torchTT and quimb",
    cases,
    work,
    report,
    parts=tuple(WORK),
    options=(
        Option("seeds", 20, "seeds of copies", quick=1),
        Option("errors", (1e-2, 1e-4), "errors that torchTT is asked for", quick=(1e-2,)),
        Option("orders", 5, "seeds of swapped trains", quick=1),
    ),
)
