"""The mean of a committee: shares of its members, their errors together, and what to expect of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..algebra.nonnegative import least_on_simplex
from ..algebra.uncertainty import COMMON_ENTRIES, Uncertainty, combine
from ..results import Result, best_network
from .member import Member, hold_out_the_same

# Errors elsewhere over those on held-out entries that chose shapes, sizes, ridges and the shares of members.
# Chosen for the share of interpolation, on ten 128x128 photographs other than those of the results.
OPTIMISM = 1.1
# Entries at which members are compared with each other: they tell a share of a variance to some percent.
DRAWN = 2000


def unite(members: Sequence[Member]) -> Result:
    """Return the result whose answers are the weighted mean of its members' answers.

    Where all members held out the same entries, the held-out error is that of the mean. Where each held out
    others, no entry is unknown to all: then it is the mean of theirs, which the committee should beat.
    """
    results = [member.result for member in members]
    held = [math.nan if r.validation_error is None else r.validation_error for r in results]
    best = best_network(results)
    if len(results) == 1:
        return best
    weights = member_weights(members)
    task = members[0].task
    errors = task.errors_at(
        mean_of(weights, [m.judged for m in members]),
        mean_of(weights, [m.entries().to(m.judged) for m in members]),
    )
    if not hold_out_the_same(members):
        errors = replace(errors, train=None, validation=math.sqrt(float(weights @ np.square(held))))
    if task.test is not None:
        tests = [
            m.result.expected(m.result.network.entries(m.task.test[0]))
            for m in members
            if m.task.test is not None
        ]
        errors = replace(errors, test=task.test_error_at(mean_of(weights, tests)))
    info = {
        **best.info,
        "num_parameters": sum(r.num_parameters for r in results),
        "member_weights": [float(w) for w in weights],
    }
    known = _uncertainty(weights, members)
    return replace(best, errors=errors, info=info, members=tuple(results), uncertainty=known)


def member_weights(members: Sequence[Member]) -> np.ndarray[Any, Any]:
    """Shares of members, from how well they and their mean do on held-out entries.

    Where all held out the same entries: the shares, none negative, whose mean has the least squared error
    there, drawn towards equal ones by as much as a few entries would. Otherwise by the variance of errors.
    """
    settled = members[-1].share
    if settled is not None:
        return np.append((1.0 - settled) * member_weights(members[:-1]), settled)
    count, task = len(members), members[0].task
    equal = np.full(count, 1.0 / count)
    held = np.asarray([m.result.validation_error or math.nan for m in members])
    if not np.isfinite(held).all():  # nothing was held out, or all is exact
        return equal
    if task.held_out is None or not hold_out_the_same(members):
        shares = held**-2.0
        return np.asarray(shares / shares.sum())
    where = task.held_out
    residuals = torch.stack([(m.judged.to(task.values) - task.values)[where] for m in members], 1)
    if task.weights is not None:
        residuals = residuals * task.weights[where].sqrt()[:, None]
    gram = (residuals.mH @ residuals).real.double().cpu().numpy()
    # So few entries say little of which mean is best. Relative to the best of them: where one is exact, there
    # is nothing to average.
    pull = COMMON_ENTRIES / len(residuals) * gram.diagonal().min() + 1e-12 * gram.trace()
    return least_on_simplex(gram + pull * np.eye(count)) if pull else equal


def mean_of(weights: np.ndarray[Any, Any], parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The weighted mean of what members say, one part of each."""
    return (torch.stack(list(parts), -1) * torch.as_tensor(weights).to(parts[0])).sum(-1)


def tensors_of(members: Sequence[Member]) -> list[torch.Tensor]:
    """All entries of networks, in the units computed in."""
    return [m.network.to_dense().cpu() for m in members]


def _uncertainty(weights: np.ndarray[Any, Any], members: Sequence[Member]) -> Uncertainty | None:
    """What errors to expect of the mean; None where no held-out entry tells.

    Where each member held out others, only errors of single members are known. The mean has a smaller squared
    error by just what its members differ by, on average over entries that none of them knows.
    """
    task, values = members[0].task, members[0].task.values
    doubts = [m.doubts for m in members if m.doubts is not None]
    if task.held_out is None or len(doubts) < len(members):
        return None
    off = [(m.judged.to(values) - values).abs().double() for m in members]
    if hold_out_the_same(members):
        where = task.held_out
        judged = [m.judged.to(values)[where] for m in members]
        mean = (mean_of(weights, judged) - values[where]).abs().double()
        return Uncertainty.measured(
            mean / combine(list(weights), [d[where] for d in doubts], judged), spreads=True, share=OPTIMISM
        )
    held = [m.task.held_out for m in members]
    known = Uncertainty.measured(torch.cat([(o / d)[h] for o, d, h in zip(off, doubts, held)]))
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([torch.randint(d, (DRAWN,), generator=generator) for d in task.shape], 1)
    parts = torch.stack([m.entries(drawn).to(values) for m in members], -1)
    apart = (parts - mean_of(weights, list(parts.unbind(-1)))[:, None]).abs().double().square().mean(0)
    alone = np.asarray([float(o[h].square().mean()) for o, h in zip(off, held)])
    share = 1.0 - float(weights @ apart.cpu().numpy()) / (float(weights @ alone) or 1.0)
    return replace(known, size=known.size * math.sqrt(max(share, 1.0 / len(members))))
