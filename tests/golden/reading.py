"""Results as plain JSON: the only place that knows the attributes of what the library returns."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

import tensorgrow as tg

__all__ = ["read_compressed", "read_grown", "read_network", "read_numbers", "read_result", "read_structure"]

ERRORS = ("relative", "train", "validation", "test")
# Of `Result.info`: how the run was made, where there are several ways.
NOTED = ("method", "passes", "loss", "density", "ridge", "evaluations")
# Larger tensors are not made whole for their norm.
LARGEST = 10**6


def read_structure(structure: tg.Structure) -> dict[str, Any]:
    """Dims, nodes, and the edges with their ranks."""
    return {
        "dims": list(structure.dims),
        "num_nodes": structure.num_nodes,
        "edges": [[i, j, rank] for (i, j), rank in structure.ranks.items()],
    }


def read_network(network: tg.TensorNetwork) -> dict[str, Any]:
    """Structure, dtype and norm of what the network stands for."""
    known = {
        "structure": read_structure(network.structure),
        "num_parameters": network.num_parameters,
        "dtype": str(network.cores[0].dtype).removeprefix("torch."),
    }
    if network.structure.num_entries <= LARGEST:
        known["norm"] = float(torch.linalg.vector_norm(network.to_dense().detach()))
    return known


def read_errors(result: Any) -> dict[str, float]:
    """Errors of a result by name, as far as it has them.

    "relative" is the first number a result reports: the relative error, of `learn` the loss and of
    `learn_density` the likelihood of the fitted samples.
    """
    e = result.errors
    values = zip(ERRORS, (e.total, e.train, e.validation, e.test))
    return {name: float(value) for name, value in values if value is not None}


def read_result(result: Any) -> dict[str, Any]:
    """A `Result`: network, errors, why it stopped and the steps with what they did."""
    noted = {k: result.info[k] for k in NOTED if k in result.info}
    return {
        **read_network(result.network),
        "num_parameters": int(result.num_parameters),
        "errors": read_errors(result),
        "stop": result.stop.name,
        "num_steps": len(result.history),
        "steps": [_step(s) for s in result.history],
        "path": [p.num_parameters for p in result.path],
        "info": noted,
    }


def read_grown(result: Any) -> dict[str, Any]:
    """A `GrowResult`: the model's layers, scores and steps."""
    steps = [f"{s.kind} {s.layer} {_edge(s.edge)} {s.num_parameters}" for s in result.history]
    return {
        "num_parameters": result.num_parameters,
        "layers": {n: read_structure(m.structure) for n, m in tg.nn.tn_layers(result.model).items()},
        "validation": result.validation_error,
        "scores": [s.validation_error for s in result.history],
        "train_losses": [s.loss if math.isfinite(s.loss) else None for s in result.history],
        "stop": result.stop.name,
        "steps": steps,
    }


def read_compressed(result: Any) -> dict[str, Any]:
    """A `CompressResult`: what became of every layer."""
    return {
        "num_parameters": result.num_parameters,
        "parameters_before": result.parameters_before,
        "layers": {
            r.name: {
                "kind": r.kind,
                "parameters": [r.parameters_before, r.parameters_after],
                "bytes": [r.bytes_before, r.bytes_after],
                "relative_error": r.relative_error,
                "weighted_error": r.weighted_error,
                "structure": None if r.structure is None else read_structure(r.structure),
            }
            for r in result.layers
        },
    }


def read_numbers(values: Any) -> list[float]:
    """Numbers of an array, flat; a complex one gives real and imaginary parts."""
    array = torch.as_tensor(values).detach().resolve_conj()
    if array.is_complex():
        array = torch.view_as_real(array)
    return [float(v) for v in array.reshape(-1)]


def _step(step: Any) -> str:
    return f"{step.kind} {_edge(step.edge)} {step.num_parameters}"


def _edge(edge: Iterable[int] | None) -> str:
    return "-" if edge is None else "-".join(map(str, edge))
