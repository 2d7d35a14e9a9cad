"""Gram matrices of environments, whole or in parts, and who takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any  # numpy.ndarray or torch.Tensor, the same one throughout a run


@dataclass(frozen=True)
class GramParts:
    """A Gram matrix as the product of smaller ones: without its node, the network falls into pieces.

    Attributes
    ----------
    bonds
        For every part, the bonds of the node that it is about, by their positions.
    parts
        Each over its bonds twice, ket, then bra.
    """

    bonds: tuple[tuple[int, ...], ...]
    parts: tuple[Array, ...]

    def whole(self) -> Array:
        """The Gram matrix itself: all bonds twice, ket, then bra."""
        total, legs = self.parts[0], list(self.bonds[0])
        count = sum(map(len, self.bonds))
        legs += [b + count for b in legs]
        for part, bonds in zip(self.parts[1:], self.bonds[1:]):
            total = total.reshape(*total.shape, *(1,) * part.ndim) * part
            legs += [*bonds, *(b + count for b in bonds)]
        order = tuple(sorted(range(2 * count), key=legs.__getitem__))
        return total.transpose(order) if isinstance(total, np.ndarray) else total.permute(order)


Gram = Array | GramParts | None
"""A Gram matrix: whole, in parts, or None for the number 1, of a node without bonds."""
Update = Callable[[int, Gram, Array], Array]
"""``update(node, gram, rhs) -> core``."""


def as_gram(bonds: tuple[tuple[int, ...], ...], parts: Sequence[Array]) -> Gram:
    """A Gram matrix from its parts; None where there are none."""
    return GramParts(bonds, tuple(parts)) if len(parts) > 1 else next(iter(parts), None)


def whole_gram(gram: Gram) -> Array:
    """A Gram matrix as one array."""
    return gram.whole() if isinstance(gram, GramParts) else gram
