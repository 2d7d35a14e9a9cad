"""Training by gradients: any optimiser, early stopping, the best epoch wins."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch

from ..errors import DataError, OptionError, check_choice, check_positive, check_whole
from ..structure import Structure
from .cuda_graphs import CapturedStep, PlainStep
from .deadline import OutOfTime

Optimizer = Literal["adam", "adamw", "sgd", "lbfgs"] | Callable[[list[torch.Tensor]], torch.optim.Optimizer]
Schedule = Literal["constant", "cosine"] | Callable[[torch.optim.Optimizer], Any]
State = list[dict[str, torch.Tensor]]

# What optimisers call running means of squares: a zero there would make the first steps of new entries huge.
SECOND_MOMENTS = {"exp_avg_sq", "max_exp_avg_sq", "square_avg", "sum", "exp_inf"}


@dataclass(frozen=True)
class TrainingOptions:
    """How a network is trained where only gradients are available.

    Attributes
    ----------
    optimizer
        "adam", "adamw", "sgd", "lbfgs", or a function of the parameters that makes a ``torch.optim``
        optimiser. None: sweeps over the cores where the loss can be lowered core by core (densities), else
        L-BFGS where it sees all the data at once, and Adam where it comes in batches.
    learning_rate
        Of the optimiser; None: 1 for L-BFGS, 0.01 otherwise.
    epochs
        Passes over the data after each growth at most.
    candidate_epochs
        Passes for the new slices of a candidate edge.
    schedule
        "constant", "cosine", or a function of the optimiser that makes a scheduler; stepped every epoch
        (``ReduceLROnPlateau`` with the validation score, or the loss).
    clip
        Largest norm of the gradient; None: any.
    weight_decay
        Of the optimiser, where it has one.
    average
        Measure and return a running mean of the parameters instead of the parameters themselves; this is the
        share of the mean that survives a step, such as 0.998. 0: off.
    patience, tolerance
        Stop after `patience` epochs that each gained less than the share `tolerance`.
    patient_steps
        On batches, never stop before this many steps without a gain.
    keep_state
        Start the training after a growth from the optimiser's state before it.
    capture
        On a GPU, with Adam: record the step once as a CUDA graph and replay it, where that gives the same
        loss. Set it to False for a loss that draws random numbers on the host or changes from call to call.
    """

    optimizer: Optimizer | None = None
    learning_rate: float | None = None
    epochs: int = 200
    candidate_epochs: int = 5
    schedule: Schedule = "constant"
    clip: float | None = None
    weight_decay: float = 0.0
    average: float = 0.0
    patience: int = 10
    tolerance: float = 1e-4
    keep_state: bool = True
    patient_steps: int = 300  # saddles take time to leave
    capture: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.optimizer, str):
            check_choice("optimizer", self.optimizer, ("adam", "adamw", "sgd", "lbfgs"))
        if isinstance(self.schedule, str):
            check_choice("schedule", self.schedule, ("constant", "cosine"))
        for name, low in (("epochs", 1), ("candidate_epochs", 1), ("patience", 1), ("patient_steps", 0)):
            check_whole(name, getattr(self, name), low)
        for name in ("learning_rate", "clip"):
            value = getattr(self, name)
            if value is not None:
                check_positive(name, value, finite=True, more=" or None")
        for name in ("weight_decay", "tolerance"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise OptionError(f"{name}={value!r} must not be negative")
        if not 0.0 <= self.average < 1.0:
            raise OptionError(f"average={self.average!r} must be at least 0 and below 1")

    @classmethod
    def for_effort(cls, effort: str) -> TrainingOptions:
        """Options behind ``effort=``."""
        if effort == "fast":
            return cls(epochs=50, candidate_epochs=2, patience=5, tolerance=1e-3)
        if effort == "balanced":
            return cls()
        return cls(epochs=1000, candidate_epochs=10, patience=30, tolerance=1e-5)

    def make(self, parameters: list[torch.Tensor], *, whole: bool) -> torch.optim.Optimizer:
        """The optimiser for some parameters."""
        if callable(self.optimizer):
            return self.optimizer(parameters)
        name = self.optimizer or ("lbfgs" if whole else "adam")
        if name == "lbfgs":
            return torch.optim.LBFGS(
                parameters,
                lr=self.learning_rate or 1.0,
                max_iter=20,
                history_size=20,
                line_search_fn="strong_wolfe",
            )
        rate = self.learning_rate or 1e-2
        if name == "sgd":
            return torch.optim.SGD(parameters, lr=rate, momentum=0.9, weight_decay=self.weight_decay)
        kind = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
        if not self._captures(parameters):
            # One kernel for all of them, unless some are complex.
            fused = all(p.is_floating_point() for p in parameters) or None
            return kind(parameters, lr=rate, weight_decay=self.weight_decay, fused=fused)
        # A graph repeats numbers of the host: the rate lies on the device, where a schedule can change it.
        return kind(
            parameters,
            lr=torch.tensor(rate, device=parameters[0].device),
            weight_decay=self.weight_decay,
            capturable=True,
            fused=True,
        )

    def _captures(self, parameters: list[torch.Tensor]) -> bool:
        plain = all(p.is_cuda and p.is_floating_point() for p in parameters)
        return self.capture and not callable(self.optimizer) and plain

    def step(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: list[torch.Tensor],
        loss: Callable[[Any], torch.Tensor],
        buffers: Sequence[torch.Tensor],
    ) -> PlainStep:
        """What moves the parameters by the loss of a batch."""
        captured = self._captures(parameters) and isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW)
        return (CapturedStep if captured else PlainStep)(optimizer, parameters, loss, self.clip, buffers)

    def scheduler(self, optimizer: torch.optim.Optimizer, epochs: int) -> Any:
        """The learning-rate schedule; None for a constant one."""
        if callable(self.schedule):
            return self.schedule(optimizer)
        if self.schedule == "cosine":
            return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
        return None

    def after(self, count: int) -> TrainingOptions:
        """Options of a training that goes on after so many of the epochs: the schedule goes on there."""

        def schedule(optimizer: torch.optim.Optimizer) -> Any:
            made = self.scheduler(optimizer, self.epochs)
            with warnings.catch_warnings():  # torch would say that no step of the optimiser came before
                warnings.filterwarnings("ignore", message=".*lr_scheduler.step.*")
                for _ in range(count):
                    made.step()
            return made

        return self if self.schedule == "constant" else replace(self, schedule=schedule)

    def to_dict(self) -> dict[str, Any]:
        """JSON-friendly form; functions are named, not stored."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {k: f"callable {getattr(v, '__name__', k)}" if callable(v) else v for k, v in values.items()}


