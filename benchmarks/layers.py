"""How fast are TNLinear layers against dense ones, against rebuilding the weight, and against TensorLy-Torch?

Every case is one layer, structure and number of rows. Contenders take turns, so that whatever else the
machine does hits all of them alike; each gets an unmeasured call before every measured one. Medians and
minima of seconds, and peak memory beyond what lay there, of the forward pass alone (no gradients) and with
the backward pass to input and parameters, for

* linear: ``torch.nn.Linear`` of the same size,
* auto: TNLinear as it is, which chooses by counted flops and bytes,
* rebuild and cores: TNLinear made to do one or the other,
* tensorly and tensorly_rebuilt: ``tltorch.FactorizedLinear`` (block tensor train of the same ranks) in its
  two implementations, for trains, where it is installed or on PYTHONPATH.

Claims: auto is never slower than rebuild, and faster than both implementations of TensorLy-Torch everywhere
(within the noise of 10 %).
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import math
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # before torch is imported; the profiler is talkative

from _calibrate import calibrate
from _common import (
    RESULTS,
    ROOT,
    THREADS,
    Case,
    Results,
    Row,
    geometric_mean,
    make_parser,
    open_results,
    print_table,
    run_cases,
)

# isort: split
import torch

import tensorgrow as tg
from tensorgrow.nn.layer.costs import machine_of
from tensorgrow.nn.layer.plans import dense_plan
from tensorgrow.nn.layer.products import NO_LIMIT
from tensorgrow.nn.layer.schedules import through_plans

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
MOST_ROUNDS = 60


def graph(name: str, dims: tuple[int, ...], rank: int) -> tg.Structure:
    """A structure by name."""
    if name == "train":
        return tg.Structure.tensor_train(dims, rank)
    if name == "ring":
        return tg.Structure.tensor_ring(dims, rank)
    return tg.Structure.complete(dims, rank)


# -- measuring -----------------------------------------------------------------------------------------


def one_call(call: Callable[[], Any], device: str) -> float:
    """Seconds of a call: CPU time with one thread, where it is the same but for other processes."""
    now = time.process_time if device == "cpu" and THREADS == 1 else time.perf_counter
    if device == "cuda":
        torch.cuda.synchronize()
    begin = now()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return now() - begin


def in_turns(calls: dict[str, Callable[[], Any]], device: str, budget: float) -> dict[str, list[float]]:
    """Seconds of several calls, taken round by round within a time budget; at least two or three rounds."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    begin = time.perf_counter()
    for turn in range(MOST_ROUNDS):
        spent = time.perf_counter() - begin
        if spent > budget and turn >= (2 if spent > 20 * budget else 3):
            break
        for name, call in calls.items():
            first = one_call(call, device)  # caches are those of this contender now
            times[name].append(one_call(call, device) if first < budget / 20 else first)
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


def contenders(params: Row) -> tuple[dict[str, torch.nn.Module], Row]:
    """Layers to compare by name, and what is known about ours."""
    in_dims, out_dims = SHAPES[params["shape"]]
    i, o = math.prod(in_dims), math.prod(out_dims)
    device, rows = params["device"], params["rows"]
    layer = tg.nn.TNLinear(
        i,
        o,
        in_dims=in_dims,
        out_dims=out_dims,
        structure=graph(params["graph"], tuple(a * b for a, b in zip(in_dims, out_dims)), params["rank"]),
        device=device,
        random_state=0,
    )
    machine = machine_of(device)
    plans = through_plans(layer.layout, layer.structure, device, 4)
    best = min(plans, key=lambda p: p.seconds(rows, 4, machine))
    known = {
        "parameters": layer.num_parameters,
        "uses_cores": layer.uses_cores(rows),
        "trains_cores": layer.uses_cores(rows, gradients=True),
        "estimate_cores": best.seconds(rows, 4, machine),
        "estimate_build": dense_plan(layer.layout, layer.structure).seconds(rows, 4, machine),
    }
    found: dict[str, torch.nn.Module] = {"linear": torch.nn.Linear(i, o, device=device)}
    found["auto"] = layer
    for name, plan in (("rebuild", None), ("cores", best)):
        found[name] = copy.deepcopy(layer)
        found[name]._schedules = (((NO_LIMIT, plan),),) * 2
    if params["graph"] == "train" and importlib.util.find_spec("tltorch") is not None:
        import tltorch

        for name, way in zip(RIVALS, ("factorized", "reconstructed")):
            found[name] = tltorch.FactorizedLinear(
                in_dims, out_dims, factorization="blocktt", rank=params["rank"], implementation=way
            ).to(device)
    return found, known


