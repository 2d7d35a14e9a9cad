"""Networks of quimb."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..algebra.assembly import Assembled
from ..data.arrays import as_tensor
from ..errors import DataError, StructureError, check_choice
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .assembly import assemble_traced, import_optional


@dataclass(frozen=True)
class Origin:
    """What a quimb network says beside its numbers.

    Attributes
    ----------
    tensors
        Names of the indices, and tags, of every tensor.
    legs
        Names of the open indices in the order of the modes.
    sources, bonds
        For every node the number of the tensor it was (None: it was added), and the names of the edges.
    kind, properties
        The class, such as ``MatrixProductState``, and what it needs to know.
    """

    tensors: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    legs: tuple[str, ...]
    sources: tuple[int | None, ...]
    bonds: Mapping[Edge, str]
    kind: type
    properties: Mapping[str, Any]

    @classmethod
    def of(cls, tn: Any, legs: Sequence[str], assembly: Assembled) -> Origin:
        return cls(
            tuple((tuple(t.inds), tuple(t.tags)) for t in tn),
            tuple(legs),
            assembly.sources,
            {edge: label for edge, label in assembly.bonds.items() if isinstance(label, str)},
            type(tn),
            {name.lstrip("_"): getattr(tn, name) for name in type(tn)._EXTRA_PROPS if hasattr(tn, name)},
        )

    def node_of(self, tensor: int) -> int | None:
        """The node that a tensor became."""
        return self.sources.index(tensor) if tensor in self.sources else None

    def home(self, node: int, structure: Structure) -> int:
        """The node whose tensor had this node's leg, where nothing else is joined to an added node."""
        if node >= len(self.legs) or self.sources[node] is not None:
            return node
        holder = next(k for k, (inds, _) in enumerate(self.tensors) if self.legs[node] in inds)
        home = self.node_of(holder)
        return home if home is not None and set(structure.neighbours[node]) <= {home} else node


class QuimbNetwork(TensorNetwork):
    """A network that came from quimb, with the names and tags it had there."""

    __slots__ = ("origin",)

    origin: Origin


def to_quimb(
    network: TensorNetwork, *, backend: Literal["numpy", "torch"] = "numpy", like: Any = None
) -> Any:
    """Return the same network as a ``quimb.tensor.TensorNetwork``.

    Leg 3 is index ``k3`` and the edge of nodes 0 and 3 is ``b0,3``. The tensor of node 3 has the tag ``I3``,
    and internal nodes also ``INTERNAL``. Nodes that share no edge are tensors that share no index.

    A network that `from_quimb` returned goes back with the names and tags it had there, and as what it was:
    an MPS as a ``MatrixProductState``.

    Parameters
    ----------
    network
        The network.
    backend
        Arrays of the tensors: NumPy (copies), or torch (the cores themselves, with device and gradients).
    like
        A quimb network with as many open indices, whose names and tags to use: for what was fitted, grown or
        otherwise derived from it. It comes back as an MPS, MPO, ... where its tensors are still joined in the
        same way.
    """
    check_choice("backend", backend, ("numpy", "torch"))
    qtn = import_optional("quimb.tensor")
    structure = network.structure
    origin = network.origin if isinstance(network, QuimbNetwork) else None
    if like is not None:
        origin = from_quimb(like).origin
        if len(origin.legs) != structure.order:
            raise StructureError(
                f"`like` has {len(origin.legs)} open indices, the network {structure.order}: they must agree"
            )
        if len(origin.sources) != structure.num_nodes:  # which internal node is which is not known
            sources = [*origin.sources[: structure.order], *[None] * (structure.num_nodes - structure.order)]
            origin = replace(origin, sources=tuple(sources))
    tensors = []
    for k, core in enumerate(network.cores):
        is_internal = structure.is_internal(k)
        data: Any = core[0] if is_internal else core
        if backend == "numpy":
            data = data.detach().cpu().resolve_conj().numpy().copy()
        edges = [(min(k, j), max(k, j)) for j in structure.neighbours[k]]
        tags = [f"I{k}", "INTERNAL"] if is_internal else [f"I{k}"]
        indices = [] if is_internal else [f"k{k}" if origin is None else origin.legs[k]]
        if origin is not None and (source := origin.sources[k]) is not None:
            tags = list(origin.tensors[source][1])
        known = {} if origin is None else origin.bonds
        tensors.append(qtn.Tensor(data, [*indices, *(known.get(e, f"b{e[0]},{e[1]}") for e in edges)], tags))
    return qtn.TensorNetwork(tensors) if origin is None else _as_it_was(tensors, structure, origin)


