r"""Networks that are a linear classifier: where growth over products of features starts.

With the first component of every feature equal to 1, ``f_c = b_c + sum_j w_cj . phi_j`` is a sum over
products in which all features but one say 1. On a tree that is rooted at the classes, every edge carries 1
and the sums over the features behind it, in the ``k`` directions that the weights have: ranks ``k + 1``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch

from ..network import TensorNetwork
from ..structure import Edge, Structure

# Ridges that are tried, times the number of samples, the strongest first.
RIDGES = (10.0, 1.0, 0.1, 0.01, 0.001)
# Folds of the cross-validation; with many samples one of them is enough to tell ridges apart.
FOLDS, MANY = 5, 3_000
# Singular values of the weights below this share of the largest are left out.
NEGLIGIBLE = 1e-6

Tree = Sequence[tuple[int, int]]


def fit_logistic(x: torch.Tensor, labels: torch.Tensor, num_classes: int, ridge: float) -> torch.Tensor:
    """Weights of shape ``(classes, 1 + p)``, the constants first, by scikit-learn's logistic regression.

    They minimise the mean cross-entropy plus `ridge` times the sum of their squares, constants included.
    """
    from sklearn.linear_model import LogisticRegression

    design = np.concatenate([np.ones((len(x), 1)), x.cpu().numpy()], 1)
    numbers, share = labels.cpu().numpy(), np.ones(len(x))
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


def choose_ridge(
    x: torch.Tensor, labels: torch.Tensor, num_classes: int, generator: torch.Generator
) -> float:
    """The ridge, times the number of samples, with the smallest cross-validated cross-entropy."""
    fold = _draw_folds(labels, generator)
    totals = [0.0] * len(RIDGES)
    for k in range(FOLDS if len(labels) < MANY else 1):
        test = fold == k
        if not bool(test.any()) or bool(test.all()):
            continue
        for number, ridge in enumerate(RIDGES):
            weights = fit_logistic(x[~test], labels[~test], num_classes, ridge / int((~test).sum()))
            values = x[test] @ weights[:, 1:].T + weights[:, 0]
            loss = torch.nn.functional.cross_entropy(values, labels[test], reduction="sum")
            totals[number] += float(loss)
    return min(zip(totals, RIDGES))[1]


def _draw_folds(labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Number of the fold of each sample; the classes are spread evenly."""
    order = torch.randperm(len(labels), generator=generator).to(labels.device)
    by_class = order[torch.argsort(labels[order], stable=True)]
    fold = torch.empty_like(labels)
    fold[by_class] = torch.arange(len(labels), device=labels.device) % FOLDS
    return fold


def spanning_tree(ranks: Mapping[Edge, int], root: int) -> list[tuple[int, int]]:
    """Pairs (node, its parent) of the nodes that edges join to `root`, parents first; large ranks first."""
    around: dict[int, list[int]] = {}
    for i, j in ranks:
        around.setdefault(i, []).append(j)
        around.setdefault(j, []).append(i)
    found: list[tuple[int, int]] = []
    seen = {root}
    open_edges = [(root, j) for j in sorted(around.get(root, []))]
    while open_edges:
        parent, node = max(open_edges, key=lambda e: ranks[min(e), max(e)])
        open_edges.remove((parent, node))
        if node not in seen:
            seen.add(node)
            found.append((node, parent))
            open_edges += [(node, j) for j in sorted(around[node]) if j not in seen]
    return found


def tree_ranks(dims: Sequence[int], tree: Tree, directions: int) -> dict[Edge, int]:
    """Ranks that a linear classifier with so many directions needs; near the leaves fewer are enough."""
    room = {node: dims[node] if node < len(dims) else 1 for node, _ in tree}
    room[len(dims) - 1] = 1
    ranks = {}
    for node, parent in reversed(tree):
        rank = min(room[node], directions + 1)
        ranks[min(node, parent), max(node, parent)] = rank
        room[parent] *= rank
    return ranks


def linear_network(
    structure: Structure,
    weights: torch.Tensor,
    *,
    noise: float,
    generator: torch.Generator,
) -> TensorNetwork:
    """The network of a linear classifier, exact where the structure has the ranks for it.

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
    count = min(int((s > NEGLIGIBLE * s[0]).sum()), structure.dims[root] - 1)
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
    sums: dict[int, torch.Tensor] = {}  # what the state of a node's upward edge says of 1 and the sums
    unit = torch.eye(count + 1, dtype=weights.dtype, device=weights.device)
    for node, parent in reversed(tree):
        below = children.get(node, [])
        own = inner[:, node] if node < root else inner.new_zeros(count, 0)
        full = _passed_on(own, [sums[c] for c in below])
        entries = math.prod(full.shape[1:])
        if entries <= count + 1:
            core, sums[node] = torch.eye(entries).to(full), full.reshape(count + 1, entries)
            core = core.reshape(entries, *full.shape[1:])
        else:
            core, sums[node] = full, unit
        _place(cores[node], structure, node, core.movedim(0, -1), [*below, parent])
    top = children.get(root, [])
    class_core = _passed_on(inner.new_zeros(count, 0), [sums[c] for c in top])
    mixed = torch.cat([centred[:, :1], outer], 1) @ class_core.reshape(count + 1, -1)
    _place(cores[root], structure, root, mixed.reshape(len(weights), *class_core.shape[2:]), top)
    for node in set(range(structure.num_nodes)) - {n for n, _ in tree} - {root}:
        cores[node].reshape(-1)[0] += 1.0
    for node in range(structure.num_nodes):
        if node != root:
            _pass_through(cores[node], count + 1)
    return TensorNetwork(structure, cores)


def _passed_on(own: torch.Tensor, below: list[torch.Tensor]) -> torch.Tensor:
    """One and the sums, as they follow from a feature and from the states below: ``(1 + k, m, *states)``."""
    count, size = own.shape[0], own.shape[1] + 1
    found = own.new_zeros(count + 1, size, *(s.shape[1] for s in below))
    ones = [s[0] for s in below]
    found[0, 0] = _outer(ones, own)
    for a in range(count):
        for k, state in enumerate(below):
            found[a + 1, 0] += _outer([*ones[:k], state[a + 1], *ones[k + 1 :]], own)
        for s in range(size - 1):
            found[a + 1, s + 1] = own[a, s] * _outer(ones, own)
    return found


def _outer(vectors: Iterable[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    return reduce(lambda a, b: a.unsqueeze(-1) * b, vectors, like.new_ones(()))


def _place(
    target: torch.Tensor, structure: Structure, node: int, core: torch.Tensor, bonds: Sequence[int]
) -> None:
    """Add a core with axes (leg, bonds) into the corner of a larger one."""
    around = structure.neighbours[node]
    kept = [b for b in bonds if b in around]  # bonds of rank one have no axis
    core = core.reshape(core.shape[0], *(n for n, b in zip(core.shape[1:], bonds) if b in kept))
    core = core.permute(0, *(1 + kept.index(j) for j in around if j in kept))
    corner = tuple(slice(structure.rank(node, j)) if j in kept else 0 for j in around)
    sizes = iter(core.shape[1:])
    corner = tuple(slice(next(sizes)) if isinstance(c, slice) else c for c in corner)
    target[(slice(None), *corner)] += core


def _pass_through(core: torch.Tensor, first: int) -> None:
    """What comes in along one edge leaves along the others, in the ranks that are not needed."""
    for k in range(first, min(core.shape[1:], default=0)):
        core[(0, *[k] * (core.dim() - 1))] += 1.0
