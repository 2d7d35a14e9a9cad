"""Part `scaling`: seconds per sweep and peak memory against observations and rank; a run on huge modes.

Every row is measured in a process of its own. Entries of a 1000x1000x1000 tensor are drawn at random from a
planted train of rank 4 with noise; the network that is swept is a train of rank 8, or of the rank of the row.
The planted network of the whole run has nonnegative cores, as counts and ratings do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tensorgrow as tg
from tensorgrow.experiments.figures import pyplot, save_figure
from tensorgrow.experiments.harness import Case, Results, Row, median
from tensorgrow.objectives import ObservedLeastSquares

from ..benchmark import BenchmarkSettings
from ..timing import als_seconds
from .runs import claim, in_fresh_process, peak_bytes, time_complete

__all__ = ["cases", "claims", "draw", "run", "slopes", "table", "whole_table"]

DIMS = (1000, 1000, 1000)
RANK = 8
# A sweep counts as linear in the observations when the slope from here on stays within this.
LINEAR_FROM, LINEAR_SLOPE = 10**5, 1.1
HUGE_BYTES = 8e9
TEST_ENTRIES = 10**5


def random_positions(dims: Sequence[int], count: int, seed: int) -> torch.Tensor:
    """So many different positions."""
    rng = np.random.default_rng(seed)
    total = int(np.prod(dims, dtype=np.int64))
    codes = np.unique(rng.integers(0, total, count + count // 10 + 100))
    codes = rng.permutation(codes)[:count]
    return torch.from_numpy(np.stack(np.unravel_index(codes, dims), 1))


def planted_entries(
    dims: Sequence[int], rank: int, count: int, seed: int, *, positive: bool = False
) -> tuple[torch.Tensor, torch.Tensor, tg.TensorNetwork]:
    """Positions, values of size about 1 and the network they come from."""
    network = tg.TensorNetwork.random(tg.Structure.tensor_train(tuple(dims), rank), random_state=seed)
    if positive:
        network = tg.TensorNetwork(network.structure, [c.abs() for c in network.cores])
    where = random_positions(dims, count, seed)
    values = torch.cat([network.entries(part) for part in where.split(10**6)])
    scale = float(values.square().mean().sqrt())
    cores = [network.cores[0] / scale, *network.cores[1:]]
    return where, values / scale, tg.TensorNetwork(network.structure, cores)


# -- cases ---------------------------------------------------------------------------------------------


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Two series of sweeps and one whole run."""
    counts = (10**3, 10**4, 10**5) if settings.quick else (10**4, 10**5, 10**6, 10**7)
    ranks, at = ((2, 4), 10**4) if settings.quick else ((2, 4, 8, 16, 32), 10**6)
    series = [("observations", n, n, RANK) for n in counts] + [("rank", r, at, r) for r in ranks]
    made = []
    for name, x, count, rank in series:
        params = {"what": "sweep", "observations": count, "rank": rank, "device": settings["device"]}
        params |= {"budget": 0.5 if settings.quick else settings["budget"]}
        made.append(Case(f"scaling/{settings['device']}/{name}/{x:09}", params))
    whole = {
        "what": "whole",
        "dims": [300, 300, 100] if settings.quick else [10_000, 10_000, 1000],
        "observations": 10**4 if settings.quick else 10**6,
        "rank": 2,
        "max_steps": 4,
        "device": settings["device"],
    }
    return [*made, Case(f"scaling/{settings['device']}/whole/complete", whole)]


def run(params: Row, settings: BenchmarkSettings) -> Row:
    """One row in a fresh process."""
    return in_fresh_process(measure_sweep if params["what"] == "sweep" else measure_whole, params)


def measure_sweep(params: Row) -> Row:
    """Seconds of one ALS sweep of the observed objective, gauge balancing included."""
    device = params["device"]
    where, values, _ = planted_entries(DIMS, 4, params["observations"], 0)
    values += 0.1 * torch.randn(len(values), generator=torch.Generator().manual_seed(0), dtype=values.dtype)
    structure = tg.Structure.tensor_train(DIMS, params["rank"])
    network = tg.TensorNetwork.random(structure, random_state=0, dtype=values.dtype, device=device)
    before = peak_bytes()
    objective = ObservedLeastSquares(where.to(device), values.to(device), DIMS, ridge=1e-2)
    first = als_seconds(objective, network, 1)
    sweeps = int(min(max(params["budget"] / 3 / max(first, 1e-6), 1), 25))
    repeats = 3 if 3 * first * sweeps <= 2 * params["budget"] else 1
    return {
        "observations": len(values),
        "rank": params["rank"],
        "size": structure.num_parameters,
        "seconds": median(als_seconds(objective, network, sweeps) for _ in range(repeats)),
        "seconds_first": first,
        "sweeps": sweeps * repeats,
        "flops": objective.sweep_flops(structure),
        **_memory(device, before),
    }


def _memory(device: str, before: int) -> Row:
    """Peaks in bytes: of the process, at the time the data was ready, and of the GPU."""
    cuda = torch.device(device).type == "cuda"
    return {
        "peak_bytes": peak_bytes(),
        "peak_bytes_before": before,
        "peak_bytes_gpu": torch.cuda.max_memory_allocated() if cuda else None,
    }


