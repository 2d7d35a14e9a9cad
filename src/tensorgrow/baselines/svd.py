"""Closed forms: TT-SVD in several orders of the modes, truncated HOSVD, SVDs along trees."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Unpack, get_args

import torch

from ..algebra.spectra import tail_norms
from ..errors import OptionError, check_choice
from ..network import TensorNetwork
from ..results import Result
from ..search.cuts import MAX_ORDER, CutBounds
from ..search.trees import TreeNode, assemble, balanced_tree, smallest_tree
from .common import DenseKeywords, Setting, explore, refuse_vectors
from .exploration import Goal, Outcome, Strategy
from .formats import train_network, tucker_network

TREES = 8  # norms that trees are sought for, beside the largest
Trees = Literal["balanced", "best"]
Orders = Literal["stored", "interleaved", "best"] | Sequence[int]


def tt_svd(x: Any, *, order: Orders = "stored", tries: int = 8, **common: Unpack[DenseKeywords]) -> Result:
    """Tensor train by successive SVDs that drop the same norm at every cut.

    That norm is bisected until the error or the size is met.

    Parameters
    ----------
    order
        Order of the modes along the chain: "stored", "interleaved" (see `interleave`), a permutation, or
        "best": the better of these two and of `tries` random ones.
    """

    def strategy(setting: Setting) -> Strategy:
        x = setting.double
        for chain in _chains(order, tries, setting):
            yield [_bisect(setting, partial(truncated_train, x.permute(chain), chain))]

    return explore(x, "tt_svd", strategy, common, needs_goal=True, order=order)


def hosvd(x: Any, **common: Unpack[DenseKeywords]) -> Result:
    """Tucker by a truncated higher-order SVD that drops the same norm in every mode (bisected)."""

    def strategy(setting: Setting) -> Strategy:
        x = setting.double
        bases = [
            torch.linalg.svd(x.movedim(k, 0).reshape(d, -1), full_matrices=False)[:2]
            for k, d in enumerate(setting.dims)
        ]
        yield [_bisect(setting, partial(_truncated_tucker, x, bases))]

    return explore(x, "hosvd", strategy, common, needs_goal=True)


def ht_svd(x: Any, *, tree: Trees = "balanced", **common: Unpack[DenseKeywords]) -> Result:
    """Hierarchical SVD: a tree of the modes whose edges drop small singular values (how many is bisected).

    Parameters
    ----------
    tree
        "balanced": hierarchical Tucker over the modes in their order, without its redundant root. "best": the
        best of this one, Tucker, and the smallest of all trees for some shares of the error, or of the norm
        where no error is given, chains among them; here edges share out what they drop as it saves most
        parameters. Up to eight modes, nodes have any degree.
    """
    check_choice("tree", tree, get_args(Trees))

    def strategy(setting: Setting) -> Strategy:
        refuse_vectors("ht_svd", setting.dims)
        x = setting.double
        if tree == "balanced" or setting.order == 2:
            nodes = balanced_tree(setting.order)
            yield [_bisect(setting, lambda drop: _truncated_tree(x, nodes, lambda _, s: _rank(s, drop)))]
            return
        bounds = CutBounds(x, 0.0, seconds=math.inf)
        if not bounds.is_complete:
            raise OptionError(f"the best tree is known up to {MAX_ORDER} modes, not {setting.order}")
        norm = float(torch.linalg.vector_norm(x))
        for nodes in _smallest_trees(setting, bounds):
            yield [_bisect(setting, partial(_shared_tree, x, nodes, bounds, norm))]

    return explore(x, "ht_svd", strategy, common, needs_goal=True, tree=tree)


def interleave(order: int) -> tuple[int, ...]:
    """``0, h, 1, h + 1, ...`` with ``h`` half the modes: row and column digits of the same scale meet."""
    half = (order + 1) // 2
    pairs = [(k, k + half) for k in range(half)]
    return tuple(k for pair in pairs for k in pair if k < order)


def truncated_train(x: torch.Tensor, chain: Sequence[int], threshold: float) -> TensorNetwork:
    """Train over the axes of `x`, which are the legs `chain`, dropping a norm of `threshold` at every cut."""
    return train_network(_train(x, lambda _, singular_values: _rank(singular_values, threshold)), chain)


def train_of_ranks(x: torch.Tensor, ranks: Sequence[int]) -> list[torch.Tensor]:
    """Cores ``(rank, dim, rank)`` of a train with at most these ranks."""
    return _train(x, lambda k, singular_values: min(ranks[k], len(singular_values)))


def _train(x: torch.Tensor, rank_of: Callable[[int, torch.Tensor], int]) -> list[torch.Tensor]:
    """TT-SVD; `rank_of` decides on each cut from its singular values."""
    cores, rank = [], 1
    rest = x.reshape(1, -1)
    for k, d in enumerate(x.shape[:-1]):
        u, s, vh = torch.linalg.svd(rest.reshape(rank * d, -1), full_matrices=False)
        new = rank_of(k, s)
        cores.append(u[:, :new].reshape(rank, d, new))
        rest, rank = s[:new, None] * vh[:new], new
    return [*cores, rest.reshape(rank, x.shape[-1], 1)]


def _truncated_tucker(
    x: torch.Tensor, bases: Sequence[tuple[torch.Tensor, torch.Tensor]], threshold: float
) -> TensorNetwork:
    core, factors = x, []
    for mode, (u, s) in enumerate(bases):
        basis = u[:, : _rank(s, threshold)]
        factors.append(basis)
        core = torch.tensordot(basis.mH, core, ([1], [mode])).movedim(0, mode)
    return tucker_network(core, factors)


def _smallest_trees(setting: Setting, bounds: CutBounds) -> list[dict[int, TreeNode]]:
    """Hierarchical Tucker, Tucker, and the smallest trees for different norms that every edge drops."""
    order = setting.order
    # An edge drops the whole error at most, and what keeps it for sure at least; without an error, any norm.
    most = setting.goal.max_error or 1.0
    least = 1e-8 if setting.goal.max_error is None else 1.0 / math.sqrt(2 * order - 3)
    leaves = {1 << k: TreeNode(k, ()) for k in range(order)}
    trees = [balanced_tree(order), {**leaves, sum(leaves): TreeNode(None, tuple(leaves))}]
    for k in range(TREES + 1):
        found = smallest_tree(bounds, most * least ** (k / TREES))
        if found is not None and found[1] not in trees:
            trees.append(found[1])
    return trees


def _shared_tree(
    x: torch.Tensor, nodes: Mapping[int, TreeNode], bounds: CutBounds, norm: float, threshold: float
) -> TensorNetwork:
    """The tree whose edges drop a norm of `threshold` on the mean, shared out so that it becomes small."""
    inside = [mask for mask in nodes if mask != max(nodes)]
    tails = {mask: bounds.spectrum(_near(mask, x.dim())).square().tolist() for mask in inside}
    above = {child: mask for mask, node in nodes.items() for child in node.children}
    ranks, dropped = dict.fromkeys(inside, 1), sum(tails[mask][1] for mask in inside)

    def size(mask: int) -> int:
        leg, children = nodes[mask]
        own = 1 if leg is None else x.shape[leg]
        return own * ranks.get(mask, 1) * math.prod(ranks[c] for c in children)

    def worth(mask: int) -> float:
        rank = ranks[mask]
        added = (size(mask) + size(above[mask])) / rank
        return (tails[mask][rank] - tails[mask][rank + 1]) / added if rank + 1 < len(tails[mask]) else -1.0

    while dropped > len(inside) * (threshold / norm) ** 2 and worth(best := max(inside, key=worth)) >= 0:
        dropped -= tails[best][ranks[best]] - tails[best][ranks[best] + 1]
        ranks[best] += 1
    return _truncated_tree(x, nodes, lambda mask, s: min(ranks[mask], len(s)))


def _near(mask: int, order: int) -> int:
    """The side of a cut without the last leg, by which `CutBounds` knows it."""
    return mask ^ ((1 << order) - 1) if mask >> (order - 1) & 1 else mask


def _truncated_tree(
    x: torch.Tensor, nodes: Mapping[int, TreeNode], rank_of: Callable[[int, torch.Tensor], int]
) -> TensorNetwork:
    """Project on the leading singular vectors of every subtree, from the leaves to the root."""
    order, root = x.dim(), max(nodes)
    internal = [mask for mask, node in nodes.items() if node.leg is None]
    number = {m: order + internal.index(m) if n.leg is None else n.leg for m, n in nodes.items()}
    pieces: dict[int, tuple[torch.Tensor, list[int]]] = {}
    names = [1 << k for k in range(order)]  # of the axes: a leg, or the bond above a subtree
    for mask in sorted(nodes, key=int.bit_count):
        leg, children = nodes[mask]
        inside = [*([] if leg is None else [names.index(1 << leg)]), *(names.index(c) for c in children)]
        others = [a for a in range(len(names)) if a not in inside]
        x = x.permute(*inside, *others)
        shape, names = x.shape[: len(inside)], [names[a] for a in others]
        near = [number[c] for c in children]
        core = x
        if mask != root:
            matrix = x.reshape(math.prod(shape), -1)
            u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
            rank = rank_of(mask, s)
            core, names = u[:, :rank].reshape(*shape, rank), [mask, *names]
            x = (s[:rank, None] * vh[:rank]).reshape(rank, *x.shape[len(inside) :])
            near.append(number[next(m for m, n in nodes.items() if mask in n.children)])
        pieces[number[mask]] = core if leg is not None else core[None], near
    return assemble(tuple(pieces[k][0].shape[0] for k in range(order)), pieces)


def _rank(singular_values: torch.Tensor, threshold: float) -> int:
    """The smallest rank that drops at most a norm of `threshold`."""
    return max(1, int((tail_norms(singular_values)[:-1] > threshold).sum()))


def _chains(order: Orders, tries: int, setting: Setting) -> list[tuple[int, ...]]:
    p = setting.order
    named = {"stored": tuple(range(p)), "interleaved": interleave(p)}
    if order == "best":
        random = [tuple(int(k) for k in setting.rng.permutation(p)) for _ in range(tries)]
        return list(dict.fromkeys([*named.values(), *random]))
    if isinstance(order, str):
        if order not in named:
            raise OptionError(f"order={order!r} is not 'stored', 'interleaved', 'best' or a permutation")
        return [named[order]]
    chain = tuple(int(k) for k in order)
    if sorted(chain) != list(range(p)):
        raise OptionError(f"order={order!r} is not a permutation of the modes 0..{p - 1}")
    return [chain]


def _bisect(setting: Setting, truncate: Callable[[float], TensorNetwork]) -> Outcome:
    """The best outcome while the threshold is bisected, on the error where the user set one."""
    goal, norm = setting.goal, float(torch.linalg.vector_norm(setting.double))
    best: Outcome | None = None
    for may_drop_more, least in _aims(goal, 2 * setting.order):  # trees have fewer edges
        # Thresholds in logarithms: errors of interest span many orders of magnitude.
        # Singular values below 1e-14 of the norm are rounding.
        low, high = math.log(max(least, 1e-14)), 0.0
        while best is None or high - low >= 1e-4:
            middle = (low + high) / 2
            outcome = setting.outcome(truncate(math.exp(middle) * norm))
            best = outcome if best is None or goal.rank(outcome) < goal.rank(best) else best
            if may_drop_more(outcome):
                low = middle
            else:
                high = middle
        assert best is not None
        if goal.rank(best)[0] < 2:
            break
    assert best is not None
    return best


def _aims(goal: Goal, cuts: int) -> list[tuple[Callable[[Outcome], bool], float]]:
    """Whether more may be dropped, and a threshold at which it surely may.

    By the error; and by the budget, where the error does not fit into it. Errors of the cuts add up in
    squares, so that the error, shared out evenly, is always met.
    """
    aims: list[tuple[Callable[[Outcome], bool], float]] = []
    if goal.max_error is not None:
        aims.append((goal.is_reached, goal.max_error / math.sqrt(cuts)))
    if goal.max_parameters is not None:
        most = goal.max_parameters
        aims.append((lambda outcome: outcome.num_parameters > most, 0.0))
    return aims
