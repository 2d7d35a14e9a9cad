"""Attention and losses: what compression knows of transformers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tensorgrow as tg
from tensorgrow.nn import TNLinear, TNMultiheadAttention, adapt, compress, merge_adapters
from tensorgrow.nn.compression.calibration import Metric
from tests.nn.compression.models import FAST
from tests.oracles import assert_close

SVDS = {**FAST, "max_seconds": 0.0}


def encoder(**options) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def rows(count: int = 6) -> torch.Tensor:
    return torch.randn(count, 5, 32, generator=torch.Generator().manual_seed(0))


def test_attention_is_compressed_by_its_projections(tmp_path):
    model, x = encoder(), rows()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    result = compress(model, max_ratio=0.6, calibration=x, **SVDS)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    names = [r.name for r in result.layers]
    assert names[:2] == ["layers.0.self_attn.in_proj", "layers.0.self_attn.out_proj"]
    assert len(names) == 8
    attention = result.model.layers[0].self_attn
    assert isinstance(attention, TNMultiheadAttention) and isinstance(attention.in_proj, TNLinear)
    # Torch's encoder has a fast way of its own in evaluation mode.
    assert_close(result.model.eval()(x), result.model.train()(x), 1e-5)
    result.save(tmp_path / "encoder.safetensors")
    loaded = tg.load(tmp_path / "encoder.safetensors", encoder()).model
    assert torch.equal(loaded(x), result.model(x))


def test_exact_forms_keep_the_function_and_dense_ones_are_packed_again():
    model, x = encoder(), rows()
    with torch.no_grad():
        for name in ("in_proj_weight", "out_proj.weight"):
            weight = model.layers[0].self_attn.get_parameter(name)
            weight.copy_(weight[:, :4] @ torch.randn(4, 32) / 4)
    result = compress(model, max_error=1e-4, layers=["layers.0.self_attn", "layers.1.self_attn"], **SVDS)
    assert [r.kind for r in result.layers] == ["low rank", "low rank", "dense", "dense"]
    assert type(result.model.layers[1].self_attn) is nn.MultiheadAttention
    assert_close(result.model(x), model(x), 1e-3)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_padding_that_torch_would_skip_by_its_packed_weights():
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 2).eval(), rows(3)
    hidden = torch.arange(5).expand(3, 5) >= torch.tensor([[3], [5], [4]])
    some = compress(model, max_ratio=0.9, layers=["layers.1.self_attn"], **SVDS)
    for small in (compress(model, max_ratio=0.6, **SVDS), some):
        with torch.no_grad():
            made = small.model(x, src_key_padding_mask=hidden)
        wanted = small.model(x, src_key_padding_mask=hidden)  # with gradients torch skips nothing
        assert_close(made[~hidden], wanted[~hidden].detach(), 1e-5)
    adapted = adapt(model, min_size=100)
    with torch.no_grad():
        wanted = model(x, src_key_padding_mask=hidden)
        assert_close(adapted(x, src_key_padding_mask=hidden)[~hidden], wanted[~hidden], 1e-5)
        merged = merge_adapters(adapted)
        assert_close(merged(x, src_key_padding_mask=hidden), wanted, 1e-6)
    assert merged.use_nested_tensor and model.use_nested_tensor and not adapted.use_nested_tensor


def test_attention_that_cannot_be_taken_apart_is_named():
    model = nn.ModuleDict({"a": nn.MultiheadAttention(32, 4, add_bias_kv=True), "b": nn.Linear(64, 64)})
    result = compress(model, max_ratio=0.9, **SVDS)
    assert "add_bias_kv" in result.left["a"]
    assert type(result.model["a"]) is nn.MultiheadAttention
    with pytest.raises(tg.OptionError, match="'a' cannot be taken apart"):
        compress(model, max_ratio=0.9, layers=["a"], **SVDS)


def test_a_loss_weighs_outputs():
    torch.manual_seed(0)
    weight, moment = torch.randn(7, 5).double(), torch.randn(9, 5).double()
    gradients = torch.randn(11, 7).double()
    metric = Metric(weight, moment.T @ moment, outputs=gradients.T @ gradients)
    other = torch.randn(7, 5).double()
    want = (gradients @ (weight - other) @ moment.T).norm() / (gradients @ weight @ moment.T).norm()
    assert abs(metric.error(other) - float(want)) < 1e-10
    # No matrix of the rank is nearer: gradients of the squared error vanish along both factors.
    left, right = metric.project(2)
    for factor in (left.requires_grad_(), right.requires_grad_()):
        error = (gradients @ (weight - left @ right) @ moment.T).square().sum()
        (slope,) = torch.autograd.grad(error, factor, retain_graph=True)
        assert float(slope.norm()) < 1e-8 * float(error.detach())


def test_with_a_loss_the_budget_goes_where_it_is_felt():
    torch.manual_seed(0)
    model = nn.ModuleDict({"loud": nn.Linear(40, 40), "quiet": nn.Linear(40, 40)})

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.parts["loud"](x) + 0.01 * self.parts["quiet"](x)

    x = torch.randn(200, 40)
    batches = [(part, torch.zeros(50, 40)) for part in x.split(50)]
    result = compress(Both(), max_ratio=0.6, calibration=batches, loss=F.mse_loss, **SVDS)
    loud, quiet = (r.parameters_after for r in result.layers)
    assert loud > 3 * quiet
    with pytest.raises(tg.DataError, match="pairs"):
        compress(Both(), max_ratio=0.6, calibration=[x], loss=F.mse_loss, **SVDS)
    with pytest.raises(tg.OptionError, match="needs calibration"):
        compress(Both(), max_ratio=0.6, loss=F.mse_loss, **SVDS)


class Branch(nn.Module):
    """A layer whose output the loss does not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.seen, self.aside = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept = self.aside(x)
        return self.seen(x)


def test_layers_that_the_loss_does_not_see_are_named():
    batches = [(torch.randn(8, 16), torch.randn(8, 16))]
    how = {**SVDS, "max_ratio": 0.9, "min_size": 1, "calibration": batches, "loss": F.mse_loss}
    with pytest.raises(tg.DataError, match=r"does not depend on the layers \['aside'\]"):
        compress(Branch(), **how)
    assert compress(Branch(), layers=["seen"], **how).layers[0].name == "seen"
