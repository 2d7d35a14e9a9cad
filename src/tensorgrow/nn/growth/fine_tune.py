"""A model trained further as it is: after a compression, after a growth, or with adapters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...callbacks.base import Callbacks
from ...errors import OptionError, check_kind, check_whole
from ...network import RandomState, as_generator
from ...search import GreedyOptions, Limits
from ...solvers import TrainingOptions
from ...steps import StopReason
from ...tasks.request import Audience
from ...tasks.task import run_task
from ..layer.tn_layer import tn_layers
from ..modules import copy_model
from .candidates import GrowProblem
from .grow import GrowTask
from .result import GrowResult
from .steps import GrowSearch
from .trainer import Loss, Score, Teacher, make_trainer

# One cycle from a rate that does not undo what the model knows; measured with the character model of
# `python -m benchmarks transformer`, where every method is trained further with these.
TUNING = TrainingOptions(
    optimizer="adamw", learning_rate=1e-3, epochs=10, schedule="cosine", clip=1.0, patience=10
)


def fine_tune(
    model: nn.Module,
    train_data: Any,
    validation_data: Any,
    *,
    loss: Loss | None = None,
    score: Score | None = None,
    epochs: int | None = None,
    teacher: Teacher | None = None,
    max_error: float | None = None,
    max_seconds: float | None = None,
    patience: int | None = None,
    training: TrainingOptions | None = None,
    batch_size: int = 256,
    random_state: RandomState = None,
    device: torch.device | str | None = None,
    progress: bool | None = None,
    callbacks: Callbacks = None,
    checkpoint: str | Path | None = None,
) -> GrowResult:
    """Train a model further without changing its structure; the best epoch on the validation data wins.

    Any model will do: a compressed one, one with adapters, a dense one. What is frozen stays as it is.

    Parameters
    ----------
    model
        It is not modified: the result holds a copy.
    train_data, validation_data, loss, score, batch_size, random_state, device, progress
        As for `grow`.
    epochs
        Passes over the training data at most; by default those of `training`.
    teacher
        Train towards the outputs of this model as well: the dense one, after a compression. Epochs are chosen
        by the validation data's own targets.
    max_error, max_seconds
        Stop at a score of at most this, or after this time.
    patience
        Stop after this many epochs in a row without a better score; None: never.
    training
        Optimiser, rate, schedule and more. By default AdamW at 1e-3 with a cosine decay over 10 epochs, and
        gradients of norm 1 at most.
    callbacks
        Functions of a `GrowStep`, or objects as for `grow`; called after every epoch. A true answer stops.
    checkpoint
        A file that keeps the state after every epoch, the optimiser's included. If it exists, the run resumes
        from it, and ends as if it had not been broken off.

    Returns
    -------
    GrowResult
        The best epoch's model, the model before the first epoch included; ``history`` has a step for each.
        Ctrl-C returns the best so far.
    """
    own = copy_model(model)
    options = TUNING if training is None else training
    check_kind("training", options, TrainingOptions)
    if epochs is not None:
        check_whole("epochs", epochs)
        options = replace(options, epochs=epochs)
    if patience is not None:
        check_whole("patience", patience, more=", or None")
    if callable(options.schedule) or options.average or options.optimizer == "lbfgs":
        raise OptionError(
            "fine_tune takes one epoch at a time, so that it can be resumed after each: give the schedule "
            "'constant' or 'cosine', average=0 and an optimiser other than 'lbfgs'"
        )
    if not any(p.requires_grad for p in model.parameters()):
        raise OptionError("all parameters of the model are frozen; set requires_grad where it is trained")
    options = replace(options, keep_state=True)
    data = (train_data, validation_data)
    how: dict[str, Any] = {"batch_size": batch_size, "device": device, "teacher": teacher}
    trainer = make_trainer(own, data, loss, score, options, **how)
    problem = GrowProblem(trainer, tn_layers(own), {}, GreedyOptions(), patience)
    limits = Limits(max_error, None, None, max_seconds, held_out=True)
    task = FineTuneTask(problem, limits, as_generator(random_state), 0)
    return run_task(task, Audience(progress, callbacks, checkpoint))


class EpochSearch(GrowSearch):
    """Epochs of one training, each a step that a checkpoint keeps; the first step is the model as it is.

    The optimiser's state and the place in the schedule go on from one epoch to the next, so that a run that
    is resumed ends as one that was never broken off.
    """

    uses = frozenset()

    @property
    def _phases(self) -> Mapping[str, Callable[[], None]]:
        return {"start": self._look, "epoch": self._train_epoch}

    def _look(self) -> None:
        self._load_model()
        score = self.problem.trainer.validate()
        self._note("start", loss=score, score=score, epochs=0)
        self.state.phase = "epoch"

    def _train_epoch(self) -> None:
        self._load_model()
        trainer, done = self.problem.trainer, len(self.state.steps) - 1
        if done >= trainer.options.epochs:
            self._end(StopReason.FINISHED)
            return
        self._train("epoch", None, None, epochs=1, options=trainer.options.after(done))


@dataclass
class FineTuneTask(GrowTask):
    """A run that trains a model further."""

    def search(self) -> EpochSearch:
        return EpochSearch(self.problem, self.limits, self.generator)
