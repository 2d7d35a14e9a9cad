from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.data.blocks import Blocks, Form, StagedReducer, ThreadReducer


@pytest.mark.parametrize(
    ("device", "kind", "most"), [(None, ThreadReducer, 1 << 21), ("cuda", StagedReducer, 1 << 25)]
)
def test_who_reads_the_blocks(device, kind, most):
    x = np.broadcast_to(np.float32(1.0), (1 << 10, 1 << 9, 1 << 8))
    reducer = Blocks(x).open(Form("float32", device), 1e12, 5)
    assert type(reducer) is kind
    assert {math.prod(b - a for a, b in box) for box in reducer.boxes} == {most}
    assert reducer.threads >= 2
    few = Blocks(x, threads=5).open(Form("float32", device), 1e8, 5)
    assert few.threads == 5
    assert all(5 * 5 * 4 * math.prod(b - a for a, b in box) <= 5e7 for box in few.boxes)


def test_what_blocks_say_of_themselves():
    blocks = Blocks(torch.ones(3, 4, 5), method="stream", threads=2)
    assert blocks.shape == (3, 4, 5) and blocks.device == torch.device("cpu")
    assert blocks.source is blocks.source
    assert repr(blocks) == "Blocks(the tensor of shape (3, 4, 5), method='stream')"
    with pytest.raises(AttributeError):
        blocks.method = "auto"


@pytest.mark.parametrize(
    ("x", "options", "kind", "word"),
    [
        (np.ones(3), {"method": "guess"}, tg.OptionError, "method='guess'"),
        (np.ones(3), {"threads": 0}, tg.OptionError, "threads=0 must be a whole number of at least 1"),
        (np.ones(3), {"threads": 1.5}, tg.OptionError, "threads=1.5"),
        ([1.0, 2.0], {}, tg.DataError, "cannot be read block by block"),
    ],
)
def test_bad_blocks(x, options, kind, word):
    with pytest.raises(kind, match=word):
        Blocks(x, **options)
