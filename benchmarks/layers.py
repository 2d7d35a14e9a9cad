"""How fast are TNLinear layers against dense ones, against rebuilding the weight, and against TensorLy-Torch?

Every case is one layer, structure and number of rows; seconds are medians, forward alone (no gradients) and
forward with backward, of

* linear: ``torch.nn.Linear`` of the same size,
* auto: TNLinear as it is, which chooses by counted flops and bytes,
* rebuild and cores: TNLinear made to do one or the other,
* tensorly: ``tltorch.FactorizedLinear`` (block tensor train) where it is installed.

Claim: auto is never slower than rebuild (within the noise of 10 %).
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

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
from tensorgrow.nn.plans import NO_LIMIT, SAMPLES, dense_plan, pick, seconds, through_plan

SHAPES = {
    "1024x1024": ((4,) * 5, (4,) * 5),
    "4096x4096": ((8,) * 4, (8,) * 4),
    "3072x768": ((8, 8, 8, 6), (4, 4, 6, 8)),
}
RANKS = (2, 4, 8, 16)
ROWS = (1, 16, 256, 4096)
GRAPHS = ("train", "ring", "complete")
# Slower than rebuilding by more than this counts against the claim.
NOISE = 1.1


def graph(name: str, dims: tuple[int, ...], rank: int) -> tg.Structure:
    """A structure by name; a complete graph gets low ranks, since every node has all of them."""
    if name == "train":
        return tg.Structure.tensor_train(dims, rank)
    if name == "ring":
        return tg.Structure.tensor_ring(dims, rank)
    return tg.Structure.complete(dims, min(rank, 2))


def timed(call: Callable[[], Any], device: str, budget: float) -> float:
    """Median seconds of a call within a time budget, at least five of them.

    CPU time with one thread, where it is the same but for other processes; wall time otherwise.
    """
    now = time.process_time if device == "cpu" and THREADS == 1 else time.perf_counter
    times: list[float] = []
    call()
    while len(times) < 5 or (sum(times) < budget and len(times) < 200):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = now()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(now() - begin)
    return statistics.median(times)


def measure(layer: torch.nn.Module, x: torch.Tensor, budget: float) -> Row:
    """Forward alone, and forward with backward to input and parameters."""

    def forward() -> None:
        with torch.no_grad():
            layer(x)

    def both() -> None:
        layer.zero_grad(set_to_none=True)
        layer(x.detach().requires_grad_()).sum().backward()

    return {"forward": timed(forward, x.device.type, budget), "both": timed(both, x.device.type, budget)}


def peak_bytes(layer: torch.nn.Module, x: torch.Tensor) -> int | None:
    """Memory that forward and backward take beyond what lay there; None on the CPU."""
    if x.device.type != "cuda":
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    layer(x.detach().requires_grad_()).sum().backward()
    return torch.cuda.max_memory_allocated() - before


def run(params: Row) -> Row:
    """One layer, one number of rows."""
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
    x = torch.randn(params["rows"], i, device=device)
    own = layer._schedule
    row: Row = {"parameters": layer.num_parameters, "uses_cores": layer.uses_cores(params["rows"])}
    plans = {through_plan(layer.layout, layer.structure, rows, device) for rows in SAMPLES}
    best = min(plans, key=lambda p: seconds(p, params["rows"], device, 4))
    dense = torch.nn.Linear(i, o, device=device)
    row["estimate_cores"] = seconds(best, params["rows"], device, 4)
    row["estimate_build"] = seconds(dense_plan(layer.layout, layer.structure), params["rows"], device, 4)
    for name, plan in (
        ("linear", None),
        ("rebuild", None),
        ("cores", best),
        ("auto", pick(own, params["rows"])),
    ):
        layer._schedule = ((NO_LIMIT, plan),)
        module = dense if name == "linear" else layer
        row[name] = measure(module, x, params["budget"]) | {"peak_bytes": peak_bytes(module, x)}
    if params["graph"] == "train" and importlib.util.find_spec("tltorch") is not None:
        import tltorch

        rival = tltorch.FactorizedLinear(in_dims, out_dims, factorization="blocktt", rank=params["rank"])
        row["tensorly"] = measure(rival.to(device), x, params["budget"])
    return row


def line(row: Row) -> str:
    """What is printed when a case ends."""
    names = [n for n in ("linear", "rebuild", "cores", "auto", "tensorly") if n in row]
    shown = ", ".join(f"{n} {row[n]['forward'] * 1e3:.3g}/{row[n]['both'] * 1e3:.3g}" for n in names)
    return f"{shown} ms; {'cores' if row['uses_cores'] else 'rebuild'}"


def report(results: Results) -> None:
    """Table and claim."""
    table: list[Row] = []
    worst: dict[bool, list[float]] = {True: [], False: []}
    for row in results.rows("layers/"):
        p = row["params"]
        for kind in ("forward", "both"):
            ratio = row["auto"][kind] / row["rebuild"][kind]
            worst[row["uses_cores"]].append(ratio)
            table.append(
                {
                    "layer": p["shape"],
                    "structure": f"{p['graph']} {p['rank']}",
                    "rows": p["rows"],
                    "device": p["device"],
                    "pass": kind,
                    **{f"{n} ms": row[n][kind] * 1e3 for n in ("linear", "rebuild", "cores", "auto")},
                    "auto/rebuild": ratio,
                    "auto/linear": row["auto"][kind] / row["linear"][kind],
                    "chose": "cores" if row["uses_cores"] else "rebuild",
                }
            )
    summary = {
        "claim": f"auto at most {NOISE} x rebuild",
        "cases": sum(map(len, worst.values())),
        "through cores": len(worst[True]),
        "slower": sum(r > NOISE for r in worst[True]),
        "worst": max(worst[True], default=None),
        "mean": geometric_mean(worst[True]),
        # Where it rebuilds, the two are the same code: their ratio is the noise of the measurement.
        "noise": max(worst[False], default=None),
    }
    results.summarise({"claim": summary, "table": table})
    if table:
        print_table(list(table[0]), [list(r.values()) for r in table])
    print(summary)


def arguments() -> argparse.Namespace:
    """Command line."""
    parser = make_parser(__doc__, "layers")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--budget", type=float, default=0.3, help="seconds per measurement, about")
    parser.add_argument("--quick", action="store_true", help="a few cases, kept apart")
    parser.add_argument("--summary", action="store_true", help="run nothing: report what there is")
    args = parser.parse_args()
    if args.quick and args.out == RESULTS / "layers.json":
        args.out = ROOT / ".bench" / "layers-quick.json"
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch finds no GPU")
    return args


def main() -> None:
    """Run what is not done yet and report."""
    args = arguments()
    results = open_results(args, [f"layers/{args.device}"])
    shapes = ["1024x1024"] if args.quick else list(SHAPES)
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
        for shape in shapes
        for kind in GRAPHS
        for rank in (RANKS if kind != "complete" else (2,))
        for rows in ROWS
        if not args.quick or rank in (2, 8)
    ]
    if not args.summary:
        run_cases(results, cases, run, report=line)
    report(results)


if __name__ == "__main__":
    main()
