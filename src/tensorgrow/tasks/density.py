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

from ..algebra.linalg import wide_dtype
from ..callbacks.base import Callbacks
from ..data.arrays import add_at
from ..data.devices import choose_device, free_memory
from ..data.fingerprint import fingerprint_tensors
from ..data.holdout import HELD_OUT, Split
from ..errors import DataError, OptionError, check_choice, counted, is_whole
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
from .task import run_task

# Pseudo-count per value of a variable, for the independent variables that the growth starts from.
PRIOR_COUNT = 0.5
# Size of new slices: the gradient must see their squares, and vanishes with them.
NOISE: dict[Kind, float] = {"born": 0.1, "nonnegative": 0.3}
# By effort: how networks are trained, and how many edges are tried before a growth (None: all; never fewer
# than there are variables). Epochs are sweeps over the cores; held-out samples end them early.
EFFORTS: dict[Effort, tuple[TrainingOptions, int | None]] = {
    "fast": (TrainingOptions(epochs=20, candidate_epochs=1, patience=2, tolerance=1e-3), 8),
    "balanced": (TrainingOptions(epochs=100, candidate_epochs=1, patience=4, tolerance=1e-4), 16),
    "thorough": (TrainingOptions(epochs=400, candidate_epochs=3, patience=10, tolerance=1e-5), None),
}
# Beyond eight variables, one more edge may grow in the same step for every four: on plants, 69 variables, 17
# at once reached in 20 s what 8 reached in 40 s.
ALONE_UP_TO, LEGS_PER_GROWTH = 8, 4


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

    def predict(self, indices: Any, interval: float | None = None) -> torch.Tensor:
        if interval is not None:
            raise OptionError("probabilities have no intervals: only a completion holds entries out")
        return self.model.prob(indices)

    def fill(self, x: Any, mask: Any = None, *, keep_observed: bool = True) -> Any:
        raise OptionError("a density has no missing entries; use `model.conditional` or `model.sample`")

    def __repr__(self) -> str:
        held = "" if self.validation_nll is None else f", validation {self.validation_nll:.4f}"
        return (
            f"DensityResult({self.num_parameters:,} parameters, train {self.train_nll:.4f} nats{held}, "
            f"{self.info['density']}, {counted(len(self.history), 'step')}, stop={self.stop.name})"
        )


