from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import tensorgrow as tg
from tensorgrow.nn import TNLinear, compress
from tensorgrow.nn.compression.calibration import input_moments
from tensorgrow.nn.kinds.statistics import shrink
from tests import oracles
from tests.nn.compression.models import FAST, QUICK, planted, small
from tests.oracles import assert_close


def test_moments_and_metric():
    covariance = pytest.importorskip("sklearn.covariance")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 4), nn.Linear(4, 3, bias=False))
    x = torch.randn(3, 2, 5) + 1.0
    moments = input_moments(model, {"1": model[1], "2": model[2]}, [x[:1], x[1:]])
    flat = x.reshape(-1, 5).double()
    between = model[1](x.reshape(-1, 5)).detach().double()
    assert_close(moments["1"].mean, flat.mean(0), 1e-12)
    assert moments["2"].mean is None
    assert_close(moments["1"].moment, covariance.oas(flat.numpy())[0], 1e-6)
    assert_close(moments["2"].moment, covariance.oas(between.numpy(), assume_centered=True)[0], 1e-6)
    assert model.training
    with pytest.raises(tg.DataError, match="never reaches"):
        input_moments(model, {"other": nn.Linear(5, 4)}, [x])
    with pytest.raises(tg.DataError, match=r"always gives the layers \['1'\] the same input"):
        input_moments(model, {"1": model[1]}, [torch.ones(9, 5)])


def test_many_rows_are_hardly_shrunk():
    moment = torch.diag(torch.tensor([4.0, 1.0, 0.0], dtype=torch.float64))
    assert_close(shrink(moment, 10**9), moment, 1e-6)
    assert_close(shrink(moment, 1), 5 / 3 * torch.eye(3, dtype=torch.float64), 1e-12)


def test_calibration_beats_plain_weights_on_skewed_inputs():
    covariance = pytest.importorskip("sklearn.covariance")
    generator = torch.Generator().manual_seed(1)
    mix = torch.randn(48, 48, generator=generator) * torch.logspace(0, -2, 48)
    x = torch.randn(600, 48, generator=generator) @ mix
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(48, 64))
    budget = {"max_parameters": 1500, "layers": ["0"], "effort": "fast", "measure": False}
    plain = compress(model, **budget)
    weighted = compress(model, calibration=x[:400], **budget)
    want = model(x[400:])
    errors = [float((r.model(x[400:]) - want).detach().norm()) for r in (plain, weighted)]
    assert errors[1] < 0.5 * errors[0]
    (report,) = weighted.layers
    moment = covariance.oas(x[:400].numpy())[0]
    before, after = (oracles.to_numpy(m[0].weight) for m in (model, weighted.model))
    sizes = [float(np.trace(w @ moment @ w.T)) for w in (before - after, before)]
    assert report.weighted_error == pytest.approx((sizes[0] / sizes[1]) ** 0.5, rel=1e-3)
    assert plain.layers[0].weighted_error is None
    assert weighted.latency_before is None


def test_weighting_by_single_inputs_keeps_the_target_and_a_planted_structure():
    torch.manual_seed(0)
    x = torch.randn(300, 64) * torch.rand(64).square()
    model = planted().to_linear()
    options = {"effort": "fast", "measure": False, "allow_slower": True}
    result = compress(model, max_error=1e-4, calibration=[(x, None)], **options)
    (report,) = result.layers
    assert report.kind == "network"
    assert report.weighted_error <= 1.01e-4
    assert isinstance(result.model, TNLinear)


def test_a_small_calibration_set_does_no_harm():
    """Fewer rows than inputs: what the layer does elsewhere must not be thrown away, nor the mean be lost."""
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(64, 64, generator=generator) * torch.logspace(0, -1, 64)
    x = torch.randn(1020, 64, generator=generator) @ mix + 3.0
    torch.manual_seed(1)
    model = nn.Linear(64, 64)
    want = model(x[20:])
    for options in ({"max_seconds": 0}, {"effort": "fast", "dims": ((8, 8), (8, 8)), "paired": False}):
        budget = {"max_parameters": 1800, "measure": False, "min_size": 1, **options}
        plain = compress(model, **budget)
        weighted = compress(model, calibration=x[:20], **budget)
        errors = [float((r.model(x[20:]) - want).detach().norm()) for r in (plain, weighted)]
        assert errors[1] < 0.9 * errors[0]


def test_calibration_with_arrays_and_with_what_the_model_does_not_take():
    x = np.random.default_rng(0).standard_normal((60, 64))
    result = compress(small(), max_error=0.5, calibration=x, **QUICK)
    same = compress(small(), max_error=0.5, calibration=torch.from_numpy(x).float(), **QUICK)
    assert [r.weighted_error for r in result.layers] == [r.weighted_error for r in same.layers]
    with pytest.raises(tg.DataError, match="fails on calibration batch 2"):
        compress(small(), max_error=0.5, calibration=[x, x[:, 1:]])


class ByName(nn.Module):
    """A model that calls its layers as torch's allow, by the name of the argument."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.linear, self.conv = nn.Embedding(50, 64), nn.Linear(64, 64), nn.Conv1d(8, 32, 3)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.linear(input=self.table(input=ids))
        return self.conv(input=x.reshape(-1, 8, 8))


def test_layers_that_are_called_by_the_name_of_their_argument():
    ids = torch.arange(50)
    model, targets = ByName(), torch.zeros(50, 32, 6)
    want = model(ids)
    how = {**FAST, "max_seconds": 0.0, "max_ratio": 0.7, "min_size": 1, "calibration": [(ids, targets)]}
    for loss in (None, nn.functional.mse_loss):
        small = compress(model, loss=loss, **how).model
        assert sum(isinstance(m, tg.nn.TNLayer) for m in small.children()) > 0
        assert small(ids).shape == want.shape
    adapted = tg.nn.adapt(model, layers=["table", "linear", "conv"])
    assert_close(adapted(ids), want.detach(), 1e-6)
    data = ((ids, targets), (ids, targets))
    training = tg.TrainingOptions(epochs=1)
    how = {"loss": nn.functional.mse_loss, "candidates": "gradient", "training": training, "max_steps": 1}
    assert len(tg.nn.grow(adapted, *data, **how).history) == 2


@pytest.mark.parametrize("rows", [torch.zeros(0, 64), torch.full((9, 64), float("nan"))])
def test_calibration_without_rows_or_with_gaps_is_refused(rows):
    with pytest.raises(tg.DataError, match=r"layers \['0', '2'\] no rows, or entries that are not finite"):
        compress(small(), max_error=0.5, calibration=[rows], **QUICK)


def test_tokens_that_there_are_not_in_calibration():
    with pytest.raises(tg.DataError, match="fails on calibration batch 1"):
        compress(nn.Embedding(100, 64), max_error=0.5, calibration=[torch.tensor([100])], **FAST)


def test_batches_and_targets_that_can_be_had_once():
    pairs = [(torch.randn(30, 64), torch.randn(30, 5)) for _ in range(2)]
    results = [
        compress(small(), max_ratio=0.5, calibration=given, loss=nn.functional.mse_loss, **QUICK)
        for given in (pairs, iter(pairs))
    ]
    assert results[0].layers[0].weighted_error == results[1].layers[0].weighted_error
    for given in (pairs[0], pairs[0][0], 3):
        with pytest.raises(tg.DataError, match="batches of pairs"):
            compress(small(), max_ratio=0.5, calibration=given, loss=nn.functional.mse_loss, **QUICK)
