"""Densities of discrete sequences: grow the network that gives unseen samples the largest likelihood."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch

from ..callbacks.base import Callbacks
from ..data.devices import choose_device, free_memory
from ..data.fingerprint import fingerprint_tensors
from ..data.holdout import Split
from ..errors import DataError, OptionError, check_choice
from ..files import loads
from ..network import RandomState, TensorNetwork
from ..objectives import DensityLoss, Samples
from ..objectives.density import Kind
from ..results import RESULT_KIND, Result
from ..search import Effort, GradientSearch, GreedyOptions
from ..solvers import TrainingOptions
from ..structure import Edge, Structure
from .density_model import DensityModel
from .learn import Guidance, LearnTask
from .request import Keywords, Request, pick
from .task import run_task, seed_of

# Pseudo-count per value of a variable, for the independent variables that the growth starts from.
PRIOR_COUNT = 0.5
# Squares of new slices must be seen by the gradient, which vanishes with them.
NONNEGATIVE_NOISE = 0.3
BORN_NOISE = 0.1
# Copies of what a contraction holds at once: with its gradient, and what the gradient needs.
COPIES = 6
# Edges tried before a growth; a thorough search tries all.
SHORTLIST: dict[Effort, int | None] = {"fast": 8, "balanced": 16, "thorough": None}


@dataclass(frozen=True)
class DensityResult(Result):
    """A learned density, the path to it, and why the run stopped.

    `errors.total` and the losses of `history` are mean negative log-likelihoods of the fitted samples, in
    nats per sample; `validation_error` and the errors of `path` are those of the held-out ones.
    """

    @property
    def model(self) -> DensityModel:
        """The distribution: likelihoods, samples, marginals and conditionals."""
        return DensityModel(self.network, self.info["density"])

    @property
    def train_nll(self) -> float:
        """Mean negative log-likelihood of the fitted samples, in nats."""
        return self.errors.total

    @property
    def validation_nll(self) -> float | None:
        """Mean negative log-likelihood of the held-out samples, in nats."""
        return self.validation_error

    def predict(self, indices: Any) -> torch.Tensor:
        return self.model.prob(indices)

    def fill(self, x: Any, mask: Any = None, *, keep_observed: bool = True) -> Any:
        raise OptionError("a density has no missing entries; use `model.conditional` or `model.sample`")

    def __repr__(self) -> str:
        held = "" if self.validation_nll is None else f", validation {self.validation_nll:.4f}"
        return (
            f"DensityResult({self.num_parameters:,} parameters, train {self.train_nll:.4f} nats{held}, "
            f"{self.info['density']}, {len(self.history)} steps, stop={self.stop.name})"
        )


def learn_density(
    samples: Any,
    *,
    dims: int | Sequence[int] | None = None,
    kind: Kind = "born",
    validation: Any = 0.1,
    weights: Any = None,
    max_parameters: int | None = None,
    max_steps: int | None = None,
    max_seconds: float | None = None,
    edges: Literal["all", "chain", "ring"] | Iterable[Edge] = "all",
    effort: Effort = "balanced",
    init: TensorNetwork | None = None,
    random_state: RandomState = None,
    device: torch.device | str | None = None,
    dtype: Any = torch.float64,
    progress: bool | None = None,
    callbacks: Callbacks = None,
    checkpoint: str | Path | None = None,
    options: GreedyOptions | None = None,
    training: TrainingOptions | None = None,
) -> DensityResult:
    r"""Learn a distribution over discrete sequences as a tensor network, by maximum likelihood.

    .. math:: \min_f \; \log Z - \frac1n \sum_{i=1}^n \log |f(x_i)|^2, \qquad Z = \sum_x |f(x)|^2

    ``Z`` is exact, by contraction. The growth starts from independent variables; held-out samples choose
    the edges and when to stop.

    Parameters
    ----------
    samples
        Whole numbers from 0, ``(n, order)``: one row per sample, one column per variable.
    dims
        How many values each variable takes: one number for all, or one for each. By default one more than
        the largest that occurs.
    kind
        "born": probabilities are squares of the entries of the network. "nonnegative": they are its entries,
        and its cores have no negative ones.
    validation
        Samples to hold out: a share, a boolean mask of length ``n``, or False for none; then a limit is
        needed.
    weights
        How much each sample counts, for example how often it was seen.
    max_parameters, max_steps, max_seconds, edges, effort, random_state, progress, callbacks, checkpoint
        As for `learn`.
    init
        A network to start from, of the kind asked for.
    device, dtype
        Of the cores; by default the CPU, or where the samples are, and double precision.
    options, training
        Everything rarer about the growth, and about the training after each growth.

    Returns
    -------
    DensityResult
        Its `model` gives likelihoods, exact samples, marginals and conditionals.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).integers(0, 2, (500, 3))
    >>> x[:, 2] = x[:, 0] ^ x[:, 1]
    >>> r = learn_density(x, max_steps=3, random_state=0)
    >>> bool(r.model.conditional({0: 1, 1: 1}, [2])[0] > 0.98)
    True
    """
    check_choice("kind", kind, ("born", "nonnegative"))
    rows = _as_rows(samples)
    sizes = _check_dims(rows, dims)
    noise = BORN_NOISE if kind == "born" else NONNEGATIVE_NOISE
    keywords: Keywords = {**pick(locals()), "device": choose_device(device, rows)}
    request = Request.parse(
        "learn_density",
        GradientSearch,
        lambda effort: GreedyOptions.for_learning(effort).replace(slice_noise=noise),
        limited=False,
        **keywords,
    )
    chosen = request.dtype or torch.float64
    if chosen.is_complex and kind != "born":
        raise OptionError(f"dtype={chosen} is complex; a non-negative density is real. Use kind='born'")
    trained = request.training or _training(effort)
    request = replace(request, dtype=chosen, training=trained, effort=effort)
    task = DensityTask(Rows(rows, _as_weights(weights, len(rows)), sizes), kind, validation, request)
    result = run_task(task, request.audience)
    assert isinstance(result, DensityResult)
    return result


@dataclass(frozen=True)
class Rows:
    """Samples of discrete variables, how much each counts, and how many values each variable takes."""

    values: torch.Tensor
    weights: torch.Tensor
    dims: tuple[int, ...]


class DensityTask(LearnTask):
    """A run on samples of discrete variables."""

    kind = "nats"

    def __init__(self, rows: Rows, density: Kind, validation: Any, request: Request) -> None:
        for_split, generator = request.generators()
        held = Split.parse(validation).enough_samples(len(rows.values), for_split)
        assert request.device is not None and request.dtype is not None
        where, dtype, sizes = torch.device(request.device), request.dtype, rows.dims
        values, weights = rows.values.to(where), rows.weights.to(where)
        fitted, held_out = Samples(values, weights, sizes), None
        if held is not None:
            held = held.to(where)
            fitted, held_out = (Samples(values[part], weights[part], sizes) for part in (~held, held))
        for part in (fitted, held_out):
            if part is not None and not part.total > 0:
                raise DataError("all weights of the fitted, or of the held-out, samples are zero")
        most = free_memory(where) / (COPIES * torch.empty(0, dtype=dtype).element_size())
        init = request.init
        request = replace(
            request.holding_out(0 if held is None else int(held.sum()), wanted=False),
            init=_start(fitted, sizes, dtype, generator) if init is None else _roots(init, density),
        )
        guidance = Guidance(
            shortlist=SHORTLIST[cast(Effort, request.effort)],
            prior=rate_pairs(fitted, sizes) if init is None else {},
        )
        super().__init__(
            DensityLoss(fitted, sizes, density, held_out, generator, most), request, generator, guidance
        )
        self.density, self._count = density, len(values)
        self._fingerprint = fingerprint_tensors([values, weights, held])

    @property
    def seed(self) -> int | None:
        return seed_of(self.request.random_state)

    def fingerprint(self) -> Mapping[str, object]:
        return {"density": self.density, "data": self._fingerprint}

    def about(self) -> Mapping[str, object]:
        return {"density": self.density, "samples": self._count}

    def bring_home(self, network: TensorNetwork) -> TensorNetwork:
        return _as_density(network, self.density)

    def finish(self, search: GradientSearch) -> DensityResult:
        return DensityResult(**super().finish(search).__dict__)


# -- networks ------------------------------------------------------------------------------------------


def _training(effort: Effort) -> TrainingOptions:
    """L-BFGS does much in few epochs, and held-out samples end them early."""
    check_choice("effort", effort, ("fast", "balanced", "thorough"))
    if effort == "fast":
        return TrainingOptions(epochs=20, candidate_epochs=1, patience=2, tolerance=1e-3)
    if effort == "balanced":
        return TrainingOptions(epochs=100, candidate_epochs=1, patience=4, tolerance=1e-4)
    return TrainingOptions(epochs=400, candidate_epochs=3, patience=10, tolerance=1e-5)


def _start(
    samples: Samples, dims: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator
) -> TensorNetwork:
    """Independent variables: roots of frequencies, the best network of rank one of either kind."""
    cores = []
    for k, d in enumerate(dims):
        counts = torch.zeros(d, dtype=torch.float64, device=samples.rows.device)
        counts.index_add_(0, samples.rows[:, k], samples.weights.double())
        share = (counts + PRIOR_COUNT) / (counts.sum() + PRIOR_COUNT * d)
        core = torch.sqrt(d * share)  # entries of about one, as slices of a given size expect
        if dtype.is_complex:  # from real numbers, gradients would never lead away
            angle = 2 * math.pi * torch.rand(d, generator=generator, dtype=torch.float64)
            core = torch.polar(core, angle.to(core.device))
        cores.append(core.to(dtype))
    return TensorNetwork(Structure.rank_one(dims), cores)


def rate_pairs(samples: Samples, dims: tuple[int, ...]) -> dict[Edge, float]:
    """Mutual information of every pair of variables per parameter that joining them costs.

    From independent variables, this is what an edge can gain; it says which ones to try first.
    """
    share = (samples.weights / samples.total).double()
    values = torch.cat([torch.nn.functional.one_hot(samples.rows[:, k], d) for k, d in enumerate(dims)], 1)
    joint = (values.double() * share[:, None]).T @ values.double()
    alone = joint.diagonal()
    terms = torch.xlogy(joint, joint / torch.outer(alone, alone).clamp_min(1e-300))
    ends = np.cumsum((0, *dims))
    return {
        (i, j): float(terms[ends[i] : ends[i + 1], ends[j] : ends[j + 1]].sum()) / (dims[i] + dims[j])
        for i in range(len(dims))
        for j in range(i + 1, len(dims))
    }


def _as_density(network: TensorNetwork, kind: Kind) -> TensorNetwork:
    """What probabilities are made of, from what is trained."""
    if kind == "born":
        return network
    return TensorNetwork(network.structure, [c * c for c in network.cores])


def _roots(init: TensorNetwork, kind: Kind) -> TensorNetwork:
    """The inverse of `_as_density`."""
    model = DensityModel(init, kind)
    if kind == "born":
        return model.network
    return TensorNetwork(init.structure, [torch.sqrt(c) for c in model.network.cores])


# -- the door ------------------------------------------------------------------------------------------


def _as_rows(samples: Any) -> torch.Tensor:
    given = samples.detach() if isinstance(samples, torch.Tensor) else np.asarray(samples)
    if isinstance(given, np.ndarray):
        if given.dtype == object:  # a table of columns of different types
            with suppress(TypeError, ValueError):  # refused below
                given = given.astype(np.float64)
        if given.dtype.kind not in "biuf":
            raise DataError(f"samples have dtype {given.dtype}; whole numbers from 0 are needed. Encode them")
        given = torch.from_numpy(given.astype(np.float64 if given.dtype.kind == "f" else np.int64))
    if given.dim() != 2 or given.shape[1] == 0:
        raise DataError(f"samples have shape {tuple(given.shape)}; (n, number of variables) is needed")
    if len(given) < 2:
        raise DataError(f"{len(given)} samples were given; a density needs at least two")
    if given.is_complex():
        raise DataError(f"samples are {given.dtype}; whole numbers from 0 are needed")
    if given.is_floating_point():
        odd = ~torch.isfinite(given) | (given != given.round())
        if bool(odd.any()):
            row = int(odd.any(1).nonzero()[0, 0])
            raise DataError(
                f"{int(odd.sum())} values are not whole numbers; the first are in row {row}: "
                f"{given[row].tolist()}. Bin continuous variables first"
            )
    rows = given.to(torch.int64)
    if bool((rows < 0).any()):
        row = int((rows < 0).any(1).nonzero()[0, 0])
        raise DataError(
            f"samples have negative values, first in row {row}: {rows[row].tolist()}; values count from 0"
        )
    return rows


def _check_dims(rows: torch.Tensor, dims: int | Sequence[int] | None) -> tuple[int, ...]:
    largest = [int(v) for v in rows.amax(0)]
    if dims is None:
        return tuple(v + 1 for v in largest)
    given: Any = dims
    try:
        sizes = (given,) * len(largest) if isinstance(given, Integral) else tuple(given)
    except TypeError:
        sizes = ()
    whole = all(isinstance(d, Integral) and not isinstance(d, bool) and int(d) > 0 for d in sizes)
    if len(sizes) != len(largest) or not whole:
        raise OptionError(
            f"dims must be a positive whole number, or {len(largest)} of them, one per variable; not {dims!r}"
        )
    for k, (d, v) in enumerate(zip(sizes, largest)):
        if v >= d:
            raise DataError(
                f"variable {k} takes the value {v}, but dims[{k}]={d} allows 0..{d - 1}; raise it"
            )
    return tuple(int(d) for d in sizes)


def _as_weights(weights: Any, count: int) -> torch.Tensor:
    if weights is None:
        return torch.ones(count, dtype=torch.float64)
    try:
        given = torch.as_tensor(weights).detach().to(torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"weights must be numbers, one per sample: {error}") from error
    if tuple(given.shape) != (count,) or not bool((torch.isfinite(given) & (given >= 0)).all()):
        raise DataError(
            f"weights must be {count} finite numbers, one per sample and none negative; the shape is "
            f"{tuple(given.shape)}"
        )
    return given


def _load_result(header: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], _: object) -> Result:
    """A result of any run; densities have methods of their own."""
    kind = DensityResult if "density" in header["info"] else Result
    return kind.unpack(header, tensors)


loads(RESULT_KIND, _load_result)
