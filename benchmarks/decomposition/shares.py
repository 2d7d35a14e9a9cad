"""Where the time of a run goes: timers around the library's functions, put there from outside."""

from __future__ import annotations

import functools
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tensorgrow.contraction.program import Program
from tensorgrow.experiments.harness import Row
from tensorgrow.search.cuts import CutBounds

__all__ = ["Shares", "measure_shares"]


class Shares:
    """Seconds per category, each moment counted once, for the innermost category it falls in."""

    def __init__(self) -> None:
        self.exclusive: dict[str, float] = defaultdict(float)
        self.inclusive: dict[str, float] = defaultdict(float)
        self._stack: list[str] = ["other"]
        self._mark = time.perf_counter()

    def _charge(self) -> None:
        now = time.perf_counter()
        self.exclusive[self._stack[-1]] += now - self._mark
        self._mark = now

    def wrap(self, category: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, its time charged to `category`."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._charge()
            begin, outermost = self._mark, category not in self._stack
            self._stack.append(category)
            try:
                return function(*args, **kwargs)
            finally:
                self._charge()
                self._stack.pop()
                if outermost:
                    self.inclusive[category] += self._mark - begin

        return timed

    def to_row(self) -> Row:
        """Shares of the total; `scoring` alone holds only what is none of the others."""
        self._charge()
        total = sum(self.exclusive.values())
        return {
            "seconds": total,
            "shares": {k: v / total for k, v in sorted(self.exclusive.items())},
            "scoring_with_its_contractions_and_solves": self.inclusive["scoring"] / total,
        }


_FUNCTIONS = {
    "solves": ("solve_normal",),
    "planning": ("sweep_plan", "pair_plan", "dense_plan", "slice_gram_plan", "gram_plan", "inner_plan"),
    "scoring": ("score_edges",),
    "gauge": ("balance",),
    "cut spectra and trees": ("smallest_tree", "build_tree"),
}


@contextmanager
def measure_shares() -> Iterator[Shares]:
    """Charge the library's time to categories by wrapping its functions from outside."""
    shares = Shares()
    modules = [m for n, m in sys.modules.items() if n == "tensorgrow" or n.startswith("tensorgrow.")]
    replaced: list[tuple[Any, str, Any]] = []

    def replace(owner: Any, name: str, category: str) -> None:
        replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, shares.wrap(category, getattr(owner, name)))

    replace(Program, "run", "contractions")
    replace(CutBounds, "spectrum", "cut spectra and trees")
    for category, names in _FUNCTIONS.items():
        for name in names:
            owners = [m for m in modules if callable(vars(m).get(name))]
            if not owners:
                raise RuntimeError(f"tensorgrow has no {name} any more; adapt _FUNCTIONS in {__name__}")
            for module in owners:
                replace(module, name, category)
    try:
        shares._mark = time.perf_counter()
        yield shares
    finally:
        for owner, name, original in replaced:
            setattr(owner, name, original)
