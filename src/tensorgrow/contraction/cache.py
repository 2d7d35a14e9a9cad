"""The registry of caches: everything that is compiled or searched for once per structure."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")

_caches: list[Any] = []


def cached(most: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorator: keep the last `most` results of a function, until `clear_plans` is called."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        wrapped = lru_cache(maxsize=most)(function)
        _caches.append(wrapped)
        return cast(Callable[P, T], wrapped)

    return decorate


def clear_plans() -> None:
    """Forget all plans, paths and trees, so that the next run pays for its own planning."""
    for cache in _caches:
        cache.cache_clear()
