"""Priors of axes as the command line writes them: ``day=smooth``, ``hour=periodic``, ``day=periodic:7``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..data.axes import Axes
from ..errors import OptionError
from ..priors import Prior, autoregressive, nonnegative, periodic, smooth

KNOWN = "smooth, smooth:2, periodic, periodic:7, autoregressive:1:7, nonnegative"


def parse_priors(
    texts: Sequence[str] | None, axes: Axes | None, every: Iterable[int]
) -> dict[int | str, list[Prior]] | None:
    """Read priors by axis; without any, axes of times are smooth, or None: the data tells.

    Parameters
    ----------
    texts
        Each a prior, after the name or number of its axis and an equals sign, or of every axis; "none".
    axes
        Of the data.
    every
        Axes that a prior without a name is about.
    """
    if texts is None:
        return _of_times(axes)
    found: dict[int | str, list[Prior]] = {}
    for text in texts:
        axis, equals, name = text.rpartition("=")
        if name == "none" and not equals and len(texts) == 1:
            return {}
        prior = _parse(name)
        places: list[int | str] = list(every)
        if equals:
            places = [int(axis) if axis.isdigit() else axis]
        for place in places:
            found.setdefault(place, []).append(prior)
    return found


def _of_times(axes: Axes | None) -> dict[int | str, list[Prior]] | None:
    labels = () if axes is None else axes.labels
    times: dict[int | str, list[Prior]] = {
        k: [smooth()] for k, own in enumerate(labels) if own is not None and own.dtype.kind in "mM"
    }
    return times or None


def _parse(text: str) -> Prior:
    name, *numbers = text.split(":")
    values = [int(n) for n in numbers if n.isdigit()]
    match name, values if len(values) == len(numbers) else None:
        case "smooth", []:
            return smooth()
        case "smooth", [order]:
            return smooth(order=order)
        case "periodic", []:
            return periodic()
        case "periodic", [period]:
            return periodic(period)
        case "autoregressive", [_, *_]:
            return autoregressive(values)
        case "nonnegative", []:
            return nonnegative()
    raise OptionError(
        f"--prior {text!r} is not known; give one of {KNOWN}, after AXIS= for one axis, or none"
    )
