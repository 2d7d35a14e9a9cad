"""Committees: several networks for the same entries, whose mean is better than any of them."""

from __future__ import annotations

import math
import multiprocessing
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch

from ..algebra.nonnegative import least_on_simplex
from ..algebra.uncertainty import Uncertainty, combine
from ..callbacks.base import as_callbacks
from ..callbacks.progress import LogLines, describe_step, live_line
from ..callbacks.signals import Interrupts
from ..data.devices import usable_cores
from ..errors import OptionError, check_choice
from ..objectives import DenseLeastSquares
from ..results import Result, best_network
from ..search import AnySearch
from ..solvers import ALSSettings, als
from ..steps import Record, StopReason
from .entry_task import EntryTask
from .member import Member, hold_out_the_same
from .neighbours import interpolate_known
from .request import Audience
from .task import run_task

# Held-out entries that equal shares of members are worth: so few say little of which mean is best.
FEW_HELD_OUT = 30
# Entries at which members are compared with each other: they tell a share of a variance to some percent.
DRAWN = 2000
# Seconds between two looks at members in other processes.
LOOK_EVERY = 0.1
# Observations from which a process of its own pays for a member: loading torch there takes about two seconds.
WORTH_PROCESSES = 2000


class Executor(Protocol):
    """Whatever calls a function elsewhere: an executor of the standard library, or a dask client."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """Begin a call; the future that is returned has a method `result`."""


Workers = int | Executor | Literal["auto"] | None
"""Who runs the members: this process, one after the other (None); so many processes; an executor."""


def run_committee(
    tasks: Sequence[EntryTask], audience: Audience, workers: Workers = None, *, distils: bool = False
) -> Result:
    """Run all tasks, which know the same entries, and unite their results, or `distil` them to one network.

    Where axes are cut and held-out entries say that it helps, an interpolation has a share in the answers.

    A time limit is shared by all, the other limits hold for each. Ctrl-C ends all; those that have an answer
    are united. Every member has a checkpoint of its own, beside the one that is asked for.
    """
    if any(task.is_reweighted for task in tasks):
        raise OptionError("a committee needs the squared loss; leave members out, or loss")
    workers = _as_workers(workers, tasks[0])
    if workers not in (None, 1) and not all(
        isinstance(c, LogLines) for c in as_callbacks(audience.callbacks)
    ):
        raise OptionError("callbacks hear of members that run in this process only; leave workers out")
    with Interrupts() as interrupts:
        if workers is None or workers == 1:
            members = _run_here(tasks, audience, interrupts)
        elif isinstance(workers, int):
            members = _run_in_processes(tasks, audience, min(workers, len(tasks)), interrupts)
        else:
            futures = [workers.submit(run_member, _abroad(t), _own(audience, k)) for k, t in enumerate(tasks)]
            members = [future.result() for future in futures]
        interrupts.hold()
        united = distil(members) if distils else unite(_with_neighbours(members))
        is_cut = interrupts.count or any(m.result.stop is StopReason.INTERRUPTED for m in members)
        stop = StopReason.INTERRUPTED if is_cut else united.stop
        seconds = time.perf_counter() - audience.begin
        return replace(united, stop=stop, info={**united.info, "seconds": seconds})


def _as_workers(workers: Workers, task: EntryTask) -> int | Executor | None:
    """Check who is to run members such as this one, or choose."""
    if isinstance(workers, str):
        check_choice("workers", workers, ("auto",))
        pays = task.values.device.type == "cpu" and task.num_observations >= WORTH_PROCESSES
        return usable_cores() if pays else None
    if isinstance(workers, bool) or (isinstance(workers, int) and workers < 1):
        raise OptionError(f"workers={workers!r}: a number of processes must be at least 1")
    return workers


def run_member(task: EntryTask, audience: Audience) -> Member:
    """Run the task of one member; its time counts from now, wherever it had to wait."""
    result = run_task(task, replace(audience, begin=time.perf_counter()))
    network = result.network.times_power(-task.exponent) if task.judged is None else task.judged
    judged = network.entries(task.indices.to(network.device))
    return Member(task.in_shape(None), result, judged, task.doubts)


def _own(audience: Audience, number: int) -> Audience:
    """Who hears of one member: nobody, apart from its checkpoint."""
    path = audience.checkpoint
    if path is not None:
        path = Path(path).with_suffix(f".{number}{Path(path).suffix}")
    return Audience(False, None, path)


def _abroad(task: EntryTask) -> EntryTask:
    """The task without what only this process knows: who listens, and a search that has begun."""
    other = task.in_shape(None)
    other.request = replace(task.request, audience=Audience(False, None))
    return other


def _timed(task: EntryTask, seconds: float) -> EntryTask:
    """The task with a time limit of its own."""
    if math.isfinite(seconds):
        limits = replace(task.request.limits, max_seconds=max(seconds, 0.0))
        task.request = replace(task.request, limits=limits)
    return task


# -- one after the other -----------------------------------------------------------------------------------


def _run_here(tasks: Sequence[EntryTask], audience: Audience, interrupts: Interrupts) -> list[Member]:
    """Run members one after the other, until a signal comes or a callback stops one."""
    limit = tasks[0].request.limits.max_seconds
    end = math.inf if limit is None else audience.begin + limit
    members: list[Member] = []
    for number, task in enumerate(tasks):
        mine = replace(audience, checkpoint=_own(audience, number).checkpoint)
        seconds = (end - time.perf_counter()) / (len(tasks) - number)
        try:
            members.append(run_member(_timed(task, seconds), mine))
        except KeyboardInterrupt:
            if not members:
                raise
        if interrupts.count or members[-1].result.stop in (StopReason.CALLBACK, StopReason.INTERRUPTED):
            break
    return members


# -- in processes ------------------------------------------------------------------------------------------


def _run_in_processes(
    tasks: Sequence[EntryTask], audience: Audience, count: int, interrupts: Interrupts
) -> list[Member]:
    """Run members side by side; signals of this process tell all of them to end with what they have."""
    limit = tasks[0].request.limits.max_seconds
    rounds = math.ceil(len(tasks) / count)
    seconds = math.inf if limit is None else (audience.begin + limit - time.perf_counter()) / rounds
    context = multiprocessing.get_context("spawn")  # a fork would inherit the threads of torch
    stop, news = context.Event(), context.SimpleQueue()
    interrupts.hold()  # counted, and looked at below
    logs = [c for c in as_callbacks(audience.callbacks) if isinstance(c, LogLines)]
    with (
        live_line(audience.progress) as say,
        ProcessPoolExecutor(count, mp_context=context, initializer=_join, initargs=(stop, news)) as pool,
    ):
        futures = [
            pool.submit(_run_there, number, _timed(_abroad(task), seconds), _own(audience, number))
            for number, task in enumerate(tasks)
        ]
        while not all(future.done() for future in futures):
            if interrupts.count:
                stop.set()
                for future in futures:
                    future.cancel()  # those that have not begun
            while not news.empty():
                number, text = news.get()
                done = sum(future.done() for future in futures)
                line = f"{done} of {len(tasks)} members done; member {number + 1}, {text}"
                say(line)
                for log in logs:
                    log.note(f"{time.perf_counter() - audience.begin:.0f} s, {line}")
            time.sleep(LOOK_EVERY)
        answers = [(task, future.result()) for task, future in zip(tasks, futures) if not future.cancelled()]
    members = [Member(task.in_shape(None), *found) for task, found in answers if found is not None]
    if not members:
        raise KeyboardInterrupt
    return members


_stop: Event | None = None
_news: SimpleQueue[tuple[int, str]] | None = None


def _join(stop: Event, news: SimpleQueue[tuple[int, str]]) -> None:
    """Prepare a process that runs members: the one that started it hears signals, and tells."""
    global _stop, _news
    _stop, _news = stop, news
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)  # members share the cores


Found = tuple[Result, torch.Tensor, torch.Tensor | None]
"""A member without its task: tensors on a GPU cannot be sent back to where they came from."""


def _run_there(number: int, task: EntryTask, audience: Audience) -> Found | None:
    """Run one member in a process of its own; None where it was stopped before it began."""
    assert _stop is not None
    if _stop.is_set():
        return None
    member = run_member(task, replace(audience, callbacks=_Messenger(number)))
    return member.result, member.judged, member.doubts


class _Messenger:
    """Tells the process that waits of every step, and stops when that says so."""

    def __init__(self, number: int) -> None:
        self.number = number

    def on_start(self, search: AnySearch) -> None:
        """Nothing to tell yet."""

    def on_step(self, search: AnySearch, step: Record) -> bool | None:
        assert _stop is not None and _news is not None
        _news.put((self.number, describe_step(search, step)))
        return _stop.is_set()

    def on_end(self, search: AnySearch) -> None:
        """The result says it."""


def _with_neighbours(members: list[Member]) -> list[Member]:
    """Members, and one more that interpolates where held-out entries say that this helps."""
    first = members[0]
    if first.task.how is None or not hold_out_the_same(members):
        return members
    weights = _weights(members)
    judged = _mean(weights, [m.judged.to(first.judged) for m in members])
    found = interpolate_known(first.task, first.result, judged, lambda: _mean(weights, _arrays(members)))
    return members if found is None else [*members, found]


def _arrays(members: Sequence[Member]) -> list[torch.Tensor]:
    """The arrays of networks in the user's shape, in the units computed in."""
    tensors = zip(members, _tensors(members))
    return [x if m.task.how is None else m.task.how.invert(x) for m, x in tensors]


