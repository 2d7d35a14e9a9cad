"""What pictures and pages show of a run: its main growth, its networks, its kind of error, its rivals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from ..errors import OptionError
from ..results import PathPoint, Result
from ..steps import Step

Item = TypeVar("Item")
# Names of other methods with their result, (parameters, error), or a list of such pairs.
Rivals = Mapping[str, Any]


def error_name(result: Result) -> str:
    """What to call the errors of a result in pictures."""
    return "negative log-likelihood" if result.errors.kind == "nats" else result.errors.name


def headline(result: Result) -> tuple[str, float]:
    """Name and value of the error to judge a result by: where some entries are hidden, the one on those."""
    name, errors = error_name(result), result.errors
    if errors.test is not None:
        return f"{name} on hidden entries", errors.test
    if errors.validation is not None:
        return f"held-out {name.removeprefix('relative ')}", errors.validation
    return name, errors.total


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Positions of the points ``(size, error)`` that no smaller one beats, by size.

    Runs prune and grow again: a line from step to step would jump back, this one only falls.
    """
    best, out = math.inf, []
    for k in sorted(range(len(points)), key=lambda k: points[k]):
        if points[k][1] < best:
            best = points[k][1]
            out.append(k)
    return out


def as_rivals(rivals: Rivals | None) -> dict[str, list[tuple[float, float]]]:
    """Return the points ``(parameters, error)`` of other methods by name, sorted by size."""
    out: dict[str, list[tuple[float, float]]] = {}
    if rivals is not None and not isinstance(rivals, Mapping):
        raise OptionError(
            f"rivals is a mapping from names to (parameters, error), not {type(rivals).__name__}"
        )
    for name, pairs in (rivals or {}).items():
        if isinstance(pairs, Result):
            pairs = (pairs.num_parameters, pairs.errors.total)
        try:
            points = np.atleast_2d(np.array(pairs, dtype=float))
        except (TypeError, ValueError):
            points = np.empty((0, 0))
        if points.ndim != 2 or points.shape[-1] != 2 or not np.isfinite(points).all():
            raise OptionError(
                f"rivals[{name!r}] must be (parameters, error) or a list of such pairs of finite numbers, "
                f"not {pairs!r}"
            )
        out[str(name)] = sorted((float(size), float(error)) for size, error in points)
    return out


def main_growth(result: Result) -> int:
    """Return the number of the growth from scratch that led to the network of the result."""
    same = [s for s in result.history if s.structure == result.structure] or list(result.history[-1:])

    def distance(step: Step) -> float:
        if result.validation_error is None:
            return abs(step.error - result.errors.total)
        error = math.inf if step.validation_error is None else step.validation_error
        return abs(error - result.validation_error)

    return min(same, key=distance).start if same else 0


def network_at(result: Result, step: Step) -> PathPoint:
    """Return the network of a step, or the best one of at most its size that the run stored.

    A run stores the networks that no other beats in both size and error.
    """
    # The error of a result is computed once more, in double precision, so the two agree only roughly.
    is_result = step.structure == result.structure and math.isclose(
        step.error, result.errors.total, rel_tol=1e-3
    )
    if is_result or step.kind == "refit" or not result.path:
        return PathPoint(result.network, result.errors.total)
    fitting = [p for p in result.path if p.num_parameters <= step.num_parameters]
    same = [p for p in fitting if p.network.structure == step.structure and p.error == step.measure]
    return (same or fitting or [result.path[0]])[-1]


def pick_evenly(items: Sequence[Item], most: int) -> list[Item]:
    """Pick at most `most` of `items`, spread evenly, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[k] for k in dict.fromkeys(int(k) for k in np.linspace(0, len(items) - 1, most).round())]