def _as_it_was(tensors: list[Any], structure: Structure, origin: Origin) -> Any:
    """Undo what an import had to add or leave out; the class it had, where everything is in its place."""
    qtn = import_optional("quimb.tensor")
    groups: dict[int, list[Any]] = {}
    for node, tensor in enumerate(tensors):
        groups.setdefault(origin.home(node, structure), []).append(tensor)
    merged = {}
    for node, group in groups.items():
        merged[node] = qtn.tensor_contract(*group, preserve_tensor=True)
        merged[node].modify(tags=tensors[node].tags)
    _join_singles(merged, structure, origin)
    is_same = len(merged) == len(origin.tensors)
    for k, (indices, _) in enumerate(origin.tensors):
        place = origin.node_of(k)
        own = None if place is None else merged.get(place)
        if own is None or set(own.inds) != set(indices):
            is_same = False
        else:
            own.transpose_(*indices)
    tn = qtn.TensorNetwork(list(merged.values()))
    return tn.view_as(origin.kind, **origin.properties) if is_same else tn


def _join_singles(merged: Mapping[int, Any], structure: Structure, origin: Origin) -> None:
    """Give bonds of size one back to tensors that share no other: chains of quimb want them."""
    holders: dict[str, list[int]] = {}
    for k, (indices, _) in enumerate(origin.tensors):
        for index in indices:
            holders.setdefault(index, []).append(k)
    for index, ends in holders.items():
        nodes = [origin.node_of(k) for k in ends]
        if index in origin.legs or len(ends) != 2 or None in nodes or not set(nodes) <= merged.keys():
            continue
        i, j = sorted(node for node in nodes if node is not None)
        if structure.rank(i, j) == 1:
            for node in (i, j):
                merged[node].new_ind(index, size=1)


def from_quimb(tn: Any, *, output_inds: Sequence[str] | None = None) -> QuimbNetwork:
    """Build a network from a quimb ``TensorNetwork`` (MPS, MPO, PEPS, ...) or ``Tensor``.

    Parameters
    ----------
    tn
        The quimb object. Its exponent is multiplied in. Hyper-indices become copy tensors; a tensor with
        several open indices keeps the largest, and the others get an identity.
    output_inds
        Open indices in the order of the modes. By default those in one tensor only: by site for an MPS and
        other states; ``k0, k1, ...`` by number where all have such names, which is how `to_quimb` names them;
        else in quimb's order.
    """
    qtn = import_optional("quimb.tensor")
    if isinstance(tn, qtn.Tensor):
        tn = tn.as_network()
    if not isinstance(tn, qtn.TensorNetwork):
        raise DataError(f"from_quimb takes a quimb TensorNetwork or Tensor, not {type(tn).__name__}")
    legs = _in_order(tn) if output_inds is None else list(output_inds)
    tensors = [(as_tensor(t.data, copy=True), t.inds) for t in tn]
    if tn.exponent:
        tensors[0] = (tensors[0][0] * 10.0 ** float(tn.exponent), tensors[0][1])
    assembly = assemble_traced(tensors, legs)
    network = QuimbNetwork(assembly.structure, assembly.cores)
    network.origin = Origin.of(tn, legs, assembly)
    return network


def _in_order(tn: Any) -> list[str]:
    names = list(tn.outer_inds())
    sites = list(getattr(tn, "site_inds", ()))
    if sites and set(sites) == set(names):
        return sites
    if all(re.fullmatch(r"k\d+", name) for name in names):
        return sorted(names, key=lambda name: int(name[1:]))
    return names
