"""Completion, whatever form the observations have."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from ..data.arrays import scale_out, times_power
from ..data.axes import Axes, container_of, is_frame
from ..data.gaps import Gaps
from ..data.holdout import AUTO
from ..data.observations import Observations, is_listed
from ..data.tensorization.mode_priors import along_digits
from ..errors import DataError, OptionError
from ..losses import EntryLoss, Squared, squared
from ..network import TensorNetwork
from ..objectives import Penalties
from ..priors import ModePriors, by_axis, describe
from ..results import Errors, Result
from ..search import HeldOutSearch, Start
from ..structure import Structure
from .held_out import HeldOutTask
from .request import Request


@dataclass(frozen=True)
class Observed:
    """What the user knows of a tensor; `complete` says what the fields mean.

    `memory` stands for entries that were known once: it is fitted, and never held out.
    """

    x: Any
    mask: Any = None
    loss: EntryLoss = squared
    weights: Any = None
    validation: Any = AUTO
    truth: Any = None
    memory: Observations | None = None

    @property
    def given_weights(self) -> Any:
        """Weights of the user; None where there are none, or held-out entries choose them."""
        return None if self.chooses_weights else self.weights

    @property
    def chooses_weights(self) -> bool:
        return isinstance(self.weights, str) and self.weights == AUTO


class ObservationTask(HeldOutTask):
    """A run on some entries of a tensor.

    Attributes
    ----------
    loss
        For values in the units computed in.
    loss_factor
        The root of what that loss was divided by.
    weight_exponent
        The power of two that weights were divided by.
    test
        Positions and true values of entries that were not observed.
    gaps
        How entries are missing, where others are held out alike.
    """

    loss: EntryLoss
    loss_factor: float = 1.0
    weight_exponent: int = 0
    test: tuple[torch.Tensor, torch.Tensor] | None = None
    gaps: Gaps | None = None

    def __init__(self, observed: Observed, request: Request, structure: Structure | None) -> None:
        self.request = request
        self.loss = observed.loss
        self.structure = structure
        self._exponent = 0

    @property
    def known(self) -> ModePriors:
        """What the user knows of the axes of the array."""
        names = None if self.axes is None else self.axes.names
        return by_axis(self.request.priors, self.shape if self.how is None else self.how.shape, names)

    @cached_property
    def penalties(self) -> Penalties:
        return Penalties(self.known if self.how is None else along_digits(self.known, self.how), self.shape)

    def check(self) -> None:
        super().check()
        if self.penalties.nonnegative:
            self._check_nonnegative()

    def _check_nonnegative(self) -> None:
        """Refuse data that networks with cores that are not negative cannot stand for."""
        if self.probe.is_complex():
            raise DataError(
                f"nonnegative() is about real numbers, and the values are {self.probe.dtype}; complete their "
                "absolute values, or leave it out"
            )
        if type(self.loss).mean is not EntryLoss.mean:
            raise OptionError(
                f"nonnegative() does not go with loss={self.loss.name!r}: entries of the network are "
                "logarithms or log-odds there, which may be negative, and its predictions never are"
            )
        least = times_power(self.smallest, self.exponent)
        if self.penalties.is_nonnegative and least < 0.0:
            raise DataError(
                f"all axes are nonnegative(), and so is their tensor, but the smallest value is {least:g}. "
                "Set negative values to zero where they are noise, or leave out an axis that carries the sign"
            )

    def use_units(self, exponent: int) -> None:
        """Compute with values divided by a power of two, where the loss lets them have units."""
        units = self.loss.in_units(exponent)
        if units is not None:
            self._exponent = exponent
            self.loss, self.loss_factor = units

    @property
    def exponent(self) -> int:
        return self._exponent

    @property
    def is_reweighted(self) -> bool:
        """Whether the loss is not the squared one, so that every fit reweights the entries."""
        return not isinstance(self.loss, Squared)

    @property
    def loss_scale(self) -> float:
        return self.loss_factor * math.sqrt(2.0**self.weight_exponent)

    @property
    def default_ridge(self) -> float:
        return self.loss.ridge

    @property
    def what(self) -> str:
        return f"completing a tensor of shape {self.shape} from {self.num_observations:,} entries"

    @property
    @abstractmethod
    def smallest(self) -> float:
        """The smallest value, in the units computed in, where values are real."""

    @property
    @abstractmethod
    def num_observations(self) -> int:
        """Observations, fitted or not."""

    @abstractmethod
    def lists(self, known: Observations) -> torch.Tensor:
        """Tell which of some entries are among the observations."""

    def test_error(self, network: TensorNetwork) -> float | None:
        """Compute the relative error of what is predicted for entries that were not observed."""
        if self.test is None:
            return None
        return self.test_error_at(network.entries(self.test[0].to(network.device)))

    def test_error_at(self, predicted: torch.Tensor) -> float:
        """The same where the entries that were not observed are `predicted`."""
        assert self.test is not None
        values = self.test[1]
        wide = torch.complex128 if values.is_complex() or predicted.is_complex() else torch.float64
        true = values.to(predicted.device, wide)
        true, exponent = scale_out(true)  # squares of extreme values overflow or vanish
        norm = float(torch.linalg.vector_norm(true))
        if self.request.bounds is not None:
            predicted = predicted.clamp(*self.request.bounds)
        rest = times_power(predicted.to(wide), -exponent) - true
        return float(torch.linalg.vector_norm(rest)) / (norm or 1.0)

    def note_axes(self, x: Any, labelled: Axes | None) -> None:
        """Remember what the user's array says of itself, or the labels of a list of entries."""
        is_list = is_listed(x) or labelled is not None
        self.axes = Axes.of(labelled if is_list else x, len(self.shape), self.request.names)
        if not is_list or isinstance(x, torch.Tensor):
            self.container = container_of(x)

    def note_truth(self, truth: Any) -> None:
        """Take entries that were not observed to test on, where they are known."""
        if truth is None:
            return
        if is_frame(truth) and self.axes is not None and self.axes.value in list(truth.columns):
            where, value = self.axes.positions(truth), truth[self.axes.value].to_numpy()
            known = Observations(where, value, self.shape)
        else:
            known = truth if isinstance(truth, Observations) else Observations.from_dense(truth)
        if known.shape != self.shape:
            raise DataError(f"truth has shape {known.shape}, the tensor {self.shape}")
        unseen = ~self.lists(known)
        if not bool(unseen.any()):
            raise DataError("truth lists no entry that is not observed: there is nothing to test on")
        self.test = known.indices[unseen], known.values[unseen]

    def random_start(self) -> TensorNetwork | None:
        """Draw a network to start from where the user gives none, in the units computed in.

        None: a random one of rank one.
        """
        if self.structure is None:
            return None
        return TensorNetwork.random(self.structure, random_state=self.generator, dtype=self.probe.dtype)

    def start(self) -> Start:
        start = super().start()
        return start if start.init is not None else replace(start, init=self.random_start())

    def zero(self) -> Result:
        result = super().zero()
        validation, test = 0.0 if self.num_held_out else None, self.test_error(result.network)
        return replace(result, errors=Errors(0.0, "relative", 0.0, validation, test))

    def errors(self, search: HeldOutSearch, network: TensorNetwork, total: float) -> Errors:
        answer = search.answer
        assert answer is not None
        # Weights that the search chose are a means to fit well, not what errors are about.
        fitted, structure = self.objective(search.ridge), answer.network.structure
        arrays = fitted.to_arrays(answer.network)
        train, validation = fitted.loss(structure, arrays), fitted.validation_loss(structure, arrays)
        return Errors(
            total,
            "deviance" if self.is_reweighted else "relative",
            train=train / (fitted.norm or 1.0),
            validation=None if validation is None else validation / search.problem.scale,
            test=self.test_error(self.bring_home(network)),
        )

    def identity(self, search: HeldOutSearch) -> Mapping[str, object]:
        norm = search.problem.objective.norm
        known = [[axis, several] for axis, several in describe(self.known).items()]
        return {**super().identity(search), "loss": repr(self.loss), "norm": norm, "priors": known}

    def about(self) -> Mapping[str, object]:
        names = None if self.axes is None else self.axes.names
        known = describe(self.known)
        return {
            "num_observations": self.num_observations,
            "num_held_out": self.num_held_out,
            **({} if self.gaps is None else {"gaps": self.gaps.describe(names)}),
            **({"priors": known} if known else {}),
        }
