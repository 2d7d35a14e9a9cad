"""A network as a probability distribution: likelihoods, exact samples, marginals and conditionals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..contraction.sums import OPEN, SET, SUMMED, PartialPlan, partial_plan
from ..data.devices import free_memory
from ..errors import DataError, FileFormatError, MemoryLimitError, OptionError, check_choice, is_whole
from ..files import loads, read_file, reading, write_file
from ..network import RandomState, TensorNetwork, as_generator
from ..objectives.density import Kind, log_partition, normalise_cores
from ..results import RESULT_KIND

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

DENSITY_KIND = "density"

# Numbers of an intermediate while samples are drawn; more prefixes are done in chunks.
CHUNK_ENTRIES = 1 << 22


class DensityModel:
    r"""A distribution over discrete sequences.

    .. math:: p(x) = |f(x)|^2 / \sum_y |f(y)|^2 \quad\text{or}\quad p(x) = f(x) / \sum_y f(y)

    Parameters
    ----------
    network
        The tensor ``f``, one leg per variable. It need not be normalised.
    kind
        "born": probabilities are squares of entries, which may be negative or complex. "nonnegative":
        probabilities are entries, of cores without negative numbers.

    Examples
    --------
    >>> from tensorgrow import Structure
    >>> model = DensityModel(TensorNetwork.random(Structure.tensor_train((2, 3, 2), 2), random_state=0))
    >>> round(float(model.marginal([0, 1, 2]).sum()), 12)
    1.0
    >>> tuple(model.sample(5, random_state=0).shape)
    (5, 3)
    """

    __slots__ = ("_unit", "kind", "network")

    network: TensorNetwork
    kind: Kind

    def __init__(self, network: TensorNetwork, kind: Kind = "born") -> None:
        if not isinstance(network, TensorNetwork):
            raise OptionError(f"a density is made of a TensorNetwork, not of {type(network).__name__}")
        check_choice("kind", kind, ("born", "nonnegative"))
        network = TensorNetwork(network.structure, [c.detach() for c in network.cores])
        if not all(bool(torch.isfinite(c).all()) for c in network.cores):
            raise DataError("the network has entries that are not finite")
        if kind == "nonnegative" and (network.is_complex or any(bool((c < 0).any()) for c in network.cores)):
            raise DataError(
                "the cores of a non-negative density must be real and have no negative entries; "
                "kind='born' takes any"
            )
        self.network = network
        self.kind = kind
        self._unit, _ = normalise_cores(network)
        if not float(log_partition(network, kind)) > -math.inf:
            raise DataError("the network is zero everywhere; a density needs at least one entry that is not")

    # -- likelihoods -----------------------------------------------------------------------------------

    @property
    def dims(self) -> tuple[int, ...]:
        """Numbers of values of the variables."""
        return self.network.structure.dims

    def log_partition(self) -> float:
        """Logarithm of the sum that probabilities are divided by."""
        return float(log_partition(self.network, self.kind))

    @torch.no_grad()
    def log_prob(self, samples: ArrayLike | torch.Tensor) -> torch.Tensor:
        """Log-probabilities, in nats; minus infinity where the probability is zero.

        Parameters
        ----------
        samples
            Integers of shape ``(n, order)``.
        """
        values = self._unit.entries(samples).abs()
        factor = 2.0 if self.kind == "born" else 1.0
        return factor * torch.log(values) - float(log_partition(self._unit, self.kind))

    def prob(self, samples: ArrayLike | torch.Tensor) -> torch.Tensor:
        """Probabilities of samples."""
        return torch.exp(self.log_prob(samples))

    def nll(self, samples: ArrayLike | torch.Tensor) -> float:
        """Mean negative log-likelihood per sample, in nats."""
        return -float(self.log_prob(samples).mean())

    # -- queries ---------------------------------------------------------------------------------------

    def marginal(self, legs: int | Iterable[int]) -> torch.Tensor:
        """Joint distribution of some variables, the others summed out.

        Parameters
        ----------
        legs
            Variables, in the order in which the result has its axes.
        """
        return self.conditional({}, legs)

    @torch.no_grad()
    def conditional(self, given: Mapping[int, int], legs: int | Iterable[int] | None = None) -> torch.Tensor:
        """Joint distribution of some variables where others are known, the rest summed out.

        Parameters
        ----------
        given
            Known values: leg -> value.
        legs
            Variables, in the order in which the result has its axes; by default all that are not given.
        """
        known = self._check_given(given)
        free = self._check_legs(legs, known)
        roles = "".join(SET if k in known else OPEN if k in free else SUMMED for k in range(len(self.dims)))
        plan = self._plan(roles, f"the distribution over legs {free}")
        rows = torch.zeros((1, len(self.dims)), dtype=torch.int64, device=self.network.device)
        for leg, value in known.items():
            rows[0, leg] = value
        weights = self._sums(plan, self._unit.cores, rows)
        total = float(weights.sum())
        # Sums within a few units of rounding of their terms cannot be told from zero.
        if known and not total > 16.0 * torch.finfo(weights.dtype).eps * self._terms(roles, rows):
            raise DataError(
                f"the event {known} has probability zero, or one too small to be told from rounding: nothing "
                "can be conditioned on it. Give values that occur together"
            )
        ascending = sorted(free)
        return (weights.clamp_min(0.0) / total).permute([ascending.index(k) for k in free])

    @torch.no_grad()
    def sample(self, n: int, random_state: RandomState = None) -> torch.Tensor:
        """Draw independent exact samples, ``(n, order)``: each variable given those before it.

        Parameters
        ----------
        n
            How many.
        random_state
            Seed or generator.
        """
        if not is_whole(n, 0):
            raise OptionError(f"n={n!r} must be a number of samples: a whole number of at least 0")
        generator, device = as_generator(random_state), self.network.device
        order = len(self.dims)
        # Distinct beginnings, and which of them each sample has: common ones are computed once.
        prefixes = torch.zeros((1 if n else 0, order), dtype=torch.int64, device=device)
        member = torch.zeros(int(n), dtype=torch.int64, device=device)
        for leg, d in enumerate(self.dims):
            roles = SET * leg + OPEN + SUMMED * (order - leg - 1)
            plan = self._plan(roles, "the distribution of one leg given those before it")
            weights = self._sums(plan, self._unit.cores, prefixes).reshape(-1, d).clamp_min(0.0)
            edges = weights.double().cumsum(1)
            uniform = torch.rand(int(n), generator=generator, dtype=torch.float64, device=generator.device)
            level = uniform.to(device) * edges[member, -1]
            # Strictly above: values of probability zero are never drawn.
            values = (edges[member] <= level[:, None]).sum(1).clamp_max(d - 1)
            longer, member = torch.unique(member * d + values, return_inverse=True)
            prefixes = prefixes[longer // d]
            prefixes[:, leg] = longer % d
        return prefixes[member]

    # -- files -----------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write a safetensors file that `DensityModel.load` and `tensorgrow.load` read."""
        header, tensors = self.network.pack("core")
        write_file(path, DENSITY_KIND, {"network": header, "density": self.kind}, tensors)

    @classmethod
    def load(cls, path: str | Path) -> DensityModel:
        """Read a file written by `DensityModel.save`, or the model of a saved result."""
        header, tensors = read_file(path, (DENSITY_KIND, RESULT_KIND))
        with reading(path):
            return cls.unpack(header, tensors)

    @classmethod
    def unpack(cls, header: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> DensityModel:
        """Rebuild a model from the contents of a file."""
        kind = header.get("density") or header.get("info", {}).get("density")
        if kind is None:
            raise FileFormatError("the file holds a result, but not one of `learn_density`")
        return cls(TensorNetwork.unpack(header["network"], tensors, "core"), kind)

    def __repr__(self) -> str:
        return f"DensityModel({self.network!r}, kind={self.kind!r})"

    # -- contractions ----------------------------------------------------------------------------------

    def _plan(self, roles: str, what: str) -> PartialPlan:
        """Plan a contraction; refuse one that does not fit in memory."""
        plan = partial_plan(self.network.structure, roles, self.kind == "born")
        needed = (
            3 * plan.widest * self.network.cores[0].element_size()
        )  # it holds up to 3 such arrays at once
        limit = free_memory(self.network.device)
        if needed > limit:
            raise MemoryLimitError(
                f"{what} needs about {needed / 1e9:.2f} GB, but {limit / 1e9:.2f} GB are free. Ask for fewer "
                "legs at once, draw samples and count them, or learn a network with fewer edges"
            )
        return plan

    def _terms(self, roles: str, rows: torch.Tensor) -> float:
        """Bound the size of the terms of a sum: a result far below it is rounding, not probability.

        The sizes of all terms are a bound that long networks make very loose; so is the sum over everything
        where many legs are set. The smaller of the two counts.
        """
        plan = self._plan(roles.replace(OPEN, SUMMED), "a probability")
        sizes = self._sums(plan, tuple(c.abs() for c in self._unit.cores), rows)
        return min(float(sizes.sum()), math.exp(float(log_partition(self._unit, self.kind))))

    def _sums(self, plan: PartialPlan, cores: Sequence[torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
        if SET not in plan.roles:
            return plan.run(cores)
        step = max(1, CHUNK_ENTRIES // plan.widest)
        sums = torch.cat([plan.run(cores, part) for part in torch.split(rows, step)])
        return sums[0] if len(rows) == 1 else sums

    def _check_given(self, given: Mapping[int, int]) -> dict[int, int]:
        if not isinstance(given, Mapping):
            raise OptionError(f"given must be a dict from leg to value, not {given!r:.80}")
        known = {self._check_leg(leg): value for leg, value in given.items()}
        for leg, value in known.items():
            if not is_whole(value, 0, self.dims[leg]):
                raise OptionError(
                    f"leg {leg} cannot have the value {value!r}; it takes whole numbers from 0 to "
                    f"{self.dims[leg] - 1}"
                )
        return {leg: int(value) for leg, value in known.items()}

    def _check_legs(self, legs: int | Iterable[int] | None, known: Mapping[int, int]) -> tuple[int, ...]:
        if legs is None:
            return tuple(k for k in range(len(self.dims)) if k not in known)
        listed: Iterable[Any] = (legs,) if isinstance(legs, Integral) else legs  # type: ignore[assignment]
        free = tuple(self._check_leg(k) for k in listed)
        if len(set(free)) < len(free):
            raise OptionError(f"legs {free} name a leg twice")
        both = [k for k in free if k in known]
        if both:
            raise OptionError(f"legs {both} are asked for and given; leave them out of one of the two")
        return free

    def _check_leg(self, leg: Any) -> int:
        if not is_whole(leg, 0, len(self.dims)):
            raise OptionError(f"leg {leg!r} does not exist; legs are 0..{len(self.dims) - 1}")
        return int(leg)


loads(DENSITY_KIND, lambda header, tensors, _: DensityModel.unpack(header, tensors))
