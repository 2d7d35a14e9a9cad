"""Einsum equations with their operands."""

from __future__ import annotations

from typing import Any

import torch
from opt_einsum.parser import parse_einsum_input

from ..data.arrays import as_tensor
from ..errors import StructureError
from ..network import TensorNetwork
from .assembly import assemble


def to_einsum(network: TensorNetwork) -> tuple[str, tuple[torch.Tensor, ...]]:
    """Return equation and operands of a network, as ``opt_einsum.contract`` takes them.

    The operands are the cores themselves. From the 53rd index on the symbols are other Unicode letters, which
    opt_einsum reads but ``numpy.einsum`` and ``torch.einsum`` do not.

    Examples
    --------
    >>> import tensorgrow as tg
    >>> net = tg.TensorNetwork.random(tg.Structure.tensor_train((2, 3, 4), 2), random_state=0)
    >>> equation, operands = to_einsum(net)
    >>> equation
    'ad,bde,ce->abc'
    >>> from_einsum(equation, *operands).structure == net.structure
    True
    """
    return network.einsum()


def from_einsum(equation: str, *operands: Any) -> TensorNetwork:
    """Build the network that an einsum equation describes.

    Parameters
    ----------
    equation
        Any equation that opt_einsum accepts: implicit outputs, ``...``, repeated and summed indices, indices
        in more than two operands.
    operands
        Arrays of NumPy, torch or any other library that converts to NumPy.
    """
    tensors = [as_tensor(x, copy=True) for x in operands]
    try:
        inputs, output, _ = parse_einsum_input((equation, *tensors))
    except (ValueError, TypeError, IndexError) as error:
        raise StructureError(
            f"{equation!r} is no einsum equation of {len(operands)} operands: {error}"
        ) from error
    return assemble(zip(tensors, inputs.split(",")), output)
