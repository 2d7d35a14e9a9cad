"""How fast are network layers against dense ones, against rebuilding the weight, and against TensorLy-Torch?

Every case is one layer, structure and number of rows. Contenders take turns, so that whatever else the
machine does hits all of them alike; each gets an unmeasured call before every measured one. Medians and
minima of seconds, and peak memory beyond what lay there, of the forward pass alone (no gradients) and with
the backward pass to input and parameters, for

* linear: ``torch.nn.Linear`` of the same size,
* auto: TNLinear as it is, which chooses by counted flops and bytes,
* rebuild and cores: TNLinear made to do one or the other,
* tensorly and tensorly_rebuilt: ``tltorch.FactorizedLinear`` (block tensor train of the same ranks) in its
  two implementations, for trains, where it is installed or on PYTHONPATH.

The part `kinds` has convolutions (256 to 256 channels, 3x3) and embeddings (50,000 x 768) in several forms;
"linear" is the dense layer there, and TensorLy-Torch's are its Tucker convolution and its embedding of block
tensor trains.

The part `rates` measures what operations cost on the device, in the terms of `nn/layer/costs.py`.

Claims: auto is never slower than rebuild, and faster than both implementations of TensorLy-Torch everywhere
(within the noise of 10 %).
"""

from __future__ import annotations

import copy
import importlib.util
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

import tensorgrow as tg
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Case, Results, Row, geometric_mean
from tensorgrow.nn.layer.costs import machine_of
from tensorgrow.nn.layer.plans import dense_plan
from tensorgrow.nn.layer.products import NO_LIMIT
from tensorgrow.nn.layer.tn_layer import TNLayer

from ..benchmark import DEVICE, Benchmark, BenchmarkSettings, Option
from ..timing import call_seconds
from . import kinds
from .rates import measure_rates

__all__ = ["BENCHMARK"]

SHAPES = {"1024x1024": ((4,) * 5, (4,) * 5), "4096x4096": ((8,) * 4, (8,) * 4)}
STRUCTURES = (("train", 2), ("train", 4), ("train", 8), ("train", 16), ("ring", 4), ("complete", 2))
ROWS = (1, 16, 64, 256, 1024, 4096)
PASSES = ("forward", "both")
RIVALS = ("tensorly", "tensorly_rebuilt")
# Multiplications beyond which only these structures are measured on the CPU: a case takes minutes.
HEAVY = 1 << 35
HEAVY_STRUCTURES = (("train", 4), ("train", 16))
# Slower by more than this counts against a claim.
NOISE = 1.1


def graph(name: str, dims: tuple[int, ...], rank: int) -> tg.Structure:
    """A structure by name."""
    if name == "train":
        return tg.Structure.tensor_train(dims, rank)
    if name == "ring":
        return tg.Structure.tensor_ring(dims, rank)
    return tg.Structure.complete(dims, rank)


# -- measuring -----------------------------------------------------------------------------------------


