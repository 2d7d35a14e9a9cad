"""TensorLy's tensor trains, tensor rings, Tucker and CP tensors."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from ..data.arrays import as_tensor
from ..errors import DataError, StructureError, counted
from ..network import TensorNetwork
from ..structure import Structure
from .assembly import assemble, import_optional

# Attribute of an exported tensor: which nodes of the network were only numbers.
NUMBERS = "tensorgrow_numbers"


def to_tensorly(network: TensorNetwork) -> Any:
    """Return the same tensor as a TensorLy ``TTTensor``, ``TRTensor`` or ``TuckerTensor``.

    Which one follows from the structure: a chain of the modes in their order is a tensor train, rank one
    included; a cycle in their order is a tensor ring; a star around one internal node is Tucker. Edges of
    rank 1 count as present. For everything else the error names the structure. Arrays are those of
    TensorLy's current backend.

    Internal nodes without an edge are only numbers: they are multiplied into the first factor, and the tensor
    remembers which they were, so that `from_tensorly` gives the same structure.
    """
    cores, internal = _without_numbers(network)
    tensor = _in_format(network.structure, cores, internal)
    numbers = tuple(k for k in network.structure.internal_nodes if k not in internal)
    if numbers:
        setattr(tensor, NUMBERS, numbers)
    return tensor


def _in_format(structure: Structure, cores: Sequence[torch.Tensor], internal: Sequence[int]) -> Any:
    p = structure.order
    chain = {(k, k + 1) for k in range(p - 1)}
    if not internal and {*chain, (0, p - 1)}.issuperset(structure.edges):
        if chain.issuperset(structure.edges):
            kind = import_optional("tensorly.tt_tensor").TTTensor
        else:
            kind = import_optional("tensorly.tr_tensor").TRTensor
        return kind([_array(_ring_core(structure, cores, k)) for k in range(p)])
    if p > 1 and len(internal) == 1 and all(j == internal[0] for _, j in structure.edges):
        centre = internal[0]
        ranks = [structure.rank(k, centre) for k in range(p)]
        factors = [_array(cores[k].reshape(structure.dims[k], ranks[k])) for k in range(p)]
        kind = import_optional("tensorly.tucker_tensor").TuckerTensor
        return kind((_array(cores[centre].reshape(ranks)), factors))
    raise StructureError(
        f"this network is {describe(structure)}; TensorLy has tensor trains and rings of the modes in their "
        "order and Tucker. Learn one with edges='chain' or 'ring', or use to_quimb or to_einsum for any"
    )


def from_tensorly(tensor: Any) -> TensorNetwork:
    """Build a network from a TensorLy ``TTTensor``, ``TRTensor``, ``TuckerTensor`` or ``CPTensor``.

    CP joins all factors by one index, so copy tensors (ones on the diagonal, zeros elsewhere) of order three
    become internal nodes: one for a tensor of order three, a chain of ``order - 2`` in general. They count as
    parameters. CP weights go into the first factor.
    """
    import_optional("tensorly")
    return _with_numbers(_read(tensor), getattr(tensor, NUMBERS, ()))


def _read(tensor: Any) -> TensorNetwork:
    name = type(tensor).__name__
    if name in ("TTTensor", "TRTensor"):
        p = len(tensor.factors)
        last = "bond 0" if name == "TRTensor" else "end"
        bonds = [*(f"bond {k}" for k in range(p)), last]
        parts = [(f, (bonds[k], k, bonds[k + 1])) for k, f in enumerate(tensor.factors)]
        return assemble(parts, range(p))
    if name == "TuckerTensor":
        p = len(tensor.factors)
        bonds = [f"bond {k}" for k in range(p)]
        factors = [(f, (k, bonds[k])) for k, f in enumerate(tensor.factors)]
        return assemble([*factors, (tensor.core, bonds)], range(p))
    if name == "CPTensor":
        first, *rest = (as_tensor(f, copy=True) for f in tensor.factors)
        weighted = first * as_tensor(tensor.weights, copy=True).to(first.device)
        return assemble([(f, (k, "bond")) for k, f in enumerate([weighted, *rest])], range(len(rest) + 1))
    raise DataError(f"from_tensorly takes a TTTensor, TRTensor, TuckerTensor or CPTensor, not {name}")


def _without_numbers(network: TensorNetwork) -> tuple[list[torch.Tensor], list[int]]:
    """Multiply cores that are only a number into the first; return the cores and the internal nodes left."""
    structure, cores = network.structure, list(network.cores)
    for k in structure.internal_nodes:
        if not structure.neighbours[k]:
            cores[0] = cores[0] * cores[k]
    return cores, [k for k in structure.internal_nodes if structure.neighbours[k]]


def _with_numbers(network: TensorNetwork, numbers: Collection[int]) -> TensorNetwork:
    """Put internal nodes that are the number one in these places."""
    if not numbers:
        return network
    structure = network.structure
    total = structure.num_nodes + len(numbers)
    places = [k for k in range(total) if k not in numbers]
    ranks = {(places[i], places[j]): rank for (i, j), rank in structure.ranks.items()}
    cores = dict(zip(places, network.cores))
    one = network.cores[0].new_ones(1)
    return TensorNetwork(
        Structure(structure.dims, ranks, num_nodes=total), [cores.get(k, one) for k in range(total)]
    )


def _ring_core(structure: Structure, cores: Sequence[torch.Tensor], node: int) -> torch.Tensor:
    """A core as (rank before, leg, rank after)."""
    last = structure.order - 1
    closing = structure.rank(0, last) if last > 1 else 1
    before = structure.rank(node - 1, node) if node > 0 else closing
    after = structure.rank(node, node + 1) if node < last else closing
    core = cores[node]
    if node in (0, last) and before > 1 and after > 1:
        core = core.transpose(1, 2)  # axes come by ascending neighbour, and here the one after is the smaller
    return core.reshape(structure.dims[node], before, after).movedim(0, 1).contiguous()


def _array(tensor: torch.Tensor) -> Any:
    """An array of TensorLy's current backend."""
    tl = import_optional("tensorly")
    if tl.get_backend() == "pytorch":
        return tensor
    return tl.tensor(tensor.detach().cpu().resolve_conj().numpy().copy())


