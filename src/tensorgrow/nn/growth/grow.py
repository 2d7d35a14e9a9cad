"""The structure of layers learned while a model is trained: the paper's MNIST experiment for any model."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from ...callbacks.base import as_callbacks, listening, progress_callback
from ...data.devices import choose_device
from ...network import RandomState, as_generator
from ...results import StopReason
from ...search import EdgePolicy, Limits
from ...solvers import TrainingOptions, grown_state
from ...structure import Edge, Structure
from ...tasks.task import describe
from ..checkpoints import GrowCheckpoint
from ..compression.layers import check_grow_options, layers_to_grow
from ..layer.linear import TNLinear
from ..progress import GrowLine
from .batches import as_batches
from .candidates import EdgeScore, best_candidate, growable
from .result import GrowResult, GrowStep, model_tensors
from .trainer import Loss, Score, Trainer

__all__ = ["GrowRun", "grow"]

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
    edge_score: EdgeScore = "drop",
    noise: float = 1e-2,
    patience: int | None = 5,
    training: TrainingOptions | None = None,
    final_epochs: int = 0,
    batch_size: int = 256,
    random_state: RandomState = None,
    device: torch.device | str | None = None,
    progress: bool | None = None,
    callbacks: Any = None,
    checkpoint: str | Path | None = None,
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
        anew for every epoch; where it shuffles with torch's global generator, `random_state` seeds that too).
    loss
        ``loss(model(inputs), targets)``, the mean over a batch; by default cross entropy.
    score
        What edges and epochs are chosen by, lower is better: "loss" (default), "accuracy" (one minus it), or
        a function of all validation outputs and targets.
    max_error
        Stop once the score is at most this.
    max_parameters
        Of the whole model.
    max_steps, max_seconds
        Growths, and time, at most.
    edges
        Pairs of legs that may be joined, in every layer.
    layers
        Names of the layers to grow; by default all `TNLinear` ones but those whose cores are all frozen.
    edge_score
        "drop": the best score wins, as in the paper. "per_parameter": the gain per added parameter.
    noise
        Size of the random slices that a candidate starts from.
    patience
        Stop after so many growths in a row without a better score; None: never.
    training
        Optimiser, epochs and more. By default Adam at 1e-3, 50 epochs, 5 for candidates, best epoch kept.
    final_epochs
        After the growth, train the chosen model for so many epochs more on training and validation data
        together, and keep the last where the loss on all of them fell. Nothing is left to judge that by:
        `validation` is that of before. A schedule that ends at a small rate suits it, such as "cosine".
    batch_size
        Where the data is given whole.
    random_state
        One seed reproduces a run on the same machine, dropout included.
    device
        Where to compute: None (where the model is), "auto", "cpu", "cuda".
    progress
        Show a live line; by default when the terminal is interactive and rich is installed.
    callbacks
        Functions of a `GrowStep`, or objects with ``on_start(run)``, ``on_step(run, step)``, ``on_end(run)``
        where ``run.model`` is the model after the step; a true answer stops.
    checkpoint
        A file the state is kept in after every step. When it exists the run resumes from it.

    Returns
    -------
    GrowResult
        The model of the step with the best score, the history and why it stopped. Ctrl-C returns the best so
        far.
    """
    limits = Limits(max_error, max_parameters, max_steps, max_seconds, held_out=True)
    check_grow_options(loss, patience, batch_size, noise, training, final_epochs)
    options = PAPER_TRAINING if training is None else training
    own = copy.deepcopy(model)
    chosen = layers_to_grow(own, layers)
    like = next(own.parameters())
    where = choose_device(device, like, gpu_from=0)
    own.to(where)
    made: dict[str, Any] = {"batch_size": batch_size, "device": where, "dtype": like.dtype}
    trainer = Trainer(
        own,
        as_batches(train_data, "train_data", **made),
        as_batches(validation_data, "validation_data", **made),
        loss,
        score,
        options,
    )
    policies = {n: EdgePolicy.parse(edges, m.structure.order) for n, m in chosen.items()}
    limits.check_size(sum(p.numel() for p in own.parameters()))
    run = GrowRun(trainer, chosen, policies, limits, as_generator(random_state), edge_score, noise, patience)
    listeners: list[Any] = [*as_callbacks(callbacks), *(GrowLine() for _ in progress_callback(progress))]
    if checkpoint is not None:
        keeper = GrowCheckpoint(checkpoint, _identity(run, batch_size))
        keeper.load(run)
        listeners.insert(0, keeper)
    _drive(run, listeners)
    assert run.best is not None and run.stop is not None
    own.load_state_dict(run.best)
    if final_epochs and run.stop != StopReason.INTERRUPTED:
        run.finish(final_epochs)
    details = describe(
        like,
        options=options.to_dict(),
        final_epochs=final_epochs,
        seconds=run.elapsed,
        edge_score=edge_score,
    )
    return GrowResult(own, tuple(run.steps), run.stop, details)


