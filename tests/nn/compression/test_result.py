from __future__ import annotations

import pytest
import torch
from torch import nn

import tensorgrow as tg
from tensorgrow.nn import compress, load_compressed
from tests.nn.compression.models import FAST, planted, small


class DataBatches(list):
    def __init__(self, x: torch.Tensor) -> None:
        super().__init__([(x[:20], None), (x[20:], None)])


def test_saves_and_loads(tmp_path):
    model = small()
    x = torch.randn(50, 64) * torch.linspace(0.01, 1, 64)
    result = compress(model, max_parameters=2500, calibration=DataBatches(x), min_size=1000, effort="fast")
    result.save(tmp_path / "model.safetensors")
    loaded = load_compressed(tmp_path / "model.safetensors", small(1))
    assert torch.equal(loaded.model(x), result.model(x))
    assert loaded.layers == result.layers
    assert torch.equal(tg.load(tmp_path / "model.safetensors", small(1)).model(x), result.model(x))
    assert loaded.table() == result.table()
    assert result.latency_before > 0
    with pytest.raises(tg.OptionError, match="Give the model that was compressed"):
        load_compressed(tmp_path / "model.safetensors", nn.Sequential(nn.ReLU()))
    # Its tensors would stay without values, and nobody would hear of it.
    with pytest.raises(tg.OptionError, match=r"'0\.weight' is on the meta device"):
        load_compressed(tmp_path / "model.safetensors", small().to("meta"))


def test_what_was_frozen_stays_frozen_and_aliases_are_known(tmp_path):
    shared = planted().to_linear()
    shared.weight.requires_grad_(False)
    model = nn.ModuleDict({"a": shared, "b": shared})
    result = compress(model, max_error=1e-3, layers=["b"], **FAST)
    assert [r.name for r in result.layers] == ["a"]
    result.save(tmp_path / "model.safetensors")
    for found in (result.model, load_compressed(tmp_path / "model.safetensors", model).model):
        assert not any(c.requires_grad for c in found["b"].cores)
        assert found["b"].bias.requires_grad
