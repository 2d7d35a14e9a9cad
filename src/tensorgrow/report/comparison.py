"""A completion beside interpolation, judged on the same entries."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..baselines.interpolation import affordable_methods, interpolate
from ..data.holdout import AUTO, Split
from ..data.observations import Observations
from ..network import as_generator
from ..plotting.picture import View, as_dense
from ..results import Result
from .numbers import number
from .quality import Array, measure, relative_error


@dataclass(frozen=True)
class Filling:
    """One way to fill the gaps of an array.

    Attributes
    ----------
    name
        Of the method.
    array
        Without gaps; known entries keep their values. None where only numbers were saved.
    error
        Relative error on the entries that the comparison is about; None where there are none.
    psnr, ssim
        Of the whole array, where the truth is known; `ssim` of pictures.
    """

    name: str
    array: Array | None
    error: float | None
    psnr: float | None = None
    ssim: float | None = None


@dataclass(frozen=True)
class Comparison:
    """A completion and interpolations, on entries that none of them has seen.

    Attributes
    ----------
    where
        Which entries those are: "hidden" ones, or "held-out" ones where the truth is not known.
    ours, others
        The completion, and what it is compared with.
    view
        How their arrays become pictures, where they are such.
    """

    where: str
    ours: Filling
    others: tuple[Filling, ...]
    view: View | None = None

    def to_dict(self) -> dict[str, Any]:
        """The numbers, for files and ``--json``; `from_dict` reads them."""
        names = ("error", "psnr", "ssim")
        rows = [{"method": f.name} | {k: getattr(f, k) for k in names} for f in (self.ours, *self.others)]
        return {"entries": self.where, "methods": rows}

    @classmethod
    def from_dict(cls, data: Any) -> Comparison | None:
        """Read what `to_dict` wrote; None where it is something else."""
        try:
            numbers = [
                [None if r[k] is None else float(r[k]) for k in ("error", "psnr", "ssim")]
                for r in data["methods"]
            ]
            ours, *others = (
                Filling(str(r["method"]), None, *row) for r, row in zip(data["methods"], numbers)
            )
            return cls(str(data["entries"]), ours, tuple(others))
        except (KeyError, TypeError, ValueError):
            return None

    @property
    def verdict(self) -> str | None:
        """Say so where an interpolation does better; None where none does."""
        known = [(f.error, f.name) for f in self.others if f.error is not None]
        if self.ours.error is None or not known:
            return None
        error, name = min(known)
        if error >= self.ours.error:
            return None
        return f"{name} does better here: {number(error)} against {number(self.ours.error)}"


def compare(result: Result, observed: Array, truth: Array | None, view: View | None) -> Comparison | None:
    """Fill an array with gaps by interpolation as well; arrays have the user's own shape.

    Returns
    -------
    Comparison or None
        None where nothing is missing, where interpolation would take more than seconds (too many entries, or
        axes), and without SciPy.
    """
    estimate = as_dense(result.to_array())
    if view is not None:
        drawn = view.of(observed)
        # A picture of all entries says which are neighbours; one of some, where nothing else does.
        if drawn.size == observed.size or not affordable_methods(~np.isnan(observed)):
            observed, estimate, truth = drawn, view.of(estimate), None if truth is None else view.of(truth)
            view = View(drawn.shape)
    known = ~np.isnan(observed)
    methods = affordable_methods(known)
    if known.all() or not known.any() or not methods or find_spec("scipy") is None:
        return None
    hidden = ~known if truth is None else ~known & np.isfinite(truth)
    names = [f"{method} interpolation" for method in methods]
    found = {"tensorgrow": np.where(known, observed, estimate)}
    found |= {name: interpolate(observed, method=m) for name, m in zip(names, methods)}
    if truth is not None and hidden.any():
        errors = [relative_error(x[hidden], truth[hidden]) for x in found.values()]
        good = [measure(x, truth, view) for x in found.values()]
        rows = [
            Filling(name, x, error, quality.get("psnr"), quality.get("ssim"))
            for (name, x), error, quality in zip(found.items(), errors, good)
        ]
        return Comparison("hidden", rows[0], tuple(rows[1:]), view)
    held = _held_out(result, observed)
    errors_of: dict[str, float | None] = {"tensorgrow": None if held is None else result.validation_error}
    for name, method in zip(names, methods if held is not None else ()):
        assert held is not None
        again = interpolate(observed, known & ~held, method=method)
        errors_of[name] = relative_error(again[held], observed[held])
    rows = [Filling(name, x, errors_of.get(name)) for name, x in found.items()]
    return Comparison("held-out", rows[0], tuple(rows[1:]), view)


def _held_out(result: Result, observed: Array) -> NDArray[np.bool_] | None:
    """Draw entries to hold out as the run did, from its seed; None where it held out none."""
    if result.validation_error is None or result.errors.kind != "relative":
        return None
    seen = Observations.from_dense(observed)
    split, how = Split.of_entries(AUTO), result.tensorization
    gaps = split.gaps(seen, () if how is None else how.cut_axes)
    held = split.entries(seen, observed, as_generator(result.info.get("seed", 0)), gaps)
    if held is None:
        return None
    out = np.zeros(observed.shape, dtype=bool)
    out[tuple(seen.indices[held].T.cpu().numpy())] = True
    return out
