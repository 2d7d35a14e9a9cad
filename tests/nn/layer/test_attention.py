from __future__ import annotations

import pytest
import torch
from torch import nn

import tensorgrow as tg
from tensorgrow.nn import TNMultiheadAttention
from tests.nn.onnx_files import through_onnx
from tests.oracles import assert_close


def attention(**options) -> nn.MultiheadAttention:
    torch.manual_seed(0)
    made = nn.MultiheadAttention(8, 2, dtype=torch.float64, **options)
    for p in made.parameters():  # biases start at zero
        nn.init.normal_(p, std=0.5)
    return made


def sequences(batch_first: bool, *sizes: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shape = (3, 5) if batch_first else (5, 3)
    return [torch.randn(*shape, n, generator=generator, dtype=torch.float64) for n in sizes]


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_it_is_torch_s_attention(batch_first, bias, need_weights):
    theirs = attention(batch_first=batch_first, bias=bias)
    ours = TNMultiheadAttention.from_attention(theirs)
    (x,) = sequences(batch_first, 8)
    for want, got in zip(
        theirs(x, x, x, need_weights=need_weights), ours(x, x, x, need_weights=need_weights)
    ):
        assert (want is None) == (got is None)
        if want is not None:
            assert_close(got, want, 1e-12)
    q, k = sequences(batch_first, 8, 8)
    assert_close(ours(q, k, k)[0], theirs(q, k, k)[0], 1e-12)
    assert_close(ours(q, k, x)[0], theirs(q, k, x)[0], 1e-12)


def test_masks_and_single_sequences():
    theirs = attention(batch_first=True)
    ours = TNMultiheadAttention.from_attention(theirs)
    (x,) = sequences(True, 8)
    causal = torch.ones(5, 5, dtype=torch.bool).triu(1)
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[0, 3:] = True
    each = torch.randn(6, 5, 5, dtype=torch.float64)
    for masks in (
        {"attn_mask": causal},
        {"key_padding_mask": padding},
        {"attn_mask": causal, "key_padding_mask": padding},
        {"attn_mask": each, "average_attn_weights": False},
    ):
        for want, got in zip(theirs(x, x, x, **masks), ours(x, x, x, **masks)):
            assert_close(got, want, 1e-12)
    assert_close(ours(x, x, x, is_causal=True)[0], theirs(x, x, x, attn_mask=causal)[0], 1e-12)
    for want, got in zip(theirs(x[0], x[0], x[0]), ours(x[0], x[0], x[0])):
        assert_close(got, want, 1e-12)


@pytest.mark.parametrize("sizes", [{}, {"kdim": 6, "vdim": 4}])
def test_there_and_back(sizes):
    theirs = attention(batch_first=True, dropout=0.1, **sizes)
    theirs.in_proj_bias.requires_grad_(False)
    back = TNMultiheadAttention.from_attention(theirs).to_attention()
    assert back.dropout == 0.1
    for name, parameter in theirs.named_parameters():
        assert torch.equal(parameter, back.get_parameter(name))
        assert parameter.requires_grad == back.get_parameter(name).requires_grad
    q, k, v = sequences(True, 8, sizes.get("kdim", 8), sizes.get("vdim", 8))
    ours = TNMultiheadAttention.from_attention(theirs.eval())
    assert_close(ours(q, k, v)[0], theirs(q, k, v)[0], 1e-12)


def test_what_cannot_be_taken_apart_is_named():
    with pytest.raises(tg.OptionError, match="add_bias_kv"):
        TNMultiheadAttention.from_attention(attention(add_bias_kv=True))
    with pytest.raises(tg.OptionError, match="embed_dim=7"):
        TNMultiheadAttention(7, 2)


def test_a_new_one_grows_in_an_encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    layer.self_attn = TNMultiheadAttention(8, 2, batch_first=True, random_state=0)
    model = nn.Sequential(
        nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Flatten(), nn.Linear(24, 2)
    )
    x = torch.randn(40, 3, 8, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0, 0] > 0).long()
    training = tg.nn.TrainingOptions(optimizer="adam", epochs=1)
    result = tg.nn.grow(
        model,
        (x, y),
        (x, y),
        candidates="gradient",
        edges_per_step=2,
        max_steps=1,
        training=training,
        random_state=0,
    )
    assert result.num_parameters > sum(p.numel() for p in model.parameters())
    model.eval()
    with torch.no_grad():
        assert_close(model(x[:2]), model(x)[:2], 1e-5)


class SelfAttention(nn.Module):
    """Attention of one sequence to itself, a module of one input."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.inner(x, x, x, need_weights=False)[0]
        return out


@pytest.mark.filterwarnings("ignore")  # of the exporter, about its own parts
def test_exports_to_onnx(tmp_path):
    layer = TNMultiheadAttention(8, 2, batch_first=True, random_state=0)
    for part in tg.nn.tn_layers(layer).values():
        part.grow_edge(0, 1, noise=0.5, random_state=1)
    model = SelfAttention(layer).eval()
    x = sequences(True, 8)[0].float()
    exported = through_onnx(model, x, tmp_path)
    assert_close(exported(x), model(x).detach(), 1e-4)
    assert_close(exported(x[:2]), model(x[:2]).detach(), 1e-4)


@pytest.mark.parametrize("sizes", [{"kdim": 6}, {"vdim": 4}, {"kdim": 6, "vdim": 4}, {"kdim": 8}])
def test_a_new_one_takes_what_torchs_takes(sizes):
    options = {"batch_first": True, "dtype": torch.float64, **sizes}
    ours = TNMultiheadAttention(8, 2, **options, random_state=0)
    q, k, v = sequences(True, 8, sizes.get("kdim", 8), sizes.get("vdim", 8))
    theirs = ours.to_attention()
    want = nn.MultiheadAttention(8, 2, **options)
    assert {n: p.shape for n, p in theirs.named_parameters()} == {
        n: p.shape for n, p in want.named_parameters()
    }
    assert_close(ours(q, k, v)[0], theirs(q, k, v)[0].detach(), 1e-12)
