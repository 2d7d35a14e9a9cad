"""Classification on products of local features, with a network as the weights. Behind `TNClassifier`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, Unpack

import torch

from ..callbacks.signals import interruptible
from ..data.devices import check_memory, choose_device, free_memory
from ..data.features import FeatureMap, FeatureMapName
from ..data.fingerprint import fingerprint_tensors
from ..data.holdout import Split
from ..data.sample_weights import SampleWeights
from ..errors import OptionError
from ..network import TensorNetwork
from ..objectives import Classification
from ..objectives.classes import is_affordable
from ..results import Errors, Result
from ..search import EdgePolicy, Effort, GradientSearch, GreedyOptions, fit_by_gradient
from ..solvers import TrainingOptions
from ..steps import Step
from ..structure import Edge, Structure
from .learn import Guidance, LearnTask
from .linear_classifier import (
    LabelledSamples,
    choose_ridge,
    fit_logistic,
    linear_network,
    spanning_tree,
    tree_ranks,
)
from .request import Request, SearchKeywords
from .task import deadline_of_last_fit, limit_threads, run_task, sample_flops

# Share of the samples held out by default.
HELD_OUT = 0.2
# With more features than this not all pairs are candidates.
FEW_FEATURES = 16
# Largest rank of the network that growth starts from.
FIRST_RANK = 12
# A network replaces the linear classifier that it started from when the cross-entropy of held-out samples is
# smaller by this many standard errors of the difference: it is the best of many, the linear one is not.
STANDARD_ERRORS = 2.0
# By effort: epochs, the steps that these must at least amount to, and growths without a gain before the end.
EFFORTS = {"fast": (8, 120, 1), "balanced": (25, 300, 1), "thorough": (60, 1000, 3)}


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
    edges: Literal["auto", "all", "chain", "ring"] | Iterable[Edge] = "auto",
    training: TrainingOptions | None = None,
    weights: Any = None,
    **keywords: Unpack[SearchKeywords],
) -> Classified:
    """Learn class weights ``W`` whose structure held-out samples choose.

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
    edges
        Edges that may grow; "auto": see `auto_edges`.
    training
        Overrides what `effort` says of the training.
    weights
        How much every sample counts; by default all the same. Repeated samples count as one with the sum of
        their weights.
    keywords
        As for `learn`; `max_error` is a cross-entropy of the held-out samples.

    Returns
    -------
    Classified
        Errors in its result are mean cross-entropies.
    """
    split = Split.parse(validation)
    counted = SampleWeights.of([x, labels], weights, merge=split.mask is None)
    split = split.of_rows(counted.rows, len(x))
    x, labels = x[counted.rows.numpy()], torch.as_tensor(labels, dtype=torch.int64)[counted.rows]
    features = FeatureMap.fit(x, feature_map, map_size, weights=counted.weights)
    request = Request.parse(
        "classify",
        GradientSearch,
        lambda effort: GreedyOptions.for_learning(effort).replace(patience=EFFORTS[effort][2]),
        limited=False,
        edges=auto_edges(x.shape[1] + 1) if isinstance(edges, str) and edges == "auto" else edges,
        training=training,
        **keywords,
    )
    dtype = request.dtype or torch.float32
    if dtype.is_complex:
        raise OptionError(
            f"dtype={keywords.get('dtype')!r} is complex; probabilities need real numbers: use float32 or "
            "float64"
        )
    size = len(x) * x.shape[1] * features.size * dtype.itemsize
    check_memory(4 * size, free_memory(torch.device("cpu")), f"{len(x):,} samples of {x.shape[1]} features")
    values = features(x, dtype)
    request = replace(
        request, dtype=dtype, device=choose_device(request.device, values, sample_flops(values))
    )
    data = ClassData(values.to(request.device), labels, num_classes, counted.weights)
    with limit_threads(values):  # fits of linear classifiers come before the run
        task = ClassifyTask(data, split, request, structure, keywords.get("effort", "balanced"))
        return Classified(run_task(task, request.audience), features)


@dataclass(frozen=True)
class ClassData:
    """Local features, ``(n, d, m)``, class numbers, and how much each sample counts; None: all the same."""

    values: torch.Tensor
    labels: torch.Tensor
    num_classes: int
    weights: torch.Tensor | None = None


class ClassifyTask(LearnTask):
    """A run on samples with classes that starts from their linear classifier."""

    objective: Classification
    draws_split = True

    def __init__(
        self, data: ClassData, split: Split, request: Request, structure: Structure | None, effort: Effort
    ) -> None:
        for_split, generator = request.generators()
        held_out = split.classes(data.labels, for_split)
        self._values, self._num_classes = data.values, data.num_classes
        self._labels = data.labels.to(data.values.device)
        self._weights = None if data.weights is None else data.weights.to(data.values)
        held = torch.zeros(len(data.labels), dtype=torch.bool) if held_out is None else held_out
        self._held_out = held.to(self._labels.device)
        self.generator = generator
        self._strength = choose_ridge(self._single.at(~self._held_out), generator)
        objective = self._make_objective(None if held_out is None else self._held_out)
        dims = objective.dims
        if structure is not None:
            if not isinstance(structure, Structure) or structure.dims != dims:
                raise OptionError(
                    f"structure={structure!r} does not fit: a Structure over {dims} is needed, one leg of "
                    f"map_size={data.values.shape[2]} per feature and one for the {data.num_classes} classes"
                )
            request = replace(request, limits=replace(request.limits, max_steps=0))
        request = request.holding_out(int(held.sum()), wanted=True)
        policy = request.policy(len(dims))
        self._first = structure or _first(dims, policy, request.limits.max_parameters)
        request = replace(
            request,
            init=self._linear(self._first, noise=1e-3),
            training=request.training or _training(effort, objective),
        )
        # Less than this many nats of all held-out samples together says nothing about a network.
        resolution = 0.1 / int(held.sum()) if held_out is not None else Guidance.resolution
        super().__init__(objective, request, generator, Guidance(least_gain=0.02, resolution=resolution))

    @property
    def _single(self) -> LabelledSamples:
        """The features without their first components, which are constant."""
        features = self._values[:, :, 1:].flatten(1).double()
        return LabelledSamples(features, self._labels, self._num_classes, self._weights)

    def _make_objective(self, held_out: torch.Tensor | None) -> Classification:
        count = len(self._labels) if held_out is None else int((~held_out).sum())
        return Classification(
            self._values,
            self._labels,
            self._num_classes,
            weights=self._weights,
            held_out=held_out,
            generator=self.generator,
            ridge=self._strength / count,
            # Share of the allowed edges that grow in one step: of all pairs, or of a chain.
            share=0.04 if self._values.shape[1] <= FEW_FEATURES else 0.5,
        )

    def _linear(self, structure: Structure, *, noise: float = 0.0, on_all: bool = False) -> TensorNetwork:
        """Fit a linear classifier to the fitted samples, or to all, and write it as a network."""
        used = torch.ones_like(self._held_out) if on_all else ~self._held_out
        ridge = self._strength / int(used.sum())
        weights = fit_logistic(self._single.at(used), ridge)
        network = linear_network(structure, weights, noise=noise, generator=self.generator)
        return network.to(self._values.device, self._values.dtype)

    def fingerprint(self) -> Mapping[str, object]:
        data = fingerprint_tensors([self._values, self._labels, self._held_out, self._weights])
        return {"data": data, "structure": self._first.to_dict()}

    def finish(self, search: GradientSearch) -> Result:
        result = super().finish(search)
        if not self.objective.holds_out:
            return result
        begin, objective = time.perf_counter(), self.objective
        everything, linear = self._make_objective(None), self._linear(self._first)
        gains = objective.held_out_losses(linear) - objective.held_out_losses(result.network)
        if self._weights is not None:
            shares = self._weights[self._held_out].double()
            gains = gains * shares / shares.mean()
        error = float(gains.std()) / math.sqrt(len(gains)) if len(gains) > 1 else math.inf
        validation, training = result.validation_error, self.request.training
        assert training is not None
        if float(gains.mean()) > STANDARD_ERRORS * error:
            # The last training, on all samples, has a third of the learning rate and half the epochs.
            rate = None if training.learning_rate is None else training.learning_rate / 3.0
            slow = replace(training, learning_rate=rate, epochs=math.ceil(training.epochs / 2))
            deadline = deadline_of_last_fit(search)
            network = result.network
            with suppress(KeyboardInterrupt), interruptible():
                network = fit_by_gradient(everything, network, slow, deadline=deadline)[0].network
        else:
            validation = objective.validate(linear)
            network = self._linear(self._first, on_all=True)
        loss = everything.total(network)
        seconds = search.state.elapsed + time.perf_counter() - begin
        step = Step(
            index=len(result.history),
            kind="refit",
            edge=None,
            num_parameters=network.num_parameters,
            loss=loss,
            relative_error=None,
            validation_error=validation,
            seconds=seconds,
            structure=network.structure,
        )
        return replace(
            result,
            network=network,
            errors=Errors(loss, "loss", validation=validation),
            history=(*result.history, step),
            info={**result.info, "seconds": seconds},
        )


def _training(effort: Effort, objective: Classification) -> TrainingOptions:
    """Train for a number of epochs where there are many samples, of steps where there are few."""
    epochs, steps, _ = EFFORTS[effort]
    epochs = max(epochs, math.ceil(steps / objective.num_batches))
    return TrainingOptions(
        optimizer="adam",
        # A product of d features changes by about sqrt(d) times as much per step as one.
        learning_rate=0.03 / math.sqrt(len(objective.dims) - 1),
        schedule="cosine",
        clip=1.0,
        epochs=epochs,
        # A quarter without a gain ends it: in cross-validations of iris, wine, moons and clusters that took
        # half the time of going on to the end, and accuracies were the same or better.
        patience=math.ceil(epochs / 4),
        patient_steps=0,
    )


def auto_edges(order: int) -> Literal["all"] | list[Edge]:
    """Allow all pairs of few features; of many, the chain with the class leg in its middle."""
    return "all" if order - 1 <= FEW_FEATURES else _chain(order - 1)


def _chain(features: int) -> list[Edge]:
    middle = features // 2
    chain = [*range(middle), features, *range(middle, features)]
    return [(min(a, b), max(a, b)) for a, b in pairwise(chain)]


def _first(dims: tuple[int, ...], policy: EdgePolicy, max_parameters: int | None) -> Structure:
    """Build a tree of allowed edges with the ranks a linear classifier needs, fewer where limits say so."""
    root = len(dims) - 1
    pairs = _chain(root) if policy.pairs is None else sorted(policy.pairs)
    tree = spanning_tree(dict.fromkeys(pairs, 1), root)
    for directions in range(min(dims[root] - 1, FIRST_RANK - 1), 0, -1):
        structure = Structure(dims, tree_ranks(dims, tree, directions))
        if structure.num_parameters <= (max_parameters or math.inf) and is_affordable(structure):
            return structure
    return Structure.rank_one(dims)
