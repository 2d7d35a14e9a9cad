"""What the page draws, as plain JSON values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from ..algebra import gauge
from ..network import TensorNetwork
from ..plotting.diagram import leg_texts
from ..plotting.growth import Rivals, as_rivals, error_name, front, main_growth, pick_evenly
from ..plotting.layout import choose_layout
from ..results import Result
from ..steps import Step
from ..structure import Structure

# Keeps the page small and quick however long the run was.
MOST_STEPS = 600


def finite(value: float | None) -> float | None:
    """Return the number, or None where JSON cannot express it."""
    return float(value) if value is not None and math.isfinite(value) else None


def collect(result: Result, rivals: Rivals | None) -> dict[str, Any]:
    """Collect steps, structures, curves and spectra of a result."""
    steps = pick_evenly(result.history, MOST_STEPS)
    found = result.structure
    structures = [*dict.fromkeys(s.structure for s in steps if s.structure != found), found]
    numbers = {s: n for n, s in enumerate(structures)}
    main = main_growth(result)
    return {
        "error_name": error_name(result),
        "num_steps": len(result.history),
        "main": main,
        "legs": leg_texts(found, result.leg_names),
        "structures": _place(structures),
        "final": numbers[found],
        "steps": [_step(s, numbers) for s in steps],
        "series": _series(result, steps, main, rivals),
        "spectra": _spectra(result.network),
        "num_edges": len(result.structure.edges),
    }


def _step(step: Step, numbers: dict[Structure, int]) -> dict[str, Any]:
    return {
        "index": step.index,
        "kind": step.kind,
        "edge": None if step.edge is None else list(step.edge),
        "rank": None if step.edge is None else step.structure.rank(*step.edge),
        "size": step.num_parameters,
        "error": finite(step.error),
        "validation": finite(step.validation_error),
        "seconds": finite(step.seconds),
        "start": step.start,
        "structure": numbers[step.structure],
    }


def _place(structures: list[Structure]) -> list[dict[str, Any]]:
    """Nodes ``[x, y, leg x, leg y, dimension]`` and edges ``[i, j, rank, place of the label, bend]``.

    The dimension of internal nodes is None; the control point is left out of edges that are straight. The
    last structure is the one that was found: its layout serves all.
    """
    layout = choose_layout(structures[-1])
    out = []
    for structure in structures:
        placed = layout.place(structure)
        nodes = [
            [*(round(v, 3) for v in (*where, *leg)), None if structure.is_internal(k) else structure.dims[k]]
            for k, (where, leg) in enumerate(zip(placed.nodes, placed.legs))
        ]
        edges = []
        for (i, j), rank in structure.ranks.items():
            middle = np.add(placed.nodes[i], placed.nodes[j]) / 2
            bend = () if np.allclose(middle, placed.controls[i, j]) else placed.controls[i, j]
            edges.append([i, j, rank, *(round(v, 3) for v in (*placed.labels[i, j], *bend))])
        out.append({"nodes": nodes, "edges": edges})
    return out


def _series(result: Result, steps: list[Step], main: int, rivals: Rivals | None) -> list[dict[str, Any]]:
    """Curves: points ``[size, error, position of the step or None]``, and which of them a line joins."""
    held_out = any(s.validation_error is not None for s in steps)

    def points(name: str, of_main: bool) -> list[list[Any]]:
        return [
            [s.num_parameters, finite(getattr(s, name)), n]
            for n, s in enumerate(steps)
            if (s.start == main) == of_main
        ]

    last = [[result.num_parameters, finite(result.errors.total), None]]
    tested = [[result.num_parameters, finite(result.test_error), None]]
    off_main = "validation_error" if held_out else "error"
    curves = [
        ("fitted", "growth: fitted data" if held_out else "growth", True, points("error", True)),
        ("held-out", "growth: held-out data", True, points("validation_error", True)),
        ("other", "other growths", False, points(off_main, False)),
        ("result", "result", False, last),
        ("test", "test data", False, tested),
    ]
    for name, pairs in as_rivals(rivals).items():
        curves.append(("rival", name, len(pairs) > 1, [[size, error, None] for size, error in pairs]))
    out = []
    for role, name, line, every in curves:
        known = [p for p in every if p[1] is not None]
        if known:
            # Of other methods every point counts; our own growths prune and come back.
            best = range(len(known)) if role == "rival" else front([(p[0], p[1]) for p in known])
            out.append({"role": role, "name": name, "line": list(best) if line else [], "points": known})
    return out


def _spectra(network: TensorNetwork) -> list[dict[str, Any]]:
    """Relative weights of the components of every edge in the balanced gauge, largest ranks first."""
    wide = network.to("cpu", torch.complex128 if network.is_complex else torch.float64)
    structure = wide.structure
    spectra = gauge.edge_spectra(structure, gauge.balance(structure, [c.detach() for c in wide.cores]))
    out = []
    # Bounded to keep the page small.
    for edge in sorted(spectra, key=lambda e: (-structure.rank(*e), e))[:72]:
        values = [float(v) for v in spectra[edge]]
        scale = max(values) or 1.0
        shown = [float(f"{v / scale:.3g}") for v in values[:64]]
        out.append({"edge": list(edge), "rank": structure.rank(*edge), "values": shown})
    return out
