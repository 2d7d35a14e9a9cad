"""Tensor regression: a network as the coefficient tensor of a linear model. Behind `TNRegressor`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Unpack

import torch

from ..data.arrays import as_target, floor_exponent, largest, times_power
from ..data.devices import check_memory
from ..data.fingerprint import fingerprint_tensors
from ..data.holdout import HELD_OUT, Split
from ..data.sample_weights import SampleWeights
from ..errors import DataError, OptionError
from ..network import TensorNetwork
from ..objectives import RegressionLeastSquares
from ..results import Errors, Result
from ..search import Edges, GreedyOptions, HeldOutSearch
from ..solvers import ALSSettings, als
from ..structure import Structure
from .held_out import FIT_SWEEPS, FIT_TOLERANCE, HeldOutTask
from .request import Request, SearchKeywords
from .task import limit_threads, run_task, sample_flops

# Random starts for a known structure, since nothing grew into a good one.
FIT_STARTS = 4


@dataclass(frozen=True)
class Regression:
    """A fitted model ``y = intercept + <x, network>``.

    Attributes
    ----------
    intercept
        One number per output.
    """

    result: Result
    intercept: torch.Tensor

    @property
    def network(self) -> TensorNetwork:
        """Coefficients; a last leg for the output where there are several."""
        return self.result.network


def regress(
    x: Any,
    y: Any,
    *,
    structure: Structure | None = None,
    validation: Any = HELD_OUT,
    fit_intercept: bool = True,
    edges: Edges = "all",
    ridge: float | None = None,
    weights: Any = None,
    **keywords: Unpack[SearchKeywords],
) -> Regression:
    """Learn ``y_i = b + <X_i, W>`` with a network ``W`` whose structure and ridge held-out samples choose.

    Parameters
    ----------
    x
        Samples, ``(n, d_1, ..., d_p)``, real or complex.
    y
        Responses, ``(n,)``, or ``(n, q)``: then ``W`` has a last leg of size ``q``.
    structure
        Fit this structure instead of learning one.
    validation
        Samples to hold out: a share, a boolean mask of length ``n``, or False for none.
    ridge
        Weight of the penalty on every core, relative to its Gram matrix; by default held-out samples choose
        it. It overrides that of `options`.
    weights
        How much every sample counts; by default all the same. Repeated samples count as one with the sum of
        their weights.
    edges, keywords
        As for `decompose`; `max_error` is a relative error on the held-out samples.

    Returns
    -------
    Regression
        Errors in its result are relative to the norm of the responses, less their mean with an intercept.
    """
    if structure is not None:
        keywords["max_steps"] = 0
    preset = GreedyOptions.for_completion
    request = Request.parse("regress", HeldOutSearch, preset, limited=False, edges=edges, **keywords)
    changes: dict[str, Any] = {"starts": 1} if keywords.get("options") is None else {}
    if ridge is not None:
        changes["ridge"] = ridge
    if structure is not None:
        changes |= {"sweeps": FIT_SWEEPS, "tolerance": FIT_TOLERANCE}
        changes |= {"final_sweeps": FIT_SWEEPS, "final_tolerance": FIT_TOLERANCE}
    request = replace(request, options=request.options.replace(**changes))
    data = Sampled(x, y, weights, validation)
    task = RegressTask(data, request, structure, fit_intercept=fit_intercept)
    result = run_task(task, request.audience)
    return Regression(result, task.intercept(result.network))


@dataclass(frozen=True)
class Sampled:
    """What the user knows of a response; `regress` says what the fields mean."""

    x: Any
    y: Any
    weights: Any = None
    validation: Any = HELD_OUT


class RegressTask(HeldOutTask):
    """A run on samples, in units of about one.

    Attributes
    ----------
    x_exponent, y_exponent
        What was divided out: powers of two, so that nothing is rounded.
    """

    def __init__(
        self, data: Sampled, request: Request, structure: Structure | None, *, fit_intercept: bool
    ) -> None:
        samples, responses = as_target(data.x, request.dtype), as_target(data.y, request.dtype)
        if samples.dim() < 2:
            raise DataError(
                f"x has shape {tuple(samples.shape)}; an axis of samples and at least one more are needed"
            )
        if responses.dim() > 2:
            raise DataError(f"y has shape {tuple(responses.shape)}; (n,) or (n, q) is needed")
        if len(samples) != len(responses):
            raise DataError(f"x has {len(samples)} samples, y has {len(responses)}")
        split = Split.parse(data.validation)
        counted = SampleWeights.of([samples, responses], data.weights, merge=split.mask is None)
        split = split.of_rows(counted.rows, len(samples))
        if len(counted.rows) < len(samples) or counted.weights is not None:
            samples, responses = samples[counted.rows], responses[counted.rows]
        common = request.dtype or torch.promote_types(samples.dtype, responses.dtype)
        where, self.home = request.places(samples, sample_flops(samples))
        for_split, self.generator = request.generators()
        held_out = split.samples(len(samples), for_split)
        self.held_out = None if held_out is None else held_out.to(where)
        # Always in units of about one: results do not depend on the units of the data.
        self.x_exponent, self.y_exponent = (floor_exponent(largest(t)) for t in (samples, responses))
        self.x = times_power(samples.to(where, common), -self.x_exponent)
        self.y = times_power(responses.to(where, common), -self.y_exponent)
        self.weights = None if counted.weights is None else counted.weights.to(where)
        self.shape = (*self.x.shape[1:], *self.y.shape[1:])
        self.structure, self.fit_intercept = structure, fit_intercept
        if structure is not None and structure.dims != self.shape:
            raise OptionError(f"the structure is for {structure.dims}, the coefficients are {self.shape}")
        self.request = request.holding_out(self.num_held_out, wanted=True)

    @property
    def probe(self) -> torch.Tensor:
        return self.x

    @property
    def exponent(self) -> int:
        return self.y_exponent - self.x_exponent

    @property
    def loss_scale(self) -> float:
        return 2.0**self.y_exponent

    @property
    def is_zero(self) -> bool:
        return not bool(self._centre(self.y)[0].any())

    @property
    def what(self) -> str:
        return f"a regression on {len(self.x):,} samples of shape {tuple(self.x.shape[1:])}"

    def threads(self) -> AbstractContextManager[None]:
        return limit_threads(self.x)

    def objective(self, ridge: float, *, everything: bool = False) -> RegressionLeastSquares:
        held_out = None if everything else self.held_out
        x, y = self._centre(self.x, held_out)[0], self._centre(self.y, held_out)[0]
        if self.weights is not None:  # weighted squares are the squares of what the roots multiply
            roots = self.weights.sqrt().to(x.real.dtype)
            x, y = (part * roots.reshape(-1, *[1] * (part.dim() - 1)) for part in (x, y))
        return RegressionLeastSquares(x, y, held_out=held_out, ridge=ridge)

    def intercept(self, network: TensorNetwork) -> torch.Tensor:
        """Compute ``mean(y) - <mean(x), W>`` for coefficients in the units of the user."""
        x_mean, y_mean = self._centre(self.x)[1], self._centre(self.y)[1]
        unit = network.times_power(-self.exponent)
        weights = unit.to_dense().to(x_mean.device).reshape(x_mean.numel(), -1)
        value = y_mean.reshape(-1) - x_mean.reshape(-1).to(weights.dtype) @ weights
        return times_power(value, self.y_exponent).to(self.home)

    def search(self) -> HeldOutSearch:
        # Copies of the samples: centred, split, stored in the order sweeps read; twice for the last fit.
        needed = 6 * self.x.numel() * self.x.element_size()
        check_memory(needed, self.request.memory(self.x.device), self.what)
        search = super().search()
        if self.structure is not None:
            search.start = replace(search.start, init=self._best_start(search, self.structure))
        return search

    def _best_start(self, search: HeldOutSearch, structure: Structure) -> TensorNetwork:
        """Take the best of some random starts after a few sweeps: from one alone, ALS often ends badly."""
        settings = ALSSettings(max_sweeps=FIT_SWEEPS // FIT_STARTS, accelerate=True)
        trials: list[tuple[float, int, TensorNetwork]] = []
        for number in range(FIT_STARTS if structure.edges else 1):
            random = search.start.random(structure, self.generator)
            fit = als(search.problem.objective, random, settings)
            trials.append((fit.loss, number, fit.network))
        return min(trials)[2]

    def errors(self, search: HeldOutSearch, network: TensorNetwork, total: float) -> Errors:
        answer, problem = search.answer, search.problem
        assert answer is not None
        validation = None if answer.validation is None else answer.validation / problem.scale
        return Errors(total, train=answer.loss / (problem.objective.norm or 1.0), validation=validation)

    def fingerprint(self) -> Mapping[str, object]:
        return {
            "data": fingerprint_tensors([self.x, self.y, self.held_out, self.weights]),
            "fit_intercept": self.fit_intercept,
        }

    def _centre(
        self, data: torch.Tensor, held_out: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Subtract the mean over the fitted samples and return it too; constants become exactly zero."""
        if not self.fit_intercept:
            return data, torch.zeros_like(data[0])
        used = slice(None) if held_out is None else ~held_out
        wide = torch.complex128 if data.is_complex() else torch.float64
        if self.weights is None:
            mean = data[used].mean(0, dtype=wide)
        else:
            shares = self.weights[used] / self.weights[used].sum()
            mean = torch.tensordot(shares.to(wide), data[used].to(wide), 1)
        rest = (data.to(wide) - mean).to(data.dtype)
        # Deviations of a few units of rounding are rounding.
        rounding = 16.0 * torch.finfo(data.dtype).eps * mean.abs()
        constant = (rest.abs().amax(0) <= rounding).to(data.real.dtype)
        return rest * (1.0 - constant), mean.to(data.dtype)

    def about(self) -> Mapping[str, object]:
        return {"num_samples": len(self.x), "num_held_out": self.num_held_out}
