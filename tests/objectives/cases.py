"""Every least-squares objective on small data, beside plain NumPy answers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from tensorgrow import priors
from tensorgrow.data.blocks import ArraySource, Form, ThreadReducer
from tensorgrow.data.partitions.parts import ThreadParts
from tensorgrow.losses import as_loss
from tensorgrow.objectives import (
    BlockedLeastSquares,
    Census,
    CompressedLeastSquares,
    DenseLeastSquares,
    EntryPart,
    LeastSquares,
    NetworkLeastSquares,
    ObservedLeastSquares,
    PartitionedLeastSquares,
    Penalties,
    RegressionLeastSquares,
    ReweightedLeastSquares,
)
from tensorgrow.structure import Structure
from tests.oracles import random_array, random_network, to_numpy

DIMS = (4, 5, 3)
RIDGE = 1e-6  # of the objectives that have one; rows of entries are then in full precision


@dataclass(frozen=True)
class Side:
    """Fitted or held-out data: numbers, and what a tensor predicts for them, both by the roots of weights."""

    values: np.ndarray
    predict: Callable[[np.ndarray], np.ndarray]

    def loss(self, tensor: np.ndarray) -> float:
        return float(np.linalg.norm(self.values - self.predict(tensor)))


@dataclass(frozen=True)
class Case:
    """An objective, and its data as the oracle sees it.

    `unit` is the squared loss over the squared norm of the residual.
    """

    objective: LeastSquares
    fitted: Side
    held_out: Side | None = None
    unit: float = 1.0

    def losses(self, tensor: np.ndarray) -> tuple[float, float | None]:
        root = self.unit**0.5
        held_out = None if self.held_out is None else root * self.held_out.loss(tensor)
        return root * self.fitted.loss(tensor), held_out

    def measure(self, tensor: np.ndarray) -> float:
        """The loss the search goes by."""
        fitted, held_out = self.losses(tensor)
        return fitted if held_out is None else held_out


def _full(x: torch.Tensor) -> Side:
    return Side(to_numpy(x).ravel(), lambda tensor: tensor.ravel())


def dense(dtype: torch.dtype, use_numpy: bool) -> Case:
    x = random_array(np.random.default_rng(0), DIMS, dtype)
    return Case(DenseLeastSquares(x, use_numpy=use_numpy), _full(x))


def blocked(dtype: torch.dtype, device: str | None) -> Case:
    x = random_array(np.random.default_rng(0), DIMS, dtype)
    source = ArraySource(x)
    form = Form(str(dtype).removeprefix("torch."), device)
    return Case(BlockedLeastSquares(ThreadReducer(source, source.boxes(20), form, 1)), _full(x))


def compressed(dtype: torch.dtype) -> Case:
    rng = np.random.default_rng(0)
    sizes = (3, 4, 3)
    bases = [torch.linalg.qr(random_array(rng, (n, r), dtype))[0] for n, r in zip(DIMS, sizes)]
    bases[2] = None
    core = random_array(rng, sizes, dtype)
    inside = torch.einsum("abk,ia,jb->ijk", core, *bases[:2])
    rest = random_array(rng, DIMS, dtype)
    for k, u in enumerate(bases[:2]):  # what is left out has no part in the bases
        rest = rest - torch.tensordot(u @ u.mH, rest.movedim(k, 0), dims=1).movedim(0, k)
    norm = float(torch.linalg.vector_norm(rest))
    return Case(CompressedLeastSquares(core, bases, norm), _full(inside + rest))


def network(dtype: torch.dtype, use_numpy: bool) -> Case:
    """A target with an internal node and a cycle."""
    graph = {(0, 1): 3, (1, 2): 2, (0, 2): 2, (0, 3): 3, (1, 3): 2, (2, 3): 2}
    target = random_network(Structure(DIMS, graph), 7, dtype)
    return Case(NetworkLeastSquares(target, use_numpy=use_numpy), _full(target.to_dense()))


def _entries(dtype: torch.dtype, *, hold_out: bool, share: float = 0.8):
    rng = np.random.default_rng(1)
    where = np.argwhere(rng.random(DIMS) < share)
    rng.shuffle(where)
    values = random_array(rng, (len(where),), dtype)
    weights = torch.tensor(rng.uniform(0.5, 2.0, len(where)), dtype=values.real.dtype)
    held = np.arange(len(where)) % 5 == 0 if hold_out else np.zeros(len(where), dtype=bool)

    def side(chosen: np.ndarray) -> Side:
        root, place = np.sqrt(to_numpy(weights))[chosen], tuple(where[chosen].T)
        return Side(root * to_numpy(values)[chosen], lambda tensor: root * tensor[place])

    sides = side(~held), side(held) if hold_out else None
    held_out = torch.tensor(held) if hold_out else None
    return torch.tensor(where), values, weights, held_out, *sides


def entries(dtype: torch.dtype, *, hold_out: bool) -> Case:
    indices, values, weights, held_out, *sides = _entries(dtype, hold_out=hold_out)
    return Case(
        ObservedLeastSquares(indices, values, DIMS, weights=weights, held_out=held_out, ridge=RIDGE), *sides
    )


def reweighted(dtype: torch.dtype, *, hold_out: bool) -> Case:
    case = entries(dtype, hold_out=hold_out)
    # The deviance of the squared loss is twice the squared residual.
    return Case(ReweightedLeastSquares(case.objective, as_loss("squared")), case.fitted, case.held_out, 2.0)


def partitioned(dtype: torch.dtype, *, hold_out: bool) -> Case:
    indices, values, weights, held_out, *sides = _entries(dtype, hold_out=hold_out)
    count = len(values)

    def load(where: torch.Tensor):
        objective = ObservedLeastSquares(
            indices[where],
            values[where],
            DIMS,
            weights=weights[where],
            held_out=None if held_out is None else held_out[where],
            rows=count,
        )
        return lambda: pickle.loads(pickle.dumps(EntryPart(objective)))

    fitted = indices if held_out is None else indices[~held_out]
    counts = tuple(np.bincount(fitted[:, k].numpy(), minlength=d) for k, d in enumerate(DIMS))
    where = [torch.arange(k, count, 3) for k in range(3)]
    census = Census(len(fitted), count - len(fitted), counts, tuple(map(len, where)))
    parts = ThreadParts([load(w) for w in where], 1, keep=True)
    return Case(PartitionedLeastSquares(parts, DIMS, dtype, census, ridge=RIDGE), *sides)


def samples(dtype: torch.dtype, *, hold_out: bool, use_numpy: bool, count: int) -> Case:
    rng = np.random.default_rng(2)
    x, y = random_array(rng, (count, *DIMS), dtype), random_array(rng, (count,), dtype)
    held = np.arange(count) % 4 == 0 if hold_out else np.zeros(count, dtype=bool)

    def side(chosen: np.ndarray) -> Side:
        rows = to_numpy(x)[chosen].reshape(chosen.sum(), -1)
        return Side(to_numpy(y)[chosen], lambda tensor: rows @ tensor.ravel())

    objective = RegressionLeastSquares(
        x, y, held_out=torch.tensor(held) if hold_out else None, ridge=RIDGE, use_numpy=use_numpy
    )
    return Case(objective, side(~held), side(held) if hold_out else None)


def with_priors(case: Case) -> Case:
    """With priors as weak as the ridge: a fit lowers the loss of the data, as every objective must."""
    known = {
        0: (priors.smooth(RIDGE),),
        1: (priors.periodic(), priors.smooth(order=2)),
        2: (priors.graph(1 - np.eye(3)),),
    }
    return replace(case, objective=case.objective.with_penalties(Penalties(known, DIMS, RIDGE)))


CASES: dict[str, Callable[[torch.dtype], Case]] = {
    "dense, NumPy": lambda d: dense(d, True),
    "dense, torch": lambda d: dense(d, False),
    "blocks, NumPy": lambda d: blocked(d, None),
    "blocks, torch": lambda d: blocked(d, "cpu"),
    "compressed": compressed,
    "entries": lambda d: entries(d, hold_out=False),
    "entries, held out": lambda d: entries(d, hold_out=True),
    "entries, priors": lambda d: with_priors(entries(d, hold_out=True)),
    "entry losses": lambda d: reweighted(d, hold_out=False),
    "entry losses, held out": lambda d: reweighted(d, hold_out=True),
    "network, NumPy": lambda d: network(d, True),
    "network, torch": lambda d: network(d, False),
    "partitions": lambda d: partitioned(d, hold_out=False),
    "partitions, held out": lambda d: partitioned(d, hold_out=True),
    "partitions, priors": lambda d: with_priors(partitioned(d, hold_out=True)),
    "samples": lambda d: samples(d, hold_out=False, use_numpy=True, count=200),
    "samples, held out": lambda d: samples(d, hold_out=True, use_numpy=True, count=200),
    "few samples, torch": lambda d: samples(d, hold_out=True, use_numpy=False, count=40),
}
REAL_ONLY = {"entry losses", "entry losses, held out"}