def in_turns(calls: dict[str, Callable[[], Any]], device: str, budget: float) -> dict[str, list[float]]:
    """Seconds of several calls, taken round by round within a time budget; at least two or three rounds."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    cpu_time = device == "cpu" and torch.get_num_threads() == 1  # the same then, but for other processes
    begin = time.perf_counter()
    for turn in range(60):
        spent = time.perf_counter() - begin
        if spent > budget and turn >= (2 if spent > 20 * budget else 3):
            break
        for name, call in calls.items():
            first = call_seconds(call, device, cpu_time=cpu_time)  # caches are those of this contender now
            short = first < budget / 20
            times[name].append(call_seconds(call, device, cpu_time=cpu_time) if short else first)
    return times


def peak_bytes(call: Callable[[], Any], device: str) -> int:
    """Memory a call takes beyond what lay there, by the allocator (the CPU's as the profiler sees it)."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return torch.cuda.max_memory_allocated() - before
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True
    ) as profile:
        call()
    found = profile.profiler
    assert found is not None and found.kineto_results is not None
    events = [e for e in found.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def contenders(params: Row) -> tuple[dict[str, torch.nn.Module], TNLayer, int]:
    """Rivals by name, our layer, and the rows it is applied to."""
    in_dims, out_dims = SHAPES[params["shape"]]
    i, o = math.prod(in_dims), math.prod(out_dims)
    device = params["device"]
    layer = tg.nn.TNLinear(
        i,
        o,
        in_dims=in_dims,
        out_dims=out_dims,
        structure=graph(params["graph"], tuple(a * b for a, b in zip(in_dims, out_dims)), params["rank"]),
        device=device,
        random_state=0,
    )
    found: dict[str, torch.nn.Module] = {"linear": torch.nn.Linear(i, o, device=device)}
    if params["graph"] == "train" and importlib.util.find_spec("tltorch") is not None:
        import tltorch

        for name, way in zip(RIVALS, ("factorized", "reconstructed")):
            found[name] = tltorch.FactorizedLinear(
                in_dims, out_dims, factorization="blocktt", rank=params["rank"], implementation=way
            ).to(device)
    return found, layer, params["rows"]


def measure_layer(params: Row) -> Row:
    """One linear layer, one number of rows."""
    layers, layer, rows = contenders(params)
    return measure(
        params, layers, layer, torch.randn(rows, layer.layout.in_features, device=params["device"]), rows
    )


def measure_kind(params: Row) -> Row:
    """One convolution or embedding, one input."""
    layers, layer, rows = kinds.contenders(params)
    return measure(params, layers, layer, kinds.example(params), rows)


def measure(
    params: Row, rivals: dict[str, torch.nn.Module], layer: TNLayer, x: torch.Tensor, rows: int
) -> Row:
    """Rivals, and our layer as it is, made to rebuild, and made to go through its cores where it can."""
    device = params["device"]
    machine = machine_of(device)
    ways = layer.application.ways(layer.layout, layer.structure, device, 4)
    best = min(ways, key=lambda w: w.seconds(rows, 4, machine), default=None)
    row: Row = {
        "parameters": layer.num_parameters,
        "uses_cores": layer.uses_cores(rows),
        "trains_cores": layer.uses_cores(rows, gradients=True),
        "estimate_cores": None if best is None else best.seconds(rows, 4, machine),
        "estimate_build": dense_plan(layer.layout, layer.structure).seconds(rows, 4, machine),
    }
    layers = {"linear": rivals["linear"], "auto": layer}
    for name, way in (("rebuild", None), *((("cores", best),) if best is not None else ())):
        layers[name] = copy.deepcopy(layer)
        layers[name]._schedules = (((NO_LIMIT, way),),) * 2
    layers |= rivals
    arriving = torch.randn_like(layers["linear"](x))

    def forward(layer: torch.nn.Module) -> Callable[[], None]:
        def call() -> None:
            with torch.no_grad():
                layer(x)

        return call

    def both(layer: torch.nn.Module) -> Callable[[], None]:
        def call() -> None:
            layer.zero_grad(set_to_none=True)
            layer(x.detach().requires_grad_(x.is_floating_point())).backward(arriving)

        return call

    for kind, make in zip(PASSES, (forward, both)):
        calls = {name: make(layer) for name, layer in layers.items()}
        times = in_turns(calls, device, params["budget"])
        row[kind] = {
            name: {
                "median": statistics.median(found),
                "least": min(found),
                "rounds": len(found),
                "peak_bytes": peak_bytes(calls[name], device),
            }
            for name, found in times.items()
        }
    return row


# -- reporting -----------------------------------------------------------------------------------------


def ratio(found: Row, rival: str) -> float | None:
    """How many times as long as a rival ours takes, by medians."""
    return float(found["auto"]["median"] / found[rival]["median"]) if rival in found else None


def chose_cores(row: Row, kind: str) -> bool:
    """Whether ours went through the cores."""
    return row["uses_cores"] if kind == "forward" else row.get("trains_cores", row["uses_cores"])


def claims(rows: list[Row]) -> list[Row]:
    """How ours compares, by device and rival."""
    out: list[Row] = []
    for device in sorted({r["params"]["device"] for r in rows}):
        mine = [r for r in rows if r["params"]["device"] == device]
        for rival in ("rebuild", "linear", *RIVALS):
            # Where ours rebuilds it is the same code: the ratio is the noise of the measurement.
            found = [
                x
                for r in mine
                for kind in PASSES
                if (rival != "rebuild" or chose_cores(r, kind)) and (x := ratio(r[kind], rival)) is not None
            ]
            if found:
                out.append(
                    {
                        "device": device,
                        "rival": rival,
                        "cases": len(found),
                        "slower": sum(x > NOISE for x in found),
                        "worst time / rival's": max(found),
                        "mean time / rival's": geometric_mean(found),
                    }
                )
    return out


def milliseconds(row: Row, kind: str) -> Row:
    """What one pass took, by contender."""
    found, names = row[kind], ("linear", "rebuild", "auto", *RIVALS)
    return {
        "pass": kind,
        "chose": "cores" if chose_cores(row, kind) else "rebuild",
        **{f"{n} ms": found[n]["median"] * 1e3 if n in found else None for n in names},
        **{f"{n} MB": found[n]["peak_bytes"] / 1e6 if n in found else None for n in names},
        "auto/rebuild": ratio(found, "rebuild"),
    }


def _pair(row: Row, name: str) -> str | None:
    """Milliseconds of a forward pass, and of forward and backward."""
    if name not in row["forward"]:
        return None
    times = [1e3 * row[kind][name]["median"] for kind in PASSES]
    return " / ".join(f"{t:,.0f}" if t >= 1000 else f"{t:.3g}" for t in times)


def _megabytes(row: Row, name: str) -> str | None:
    found = row["forward"].get(name)
    return None if found is None else f"{found['peak_bytes'] / 1e6:.3g}"


def _ways(row: Row) -> str:
    return " / ".join("cores" if chose_cores(row, kind) else "rebuilt" for kind in PASSES)


def trains(rows: Sequence[Row], device: str) -> list[Row]:
    """Tensor trains of rank 4, a line per layer and number of rows."""
    mine = [r for r in rows if (r["params"]["graph"], r["params"]["rank"]) == ("train", 4)]
    return [
        {
            "layer": row["params"]["shape"],
            "rows": f"{row['params']['rows']:,}",
            "`nn.Linear`": _pair(row, "linear"),
            "rebuilt weight": _pair(row, "rebuild"),
            "TNLinear": _pair(row, "auto"),
            "way": _ways(row),
            "TensorLy factors": _pair(row, "tensorly"),
            "TensorLy rebuilt": _pair(row, "tensorly_rebuilt"),
            "MB rebuilt": _megabytes(row, "rebuild"),
            "MB TNLinear": _megabytes(row, "auto"),
            "MB TensorLy factors": _megabytes(row, "tensorly"),
        }
        for row in mine
        if row["params"]["device"] == device
    ]


def kinds_beside(rows: Sequence[Row], device: str) -> list[Row]:
    """Convolutions of a batch and embeddings of some tokens."""
    return [
        {
            "layer": kinds.describe(row["params"]),
            "network, parameters": f"{row['params']['form']} {row['params']['rank']}, {row['parameters']:,}",
            "dense": _pair(row, "linear"),
            "rebuilt weight": _pair(row, "rebuild"),
            "ours": _pair(row, "auto"),
            "way": _ways(row),
            "TensorLy factors": _pair(row, "tensorly"),
            "MB dense, rebuilt, ours": ", ".join(
                str(_megabytes(row, name)) for name in ("linear", "rebuild", "auto")
            ),
        }
        for row in rows
        if row["params"]["device"] == device and kinds.is_shown(row["params"])
    ]


def report(results: Results) -> Report:
    """Table and claims."""
    out = Report("Layers")
    table: list[Row] = []
    rows = results.rows("layers/")
    order = {(s, g, k): n for n, (s, (g, k)) in enumerate((s, x) for s in SHAPES for x in STRUCTURES)}
    rows.sort(
        key=lambda r: (
            r["params"]["device"],
            order[r["params"]["shape"], r["params"]["graph"], r["params"]["rank"]],
            r["params"]["rows"],
        )
    )
    for row in rows:
        p = row["params"]
        head = {"device": p["device"], "layer": p["shape"], "structure": f"{p['graph']} {p['rank']}"}
        table += [{**head, "rows": p["rows"], **milliseconds(row, kind)} for kind in PASSES]
    others = results.rows("kinds/")
    tables = [
        {
            "device": row["params"]["device"],
            "layer": kinds.describe(row["params"]),
            "form": f"{row['params']['form']} {row['params']['rank']}",
            "parameters": row["parameters"],
            **milliseconds(row, kind),
        }
        for row in others
        for kind in PASSES
    ]
    summary = claims(rows)
    out.summary = {"claims": summary, "claims of convolutions and embeddings": claims(others)}
    out.tabulate_rows("Milliseconds and megabytes", table)
    out.tabulate_rows("Claims", summary)
    out.tabulate_rows("Convolutions and embeddings", tables)
    out.tabulate_rows("Claims of convolutions and embeddings", claims(others))
    for device in ("cpu", "cuda"):
        out.tabulate_rows(f"Trains of rank 4, {device}", trains(rows, device))
        out.tabulate_rows(f"Convolutions and embeddings, {device}", kinds_beside(others, device))
    for row in results.rows("rates/"):
        out.say(f"{row['params']['device']}: {row['measured']}\n{row['in_use']}")
    return out


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Every layer, structure and number of rows that is feasible; small ones first."""
    device = settings["device"]
    cases = []
    for shape, digits in SHAPES.items() if "layers" in settings.parts else ():
        for kind, rank in STRUCTURES:
            for rows in ROWS:
                is_light = rows * math.prod(map(math.prod, digits)) < HEAVY
                if settings.quick and not (shape == "1024x1024" and rank in (2, 8) and rows in (1, 256)):
                    continue
                if device == "cuda" or is_light or (kind, rank) in HEAVY_STRUCTURES:
                    params = {"shape": shape, "graph": kind, "rank": rank, "rows": rows, "device": device}
                    params["budget"] = settings["budget"]
                    cases.append(Case(f"layers/{device}/{shape}/{kind}{rank}/rows{rows}", params))
    cases.sort(key=lambda c: c.params["rows"] * math.prod(map(math.prod, SHAPES[c.params["shape"]])))
    rates = [Case(f"rates/{device}", {"device": device})] if "rates" in settings.parts else []
    return [*cases, *(kinds.cases(settings) if "kinds" in settings.parts else ()), *rates]


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """Measure a layer, or the rates of the device."""
    if case.part == "rates":
        return measure_rates(case.params["device"])
    return measure_kind(case.params) if case.part == "kinds" else measure_layer(case.params)


BENCHMARK = Benchmark(
    "layers",
    "latency and memory of network layers, of rebuilding their weight, of dense layers and of TensorLy-Torch",
    cases,
    work,
    report,
    parts=("layers", "kinds", "rates"),
    uses=("nn.layer",),
    options=(DEVICE, Option("budget", 0.5, "seconds per case and pass, about", quick=0.05)),
)
