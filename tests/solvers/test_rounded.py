from __future__ import annotations

import pytest
import torch

import tensorgrow as tg
from tensorgrow.objectives import DenseLeastSquares
from tensorgrow.solvers import ALSSettings, als


def test_less_precision_is_given_up_where_it_does_not_lower_the_loss(monkeypatch, use_numpy):
    monkeypatch.setattr("tensorgrow.objectives.dense.SINGLE_FLOPS", 0.0)
    monkeypatch.setattr("tensorgrow.objectives.dense.SINGLE_RIDGE", 10.0)  # as if rounding spoilt everything
    ring = tg.Structure.tensor_ring((5,) * 4, 3)
    x = tg.TensorNetwork.random(ring, random_state=0).to_dense()
    x += x.std() * torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    start = tg.TensorNetwork.random(ring, random_state=1)
    settings = ALSSettings(max_sweeps=6, tolerance=1e-3, accelerate=True)
    near = als(DenseLeastSquares(x, use_numpy=use_numpy), start, settings).network
    rounded = DenseLeastSquares(x, use_numpy=use_numpy, may_round=True)
    assert rounded.is_rounded(ring)
    fit, full = (als(o, near, settings) for o in (rounded, rounded.in_full()))
    # The sweep that was given up counts as one.
    assert fit.loss <= full.loss * 1.05 < rounded.loss(ring, rounded.to_arrays(near))
    assert fit.loss == pytest.approx(rounded.loss(ring, rounded.to_arrays(fit.network)), rel=1e-9)


def test_a_fit_that_gives_up_less_precision_goes_on_from_balanced_cores(monkeypatch, use_numpy):
    monkeypatch.setattr("tensorgrow.objectives.dense.SINGLE_FLOPS", 0.0)
    monkeypatch.setattr("tensorgrow.objectives.dense.SINGLE_RIDGE", 10.0)  # as if rounding spoilt everything
    ring = tg.Structure.tensor_ring((5,) * 4, 3)
    net = tg.TensorNetwork.random(ring, random_state=0)
    x = net.to_dense()
    x += 0.1 * x.std() * torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    # Slices of a growth may be as unequal as this; squares of what they become overflow in single precision.
    start = tg.TensorNetwork(ring, [net.cores[0] * 1e12, net.cores[1] * 1e-12, *net.cores[2:]])
    objective = DenseLeastSquares(x, use_numpy=use_numpy, may_round=True)
    fit = als(objective, start, ALSSettings(max_sweeps=4, tolerance=0.0, accelerate=True))
    norms = [float(torch.linalg.vector_norm(core)) for core in fit.network.cores]
    assert max(norms) < 100 * min(norms)
