"""Networks of quimb."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from ..data.arrays import as_tensor
from ..errors import DataError, check_choice
from ..network import TensorNetwork
from .assembly import assemble, import_optional


def to_quimb(network: TensorNetwork, *, backend: Literal["numpy", "torch"] = "numpy") -> Any:
    """Return the same network as a ``quimb.tensor.TensorNetwork``.

    Leg 3 is index ``k3`` and the edge of nodes 0 and 3 is ``b0,3``. The tensor of node 3 has the tag ``I3``,
    and internal nodes also ``INTERNAL``. Nodes that share no edge are tensors that share no index.

    Parameters
    ----------
    network
        The network.
    backend
        Arrays of the tensors: NumPy (copies), or torch (the cores themselves, with device and gradients).
    """
    check_choice("backend", backend, ("numpy", "torch"))
    qtn = import_optional("quimb.tensor")
    structure, tensors = network.structure, []
    for k, core in enumerate(network.cores):
        is_internal = structure.is_internal(k)
        data: Any = core[0] if is_internal else core
        if backend == "numpy":
            data = data.detach().cpu().resolve_conj().numpy().copy()
        bonds = [f"b{min(k, j)},{max(k, j)}" for j in structure.neighbours[k]]
        indices, tags = (bonds, [f"I{k}", "INTERNAL"]) if is_internal else ([f"k{k}", *bonds], [f"I{k}"])
        tensors.append(qtn.Tensor(data, indices, tags))
    return qtn.TensorNetwork(tensors)


def from_quimb(tn: Any, *, output_inds: Sequence[str] | None = None) -> TensorNetwork:
    """Build a network from a quimb ``TensorNetwork`` (MPS, MPO, PEPS, ...) or ``Tensor``.

    Parameters
    ----------
    tn
        The quimb object. Its exponent is multiplied in. Hyper-indices become copy tensors; a tensor with
        several open indices keeps the largest, and the others get an identity.
    output_inds
        Open indices in the order of the modes. By default those in one tensor only: ``k0, k1, ...`` by
        number where all have such names, which is how `to_quimb` and quimb's states name them, else in
        quimb's order.
    """
    qtn = import_optional("quimb.tensor")
    if isinstance(tn, qtn.Tensor):
        tn = tn.as_network()
    if not isinstance(tn, qtn.TensorNetwork):
        raise DataError(f"from_quimb takes a quimb TensorNetwork or Tensor, not {type(tn).__name__}")
    legs = _in_order(tn.outer_inds()) if output_inds is None else list(output_inds)
    tensors = [(as_tensor(t.data, copy=True), t.inds) for t in tn]
    if tn.exponent:
        tensors[0] = (tensors[0][0] * 10.0 ** float(tn.exponent), tensors[0][1])
    return assemble(tensors, legs)


def _in_order(names: Sequence[str]) -> list[str]:
    if all(re.fullmatch(r"k\d+", name) for name in names):
        return sorted(names, key=lambda name: int(name[1:]))
    return list(names)
