"""Networks without cycles: the gauge in which singular values are errors, truncation, other trees.

With all cores but one orthonormal towards that one, the *centre*, its norm is that of the whole tensor. The
singular values of the centre across one of its edges are then those of the tensor across that cut: dropping
some of them is the best approximation there is. Two joined nodes can also share their other edges in any
other way, and the same singular values tell which one needs the fewest parameters. Such moves lead from a
train in a wrong order of its legs to one in the right order, and from a train to other trees.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

import torch

from ..structure import Edge, Structure
from .spectra import tail_norms


def smallest_tree(forest: Forest, each: float, generator: torch.Generator) -> Forest:
    """A smaller tree for the same tensor, by moves of which each drops at most `each` of its norm.

    Moves that help are made until there is none, then a few at random, and so on; what they lead to is kept
    where it is not larger.
    """
    best, failures = _settled(forest.copy(), each), 0
    # So many in a row without a gain: in trains of 30 legs, all that was found was found by then.
    while failures < 40:
        trial = best.copy()
        trial.shake(each, generator)
        trial = _settled(trial, each)
        failures = 0 if trial.num_parameters < best.num_parameters else failures + 1
        if trial.num_parameters <= best.num_parameters:
            best = trial
    return best


def _settled(forest: Forest, each: float) -> Forest:
    for _ in range(100):  # far more rounds than there ever are changes
        if not forest.reconnect(each):
            break
    return forest


def is_forest(structure: Structure) -> bool:
    """Whether a graph has no cycle."""
    group = list(range(structure.num_nodes))
    for i, j in structure.edges:
        if group[i] == group[j]:
            return False
        group = [group[i] if g == group[j] else g for g in group]
    return True


class Forest:
    """A network without cycles, changed in place; parts of it that nothing joins are joined by rank 1.

    Parameters
    ----------
    structure, cores
        A network without cycles.

    Attributes
    ----------
    norm
        Of the tensor.
    lost
        Norm of what was dropped, at most.
    """

    def __init__(self, structure: Structure, cores: Sequence[torch.Tensor]) -> None:
        self.dims = structure.dims
        self._cores = list(cores)
        self._around = [list(near) for near in structure.neighbours]
        self.lost = 0.0
        self._each = 0.0
        self._known: dict[int, tuple[int, float]] = {}  # rank and entropy of cuts that were looked at
        reached = set(self._walk(0))
        for k in range(1, structure.num_nodes):
            if k not in reached:
                self._join(0, k)
                reached |= set(self._walk(k))
        self._centre = 0
        order = self._walk(0)
        parents = {k: j for j in order for k in self._around[j] if order.index(k) > order.index(j)}
        for k in reversed(order[1:]):
            self._push(k, parents[k])
        self.norm = float(torch.linalg.vector_norm(self._cores[0]))

    def copy(self) -> Forest:
        """Another one to change."""
        other = object.__new__(Forest)
        other.__dict__.update(self.__dict__)
        other._cores, other._around = list(self._cores), [list(near) for near in self._around]
        return other

    @property
    def num_parameters(self) -> int:
        """Entries of all cores."""
        return sum(c.numel() for c in self._cores)

    def network(self) -> tuple[Structure, list[torch.Tensor]]:
        """Structure and cores."""
        ranks: dict[Edge, int] = {}
        for k, near in enumerate(self._around):
            for axis, j in enumerate(near, 1):
                ranks[min(k, j), max(k, j)] = self._cores[k].shape[axis]
        structure = Structure(self.dims, ranks, num_nodes=len(self._cores))
        cores = []
        for k, core in enumerate(self._cores):
            order = sorted(range(len(self._around[k])), key=self._around[k].__getitem__)
            cores.append(
                core.permute(0, *(1 + a for a in order)).reshape(structure.core_shape(k)).contiguous()
            )
        return structure, cores

    def spectra(self) -> Iterator[tuple[int, torch.Tensor]]:
        """Legs on one side of some cuts, as a bit mask, and the singular values across them.

        The cuts are those at every edge, and those that separate two joined nodes from all others.
        """
        for i, j in self._edges():
            self._move_to(i)
            yield self._mask(j, i), torch.linalg.svdvals(self._matrix(i, j))
            mine, theirs = ([k for k in self._around[a] if k != b] for a, b in ((i, j), (j, i)))
            rows = [self._matrix(a, b).shape[0] for a, b in ((i, j), (j, i))]
            if mine + theirs and math.prod(rows) <= 1 << 16:
                left, right = self._in_order(i, [*mine, j]), self._in_order(j, [i, *theirs])
                joint = torch.tensordot(left, right.movedim(1, 0), 1).movedim(1 + len(mine), 1)
                values = torch.linalg.svdvals(joint.reshape(joint.shape[0] * joint.shape[1], -1))
                yield self._leg_mask(i) + self._leg_mask(j), values

    def truncate(self, allowed: float) -> None:
        """Drop singular values, in all not more than `allowed` of the norm of the tensor."""
        edges = self._edges()
        each = allowed * self.norm / math.sqrt(max(len(edges), 1))
        for i, j in edges:
            self._move_to(i)
            self._cut(i, j, each)

    def reconnect(self, each: float) -> bool:
        """Let every two joined nodes share their other edges in the way that needs the fewest parameters.

        Every change may drop `each` of the norm of the tensor. True where there was a change.
        """
        changed = False
        if each != self._each:
            self._each, self._known = each, {}
        for i, j in self._edges():
            if j in self._around[i]:
                self._move_to(i)
                changed |= self._reconnect(i, j, each * self.norm)
        return changed

    def shake(self, each: float, generator: torch.Generator) -> None:
        """Let a few pairs of joined nodes share their other edges in any way."""
        for _ in range(3):
            edges = self._edges()
            i, j = edges[int(torch.randint(len(edges), (), generator=generator))]
            self._move_to(i)
            self._reconnect(i, j, each * self.norm, generator)

    # -- one edge --------------------------------------------------------------------------------------

    def _reconnect(self, i: int, j: int, allowed: float, generator: torch.Generator | None = None) -> bool:
        """Share the edges of two joined nodes anew, at random with a generator; the first is the centre."""
        mine, theirs = ([k for k in self._around[a] if k != b] for a, b in ((i, j), (j, i)))
        rows = [self._matrix(a, b).shape[0] for a, b in ((i, j), (j, i))]
        now = best = tuple(mine)
        joint, names = torch.empty(0), [-1, *mine, -2, *theirs]  # of its axes; -1 and -2 are the legs
        # Of larger ones an SVD takes 0.03 s and more, and there are up to a dozen ways for every edge.
        if mine + theirs and math.prod(rows) <= 1 << 16:
            left, right = self._in_order(i, [*mine, j]), self._in_order(j, [i, *theirs])
            joint = torch.tensordot(left, right.movedim(1, 0), 1)
            best = self._best_group(i, j, joint, names, allowed)
            if generator is not None:
                groups = list(_groups(mine + theirs, now))
                best = groups[int(torch.randint(len(groups), (), generator=generator))]
        if best == now:
            self._cut(i, j, allowed)
            return False
        rest = [k for k in mine + theirs if k not in best]
        for k, old, new in (*((k, j, i) for k in best), *((k, i, j) for k in rest)):
            self._around[k] = [new if n == old else n for n in self._around[k]]
        u, s, vh = torch.linalg.svd(_matricize(joint, names, best), full_matrices=False)
        rank = self._drop(s, allowed)
        size = {n: joint.shape[axis] for axis, n in enumerate(names)}
        self._around[i], self._around[j] = [*best, j], [i, *rest]
        self._cores[i] = u[:, :rank].reshape(size[-1], *(size[k] for k in best), rank)
        right = (s[:rank, None] * vh[:rank]).reshape(rank, size[-2], *(size[k] for k in rest))
        self._cores[j] = right.movedim(0, 1)
        self._centre = j
        return True

    def _best_group(
        self, i: int, j: int, joint: torch.Tensor, names: Sequence[int], allowed: float
    ) -> tuple[int, ...]:
        """Edges that stay with the first of two nodes, so that both have the fewest parameters."""
        edges = [k for k in names if k >= 0]
        now = tuple(k for k in self._around[i] if k != j)
        masks = {k: self._mask(k, i if k in now else j) for k in edges} | {-1: self._leg_mask(i)}
        best, key = now, (math.inf, math.inf)
        largest = max(4096, *(c.numel() for c in self._cores))  # growth of a core beyond that seldom pays
        for group in _groups(edges, now):
            matrix = _matricize(joint, names, group)
            if sum(matrix.shape) > key[0]:
                continue  # even with rank 1
            cut = sum(masks[k] for k in (-1, *group))
            if cut not in self._known:
                values = torch.linalg.svdvals(matrix)
                self._known[cut] = _rank(values, allowed), _entropy(values)
            rank, entropy = self._known[cut]
            # Another way must gain something: ties would go back and forth.
            new = rank * sum(matrix.shape), entropy + 1e-6 * (group != now)
            if new < key and (group == now or rank * max(matrix.shape) <= largest):
                key, best = new, group
        return best

    def _cut(self, i: int, j: int, allowed: float) -> None:
        """Truncate an edge of the centre `i` and make `j` the centre."""
        u, s, vh = torch.linalg.svd(self._matrix(i, j), full_matrices=False)
        rank = self._drop(s, allowed)
        self._replace(i, j, u[:, :rank], s[:rank, None] * vh[:rank])

    def _push(self, i: int, j: int) -> None:
        """Make core `i` orthonormal towards `j`, exactly."""
        self._replace(i, j, *torch.linalg.qr(self._matrix(i, j)))

    def _replace(self, i: int, j: int, basis: torch.Tensor, rest: torch.Tensor) -> None:
        axis = 1 + self._around[i].index(j)
        core = self._cores[i].movedim(axis, -1)
        self._cores[i] = basis.reshape(*core.shape[:-1], basis.shape[1]).movedim(-1, axis)
        axis = 1 + self._around[j].index(i)
        self._cores[j] = torch.tensordot(self._cores[j], rest, ([axis], [1])).movedim(-1, axis)
        self._centre = j

    def _drop(self, values: torch.Tensor, allowed: float) -> int:
        """How many singular values to keep."""
        rank = _rank(values, allowed)
        self.lost = math.hypot(self.lost, float(tail_norms(values)[rank]))
        return rank

    # -- the graph -------------------------------------------------------------------------------------

    def _edges(self) -> list[Edge]:
        """Edges on a walk that goes from each to a neighbouring one, where there is one."""
        order = self._walk(self._leaf())
        place = {k: n for n, k in enumerate(order)}
        return [(i, j) for j in order for i in self._around[j] if place[i] < place[j]]

    def _leaf(self) -> int:
        return next(k for k, near in enumerate(self._around) if len(near) <= 1)

    def _walk(self, start: int, without: int | None = None) -> list[int]:
        """Nodes that are joined to `start`, each after one of its neighbours."""
        order: dict[int, None] = {}
        waiting = [start]
        while waiting:
            k = waiting.pop()
            order[k] = None
            waiting += [j for j in self._around[k] if j not in order and not (k == start and j == without)]
        return list(order)

    def _mask(self, node: int, without: int) -> int:
        """Legs on the side of a node, seen from its neighbour `without`."""
        return sum(map(self._leg_mask, self._walk(node, without)))

    def _leg_mask(self, node: int) -> int:
        return 1 << node if node < len(self.dims) else 0

    def _move_to(self, node: int) -> None:
        """Make a node the centre."""
        order = self._walk(node)
        while self._centre != node:
            near = [k for k in self._around[self._centre] if order.index(k) < order.index(self._centre)]
            self._push(self._centre, near[0])  # the only one that is closer

    def _join(self, i: int, j: int) -> None:
        for a, b in ((i, j), (j, i)):
            self._around[a].append(b)
            self._cores[a] = self._cores[a].unsqueeze(-1)

    def _matrix(self, i: int, j: int) -> torch.Tensor:
        """A core, with its axis towards `j` as columns."""
        core = self._cores[i].movedim(1 + self._around[i].index(j), -1)
        return core.reshape(-1, core.shape[-1])

    def _in_order(self, node: int, order: Sequence[int]) -> torch.Tensor:
        return self._cores[node].permute(0, *(1 + self._around[node].index(k) for k in order))


def _matricize(joint: torch.Tensor, names: Sequence[int], group: Sequence[int]) -> torch.Tensor:
    """Two joined cores as a matrix: the first leg and a group of edges by the second leg and the others."""
    rows = [names.index(n) for n in (-1, *group)]
    columns = [names.index(-2), *(a for a, n in enumerate(names) if n >= 0 and n not in group)]
    return joint.permute(*rows, *columns).reshape(math.prod(joint.shape[a] for a in rows), -1)


def _groups(edges: Sequence[int], now: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Edges that may stay with the first of two nodes: the present ones, then all others of low degree."""
    yield now
    for count in range(len(edges) + 1):
        # Nodes with more than three edges have large cores, and cores of small ones can take what they had.
        if max(count, len(edges) - count) <= max(2, len(edges) // 2):
            for group in combinations(edges, count):
                if set(group) != set(now):
                    yield group


def _rank(values: torch.Tensor, allowed: float) -> int:
    return max(1, int((tail_norms(values) > allowed).sum()))


def _entropy(values: torch.Tensor) -> float:
    """Of the squared singular values: what is left to gain where ranks do not tell yet."""
    weights = values.double() ** 2
    weights = weights[weights > 0] / (float(weights.sum()) or 1.0)
    return float(-(weights * weights.log()).sum())
