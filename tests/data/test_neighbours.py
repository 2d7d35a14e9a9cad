from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.data.neighbours import find_alike
from tensorgrow.data.observations import Observations


def observed(x: np.ndarray, share: float = 0.5) -> Observations:
    return Observations.from_dense(np.where(np.random.default_rng(0).random(x.shape) < share, x, np.nan))


def test_time_is_alike_and_names_are_not():
    rng = np.random.default_rng(1)
    walks = np.cumsum(rng.standard_normal((12, 40, 10)), axis=1)  # along one axis only
    assert find_alike(observed(walks), range(3)) == [1]
    assert find_alike(observed(walks), (0, 2)) == []
    assert find_alike(observed(walks[:, rng.permutation(40)]), range(3)) == []


@pytest.mark.parametrize("seed", range(5))
def test_networks_of_random_numbers_have_no_neighbours(seed):
    x = tg.TensorNetwork.random(tg.Structure.tensor_ring((9,) * 4, 3), random_state=seed).to_dense().numpy()
    assert find_alike(observed(x), range(4)) == []


def test_too_little_says_nothing():
    ramp = np.outer(np.linspace(0, 1, 9), np.ones(9))
    assert find_alike(observed(ramp), range(2)) == []  # about forty entries: few pairs
    assert find_alike(observed(np.zeros((20, 30, 4))), range(3)) == []  # no differences at all