def run(params: Row) -> Row:
    """One layer, one number of rows."""
    layers, row = contenders(params)
    device = params["device"]
    dense = layers["linear"]
    x = torch.randn(params["rows"], dense.in_features, device=device)
    arriving = torch.randn(params["rows"], dense.out_features, device=device)

    def forward(layer: torch.nn.Module) -> Callable[[], None]:
        def call() -> None:
            with torch.no_grad():
                layer(x)

        return call

    def both(layer: torch.nn.Module) -> Callable[[], None]:
        def call() -> None:
            layer.zero_grad(set_to_none=True)
            layer(x.detach().requires_grad_()).backward(arriving)

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


def line(row: Row) -> str:
    """What is printed when a case ends."""
    shown = (
        f"{name} " + "/".join(f"{row[kind][name]['median'] * 1e3:.3g}" for kind in PASSES)
        for name in row["forward"]
    )
    return f"{', '.join(shown)} ms; {'cores' if row['uses_cores'] else 'rebuild'}"


def ratio(found: Row, rival: str) -> float | None:
    """How many times as long as a rival ours takes; the smaller of the ratios of medians and of minima.

    Either may be off by chance; what is slower is so in both.
    """
    if rival not in found:
        return None
    return min(found["auto"][k] / found[rival][k] for k in ("median", "least"))


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


def report(results: Results) -> None:
    """Table and claims."""
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
        for kind in PASSES:
            found = row[kind]
            names = ("linear", "rebuild", "auto", *RIVALS)
            table.append(
                {
                    "device": p["device"],
                    "layer": p["shape"],
                    "structure": f"{p['graph']} {p['rank']}",
                    "rows": p["rows"],
                    "pass": kind,
                    "chose": "cores" if chose_cores(row, kind) else "rebuild",
                    **{f"{n} ms": found[n]["median"] * 1e3 if n in found else None for n in names},
                    **{f"{n} MB": found[n]["peak_bytes"] / 1e6 if n in found else None for n in names},
                    "auto/rebuild": ratio(found, "rebuild"),
                }
            )
    summary = claims(rows)
    results.summarise({"claims": summary})
    for part in (table, summary):
        if part:
            print_table(list(part[0]), [list(r.values()) for r in part])


def arguments() -> argparse.Namespace:
    """Command line."""
    parser = make_parser(__doc__, "layers")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--budget", type=float, default=0.5, help="seconds per case and pass, about")
    parser.add_argument("--quick", action="store_true", help="a few cases, kept apart")
    parser.add_argument("--summary", action="store_true", help="run nothing: report what there is")
    parser.add_argument("--calibrate", action="store_true", help="print rates of the device for nn/costs.py")
    args = parser.parse_args()
    if args.quick and args.out == RESULTS / "layers.json":
        args.out = ROOT / ".bench" / "layers-quick.json"
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no GPU")
    return args


def main() -> None:
    """Run what is not done yet and report."""
    args = arguments()
    if args.calibrate:
        print(calibrate(args.device))
        return
    results = open_results(args, [f"layers/{args.device}"])
    cases = [
        Case(
            f"layers/{args.device}/{shape}/{kind}{rank}/rows{rows}",
            {
                "shape": shape,
                "graph": kind,
                "rank": rank,
                "rows": rows,
                "device": args.device,
                "budget": args.budget,
            },
        )
        for shape in SHAPES
        for kind, rank in STRUCTURES
        for rows in ROWS
        if args.device == "cuda"
        or (kind, rank) in HEAVY_STRUCTURES
        or rows * math.prod(map(math.prod, SHAPES[shape])) < HEAVY
        if not args.quick or (shape == "1024x1024" and rank in (2, 8) and rows in (1, 256))
    ]
    cases.sort(key=lambda c: c.params["rows"] * math.prod(map(math.prod, SHAPES[c.params["shape"]])))
    if not args.summary:
        run_cases(results, cases, run, report=line)
    report(results)


if __name__ == "__main__":
    main()
