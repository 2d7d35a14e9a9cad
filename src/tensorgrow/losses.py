"""Losses on entries: what an entry of the network says of an observed value.

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


# Rates and probabilities are taken to be at least this large for a start.
LEAST_RATE = 1e-3
# Longest step of a logarithm of rates or odds; the tip of the absolute loss, relative to the mean residual.
LONGEST_STEP = 2.0
# Rates and odds that are already extreme hardly matter; without this, steps in their direction are unbounded.
LEAST_CURVATURE = 1e-2
SHARPEST = 1e-2


class EntryLoss:
    """A loss of predictions and observed values.

    Attributes
    ----------
    name
        What it is called.
    ridge
        Of a completion, to begin with. A count or a bit says little of its rate or odds, so that these are
        held back more.
    """

    name: ClassVar[str] = ""
    ridge: ClassVar[float] = 1e-2

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __call__(
        self, prediction: torch.Tensor, target: torch.Tensor, weights: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Mean loss, weighted where `weights` are given."""
        each = self.each(prediction, target)
        return each.mean() if weights is None else (weights * each).sum() / weights.sum()

    def each(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Loss of every value."""
        raise NotImplementedError

    def mean(self, prediction: torch.Tensor) -> torch.Tensor:
        """The value to expect."""
        return prediction

    def least(self, target: torch.Tensor) -> torch.Tensor:
        """Loss of every value under its best prediction."""
        return torch.zeros_like(target)

    def working(self, prediction: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Parabola at the predictions: curvatures, and steps to their minima."""
        raise OptionError(
            f"{type(self).__name__} does not say how entries are fitted: give it a method `working`, or "
            "minimise it with `tensorgrow.learn`"
        )

    def level(self, values: torch.Tensor) -> float:
        """The constant prediction to start from."""
        return float(values.double().mean())

    def check(self, values: torch.Tensor) -> None:
        """Refuse observed values that the loss is not for."""
        if values.is_complex():
            raise DataError(f"the {self.name} loss is for real values, not {values.dtype}")


class Squared(EntryLoss):
    """``(f - y)^2``."""

    name = "squared"

    def each(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Loss of every value."""
        return (prediction - target) ** 2

    def working(self, prediction: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss itself."""
        return torch.full_like(target, 2.0), target - prediction

    def check(self, values: torch.Tensor) -> None:
        """Any values, complex ones too: they are solved for by least squares."""


class Absolute(EntryLoss):
    """``|f - y|``: follows the median, so that outliers matter less."""

    name = "absolute"

    def each(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Loss of every value."""
        return (prediction - target).abs()

    def working(self, prediction: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The parabola that touches the loss from above, rounded at its tip."""
        step = target - prediction
        tip = SHARPEST * step.abs().double().mean().to(step.dtype).clamp_min(1e-150)
        return 1.0 / torch.maximum(step.abs(), tip), step

    def level(self, values: torch.Tensor) -> float:
        """The median."""
        return float(values.median())


@dataclass(frozen=True)
class Huber(EntryLoss):
    """Squared up to `delta`, linear beyond: for a few outliers among normal noise."""

    delta: float = 1.0
    name = "huber"

    def __post_init__(self) -> None:
        check_positive("delta", self.delta, finite=True)

    def each(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Loss of every value."""
        return functional.huber_loss(prediction, target, reduction="none", delta=self.delta)

    def working(self, prediction: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The parabola that touches the loss from above."""
        step = target - prediction
        return self.delta / step.abs().clamp_min(self.delta), step

    def level(self, values: torch.Tensor) -> float:
        """The median."""
        return float(values.median())


class Poisson(EntryLoss):
    """Negative log-likelihood of counts with the rate ``exp(f)``."""

    name = "poisson"
    ridge = 0.1

    def each(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Loss of every value."""
        return prediction.exp() - target * prediction + torch.lgamma(target + 1.0)

    def least(self, target: torch.Tensor) -> torch.Tensor:
        """At the rate that equals the count."""
        return target - torch.xlogy(target, target) + torch.lgamma(target + 1.0)

    def working(self, prediction: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Fisher scoring; where the rate is far too low, a curvature that keeps the step short."""
        return _short_steps(prediction.exp(), target - prediction.exp())

    def mean(self, prediction: torch.Tensor) -> torch.Tensor:
        """The rate."""
        return prediction.exp()

    def level(self, values: torch.Tensor) -> float:
        """Logarithm of the mean count."""
        return math.log(max(super().level(values), LEAST_RATE))

    def check(self, values: torch.Tensor) -> None:
        """Counts are not negative."""
        super().check(values)
        if bool((values < 0).any()):
            raise DataError(f"the poisson loss is for counts; the smallest value is {float(values.min()):g}")


class Logistic(EntryLoss):
    """Negative log-likelihood of zeros and ones with the log-odds ``f``."""

    name = "logistic"
    ridge = 0.1

    def each(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Loss of every value."""
        return functional.softplus(prediction) - target * prediction

    def least(self, target: torch.Tensor) -> torch.Tensor:
        """At the log-odds of the value itself."""
        return -torch.xlogy(target, target) - torch.xlogy(1.0 - target, 1.0 - target)

    def working(self, prediction: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Fisher scoring; where the odds are far off, a curvature that keeps the step short."""
        chance = prediction.sigmoid()
        return _short_steps(chance * (1.0 - chance), target - chance)

    def mean(self, prediction: torch.Tensor) -> torch.Tensor:
        """The probability of a one."""
        return prediction.sigmoid()

    def level(self, values: torch.Tensor) -> float:
        """Log-odds of the mean."""
        share = min(max(super().level(values), LEAST_RATE), 1.0 - LEAST_RATE)
        return math.log(share / (1.0 - share))

    def check(self, values: torch.Tensor) -> None:
        """Values from 0 to 1."""
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
        """Loss of every value."""
        return functional.cross_entropy(prediction, target.long(), reduction="none")

    def check(self, values: torch.Tensor) -> None:
        """Entries have no leg for the classes."""
        raise OptionError(
            "cross_entropy needs a leg for the classes, which entries do not have; use `learn`, or "
            "'logistic' for two classes"
        )

    def mean(self, prediction: torch.Tensor) -> torch.Tensor:
        """Probabilities of the classes."""
        return prediction.softmax(-1)


def _short_steps(curvature: torch.Tensor, slope: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Newton's steps, with the curvature raised where they would be longer than is safe."""
    curvature = torch.maximum(curvature, slope.abs() / LONGEST_STEP).clamp_min(LEAST_CURVATURE)
    return curvature, slope / curvature


squared = Squared()
absolute = Absolute()
huber = Huber()
poisson = Poisson()
logistic = Logistic()
cross_entropy = CrossEntropy()
_BY_NAME = {loss.name: loss for loss in (squared, absolute, huber, poisson, logistic, cross_entropy)}


def as_loss(loss: str | EntryLoss) -> EntryLoss:
    """A loss from its name, or itself."""
    if isinstance(loss, EntryLoss):
        return loss
    if not isinstance(loss, str) or loss not in _BY_NAME:
        raise OptionError(
            f"loss={loss!r} is not known; choose one of {', '.join(map(repr, _BY_NAME))} or an EntryLoss"
        )
    return _BY_NAME[loss]
