"""Classification on products of local features, with a network as the weights. Behind `TNClassifier`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import torch

from .contraction import product_plan
from .data import as_dtype, check_memory, choose_device, free_memory
from .errors import DataWarning, OptionError
from .features import FeatureMap, FeatureMapName
from .learning import learn_objective
from .linalg import one_thread
from .network import RandomState, TensorNetwork, as_generator
from .objectives import Classification
from .objectives.classification import MOST_COST
from .results import Result
from .search import EdgePolicy, Effort, Limits
from .solvers import TrainingOptions
from .structure import Edge, Structure

__all__ = ["HELD_OUT", "Classified", "auto_edges", "classify"]

# Share of the samples held out by default.
HELD_OUT = 0.1
FEWEST_TO_SPLIT = 10
# With more features than this not all pairs are candidates, and growth starts from rank 2 on those that are.
FEW_FEATURES = 10
# Size of the random numbers that a start differs from the neutral network by.
NOISE = 0.03
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
        raise OptionError(f"dtype={dtype!r} is complex; probabilities need real numbers: use float32 or float64")
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
    with one_thread() if values.numel() <= FEW_ENTRIES else nullcontext():
        result = learn_objective(
            objective,
            limits=Limits(max_error, max_parameters, max_steps, max_seconds, held_out=held_out is not None),
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
            training=training,
        )
    return Classified(result, fitted)


def auto_edges(order: int) -> Literal["all"] | list[Edge]:
    """All pairs for a few features; beyond, the chain of the features with the class leg in its middle."""
    features = order - 1
    if features <= FEW_FEATURES:
        return "all"
    middle = features // 2
    chain = [*range(middle), features, *range(middle, features)]
    return [(min(a, b), max(a, b)) for a, b in zip(chain, chain[1:])]


def _listed(edges: Any) -> Any:
    """Pairs that can be read twice; what is not iterable is for `EdgePolicy` to refuse."""
    return list(edges) if isinstance(edges, Iterable) else edges


def _first(dims: tuple[int, ...], policy: EdgePolicy, max_parameters: int | None) -> Structure:
    """Where growth starts: rank one, or rank 2 on the allowed edges of many features.

    In a long chain no single growth carries what a far feature says to the class leg, so that from rank one on
    none would show a gain.
    """
    alone = Structure.rank_one(dims)
    if len(dims) - 1 <= FEW_FEATURES:
        return alone
    pairs = auto_edges(len(dims)) if policy.pairs is None else policy.pairs
    joined = Structure(dims, {e: 2 for e in pairs})  # type: ignore[misc]
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
            core[(slice(None), *[0] * bonds)] += (counts / counts.sum()).log()
        else:
            for k in range(min(shape[1:], default=1)):
                core[(0, *[k] * bonds)] += 1.0
        cores.append(core.to(device, dtype))
    return TensorNetwork(structure, cores)


def _hold_out(labels: torch.Tensor, validation: Any, generator: torch.Generator) -> torch.Tensor | None:
    """Which samples are held out, the same share of every class; None for none."""
    count = len(labels)
    if validation is None or (isinstance(validation, Real) and validation == 0):
        return None
    held = torch.zeros(count, dtype=torch.bool)
    if isinstance(validation, Real) and not isinstance(validation, bool):
        share = float(validation)
        if not 0.0 < share < 1.0:
            raise OptionError(
                f"validation={validation!r} must be a share from 0 to below 1, a mask, or False"
            )
        if count < FEWEST_TO_SPLIT:
            warnings.warn(
                f"only {count} samples: none is held out, and the network does not grow unless a limit is given",
                DataWarning,
                stacklevel=4,
            )
            return None
        for number in labels.unique():
            mine = (labels == number).nonzero()[:, 0]
            most = min(max(1, round(share * len(mine))), len(mine) - 1)
            held[mine[torch.randperm(len(mine), generator=generator)[:most]]] = True
        return held if bool(held.any()) else None
    held = torch.as_tensor(validation)
    if held.dtype != torch.bool or tuple(held.shape) != (count,):
        raise OptionError(
            f"validation must be a share, False, or a boolean mask of shape ({count},); "
            f"{held.dtype} of shape {tuple(held.shape)} was given"
        )
    if bool(held.all()):
        raise OptionError("validation holds out every sample; leave some to fit")
    return held if bool(held.any()) else None
