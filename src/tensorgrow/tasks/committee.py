"""Committees: several runs on the same entries, here or elsewhere, and one result of all."""

from __future__ import annotations

import math
import multiprocessing
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Literal, Protocol

import torch

from ..callbacks.base import as_callbacks
from ..callbacks.progress import LogLines, describe_step, live_line
from ..callbacks.signals import Interrupts
from ..data.devices import usable_cores
from ..data.parallel.processes import process_pool
from ..errors import OptionError, check_choice
from ..results import Result
from ..search import AnySearch
from ..steps import Record, StopReason
from .distillation import distil
from .entry_task import EntryTask
from .mean import unite
from .member import Member
from .neighbours import with_interpolation
from .request import Audience, Request
from .task import LATE_SHARE, run_task

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
    tasks: Sequence[EntryTask], request: Request, workers: Workers = None, *, distils: bool = False
) -> Result:
    """Run all tasks, which know the same entries, and unite their results, or `distil` them to one network.

    Where axes are cut and held-out entries say that it helps, an interpolation has a share in the answers.

    A time limit is shared by all, the other limits hold for each. Ctrl-C ends all; those that have an answer
    are united. Every member has a checkpoint of its own, beside the one that is asked for.

    Parameters
    ----------
    request
        What the user asked for; those of the tasks may have limits of their own.
    """
    audience, (end, deadline) = request.audience, _ends(tasks, request)
    if any(task.is_reweighted for task in tasks):
        raise OptionError("a committee needs the squared loss; leave members out, or loss")
    workers = _as_workers(workers, tasks[0])
    if workers not in (None, 1) and not all(
        isinstance(c, LogLines) for c in as_callbacks(audience.callbacks)
    ):
        raise OptionError("callbacks hear of members that run in this process only; leave workers out")
    with Interrupts() as interrupts:
        if workers is None or workers == 1:
            members = _run_here(tasks, audience, interrupts, end)
        elif isinstance(workers, int):
            count = min(workers, len(tasks))
            is_users = request.limits.max_seconds is not None
            members = _run_in_processes(tasks, audience, count, interrupts, end, is_users=is_users)
        else:
            seconds = end - time.perf_counter()  # for each: nobody knows how many run at a time
            timed = [_timed(_abroad(task), seconds) for task in tasks]
            futures = [workers.submit(run_member, t, _own(audience, k)) for k, t in enumerate(timed)]
            members = [future.result() for future in futures]
        interrupts.hold()
        united = distil(members, deadline) if distils else unite(with_interpolation(members, deadline))
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


def _ends(tasks: Sequence[EntryTask], request: Request) -> tuple[float, float]:
    """When members must have ended, and when what is made of them: values of ``time.perf_counter()``.

    Of the time that the user sets, members leave as much as a last fit may exceed it by. Time that was chosen
    for them is theirs alone.
    """
    begin, limit = request.audience.begin, request.limits.max_seconds
    if limit is not None:
        return begin + (1.0 - LATE_SHARE) * limit, begin + (1.0 + LATE_SHARE) * limit
    own = tasks[0].request.limits.max_seconds
    return math.inf if own is None else begin + own, math.inf


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
        if task.begun is not None:  # that was built with the time of all
            task.begun.limits = limits
    return task


# -- one after the other -----------------------------------------------------------------------------------


def _run_here(
    tasks: Sequence[EntryTask], audience: Audience, interrupts: Interrupts, end: float
) -> list[Member]:
    """Run members one after the other, until a signal comes or a callback stops one."""
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
    tasks: Sequence[EntryTask],
    audience: Audience,
    count: int,
    interrupts: Interrupts,
    end: float,
    *,
    is_users: bool,
) -> list[Member]:
    """Run members side by side; signals of this process tell all of them to end with what they have.

    Parameters
    ----------
    is_users
        Whether the user wants it to `end` then: the start of processes, which takes seconds, counts too.
    """
    rounds = math.ceil(len(tasks) / count)
    seconds = (end - time.perf_counter()) / rounds
    # In the clock that other processes know:
    last = time.time() + end - time.perf_counter() if is_users else math.inf
    context = multiprocessing.get_context("spawn")  # a fork would inherit the threads of torch
    stop, news = context.Event(), context.SimpleQueue()
    interrupts.hold()  # counted, and looked at below
    logs = [c for c in as_callbacks(audience.callbacks) if isinstance(c, LogLines)]
    with (
        live_line(audience.progress) as say,
        process_pool(count, context, _join, (stop, news)) as pool,
    ):
        futures = [
            pool.submit(
                _run_there,
                number,
                _timed(_abroad(task), seconds),
                _own(audience, number),
                last,
                rounds - number // count,
            )
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


def _run_there(
    number: int, task: EntryTask, audience: Audience, last: float = math.inf, rounds: int = 1
) -> Found | None:
    """Run one member in a process of its own; None where it was stopped before it began.

    Parameters
    ----------
    last
        Value of ``time.time()`` at which this round and those after it must have ended.
    rounds
        How many these are: members that run one after the other share what is left.
    """
    assert _stop is not None
    if _stop.is_set():
        return None
    task = _timed(task, (last - time.time()) / rounds)
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
