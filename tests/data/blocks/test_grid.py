from __future__ import annotations

import numpy as np
import pytest

from tensorgrow.data.blocks import block_grid, entries_of
from tensorgrow.data.blocks.grid import part_grid


@pytest.mark.parametrize(
    ("shape", "chunks", "most"),
    [((5, 6, 7), (1, 1, 1), 20), ((5, 6, 7), (2, 4, 3), 24), ((8,), (3,), 3), ((4, 4), (4, 4), 10**6)],
)
def test_blocks_cover_every_entry_once_and_are_made_of_whole_chunks(shape, chunks, most):
    seen = np.zeros(shape, dtype=int)
    for box in block_grid(shape, chunks, most):
        assert entries_of(box) <= most
        for (start, stop), c, n in zip(box, chunks, shape):
            assert start % c == 0
            assert stop % c == 0 or stop == n
        seen[tuple(slice(*r) for r in box)] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize("most", [1, 7, 24, 100, 10**6])
@pytest.mark.parametrize(("shape", "chunks"), [((5, 6, 7), (2, 4, 3)), ((8,), (3,)), ((4, 4), (4, 4))])
def test_parts_cover_every_entry_once_and_lie_in_one_chunk(shape, chunks, most):
    seen = np.zeros(shape, dtype=int)
    for box in part_grid(shape, chunks, most):
        assert entries_of(box) <= most
        for (start, stop), c in zip(box, chunks):
            assert start // c == (stop - 1) // c
        seen[tuple(slice(*r) for r in box)] += 1
    assert (seen == 1).all()
