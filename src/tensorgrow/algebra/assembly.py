"""Any set of labelled tensors as a network: what imports and all changes of modes share.

Labels allow what a `Structure` does not have: tensors with several open legs, several bonds between two
tensors, indices shared by three and more tensors, traces, axes of size one. All of it is rewritten exactly,
with identities and copy tensors where a node more is needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count

import torch

from ..errors import StructureError
from ..structure import Edge, Structure

Label = Hashable


@dataclass(eq=False)
class Labelled:
    """A tensor with one label per axis; equal labels are contracted."""

    data: torch.Tensor
    labels: list[Label]
    source: int | None = None  # its number among the tensors that came in; None for copies and identities

    def rename(self, old: Label, new: Label) -> None:
        self.labels[self.labels.index(old)] = new

    def size(self, label: Label) -> int:
        return int(self.data.shape[self.labels.index(label)])


@dataclass(frozen=True)
class _NewLabel:
    """A label of our own: never equal to one of the caller's."""

    kind: str
    number: int


@dataclass(frozen=True)
class Assembled:
    """A structure and its cores, and what they were before.

    Attributes
    ----------
    sources
        For every node the number of the tensor it was; None where a node had to be added.
    bonds
        Label of every edge.
    """

    structure: Structure
    cores: list[torch.Tensor]
    sources: tuple[int | None, ...]
    bonds: dict[Edge, Label]


def label_cores(structure: Structure, cores: Iterable[torch.Tensor], name: str = "") -> list[Labelled]:
    """The cores with labels: ``(name, k)`` for leg ``k``, ``(name, i, j)`` for the edge between two nodes."""
    nodes = []
    for k, core in enumerate(cores):
        bonds: list[Label] = [(name, *edge) for edge in structure.edges_of(k)]
        is_leg = k < structure.order
        nodes.append(Labelled(core if is_leg else core[0], [(name, k), *bonds] if is_leg else bonds, k))
    return nodes


def assemble(nodes: list[Labelled], open_labels: Sequence[Label]) -> Assembled:
    """Build the structure and the cores of labelled tensors.

    Parameters
    ----------
    nodes
        A label in two tensors is a bond; in more, all of them are joined; in one and not open, it is summed
        over. The list and its tensors' labels are changed.
    open_labels
        Labels of the legs, in the order of the represented tensor's axes.

    Returns
    -------
    Assembled
        Node ``k`` has leg ``k``. Tensors without a leg become internal nodes in the order they come in, then
        follow the copy tensors, which join three and more tensors. Of several legs of one tensor the largest
        stays with it, and the others get an identity of their own.
    """
    legs = list(open_labels)
    _check(nodes, legs)
    _contract_own(nodes, legs)
    _drop_singles(nodes, legs)
    _insert_copies(nodes, legs)
    _one_leg_each(nodes, legs)
    _drop_singles(nodes, legs)  # legs of size one now have bonds of size one
    _fuse_parallel(nodes, legs)
    return _network(nodes, legs)


def _check(nodes: list[Labelled], legs: list[Label]) -> None:
    sizes: dict[Label, int] = {}
    for node in nodes:
        for label, size in zip(node.labels, node.data.shape):
            if sizes.setdefault(label, size) != size:
                raise StructureError(
                    f"index {label!r} has size {sizes[label]} in one tensor and {size} in another"
                )
            if size == 0:
                raise StructureError(f"index {label!r} has size 0; sizes start at 1")
    if not legs:
        raise StructureError(
            "all indices are contracted: the result is a number, and a network needs an open index"
        )
    for label, times in Counter(legs).items():
        if label not in sizes:
            raise StructureError(f"the open index {label!r} is in no tensor; there are {list(sizes)}")
        if times > 1:
            raise StructureError(f"the open index {label!r} is named {times} times; name each once")


def _contract_own(nodes: list[Labelled], legs: list[Label]) -> None:
    """Take diagonals of labels a tensor has twice, and sum over those that are its own and not open."""
    holders = Counter(x for node in nodes for x in set(node.labels))
    for node in nodes:
        number = {x: k for k, x in enumerate(dict.fromkeys(node.labels))}
        left = [x for x in number if holders[x] > 1 or x in legs]
        if left != node.labels:
            node.data = torch.einsum(node.data, [number[x] for x in node.labels], [number[x] for x in left])
            node.labels = left


