"""Classification on products of local features, with a network as the weights. Behind `TNClassifier`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import torch

from ..data.arrays import as_dtype
from ..data.devices import check_memory, choose_device, free_memory, one_thread
from ..data.features import FeatureMap, FeatureMapName
from ..data.holdout import Split
from ..errors import OptionError, check_choice
from ..network import RandomState, TensorNetwork, as_generator
from ..objectives import Classification
from ..objectives.classes import is_affordable
from ..results import Result, Step
from ..search import EdgePolicy, Effort, GreedyOptions, Limits, fit_by_gradient
from ..solvers import TrainingOptions
from ..structure import Edge, Structure
from .learn import learn_objective
from .linear_classifier import linear_network, spanning_tree, tree_ranks
from .logistic import choose_ridge, fit_logistic

__all__ = ["HELD_OUT", "Classified", "auto_edges", "classify"]

# Share of the samples held out by default.
HELD_OUT = 0.2
# With more features than this not all pairs are candidates.
FEW_FEATURES = 16
# Largest rank of the network that growth starts from.
FIRST_RANK = 12
# Share of the allowed edges that grow in one step, with few features and with many.
FEW_AT_ONCE = 0.04
MANY_AT_ONCE = 0.5
# Share by which the cross-entropy of held-out samples must fall for a growth to count as progress.
LEAST_GAIN = 0.02
# Size of the random numbers that a start differs from the linear classifier by.
NOISE = 1e-3
# A network is taken instead of the linear classifier that it started from when the cross-entropy of held-out
# samples is smaller by this many standard errors of the difference: it was chosen from many, that one not.
STANDARD_ERRORS = 2.0
# Learning rate for one feature; the product of d of them changes by about sqrt(d) times as much per step.
RATE = 0.03
CLIP = 1.0
# By effort: epochs, the steps that these must at least amount to, and growths without a gain before the end.
EFFORTS = {"fast": (8, 120, 1), "balanced": (25, 300, 1), "thorough": (60, 1000, 3)}
# The last training, on all samples: this much slower, and this much shorter.
SLOWER = 3.0
SHORTER = 2
# Numbers in the features up to which one thread is faster, and from which "auto" takes a GPU.
FEW_ENTRIES = 1_000_000
GPU_ENTRIES = 3_000_000

Edges = Literal["auto", "all", "chain", "ring"] | Iterable[Edge]


@dataclass(frozen=True)
class Classified:
    """A fitted classifier: values of the classes are ``<network, features(x)>``."""

    result: Result
    features: FeatureMap

    @property
    def network(self) -> TensorNetwork:
        """Weights: a leg for every feature, and the classes last."""
        return self.result.network


def classify(
    x: Any,
    labels: Any,
    num_classes: int,
    *,
    feature_map: FeatureMapName | Callable[[Any], Any] = "polynomial",
    map_size: int | None = None,
    structure: Structure | None = None,
    validation: Any = HELD_OUT,
    max_error: float | None = None,
    max_parameters: int | None = None,
    max_steps: int | None = None,
    max_seconds: float | None = None,
    edges: Edges = "auto",
    effort: Effort = "balanced",
    training: TrainingOptions | None = None,
    random_state: RandomState = None,
    device: torch.device | str | None = None,
    dtype: Any = None,
    progress: bool | None = None,
    callbacks: Any = None,
) -> Classified:
    """Learn class weights ``W`` whose structure held-out samples decide on.

    Parameters
    ----------
    x
        Samples, ``(n, d)``.
    labels
        Class numbers from 0 to ``num_classes - 1``.
    feature_map, map_size
        See `FeatureMap`.
    structure
        Train this structure instead of learning one.
    validation
        Samples to hold out: a share, a boolean mask of length ``n``, or False for none.
    max_error
        Stop at this cross-entropy of the held-out samples.
    training
        Overrides what `effort` says of the training.

    Returns
    -------
    Classified
        Errors in its result are mean cross-entropies.
    """
    fitted = FeatureMap.fit(x, feature_map, map_size)
    kind = as_dtype(dtype) or torch.float32
    if kind.is_complex:
        raise OptionError(
            f"dtype={dtype!r} is complex; probabilities need real numbers: use float32 or float64"
        )
    check_choice("effort", effort, tuple(EFFORTS))
    size = len(x) * x.shape[1] * fitted.size * kind.itemsize
    check_memory(4 * size, free_memory(torch.device("cpu")), f"{len(x):,} samples of {x.shape[1]} features")
    values = fitted(x, kind)
    where = choose_device(device, values, GPU_ENTRIES)
    values = values.to(where)
    numbers = torch.as_tensor(labels, dtype=torch.int64)
    # Without a seed the split is the same each time.
    generator = as_generator(0 if random_state is None else random_state)
    held_out = Split.parse(validation).classes(numbers, generator)
    if random_state is None:
        generator = as_generator(None)
    with one_thread() if values.numel() <= FEW_ENTRIES else nullcontext():
        problem = _Problem(values, numbers.to(where), num_classes, held_out, generator)
        dims = problem.objective.dims
        pairs = auto_edges(len(dims)) if isinstance(edges, str) and edges == "auto" else edges
        pairs = pairs if isinstance(pairs, str) else _listed(pairs)
        policy = EdgePolicy.parse(pairs, len(dims))
        if structure is not None:
            if not isinstance(structure, Structure) or structure.dims != dims:
                raise OptionError(
                    f"structure={structure!r} does not fit: a Structure over {dims} is needed, one leg of "
                    f"map_size={fitted.size} per feature and one for the {num_classes} classes"
                )
            max_steps = 0
        given = (max_error, max_parameters, max_steps, max_seconds)
        if held_out is None and all(v is None for v in given):
            max_steps = 0  # nothing says when to stop, as a warning or the user says
        first = structure or _first(dims, policy, max_parameters)
        trained = _training(effort, problem.objective) if training is None else training
        limits = Limits(max_error, max_parameters, max_steps, max_seconds, held_out=held_out is not None)
        result = learn_objective(
            problem.objective,
            limits=limits,
            edges=pairs,
            effort=effort,
            init=problem.linear(first, noise=NOISE),
            generator=generator,
            device=where,
            dtype=kind,
            progress=progress,
            callbacks=callbacks,
            checkpoint=None,
            options=GreedyOptions.for_learning(effort).replace(patience=EFFORTS[effort][2]),
            training=trained,
            least_gain=LEAST_GAIN,
        )
        if problem.objective.holds_out:
            result = _chosen(result, problem, first, trained, limits)
    return Classified(result, fitted)


class _Problem:
    """Samples, what is held out of them, and the linear classifier that they give.

    Parameters
    ----------
    values
        Local features, ``(n, d, m)``.
    """

    def __init__(
        self,
        values: torch.Tensor,
        labels: torch.Tensor,
        num_classes: int,
        held_out: torch.Tensor | None,
        generator: torch.Generator,
    ) -> None:
        self._values, self._labels, self._num_classes = values, labels, num_classes
        self._generator = generator
        held = torch.zeros(len(labels), dtype=torch.bool) if held_out is None else held_out
        self._fitted = ~held.to(labels.device)
        single = self._single[self._fitted]
        self._strength = choose_ridge(single, labels[self._fitted], num_classes, generator)
        self.objective = self._objective(None if held_out is None else held.to(labels.device))

    @property
    def _single(self) -> torch.Tensor:
        """The features by themselves, without their first components."""
        return self._values[:, :, 1:].flatten(1).double()

    def _objective(self, held_out: torch.Tensor | None) -> Classification:
        count = len(self._labels) if held_out is None else int((~held_out).sum())
        return Classification(
            self._values,
            self._labels,
            self._num_classes,
            held_out=held_out,
            generator=self._generator,
            ridge=self._strength / count,
            share=FEW_AT_ONCE if self._values.shape[1] <= FEW_FEATURES else MANY_AT_ONCE,
        )

    def on_all(self) -> Classification:
        """The objective with nothing held out."""
        return self._objective(None)

    def linear(self, structure: Structure, *, noise: float = 0.0, on_all: bool = False) -> TensorNetwork:
        """The linear classifier of the fitted samples, or of all, as a network."""
        used = torch.ones_like(self._fitted) if on_all else self._fitted
        ridge = self._strength / int(used.sum())
        weights = fit_logistic(self._single[used], self._labels[used], self._num_classes, ridge)
        found = linear_network(structure, weights, noise=noise, generator=self._generator)
        return found.to(self._values.device, self._values.dtype)


def _training(effort: str, objective: Classification) -> TrainingOptions:
    """How networks are trained: in epochs where there are many samples, in steps where there are few."""
    epochs, steps, _ = EFFORTS[effort]
    epochs = max(epochs, math.ceil(steps / objective.num_batches))
    return TrainingOptions(
        optimizer="adam",
        learning_rate=RATE / math.sqrt(len(objective.dims) - 1),
        schedule="cosine",
        clip=CLIP,
        epochs=epochs,
        patience=epochs,
        patient_steps=0,
    )


def _chosen(
    result: Result, problem: _Problem, first: Structure, training: TrainingOptions, limits: Limits
) -> Result:
    """The network found, trained on with all samples; or the linear classifier, where that is as good."""
    begin, spent = time.perf_counter(), float(result.info["seconds"])
    objective, everything = problem.objective, problem.on_all()
    linear = problem.linear(first)
    gains = objective.held_out_losses(linear) - objective.held_out_losses(result.network)
    error = float(gains.std()) / math.sqrt(len(gains)) if len(gains) > 1 else math.inf
    validation = result.validation_error
    if float(gains.mean()) > STANDARD_ERRORS * error:
        # A run that is out of time gets a share more of it.
        limit = math.inf if limits.max_seconds is None else limits.max_seconds
        deadline = begin + max(limit - spent, 0.1 * limit)
        rate = None if training.learning_rate is None else training.learning_rate / SLOWER
        slow = replace(training, learning_rate=rate, epochs=math.ceil(training.epochs / SHORTER))
        network = fit_by_gradient(everything, result.network, slow, deadline=deadline)[0].network
    else:
        validation = objective.validate(linear)
        network = problem.linear(first, on_all=True)
    loss = everything.total(network)
    seconds = spent + time.perf_counter() - begin
    step = Step(
        index=len(result.history),
        kind="refit",
        edge=None,
        num_parameters=network.num_parameters,
        loss=loss,
        relative_error=loss,
        validation_error=validation,
        seconds=seconds,
        structure=network.structure,
    )
    return replace(
        result,
        network=network,
        relative_error=loss,
        history=(*result.history, step),
        validation_error=validation,
        info={**result.info, "seconds": seconds},
    )


def auto_edges(order: int) -> Literal["all"] | list[Edge]:
    """All pairs for a few features; beyond, the chain of the features with the class leg in its middle."""
    return "all" if order - 1 <= FEW_FEATURES else _chain(order - 1)


def _chain(features: int) -> list[Edge]:
    middle = features // 2
    chain = [*range(middle), features, *range(middle, features)]
    return [(min(a, b), max(a, b)) for a, b in pairwise(chain)]


def _listed(edges: Any) -> Any:
    """Pairs that can be read twice; what is not iterable is for `EdgePolicy` to refuse."""
    return list(edges) if isinstance(edges, Iterable) else edges


def _first(dims: tuple[int, ...], policy: EdgePolicy, max_parameters: int | None) -> Structure:
    """A tree of allowed edges with the ranks that a linear classifier needs, fewer where limits say so."""
    root = len(dims) - 1
    pairs = _chain(root) if policy.pairs is None else sorted(policy.pairs)
    tree = spanning_tree(dict.fromkeys(pairs, 1), root)
    for directions in range(min(dims[root] - 1, FIRST_RANK - 1), 0, -1):
        found = Structure(dims, tree_ranks(dims, tree, directions))
        if (max_parameters is None or found.num_parameters <= max_parameters) and is_affordable(found):
            return found
    return Structure.rank_one(dims)
