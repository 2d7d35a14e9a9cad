"""The loop that runs a compiled contraction, on NumPy or on torch.

Instructions are tuples: what to do, the slot of the result, slots of operands, how they become matrices, and
last the slots that nobody reads afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .grams import Array, Update, as_gram
from .strided import LARGE, is_worthwhile, product_by_runs
from .thin import FEW_COLUMNS, thin_product
from .wide import wide_product

MATMUL, PERMUTE, CONJ, SOLVE, SELF, SLABS = range(6)
PLAIN, THIN, WIDE = range(3)  # kinds of products


def execute(
    instructions: Sequence[tuple[Any, ...]], slots: list[Array], update: Update | None, *, on_numpy: bool
) -> None:
    """Run instructions on what is in the slots; `update` makes new cores where they say so."""
    # Unbound methods: one loop serves both libraries at the cost of a function call per operation.
    permute: Any = torch.Tensor.permute
    multiply: Any = _multiply
    products: Any = (_multiply,) * 3
    multiply_slabs: Any = torch.matmul
    conjugate: Any = torch.conj_physical
    if on_numpy:
        permute, multiply, multiply_slabs = np.ndarray.transpose, np.ndarray.dot, np.matmul
        products, conjugate = (np.ndarray.dot, thin_product, wide_product), np.conj
    for instruction in instructions:
        op = instruction[0]
        if op == MATMUL:
            _, out, a, b, perm_a, shape_a, perm_b, shape_b, shape, runs, kind, drops = instruction
            x, y = slots[a], slots[b]
            if perm_a is not None:
                x = permute(x, perm_a)
            if runs is not None and not on_numpy and is_worthwhile(shape_a[0], y, runs):
                slots[out] = product_by_runs(x.reshape(shape_a), y, runs).reshape(shape)
            else:
                if perm_b is not None:
                    y = permute(y, perm_b)
                slots[out] = products[kind](x.reshape(shape_a), y.reshape(shape_b)).reshape(shape)
        elif op == SLABS:
            _, out, a, b, perm_a, shape_a, shape_b, shape, drops = instruction
            x = permute(slots[a], perm_a).reshape(shape_a)
            slots[out] = multiply_slabs(x, slots[b].reshape(shape_b)).reshape(shape)
        elif op == SELF:
            _, out, a, perm_a, shape_a, shape, drops = instruction
            x = slots[a] if perm_a is None else permute(slots[a], perm_a)
            x = x.reshape(shape_a)
            slots[out] = multiply(x, x.T).reshape(shape)
        elif op == PERMUTE:
            _, out, a, perm, drops = instruction
            slots[out] = permute(slots[a], perm)
        elif op == CONJ:
            _, out, a, drops = instruction
            slots[out] = conjugate(slots[a])
        else:
            _, core, node, grams, rhs, bonds, drops = instruction
            assert update is not None
            slots[core] = update(node, as_gram(bonds, [slots[g] for g in grams]), slots[rhs])
        for slot in drops:
            slots[slot] = None


def _multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product of two matrices; a GPU reads few columns faster where they are stored as rows."""
    if a.is_cuda and b.shape[1] <= FEW_COLUMNS and a.numel() >= LARGE and b.is_contiguous():
        b = b.T.contiguous().T
    return torch.mm(a, b)
