"""Functions: a network for a function on a grid, from points that the search chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..callbacks.base import Callbacks
from ..data.axes import Axes, check_names, default_names
from ..data.devices import choose_device, one_thread
from ..data.evaluations import Evaluations, EvaluationWorkers
from ..data.fingerprint import fingerprint_function
from ..errors import DataError, OptionError, check_whole, is_whole, warn
from ..network import RandomState, TensorNetwork, as_generator
from ..results import Errors, Result
from ..search import Context, CrossProblem, CrossSearch, Effort, GreedyOptions
from .request import Request, pick
from .task import NetworkTask, run_task

# Without `max_error`: where rounding begins.
LEAST_ERROR = 1e-12
# Values of a function are the same that agree to this share: other machines round in other ways.
AGREES = 1e-6
# Random points tell little of an error where there are fewer.
LEAST_VALIDATION = 10


def approximate(
    f: Callable[[Any], Any],
    shape_or_grids: Sequence[Any],
    *,
    max_error: float | None = None,
    max_evaluations: int | None = None,
    max_parameters: int | None = None,
    max_steps: int | None = None,
    max_seconds: float | None = None,
    validation: int = 100,
    batch_size: int | None = None,
    workers: EvaluationWorkers = None,
    effort: Effort = "fast",
    random_state: RandomState = None,
    device: torch.device | str | None = None,
    dtype: Any = None,
    names: Sequence[str] | None = None,
    memory_limit: float | None = None,
    progress: bool | None = None,
    callbacks: Callbacks = None,
    checkpoint: str | Path | None = None,
    options: GreedyOptions | None = None,
) -> Result:
    """Find a tensor network for a function on a grid, evaluating it at as few points as possible.

    The search chooses the points: a small part of the grid, on which it learns which variables belong
    together, and fibres and crosses through the points where it still errs. No point is evaluated twice.

    Parameters
    ----------
    f
        Takes an array of points, ``(n, order)``, and returns ``n`` numbers. The points are positions on the
        grid, whole numbers from 0, or coordinates where grids are given.
    shape_or_grids
        The number of points along every axis, ``(16,) * 7``; or their coordinates, one vector per axis:
        ``[np.linspace(-1, 1, 16)] * 7``.
    max_error
        Stop at this relative error, ``||f - network|| / ||f||`` over the whole grid, as random points tell
        it: with one standard error added, and none of them seen by any choice before. Points are evaluated
        until that is met; without it, until another limit is.
    max_evaluations
        Points that may be evaluated, those that measure the error included.
    max_parameters, max_steps, max_seconds
        Limits of the size, the number of steps and the time.
    validation
        Random points that decide that the run is over; a twentieth of all evaluations where that is more.
    batch_size
        Points per call of `f` at most; by default 4,096.
    workers
        Who calls `f`, with a part of the points each: so many threads, for functions that wait or compute
        outside Python; an executor with ``submit``, for processes or a cluster. By default this thread.
    effort
        "fast", "balanced" or "thorough": how long the search for the graph of the part of the grid takes.
    dtype
        Of the cores; a real one promises that `f` is real. By default double precision, complex where the
        first values are. Everything is computed in double precision.
    names
        Names of the axes.
    random_state, device, memory_limit, progress, callbacks
        As for `decompose`. Computed on the CPU; `device` is where the result goes.
    checkpoint
        A file that keeps the state and every evaluation, also where `f` raises or the run is interrupted.
        When it exists the run resumes from it; a larger `max_evaluations` goes on where a smaller one ended.
    options
        Everything rarer about the search for the graph.

    Returns
    -------
    Result
        `validation_error` is the relative error on random points of the whole grid; `relative_error` is on
        all points that were evaluated, most of which the search chose. ``info["evaluations"]`` counts them,
        and ``info["evaluations_by_step"]`` until every step of the history. Where grids are given, `predict`
        takes coordinates.

    Examples
    --------
    >>> import numpy as np
    >>> grids = [np.linspace(0, 1, 9)] * 6
    >>> r = approximate(lambda x: np.exp(-x.sum(1)), grids, max_error=1e-6, random_state=0)
    >>> r.num_parameters, r.info["evaluations"] < 1000
    (54, True)
    """
    request = Request.parse(
        "approximate", CrossSearch, GreedyOptions.for_effort, limited=False, **pick(locals())
    )
    if not request.limits.has_any and max_evaluations is None:
        raise OptionError(
            "nothing says when to stop: give max_error, max_evaluations, max_parameters, max_steps or "
            "max_seconds"
        )
    shape, grids = _read_grids(shape_or_grids)
    if max_evaluations is not None:
        check_whole("max_evaluations", max_evaluations, more=", or None")
    evaluations = Evaluations(
        f,
        shape,
        grids=grids,
        is_complex=None if request.dtype is None else request.dtype.is_complex,
        most=None
        if max_evaluations is None
        else check_whole("max_evaluations", max_evaluations, more=", or None"),
        batch=batch_size,
        workers=workers,
    )
    check_whole("validation", validation, LEAST_VALIDATION)
    return run_task(ApproximateTask(evaluations, request, validation), request.audience)


class ApproximateTask(NetworkTask[CrossSearch]):
    """A run that evaluates a function.

    Parameters
    ----------
    validation
        Random points that decide that the run is over.
    """

    def __init__(self, evaluations: Evaluations, request: Request, validation: int) -> None:
        self.evaluations, self.request, self.validation = evaluations, request, validation
        self.shape = evaluations.shape
        self.home = choose_device(request.device, torch.empty(0))
        self.generator = as_generator(request.random_state)
        grids, order = evaluations.grids, len(self.shape)
        if grids is not None or request.names is not None:
            names = default_names(order) if request.names is None else check_names(request.names, order)
            labels = [None] * order if grids is None else list(grids)
            self.axes = Axes.of_columns(dict(zip(names, labels)))

    @property
    def probe(self) -> torch.Tensor:
        return torch.empty(0, dtype=self.evaluations.dtype)

    @property
    def exponent(self) -> int:
        return self.evaluations.exponent

    def fingerprint(self) -> Mapping[str, object]:
        grids = self.evaluations.grids
        return {
            "grids": None if grids is None else fingerprint_function(tuple(grids)),
            "validation": self.validation,
        }

    def threads(self) -> AbstractContextManager[None]:
        return one_thread()

    def check(self) -> None:
        super().check()
        limits, most = self.request.limits, self.evaluations.most
        precision = torch.finfo(self.request.dtype or torch.float64).eps
        least = max(LEAST_ERROR, 10.0 * precision)
        if limits.max_error is not None and limits.max_error < least:
            raise OptionError(
                f"max_error={limits.max_error:g} is below what {self.request.dtype or 'double precision'} "
                f"can tell here, about {least:.0e}. Ask for more than that"
            )
        needed = self.validation + sum(self.shape)
        if most is not None and most < needed:
            raise OptionError(
                f"max_evaluations={most}, but the first network takes up to {needed}: {self.validation} "
                "random points (validation=), and one fibre along every axis. Give at least that many"
            )

    def search(self) -> CrossSearch:
        request = self.request
        limits = request.limits
        problem = CrossProblem(
            self.evaluations,
            request.options,
            Context(self.generator),
            LEAST_ERROR if limits.max_error is None else limits.max_error,
            limits.max_parameters,
            self.validation,
            request.memory(torch.device("cpu")),
        )
        search = CrossSearch(problem, limits)
        search.state.function = fingerprint_function(self.evaluations.function)
        return search

    def check_resumed(self, search: CrossSearch) -> None:
        """Refuse values of another function; one that was mended keeps the values it had before.

        Where the code is not the same, the largest value is computed again.
        """
        super().check_resumed(search)
        known, now = self.evaluations, fingerprint_function(self.evaluations.function)
        if search.state.function != now and len(known):
            place = int(known.values.abs().argmax())
            then, again = known.values[place], known.again(known.points[place])
            if not abs(again - then) <= AGREES * abs(then):
                raise OptionError(
                    f"the checkpoint belongs to another run: f was {then.item():.6g} at the index "
                    f"{tuple(known.points[place].tolist())}, here it is {again.item():.6g}. Use the same "
                    "function, another file, or delete this one"
                )
        search.state.function = now

    def bring_home(self, network: TensorNetwork) -> TensorNetwork:
        dtype = self.request.dtype or self.evaluations.dtype
        return super().bring_home(network).to(self.home, dtype)

    def finish(self, search: CrossSearch) -> Result:
        answer, known = search.answer, self.evaluations
        assert answer is not None
        values = known.at(known.points)
        rest = values - answer.network.entries(known.points)
        error, norm = (float(torch.linalg.vector_norm(v)) for v in (rest, values))
        if norm == 0.0:
            warn(f"f is zero at all {len(known)} points that were evaluated, most of them random")
        errors = Errors(error / (norm or 1.0), validation=answer.validation)
        counts = list(search.state.counts)
        return self.result(search, answer.network, errors, evaluations=len(known), evaluations_by_step=counts)


def _read_grids(shape_or_grids: Any) -> tuple[tuple[int, ...], list[np.ndarray[Any, Any]] | None]:
    """The number of points along every axis, and their coordinates where these are given."""
    try:
        parts = list(shape_or_grids)
    except TypeError:
        parts = []
    if parts and all(is_whole(n, 1) for n in parts):
        return tuple(int(n) for n in parts), None
    grids = []
    for k, part in enumerate(parts):
        grid = np.asarray(part)
        if grid.ndim != 1 or grid.dtype.kind not in "iuf" or not len(grid):
            break
        if not np.isfinite(grid).all() or len(np.unique(grid)) < len(grid):
            raise DataError(f"grid {k} holds NaN, infinities or a coordinate twice; its points must differ")
        grids.append(grid.astype(float))
    if not parts or len(grids) < len(parts):
        raise OptionError(
            f"shape_or_grids={shape_or_grids!r:.100} must be positive whole numbers, the points along every "
            "axis, or one vector of coordinates per axis: [np.linspace(-1, 1, 16)] * 7 for seven variables"
        )
    return tuple(len(g) for g in grids), grids
