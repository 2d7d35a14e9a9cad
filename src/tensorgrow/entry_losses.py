"""Completion under losses other than the squared one: counts, yes or no, outliers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from .errors import OptionError
from .learning import learn_objective
from .losses import CrossEntropy, EntryLoss
from .network import TensorNetwork
from .objectives import EntriesLoss
from .results import Result
from .search import GreedyOptions, Limits, fit_by_gradient
from .solvers import TrainingOptions
from .structure import Structure

__all__ = ["complete_by_gradient"]

# Weight of the prior: entries of the cores are taken to be of order one.
DEFAULT_RIDGE = 0.5
RIDGE_FACTORS = (4.0, 0.25)
LEAST_RIDGE, LARGEST_RIDGE = 1e-4, 1e4
# A start is this far from constant, and never smaller than this.
START_NOISE = 0.1
SMALLEST_START = 0.1

Entries = tuple[torch.Tensor, torch.Tensor]


def complete_by_gradient(
    indices: torch.Tensor,
    values: torch.Tensor,
    shape: tuple[int, ...],
    loss: EntryLoss,
    *,
    weights: torch.Tensor | None,
    held_out: torch.Tensor | None,
    test: Entries | None,
    home: torch.device,
    generator: torch.Generator,
    limits: Limits,
    options: GreedyOptions | None,
    init: TensorNetwork | None,
    **keywords: Any,
) -> Result:
    """Grow a network on listed entries by gradients; behind `complete`.

    Unlike least squares the network is not fitted once more to the held-out entries: where the training ends
    is chosen by them.
    """
    if isinstance(loss, CrossEntropy):
        raise OptionError(
            "cross_entropy needs a leg for the classes, which entries do not have; use `learn`, or "
            "'logistic' for two classes"
        )
    loss.check(values)
    ridge = DEFAULT_RIDGE if options is None or options.ridge is None else options.ridge
    objective = EntriesLoss(
        indices, values, shape, loss, generator, weights=weights, held_out=held_out, ridge=ridge
    )
    start = init or _constant(shape, loss.level(values), generator, values)
    result = learn_objective(
        objective,
        limits=replace(limits, signed=True),
        init=start,
        generator=generator,
        device=values.device,
        dtype=values.dtype,
        options=options,
        identity={"loss": repr(loss), "observations": len(values), "values": float(values.double().sum())},
        **keywords,
    )
    if held_out is not None and (options is None or options.ridge is None):
        result = _with_best_ridge(result, objective, ridge, keywords["training"])
    return _reported(result, loss, indices, values, held_out, test, home)


def _with_best_ridge(
    result: Result, objective: EntriesLoss, ridge: float, training: TrainingOptions | None
) -> Result:
    """The found structure trained with stronger or weaker priors, while that lowers the held-out loss."""
    options = training or TrainingOptions()
    for factor in RIDGE_FACTORS:
        trial, moved = ridge * factor, False
        while LEAST_RIDGE <= trial <= LARGEST_RIDGE:
            fitted, _ = fit_by_gradient(objective.with_ridge(trial), result.network, options)
            assert fitted.validation is not None and result.validation_error is not None
            if not fitted.validation < result.validation_error:
                break
            result = replace(
                result,
                network=fitted.network,
                relative_error=fitted.loss,
                validation_error=fitted.validation,
                info={**result.info, "ridge": trial},
            )
            trial, moved = trial * factor, True
        if moved:
            break
    return result


def _constant(
    shape: tuple[int, ...], level: float, generator: torch.Generator, like: torch.Tensor
) -> TensorNetwork:
    """A nearly constant network of rank one."""
    size = max(abs(level), SMALLEST_START) ** (1.0 / len(shape))
    noise = TensorNetwork.random(Structure.rank_one(shape), random_state=generator, dtype=like.dtype)
    cores = [size * (1.0 + START_NOISE * c) for c in noise.cores]
    if level < 0:
        cores[0] = -cores[0]
    return TensorNetwork(noise.structure, cores).to(like.device)


def _reported(
    result: Result,
    loss: EntryLoss,
    indices: torch.Tensor,
    values: torch.Tensor,
    held_out: torch.Tensor | None,
    test: Entries | None,
    home: torch.device,
) -> Result:
    """The result with relative errors of the expected values, and the losses in `info`."""
    found = loss.mean(result.network.at_checked(indices))
    fitted = torch.ones_like(values, dtype=torch.bool) if held_out is None else ~held_out
    info = {**result.info, "loss": loss.name, "train_loss": result.relative_error}
    if result.validation_error is not None:
        info["validation_loss"] = result.validation_error
    tested = None
    if test is not None:
        where, true = (t.to(values.device) for t in test)
        predicted = result.network.at_checked(where)
        info["test_loss"] = float(loss(predicted, true.to(values.dtype)))
        tested = _error(loss.mean(predicted), true)
    return replace(
        result,
        network=result.network.to(home),
        path=tuple(replace(p, network=p.network.to(home)) for p in result.path),
        relative_error=_error(found, values),
        train_error=_error(found[fitted], values[fitted]),
        validation_error=None if held_out is None else _error(found[held_out], values[held_out]),
        test_error=tested,
        info=info,
    )


def _error(found: torch.Tensor, true: torch.Tensor) -> float:
    gap = torch.linalg.vector_norm(found.double() - true.double())
    return float(gap / torch.linalg.vector_norm(true.double()).clamp_min(1e-300))
