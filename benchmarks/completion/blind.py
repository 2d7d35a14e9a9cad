"""Part `blind`: planted networks of mean zero, of which rank one sees nothing."""

from __future__ import annotations

import math

import numpy as np
import torch

import tensorgrow as tg
from tensorgrow.experiments.harness import Case, Results, Row, median

from ..benchmark import BenchmarkSettings
from .quality import relative_error
from .runs import claim, time_complete

__all__ = ["cases", "claims", "run", "table"]

DIMS, RANK, SEEDS = (16,) * 6, 3, 3
TRIANGLES = ((0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5))
TARGETS = {
    "train": tg.Structure.tensor_train(DIMS, RANK),
    "ring": tg.Structure.tensor_ring(DIMS, RANK),
    "two-triangles": tg.Structure(DIMS, dict.fromkeys(TRIANGLES, RANK)),
}
# Beside them a smaller train, which starts of small rank do find.
SMALL = {"small-train": tg.Structure.tensor_train((8,) * 5, 2)}
PER_PARAMETER = {"train": (20, 10), "ring": (20, 10), "two-triangles": (20, 10), "small-train": (6,)}
# Error on entries that were not observed at which a network counts as recovered; it was found or it was not.
RECOVERED = 1e-4
TESTED = 10_000


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Every target at every number of entries."""
    found = []
    for name, structure in {**TARGETS, **SMALL}.items():
        for per_parameter in PER_PARAMETER[name][: 1 if settings.quick else None]:
            for seed in range(1 if settings.quick else SEEDS):
                params = {
                    "structure": structure.to_dict(),
                    "planted": structure.num_parameters,
                    "per_parameter": per_parameter,
                    "seed": seed,
                    "device": settings["device"],
                }
                key = f"blind/{settings['device']}/{name}/{per_parameter:02}/seed{seed}"
                found.append(Case(key, params))
    return found


def run(params: Row, settings: BenchmarkSettings) -> Row:
    """Default options on random entries without noise; the error is on others."""
    structure, seed = tg.Structure.from_dict(params["structure"]), params["seed"]
    network = tg.TensorNetwork.random(structure, random_state=seed)
    count = params["per_parameter"] * params["planted"]
    rng = np.random.default_rng([11, seed])
    drawn = rng.choice(math.prod(structure.dims), count + TESTED, replace=False)
    where = np.stack(np.unravel_index(drawn, structure.dims), 1)
    values = network.entries(torch.from_numpy(where)).numpy()
    seen = tg.Observations(where[:count], values[:count], structure.dims)
    result, row = time_complete(seen, device=params["device"], random_state=seed)
    found = np.asarray(result.predict(where[count:]))
    return {
        **row,
        "error": relative_error(found, values[count:]),
        "ratio": row["size"] / params["planted"],
        "observed": count,
        "tries": sum(s.kind == "try" for s in result.history),
    }


def _is_recovered(row: Row) -> bool:
    return bool(row["error"] < RECOVERED)


def _is_refused(row: Row) -> bool:
    return bool(row["stop"] == tg.StopReason.NOTHING_LEARNED.name and row["warnings"])


def table(results: Results) -> list[Row]:
    """One line per target and number of entries."""
    groups = []
    for device in ("cuda", "cpu"):
        for name, counts in PER_PARAMETER.items():
            for count in counts:
                rows = results.rows(f"blind/{device}/{name}/{count:02}/")
                if rows:
                    groups.append(
                        {
                            "target": name,
                            "entries per parameter": count,
                            "device": device,
                            "runs": len(rows),
                            "recovered": sum(map(_is_recovered, rows)),
                            "refused": sum(map(_is_refused, rows)),
                            "errors": [float(f"{r['error']:.2g}") for r in rows],
                            "starts": [r["tries"] for r in rows],
                            "median_seconds": median(r["seconds"] for r in rows),
                        }
                    )
    return groups


def claims(results: Results) -> list[Row]:
    """Recovered, or refused with the reason."""
    found = []
    for g in table(results):
        honest = g["recovered"] + g["refused"]
        text = f"blind, {g['device']}, {g['target']}, {g['entries per parameter']} entries per parameter: "
        text += "recovered, or refused with the reason"
        found.append(
            claim(text, f"{g['runs']}/{g['runs']}", f"{honest}/{g['runs']}", honest == g["runs"], g["runs"])
        )
    return found
