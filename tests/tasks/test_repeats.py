"""One seed, one device, one result: to the last bit, on the CPU and on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import Structure
from tensorgrow.tasks.regress import regress
from tests.tasks.completions import FAST, noisy, some

RING = Structure.tensor_ring((12, 10, 8, 6), 3)
GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))


def decompose(x, device):
    return tg.decompose(x, max_error=0.3, device=device, **FAST)


def complete(x, device):
    weights = np.random.default_rng(1).random(x.shape) + 0.5
    return tg.complete(x, some(x.shape, 0.5), weights=weights, max_steps=2, device=device, **FAST)


def repeated(x, device):
    """Entries that are listed several times: sums over groups."""
    where = np.random.default_rng(2).integers(0, x.shape, (4000, 4))
    values = x[tuple(where.T)] + 0.1 * np.random.default_rng(3).standard_normal(4000)
    data = tg.Observations(torch.tensor(where, device=device), torch.tensor(values, device=device), x.shape)
    with pytest.warns(tg.DataWarning):
        return tg.complete(data, max_steps=1, **FAST)


def absolute(x, device):
    return tg.fit(x, RING, some(x.shape, 0.5), loss="absolute", max_sweeps=3, device=device, random_state=0)


def regression(x, device):
    samples = np.random.default_rng(0).standard_normal((200, 8, 6))
    y = np.tensordot(samples, x[0, 0], 2)
    return regress(samples, y, max_steps=1, device=device, random_state=0).result


def learn(x, device):
    target = torch.tensor(x, device=device)
    options = tg.TrainingOptions(epochs=20)
    return tg.learn(
        lambda net: (net.to_dense() - target).square().mean(),
        x.shape,
        max_steps=1,
        device=device,
        dtype=torch.float64,
        training=options,
        random_state=0,
    )


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("run", [decompose, complete, repeated, absolute, regression, learn])
def test_one_seed_gives_the_same_bits(run, device):
    x = noisy(RING)
    one, other = run(x, device), run(x, device)
    assert one.network.device.type == device
    assert one.structure == other.structure
    assert [(s.kind, s.edge, s.loss) for s in one.history] == [
        (s.kind, s.edge, s.loss) for s in other.history
    ]
    for a, b in zip(one.network.cores, other.network.cores):
        assert torch.equal(a, b)
