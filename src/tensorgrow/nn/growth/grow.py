"""The structure of layers learned while a model is trained: the paper's MNIST experiment for any model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from ...callbacks.base import Callbacks
from ...callbacks.signals import interruptible
from ...errors import OptionError, check_choice, check_kind, check_positive, check_whole, is_whole
from ...network import RandomState, as_generator
from ...search import EdgePolicy, GreedyOptions, Limits
from ...solvers import TrainingOptions
from ...steps import StopReason
from ...structure import Edge
from ...tasks.request import Audience
from ...tasks.task import Task, describe, run_task
from ..adapters.adapter import size_limit
from ..modules import copy_model, count_parameters
from .candidates import GrowProblem, layers_to_grow
from .result import GrowResult
from .steps import GrowSearch
from .trainer import Loss, Score, Teacher, make_trainer

# The paper's choices for this experiment.
PAPER_TRAINING = TrainingOptions(
    optimizer="adam", learning_rate=1e-3, epochs=50, candidate_epochs=5, patience=50
)


def grow(
    model: nn.Module,
    train_data: Any,
    validation_data: Any,
    *,
    loss: Loss | None = None,
    score: Score | None = None,
    max_error: float | None = None,
    max_parameters: int | None = None,
    max_steps: int | None = None,
    max_seconds: float | None = None,
    edges: Literal["all", "chain", "ring"] | Iterable[Edge] = "all",
    layers: Iterable[str] | None = None,
    edge_score: Literal["drop", "per_parameter"] = "drop",
    candidates: Literal["trained", "gradient"] = "trained",
    edges_per_step: int = 1,
    noise: float = 1e-2,
    patience: int | None = 5,
    teacher: Teacher | None = None,
    training: TrainingOptions | None = None,
    final_epochs: int = 0,
    batch_size: int = 256,
    random_state: RandomState = None,
    device: torch.device | str | None = None,
    progress: bool | None = None,
    callbacks: Callbacks = None,
    checkpoint: str | Path | None = None,
    options: GreedyOptions | None = None,
) -> GrowResult:
    """Train a model and grow its `TNLinear` layers, one edge rank at a time.

    Each step trains the two new slices of every edge that may grow, everything else frozen, keeps the slices
    of the edge that does best on the validation data, and trains the whole model again.

    Parameters
    ----------
    model
        Any module with `TNLinear` layers. It is not modified: the result holds a copy.
    train_data, validation_data
        A pair (inputs, targets), a Dataset (both are moved to the device whole) or a DataLoader (iterated
        again for every epoch; if it shuffles with torch's global generator, `random_state` seeds that too).
    loss
        ``loss(model(inputs), targets)``, the mean over a batch; by default cross entropy.
    score
        What edges and epochs are chosen by, lower is better: "loss" (default), "accuracy" (one minus it), or
        a function of all validation outputs and targets.
    max_error
        Stop once the score is at most this.
    max_parameters
        Of the whole model; by default what `adapt` allows its adapters, where the model has some.
    max_steps, max_seconds
        Growths, and time, at most.
    edges
        Pairs of legs that may be joined, in every layer.
    layers
        Names of the layers to grow; by default all `TNLinear` ones but those whose cores are all frozen.
    edge_score
        "drop": the best score wins, as in the paper. "per_parameter": the gain per added parameter.
    candidates
        How edges are judged. "trained": by training the slices of each, as in the paper. "gradient": by the
        gain to first order, from the gradient of the loss on some batches; slices then start along it, with
        zeros at one end. That takes one backward pass for all edges of all layers: for models with many.
    edges_per_step
        Edges that grow together before the next training, each of another layer; with "gradient" only.
    noise
        Size of the random slices that a candidate starts from.
    patience
        Stop after this many growths in a row without a better score; None: never.
    teacher
        Train towards the outputs of this model as well, and judge edges by that loss too where gradients do;
        steps are still scored by the validation data's own targets.
    training
        Optimiser, epochs and more. By default Adam at 1e-3, 50 epochs, 5 for candidates, best epoch kept.
    final_epochs
        After the growth, train the best model for this many more epochs on training and validation data
        together, and keep the last epoch if the loss on all of them fell. No data is left to judge it by:
        `validation_error` is that from before. A schedule that ends at a small rate suits it, such as
        "cosine".
    batch_size
        For data that is not in a DataLoader.
    random_state
        One seed reproduces a run on the same machine, dropout included.
    device
        Where to compute: None (where the model is), "auto", "cpu", "cuda".
    progress
        Show a live line; by default when the terminal is interactive and rich is installed.
    callbacks
        Functions of a `GrowStep`, or objects with ``on_start(search)``, ``on_step(search, step)``,
        ``on_end(search)`` where ``search.model`` is the model after the step; a true answer stops.
    checkpoint
        A file that keeps the state. If it exists, the run resumes from it.
    options
        `edge_score`, `slice_noise` and `patience` in place of the three keywords above, `rank_increment`,
        `max_degree` and `transfer` (off: layers start from random cores after every growth, for ablations).
        `split_while_growing`: before each growth, nodes are split into two where that saves parameters and
        changes the weight by at most `split_threshold` of its norm; `max_internal_nodes` as everywhere.

    Returns
    -------
    GrowResult
        The model of the step with the best score, the history and why it stopped. Ctrl-C returns the best so
        far.
    """
    own = copy_model(model)
    budget = size_limit(own) if max_parameters is None else max_parameters
    limits = Limits(max_error, budget, max_steps, max_seconds, held_out=True)
    if not is_whole(final_epochs, 0):
        raise OptionError(f"final_epochs={final_epochs!r} must be a whole number, 0 for none")
    if patience is not None:
        check_whole("patience", patience, more=", or None")
    check_positive("noise", noise)
    check_choice("candidates", candidates, ("trained", "gradient"))
    check_whole("edges_per_step", edges_per_step)
    if options is None:
        check_choice("edge_score", edge_score, ("drop", "per_parameter"))
        options = GreedyOptions(edge_score=edge_score, slice_noise=noise)
    else:
        _check_options(options, edge_score=edge_score, noise=noise, patience=patience)
        patience = options.patience
    if candidates == "trained" and edges_per_step > 1:
        raise OptionError(f"edges_per_step={edges_per_step} goes with candidates='gradient' only")
    if candidates == "gradient" and callable(options.edge_score):
        raise OptionError("a function as edge_score goes with candidates='trained', which measure a loss")
    growing = layers_to_grow(own, layers)
    how = PAPER_TRAINING if training is None else training
    data = (train_data, validation_data)
    kind: dict[str, Any] = {"batch_size": batch_size, "device": device, "teacher": teacher}
    trainer = make_trainer(own, data, loss, score, how, **kind)
    if isinstance(edges, Iterable) and not isinstance(edges, str):
        edges = tuple(edges)  # read once for every layer
    policies = {n: EdgePolicy.parse(edges, m.structure.order, options.max_degree) for n, m in growing.items()}
    limits.check_size(count_parameters(own))
    problem = GrowProblem(trainer, growing, policies, options, patience, candidates, edges_per_step)
    task = GrowTask(problem, limits, as_generator(random_state), final_epochs)
    return run_task(task, Audience(progress, callbacks, checkpoint))


def _check_options(options: GreedyOptions, **keywords: object) -> None:
    """Refuse what `options` and keywords both say, and options that `grow` would ignore."""
    check_kind("options", options, GreedyOptions)
    both = [f"{n}={v!r}" for n, v in keywords.items() if v != (grow.__kwdefaults__ or {})[n]]
    if both:
        raise OptionError(f"give {', '.join(both)} in options or as a keyword, not both")
    options.check_for(GrowSearch, "nn.grow")


@dataclass
class GrowTask(Task[GrowSearch, GrowResult]):
    """A run that grows a model."""

    problem: GrowProblem
    limits: Limits
    generator: torch.Generator
    final_epochs: int

    def search(self) -> GrowSearch:
        return GrowSearch(self.problem, self.limits, self.generator)

    def identity(self, search: GrowSearch) -> Mapping[str, object]:
        problem, trainer = self.problem, self.problem.trainer
        pairs = {
            n: None if p.pairs is None else sorted(map(list, p.pairs)) for n, p in problem.policies.items()
        }
        options = problem.options
        by_gradient = problem.candidates == "gradient"  # files from before there was a choice have no name
        return {
            **trainer.identity(),
            "layers": {n: m.structure.to_dict() for n, m in problem.layers.items()},
            "max_parameters": self.limits.max_parameters,
            "edges": pairs,
            "edge_score": options.to_dict()["edge_score"],
            "noise": options.slice_noise,
            "rank_increment": options.rank_increment,
            "max_degree": options.max_degree,
            "transfer": options.transfer,
            **({"candidates": f"gradient, {problem.edges_per_step}"} if by_gradient else {}),
            # A file from before layers could be split has none of these.
            **(
                {"split_threshold": options.split_threshold, "internal": options.max_internal_nodes}
                if options.split_while_growing
                else {}
            ),
        }

    def finish(self, search: GrowSearch) -> GrowResult:
        state, model, trainer = search.state, search.model, self.problem.trainer
        stop = state.stop
        assert stop is not None
        model.load_state_dict(state.best)
        if self.final_epochs and stop is not StopReason.INTERRUPTED:
            deadline = search.context.deadline
            try:
                with interruptible():
                    trainer.fit_to_all(search.draw_seed(), epochs=self.final_epochs, deadline=deadline)
            except KeyboardInterrupt:
                model.load_state_dict(state.best)
                stop = StopReason.INTERRUPTED
        info = describe(
            next(model.parameters()),
            options=trainer.options.to_dict(),
            final_epochs=self.final_epochs,
            seconds=search.seconds,
            edge_score=self.problem.options.to_dict()["edge_score"],
        )
        return GrowResult(model, tuple(state.steps), stop, info)
