"""Classification on products of local features, with a network as the weights. Behind `TNClassifier`."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import torch

from .contraction import product_plan
from .data import as_dtype, check_memory, choose_device, free_memory
from .errors import DataWarning, OptionError, check_choice
from .features import FeatureMap, FeatureMapName
from .holdout import as_share, drawn, is_asked, sample_mask
from .learning import learn_objective
from .linalg import one_thread
from .network import RandomState, TensorNetwork, as_generator
from .objectives import Classification
from .objectives.classification import MOST_COST
from .results import Result, Step
from .search import EdgePolicy, Effort, Limits, fit_by_gradient
from .solvers import TrainingOptions
from .structure import Edge, Structure

__all__ = ["HELD_OUT", "Classified", "auto_edges", "classify"]

# Share of the samples held out by default.
HELD_OUT = 0.1
FEWEST_TO_SPLIT = 10
# The fewest samples that are worth holding out.
FEWEST_HELD_OUT = 20
# With more features than this not all pairs are candidates, and growth starts from a higher rank on those
# that are: chains of rank 2 train badly, and what grows from them stays behind chains that began at rank 4.
FEW_FEATURES = 16
FIRST_RANK = 4
# Share of the allowed edges that grow in one step, with few features and with many.
FEW_AT_ONCE = 0.04
MANY_AT_ONCE = 0.5
# Size of the random numbers that a start differs from the neutral network by.
NOISE = 0.03
# Share of the features silenced in a training sample, where there are many: a few have to say it all.
DROPOUT = 0.2
FEW_TO_SILENCE = 8
# Learning rate for one feature; the product of d of them changes by about sqrt(d) times as much per step.
RATE = 0.03
CLIP = 1.0
# Epochs, epochs without a gain, and the steps that both must at least amount to, by effort.
EFFORTS = {"fast": (10, 2, 150), "balanced": (20, 4, 300), "thorough": (60, 10, 1000)}
# The last training of the chosen network: this much slower, and this much more patient.
SLOWER = 3.0
MORE_PATIENT = 2
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
    feature_map: FeatureMapName | Callable[[Any], Any] = "cosine",
    map_size: int = 2,
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
    size = len(x) * x.shape[1] * map_size * kind.itemsize
    check_memory(2 * size, free_memory(torch.device("cpu")), f"{len(x):,} samples of {x.shape[1]} features")
    values = fitted(x, kind)
    where = choose_device(device, values, GPU_ENTRIES)
    values = values.to(where)
    numbers = torch.as_tensor(labels, dtype=torch.int64)
    # Without a seed the split is the same each time.
    generator = as_generator(0 if random_state is None else random_state)
    held_out = _hold_out(numbers, validation, generator)
    if random_state is None:
        generator = as_generator(None)
    objective = Classification(
        values,
        numbers.to(where),
        num_classes,
        held_out=None if held_out is None else held_out.to(where),
        generator=generator,
        dropout=DROPOUT if x.shape[1] > FEW_TO_SILENCE else 0.0,
        share=FEW_AT_ONCE if x.shape[1] <= FEW_FEATURES else MANY_AT_ONCE,
    )
    dims = objective.dims
    if structure is not None:
        if not isinstance(structure, Structure) or structure.dims != dims:
            raise OptionError(
                f"structure={structure!r} does not fit: a Structure over {dims} is needed, one leg of "
                f"map_size={map_size} per feature and one for the {num_classes} classes"
            )
        max_steps = 0
    given = (max_error, max_parameters, max_steps, max_seconds)
    if held_out is None and all(v is None for v in given):
        max_steps = 0  # nothing says when to stop, as a warning or the user says
    pairs = auto_edges(len(dims)) if isinstance(edges, str) and edges == "auto" else edges
    pairs = pairs if isinstance(pairs, str) else _listed(pairs)
    first = structure or _first(dims, EdgePolicy.parse(pairs, len(dims)), max_parameters)
    check_choice("effort", effort, tuple(EFFORTS))
    # A structure that is given is trained once, so that it gets the time that growth takes otherwise.
    level = effort if structure is None else "thorough"
    trained = _training(level, objective) if training is None else training
    limits = Limits(max_error, max_parameters, max_steps, max_seconds, held_out=held_out is not None)
    with one_thread() if values.numel() <= FEW_ENTRIES else nullcontext():
        result = learn_objective(
            objective,
            limits=limits,
            edges=pairs,
            effort=effort,
            init=neutral_start(first, objective.labels, generator, kind, where),
            generator=generator,
            device=where,
            dtype=kind,
            progress=progress,
            callbacks=callbacks,
            checkpoint=None,
            options=None,
            training=trained,
        )
        if training is None and objective.holds_out:
            result = _polished(result, objective, trained, limits)
    return Classified(result, fitted)


def _training(effort: str, objective: Classification) -> TrainingOptions:
    """How networks are trained: in epochs where there are many samples, in steps where there are few."""
    epochs, patience, steps = EFFORTS[effort]
    count = objective.num_batches
    return TrainingOptions(
        learning_rate=RATE / math.sqrt(len(objective.dims) - 1),
        clip=CLIP,
        epochs=max(epochs, math.ceil(steps / count)),
        patience=max(patience, math.ceil(steps / 8 / count)),
        tolerance=1e-3,
        patient_steps=0,
    )


def _polished(result: Result, objective: Classification, training: TrainingOptions, limits: Limits) -> Result:
    """The chosen network trained once more, slowly; its best epoch, which may be the first, is kept."""
    begin, spent = time.perf_counter(), float(result.info["seconds"])
    # A run that is out of time gets a share more of it.
    limit = math.inf if limits.max_seconds is None else limits.max_seconds
    deadline = begin + max(limit - spent, 0.1 * limit)
    assert training.learning_rate is not None
    slow = replace(
        training,
        learning_rate=training.learning_rate / SLOWER,
        patience=MORE_PATIENT * training.patience,
        tolerance=1e-4,
    )
    found, _ = fit_by_gradient(objective, result.network, slow, deadline=deadline)
    seconds = spent + time.perf_counter() - begin
    step = Step(
        index=len(result.history),
        kind="refit",
        edge=None,
        num_parameters=found.size,
        loss=found.loss,
        relative_error=found.loss,
        validation_error=found.validation,
        seconds=seconds,
        structure=found.network.structure,
    )
    return replace(
        result,
        network=found.network,
        relative_error=found.loss,
        history=(*result.history, step),
        validation_error=found.validation,
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
    """Where growth starts: rank one, or a higher rank on the allowed edges of many features.

    In a long chain no single growth carries what a far feature says to the class leg, so that from rank one
    on none would show a gain.
    """
    alone = Structure.rank_one(dims)
    if len(dims) - 1 <= FEW_FEATURES:
        return alone
    pairs = _chain(len(dims) - 1) if policy.pairs is None else policy.pairs
    joined = Structure(dims, dict.fromkeys(pairs, FIRST_RANK))
    for e in joined.edges:  # ends of a chain cannot use more than their leg carries
        joined = joined.with_rank(*e, min(FIRST_RANK, joined.useful_rank(*e)))
    too_large = max_parameters is not None and joined.num_parameters > max_parameters
    return alone if too_large or product_plan(joined).cost > MOST_COST else joined


def neutral_start(
    structure: Structure,
    labels: torch.Tensor,
    generator: torch.Generator,
    dtype: torch.dtype,
    device: torch.device,
) -> TensorNetwork:
    """Cores that pass on what they get and ignore their feature, up to noise; the classes get their shares.

    Entry ``(0, k, ..., k)`` of a core is one: along a chain that is the identity. Products over any number of
    features then begin of order one, which random cores would not.
    """
    root = structure.order - 1
    cores = []
    for node, shape in enumerate(structure.core_shapes):
        core = NOISE * torch.randn(shape, generator=generator, dtype=torch.float64)
        bonds = len(shape) - 1
        if node == root:
            counts = torch.bincount(labels.cpu(), minlength=shape[0]).clamp_min(1).double()
            core.reshape(shape[0], -1)[:, 0] += (counts / counts.sum()).log()
        else:
            for k in range(min(shape[1:], default=1)):
                core[(0, *[k] * bonds)] += 1.0
        cores.append(core.to(device, dtype))
    return TensorNetwork(structure, cores)


def _hold_out(labels: torch.Tensor, validation: Any, generator: torch.Generator) -> torch.Tensor | None:
    """Which samples are held out, the same share of every class; None for none."""
    count = len(labels)
    if not is_asked(validation):
        return None
    share = as_share(validation)
    if share is None:
        held = sample_mask(count, validation)
        return held if bool(held.any()) else None
    if count < FEWEST_TO_SPLIT:
        warnings.warn(
            f"only {count} samples: none is held out, and the network does not grow unless a limit says",
            DataWarning,
            stacklevel=4,
        )
        return None
    share = max(share, min(FEWEST_HELD_OUT / count, 0.2))
    held = torch.zeros(count, dtype=torch.bool)
    for number in range(int(labels.max()) + 1):
        mine = (labels == number).nonzero()[:, 0]
        most = min(max(1, round(share * len(mine))), len(mine) - 1)
        held[mine] = drawn(len(mine), most, generator)
    return held if bool(held.any()) else None
