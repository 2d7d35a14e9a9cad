"""Priors of the axes of an array, as priors of the modes that hold their digits."""

from __future__ import annotations

import math

from ...errors import OptionError
from ...priors import ModePriors, Nonnegative, Nothing, Prior, Shared
from .axes import Tensorization


def along_digits(priors: ModePriors, how: Tensorization) -> ModePriors:
    """Turn priors by axis of an array into priors by mode of its tensor.

    An axis that is one digit keeps its prior. Along an axis of several digits, what is smooth is smooth along
    each of them, coarse ones less so; what repeats after a period is smooth along the digit that counts
    periods; a core that is not negative stands for cores of all digits that are not. Other priors are refused
    there.

    Parameters
    ----------
    priors
        Of the axes, from `tensorgrow.priors.by_axis`.
    """
    if how.flattened is not None and len(how.shape) > 1:
        if priors:
            raise OptionError(
                f"priors are about axes, and the array of shape {how.shape} is flattened before it is cut "
                "into digits; cut each axis by itself"
            )
        return {}
    found: ModePriors = {}
    for mode, digits in enumerate(how.modes):
        sizes = [how.digits[a][k] for a, k in digits]
        mine: list[Prior] = []
        for position, (axis, place) in enumerate(digits):
            around = math.prod(sizes[:position]), math.prod(sizes[position + 1 :])
            is_whole = len(how.digits[axis]) == 1
            shift = how.shift[axis] if how.shift and is_whole else 0
            for prior in priors.get(axis, ()):
                one = _of_digit(prior, how.digits[axis], place)
                if isinstance(one, Nothing):
                    continue
                is_plain = isinstance(one, Nonnegative) or (len(digits) == 1 and not shift)
                mine.append(one if is_plain else Shared(one, sizes[position], *around, shift))
        if mine:
            found[mode] = tuple(mine)
    for axis, several in priors.items():
        for prior in several:
            _check_used(prior, how.digits[axis])
    return found


def _of_digit(prior: Prior, sizes: tuple[int, ...], place: int) -> Prior:
    """The prior along one digit of an axis with digits of these sizes."""
    return prior if len(sizes) == 1 else prior.along_digit(sizes[place], math.prod(sizes[place + 1 :]))


def _check_used(prior: Prior, sizes: tuple[int, ...]) -> None:
    """Refuse a prior that says nothing about any digit."""
    if all(isinstance(_of_digit(prior, sizes, k), Nothing) for k in range(len(sizes))):
        steps = [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]
        raise OptionError(
            f"{prior} fits no digit of its axis: one step of them is {steps} places. Cut the axis so that "
            "one of its digits counts periods, or leave it whole"
        )
