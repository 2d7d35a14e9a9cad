"""The registry of caches: everything that is compiled or searched for once per structure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import wraps
from gc import get_referents
from itertools import count
from threading import RLock
from time import perf_counter
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np
import torch

P = ParamSpec("P")
T = TypeVar("T")

# What all plans of a process may take together: thirty times what a search on a ring of 7^5 asks for, and
# small beside torch itself. A search does not return to structures it left long ago, so what is dropped is
# hardly ever made again.
MOST_BYTES = 64_000_000
# What is left when plans are dropped. Below 1, so that the oldest are looked for once per many misses.
KEEP = 0.75
# Counting the bytes of a plan takes up to a fifth of the time of making it: too much to do it for each one.
MOST_COUNTING = 0.02

# Objects that belong to everybody, and code: nothing of that goes away with a plan.
_EVERYBODYS = frozenset(id(x) for x in (None, True, False, (), "", *range(-5, 257)))
_CODE = (type, FunctionType, BuiltinFunctionType, ModuleType)
_KEYWORDS = object()  # stands between positional arguments and keywords in a key


def bytes_of(*things: object) -> int:
    """Bytes of plain data with all it refers to; what is referred to twice counts once."""
    total = 0
    seen = set(_EVERYBODYS)
    level: list[object] = list(things)
    while level:
        new = {id(x): x for x in level if id(x) not in seen and not isinstance(x, _CODE)}
        seen.update(new)
        level = get_referents(*new.values())
        for x in new.values():
            total += sys.getsizeof(x)
            if isinstance(x, np.ndarray):
                level.append(x.base)  # a view owns nothing, but keeps what it looks at
            elif isinstance(x, torch.Tensor):
                total += x.untyped_storage().nbytes()
    return total


@dataclass(slots=True)
class _Plan(Generic[T]):
    value: T
    size: int
    used: int  # when it was last asked for


class _Table(Generic[T]):
    """Plans of one function."""

    def __init__(self) -> None:
        self.plans: dict[Hashable, _Plan[T]] = {}
        self.planning = self.counting = 0.0  # seconds
        self.size = 0  # of the plan counted last

    def size_of(self, key: Hashable, value: T, seconds: float) -> int:
        """Bytes of a plan that took so long to make, or of the one counted last where counting is dear."""
        self.planning += seconds
        if not self.size or self.counting <= MOST_COUNTING * self.planning:
            start = perf_counter()
            self.size = bytes_of(key, value)
            self.counting += perf_counter() - start
        return self.size


class PlanCaches:
    """Caches of several functions with one bound in bytes; what was not asked for longest goes first.

    A hit takes no lock and counts no bytes: it is a look into a dictionary and a number written. A size is
    found once, on a miss; while counting has taken more than 2 % of the time a function planned for, its
    plans are taken to be as large as the one counted last. Functions run outside the lock, so they may call
    each other, in many threads.

    Parameters
    ----------
    most
        Bytes that all results and the arguments they are kept under may take.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.bytes = 0
        self._clock = count()
        self._lock = RLock()  # a finaliser or a signal handler may plan, too
        self._tables: list[_Table[Any]] = []

    def __len__(self) -> int:
        return sum(len(table.plans) for table in self._tables)

    def cached(self, function: Callable[P, T]) -> Callable[P, T]:
        """Decorator: keep results of a function of hashable arguments."""
        table: _Table[T] = _Table()
        self._tables.append(table)
        known, clock = table.plans, self._clock

        @wraps(function)
        def wrapped(*args: P.args, **keywords: P.kwargs) -> T:
            key: Hashable = (*args, _KEYWORDS, *keywords.items()) if keywords else args
            plan = known.get(key)
            if plan is None:
                start = perf_counter()
                value = function(*args, **keywords)
                size = table.size_of(key, value, perf_counter() - start)
                plan = self._keep(known, key, _Plan(value, size, next(clock)))
            plan.used = next(clock)
            return plan.value

        return wrapped

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            for table in self._tables:
                table.plans.clear()
            self.bytes = 0

    def _keep(self, known: dict[Hashable, _Plan[T]], key: Hashable, plan: _Plan[T]) -> _Plan[T]:
        """Keep a plan, unless it has no room; the one that another thread was faster with, if any."""
        if plan.size > KEEP * self.most:
            return plan
        with self._lock:
            kept = known.setdefault(key, plan)
            if kept is plan:
                self.bytes += plan.size
            if self.bytes > self.most:
                self._drop()
        return kept

    def _drop(self) -> None:
        """Drop plans, the one that was not asked for longest first."""
        everything = [(t.plans, key, plan) for t in self._tables for key, plan in t.plans.items()]
        everything.sort(key=lambda entry: entry[2].used)
        self.bytes = sum(plan.size for _, _, plan in everything)
        for known, key, plan in everything:
            if self.bytes <= KEEP * self.most:
                break
            del known[key]
            self.bytes -= plan.size


plans = PlanCaches(MOST_BYTES)
cached = plans.cached


def clear_plans() -> None:
    """Forget all plans, paths and trees, so that the next run pays for its own planning."""
    plans.clear()