def _tensors(members: Sequence[Member]) -> list[torch.Tensor]:
    """All entries of networks, in the units computed in."""
    return [m.network.to_dense().cpu() for m in members]


# -- the mean ----------------------------------------------------------------------------------------------


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
    weights = _weights(members)
    task = members[0].task
    errors = task.errors_at(
        _mean(weights, [m.judged for m in members]),
        _mean(weights, [m.entries().to(m.judged) for m in members]),
    )
    if not hold_out_the_same(members):
        errors = replace(errors, train=None, validation=math.sqrt(float(weights @ np.square(held))))
    if task.test is not None:
        tests = [
            m.result.expected(m.result.network.entries(m.task.test[0]))
            for m in members
            if m.task.test is not None
        ]
        errors = replace(errors, test=task.test_error_at(_mean(weights, tests)))
    info = {
        **best.info,
        "num_parameters": sum(r.num_parameters for r in results),
        "member_weights": [float(w) for w in weights],
    }
    known = _uncertainty(weights, members)
    return replace(best, errors=errors, info=info, members=tuple(results), uncertainty=known)


def distil(members: Sequence[Member]) -> Result:
    """Return one network for the mean of the members: with the graph and ranks that fit it best.

    Where even that is as far from the mean as members are on average, nothing is gained, and the one with the
    least held-out error is returned. Held-out errors and intervals are those of the member: no entry is
    unknown to all of them, and the network should be better.
    """
    best = best_network([m.result for m in members])
    if len(members) == 1:
        return best
    begin, weights, tensors = time.perf_counter(), _weights(members), _tensors(members)
    mean = _mean(weights, tensors)
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
    fits = [als(objective, n.to(objective.device), settings) for n in starts]
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


