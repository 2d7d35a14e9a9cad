"""Alternating least squares on normal equations, kept sound by gauge control."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import torch

from ..algebra.gauge import balance, balance_arrays
from ..algebra.linalg import is_single
from ..contraction import Array
from ..data.devices import flops_in
from ..network import TensorNetwork
from ..objectives import LeastSquares, SharesPasses
from ..objectives.base import CANCELLATION, CANCELLATION_SINGLE
from ..structure import Structure
from .deadline import OutOfTime, TimedCores
from .sweep_graphs import SweepGraphs

# Nominal seconds from which a sweep is watched. Large ones are 50 to 100 times faster than that on an H200.
WATCHED_SECONDS = 20.0
# Rounding of a squared loss in double precision that is a difference of sums, relative to the squared norm:
# at the optimum of noisy tensors of 40^4 and 100^3, losses of 0.1 rise and fall by up to 1.4e-13.
SUM_ROUNDING = 1.5e-14


@dataclass(frozen=True)
class ALSSettings:
    """When and how carefully to sweep."""

    max_sweeps: int = 100
    min_sweeps: int = 1  # so many are made whatever they gain: where a ridge counts, the loss may rise first
    tolerance: float = 1e-4  # stop when a sweep lowers the loss by less than this share of it
    # Compare losses before and after `balance_every` sweeps instead, whichever is lower. For ridges that
    # count: they hold for a gauge, so that the loss rises and falls from one balancing to the next.
    by_period: bool = False
    # Stop when a sweep lowers the relative squared error by less than this (the paper's rule); off when 0.
    absolute_tolerance: float = 0.0
    ridge: float = 1e-14  # added to the unit diagonal of every scaled Gram
    balance_every: int = 5  # sweeps between two gauge balancings
    # Whether that begins before the first sweep. Random cores have nothing out of balance yet.
    balance_first: bool = True
    # Start sweeps from a point beyond the last one, in the direction of the last change; a sweep that does
    # not lower the loss is undone.
    accelerate: bool = False
    momentum: float = 0.5  # how far beyond at first, as a share of the last change; it adapts


@dataclass(frozen=True)
class ALSFit:
    """A fitted network and how it got there."""

    network: TensorNetwork
    loss: float
    losses: tuple[float, ...]
    interrupted: bool = False

    @property
    def num_sweeps(self) -> int:
        return len(self.losses)


def als(
    objective: LeastSquares,
    network: TensorNetwork,
    settings: ALSSettings,
    *,
    target: float | None = None,
    give_up: bool = False,
    most: float = math.inf,
    deadline: float = math.inf,
    keep_on_interrupt: bool = False,
    graphs: SweepGraphs | None = None,
) -> ALSFit:
    """Fit all cores of a network by least squares, one after the other.

    Parameters
    ----------
    target
        Stop as soon as the loss is at most this.
    give_up
        Stop early when the losses, extrapolated as a geometric series, will not reach `target`.
    most
        Stop after the first sweep where the loss on held-out data is above this.
    deadline
        Value of ``time.perf_counter()`` after which no new sweep starts, except the first; one that is under
        way long after it is broken off, and undone unless it is the first.
    keep_on_interrupt
        Ctrl-C ends the fit after the last whole sweep, instead of being raised.
    graphs
        Recorded sweeps of earlier fits on a GPU.
    """
    structure = network.structure
    sweeps = Sweeps(objective, structure, settings, deadline, graphs)
    nonnegative = objective.nonnegative(structure)
    # Signs of a start say nothing where none is allowed, sizes do.
    arrays = [abs(a) if k in nonnegative else a for k, a in enumerate(objective.to_arrays(network))]
    begin = objective.loss(structure, arrays) if sweeps.is_rounded else math.inf
    losses: list[float] = []
    previous = math.inf
    last_drop = math.inf
    step = Extrapolation(settings.momentum, nonnegative)
    interrupted = False
    for sweep in range(settings.max_sweeps):
        whole = list(arrays)
        try:
            is_due = sweep % settings.balance_every == 0 and (sweep > 0 or settings.balance_first)
            if is_due and not (settings.accelerate and step.is_active):
                arrays = _balance(structure, arrays, nonnegative)
                whole = list(arrays)  # a sweep that is undone leaves the cores balanced
                step.forget()
            if settings.accelerate:
                arrays, loss = step.sweep(arrays, previous, sweeps)
            else:
                loss = sweeps(arrays)
        except _BrokenOff as late:
            arrays = whole if losses else late.cores
            break
        except KeyboardInterrupt:
            if not (keep_on_interrupt and losses):
                raise
            arrays, interrupted = whole, True
            break
        if sweeps.is_rounded and not loss < min(previous, begin):
            # Gram matrices are too close to singular for less precision, or it has done what it can.
            objective, arrays = objective.in_full(), whole
            sweeps = Sweeps(objective, structure, settings, deadline, graphs)
            step.forget()
            continue
        if not math.isfinite(loss):  # a failed factorisation must not spoil the fit so far
            arrays = whole
            break
        losses.append(loss)
        if target is not None and loss <= target:
            break
        if len(losses) == 1 and math.isfinite(most):
            held_out = objective.validation_loss(structure, arrays)
            if held_out is not None and held_out > most:
                break
        drop = previous - loss
        least = settings.tolerance * loss
        if settings.tolerance >= 0.0:  # else no sweep is one too many
            least = max(least, sweeps.rounding)
        if settings.by_period:
            period = settings.balance_every
            is_over = len(losses) > period and len(losses) % period == 0  # just before the next balancing
            if is_over and abs(losses[-1 - period] - loss) < period * least:
                break
        elif drop < least and len(losses) >= settings.min_sweeps:
            break
        if settings.absolute_tolerance and math.isfinite(previous):
            scale = objective.norm**2 or 1.0
            if (previous**2 - loss**2) / scale < settings.absolute_tolerance:
                break
        if give_up and target is not None and sweep >= 3:
            ratio = min(max(drop / last_drop, 0.0), 0.97) if last_drop else 0.0
            if loss - 3.0 * drop * ratio / (1.0 - ratio) > target:
                break
        if time.perf_counter() > deadline:
            break
        previous, last_drop = loss, drop
    # In single precision sums over cores that cancel miss by up to a few thousandths, and a target may hang
    # on that; data that is costly to read is summed in double.
    is_sure = not is_single(arrays[0].dtype) or sweeps.is_rounded or isinstance(objective, SharesPasses)
    loss = losses[-1] if losses and is_sure else objective.loss(structure, arrays)
    return ALSFit(objective.to_network(structure, arrays), loss, tuple(losses), interrupted)


class Extrapolation:
    """Momentum between sweeps with restart (Nesterov-style, as used for CP by Ang et al.).

    From the iterates before and after the last accepted sweep, the next sweep starts ``weight`` of the way
    beyond. Where that does not lower the loss, the sweep is repeated from the last accepted point; where that
    one does not either, the loss cannot tell, and no direction is kept. Cores that are `nonnegative` go as
    far as zero.
    """

    def __init__(self, weight: float, nonnegative: Collection[int] = ()) -> None:
        self.weight = weight
        self.nonnegative = nonnegative
        self.ceiling = 1.0
        self.before: list[Array] | None = None
        self.misses = 0

    @property
    def is_active(self) -> bool:
        """Whether a direction is known; a change of gauge would spoil it."""
        return self.before is not None and self.misses < 2

    def forget(self) -> None:
        """Drop the direction, because the gauge changed."""
        self.before = None
        self.misses = 0

    def sweep(
        self, arrays: list[Array], previous: float, plain: Callable[[list[Array]], float]
    ) -> tuple[list[Array], float]:
        """One accepted sweep from `arrays`; returns the new cores and their loss."""
        here = list(arrays)
        if self.before is not None:
            trial = [a + self.weight * (a - b) for a, b in zip(here, self.before)]
            trial = [a.clip(0.0) if k in self.nonnegative else a for k, a in enumerate(trial)]
            loss = plain(trial)
            if loss <= previous:
                self.weight = min(self.weight * 1.05, self.ceiling)
                self.ceiling = min(1.0, self.ceiling * 1.01)
                self.misses = 0
                self.before = here
                return trial, loss
            self.ceiling, self.weight = self.weight, 0.7 * self.weight
            self.misses += 1
        out = list(here)
        loss = plain(out)
        self.before = here if loss <= previous else None
        return out, loss


class _BrokenOff(Exception):
    """A sweep ran out of time after it had updated some of the cores."""

    def __init__(self, cores: list[Array]) -> None:
        super().__init__()
        self.cores = cores


class Sweeps:
    """Sweeps of one fit, in place; each returns the loss after it."""

    def __init__(
        self,
        objective: LeastSquares,
        structure: Structure,
        settings: ALSSettings,
        deadline: float,
        graphs: SweepGraphs | None,
    ) -> None:
        self.objective, self.structure, self.settings = objective, structure, settings
        self.deadline = deadline
        self.graphs = SweepGraphs() if graphs is None else graphs
        self.count = 0
        self.rounding = 0.0  # differences of losses below this mean nothing
        self.is_rounded = objective.is_rounded(structure)
        # A sweep that takes long is watched, as it may have to be broken off.
        is_short = objective.sweep_flops(structure) < flops_in(WATCHED_SECONDS, objective.device)
        on_gpu = torch.device(objective.device).type == "cuda"
        self.recording = objective.recording(structure, settings.ridge) if on_gpu and is_short else None
        self.size = objective.memory_needed(structure) if self.recording else 0

    def __call__(self, arrays: list[Array]) -> float:
        if self.is_rounded:  # sums cannot tell how well it went
            with np.errstate(over="ignore", invalid="ignore"):
                self._watched(arrays)
                return self.objective.loss(self.structure, arrays)
        squared = self._unwatched(arrays)
        if squared is None:
            squared = self._watched(arrays)
        self.count += 1
        share = CANCELLATION_SINGLE if is_single(arrays[0].dtype) else CANCELLATION
        if squared < share * self.objective.norm**2:
            self.rounding = 0.0
            return self.objective.loss(self.structure, arrays)
        loss = math.sqrt(squared)
        self.rounding = SUM_ROUNDING * self.objective.norm**2 / loss if loss else 0.0
        return loss

    def _unwatched(self, arrays: list[Array]) -> float | None:
        """The squared loss after a sweep without a look at its factorisations; None where one failed."""
        if self.recording is None:
            return None
        cores, more = list(arrays), self.settings.max_sweeps - self.count - 1
        explained = self.graphs.sweep(self.recording, cores, size=self.size, more=more)
        if not math.isfinite(explained):
            self.recording = None  # it would fail again
            return None
        arrays[:] = cores
        return self.recording.squared_loss(arrays, explained)

    def _watched(self, arrays: list[Array]) -> float:
        ridge = self.settings.ridge
        if not math.isfinite(self.deadline):
            return self.objective.sweep(self.structure, arrays, ridge)
        timed = TimedCores(arrays, self.deadline)
        try:
            squared = self.objective.sweep(self.structure, timed, ridge)
        except OutOfTime:
            raise _BrokenOff(list(timed)) from None
        arrays[:] = timed
        return squared


def _balance(structure: Structure, arrays: list[Array], nonnegative: Collection[int]) -> list[Array]:
    if isinstance(arrays[0], np.ndarray):
        if not nonnegative:
            return balance_arrays(structure, arrays)
        cores = [torch.from_numpy(np.ascontiguousarray(a)) for a in arrays]
        return [c.numpy() for c in balance(structure, cores, nonnegative)]
    return list(balance(structure, arrays, nonnegative))
