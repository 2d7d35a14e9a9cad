"""Moves between structures: grow, shrink, split, merge, and other slices of a leg.

Every move takes a structure with its cores and returns another one; inputs are not touched. Growing with zero
slices, splitting without truncation and merging leave the represented tensor unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import torch
from torch.nn import functional

from ..errors import StructureError
from ..structure import Edge, Structure
from .linalg import on_host
from .spectra import multiply_axis, tail_norms

Cores = Sequence[torch.Tensor]
Move = tuple[Structure, list[torch.Tensor]]


def grow(
    structure: Structure, cores: Cores, i: int, j: int, slice_i: torch.Tensor, slice_j: torch.Tensor
) -> Move:
    """Raise the rank of edge ``(i, j)`` by one, keeping all weights (line 8-10 of Algorithm 1).

    ``slice_i`` has the shape of core ``i`` without the edge's axis, and likewise ``slice_j``.
    """
    grown = structure.with_rank(i, j, structure.rank(i, j) + 1)
    out = list(cores)
    for node, other, new in ((i, j, slice_i), (j, i, slice_j)):
        axis = grown.axis(node, other)
        core = cores[node]
        if structure.rank(i, j) == 1:
            core = core.unsqueeze(axis)
        shape = list(grown.core_shape(node))
        shape[axis] = 1
        if math.prod(shape) != new.numel():
            del shape[axis]
            raise StructureError(
                f"the new slice of node {node} has shape {tuple(new.shape)}; {tuple(shape)} is needed"
            )
        out[node] = torch.cat([core, new.reshape(shape).to(core)], axis)
    return grown, out


def part(
    structure: Structure, cores: Cores, i: int, j: int, slice_i: torch.Tensor, slice_j: torch.Tensor
) -> Move:
    """The tensor that `grow` gives, by parting a component in two.

    In place of the strongest component ``a b`` of the edge and the new one ``u v`` come half of ``(a + su)
    (b + tv)`` and half of ``(a - su) (b - tv)``, with ``st = 1``. Where slices are small, the signs are those
    of the old component: cores without negative entries can take in a change of any sign.
    """
    grown, out = grow(structure, cores, i, j, slice_i, slice_j)
    axes = grown.axis(i, j), grown.axis(j, i)
    ends = [out[node].movedim(axis, -1).clone() for node, axis in zip((i, j), axes)]
    one, two = (torch.linalg.vector_norm(c.reshape(-1, c.shape[-1]), dim=0) for c in ends)
    sizes = one * two
    strongest = int(sizes[:-1].argmax())
    if not (float(sizes[strongest]) > 0.0 and float(sizes[-1]) > 0.0):
        return grown, out
    share = (sizes[-1] / sizes[strongest]).sqrt()  # of the norms of a and b, that su and tv have
    for node, axis, core, norms, factor in zip((i, j), axes, ends, (one, two), (1.0, 0.5)):
        old, new = core[..., strongest].clone(), core[..., -1] * (share * norms[strongest] / norms[-1])
        core[..., strongest], core[..., -1] = factor * (old + new), factor * (old - new)
        out[node] = core.movedim(-1, axis).contiguous()
    return grown, out


def take(structure: Structure, cores: Cores, leg: int, slices: Sequence[int]) -> Move:
    """Give a leg other slices, each by its number; -1 stands for a new one, which is the mean of the old."""
    old = torch.as_tensor(slices, device=cores[leg].device)
    if not len(old) or int(old.min()) < -1 or int(old.max()) >= structure.dims[leg]:
        raise StructureError(
            f"leg {leg} has slices 0 to {structure.dims[leg] - 1}; some of them are needed, -1 for new ones"
        )
    core = cores[leg][old.clamp_min(0)]
    core[old < 0] = cores[leg].mean(0)
    dims = [len(old) if k == leg else d for k, d in enumerate(structure.dims)]
    return structure.with_dims(dims), [core if k == leg else c for k, c in enumerate(cores)]


def grow_many(
    structure: Structure,
    cores: Cores,
    slices: Mapping[Edge, tuple[torch.Tensor, torch.Tensor]],
    *,
    passing: Collection[int] = (),
) -> Move:
    """Raise the ranks of several edges by one each; what joins two new slices of a core is zero.

    The slices of an edge have the sizes that `grow` needs for it alone. Nodes in `passing` where two or more
    of the edges meet get a one at the first entry of their leg that joins all new slices: what enters along
    one edge leaves along the others.
    """
    grown = raise_ranks(structure, slices)
    out = list(cores)
    mine: dict[int, dict[int, torch.Tensor]] = {}
    for (i, j), (left, right) in slices.items():
        mine.setdefault(i, {})[j] = left
        mine.setdefault(j, {})[i] = right
    for node, new in mine.items():
        around = grown.neighbours[node]
        old, room, core = _make_room(structure, grown, node, cores[node])
        for axis, k in enumerate(around, 1):
            if k not in new:
                continue
            shape = [1 if a == axis else size for a, size in enumerate(old)]
            before = [old[a] if a == axis else 0 for a in range(len(old))]
            after = [0 if a == axis else r for a, r in enumerate(room)]
            core = core + functional.pad(new[k].reshape(shape).to(core), padding(before, after))
        if node in passing and len(new) > 1:
            link = torch.zeros_like(core)
            link[(0, *(old[a] if k in new else 0 for a, k in enumerate(around, 1)))] = 1.0
            core = core + link
        out[node] = core
    return grown, out


def add_term(
    structure: Structure, cores: Cores, vectors: Sequence[torch.Tensor], edges: Collection[Edge]
) -> Move:
    """The network plus a rank-one tensor, carried by one more rank on each of `edges`, a spanning tree.

    `vectors` has one vector per node, of the length of its leg.
    """
    grown = raise_ranks(structure, edges)
    out = []
    for node, (core, vector) in enumerate(zip(cores, vectors)):
        old, room, padded = _make_room(structure, grown, node, core)
        padded = padded.clone()
        # The new rank of every edge that carries the term, the first of the others: nothing else is joined.
        where = tuple(size if carries else 0 for size, carries in zip(old[1:], room[1:]))
        padded.movedim(0, -1)[where] += vector.to(core)
        out.append(padded)
    return grown, out


def raise_ranks(structure: Structure, edges: Collection[Edge]) -> Structure:
    """One rank more on each of some edges."""
    ranks = dict(structure.ranks) | {(i, j): structure.rank(i, j) + 1 for i, j in edges}
    return Structure(structure.dims, ranks, num_nodes=structure.num_nodes)


def _make_room(
    structure: Structure, grown: Structure, node: int, core: torch.Tensor
) -> tuple[list[int], list[int], torch.Tensor]:
    """Old shape of a core with all axes, what each of them gains, and the core padded with zeros."""
    around = grown.neighbours[node]
    old = [structure.leg_dim(node), *(structure.rank(node, k) for k in around)]
    room = [new - size for new, size in zip(grown.core_shape(node), old)]
    return old, room, functional.pad(core.reshape(old), padding([0] * len(old), room))


def padding(before: Sequence[int], after: Sequence[int]) -> list[int]:
    """The order `torch.nn.functional.pad` wants: last axis first."""
    return [n for pair in zip(reversed(before), reversed(after)) for n in pair]


def shrink(structure: Structure, cores: Cores, i: int, j: int, keep: Sequence[int]) -> Move:
    """Keep only the rank components `keep` of edge ``(i, j)``."""
    rank = structure.rank(i, j)
    if not keep or any(not 0 <= c < rank for c in keep) or len(set(keep)) < len(keep):
        raise StructureError(f"edge ({i}, {j}) has components 0..{rank - 1}; cannot keep {tuple(keep)}")
    shrunk = structure.with_rank(i, j, len(keep))
    out = list(cores)
    if rank == 1:
        return shrunk, out
    for node, other in ((i, j), (j, i)):
        axis = structure.axis(node, other)
        if list(keep) == list(range(len(keep))):
            core = cores[node].narrow(axis, 0, len(keep))
        else:
            core = cores[node].index_select(axis, torch.as_tensor(keep, device=cores[node].device))
        out[node] = core.reshape(shrunk.core_shape(node)).contiguous()
    return shrunk, out


def split(
    structure: Structure,
    cores: Cores,
    node: int,
    axes: Sequence[int],
    *,
    rank: int | None = None,
    threshold: float = 1e-12,
    inverse_roots: Sequence[torch.Tensor] | None = None,
    whitened: torch.Tensor | None = None,
) -> tuple[Structure, list[torch.Tensor], float]:
    """Split `node` in two by a truncated SVD; the part without the dangling leg becomes a new internal node.

    Parameters
    ----------
    axes
        Axes of the core that stay together: 0 is the dangling leg, then the edges by ascending neighbour.
    rank
        Rank of the new edge. By default the smallest whose dropped singular values have norm at most
        `threshold` relative to all of them.
    inverse_roots, whitened
        The core in the gauge in which singular values measure the error of the tensor, and the way back, from
        `whiten_core`. By default the unchanged core.

    Returns
    -------
    structure, cores, dropped
        `dropped` is the norm of the dropped singular values relative to all of them.
    """
    (core,) = on_host([cores[node]]) if whitened is None else (whitened,)
    ndim = core.dim()
    stay = tuple(sorted(set(axes)))
    if 0 not in stay:
        stay = tuple(a for a in range(ndim) if a not in stay)
    leave = tuple(a for a in range(ndim) if a not in stay)
    if not leave or any(not 0 <= a < ndim for a in axes):
        raise StructureError(
            f"cannot split node {node} at axes {tuple(axes)}: its core has axes 0..{ndim - 1}, and each side "
            "of a split needs at least one"
        )
    rows = math.prod(core.shape[a] for a in stay)
    matrix = core.permute(*stay, *leave).reshape(rows, -1)
    u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
    tails = tail_norms(s)
    total = float(tails[0]) or 1.0
    if rank is None:
        rank = max(1, int((tails[1:] > threshold * total).sum()) + 1)
    rank = min(rank, len(s))
    root = s[:rank].sqrt().to(u.dtype)
    left = (u[:, :rank] * root).reshape([core.shape[a] for a in stay] + [rank])
    right = (root[:, None] * vh[:rank]).reshape([rank] + [core.shape[a] for a in leave])
    if inverse_roots is not None:
        for position, axis in enumerate(stay):
            if axis > 0:
                left = multiply_axis(left, inverse_roots[axis - 1], position)
        for position, axis in enumerate(leave):
            right = multiply_axis(right, inverse_roots[axis - 1], position + 1)

    new = structure.num_nodes
    moved = [structure.neighbours[node][a - 1] for a in leave]
    after = split_structure(structure, node, moved, rank)
    out, where = list(cores), cores[node].device
    # The new edge is last: `new` is the largest number.
    out[node] = left.to(where).reshape(after.core_shape(node)).contiguous()
    # The new core's axes: edge to `node`, then `moved`. Its neighbours ascending may put `node` elsewhere.
    order = [node, *moved] if rank > 1 else moved
    core_new = (right if rank > 1 else right.squeeze(0)).to(where)
    core_new = core_new.permute([order.index(k) for k in after.neighbours[new]])
    out.append(core_new.reshape(after.core_shape(new)).contiguous())
    for k in moved:  # the edge to `node` becomes the edge to `new`, the last axis
        out[k] = cores[k].movedim(structure.axis(k, node), -1).contiguous()
    return after, out, float(tails[rank]) / total


def span_leaf(structure: Structure, cores: Cores, leaf: int, basis: torch.Tensor) -> Move:
    """Replace the core of a node with one edge by a basis; its neighbour takes in what the core was in it."""
    (near,) = structure.neighbours[leaf]
    edge, out = (min(leaf, near), max(leaf, near)), list(cores)
    inside = basis.mH @ cores[leaf]
    out[near] = multiply_axis(cores[near], inside.T, structure.axis(near, leaf)).contiguous()
    out[leaf] = basis.contiguous()
    return Structure(
        structure.dims, {**structure.ranks, edge: basis.shape[1]}, num_nodes=structure.num_nodes
    ), out


def split_structure(structure: Structure, node: int, moved: Sequence[int], rank: int) -> Structure:
    """Structure after the edges of `node` to the nodes `moved` go to a new internal node."""
    new, ranks = structure.num_nodes, dict(structure.ranks)
    for k in moved:
        ranks[min(k, new), max(k, new)] = ranks.pop((min(node, k), max(node, k)))
    ranks[node, new] = rank
    return Structure(structure.dims, ranks, num_nodes=new + 1)


def merge_structure(structure: Structure, target: int, absorbed: int) -> Structure:
    """Structure after `absorbed` (an added internal node) is contracted into `target`."""
    if absorbed < structure.order:
        inner = f"internal nodes are {structure.order}..{structure.num_nodes - 1}"
        inner = inner if structure.internal_nodes else "there are no internal nodes"
        raise StructureError(f"node {absorbed} holds a leg of the data and cannot be absorbed; {inner}")
    ranks: dict[Edge, int] = {}
    for (i, j), rank in structure.ranks.items():
        a, b = sorted(_renumber(target if k == absorbed else k, absorbed) for k in (i, j))
        if a != b:  # parallel edges are fused
            ranks[a, b] = ranks.get((a, b), 1) * rank
    return Structure(structure.dims, ranks, num_nodes=structure.num_nodes - 1)


def _renumber(node: int, absorbed: int) -> int:
    return node - (node > absorbed)


def merge(structure: Structure, cores: Cores, target: int, absorbed: int) -> Move:
    """Contract internal node `absorbed` into `target`; edges to a common neighbour are fused. Exact."""
    after = merge_structure(structure, target, absorbed)
    mine = [k for k in structure.neighbours[target] if k != absorbed]
    theirs = [k for k in structure.neighbours[absorbed] if k != target]
    a = cores[target]
    b = cores[absorbed].squeeze(0)
    if structure.rank(target, absorbed) > 1:
        others = structure.neighbours[absorbed]
        joined = torch.tensordot(a, b, ([structure.axis(target, absorbed)], [others.index(target)]))
    else:
        joined = torch.tensordot(a, b, 0)
    # Axes: leg, mine..., theirs...; bring the two edges of a common neighbour side by side and fuse them.
    both = [*mine, *theirs]
    order = sorted(range(len(both)), key=both.__getitem__)
    out = [c for k, c in enumerate(cores) if k != absorbed]
    new = _renumber(target, absorbed)
    out[new] = joined.permute(0, *(1 + n for n in order)).reshape(after.core_shape(new)).contiguous()
    for k in theirs:
        # In a neighbour's core the edge to `absorbed` moves next to the edge to `target`.
        ends = [(target, 1) if x == absorbed else (x, 0) for x in structure.neighbours[k]]
        moved = cores[k].permute(0, *(1 + n for n in sorted(range(len(ends)), key=ends.__getitem__)))
        new = _renumber(k, absorbed)
        out[new] = moved.reshape(after.core_shape(new)).contiguous()
    return after, out
