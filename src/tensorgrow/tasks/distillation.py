"""Distillation: one network for the mean of several."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from ..objectives import DenseLeastSquares
from ..results import Result, best_network
from ..solvers import ALSFit, ALSSettings, als
from .mean import mean_of, member_weights, tensors_of
from .member import Member


def distil(members: Sequence[Member], deadline: float = math.inf) -> Result:
    """Return one network for the mean of the members: with the graph and ranks that fit it best.

    Where even that is as far from the mean as members are on average, nothing is gained, and the one with the
    least held-out error is returned. Held-out errors and intervals are those of the member: no entry is
    unknown to all of them, and the network should be better.

    Parameters
    ----------
    deadline
        Value of ``time.perf_counter()`` at which fits must end; they share the time until then. Where none is
        left, nothing is fitted.
    """
    best = best_network([m.result for m in members])
    if len(members) == 1 or time.perf_counter() > deadline:
        return best
    begin, weights, tensors = time.perf_counter(), member_weights(members), tensors_of(members)
    mean = mean_of(weights, tensors)
    spread = math.sqrt(sum(w * float((x - mean).abs().square().sum()) for w, x in zip(weights, tensors)))
    if not spread > 0.0:
        return best
    task, target = members[0].task, mean.clone()
    if task.weights is None:  # else what is known may not be worth more than what is predicted
        target[tuple(task.indices.cpu().T)] = task.values.cpu().to(target)
    objective = DenseLeastSquares(target.to(task.values.device))
    options = task.request.options
    settings = ALSSettings(max_sweeps=options.final_sweeps, tolerance=options.final_tolerance)
    starts = [m.network.to(target.device, target.dtype) for m in members]
    fits: list[ALSFit] = []
    for start in starts:
        now = time.perf_counter()
        if fits and now > deadline:
            break
        until = now + (deadline - now) / (len(starts) - len(fits))
        fits.append(als(objective, start.to(objective.device), settings, deadline=until))
    number = min(range(len(fits)), key=lambda k: fits[k].loss)
    network = fits[number].network
    apart = float(torch.linalg.vector_norm(network.to_dense().cpu() - mean))
    if not apart < spread:
        return best
    chosen, final = members[number].result, network.entries(task.indices.to(network.device)).to(task.values)
    total = task.errors_at(final, final).total
    home = task.bring_home(network)
    errors = replace(chosen.errors, total=total, test=task.test_error(home))
    last = chosen.history[-1]
    step = replace(
        last,
        index=len(chosen.history),
        kind="distil",
        edge=None,
        loss=last.loss * total / last.relative_error if last.relative_error else 0.0,
        relative_error=total,
        validation_error=None,
        seconds=last.seconds + time.perf_counter() - begin,
    )
    return replace(chosen, network=home, errors=errors, history=(*chosen.history, step))
