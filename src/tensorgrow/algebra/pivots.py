"""Rows and columns of a matrix that span the others."""

from __future__ import annotations

import torch

# A residual smaller than this share of what it is left of is rounding.
ROUNDING = 1e-13


def find_pivots(matrix: torch.Tensor, tolerance: float, *, first: int = 0) -> tuple[list[int], list[int]]:
    """Rows and columns of a cross approximation, by elimination with complete pivoting.

    Parameters
    ----------
    tolerance
        Entries of the residual up to this size count as zero, as does rounding.
    first
        So many of the first rows and columns are pivots whatever they hold; their block must be regular.

    Returns
    -------
    tuple of lists
        As many rows as columns; those that must be pivots come first.
    """
    rest = matrix.clone()
    least = max(tolerance, ROUNDING * float(matrix.abs().max()))
    if first:
        head = matrix[:first, :first]
        rest -= matrix[:, :first] @ torch.linalg.solve(head, matrix[:first])
        rest[:first], rest[:, :first] = 0.0, 0.0
    rows, columns = list(range(first)), list(range(first))
    while len(rows) < min(matrix.shape):
        sizes = rest.abs()
        place = int(sizes.argmax())
        i, j = divmod(place, rest.shape[1])
        if not float(sizes[i, j]) > least:
            break
        rows.append(i)
        columns.append(j)
        rest -= torch.outer(rest[:, j], rest[i]) / rest[i, j]
        rest[i], rest[:, j] = 0.0, 0.0
    return rows, columns


def pick_columns(matrix: torch.Tensor, count: int, given: list[int] | None = None) -> list[int]:
    """Columns that span the others, the longest residual first; then the longest of the others.

    Parameters
    ----------
    count
        Columns to return, those that are `given` included; fewer where there are fewer.
    """
    picked = list(given or ())
    rest = matrix.clone()
    longest = float(torch.linalg.vector_norm(rest, dim=0).max())

    def project(column: int) -> None:
        direction = rest[:, column].clone()
        size = torch.linalg.vector_norm(direction)
        if float(size) > ROUNDING * longest:
            direction /= size
            rest.sub_(torch.outer(direction, direction.conj() @ rest))

    for column in picked:
        project(column)
    while len(picked) < min(count, matrix.shape[1]):
        lengths = torch.linalg.vector_norm(rest, dim=0)
        if float(lengths.max()) <= ROUNDING * longest:  # the others are spanned: long ones tell most
            lengths = torch.linalg.vector_norm(matrix, dim=0)
        lengths[picked] = -1.0
        picked.append(int(lengths.argmax()))
        project(picked[-1])
    return picked