class GrowRun:
    """A run in progress: iterate over it for one `GrowStep` after the other.

    Attributes
    ----------
    model
        As it is after the last step.
    steps
        What was done.
    best
        State of the model after the step with the best score.
    memory
        What the optimiser remembers of each parameter, by name.
    """

    def __init__(
        self,
        trainer: Trainer,
        layers: Mapping[str, TNLinear],
        policies: Mapping[str, EdgePolicy],
        limits: Limits,
        generator: torch.Generator,
        edge_score: EdgeScore,
        noise: float,
        patience: int | None,
    ) -> None:
        self.trainer, self.layers, self.policies, self.limits = trainer, layers, policies, limits
        self.generator, self.edge_score, self.noise, self.patience = generator, edge_score, noise, patience
        self.steps: list[GrowStep] = []
        self.best: dict[str, Any] | None = None
        self.memory: dict[str, dict[str, torch.Tensor]] = {}
        self.stop: StopReason | None = None
        self.spent = 0.0
        self._begin = time.perf_counter()

    @property
    def model(self) -> nn.Module:
        """As it is now."""
        return self.trainer.model

    @property
    def elapsed(self) -> float:
        """Seconds, those before a resume included."""
        return self.spent + time.perf_counter() - self._begin

    @property
    def num_parameters(self) -> int:
        """Of the whole model."""
        return sum(p.numel() for p in self.model.parameters())

    @property
    def best_step(self) -> GrowStep:
        """The smallest of the steps with the best score."""
        return min(self.steps, key=lambda s: (s.validation, s.index))

    def __iter__(self) -> Iterator[GrowStep]:
        if not self.steps:
            yield self._train("start", None, None)
        while (stop := self._reason()) is None:
            edges = list(growable(self.layers, self.policies, self._room()))
            if not edges:
                tight = any(True for _ in growable(self.layers, self.policies, math.inf))
                self.stop = StopReason.MAX_PARAMETERS if tight else StopReason.SATURATED
                return
            candidate = best_candidate(
                self.trainer,
                self.layers,
                edges,
                self._seed(),
                self.steps[-1].validation,
                edge_score=self.edge_score,
                noise=self.noise,
                deadline=self._deadline(),
            )
            if candidate is None:
                self.stop = StopReason.MAX_SECONDS
                return
            self._grow(candidate.layer, candidate.edge, candidate.slices)
            yield self._train("grow", candidate.layer, candidate.edge)
        self.stop = stop

    def finish(self, epochs: int) -> None:
        """Train the model on all the data; Ctrl-C leaves it as it was chosen."""
        try:
            self.trainer.fit_to_all(self._seed(), epochs=epochs, deadline=self._deadline())
        except KeyboardInterrupt:
            assert self.best is not None
            self.model.load_state_dict(self.best)
            self.stop = StopReason.INTERRUPTED

    def _reason(self) -> StopReason | None:
        last = self.steps[-1]
        if self.limits.max_error is not None and last.validation <= self.limits.max_error:
            return StopReason.TARGET_REACHED
        if self.patience is not None and last.index - self.best_step.index >= self.patience:
            return StopReason.VALIDATION
        return self.limits.stop_reason(last.index, self.elapsed)

    def _room(self) -> float:
        if self.limits.max_parameters is None:
            return math.inf
        return self.limits.max_parameters - self.num_parameters

    def _deadline(self) -> float:
        if self.limits.max_seconds is None:
            return math.inf
        return self._begin + self.limits.max_seconds - self.spent

    def _seed(self) -> int:
        return int(torch.randint(2**31, (), generator=self.generator, device=self.generator.device))

    def _grow(self, name: str, edge: Edge, slices: tuple[torch.Tensor, torch.Tensor]) -> None:
        layer = self.layers[name]
        for node, other in (edge, edge[::-1]):
            core = f"{name}.cores.{node}" if name else f"cores.{node}"
            if core in self.memory:
                self.memory[core] = grown_state(self.memory[core], layer.structure, node, other)
        layer.grow_edge(*edge, slices=slices)

    def _train(self, kind: str, layer: str | None, edge: Edge | None) -> GrowStep:
        options = self.trainer.options
        named = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        known = [self.memory.get(n, {}) for n in named] if options.keep_state and self.memory else None
        done = self.trainer.fit(
            list(named.values()),
            self._seed(),
            epochs=options.epochs,
            state=known,
            deadline=self._deadline(),
            # The epoch kept last was the luckiest of many on this validation data: growth would go on from it
            # for ever. That step is in the history and may still be the result.
            may_stay=False,
        )
        self.memory = dict(zip(named, done.state))
        step = GrowStep(
            index=len(self.steps),
            kind=kind,
            layer=layer,
            edge=edge,
            num_parameters=self.num_parameters,
            train_loss=done.loss,
            validation=done.measure,
            epochs=done.epochs,
            seconds=self.elapsed,
            structures={n: m.structure for n, m in self.layers.items()},
        )
        self.steps.append(step)
        if self.best_step is step:
            self.best = {k: v.detach().clone() for k, v in model_tensors(self.model).items()}
        return step


def _drive(run: GrowRun, listeners: list[Any]) -> None:
    with listening(run, listeners) as wants_to_stop:
        try:
            for step in run:
                if wants_to_stop(step):
                    run.stop = StopReason.CALLBACK
                    break
        except KeyboardInterrupt:
            if run.best is None:
                raise
            run.stop = StopReason.INTERRUPTED


def _identity(run: GrowRun, batch_size: int) -> dict[str, Any]:
    """What a resumed run must share with the one that wrote the checkpoint."""
    total = sum(float(p.detach().double().abs().sum()) for p in run.model.parameters())
    pairs = {n: None if p.pairs is None else sorted(map(list, p.pairs)) for n, p in run.policies.items()}
    score = run.trainer.score
    starts: dict[str, Structure] = {n: m.structure for n, m in run.layers.items()}
    return {
        "model": [total, {n: s.to_dict() for n, s in starts.items()}],
        "train_data": run.trainer.training.fingerprint(),
        "validation_data": run.trainer.validation.fingerprint(),
        "training": run.trainer.options.to_dict(),
        "score": score if isinstance(score, str) else getattr(score, "__name__", "function"),
        "max_parameters": run.limits.max_parameters,
        "edges": pairs,
        "edge_score": run.edge_score,
        "noise": run.noise,
        "batch_size": batch_size,
    }