def learn_density(
    samples: Any,
    *,
    dims: int | Sequence[int] | None = None,
    kind: Kind = "born",
    validation: Any = HELD_OUT,
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
        A network to start from, of this `kind`.
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
    keywords: Keywords = {**pick(locals()), "device": choose_device(device, rows)}
    request = Request.parse(
        "learn_density",
        GradientSearch,
        lambda effort: GreedyOptions.for_learning(effort).replace(slice_noise=NOISE[kind]),
        limited=False,
        **keywords,
    )
    cores = request.dtype or torch.float64
    if cores.is_complex and kind != "born":
        raise OptionError(f"dtype={cores} is complex; a non-negative density is real. Use kind='born'")
    request = replace(request, dtype=cores, training=request.training or EFFORTS[effort][0], effort=effort)
    task = DensityTask(rows, _as_weights(weights, len(rows)), sizes, kind, validation, request)
    result = run_task(task, request.audience)
    assert isinstance(result, DensityResult)
    return result


class DensityTask(LearnTask):
    """A run on samples of discrete variables."""

    kind = "nats"
    draws_split = True

    def __init__(
        self,
        rows: torch.Tensor,
        weights: torch.Tensor,
        dims: tuple[int, ...],
        density: Kind,
        validation: Any,
        request: Request,
    ) -> None:
        for_split, generator = request.generators()
        held = Split.parse(validation).enough_samples(len(rows), for_split)
        assert request.device is not None and request.dtype is not None
        where, dtype = torch.device(request.device), request.dtype
        rows, weights = rows.to(where), weights.to(where)
        fitted, held_out = Samples(rows, weights, dims), None
        if held is not None:
            held = held.to(where)
            fitted, held_out = (Samples(rows[part], weights[part], dims) for part in (~held, held))
        for part in (fitted, held_out):
            if part is not None and not part.total > 0:
                raise DataError("all weights of the fitted, or of the held-out, samples are zero")
        # Contractions are in double precision; half of the memory is for everything else.
        most = free_memory(where) / (2 * wide_dtype(dtype).itemsize)
        init = request.init
        request = replace(
            request.holding_out(0 if held is None else int(held.sum()), wanted=False),
            init=_start(fitted, dims, dtype, generator) if init is None else _roots(init, density),
        )
        shortlist = EFFORTS[cast(Effort, request.effort)][1]
        guidance = Guidance(
            shortlist=None if shortlist is None else max(shortlist, len(dims)),
            at_once=max(1, (len(dims) - ALONE_UP_TO) // LEGS_PER_GROWTH),
            prior=rate_pairs(fitted, dims) if init is None else {},
        )
        objective = DensityLoss(fitted, dims, density, held_out, generator, most)
        super().__init__(objective, request, generator, guidance)
        self.density, self._count = density, len(rows)
        self._fingerprint = fingerprint_tensors([rows, weights, held])

    def fingerprint(self) -> Mapping[str, object]:
        return {"density": self.density, "data": self._fingerprint}

    def about(self) -> Mapping[str, object]:
        return {"density": self.density, "samples": self._count}

    def bring_home(self, network: TensorNetwork) -> TensorNetwork:
        """Return what probabilities are made of; a non-negative density is trained as roots."""
        if self.density == "born":
            return network
        return TensorNetwork(network.structure, [c * c for c in network.cores])

    def finish(self, search: GradientSearch) -> DensityResult:
        return DensityResult(**super().finish(search).__dict__)


def _start(
    samples: Samples, dims: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator
) -> TensorNetwork:
    """Join nothing: roots of frequencies are the best network of rank one of either kind."""
    cores = []
    for k, d in enumerate(dims):
        counts = torch.zeros(d, dtype=torch.float64, device=samples.rows.device)
        add_at(counts, samples.rows[:, k], samples.weights.double())
        share = (counts + PRIOR_COUNT) / (counts.sum() + PRIOR_COUNT * d)
        core = torch.sqrt(d * share)  # entries of about one, as slices of a given size expect
        if dtype.is_complex:  # from real numbers, gradients would never lead away
            angle = 2 * math.pi * torch.rand(d, generator=generator, dtype=torch.float64)
            core = torch.polar(core, angle.to(core.device))
        cores.append(core.to(dtype))
    return TensorNetwork(Structure.rank_one(dims), cores)


def rate_pairs(samples: Samples, dims: tuple[int, ...]) -> dict[Edge, float]:
    """Compute the mutual information of every pair of variables per parameter that joining them costs.

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


def _roots(init: TensorNetwork, kind: Kind) -> TensorNetwork:
    """Invert `DensityTask.bring_home`."""
    model = DensityModel(init, kind)
    if kind == "born":
        return model.network
    return TensorNetwork(init.structure, [torch.sqrt(c) for c in model.network.cores])


def _as_rows(samples: Any) -> torch.Tensor:
    values = samples.detach() if isinstance(samples, torch.Tensor) else np.asarray(samples)
    if isinstance(values, np.ndarray):
        if values.dtype == object:  # a table of columns of different types
            with suppress(TypeError, ValueError):  # refused below
                values = values.astype(np.float64)
        if values.dtype.kind not in "biuf":
            raise DataError(
                f"samples have dtype {values.dtype}; whole numbers from 0 are needed. Encode them"
            )
        values = torch.from_numpy(values.astype(np.float64 if values.dtype.kind == "f" else np.int64))
    if values.dim() != 2 or values.shape[1] == 0:
        raise DataError(f"samples have shape {tuple(values.shape)}; (n, number of variables) is needed")
    if len(values) < 2:
        raise DataError(f"only {counted(len(values), 'sample')}; a density needs at least two")
    if values.is_complex():
        raise DataError(f"samples are {values.dtype}; whole numbers from 0 are needed")
    if values.is_floating_point():
        odd = ~torch.isfinite(values) | (values != values.round())
        if bool(odd.any()):
            row = int(odd.any(1).nonzero()[0, 0])
            raise DataError(
                f"{int(odd.sum())} values are not whole numbers; the first are in row {row}: "
                f"{values[row].tolist()}. Bin continuous variables first"
            )
    rows = values.to(torch.int64)
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
    try:
        sizes = (dims,) * len(largest) if isinstance(dims, int | Integral) else tuple(dims)
    except TypeError:
        sizes = ()
    whole = all(is_whole(d, 1) for d in sizes)
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
        values = torch.as_tensor(weights).detach().to(torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"weights must be numbers, one per sample: {error}") from error
    if tuple(values.shape) != (count,) or not bool((torch.isfinite(values) & (values >= 0)).all()):
        raise DataError(
            f"weights must be {count} finite numbers, one per sample and none negative; the shape is "
            f"{tuple(values.shape)}"
        )
    return values


def _load_result(header: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], _: object) -> Result:
    """Read a result of any run; densities have methods of their own."""
    kind = DensityResult if "density" in header["info"] else Result
    return kind.unpack(header, tensors)


loads(RESULT_KIND, _load_result)
