"""A function on a grid: points are evaluated in batches, and none twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NoReturn, Protocol

import numpy as np
import numpy.typing as npt
import torch

from ..errors import DataError, OptionError, check_whole, counted
from .arrays import exponent_for, times_power
from .parallel.executor import map_in_order

Points = npt.NDArray[np.int64]
Values = npt.NDArray[Any]

# Points per call at most: enough for arithmetic on arrays, few enough that a checkpoint loses little.
BATCH = 4096
# Values that tell the unit to compute in. They must not change when more are known, nor after a resume.
FIRST = 16


class Executor(Protocol):
    """Whatever calls a function elsewhere: an executor of the standard library, or a dask client."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Begin a call."""


EvaluationWorkers = int | Executor | None
"""Who calls a function: this thread (None), so many threads, or an executor."""


class BudgetSpent(Exception):
    """More points are asked for than may be evaluated; none of them was."""


class Evaluations:
    """What is known of a function on a grid.

    Parameters
    ----------
    function
        Of an array of points, ``(n, order)``: positions on the grid, or coordinates where there are `grids`.
        It returns ``n`` numbers.
    shape
        Points along every axis.
    grids
        Coordinates of these points.
    is_complex
        Whether the numbers may be complex; None: the first ones tell.
    most
        Points that may be evaluated.
    batch
        Points per call at most.
    workers
        Who calls the function.

    Attributes
    ----------
    after_batch
        Called between batches; what it raises ends the evaluation, and what was evaluated stays.
    """

    after_batch: Callable[[], None] | None = None

    def __init__(
        self,
        function: Callable[[Any], Any],
        shape: Sequence[int],
        *,
        grids: Sequence[Values] | None = None,
        is_complex: bool | None = None,
        most: int | None = None,
        batch: int | None = None,
        workers: EvaluationWorkers = None,
    ) -> None:
        if not callable(function):
            raise OptionError(f"f must be a function of an array of points, not {function!r:.80}")
        if workers is not None and not hasattr(workers, "submit"):
            check_whole("workers", workers, more=", an executor, or None")
        self.function = function
        self.shape = tuple(shape)
        self.grids = grids
        self.is_complex = is_complex
        self.most = most
        self.batch = BATCH if batch is None else check_whole("batch_size", batch)
        self.workers = workers
        self._place: dict[bytes, int] = {}
        self._points: list[Points] = []
        self._values: list[complex] = []

    def __len__(self) -> int:
        return len(self._values)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype to compute in."""
        return torch.complex128 if self.is_complex else torch.float64

    @property
    def points(self) -> torch.Tensor:
        """All points so far, in the order in which they were evaluated."""
        if not self._points:
            return torch.empty((0, len(self.shape)), dtype=torch.int64)
        self._points = [np.concatenate(self._points)]
        return torch.from_numpy(self._points[0])

    @property
    def values(self) -> torch.Tensor:
        """The values at `points`, as the function returned them."""
        return torch.tensor(self._values, dtype=self.dtype)

    @property
    def exponent(self) -> int:
        """The power of two that values are divided by to compute with them: that of the first ones."""
        return exponent_for(max(map(abs, self._values[:FIRST]), default=0.0))

    def restore(self, points: torch.Tensor, values: torch.Tensor) -> None:
        """Know these values as well."""
        if values.is_complex() and self.is_complex is None:
            self.is_complex = True
        self._store(points.numpy(), values.numpy())

    def at(self, points: torch.Tensor) -> torch.Tensor:
        """Values at points ``(..., order)``, in the units to compute in; the new ones are evaluated."""
        listed = points.reshape(-1, len(self.shape)).numpy()
        keys = [row.tobytes() for row in np.ascontiguousarray(listed)]
        new = {key: k for k, key in enumerate(keys) if key not in self._place}
        if new:
            self._evaluate(listed[sorted(new.values())])
        places = [self._place[key] for key in keys]
        found = torch.tensor([self._values[k] for k in places], dtype=self.dtype)
        return times_power(found, -self.exponent).reshape(points.shape[:-1])

    def _evaluate(self, points: Points) -> None:
        if self.most is not None and len(self) + len(points) > self.most:
            raise BudgetSpent
        size = self.batch
        if isinstance(self.workers, int):
            size = min(size, -(-len(points) // self.workers))
        chunks = [points[k : k + size] for k in range(0, len(points), size)]
        for number, answer in enumerate(self._answers(chunks), 1):
            if isinstance(answer, Exception):
                self._find_failure(chunks[number - 1], answer)
            self._take(chunks[number - 1], answer)
            if self.after_batch is not None and number < len(chunks):
                self.after_batch()

    def _answers(self, chunks: Sequence[Points]) -> Iterator[Any]:
        """What the function returns for every chunk, or the error it raises."""
        inputs = [self._coordinates(chunk) for chunk in chunks]
        work = partial(_call, self.function)
        if self.workers is None or isinstance(self.workers, int):
            return map_in_order(work, inputs, 0 if self.workers in (None, 1) else int(self.workers or 0))
        futures = [self.workers.submit(work, x) for x in inputs]
        return (future.result() for future in futures)

    def _coordinates(self, points: Points) -> Values:
        if self.grids is None:
            return points.copy()  # the function may do with it what it likes
        return np.stack([grid[points[:, k]] for k, grid in enumerate(self.grids)], 1)

    def _find_failure(self, points: Points, error: Exception) -> NoReturn:
        """Evaluate points one by one after an error, to keep what can be kept, and name the culprit."""
        for k in range(len(points) if len(points) > 1 else 0):
            (answer,) = self._answers([points[k : k + 1]])
            if isinstance(answer, Exception):
                error, points = answer, points[k : k + 1]
                break
            self._take(points[k : k + 1], answer)
        where = self._name(points[0])
        if len(points) > 1:
            where = (
                f"{len(points)} points at once, though at none of them alone; the first of them is {where}"
            )
        raise DataError(
            f"f raised {type(error).__name__} at {where}: {error}. {counted(len(self), 'evaluation')} before "
            "it are kept where there is a checkpoint"
        ) from error

    def _take(self, points: Points, answer: Any) -> None:
        """Check what the function returned, and keep it."""
        values = np.asarray(answer.detach().cpu() if isinstance(answer, torch.Tensor) else answer)
        if values.shape != (len(points),):
            raise DataError(
                f"f returned an array of shape {values.shape} for {counted(len(points), 'point')}; it must "
                f"return one number per row of its argument, of shape ({len(points)},)"
            )
        if values.dtype.kind not in "biufc":
            raise DataError(f"f returned values of dtype {values.dtype}; it must return numbers")
        if self.is_complex is None:
            self.is_complex = values.dtype.kind == "c"
        if values.dtype.kind == "c" and not self.is_complex:
            k = int(np.argmax(np.abs(values.imag)))
            raise DataError(
                f"f returned a complex number, {values[k]:.6g} at {self._name(points[k])}, where real ones "
                "were promised; pass dtype=complex, or return the real part"
            )
        finite = np.isfinite(values)
        self._store(points[finite], values[finite])
        if not finite.all():
            k = int(np.argmin(finite))
            raise DataError(
                f"f returned {values[k]} at {self._name(points[k])}; a network needs finite values. Leave "
                "such points out of the grid, or return a finite number there"
            )

    def _store(self, points: Points, values: Values) -> None:
        rows = np.ascontiguousarray(points, dtype=np.int64)
        keys = [row.tobytes() for row in rows]
        self._place.update(zip(keys, range(len(self), len(self) + len(rows))))
        self._points.append(rows)
        self._values.extend(values.tolist())

    def _name(self, point: Points) -> str:
        index = f"the index {tuple(point.tolist())}"
        if self.grids is None:
            return index
        return f"{index}, the point ({', '.join(f'{v:.6g}' for v in self._coordinates(point[None])[0])})"


def _call(function: Callable[[Any], Any], points: Values) -> Any:
    """What a function returns, or the error it raises."""
    try:
        return function(points)
    except Exception as error:  # noqa: BLE001 - whatever a user's function raises
        return error