@dataclass(frozen=True)
class Training:
    """Outcome of a training."""

    measure: float  # validation score, or loss, of the best epoch
    # Mean loss over the batches of that epoch, each before its step; NaN for the state before the first.
    loss: float
    epochs: int
    state: State  # what the optimiser remembers of each parameter; empty where it has no memory by parameter


def train(
    parameters: Sequence[torch.Tensor],
    batches: Callable[[], Iterable[Any]],
    loss: Callable[[Any], torch.Tensor],
    options: TrainingOptions,
    *,
    measure: Callable[[], float] | None,
    whole: bool = False,
    epochs: int | None = None,
    state: State | None = None,
    deadline: float = math.inf,
    buffers: Sequence[torch.Tensor] = (),
    may_stay: bool = True,
    enough: float = -math.inf,
) -> Training:
    """Minimise a loss in place; parameters and buffers end at their best epoch.

    Parameters
    ----------
    parameters
        Leaves that require gradients.
    batches
        Gives the batches of an epoch.
    loss
        Of a batch, through the parameters.
    measure
        Score that decides on the best epoch, lower is better; None: the last epoch wins, measured by the mean
        loss over its batches.
    whole
        Whether there is one batch with all the data.
    state
        From an earlier training of the same parameters.
    deadline
        Value of ``time.perf_counter()`` after which an epoch is broken off; what it has reached counts.
    buffers
        What the loss changes as it is computed, such as running statistics.
    may_stay
        Whether the state before the first epoch may be the best one.
    enough
        No further epoch starts once the measure is no larger than this.
    """
    leaves = list(parameters)
    all_values = [*leaves, *buffers]
    optimizer = options.make(leaves, whole=whole)
    if state is not None:
        _load_state(optimizer, leaves, state)
    count = epochs or options.epochs
    schedule = options.scheduler(optimizer, count)
    best = math.inf if measure is None or not may_stay else measure()
    if math.isnan(best):
        best = math.inf
    best_values, best_loss = _copies(all_values), math.nan
    stale = done = 0
    watch = _Watch(loss, leaves, deadline)
    step = options.step(optimizer, leaves, watch if math.isfinite(deadline) else loss, buffers)
    average = _Average(leaves, options.average)
    is_late = False
    for _ in range(count):
        if best <= enough:
            break
        try:
            for batch in batches():
                step(batch)
                average.note()
        except OutOfTime:
            is_late = True
            if whole:
                watch.restore()
            elif not step.count:
                break  # nothing has happened in this epoch
        mean, steps = step.take_mean()
        if is_late and whole:
            mean, steps = watch.lowest, 1
        if not steps:
            raise DataError("`batches` is empty, or can be iterated over only once; give a list or a loader")
        done += 1
        average.swap()
        now = mean if measure is None else measure()
        if not math.isfinite(now):
            break  # the best epoch so far is restored
        if isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau):
            schedule.step(now)
        elif schedule is not None:
            schedule.step()
        gained = now < best - options.tolerance * max(abs(best), 1e-300) or math.isinf(best)
        stale = 0 if gained else stale + 1
        if now < best or measure is None:
            best, best_values, best_loss = now, _copies(all_values), mean
        average.swap()
        patient = stale < options.patience or (not whole and stale * steps < options.patient_steps)
        if not patient or is_late or time.perf_counter() > deadline:
            break
    step.close()
    with torch.no_grad():
        for own, value in zip(all_values, best_values):
            own.copy_(value)
    if not math.isfinite(best):
        raise DataError(
            "the loss is not finite, neither at the start nor after an epoch: check the loss, lower the "
            "learning rate, or give an `init`"
        )
    return Training(best, best_loss, done, _dump_state(optimizer, leaves))


