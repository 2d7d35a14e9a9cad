"""Any differentiable loss: grow the network that minimises it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import torch

from ..callbacks.base import Checkpoint, as_callbacks, progress_callback
from ..data.arrays import as_dtype
from ..errors import OptionError
from ..network import RandomState, TensorNetwork, as_generator
from ..objectives import Differentiable, LossFunction
from ..results import Result
from ..search import EdgePolicy, Effort, GreedyOptions, LearningProblem, LearningSearch, Limits
from ..solvers import TrainingOptions
from ..structure import Edge, Structure
from .task import check_init, describe, run, seed_of

__all__ = ["learn", "learn_objective"]


def learn(
    loss: Callable[..., torch.Tensor],
    dims: Sequence[int],
    *,
    batches: Iterable[Any] | None = None,
    validation: Callable[[TensorNetwork], Any] | None = None,
    max_error: float | None = None,
    max_parameters: int | None = None,
    max_steps: int | None = None,
    max_seconds: float | None = None,
    edges: Literal["all", "chain", "ring"] | Iterable[Edge] = "all",
    effort: Effort = "balanced",
    init: TensorNetwork | None = None,
    random_state: RandomState = None,
    device: torch.device | str | None = None,
    dtype: Any = None,
    progress: bool | None = None,
    callbacks: Any = None,
    checkpoint: str | Path | None = None,
    options: GreedyOptions | None = None,
    training: TrainingOptions | None = None,
) -> Result:
    """Grow a tensor network that minimises any differentiable loss.

    Parameters
    ----------
    loss
        ``loss(network)``, or ``loss(network, batch)`` with `batches`: one real number as a torch tensor,
        through ``network.entries``, ``network.to_dense``, ``network.cores`` or anything torch can follow.
    dims
        Dangling legs of the network.
    batches
        Iterated anew for every epoch: a DataLoader, a list of batches.
    validation
        ``validation(network)``, lower is better. It chooses epochs, edges and the network to return, and ends
        the growth; without it the loss does.
    max_error
        Stop when the validation score, or the loss, is at most this.
    max_parameters, max_steps, max_seconds, edges, init, random_state, progress, callbacks, checkpoint
        As for `decompose`. Random numbers that your loss or loader draws are not ours to control: seed them
        for runs that can be repeated.
    effort
        "fast", "balanced" or "thorough": how long networks and candidates are trained.
    device, dtype
        Of the cores; by default the CPU and torch's default precision.
    options
        Everything rarer about the growth.
    training
        Optimiser, epochs, schedule; overrides what `effort` stands for.

    Returns
    -------
    Result
        `relative_error`, and the errors in `history` and `path`, are values of the loss; `validation_error`
        is the validation score.

    Examples
    --------
    >>> import torch
    >>> x = torch.einsum("i,j,k->ijk", torch.ones(3), torch.arange(4.0), torch.ones(5))
    >>> r = learn(lambda net: ((net.to_dense() - x) ** 2).mean(), x.shape, max_steps=0, random_state=0)
    >>> r.relative_error < 1e-4
    True
    """
    if not callable(loss):
        raise OptionError(f"loss must be a function of a network, not {loss!r}")
    if validation is not None and not callable(validation):
        raise OptionError(f"validation must be a function of a network, not {validation!r}")
    if batches is not None and not isinstance(batches, Iterable):
        raise OptionError(f"batches must be a DataLoader or a list of batches, not {batches!r:.80}")
    sizes = _check_dims(dims)
    generator = as_generator(random_state)
    result = learn_objective(
        LossFunction(loss, sizes, batches, validation),
        limits=Limits(
            max_error, max_parameters, max_steps, max_seconds, held_out=validation is not None, signed=True
        ),
        edges=edges,
        effort=effort,
        init=init,
        generator=generator,
        device=torch.device("cpu" if device is None else device),
        dtype=as_dtype(dtype) or torch.get_default_dtype(),
        progress=progress,
        callbacks=callbacks,
        checkpoint=checkpoint,
        options=options,
        training=training,
    )
    return replace(result, info={**result.info, "seed": seed_of(random_state, generator)})


def learn_objective(
    objective: Differentiable,
    *,
    limits: Limits,
    edges: Literal["all", "chain", "ring"] | Iterable[Edge],
    effort: Effort,
    init: TensorNetwork | None,
    generator: torch.Generator,
    device: torch.device,
    dtype: torch.dtype,
    progress: bool | None,
    callbacks: Any,
    checkpoint: str | Path | None,
    options: GreedyOptions | None,
    training: TrainingOptions | None,
    identity: dict[str, Any] | None = None,
    shortlist: int | None = None,
    prior: dict[Edge, float] | None = None,
    least_gain: float | None = None,
) -> Result:
    """The search behind `learn`, for any objective.

    Parameters
    ----------
    shortlist
        Edges to try before a growth; None: all.
    prior
        What edges promise before they were tried; those that are not named are all tried first.
    least_gain
        Share of its value by which the measure must fall for a growth to count as progress; None: hardly any.
    """
    for name, value, kind in (("options", options, GreedyOptions), ("training", training, TrainingOptions)):
        if value is not None and not isinstance(value, kind):
            raise OptionError(f"{name} must be {kind.__name__}, not {type(value).__name__}")
    chosen = GreedyOptions.for_learning(effort) if options is None else options
    trained = TrainingOptions.for_effort(effort) if training is None else training
    dims = objective.dims
    policy = EdgePolicy.parse(edges, len(dims), chosen.max_degree)
    probe = torch.empty(0, dtype=dtype, device=device)
    check_init(init, dims, probe)
    first = Structure.rank_one(dims) if init is None else init.structure
    limits.check_size(first.num_parameters)
    problem = LearningProblem(
        objective, chosen, trained, policy, generator, limits.max_parameters, shortlist=shortlist
    )
    if least_gain is not None:
        problem.least_gain = least_gain
    if limits.max_error is not None:
        problem.target = limits.max_error
    search = LearningSearch(problem, limits, init=init, dtype=dtype, device=device)
    search.state.gains = {edge: (gain, -1) for edge, gain in (prior or {}).items()}
    listeners = [*as_callbacks(callbacks), *progress_callback(progress)]
    if checkpoint is not None:
        same = {
            "dims": list(dims),
            "dtype": str(dtype),
            "max_error": limits.max_error,
            "max_parameters": limits.max_parameters,
            "edges": None if policy.pairs is None else sorted([list(e) for e in policy.pairs]),
            "options": chosen.to_dict(),
            "training": trained.to_dict(),
            "shortlist": shortlist,
            **(identity or {}),
        }
        keeper = Checkpoint(checkpoint, same)
        keeper.load(search)
        listeners.insert(0, keeper)
    run(search, listeners)
    answer, stop = search.answer, search.state.stop
    assert answer is not None and stop is not None
    details = describe(
        probe,
        effort=effort if options is None and training is None else "custom",
        options=chosen.to_dict(),
        training=trained.to_dict(),
        seconds=search.state.elapsed,
    )
    return Result(
        answer.network,
        answer.loss,
        tuple(search.state.steps),
        stop,
        tuple(search.state.path),
        details,
        validation_error=answer.validation,
    )


def _check_dims(dims: Sequence[int]) -> tuple[int, ...]:
    try:
        sizes = tuple(dims)
    except TypeError:
        sizes = ()
    if not sizes or not all(isinstance(d, Integral) and d > 0 for d in sizes):
        raise OptionError(f"dims must be a sequence of positive whole numbers, not {dims!r}")
    return tuple(int(d) for d in sizes)
