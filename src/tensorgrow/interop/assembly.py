"""Any set of labelled arrays as a network: what all imports share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import torch

from ..algebra import assembly
from ..algebra.assembly import Assembled, Label, Labelled
from ..data.arrays import as_tensor
from ..errors import StructureError, import_package
from ..network import TensorNetwork


def import_optional(name: str) -> Any:
    """Import a module of quimb, TensorLy or networkx."""
    return import_package(name, f"this needs {name.split('.')[0]}", "interop")


def assemble(tensors: Iterable[tuple[Any, Sequence[Label]]], open_labels: Sequence[Label]) -> TensorNetwork:
    """Build the network of labelled tensors, pairs of an array and one label per axis.

    See `algebra.assembly.assemble` for what labels mean and which node a tensor becomes.
    """
    built = assemble_traced(tensors, open_labels)
    return TensorNetwork(built.structure, built.cores)


def assemble_traced(
    tensors: Iterable[tuple[Any, Sequence[Label]]], open_labels: Sequence[Label]
) -> Assembled:
    """Build the network as `assemble` does, and say what became of every tensor."""
    return assembly.assemble(_read(tensors), open_labels)


def _read(tensors: Iterable[tuple[Any, Sequence[Label]]]) -> list[Labelled]:
    nodes: list[Labelled] = []
    for data, labels in tensors:
        tensor = as_tensor(data, copy=True)
        if tensor.dim() != len(labels):
            raise StructureError(
                f"a tensor with {tensor.dim()} axes came with {len(labels)} labels: {labels!r}"
            )
        nodes.append(Labelled(tensor, list(labels), len(nodes)))
    if not nodes:
        raise StructureError("there are no tensors; a network needs at least one")
    dtype = reduce(torch.promote_types, (n.data.dtype for n in nodes))
    if not (dtype.is_floating_point or dtype.is_complex):
        dtype = torch.float64
    for node in nodes:
        node.data = node.data.to(dtype)
    return nodes
