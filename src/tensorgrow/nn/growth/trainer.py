"""Training and judging a model that is being grown: the only place that runs it on data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from ...data.devices import choose_device
from ...data.fingerprint import fingerprint_function, fingerprint_tensors
from ...errors import DataError, OptionError, check_choice, check_kind, check_whole
from ...objectives.loss import as_score, scalar
from ...solvers import Training, TrainingOptions, train
from ..modules import copy_model, switch_mode
from .batches import Batches, as_batches, join

Loss = Callable[[Any, torch.Tensor], torch.Tensor]
Score = Literal["loss", "accuracy"] | Callable[[torch.Tensor, torch.Tensor], Any]


@dataclass(frozen=True)
class Teacher:
    """A model whose outputs another is trained towards as well (distillation; Hinton et al., 2015).

    Attributes
    ----------
    model
        It is run in evaluation mode and is not trained.
    share
        Of the loss that is the teacher's, between 0 and 1; the targets' loss is the rest.
    loss
        A function of the outputs and the teacher's outputs; by default the Kullback-Leibler divergence of
        classes along the last axis.
    """

    model: nn.Module
    share: float = 0.5
    loss: Loss | None = None

    def __post_init__(self) -> None:
        check_kind("model", self.model, nn.Module)
        if not 0 < self.share <= 1:
            raise OptionError(f"share must be above 0 and at most 1, not {self.share!r}")
        if self.loss is not None and not callable(self.loss):
            raise OptionError(f"loss must be a function of outputs and outputs, not {self.loss!r}")

    def identity(self) -> list[object]:
        """What a resumed run must share with the one before."""
        values = fingerprint_tensors(self.model.parameters())
        return [values, self.share, fingerprint_function(self.loss or divergence)]

    def blend(self, loss: torch.Tensor, inputs: Any, outputs: Any) -> torch.Tensor:
        """A loss with the teacher's part in it."""
        with torch.no_grad(), switch_mode(self.model, training=False):
            wanted = self.model(inputs)
        own = scalar((self.loss or divergence)(outputs, wanted))
        return (1 - self.share) * loss + self.share * own


