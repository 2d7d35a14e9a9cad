"""Where the nodes of a network are drawn: one answer for every picture and for the report page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import StructureError, check_choice
from ..structure import Edge, Structure

Point = tuple[float, float]


@dataclass(frozen=True)
class Placement:
    """Positions for one structure, in units of the distance between neighbouring legs."""

    nodes: tuple[Point, ...]  # y upwards
    legs: tuple[Point, ...]  # for each node, the unit vector along which a leg points
    controls: dict[Edge, Point]  # edges are quadratic Bézier curves; of straight ones, the middle
    labels: dict[Edge, Point]  # the point of each edge where its rank stands


@dataclass(frozen=True)
class Layout:
    """Legs on a line or on a circle, in an order; internal nodes lie between what they join.

    One layout places every structure over the same legs, so that legs keep still while a network grows. On a
    line, edges that pass over other legs are arcs.

    Attributes
    ----------
    spread
        Widens a circle, to make room inside.
    """

    kind: Literal["line", "circle"]
    order: tuple[int, ...]
    spread: float = 1.0

    def place(self, structure: Structure) -> Placement:
        """Positions of the nodes of `structure`."""
        if structure.order != len(self.order):
            raise StructureError(
                f"this layout is for {len(self.order)} legs, the structure has {structure.order}"
            )
        fixed = self._legs()
        nodes = np.vstack([fixed, _between(structure, fixed, lift=float(self.kind == "line"))])
        bends = np.zeros(len(structure.edges))
        if self.kind == "line":
            legs = np.tile([0.0, -1.0], (structure.num_nodes, 1))
            bends = np.array([_bend(nodes[i], nodes[j]) for i, j in structure.edges])
        else:
            lengths = np.linalg.norm(nodes, axis=1, keepdims=True)
            legs = np.where(lengths > 1e-9, nodes / np.maximum(lengths, 1e-9), [0.0, -1.0])
        controls = {
            (i, j): (nodes[i] + nodes[j]) / 2 + [0.0, bend] for (i, j), bend in zip(structure.edges, bends)
        }
        labels = _label_places(structure.edges, nodes, controls)
        return Placement(
            _points(nodes),
            _points(legs),
            dict(zip(controls, _points(controls.values()))),
            dict(zip(labels, _points(labels.values()))),
        )

    def _legs(self) -> NDArray[np.float64]:
        count = len(self.order)
        slots = np.arange(count)
        if self.kind == "line":
            where = np.stack([slots - (count - 1) / 2, np.zeros(count)], 1)
        else:
            radius = 0.5 / math.sin(math.pi / count) if count > 2 else 0.5 * (count - 1)
            angles = math.pi / 2 - 2 * math.pi * slots / count
            where = self.spread * radius * np.stack([np.cos(angles), np.sin(angles)], 1)
        out = np.empty((count, 2))
        out[list(self.order)] = where
        return out


def _bend(tail: NDArray[np.float64], head: NDArray[np.float64]) -> float:
    """By how much to lift the middle of an edge between legs of a line, to pass above those between them."""
    reach = abs(float(head[0] - tail[0]))
    return 0.6 * reach if reach > 1.5 and tail[1] == head[1] == 0.0 else 0.0


def choose_layout(
    structures: Structure | Sequence[Structure], kind: Literal["auto", "line", "circle"] = "auto"
) -> Layout:
    """Choose a layout for one structure, or for several at once.

    Chains become lines and rings circles, in the order of their nodes. Everything else becomes a circle
    whose order keeps strongly joined legs close. Pictures, films and pages of a run all take the layout of
    the structure that was found, so that a network looks the same in each of them.
    """
    check_choice("layout", kind, ("auto", "line", "circle"))
    many = [structures] if isinstance(structures, Structure) else list(structures)
    if not many:
        raise StructureError("a layout needs at least one structure")
    unique = list(dict.fromkeys(many))
    weights = sum((_leg_weights(s) for s in unique), start=np.zeros((unique[0].order,) * 2))
    chain = None if any(s.internal_nodes for s in unique) else _chain_order(weights)
    if kind == "line":
        return Layout("line", chain or tuple(range(len(weights))))
    if kind == "auto" and chain is not None:
        return Layout("line", chain)
    return Layout("circle", _circle_order(weights), max(_spread_for(s) for s in unique))


def _spread_for(structure: Structure) -> float:
    """How much to widen the circle to make room for what lies inside."""
    p, inside = structure.order, len(structure.internal_nodes)
    crowd = max(0.0, len(structure.edges) / p - 2.0)
    return min(1.0 + 0.4 * (inside > 0) + 0.08 * inside + 0.25 * crowd, 2.0)


def _leg_weights(structure: Structure) -> NDArray[np.float64]:
    """How strongly each pair of legs is joined; internal nodes are eliminated as in a resistor network."""
    p, n = structure.order, structure.num_nodes
    laplacian = _laplacian(n, {edge: math.log(rank) for edge, rank in structure.ranks.items()})
    inside = np.linalg.pinv(laplacian[p:, p:], hermitian=True) if n > p else np.zeros((0, 0))
    reduced = laplacian[:p, :p] - laplacian[:p, p:] @ inside @ laplacian[p:, :p]
    weights = np.where(reduced < -1e-9, -reduced, 0.0)
    np.fill_diagonal(weights, 0.0)
    return np.asarray((weights + weights.T) / 2)


def _laplacian(count: int, weights: Mapping[Edge, float]) -> NDArray[np.float64]:
    out = np.zeros((count, count))
    for (i, j), weight in weights.items():
        out[[i, j], [i, j]] += weight
        out[[i, j], [j, i]] -= weight
    return out


def _chain_order(weights: NDArray[np.float64]) -> tuple[int, ...] | None:
    """Return the legs along a path through all of them; None where they do not form one."""
    count = len(weights)
    if count <= 2:
        return tuple(range(count))
    joined = weights > 0
    pairs = np.argwhere(np.triu(joined))
    if len(pairs) and all(j == i + 1 for i, j in pairs):
        return tuple(range(count))  # pieces of the natural chain count as one
    degrees = joined.sum(0)
    ends = np.flatnonzero(degrees == 1)
    if len(pairs) != count - 1 or degrees.max() > 2 or len(ends) != 2:
        return None
    order = [int(ends[0])]
    while len(order) < count:
        following = [int(k) for k in np.flatnonzero(joined[order[-1]]) if k not in order[-2:]]
        if not following:
            return None  # a shorter path beside a cycle
        order.append(following[0])
    return tuple(order)


def _circle_order(weights: NDArray[np.float64]) -> tuple[int, ...]:
    """Find an order on the circle with a small sum of weight times distance, by swaps and reversals."""
    count = len(weights)
    slots = np.arange(count)
    gap = np.abs(slots[:, None] - slots)
    distance = np.minimum(gap, count - gap).astype(float)

    def cost(order: NDArray[np.int64]) -> float:
        return float((weights[np.ix_(order, order)] * distance).sum())

    best = slots.copy()
    least = cost(best)
    improved = 3 < count <= 40  # a round tries all pairs of legs: too slow for more
    while improved:
        improved = False
        for a in range(count):
            for b in range(a + 1, count):
                swapped, turned = best.copy(), best.copy()
                swapped[[a, b]] = best[[b, a]]
                turned[a : b + 1] = best[a : b + 1][::-1]
                for tried in (swapped, turned):
                    value = cost(tried)
                    if value < least * (1 - 1e-9):
                        best, least, improved = tried, value, True
    best = np.roll(best, -int(np.flatnonzero(best == 0)[0]))
    if count > 2 and best[1] > best[-1]:
        best = np.roll(best[::-1], 1)  # of the two directions, the one that starts with the lower number
    return tuple(int(k) for k in best)


# Free space around the centre of a node, in units of the distance between neighbouring legs.
NODE_CLEARANCE = 0.34


def _between(structure: Structure, fixed: NDArray[np.float64], lift: float) -> NDArray[np.float64]:
    """Internal nodes at the mean of their neighbours, lifted, then pushed apart where they would overlap."""
    p, n = structure.order, structure.num_nodes
    if n == p:
        return np.zeros((0, 2))
    laplacian = _laplacian(n, dict.fromkeys(structure.edges, 1.0))
    inside = np.linalg.pinv(laplacian[p:, p:], hermitian=True) @ (-laplacian[p:, :p] @ fixed)
    # Distinct tiny offsets, so that nodes at the same place have a direction in which to part.
    turns = np.arange(n - p) * 2.399963
    inside = inside + [0.0, lift] + 1e-3 * np.stack([np.cos(turns), np.sin(turns)], 1)
    for _ in range(60):
        everything = np.vstack([fixed, inside])
        away = inside[:, None] - everything[None]
        lengths = np.linalg.norm(away, axis=2)
        lengths[np.arange(n - p), np.arange(p, n)] = math.inf
        overlap = np.maximum(0.0, 2 * NODE_CLEARANCE - lengths)
        if not overlap.any():
            break
        inside = inside + 0.5 * (away / np.maximum(lengths, 1e-9)[..., None] * overlap[..., None]).sum(1)
    return np.asarray(inside)


def _label_places(
    edges: Sequence[Edge], nodes: NDArray[np.float64], controls: Mapping[Edge, NDArray[np.float64]]
) -> dict[Edge, NDArray[np.float64]]:
    """Find places for the labels, clear of nodes and of each other, short edges first."""
    stops = np.array((0.5, 0.42, 0.58, 0.35, 0.65, 0.28, 0.72, 0.22, 0.78))  # best first
    curves = {(i, j): bezier(nodes[i], controls[i, j], nodes[j], stops) for i, j in edges}
    if len(edges) > 120:  # no place would be free
        return {edge: curve[0] for edge, curve in curves.items()}
    lengths = {e: float(np.linalg.norm(nodes[e[0]] - nodes[e[1]])) for e in edges}
    taken = np.empty((0, 2))
    out = {}
    for edge in sorted(edges, key=lambda e: (round(lengths[e], 6), e)):
        tried = curves[edge]
        others = np.delete(nodes, edge, axis=0)
        room = np.full(len(stops), 1.0)
        for obstacles, clearance in ((others, NODE_CLEARANCE), (taken, 0.3)):
            if len(obstacles):
                near = np.linalg.norm(tried[:, None] - obstacles[None], axis=2).min(1)
                room = np.minimum(room, near / clearance)
        best = int(np.argmax(np.round(np.minimum(room, 1.0), 3)))
        out[edge] = tried[best]
        taken = np.vstack([taken, tried[best]])
    return out


def bezier(tail: ArrayLike, control: ArrayLike, head: ArrayLike, stops: ArrayLike) -> NDArray[np.float64]:
    """Points ``(n, 2)`` of a quadratic curve at `stops` between 0 and 1."""
    t = np.asarray(stops, dtype=float)[:, None]
    ends = (1 - t) ** 2 * np.asarray(tail) + t**2 * np.asarray(head)
    return np.asarray(ends + 2 * t * (1 - t) * np.asarray(control))


def _points(array: Iterable[NDArray[np.float64]]) -> tuple[Point, ...]:
    return tuple((float(x), float(y)) for x, y in array)
