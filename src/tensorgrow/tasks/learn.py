"""Any differentiable loss: grow the network that minimises it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import torch

from ..callbacks.base import Callbacks
from ..data.devices import choose_device
from ..errors import OptionError
from ..network import RandomState, TensorNetwork, as_generator
from ..objectives import Differentiable, LossFunction
from ..results import Errors, Result
from ..search import Context, Effort, GradientProblem, GradientSearch, GreedyOptions
from ..solvers import TrainingOptions
from ..structure import Edge
from .request import Keywords, Request, pick
from .task import NetworkTask, run_task


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
    callbacks: Callbacks = None,
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
        `errors.total`, the errors in `history` and those in `path` are values of the loss; `validation_error`
        is the validation score. There is no `relative_error`.

    Examples
    --------
    >>> import torch
    >>> x = torch.einsum("i,j,k->ijk", torch.ones(3), torch.arange(4.0), torch.ones(5))
    >>> r = learn(lambda net: ((net.to_dense() - x) ** 2).mean(), x.shape, max_steps=0, random_state=0)
    >>> r.errors.total < 1e-4
    True
    """
    if not callable(loss):
        raise OptionError(f"loss must be a function of a network, not {loss!r}")
    if validation is not None and not callable(validation):
        raise OptionError(f"validation must be a function of a network, not {validation!r}")
    if batches is not None and not isinstance(batches, Iterable):
        raise OptionError(f"batches must be a DataLoader or a list of batches, not {batches!r:.80}")
    sizes = _check_dims(dims)
    keywords: Keywords = {**pick(locals()), "device": choose_device(device, torch.empty(0))}
    limited, preset = validation is None, GreedyOptions.for_learning
    request = Request.parse("learn", GradientSearch, preset, limited=limited, signed=True, **keywords)
    request = replace(
        request,
        dtype=request.dtype or torch.get_default_dtype(),
        training=request.training or TrainingOptions.for_effort(effort),
    )
    objective = LossFunction(loss, sizes, batches, validation)
    return run_task(LearnTask(objective, request, as_generator(random_state)), request.audience)


# Losses are the same that agree to this share of them, and to this share of the largest: other machines round
# in other ways, and what is left of a loss after a good fit is rounding.
LOSS_AGREES, LOSS_ROUNDS = 1e-3, 1e-9


@dataclass(frozen=True)
class Guidance:
    """What a task knows about the growth of its networks.

    Attributes
    ----------
    shortlist, at_once
        Edges to try before a growth (None: all), and edges that may grow in one step.
    prior
        What edges promise before they are tried; edges without an entry are all tried first.
    least_gain, resolution
        As for `GradientProblem`.
    """

    shortlist: int | None = None
    at_once: int = 1
    prior: Mapping[Edge, float] = field(default_factory=dict)
    least_gain: float = GradientProblem.least_gain
    resolution: float = GradientProblem.resolution


class LearnTask(NetworkTask[GradientSearch]):
    """A run that trains networks by gradients.

    Parameters
    ----------
    request
        With the device and the dtype of the cores, and how they are trained.
    """

    kind: Literal["loss", "nats"] = "loss"
    container = "torch"  # the loss computes with torch

    def __init__(
        self,
        objective: Differentiable,
        request: Request,
        generator: torch.Generator,
        guidance: Guidance | None = None,
    ) -> None:
        assert request.device is not None
        self.objective, self.request, self.generator = objective, request, generator
        self.guidance = guidance or Guidance()
        self.home = torch.device(request.device)
        self.shape = objective.dims

    @property
    def probe(self) -> torch.Tensor:
        return torch.empty(0, dtype=self.request.dtype, device=self.home)

    def search(self) -> GradientSearch:
        request, guidance, target = self.request, self.guidance, self.request.limits.max_error
        assert request.training is not None
        problem = GradientProblem(
            self.objective,
            request.options,
            request.training,
            self.policy,
            Context(self.generator),
            request.limits.max_parameters,
            GradientProblem.target if target is None else target,
            guidance.shortlist,
            guidance.at_once,
            guidance.least_gain,
            guidance.resolution,
        )
        search = GradientSearch(problem, request.limits, self.start())
        search.state.gains = {edge: (gain, -1) for edge, gain in guidance.prior.items()}
        return search

    def fingerprint(self) -> Mapping[str, object]:
        return self.objective.identity() if isinstance(self.objective, LossFunction) else {}

    def check_resumed(self, search: GradientSearch) -> None:
        """Refuse networks whose loss is not the one in the file: functions do not show all that they do."""
        super().check_resumed(search)
        state = search.state
        largest = max((abs(s.loss) for s in state.steps), default=0.0)
        for fitted in {id(f): f for f in (state.current, state.best) if f is not None}.values():
            network, then = fitted.network.to(self.home), fitted.loss
            now, again = (self.objective.total(network) for _ in range(2))
            # A loss may draw random numbers, or batches in another order: two values show how it varies.
            allowed = LOSS_AGREES * abs(then) + LOSS_ROUNDS * largest + 10 * abs(now - again)
            if not abs(now - then) <= allowed:
                raise OptionError(
                    f"the checkpoint belongs to another run: the loss of its network was {then:.6g}, here it "
                    f"is {now:.6g}. Use the same loss and data, another file, or delete this one"
                )

    def identity(self, search: GradientSearch) -> Mapping[str, object]:
        return {**super().identity(search), "shortlist": self.guidance.shortlist}

    def finish(self, search: GradientSearch) -> Result:
        answer = search.answer
        assert answer is not None
        errors = Errors(answer.loss, self.kind, validation=answer.validation)
        return self.result(search, answer.network, errors)


def _check_dims(dims: Sequence[int]) -> tuple[int, ...]:
    try:
        sizes = tuple(dims)
    except TypeError:
        sizes = ()
    if not sizes or not all(isinstance(d, Integral) and d > 0 for d in sizes):
        raise OptionError(f"dims must be a sequence of positive whole numbers, not {dims!r}")
    return tuple(int(d) for d in sizes)