def divergence(outputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Mean Kullback-Leibler divergence from the classes that are wanted; both are logits."""
    made, reference = (x.log_softmax(-1) for x in (outputs, wanted))
    return (reference.exp() * (reference - made)).sum(-1).mean()


class Trainer:
    """A model with its data, loss and score; `grow` says what these may be."""

    def __init__(
        self,
        model: nn.Module,
        training: Batches,
        validation: Batches,
        loss: Loss | None,
        score: Score | None,
        options: TrainingOptions,
        teacher: Teacher | None = None,
    ) -> None:
        self.teacher = teacher
        self.model, self.training, self.validation = model, training, validation
        self.loss: Loss = F.cross_entropy if loss is None else loss
        self.options = options
        if isinstance(score, str):
            check_choice("score", score, ("loss", "accuracy"))
        self.score = "loss" if score is None else score

    @torch.no_grad()
    def validate(self) -> float:
        """The score on the validation data, in evaluation mode."""
        with switch_mode(self.model, training=False):
            pairs = [(self.model(x), y) for x, y in self.validation.in_order()]
        if not pairs:
            raise DataError("validation_data is empty, or can be iterated over only once")
        outputs, targets = (torch.cat(parts) for parts in zip(*pairs))
        if self.score == "accuracy":
            return float((outputs.argmax(-1) != targets).double().mean())
        if callable(self.score):
            return as_score(self.score(outputs, targets))
        return float(scalar(self.loss(outputs, targets)))

    def fit(
        self,
        parameters: Sequence[torch.Tensor],
        seed: int,
        *,
        epochs: int,
        state: list[dict[str, torch.Tensor]] | None = None,
        deadline: float = math.inf,
        may_stay: bool = True,
        options: TrainingOptions | None = None,
    ) -> Training:
        """Train some parameters in place and keep the best epoch on validation, or the state before it."""
        how = {"state": state, "may_stay": may_stay, "measure": self.validate}
        return self._train(parameters, self.training, options or self.options, seed, epochs, deadline, **how)

    def identity(self) -> dict[str, object]:
        """What a resumed run must share with the one before, by name."""
        return {
            "model": fingerprint_tensors(self.model.parameters()),
            "train_data": self.training.fingerprint(),
            "validation_data": self.validation.fingerprint(),
            "training": self.options.to_dict(),
            "loss": fingerprint_function(self.loss),
            "score": self.score if isinstance(self.score, str) else fingerprint_function(self.score),
            "batch_size": self.training.batch_size,
            "teacher": None if self.teacher is None else self.teacher.identity(),
        }

    def fit_to_all(self, seed: int, *, epochs: int, deadline: float) -> None:
        """Train what is not frozen on training and validation data; without a gain there, nothing changes."""
        everything = join(self.training, self.validation)
        before, values = self._mean_loss(everything), [v.detach().clone() for v in self._values()]
        free = [p for p in self.model.parameters() if p.requires_grad]
        options = replace(self.options, patience=epochs)  # nothing is left to stop by
        self._train(free, everything, options, seed, epochs, deadline, measure=None)
        if self._mean_loss(everything) < before:
            return
        with torch.no_grad():
            for own, value in zip(self._values(), values):
                own.copy_(value)

    def _values(self) -> list[torch.Tensor]:
        return [*self.model.parameters(), *self.model.buffers()]

    @torch.no_grad()
    def _mean_loss(self, batches: Batches) -> float:
        """Mean over the batches, in evaluation mode."""
        with switch_mode(self.model, training=False):
            losses = [self.batch_loss(batch) for batch in batches.in_order()]
        return float(torch.stack(losses).double().mean())

    def _train(
        self,
        parameters: Sequence[torch.Tensor],
        batches: Batches,
        options: TrainingOptions,
        seed: int,
        epochs: int,
        deadline: float,
        **how: Any,
    ) -> Training:
        """Call `train` with the model in training mode; `how` are its other keywords."""
        how |= {"epochs": epochs, "deadline": deadline, "buffers": list(self.model.buffers())}
        with (
            fix_seed(seed, self.training.device) as generator,
            switch_mode(self.model, training=True),
            torch.enable_grad(),
        ):
            return train(parameters, lambda: batches.shuffle(generator), self.batch_loss, options, **how)

    def batch_loss(self, batch: tuple[Any, torch.Tensor]) -> torch.Tensor:
        outputs = self.model(batch[0])
        loss = scalar(self.loss(outputs, batch[1]))
        return loss if self.teacher is None else self.teacher.blend(loss, batch[0], outputs)


def make_trainer(
    model: nn.Module,
    data: tuple[Any, Any],
    loss: Loss | None,
    score: Score | None,
    options: TrainingOptions,
    *,
    batch_size: int,
    device: torch.device | str | None,
    teacher: Teacher | None = None,
) -> Trainer:
    """Check what users give, move the model to the device, and read training and validation data."""
    if loss is not None and not callable(loss):
        raise OptionError(f"loss must be a function of outputs and targets, not {loss!r}")
    check_whole("batch_size", batch_size)
    check_kind("training", options, TrainingOptions)
    like = next(model.parameters())
    where = choose_device(device, like, math.inf)
    model.to(where)
    if teacher is not None:
        check_kind("teacher", teacher, Teacher)
        teacher = replace(teacher, model=copy_model(teacher.model).to(where))
    kind: dict[str, Any] = {"batch_size": batch_size, "device": where, "dtype": like.dtype}
    training, validation = (
        as_batches(part, name, **kind) for part, name in zip(data, ("train_data", "validation_data"))
    )
    return Trainer(model, training, validation, loss, score, options, teacher)


@contextmanager
def fix_seed(seed: int, device: torch.device) -> Iterator[torch.Generator]:
    """Dropout and shuffling from one seed; torch's global generators are left as they were."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield torch.Generator().manual_seed(seed)


@contextmanager
def freeze(model: nn.Module) -> Iterator[None]:
    """Within the block no parameter gets gradients; afterwards buffers are as before."""
    parameters = list(model.parameters())
    flags = [p.requires_grad for p in parameters]
    buffers = list(model.buffers())
    before = [b.clone() for b in buffers]
    for p in parameters:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p, flag in zip(parameters, flags):
            p.requires_grad_(flag)
        with torch.no_grad():
            for buffer, value in zip(buffers, before):
                buffer.copy_(value)
