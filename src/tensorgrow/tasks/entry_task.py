"""Completion from observations in memory."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import replace
from functools import cached_property

import torch

from ..data.arrays import exponent_for, floor_exponent, largest, scale_out, times_power
from ..data.devices import one_blas_thread, one_thread
from ..data.fingerprint import fingerprint_positions, fingerprint_tensors
from ..data.gaps import Gaps
from ..data.holdout import Split, positions_in, warn_of_gaps
from ..data.neighbours import ALIKE, CLOSE, find_alike
from ..data.observations import Observations, as_observations
from ..data.tensorization import Tensorization
from ..losses import EntryLoss
from ..network import TensorNetwork
from ..objectives import HeldOut, ObservedLeastSquares, ReweightedLeastSquares
from ..objectives.entries import entry_flops, index_bytes
from ..priors import smooth
from ..results import Errors, Result
from ..search import HeldOutSearch, Start
from ..structure import Structure
from .observation_task import ObservationTask, Observed
from .request import Request
from .uncertainty import assess

# Observations up to which torch computes on one thread. Products of wide rows have threads of their own; for
# the rest, two that wait for each other gain little, and lose a lot where other programs keep the cores busy.
FEW_ENTRIES = 100_000
# So many values none of which is negative tell that others are not: at most 3 % are, by 19 chances of 20. The
# same holds of values below the smallest one.
LEAST_POSITIVE = 100


class EntryTask(ObservationTask):
    """A run on observations in memory.

    Attributes
    ----------
    doubts
        After the run: errors to expect of every entry as `judged` predicts it, in the units computed in; None
        where nothing tells.
    renewed
        Of an update whose sweeps are not cheap: nodes that have new slices. The start was fitted before.
    """

    doubts: torch.Tensor | None = None
    renewed: Collection[int] | None = None

    def __init__(self, observed: Observed, request: Request, structure: Structure | None = None) -> None:
        super().__init__(observed, request, structure)
        seen = as_observations(observed.x, observed.mask, observed.given_weights, request.dtype)
        self.loss.check(seen.values)
        request.check_modes(seen.shape)
        count = len(seen.values)
        where, self.home = request.places(
            seen.values,
            entry_flops(count, len(seen.shape) * [request.width(seen.shape)]),
            index_bytes(Structure.rank_one(seen.shape), count) + 4 * count * seen.values.element_size(),
        )
        for_split, self.generator = request.generators()
        self._split = split = Split.of_entries(observed.validation)
        if observed.memory is None:
            self.gaps = split.gaps(seen, filled=request.cut_modes(seen.shape))
            held_out = split.entries(seen, observed.x, for_split, self.gaps)
        else:
            memory = observed.memory.like(seen)
            held_out = split.entries_of(seen, memory, observed.x, for_split)
            seen, held_out = _remember(seen, held_out, memory)
        warn_of_gaps(seen)
        if structure is None:
            request = _with_neighbours(request, self.gaps, seen)
            self.request = request = _with_bounds(request, self.loss, seen)
            if observed.chooses_weights and self._may_be_counts(seen):
                self.noise_power = None
        self.shape = seen.shape
        self.note_axes(observed.x, seen.axes)
        # Fits of other losses depend on how far from the data they start, so that they always have one unit.
        size = largest(seen.values)
        self.use_units(floor_exponent(size) if self.is_reweighted else exponent_for(size))
        self.indices = seen.indices.to(where)
        self.values = times_power(seen.values, -self.exponent).to(where)
        self.weights = None
        if seen.weights is not None:
            weights, self.weight_exponent = scale_out(seen.weights)
            self.weights = weights.to(where)
        self.held_out = None if held_out is None else held_out.to(where)
        self.request = request.holding_out(self.num_held_out, wanted=split.holds_out)
        self.note_truth(observed.truth)

    def _may_be_counts(self, seen: Observations) -> bool:
        """Whether values are whole numbers of which none is negative: noise may grow with their level."""
        if self.is_reweighted or seen.weights is not None or seen.values.is_complex():
            return False
        are_counts = (seen.values >= 0.0) & (seen.values == seen.values.round())
        return len(seen) >= LEAST_POSITIVE and bool(are_counts.all())

    def in_shape(self, how: Tensorization | None, number: int = 0) -> EntryTask:
        """Return a run on the same entries as those of another tensor; the same ones are held out.

        Parameters
        ----------
        how
            From the user's array to that tensor; None leaves it as it is.
        number
            Runs with different numbers draw different random numbers.
        """
        other = copy(self)
        for computed in ("_fitted", "_everything", "begun", "judged", "doubts", "penalties"):
            other.__dict__.pop(computed, None)
        other.generator = torch.Generator(self.generator.device)
        other.generator.set_state(self.generator.get_state())
        if number:
            other.generator.manual_seed((self.generator.initial_seed() + number) % (1 << 63))
        if how is None:
            return other
        other.how, other.shape = how, how.dims
        other.indices = _in_digits(self.indices, how)
        if self.test is not None:
            other.test = _in_digits(self.test[0], how), self.test[1]
        return other

    def holding_out_others(self, number: int) -> EntryTask:
        """Return a run on the same entries of which others are held out, unless the user says which."""
        other = self.in_shape(None, number)
        if self.held_out is not None and self._split.share is not None:
            seen = Observations(self.indices, self.values.real, self.shape)
            drawn = self._split.entries(seen, None, other.generator, self.gaps)
            other.held_out = None if drawn is None else drawn.to(self.indices.device)
        return other

    @property
    def probe(self) -> torch.Tensor:
        return self.values

    @property
    def smallest(self) -> float:
        return float(self.values.min())

    @property
    def num_observations(self) -> int:
        return len(self.values)

    @property
    def is_zero(self) -> bool:
        return not self.is_reweighted and not bool(self.values.any())

    def threads(self) -> AbstractContextManager[None]:
        return one_thread() if len(self.values) < FEW_ENTRIES else one_blas_thread()

    def objective(self, ridge: float, *, everything: bool = False) -> HeldOut:
        squares = self._everything if everything else self._fitted
        squares = squares.with_ridge(ridge)
        return ReweightedLeastSquares(squares, self.loss) if self.is_reweighted else squares

    @cached_property
    def _fitted(self) -> ObservedLeastSquares:
        weights = None if self.weights is None else self.weights.to(self.values.real.dtype)
        return ObservedLeastSquares(
            self.indices, self.values, self.shape, weights=weights, held_out=self.held_out
        )

    @cached_property
    def _everything(self) -> ObservedLeastSquares:
        return self._fitted.with_everything()  # positions and their joins are shared

    def random_start(self) -> TensorNetwork | None:
        if not self.is_reweighted or self.structure is not None:
            return super().random_start()
        # Other losses have a level of their own: start near it, with noise of a tenth, and not at zero.
        level = self.loss.level(self.values)
        size = max(abs(level), 0.1) ** (1.0 / len(self.shape))
        noise = TensorNetwork.random(
            Structure.rank_one(self.shape), random_state=self.generator, dtype=self.values.dtype
        )
        cores = [size * (1.0 + 0.1 * c) for c in noise.cores]
        cores[0] = math.copysign(1.0, level) * cores[0]
        return TensorNetwork(noise.structure, cores)

    def start(self) -> Start:
        start, ridge = super().start(), self.request.options.ridge
        if start.init is None or self.renewed is None:
            return start
        objective = self.objective(self.default_ridge if ridge is None else ridge)
        return replace(start, init=self._renew(start.init, objective.with_penalties(self.penalties)))

    def last_start(self, search: HeldOutSearch, everything: HeldOut) -> TensorNetwork:
        """In an update that did not grow, the start where that fits better: it saw what is held out now."""
        last, first = super().last_start(search, everything), search.start.init
        if self.renewed is None or first is None or first.structure != last.structure:
            return last
        both = (last, self._renew(first, everything))
        return min(both, key=lambda n: everything.loss(n.structure, everything.to_arrays(n)))

    def _renew(self, network: TensorNetwork, objective: HeldOut) -> TensorNetwork:
        """Solve for cores with new slices first: sweeps would fit the others to what these begin with."""
        if not self.renewed or self.is_reweighted:  # other losses have no closed form for it
            return network
        assert isinstance(objective, ObservedLeastSquares)
        return objective.with_solved(network, self.renewed, self.request.options.rounding_ridge)

    def lists(self, known: Observations) -> torch.Tensor:
        return positions_in(known, Observations(self.indices, self.values.real, self.shape))

    def finish(self, search: HeldOutSearch) -> Result:
        result, answer = super().finish(search), search.answer
        assert answer is not None
        if self.held_out is not None and self.loss.in_units(0) is not None:
            final = result.network.times_power(-self.exponent).to(self.values.device)
            squares, of_all = (s.with_ridge(search.ridge) for s in (self._fitted, self._everything))
            known, self.doubts = assess(squares, answer.network, of_all, final, self.exponent)
            result = replace(result, uncertainty=known)
        if not self.is_reweighted:
            return result
        predicted = answer.network.to(self.values.device).entries(self.indices)
        fitted = torch.ones_like(self.values, dtype=torch.bool) if self.held_out is None else ~self.held_out
        means = {"train_loss": self.loss(predicted[fitted], self.values[fitted])}
        if self.held_out is not None:
            means["validation_loss"] = self.loss(predicted[~fitted], self.values[~fitted])
        if self.test is not None:
            indices, values, network = self._in_units(*self.test, result.network)
            means["test_loss"] = self.loss(network.entries(indices), values)
        factor = self.loss_factor  # twice: its square alone may overflow
        return replace(
            result,
            info={
                **result.info,
                "loss": self.loss.name,
                **{name: float(mean) * factor * factor for name, mean in means.items()},
            },
        )

    def test_error(self, network: TensorNetwork) -> float | None:
        if self.test is None or not self.is_reweighted:
            return super().test_error(network)
        indices, values, network = self._in_units(*self.test, network)
        test = ReweightedLeastSquares(ObservedLeastSquares(indices, values, self.shape), self.loss)
        return test.loss(network.structure, test.to_arrays(network)) / (test.norm or 1.0)

    def errors_at(self, judged: torch.Tensor, final: torch.Tensor) -> Errors:
        """Errors of predictions of all entries before and after the last fit, in the units computed in."""
        fitted, everything = self._fitted, self._everything
        train, validation = fitted.losses_at(judged)
        return Errors(
            everything.losses_at(final)[0] / (everything.norm or 1.0),
            train=None if validation is None else train / (fitted.norm or 1.0),
            validation=None if validation is None else validation / (fitted.validation_norm or 1.0),
        )

    def _in_units(
        self, indices: torch.Tensor, values: torch.Tensor, network: TensorNetwork
    ) -> tuple[torch.Tensor, torch.Tensor, TensorNetwork]:
        """Entries and a network of the user in the units computed in, where the network is."""
        unit = network.times_power(-self.exponent)
        values = times_power(values, -self.exponent).to(unit.cores[0])
        return indices.to(unit.device), values, unit

    def fingerprint(self) -> Mapping[str, object]:
        everything = [self.indices, self.values, self.weights]
        held_out = 0 if self.held_out is None else fingerprint_positions(self.indices[self.held_out])
        return {"observations": fingerprint_tensors(everything), "held_out": held_out}


def _with_neighbours(request: Request, gaps: Gaps | None, seen: Observations) -> Request:
    """Where nothing is said of the axes, those are smooth along which known neighbours are alike.

    Where single entries are missing, only those along which they are nearly the same: the known entries all
    around a gap say more. Along fibres that are missing whole there is nothing to continue, and digits have a
    smoothness of their own.
    """
    if request.priors is not None or request.tensorize is not None or gaps is None:
        return request
    axes = (k for k in range(seen.order) if k not in gaps.whole)
    found = find_alike(seen, axes, CLOSE if gaps.are_random else ALIKE)
    return replace(request, priors={axis: smooth() for axis in found}) if found else request


def _with_bounds(request: Request, loss: EntryLoss, seen: Observations) -> Request:
    """Where nothing is said of bounds and no known value is negative, predictions are not below the least.

    Of entries that are missing at random, one among as many as are known is smaller still.
    """
    if request.bounds is not None or type(loss).mean is not EntryLoss.mean or seen.values.is_complex():
        return request
    if len(seen) < LEAST_POSITIVE or bool((seen.values < 0.0).any()):
        return request
    return replace(request, bounds=(float(seen.values.min()), None))


def _in_digits(positions: torch.Tensor, how: Tensorization) -> torch.Tensor:
    """Positions in an array as those in the tensor that it becomes."""
    return torch.from_numpy(how.positions(positions.cpu().numpy())).to(positions.device)


def _remember(
    seen: Observations, held_out: torch.Tensor | None, memory: Observations
) -> tuple[Observations, torch.Tensor | None]:
    """Observations with others beside them, each of the mean weight, that are not held out."""
    values = torch.cat([seen.values, memory.values])
    weights = seen.weights
    if weights is not None:
        weights = torch.cat([weights, weights.mean().expand(len(memory))])
    where = torch.cat([seen.indices, memory.indices])
    both = Observations(where, values, seen.shape, weights=weights)
    both.axes = seen.axes
    if held_out is not None:
        held_out = torch.cat([held_out, held_out.new_zeros(len(memory))])
    return both, held_out