class _Watch:
    """A loss that is computed once after the deadline at most, and the parameters for which it was lowest."""

    def __init__(
        self, loss: Callable[[Any], torch.Tensor], leaves: list[torch.Tensor], deadline: float
    ) -> None:
        self.loss, self.leaves, self.deadline = loss, leaves, deadline
        self.lowest, self._values, self._was_computed = math.inf, leaves, False

    def __call__(self, batch: Any) -> torch.Tensor:
        if self._was_computed and time.perf_counter() > self.deadline:
            raise OutOfTime
        self._was_computed = True
        value = self.loss(batch)
        size = float(value.detach())
        if size < self.lowest:
            self.lowest, self._values = size, _copies(self.leaves)
        return value

    @torch.no_grad()
    def restore(self) -> None:
        """Bring the best parameters back: a line search may have been far from them."""
        for own, other in zip(self.leaves, self._values):
            own.copy_(other)


class _Average:
    """Running mean of the parameters over the steps of a training; does nothing where `share` is zero."""

    def __init__(self, leaves: list[torch.Tensor], share: float) -> None:
        self.leaves, self.share, self.count = leaves, share, 0
        self.mean = _copies(leaves) if share else []

    @torch.no_grad()
    def note(self) -> None:
        """Add the values after a step."""
        if self.mean:
            self.count += 1
            share = min(self.share, self.count / (self.count + 9))  # the first values do not linger
            torch._foreach_lerp_(self.mean, self.leaves, 1.0 - share)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the mean and the values."""
        for own, other in zip(self.leaves, self.mean):
            held = own.clone()
            own.copy_(other)
            other.copy_(held)


def _copies(leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    return [leaf.detach().clone() for leaf in leaves]


def _dump_state(optimizer: torch.optim.Optimizer, leaves: list[torch.Tensor]) -> State:
    if isinstance(optimizer, torch.optim.LBFGS):
        return [{} for _ in leaves]
    return [
        {
            k: v.detach().clone()
            for k, v in optimizer.state.get(leaf, {}).items()
            if isinstance(v, torch.Tensor)
        }
        for leaf in leaves
    ]


def _load_state(optimizer: torch.optim.Optimizer, leaves: list[torch.Tensor], state: State) -> None:
    if isinstance(optimizer, torch.optim.LBFGS):
        return
    for leaf, values in zip(leaves, state, strict=True):
        if values and all(v.dim() == 0 or v.shape == leaf.shape for v in values.values()):
            group = optimizer.param_groups[0]
            near = group.get("capturable") or group.get("fused")
            optimizer.state[leaf] = {
                # Whatever the earlier training ran on: only some kernels want the count of steps beside them.
                k: v.to("cpu" if k == "step" and not near else leaf.device, copy=True)
                for k, v in values.items()
            }


def grow_state(
    values: Mapping[str, torch.Tensor], before: Structure, node: int, other: int
) -> dict[str, torch.Tensor]:
    """What an optimiser remembers of a core, after the core's edge to `other` grew by one.

    New entries start with a first moment of zero and the core's mean second moment.
    """
    rank = before.rank(node, other)
    axis = before.with_rank(node, other, rank + 1).axis(node, other)
    out = {}
    for name, value in values.items():
        if value.shape != before.core_shape(node):
            out[name] = value
            continue
        value = value.unsqueeze(axis) if rank == 1 else value
        fill = value.mean() if name in SECOND_MOMENTS else value.new_zeros(())
        new = fill.expand(value.narrow(axis, 0, 1).shape)
        out[name] = torch.cat([value, new], axis)
    return out