def _mean(weights: np.ndarray[Any, Any], parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return (torch.stack(list(parts), -1) * torch.as_tensor(weights).to(parts[0])).sum(-1)


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
        mean = (_mean(weights, judged) - values[where]).abs().double()
        return Uncertainty.measured(
            mean / combine(list(weights), [d[where] for d in doubts], judged), spreads=True
        )
    held = [m.task.held_out for m in members]
    known = Uncertainty.measured(torch.cat([(o / d)[h] for o, d, h in zip(off, doubts, held)]))
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([torch.randint(d, (DRAWN,), generator=generator) for d in task.shape], 1)
    parts = torch.stack([m.entries(drawn).to(values) for m in members], -1)
    apart = (parts - _mean(weights, list(parts.unbind(-1)))[:, None]).abs().double().square().mean(0)
    alone = np.asarray([float(o[h].square().mean()) for o, h in zip(off, held)])
    share = 1.0 - float(weights @ apart.cpu().numpy()) / (float(weights @ alone) or 1.0)
    return replace(known, size=known.size * math.sqrt(max(share, 1.0 / len(members))))


def _weights(members: Sequence[Member]) -> np.ndarray[Any, Any]:
    """Shares of members, from how well they and their mean do on held-out entries.

    Where all held out the same entries: the shares, none negative, whose mean has the least squared error
    there, drawn towards equal ones by as much as a few entries would. Otherwise by the variance of errors.
    """
    settled = members[-1].share
    if settled is not None:
        return np.append((1.0 - settled) * _weights(members[:-1]), settled)
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
    # Relative to the best of them: where one is exact, there is nothing to average.
    pull = FEW_HELD_OUT / len(residuals) * gram.diagonal().min() + 1e-12 * gram.trace()
    return least_on_simplex(gram + pull * np.eye(count)) if pull else equal
