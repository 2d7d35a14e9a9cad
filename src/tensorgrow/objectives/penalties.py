"""What priors add to the normal equations of each core."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from ..algebra.coupled import Coupling
from ..priors import DEFAULT_STRENGTH, ModePriors, Nonnegative, Quadratic
from ..structure import Structure


@dataclass(frozen=True, eq=False)
class Penalty:
    """What is added for one core.

    Attributes
    ----------
    coupling
        Of its slices, at its strength; None where they are not tied.
    nonnegative
        Whether the core has no negative entries.
    """

    coupling: Coupling | None
    nonnegative: bool = False


@dataclass(frozen=True, eq=False)
class Penalties:
    """Priors of a tensor at a strength.

    Attributes
    ----------
    priors
        By mode.
    dims
        Shape of the tensor.
    strength
        Of those that leave it open.
    is_settled
        Whether that strength stays.
    """

    priors: ModePriors
    dims: tuple[int, ...]
    strength: float = DEFAULT_STRENGTH
    is_settled: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the strength of a prior is left open."""
        return bool(self._parts[1])

    @cached_property
    def nonnegative(self) -> frozenset[int]:
        """Modes whose cores have no negative entries."""
        return frozenset(
            k for k, several in self.priors.items() if any(isinstance(p, Nonnegative) for p in several)
        )

    @property
    def is_nonnegative(self) -> bool:
        """Whether no core has negative entries, inner ones included, and so the tensor has none."""
        return bool(self.dims) and len(self.nonnegative) == len(self.dims)

    def nonnegative_nodes(self, structure: Structure) -> frozenset[int]:
        """Nodes of a network whose cores have no negative entries."""
        return frozenset(range(structure.num_nodes)) if self.is_nonnegative else self.nonnegative

    def at(self, strength: float, *, settled: bool = False) -> Penalties:
        """The same priors at another strength."""
        other = replace(self, strength=strength, is_settled=settled)
        other.__dict__["_parts"] = self._parts  # they do not depend on it
        return other

    def of(self, node: int) -> Penalty | None:
        """What is added for the core of a node; None where nothing is known of it."""
        if node >= len(self.dims) and self.is_nonnegative:
            return Penalty(None, nonnegative=True)
        return self._penalties.get(node)

    def flops(self, structure: Structure) -> float:
        """Arithmetic of the solves that tie slices to each other, of one sweep."""
        return sum(4.0 * structure.dims[k] * structure.bond_product(k) ** 3 for k in self._tied)

    def solve_bytes(self, structure: Structure, item: int) -> int:
        """Bytes of Gram matrices that are held together where slices are tied, in numbers of `item` bytes.

        As they come, then twice in double precision and once factorised.
        """
        each = (structure.dims[k] * structure.bond_product(k) ** 2 for k in self._tied)
        return (item + 3 * max(item, 8)) * max(each, default=0)

    @property
    def _tied(self) -> list[int]:
        return [k for k, p in self._penalties.items() if p.coupling is not None]

    @cached_property
    def _parts(self) -> tuple[dict[int, Quadratic], dict[int, Quadratic]]:
        """Matrices by mode: those of a given strength, times that, and the others."""
        fixed: dict[int, Quadratic] = {}
        free: dict[int, Quadratic] = {}
        for mode, several in self.priors.items():
            for prior in several:
                matrix = prior.matrix(self.dims[mode])
                if matrix is None or not len(matrix.values):
                    continue
                place = free if prior.strength is None else fixed
                mine = matrix.times(1.0 if prior.strength is None else prior.strength)
                place[mode] = place[mode] + mine if mode in place else mine
        return fixed, free

    @cached_property
    def _penalties(self) -> dict[int, Penalty]:
        fixed, free = self._parts
        total = dict(fixed)
        for mode, matrix in free.items():
            mine = matrix.times(self.strength)
            total[mode] = total[mode] + mine if mode in total else mine
        return {
            mode: Penalty(Coupling(total[mode]) if mode in total else None, mode in self.nonnegative)
            for mode in {*total, *self.nonnegative}
        }


NO_PRIORS = Penalties({}, ())
