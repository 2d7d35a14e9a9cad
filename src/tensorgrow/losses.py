"""Losses of entries.

Each is a function of predictions and observed values that returns the mean loss, and knows the expected value
that a prediction stands for: ``poisson.mean(f)`` is the rate ``exp(f)``, ``logistic.mean(f)`` the probability
``1 / (1 + exp(-f))``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import functional

from .errors import DataError, OptionError, check_positive

__all__ = [
    "Absolute",
    "CrossEntropy",
    "EntryLoss",
    "Huber",
    "Logistic",
    "Poisson",
    "Squared",
    "absolute",
    "as_loss",
    "cross_entropy",
    "huber",
    "logistic",
    "poisson",
    "squared",
]

# Smallest rate or probability to start from, since the logarithm of zero is infinite.
LEAST_RATE = 1e-3


class EntryLoss:
    """A loss of predictions and observed values.

    Attributes
    ----------
    name
        The name by which users choose the loss.
    ridge
        Ridge that a completion begins with. It is larger for counts and bits, each of which says little about
        its rate or odds.
    """

    name: ClassVar[str] = ""
    ridge: ClassVar[float] = 1e-2

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __call__(
        self, prediction: torch.Tensor, target: torch.Tensor, weights: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Mean loss, weighted by `weights` if there are any."""
        each = self.each(prediction, target)
        return each.mean() if weights is None else (weights * each).sum() / weights.sum()

    def each(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Loss of every value."""
        raise NotImplementedError

    def mean(self, prediction: torch.Tensor) -> torch.Tensor:
        """Expected value that a prediction stands for."""
        return prediction

    def least(self, target: torch.Tensor) -> torch.Tensor:
        """Loss of every value under its best prediction."""
        return torch.zeros_like(target)

    def working(self, prediction: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the curvatures of parabolas at the predictions, and the steps to their minima."""
        raise OptionError(
            f"{type(self).__name__} does not say how entries are fitted: give it a method `working`, or "
            "minimise it with `tensorgrow.learn`"
        )

    def level(self, values: torch.Tensor) -> float:
        """Return the constant prediction to start from."""
        return float(values.double().mean())

    def in_units(self, exponent: int) -> tuple[EntryLoss, float] | None:
        """Return this loss for values divided by ``2**exponent``; None where values have no unit.

        The loss is returned over the square of a factor, which comes with it: it is of about one then, for
        whatever exponent.
        """
        return None

    def check(self, values: torch.Tensor) -> None:
        """Raise an error for observed values that the loss cannot handle."""
        if values.is_complex():
            raise DataError(f"the {self.name} loss is for real values, not {values.dtype}")


class Squared(EntryLoss):
    """``(f - y)^2``."""

    name = "squared"

    def each(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (prediction - target) ** 2

    def working(self, prediction: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full_like(target, 2.0), target - prediction

    def in_units(self, exponent: int) -> tuple[EntryLoss, float]:
        return self, 2.0**exponent

    def check(self, values: torch.Tensor) -> None:
        """Accept any values, complex ones too: least squares solves for them."""


class Absolute(EntryLoss):
    """``|f - y|``: follows the median, so that outliers matter less."""

    name = "absolute"

    def each(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (prediction - target).abs()

    def working(self, prediction: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The parabola that touches the loss from above, rounded at its tip."""
        step = target - prediction
        # A tip of 1 % of the mean residual: curvatures stay finite.
        tip = 1e-2 * step.abs().double().mean().to(step.dtype).clamp_min(1e-150)
        return 1.0 / torch.maximum(step.abs(), tip), step

    def level(self, values: torch.Tensor) -> float:
        return float(values.median())

    def in_units(self, exponent: int) -> tuple[EntryLoss, float]:
        return self, 2.0 ** (exponent / 2)


@dataclass(frozen=True)
class Huber(EntryLoss):
    """Squared up to `delta`, linear beyond: for a few outliers among normal noise."""

    delta: float = 1.0
    name = "huber"

    def __post_init__(self) -> None:
        check_positive("delta", self.delta, finite=True)

    def each(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.huber_loss(prediction, target, reduction="none", delta=self.delta)

    def working(self, prediction: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        step = target - prediction
        return self.delta / step.abs().clamp_min(self.delta), step

    def level(self, values: torch.Tensor) -> float:
        return float(values.median())

    def in_units(self, exponent: int) -> tuple[EntryLoss, float]:
        """Threshold and residuals have the same unit.

        Far below the rounding of values of about one, and far above them, the threshold only multiplies the
        loss, or does nothing.
        """
        delta = self.delta * 2.0**-exponent if exponent > -1000 else math.inf
        near = min(max(delta, 1e-18), 1e18)
        return Huber(near), 2.0**exponent * math.sqrt(min(delta / near, 1.0))


class Poisson(EntryLoss):
    """Negative log-likelihood of counts with the rate ``exp(f)``."""

    name = "poisson"
    ridge = 0.1

    def each(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return prediction.exp() - target * prediction + torch.lgamma(target + 1.0)

    def least(self, target: torch.Tensor) -> torch.Tensor:
        """At the rate that equals the count."""
        return target - torch.xlogy(target, target) + torch.lgamma(target + 1.0)

    def working(self, prediction: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Fisher scoring; where the rate is far too low, a curvature that keeps the step short."""
        return _short_steps(prediction.exp(), target - prediction.exp())

    def mean(self, prediction: torch.Tensor) -> torch.Tensor:
        return prediction.exp()

    def level(self, values: torch.Tensor) -> float:
        return math.log(max(super().level(values), LEAST_RATE))

    def check(self, values: torch.Tensor) -> None:
        super().check(values)
        if bool((values < 0).any()):
            raise DataError(f"the poisson loss is for counts; the smallest value is {float(values.min()):g}")


class Logistic(EntryLoss):
    """Negative log-likelihood of zeros and ones with the log-odds ``f``."""

    name = "logistic"
    ridge = 0.1

    def each(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.softplus(prediction) - target * prediction

    def least(self, target: torch.Tensor) -> torch.Tensor:
        """At the log-odds of the value itself."""
        return -torch.xlogy(target, target) - torch.xlogy(1.0 - target, 1.0 - target)

    def working(self, prediction: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Fisher scoring; where the odds are far off, a curvature that keeps the step short."""
        chance = prediction.sigmoid()
        return _short_steps(chance * (1.0 - chance), target - chance)

    def mean(self, prediction: torch.Tensor) -> torch.Tensor:
        return prediction.sigmoid()

    def level(self, values: torch.Tensor) -> float:
        share = min(max(super().level(values), LEAST_RATE), 1.0 - LEAST_RATE)
        return math.log(share / (1.0 - share))

    def check(self, values: torch.Tensor) -> None:
        super().check(values)
        if bool(((values < 0) | (values > 1)).any()):
            raise DataError(
                "the logistic loss is for values from 0 to 1; they range from "
                f"{float(values.min()):g} to {float(values.max()):g}"
            )


class CrossEntropy(EntryLoss):
    """Negative log-likelihood of class numbers; predictions are ``(n, classes)`` log-odds."""

    name = "cross_entropy"

    def each(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(prediction, target.long(), reduction="none")

    def check(self, values: torch.Tensor) -> None:
        raise OptionError(
            "cross_entropy needs a leg for the classes, which entries do not have; use `learn`, or "
            "'logistic' for two classes"
        )

    def mean(self, prediction: torch.Tensor) -> torch.Tensor:
        return prediction.softmax(-1)


def _short_steps(curvature: torch.Tensor, slope: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Newton's steps, with the curvature raised where they would be longer than is safe.

    Logarithms of rates or odds change by at most 2. Rates and odds that are already extreme hardly matter:
    without a least curvature of 0.01, steps in their direction are unbounded.
    """
    curvature = torch.maximum(curvature, slope.abs() / 2.0).clamp_min(1e-2)
    return curvature, slope / curvature


squared = Squared()
absolute = Absolute()
huber = Huber()
poisson = Poisson()
logistic = Logistic()
cross_entropy = CrossEntropy()
_BY_NAME = {loss.name: loss for loss in (squared, absolute, huber, poisson, logistic, cross_entropy)}


def as_loss(loss: str | EntryLoss) -> EntryLoss:
    """Return a loss by its name; a loss is returned as it is."""
    if isinstance(loss, EntryLoss):
        return loss
    if not isinstance(loss, str) or loss not in _BY_NAME:
        raise OptionError(
            f"loss={loss!r} is not known; choose one of {', '.join(map(repr, _BY_NAME))} or an EntryLoss"
        )
    return _BY_NAME[loss]
