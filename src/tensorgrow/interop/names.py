"""What a structure is called."""

from __future__ import annotations

from ..structure import Structure


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
        text = f"a graph with {cycles} cycle{'s' if cycles > 1 else ''}"
    if internal:
        joint = " and" if cycles else " with"
        text += f"{joint} {len(internal)} internal node{'s' if len(internal) > 1 else ''}"
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
