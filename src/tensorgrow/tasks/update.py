"""New data for a completion that was made before."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import torch

from ..data.alignment import AxisMatch, Before, Forget, draw_kept, relabel
from ..data.axes import Axes, is_frame, one_variable
from ..data.blocks import Blocks
from ..data.holdout import AUTO, Split, positions_in
from ..data.observations import Observations, as_observations, is_listed
from ..data.partitions.tables import is_partitioned
from ..errors import DataError
from ..losses import EntryLoss, as_loss
from ..priors import Priors, describe
from ..results import Result, networks_among
from ..search import Edges, GreedyOptions, HeldOutSearch
from ..search.knobs import TUNE_EVERY
from ..search.pace import Pace
from .committee import run_committee
from .entry_task import EntryTask
from .held_out import FIT_SWEEPS, FIT_TOLERANCE
from .observation_task import Observed
from .request import Bounds, Request, SearchKeywords, pick
from .task import run_task

# Fewer new entries than this cannot tell which network is better: nothing is held out, and nothing grows.
LEAST_NEW = 20
# From where a fit ended the loss on fitted entries may rise at first, while that on hidden ones falls: four
# sweeps instead of two lowered the latter by 0.7 %, the mean over four streams of car parks.
WARM_SWEEPS = 4


class UpdateKeywords(SearchKeywords, total=False):
    """Keywords of `Result.update`, which says what they mean."""

    forget: Forget | None
    only_new: bool | None
    loss: str | EntryLoss
    weights: Any
    validation: Any
    truth: Any
    edges: Edges
    split_nodes: bool | None
    bounds: Bounds | None
    priors: Priors | None


def update(result: Result, x: Any, mask: Any = None, **keywords: Unpack[UpdateKeywords]) -> Result:
    """Fit a result to new data; `Result.update` says how."""
    unknown = sorted(keywords.keys() - UpdateKeywords.__annotations__.keys())
    if unknown:
        raise TypeError(f"update() got an unexpected keyword argument {unknown[0]!r}")
    begin, info = time.perf_counter(), result.info
    data = NewData(
        result,
        one_variable(x),
        mask,
        keywords.get("weights"),
        forget=keywords.get("forget"),
        only_new=keywords.get("only_new"),
    )
    validation = keywords.get("validation", AUTO if data.count >= LEAST_NEW else False)
    common = pick({"bounds": data.bounds, **keywords})
    request = Request.parse("update", HeldOutSearch, GreedyOptions.for_update, limited=False, **common)
    memory = data.memory(request.generators()[0])
    share = (data.count + (0 if memory is None else len(memory))) / data.num_seen
    is_alike = 1 / TUNE_EVERY < share < TUNE_EVERY
    if is_alike and request.options.ridge is None:
        # The ridge is relative to the data: it stays until there is a good deal more, or less, of that.
        request = replace(request, options=request.options.replace(ridge=info.get("ridge")))
    # Nothing, or too little beside what is only remembered, says whether growth pays.
    is_blind = not Split.of_entries(validation).holds_out or (memory is not None and is_alike)
    may_grow = request.limits.has_any or not is_blind
    if not may_grow:
        options = request.options.replace(sweeps=FIT_SWEEPS, tolerance=FIT_TOLERANCE)
        request = replace(request, options=options, limits=replace(request.limits, max_steps=0))
    loss = as_loss(keywords.get("loss", info.get("loss", "squared")))
    observed = Observed(data.x, data.mask, loss, data.weights, validation, keywords.get("truth"), memory)
    task = EntryTask(observed, request)
    task.axes = data.axes
    if is_listed(data.x):
        task.container = result.container
    how = {"may_grow": may_grow, "is_alike": is_alike}
    tasks = [data.task_of(task, number, **how) for number in range(len(data.members))]
    request = replace(request, audience=replace(request.audience, begin=begin))
    updated = run_task(tasks[0], request.audience) if len(tasks) == 1 else run_committee(tasks, request)
    notes = {"updates": info.get("updates", 0) + 1, "remembered": 0 if memory is None else len(memory)}
    kept = {"source": info["source"]} if "source" in info else {}
    return replace(updated, info={**updated.info, **kept, **notes})


class NewData:
    """New data, and how its slices go with those of a result.

    Attributes
    ----------
    result
        What is updated.
    x, mask, weights
        The data, with the slices of now.
    entries
        The observed entries.
    members
        Results that start the update.
    matches
        For every axis.
    only_new
        Whether it lacks what the result was made from.
    count
        Observed entries.
    """

    def __init__(
        self,
        result: Result,
        x: Any,
        mask: Any,
        weights: Any,
        *,
        forget: Forget | None = None,
        only_new: bool | None = None,
    ) -> None:
        _check(result, x)
        self.result, how = result, result.tensorization
        self.members = networks_among(result.members or (result,))
        self.shape = result.structure.dims if how is None else how.shape
        before = Before(self.shape, result.axes).without(forget)
        if is_frame(x):
            if result.axes is None:
                raise DataError("a table was given, but the result knows no names: give Observations")
            x = Observations.from_frame(x, like=result.axes)
        listed = is_listed(x)
        entries = x if isinstance(x, Observations) else as_observations(x, mask, weights)
        axes = Axes.of(x, entries.order)
        self.count = len(entries)
        matches = before.match(entries.shape, axes, listed=listed, keep=bool(only_new))
        known = result.info.get("num_observations", math.prod(self.shape))
        self.num_seen = max(1, round(before.share * known))
        if only_new is None:
            only_new = 2 * self._count_old(entries, matches) < self.num_seen
            if only_new:
                matches = before.match(entries.shape, axes, listed=listed, keep=True)
        self.matches, self.only_new = matches, only_new
        self.x, self.mask, self.weights, self.entries = x, mask, weights, entries
        sizes = tuple(m.size for m in matches)
        if sizes != entries.shape or not all(np.array_equal(m.given, np.arange(m.size)) for m in matches):
            self.weights = weights if entries is x else None  # else they are among the entries
            self.mask, self.entries = None, _moved(entries, matches)
            self.x = self.entries
        self.axes = axes
        if result.axes is not None and (axes is None or only_new):
            self.axes = relabel(result.axes, matches)

    @property
    def bounds(self) -> Bounds | None:
        """Those of the result; a least value, which may be no more than a guess, unless new data is below."""
        bounds = self.result.info.get("bounds")
        if bounds is None or bounds[0] is None or bounds[1] is not None:
            return bounds
        return None if bool((self.entries.values < bounds[0]).any()) else bounds

    def _count_old(self, entries: Observations, matches: tuple[AxisMatch, ...]) -> int:
        """Entries in slices that were known before."""
        known = [torch.from_numpy(m.old[m.given] >= 0) for m in matches]
        inside = torch.stack([k[c.cpu()] for k, c in zip(known, entries.indices.T)])
        return int(inside.all(0).sum())

    def task_of(self, task: EntryTask, number: int, *, may_grow: bool, is_alike: bool) -> EntryTask:
        """The run of one member, from its network over the slices of now; new ones begin as the mean."""
        member, renewed = self.members[number], []
        how, network = member.tensorization, member.network
        for axis, (match, size) in enumerate(zip(self.matches, self.shape)):
            if np.array_equal(match.old, np.arange(size)):
                continue
            leg = axis if how is None else how.leg(axis)
            if leg is not None:
                network = network.take(leg, match.old.tolist())
                renewed += [leg] if bool((match.old < 0).any()) else []
            elif not np.array_equal(match.old[:size], np.arange(size)):
                raise DataError(
                    f"the axis {axis} is cut into digits ({how}): none of its slices can be dropped"
                )
            how = None if how is None else how.resized(axis, match.size)
        other = task.in_shape(how, number)
        options = task.request.options
        is_cheap = Pace(other.objective(other.default_ridge)).is_cheap(network.structure)
        if "prior_strength" in member.info:  # relative to the data, as the ridge is
            is_same = is_alike and describe(other.known) == member.info.get("priors")
            strength = member.info["prior_strength"]
            other.penalties = other.penalties.at(strength, settled=is_same and not is_cheap)
        if not is_cheap:  # else fits converge, and forget where they began
            other.renewed = renewed
            options = options.replace(least_sweeps=max(WARM_SWEEPS, options.least_sweeps))
        other.request = replace(task.request, init=network, options=options)
        other.noise_power = member.info.get("noise_power", 0.0)
        other.structure = None if may_grow else network.structure
        return other

    def memory(self, generator: torch.Generator) -> Observations | None:
        """Entries of the result in place of those it was made from; None where the new data has them.

        As many as there were, so that they weigh as much, at positions drawn from `generator`; those that the
        new data has are left out.
        """
        if not self.only_new:
            return None
        where = draw_kept(self.matches, self.num_seen, generator)
        before = torch.stack([torch.from_numpy(m.old)[c] for m, c in zip(self.matches, where.T)], 1)
        shares = zip(self.result.members or (self.result,), self.result.member_weights or (1.0,))
        values = sum(w * _entries(m, before) for m, w in shares)
        drawn = Observations(where, values, tuple(m.size for m in self.matches))
        fresh = ~positions_in(drawn, self.entries)
        return drawn.at(fresh) if bool(fresh.any()) else None


def _entries(result: Result, where: torch.Tensor) -> torch.Tensor:
    """What a result expects at positions in the user's array."""
    how = result.tensorization
    positions = where if how is None else torch.from_numpy(how.positions(where.numpy()))
    return result.expected(result.network.entries(positions))


def _check(result: Result, x: Any) -> None:
    """Refuse results and data that cannot be updated."""
    if not result.errors.is_relative or not result.info.keys().isdisjoint(("samples", "num_samples")):
        raise DataError(
            f"this result is about samples or a loss ({result.errors.name}); updates are for completions and "
            "decompositions"
        )
    if isinstance(x, Blocks) or is_partitioned(x):
        raise DataError(
            f"an update needs entries in memory, not {type(x).__name__}: an array, a table or Observations. "
            "complete(..., init=result.network) starts from a network of the same shape"
        )


def _moved(entries: Observations, matches: tuple[AxisMatch, ...]) -> Observations:
    """Entries at the slices of now."""
    given = [torch.from_numpy(m.given).to(entries.indices.device) for m in matches]
    where = torch.stack([g[c] for g, c in zip(given, entries.indices.T)], 1)
    shape = tuple(m.size for m in matches)
    return Observations(where, entries.values, shape, weights=entries.weights)
