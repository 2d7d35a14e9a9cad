from __future__ import annotations

import pytest
import torch

from tensorgrow.nn import Layout
from tensorgrow.nn.layer.layout import digits


def test_layout_goes_there_and_back():
    weight = torch.arange(48.0).reshape(8, 6)
    for layout in (Layout((2, 3), (4, 2)), Layout((6,), (2, 4), paired=False)):
        assert torch.equal(layout.to_matrix(layout.to_tensor(weight)), weight)
        assert Layout.from_dict(layout.to_dict()) == layout


@pytest.mark.parametrize(
    "size, count, expected", [(1024, 5, (4,) * 5), (784, 4, (7, 7, 4, 4)), (10, 3, (5, 2, 1))]
)
def test_digits(size, count, expected):
    assert digits(size, count) == expected
