from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit=0
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def tensor():
    hidden = tg.Structure.tensor_ring((8, 9, 7, 6), (2, 3, 2, 3))
    x = tg.TensorNetwork.random(hidden, random_state=0).to_dense().numpy()
    return x + 0.01 * np.random.default_rng(0).standard_normal(x.shape)
