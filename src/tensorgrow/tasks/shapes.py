"""Which shape suits an array with gaps: a short search in each of a few, judged by held-out entries."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from ..callbacks.progress import live_line
from ..data.tensorization import Tensorization, plan
from ..data.tensorization.digits import LONG_AXIS, arrange, even_digits
from ..errors import OptionError, check_choice, check_whole
from ..search import GreedyOptions
from .entry_task import EntryTask
from .tensor_data import WHOLE_ENTRIES

# From this size on three digits are tried as well: fewer would be as long as an axis that stays whole.
VERY_LONG_AXIS = 64
# A short search ends at this share of the fitted entries, or at this many times the size of the array at rank
# one: long axes start large, and only errors at one size can be compared. Or after so many steps.
TRIAL_SHARE, TRIAL_FACTOR, TRIAL_STEPS = 1.0 / 12.0, 2.5, 24
# Share of the time limit that short searches may take together.
TRIAL_TIME = 0.25
# Members of a committee where the user does not say, by effort.
MEMBERS = {"fast": 1, "balanced": 4, "thorough": 7}
# Parameters per fitted entry of these at most: beyond, a tenth of its error takes a member twice the time (a
# 128x128 photograph from 30 %: held-out error .0835 at a quarter, .0744 at 0.44, .0695 at 0.56).
MEMBER_SHARE = 1.0 / 3.0
# What such a committee may take, apart from loading torch: half a minute in all for a small picture.
LEAST_SECONDS, SECONDS_PER_ENTRY = 18.0, 1.25e-3
# Shifts of members: multiples of these along the axes spread evenly, however many there are.
STRIDES = (0.618034, 0.414214, 0.732051)


def with_digits(
    shape: Sequence[int], count: int, *, coarse_first: bool = True, whole: Collection[int] = ()
) -> Tensorization | None:
    """Cut every long axis into `count` digits, interleaved; None where no axis is long enough.

    Parameters
    ----------
    coarse_first
        Whether the most significant digit is the smallest one.
    whole
        Axes that are not cut.
    """
    least = LONG_AXIS if count < 3 else VERY_LONG_AXIS
    digits = tuple(
        even_digits(n, round(n ** (1.0 / count))) if n >= least and axis not in whole else (n,)
        for axis, n in enumerate(shape)
    )
    if all(len(sizes) == 1 for sizes in digits):
        return None
    if not coarse_first:
        digits = tuple(sizes[::-1] for sizes in digits)
    return Tensorization(tuple(shape), digits, arrange(digits, "interleaved"), "interleaved")


def candidates(shape: Sequence[int], whole: Collection[int] = ()) -> list[Tensorization | None]:
    """Shapes worth trying: the array as it is (None), two and three digits for each long axis."""
    cut = [with_digits(shape, count, whole=whole) for count in (2, 3)]
    return [None, *(how for how in cut if how is not None)]


def member_shapes(
    shape: Sequence[int], count: int, whole: Collection[int] = ()
) -> list[Tensorization | None]:
    """Shapes of the members of a committee: other digits, and other places of their borders.

    None for every member where no axis is long enough to be cut.
    """
    coarse, fine = (with_digits(shape, 2, coarse_first=first, whole=whole) for first in (True, False))
    three = with_digits(shape, 3, whole=whole)
    kinds = [how for how in (coarse, fine, coarse, three or coarse) if how is not None]
    if not kinds:
        return [None] * count
    return [shifted(kinds[k % len(kinds)], k) for k in range(count)]


def shifted(how: Tensorization, number: int) -> Tensorization:
    """Move the array, so that the borders of the finest digits lie elsewhere for every number."""
    shift = []
    for axis, sizes in enumerate(how.digits):
        turn = number * STRIDES[axis % len(STRIDES)] % 1.0
        shift.append(round(turn * sizes[-1]) if len(sizes) > 1 else 0)
    moved = tuple(shift) if any(shift) else ()
    return Tensorization(how.shape, how.digits, how.modes, how.order, how.padding, how.flattened, moved)


def as_members(task: EntryTask, members: int | None) -> list[EntryTask]:
    """Return the runs that a request stands for: one in each shape, the first of them perhaps begun."""
    request = task.request
    if members is not None:
        check_whole("members", members)
    wish, shape = request.tensorize, task.shape
    if wish is None:
        return _apart(task, members or 1)
    if isinstance(wish, str):
        check_choice("tensorize", wish, ("auto",))
        whole = {a for a, several in task.known.items() if any(p.needs_whole_axis for p in several)}
        count = members or _default_members(task)
        is_hasty = members is None and count > 1 and request.effort == "balanced"
        each = _in_haste(task) if is_hasty else task
        # A committee has members of every kind: all there is to choose is whether axes are cut.
        chosen = begin_in_best_shape(each, candidates(shape, whole)[: None if count == 1 else 2])
        if chosen.how is None:
            return [_in_time(task) if is_hasty else chosen] if members in (None, 1) else _apart(task, count)
        shapes = member_shapes(shape, count, whole)
        rest = [each.in_shape(how, number) for number, how in enumerate(shapes) if how != chosen.how]
        return [chosen, *rest][: len(shapes)]
    how = wish if isinstance(wish, Tensorization) else plan(shape, wish)
    if how.shape != shape:
        raise OptionError(f"the tensorisation is for arrays of shape {how.shape}, this one has {shape}")
    return [task.in_shape(shifted(how, number), number) for number in range(members or 1)]


def is_distilled(task: EntryTask) -> bool:
    """Whether several networks are completed for one: where time is no object, and the size is bounded."""
    request, limits = task.request, task.request.limits
    if request.effort != "thorough" or limits.max_parameters is None or limits.max_error is not None:
        return False
    if task.is_reweighted or not task.num_held_out or request.tensorize is not None:
        return False
    return request.init is None and not task.penalties.nonnegative and math.prod(task.shape) <= WHOLE_ENTRIES


def to_distil(task: EntryTask) -> list[EntryTask]:
    """Runs whose mean one network is fitted to: what they gain is more than one gains by more care."""
    other = task.in_shape(None)
    if task.request.effort == "thorough":  # else the user gave options, which stay
        other.request = replace(task.request, options=GreedyOptions.for_completion("balanced"))
    # On two 300x300 photographs from a tenth, cut into seven modes, three runs had errors of 9.50 to 9.56 and
    # of 15.96 to 16.43 %, one network of that size for their mean 9.28 and 15.34 %.
    return _apart(other, 3)


def _in_haste(task: EntryTask) -> EntryTask:
    """The task of a member whose errors others average out: it ends sooner, and in larger steps."""
    other = _in_time(task)
    fast = GreedyOptions.for_completion("fast")
    hasty = fast.replace(rank_increment=2, second_looks=0, tune_every=1.5, final_sweeps=15)
    other.request = replace(other.request, options=hasty)
    other.most_per_entry = MEMBER_SHARE
    return other


def _in_time(task: EntryTask) -> EntryTask:
    """The task with a time limit where the user sets none."""
    other, limits = task.in_shape(None), task.request.limits
    if limits.max_seconds is None:
        limits = replace(limits, max_seconds=max(LEAST_SECONDS, SECONDS_PER_ENTRY * task.num_observations))
    other.request = replace(task.request, limits=limits)
    return other


def _default_members(task: EntryTask) -> int:
    """How many shapes are completed where axes are cut and the user does not say.

    One where a committee would break a promise: a size is that of one network, and only squared errors have
    a mean that is better than its parts.
    """
    if task.request.limits.max_parameters is not None or task.is_reweighted:
        return 1
    return MEMBERS.get(task.request.effort, MEMBERS["balanced"])


def _apart(task: EntryTask, count: int) -> list[EntryTask]:
    """Members that hold out other entries, where there is nothing to cut."""
    return [task, *(task.holding_out_others(number) for number in range(1, count))]


def begin_in_best_shape(task: EntryTask, shapes: Sequence[Tensorization | None]) -> EntryTask:
    """Begin a search in every shape, and return the task of the most promising one, to be continued."""
    tasks = [task.in_shape(how) for how in shapes]
    if len(tasks) == 1 or not task.num_held_out:
        return tasks[0]
    for each in tasks:
        if each.how is None:  # a matrix of low rank may need as many parameters as half of its entries
            each.most_per_entry = EntryTask.most_per_entry
    request = task.request
    limit = request.limits.max_seconds
    seconds = math.inf if limit is None else TRIAL_TIME * limit / len(tasks)
    fitted = task.num_observations - task.num_held_out
    size = round(max(TRIAL_SHARE * fitted, TRIAL_FACTOR * sum(task.shape)))
    errors = []
    with live_line(request.audience.progress) as say:
        for each in tasks:
            say(f"trying the shape {'x'.join(map(str, each.shape))}")
            errors.append(_try(each, size, seconds))
    return tasks[errors.index(min(errors))]


def _try(task: EntryTask, size: int, seconds: float) -> float:
    """Begin a search; return its held-out error where its network has this size, infinite without any."""
    if task.trivial() is not None:
        return 0.0
    begin = time.perf_counter()
    task.begun = search = task.search()
    with task.threads(), np.errstate(invalid="ignore"):
        for step in islice(search, TRIAL_STEPS):
            if step.num_parameters >= size or time.perf_counter() - begin > seconds:
                break
    search.state.elapsed = 0.0  # whoever continues counts from the beginning of the task
    # One step may lead far beyond the size: what counts is the line between the networks before and after it.
    path = search.state.path
    sizes, errors = [p.num_parameters for p in path], [p.error for p in path]
    return float(np.interp(size, sizes, errors)) if path else math.inf
