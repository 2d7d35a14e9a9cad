r"""Networks that are a linear classifier: where growth over products of features starts.

With the first component of every feature equal to 1, ``f_c = b_c + sum_j w_cj . phi_j`` is a sum over
products in which all features but one say 1. On a tree that is rooted at the classes, every edge carries 1
and the sums over the features behind it, in the ``k`` directions that the weights have: ranks ``k + 1``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import torch

from ..network import TensorNetwork
from ..structure import Edge, Structure

# Ridges to try, times the number of samples, the strongest first.
RIDGES = (10.0, 1.0, 0.1, 0.01, 0.001)
# Folds of the cross-validation; with many samples one of them is enough to tell ridges apart.
FOLDS, MANY = 5, 3_000

Tree = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class LabelledSamples:
    """Samples ``(n, p)``, class numbers, and how much each sample counts; None: all the same."""

    x: torch.Tensor
    labels: torch.Tensor
    num_classes: int
    weights: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def at(self, rows: torch.Tensor) -> LabelledSamples:
        """Some of them."""
        weights = None if self.weights is None else self.weights[rows]
        return replace(self, x=self.x[rows], labels=self.labels[rows], weights=weights)


def fit_logistic(samples: LabelledSamples, ridge: float) -> torch.Tensor:
    """Fit weights ``(classes, 1 + p)``, the constants first, by scikit-learn's logistic regression.

    They minimise the mean cross-entropy plus `ridge` times the sum of their squares, constants included.
    """
    from sklearn.linear_model import LogisticRegression

    x, num_classes = samples.x, samples.num_classes
    design = np.concatenate([np.ones((len(x), 1)), x.cpu().numpy()], 1)
    numbers, share = samples.labels.cpu().numpy(), np.ones(len(x))
    if samples.weights is not None:
        share = (samples.weights / samples.weights.mean()).cpu().numpy()
    absent = np.setdiff1d(np.arange(num_classes), numbers)  # scikit-learn wants to see every class
    design = np.concatenate([design, np.zeros((len(absent), design.shape[1]))])
    numbers, share = np.concatenate([numbers, absent]), np.concatenate([share, np.zeros(len(absent))])
    # Two classes have one vector there, which is the difference of our two: half the penalty.
    strength = (1.0 if num_classes == 2 else 2.0) * ridge * len(x)
    model: Any = LogisticRegression(C=1.0 / strength, fit_intercept=False, tol=1e-6, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nearly converged is good enough for a start
        model.fit(design, numbers, share)
    rows = np.concatenate([-model.coef_, model.coef_]) / 2.0 if num_classes == 2 else model.coef_
    return torch.from_numpy(rows).to(x)


def choose_ridge(samples: LabelledSamples, generator: torch.Generator) -> float:
    """Find the ridge, times the number of samples, with the smallest cross-validated cross-entropy."""
    labels = samples.labels
    # Classes are spread evenly over the folds.
    order = torch.randperm(len(labels), generator=generator).to(labels.device)
    by_class = order[torch.argsort(labels[order], stable=True)]
    fold = torch.empty_like(labels)
    fold[by_class] = torch.arange(len(labels), device=labels.device) % FOLDS
    totals = [0.0] * len(RIDGES)
    for k in range(FOLDS if len(labels) < MANY else 1):
        test = fold == k
        if not bool(test.any()) or bool(test.all()):
            continue
        for number, ridge in enumerate(RIDGES):
            weights = fit_logistic(samples.at(~test), ridge / int((~test).sum()))
            tested = samples.at(test)
            values = tested.x @ weights[:, 1:].T + weights[:, 0]
            losses = torch.nn.functional.cross_entropy(values, tested.labels, reduction="none")
            totals[number] += float((losses if tested.weights is None else tested.weights * losses).sum())
    return min(zip(totals, RIDGES))[1]


def spanning_tree(ranks: Mapping[Edge, int], root: int) -> list[tuple[int, int]]:
    """List (node, its parent) for all nodes that edges join to `root`, parents first; large ranks first."""
    around: dict[int, list[int]] = {}
    for i, j in ranks:
        around.setdefault(i, []).append(j)
        around.setdefault(j, []).append(i)
    tree: list[tuple[int, int]] = []
    seen = {root}
    open_edges = [(root, j) for j in sorted(around.get(root, []))]
    while open_edges:
        parent, node = max(open_edges, key=lambda e: ranks[min(e), max(e)])
        open_edges.remove((parent, node))
        if node not in seen:
            seen.add(node)
            tree.append((node, parent))
            open_edges += [(node, j) for j in sorted(around[node]) if j not in seen]
    return tree


def tree_ranks(dims: Sequence[int], tree: Tree, directions: int) -> dict[Edge, int]:
    """Compute the ranks that a linear classifier with so many directions needs; fewer near the leaves."""
    room = {node: dims[node] if node < len(dims) else 1 for node, _ in tree}
    room[len(dims) - 1] = 1
    ranks = {}
    for node, parent in reversed(tree):
        rank = min(room[node], directions + 1)
        ranks[min(node, parent), max(node, parent)] = rank
        room[parent] *= rank
    return ranks


def linear_network(
    structure: Structure, weights: torch.Tensor, *, noise: float, generator: torch.Generator
) -> TensorNetwork:
    """Write a linear classifier as a network, exact where the structure has the ranks for it.

    Parameters
    ----------
    structure
        Over one leg per feature, and the classes last. Ranks beyond the needed ones pass on what they get.
    weights
        ``(classes, 1 + features * (m - 1))``, the constants first, then feature by feature.
    noise
        Size of random numbers that are added to all entries.
    """
    root = structure.order - 1
    size = structure.dims[0]
    tree = spanning_tree(structure.ranks, root)
    # Adding the same to all classes changes no probability and would cost a direction.
    centred = weights - weights.mean(0)
    u, s, v = torch.linalg.svd(centred[:, 1:], full_matrices=False)
    count = min(int((s > 1e-6 * s[0]).sum()), structure.dims[root] - 1)  # the rest is negligible
    while any(r > structure.rank(*e) for e, r in tree_ranks(structure.dims, tree, count).items()):
        count -= 1
    half = s[:count].sqrt()
    outer = u[:, :count] * half
    inner = (half[:, None] * v[:count]).reshape(count, root, size - 1)
    cores = [
        noise * torch.randn(shape, generator=generator, dtype=torch.float64).to(weights)
        for shape in structure.core_shapes
    ]
    children: dict[int, list[int]] = {}
    for node, parent in tree:
        children.setdefault(parent, []).append(node)
    sums: dict[int, torch.Tensor] = {}  # from the state of a node's upward edge to 1 and the sums
    unit = torch.eye(count + 1, dtype=weights.dtype, device=weights.device)
    for node, parent in reversed(tree):
        below = children.get(node, [])
        own = inner[:, node] if node < root else inner.new_zeros(count, 0)
        full = _accumulate(own, [sums[c] for c in below])
        entries = math.prod(full.shape[1:])
        if entries <= count + 1:
            core, sums[node] = torch.eye(entries).to(full), full.reshape(count + 1, entries)
            core = core.reshape(entries, *full.shape[1:])
        else:
            core, sums[node] = full, unit
        _place(cores[node], structure, node, core.movedim(0, -1), [*below, parent])
    top = children.get(root, [])
    class_core = _accumulate(inner.new_zeros(count, 0), [sums[c] for c in top])
    mixed = torch.cat([centred[:, :1], outer], 1) @ class_core.reshape(count + 1, -1)
    _place(cores[root], structure, root, mixed.reshape(len(weights), *class_core.shape[2:]), top)
    for node in set(range(structure.num_nodes)) - {n for n, _ in tree} - {root}:
        cores[node].reshape(-1)[0] += 1.0
    for node in range(structure.num_nodes):
        if node != root:
            _pass_through(cores[node], count + 1)
    return TensorNetwork(structure, cores)


def _accumulate(own: torch.Tensor, below: list[torch.Tensor]) -> torch.Tensor:
    """Compute 1 and the sums from a feature and the states below: ``(1 + k, m, *states)``."""
    count, size = own.shape[0], own.shape[1] + 1
    core = own.new_zeros(count + 1, size, *(s.shape[1] for s in below))
    ones = [s[0] for s in below]
    core[0, 0] = _outer(ones, own)
    for a in range(count):
        for k, state in enumerate(below):
            core[a + 1, 0] += _outer([*ones[:k], state[a + 1], *ones[k + 1 :]], own)
        for s in range(size - 1):
            core[a + 1, s + 1] = own[a, s] * _outer(ones, own)
    return core


def _outer(vectors: Iterable[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    return reduce(lambda a, b: a.unsqueeze(-1) * b, vectors, like.new_ones(()))


def _place(
    target: torch.Tensor, structure: Structure, node: int, core: torch.Tensor, bonds: Sequence[int]
) -> None:
    """Add a core with axes (leg, bonds) into the corner of a larger one."""
    around = structure.neighbours[node]
    joined = [b for b in bonds if b in around]  # bonds of rank one have no axis
    core = core.reshape(core.shape[0], *(n for n, b in zip(core.shape[1:], bonds) if b in joined))
    core = core.permute(0, *(1 + joined.index(j) for j in around if j in joined))
    sizes = iter(core.shape[1:])
    corner = (slice(next(sizes)) if j in joined else 0 for j in around)
    target[(slice(None), *corner)] += core


def _pass_through(core: torch.Tensor, first: int) -> None:
    """Let what comes in along one edge leave along the others, in the ranks that are not needed."""
    for k in range(first, min(core.shape[1:], default=0)):
        core[(0, *[k] * (core.dim() - 1))] += 1.0
