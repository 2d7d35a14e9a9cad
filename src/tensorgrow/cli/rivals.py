"""The methods that `compare` runs beside ours."""

from __future__ import annotations

from ..results import Result
from .inputs import Input

__all__ = ["METHODS", "run_rival"]

METHODS = ("TT-SVD, stored order", "TT-SVD, interleaved", "Tucker", "CP")


def run_rival(name: str, data: Input, *, max_error: float, max_seconds: float, seed: int) -> Result | None:
    """One method at an error; None where it does not apply."""
    from ..baselines import cp, hosvd, tt_svd

    stored, interleaved = _chains(data)
    if name == "Tucker":  # a rank for every mode; one rank for all would be far larger
        return hosvd(data.tensor, max_error=max_error)
    if name == "CP":
        if data.tensor.ndim < 2:  # a vector is its own
            return None
        return cp(data.tensor, max_error=max_error, max_seconds=max_seconds, random_state=seed)
    if name == "TT-SVD, stored order":
        return tt_svd(data.tensor, order=stored, max_error=max_error)
    return None if interleaved == stored else tt_svd(data.tensor, order=interleaved, max_error=max_error)


def _chains(data: Input) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Modes axis after axis, and scale after scale; modes that hold several axes go by their first."""
    how = data.how
    modes = range(len(how.modes))
    stored = sorted(modes, key=lambda m: how.modes[m][0] if how.modes[m] else (-1, -1))

    def scale(m: int) -> tuple[int, int, int]:
        axis, place = how.modes[m][0] if how.modes[m] else (0, 0)
        places = len(how.digits[axis])
        return (1, 0, axis) if places == 1 else (0, place - places, axis)

    return tuple(stored), tuple(sorted(modes, key=scale))
