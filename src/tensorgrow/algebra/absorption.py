"""Nodes that lost their leg, contracted into what is left of a network, and networks without any leg.

Every product is brought near one and the powers of two are counted, so that sums over many modes neither
overflow nor vanish on the way. Nothing here makes a network larger.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import count

import torch

from ..contraction.paths import Path, find_path
from ..data.arrays import scale_out
from ..data.devices import check_free
from .arithmetic import LARGE_CORE
from .assembly import Label, Labelled


def contract(nodes: Sequence[Labelled]) -> tuple[Labelled, int]:
    """Contract every label that two of the tensors share.

    Returns
    -------
    product, exponent
        The product over a power of two, and its exponent.
    """
    path, most = _plan(nodes)
    like = nodes[0].data
    check_free(
        most * like.dtype.itemsize,
        like.device,
        f"an intermediate result of {most:,} entries",
        "The graph has wide cuts: round the network first, or take modes away one after the other",
    )
    pool = list(nodes)
    total = 0
    for a, b in path:
        joined, exponent = _join(pool[a], pool[b])
        pool.append(joined)
        total += exponent
    return pool[-1], total


class _Pool:
    """Tensors that are being contracted, in the order they came in, and who holds which label."""

    def __init__(self, nodes: Iterable[Labelled]) -> None:
        self.nodes: dict[Labelled, None] = {}
        self.holders: dict[Label, list[Labelled]] = {}
        for node in nodes:
            self.add(node)

    def add(self, node: Labelled) -> None:
        self.nodes[node] = None
        for label in node.labels:
            self.holders.setdefault(label, []).append(node)

    def remove(self, node: Labelled) -> None:
        del self.nodes[node]
        for label in node.labels:
            self.holders[label].remove(node)

    def beside(self, node: Labelled) -> list[Labelled]:
        """Neighbours, each once."""
        return list(dict.fromkeys(n for x in node.labels for n in self.holders[x] if n is not node))

    def groups(self) -> Iterator[list[Labelled]]:
        """Tensors that hang together."""
        seen: set[Labelled] = set()
        for first in self.nodes:
            if first in seen:
                continue
            group = [first]
            seen.add(first)
            for node in group:  # it grows on the way
                new = [n for n in self.beside(node) if n not in seen]
                seen.update(new)
                group += new
            yield group


def absorb(
    nodes: Sequence[Labelled], legs: Collection[Label], orphans: Collection[Labelled]
) -> tuple[list[Labelled], int]:
    """Contract `orphans`, which lost their leg, with each other and with their neighbours.

    Those that hang together become one node when it is no larger than all of them. Then, the smallest first,
    each is absorbed by the neighbour with which it is smallest, when the product is no larger than the two.
    An internal node that took one in may be absorbed in turn. Numbers go to the smallest core.

    Returns
    -------
    nodes, exponent
        The network is that of the nodes times ``2**exponent``.
    """
    pool, total = _Pool(n for n in nodes if n not in orphans), 0
    movable: set[Labelled] = set()
    turn = count()
    queue: list[tuple[int, int, Labelled]] = []

    def wait(node: Labelled) -> None:
        movable.add(node)
        heapq.heappush(queue, (node.data.numel(), next(turn), node))

    for group in _Pool(orphans).groups():
        if joined_size(group) <= sum(n.data.numel() for n in group) and _plan(group)[1] <= LARGE_CORE:
            joined, exponent = contract(group)
            group, total = [joined], total + exponent
        for node in group:
            pool.add(node)
            wait(node)
    while queue:
        _, _, node = heapq.heappop(queue)
        beside = pool.beside(node) if node in pool.nodes else []
        if not beside:
            continue
        target = min(beside, key=lambda n: joined_size((node, n)))
        if joined_size((node, target)) > node.data.numel() + target.data.numel():
            continue
        joined, exponent = _join(target, node)
        total += exponent
        pool.remove(node)
        pool.remove(target)
        pool.add(joined)
        if not any(label in legs for label in joined.labels):
            wait(joined)
        for near in pool.beside(joined):  # it may now be worth it
            if near in movable:
                wait(near)
    left = list(pool.nodes)
    factors = [n for n in left if not n.labels]
    left = [n for n in left if n.labels]
    smallest = min(left, key=lambda n: n.data.numel())
    for factor in factors:
        product, exponent = _join(smallest, factor)
        smallest.data, total = product.data, total + exponent
    return left, total


def _join(a: Labelled, b: Labelled) -> tuple[Labelled, int]:
    """The product of two tensors over the labels they share, near one, and the exponent left out."""
    shared = [x for x in a.labels if x in b.labels]
    axes = [a.labels.index(x) for x in shared], [b.labels.index(x) for x in shared]
    labels = [x for x in (*a.labels, *b.labels) if x not in shared]
    data, exponent = scale_out(torch.tensordot(a.data, b.data, dims=axes))
    return Labelled(data, labels), exponent


def _plan(nodes: Sequence[Labelled]) -> tuple[Path, int]:
    """An order of contraction, and the entries of its largest result."""
    sizes = {x: n.size(x) for n in nodes for x in n.labels}
    number = {x: k for k, x in enumerate(sizes)}
    by_number = list(sizes.values())
    operands = [[number[x] for x in n.labels] for n in nodes]
    times = Counter(x for labels in operands for x in labels)
    path = find_path(operands, [x for x, n in times.items() if n == 1], by_number.__getitem__)
    pool, most = [set(labels) for labels in operands], 1
    for a, b in path:
        pool.append(pool[a] ^ pool[b])
        most = max(most, math.prod(by_number[x] for x in pool[-1]))
    return path, most


def joined_size(nodes: Sequence[Labelled]) -> int:
    """Entries of the product of some tensors."""
    times = Counter(x for n in nodes for x in n.labels)
    return math.prod(n.size(x) for n in nodes for x in n.labels if times[x] == 1)