def _insert_copies(nodes: list[Labelled], legs: list[Label]) -> None:
    """Join the ends of an index, where it has more than two, by a chain of copy tensors of order three."""
    numbers = count()
    for label, ends in _ends(nodes).items():
        is_leg = label in legs
        if len(ends) + is_leg <= 2:
            continue
        holders = [nodes[k] for k in ends]
        size = holders[0].size(label)
        names: list[Label] = [label] if is_leg else []
        for holder in holders:
            names.append(_NewLabel("end", next(numbers)))
            holder.rename(label, names[-1])
        copy = holders[0].data.new_zeros((size,) * 3)
        diagonal = torch.arange(size, device=copy.device)
        copy[diagonal, diagonal, diagonal] = 1.0
        while len(names) > 3:
            link = _NewLabel("link", next(numbers))
            nodes.append(Labelled(copy.clone(), [*names[:2], link]))
            names = [link, *names[2:]]
        nodes.append(Labelled(copy, names))


def _ends(nodes: Sequence[Labelled], without: Collection[Label] = ()) -> dict[Label, list[int]]:
    """For each label, the numbers of the tensors that have it."""
    ends: dict[Label, list[int]] = {}
    for k, node in enumerate(nodes):
        for label in node.labels:
            if label not in without:
                ends.setdefault(label, []).append(k)
    return ends


def _one_leg_each(nodes: list[Labelled], legs: list[Label]) -> None:
    """Leave every tensor its largest leg; the others move to identities of their own."""
    for number, node in enumerate(list(nodes)):
        mine = [x for x in node.labels if x in legs]
        for k, leg in enumerate(sorted(mine, key=node.size)[:-1]):
            bond = _NewLabel(f"leg {k}", number)
            identity = torch.eye(node.size(leg), dtype=node.data.dtype, device=node.data.device)
            node.rename(leg, bond)
            nodes.append(Labelled(identity, [leg, bond]))


def _drop_singles(nodes: list[Labelled], legs: list[Label]) -> None:
    """Drop axes of size one that are no legs."""
    for node in nodes:
        left = [x for x in node.labels if x in legs or node.size(x) > 1]
        node.data = node.data.reshape([node.size(x) for x in left])
        node.labels = left


def _fuse_parallel(nodes: list[Labelled], legs: list[Label]) -> None:
    """Make one axis of all the bonds between two tensors."""
    bonds: dict[tuple[int, ...], list[Label]] = {}
    for label, ends in _ends(nodes, legs).items():
        bonds.setdefault(tuple(ends), []).append(label)
    for number, (pair, labels) in enumerate(bonds.items()):
        if len(labels) == 1:
            continue
        for node in (nodes[k] for k in pair):
            axes = [node.labels.index(x) for x in labels]
            others = [a for a in range(node.data.dim()) if a not in axes]
            shape = [node.data.shape[a] for a in others]
            node.data = node.data.permute(others + axes).reshape(*shape, -1)
            node.labels = [*(node.labels[a] for a in others), _NewLabel("fused", number)]


def _network(nodes: list[Labelled], legs: list[Label]) -> Assembled:
    where = {leg: k for k, leg in enumerate(legs)}
    first = {where[x]: n for n in nodes for x in n.labels if x in where}
    ordered = [first[k] for k in range(len(legs))] + [n for n in nodes if not where.keys() & set(n.labels)]
    dims = [n.size(leg) for n, leg in zip(ordered, legs)]
    ends = _ends(ordered, where)
    bonds: dict[Edge, Label] = {(i, j): label for label, (i, j) in ends.items()}
    ranks: dict[Edge, int] = {(i, j): ordered[i].size(label) for (i, j), label in bonds.items()}
    cores = []
    for k, node in enumerate(ordered):
        data, labels = node.data, node.labels
        neighbour = {x: sum(ends[x]) - k for x in labels if x in ends}
        axes = sorted(range(len(labels)), key=lambda a: neighbour.get(labels[a], -1))
        data = data.permute(axes)
        cores.append((data if k < len(legs) else data.unsqueeze(0)).contiguous())
    structure = Structure(dims, ranks, num_nodes=len(ordered))
    return Assembled(structure, cores, tuple(n.source for n in ordered), bonds)
