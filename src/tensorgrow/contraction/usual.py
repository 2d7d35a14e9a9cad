"""Programs of small networks from those of the same graph with usual ranks.

A search sees a graph with many ranks, and to plan for each of them takes longer than the sweeps over them: of
0.09 s that a hidden triangle of 7^5 took, 0.05 s went to plans. Which ranks came first must not matter, so
the program that others are made from is always that of ranks 2, with which edges begin.
"""

from __future__ import annotations

from ..structure import Structure
from .program import Legs, Program

# Flops up to which a program is made from another. For 520 structures on the way to hidden networks and
# fields these cost 7 % more than programs of their own, and take 0.2 ms instead of 0.6 to 2 to make: more
# than the few sweeps over them lose.
FEW_FLOPS = 2e6


def usual_ranks(structure: Structure, most_rows: int) -> Structure | None:
    """The same graph with ranks 2; None where programs are to be made for the structure itself.

    Sweeps make about a hundred flops per entry. With more than `most_rows`, Gram matrices come in parts.
    """
    ranks, nodes = structure.ranks, range(structure.num_nodes)
    if 100 * structure.num_entries > FEW_FLOPS or all(r == 2 for r in ranks.values()):
        return None
    if max(map(structure.bond_product, nodes)) > most_rows:
        return None
    return Structure(structure.dims, dict.fromkeys(ranks, 2), num_nodes=structure.num_nodes)


def resized_for(structure: Structure, program: Program) -> Program | None:
    """A program with the sizes of a structure; None where it is not worth it."""
    if program.is_arranged:
        return None
    resized = program.resized(Legs(structure).sizes)
    return resized if resized.flops <= FEW_FLOPS else None