def measure_whole(params: Row) -> Row:
    """`complete` on listed entries of a tensor far too large to be held."""
    count = params["observations"]
    where, values, network = planted_entries(
        params["dims"], params["rank"], count + TEST_ENTRIES, 1, positive=True
    )
    entries = tg.Observations(where[:count], values[:count], params["dims"])
    test, true = where[count:], values[count:]
    before = peak_bytes()
    result, row = time_complete(
        entries, device=params["device"], max_steps=params["max_steps"], random_state=0
    )
    memory = _memory(params["device"], before)
    found = result.predict(test.to(params["device"])).cpu()
    error = float(torch.linalg.vector_norm(found - true) / torch.linalg.vector_norm(true))
    return {
        **row,
        **memory,
        "error": error,
        "planted": network.num_parameters,
        "dense_bytes": 8 * float(np.prod(params["dims"], dtype=float)),
    }


# -- report --------------------------------------------------------------------------------------------


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Slope of the straight line through the logarithms."""
    if len(points) < 2:
        return None
    return float(np.polyfit(*np.log(np.asarray(points, dtype=float)).T, 1)[0])


def series(results: Results, device: str, name: str) -> list[Row]:
    """Rows of a series in order."""
    return results.rows(f"scaling/{device}/{name}/")


def claims(results: Results) -> list[Row]:
    """Linear in the observations; the huge tensor in bounded memory."""
    found = []
    for device in ("cuda", "cpu"):
        rows = [r for r in series(results, device, "observations") if r["observations"] >= LINEAR_FROM]
        steep = slope([(r["observations"], r["seconds"]) for r in rows])
        text = f"scaling, {device}: log-log slope of seconds per sweep from {LINEAR_FROM:,} observations on"
        met = None if steep is None else steep <= LINEAR_SLOPE
        found.append(claim(text, LINEAR_SLOPE, steep, met, len(rows)))
        whole = results.cases.get(f"scaling/{device}/whole/complete", {})
        if "peak_bytes" in whole:
            text = f"scaling, {device}: peak memory (GB) of complete on {whole['params']['dims']}"
            peak = (whole["peak_bytes"] + (whole["peak_bytes_gpu"] or 0)) / 1e9
            found.append(claim(text, HUGE_BYTES / 1e9, peak, peak <= HUGE_BYTES / 1e9, 1))
    return found


def slopes(results: Results) -> list[Row]:
    """Exponents of the two series."""
    found = []
    for device in ("cuda", "cpu"):
        for name in ("observations", "rank"):
            pairs = [(r[name], r["seconds"]) for r in series(results, device, name)]
            if len(pairs) > 1:
                found.append(
                    {"against": name, "device": device, "slope": slope(pairs), "last": slope(pairs[-2:])}
                )
    return found


def table(results: Results) -> list[Row]:
    """One line per sweep that was timed."""
    columns = ("observations", "rank", "size", "seconds", "peak_bytes", "peak_bytes_gpu")
    return [
        {"device": device, **{c: r[c] for c in columns}, "us_per_observation": _per_entry(r)}
        for device in ("cuda", "cpu")
        for name in ("observations", "rank")
        for r in series(results, device, name)
    ]


def whole_table(results: Results) -> list[Row]:
    """The run on huge modes."""
    columns = ("size", "planted", "steps", "stop", "error", "validation_error", "seconds", "peak_bytes")
    return [
        {"device": device, "dims": r["params"]["dims"], **{c: r[c] for c in columns}}
        for device in ("cuda", "cpu")
        for r in series(results, device, "whole")
    ]


def _per_entry(row: Row) -> float:
    return 1e6 * float(row["seconds"]) / float(row["observations"])


def draw(results: Results, settings: BenchmarkSettings) -> list[Path]:
    """Seconds per sweep and peak memory, log-log."""
    devices = [d for d in ("cpu", "cuda") if series(results, d, "observations")]
    if not devices:
        return []
    figure, axes = pyplot().subplots(1, 3, figsize=(14, 4.2), layout="constrained")
    for number, device in enumerate(devices):
        rows = series(results, device, "observations")
        _line(axes[0], rows, "observations", "seconds", f"C{number}o-", device)
        _line(axes[2], rows, "observations", "peak_bytes", f"C{number}o-", device)
        if device == "cuda":
            _line(axes[2], rows, "observations", "peak_bytes_gpu", f"C{number}x--", "of the GPU")
        _line(axes[1], series(results, device, "rank"), "rank", "seconds", f"C{number}o-", device)
    rows = series(results, devices[0], "observations")
    last = rows[-1]
    guide = [last["seconds"] * r["observations"] / last["observations"] for r in rows]
    axes[0].loglog([r["observations"] for r in rows], guide, "k:", label="linear")
    labels = ("observations", "rank", "observations"), ("seconds per sweep",) * 2 + ("peak memory, bytes",)
    for axis, x, y in zip(axes, *labels):
        axis.set_xlabel(x)
        axis.set_ylabel(y)
        axis.grid(True, which="both", alpha=0.3)
        axis.legend()
    return save_figure(figure, settings.figures / "completion_scaling.png")


def _line(axis: Any, rows: list[Row], x: str, y: str, style: str, label: str) -> None:
    if rows:
        axis.loglog([r[x] for r in rows], [r[y] for r in rows], style, label=label)
