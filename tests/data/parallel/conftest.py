from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg
from tests.clusters import two_workers


@pytest.fixture(scope="module")
def client():
    with two_workers(default=True) as client:
        yield client


@pytest.fixture(scope="module")
def tensor():
    hidden = tg.Structure.tensor_ring((8, 9, 7, 6), (2, 3, 2, 3))
    x = tg.TensorNetwork.random(hidden, random_state=0).to_dense().numpy()
    return x + 0.01 * np.random.default_rng(0).standard_normal(x.shape)