# -- what a structure is called ----------------------------------------------------------------------------


def describe(structure: Structure) -> str:
    """Name a structure: a chain, a ring, a tree or how many cycles, and its internal nodes.

    Examples
    --------
    >>> describe(Structure((2, 2, 2), {(0, 2): 2, (1, 2): 2}))
    'a chain of the modes in the order 0, 2, 1'
    >>> describe(Structure.hierarchical_tucker((2, 2, 2, 2), 2))
    'a tree with 3 internal nodes'
    """
    internal = [k for k in structure.internal_nodes if structure.neighbours[k]]
    used = [*range(structure.order), *internal]
    parts = _count_components(structure, used)
    cycles = len(structure.edges) - len(used) + parts
    degree = max(len(structure.neighbours[k]) for k in used)
    if not internal and parts == 1 and degree <= 2:
        kind = "a ring" if cycles else "a chain"
        return f"{kind} of the modes in the order {', '.join(map(str, _walk(structure)))}"
    if cycles == 0:
        text = "a tree" if parts == 1 else f"{parts} separate trees"
    else:
        text = f"a graph with {counted(cycles, 'cycle')}"
    if internal:
        joint = " and" if cycles else " with"
        text += f"{joint} {counted(len(internal), 'internal node')}"
    return text


def _count_components(structure: Structure, nodes: list[int]) -> int:
    left, count = set(nodes), 0
    while left:
        count += 1
        stack = [left.pop()]
        while stack:
            new = left.intersection(structure.neighbours[stack.pop()])
            left -= new
            stack.extend(new)
    return count


def _walk(structure: Structure) -> list[int]:
    """Nodes of a chain or a ring, one after the other."""
    ends = [k for k in range(structure.order) if len(structure.neighbours[k]) < 2]
    path = [ends[0] if ends else 0]
    while len(path) < structure.order:
        path.append(next(j for j in structure.neighbours[path[-1]] if j not in path))
    return path
