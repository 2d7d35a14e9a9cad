from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensorgrow.errors import StructureError
from tensorgrow.structure import Structure
from tests.oracles import TOLERANCE, assert_close, random_network, to_numpy
from tests.strategies import networks

RING = Structure.tensor_ring((4, 3, 5, 4), (2, 3, 2, 3))


@given(networks(torch.float64), st.data())
def test_take_gives_a_leg_other_slices(network, data):
    structure = network.structure
    leg = data.draw(st.integers(0, structure.order - 1))
    slices = data.draw(st.lists(st.integers(-1, structure.dims[leg] - 1), min_size=1, max_size=4))
    x = to_numpy(network.to_dense())
    rows = [x.mean(leg) if k < 0 else np.take(x, k, leg) for k in slices]
    taken = network.take(leg, slices)
    assert taken.structure == structure.with_dims(taken.structure.dims)
    assert_close(taken.to_dense(), np.stack(rows, leg), TOLERANCE[torch.float64])


def test_slices_that_do_not_exist():
    network = random_network(RING, 0, torch.float64)
    for slices in ([4], [-2], []):
        with pytest.raises(StructureError, match="slices 0 to 3"):
            network.take(0, slices)
    with pytest.raises(StructureError, match="leg 4 does not exist"):
        network.take(4, [0])
    with pytest.raises(StructureError, match="4 are needed"):
        RING.with_dims((2, 3))
