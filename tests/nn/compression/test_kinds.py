"""Convolutions and embeddings are compressed and grown as linear layers are."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

import tensorgrow as tg
from tensorgrow.nn import TNConv2d, TNEmbedding, TNLayer, TNLinear, compress, grow, load_compressed
from tests.nn.compression.models import planted
from tests.oracles import assert_close

OPTIONS = {"min_size": 100, "measure": False, "allow_slower": True, "effort": "fast"}
LAYERS = {
    "conv": (lambda: nn.Conv2d(8, 12, 3, padding=1), lambda: torch.randn(40, 8, 6, 6) + 0.5),
    "conv without a bias, groups": (
        lambda: nn.Conv1d(8, 12, 3, groups=2, bias=False),
        lambda: torch.randn(60, 8, 12),
    ),
    "embedding": (lambda: nn.Embedding(67, 12, padding_idx=0), lambda: torch.randint(67, (40, 30))),
}


@pytest.fixture(params=LAYERS)
def model_and_inputs(request) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    make, inputs = LAYERS[request.param]
    return nn.Sequential(make()), inputs()


@pytest.mark.parametrize("seconds", [0.0, 0.7])
@torch.no_grad()
def test_the_expected_error_of_the_outputs_is_theirs(model_and_inputs, seconds, tmp_path):
    model, x = model_and_inputs
    before = copy.deepcopy(model.state_dict())
    result = compress(model, max_ratio=0.6, calibration=x, max_seconds=seconds, **OPTIONS)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), before.values()))
    (report,) = result.layers
    assert report.module == type(model[0]).__name__ and report.kind != "dense"
    assert isinstance(result.model[0], TNLayer)
    assert result.num_parameters <= 0.6 * result.parameters_before
    dim = 1 if x.is_floating_point() else -1
    wanted, found = (m(x).movedim(dim, -1).flatten(0, -2).double() for m in (model, result.model))
    size = wanted - wanted.mean(0) if getattr(model[0], "bias", None) is not None else wanted
    # Shrinkage makes the expected error that of inputs a little unlike those seen.
    assert float((wanted - found).norm() / size.norm()) == pytest.approx(report.weighted_error, rel=0.1)
    if getattr(model[0], "bias", None) is not None:
        assert_close(found.mean(0), wanted.mean(0), 1e-4)
    result.save(tmp_path / "model.safetensors")
    loaded = load_compressed(tmp_path / "model.safetensors", model)
    assert torch.equal(loaded.model(x), result.model(x)) and loaded.layers == result.layers


def test_a_model_of_all_kinds_and_what_is_left_alone(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.Conv2d(8, 64, 3),
        nn.Conv2d(64, 64, 3, groups=64),
        nn.Flatten(),
        nn.Linear(64 * 4, 8),
    )
    result = compress(model, max_ratio=0.5, **{**OPTIONS, "min_size": 1000})
    assert [r.name for r in result.layers] == ["1", "4"]
    assert result.left.keys() == {"0", "2"}
    assert "fewer than min_size" in result.left["0"] and "one channel" in result.left["2"]
    assert "left alone: each of its 64 groups" in result.table()
    result.save(tmp_path / "model.safetensors")
    assert load_compressed(tmp_path / "model.safetensors", model).left == result.left
    with pytest.raises(tg.OptionError, match=r"'2' cannot be compressed.*one channel"):
        compress(model, max_error=0.5, layers=["2"])
    other = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Conv2d(8, 32, 3), *list(model)[2:])
    with pytest.raises(tg.OptionError, match=r"the model has Conv2d\(8, 32"):
        load_compressed(tmp_path / "model.safetensors", other)


def test_a_planted_kernel_and_a_planted_table_are_found():
    conv = TNConv2d(16, 16, 3, padding=1, in_dims=(16,), out_dims=(16,), random_state=0)
    conv.network = tg.TensorNetwork.random(
        tg.Structure(conv.layout.dims, {(0, 2): 3, (1, 2): 3}), random_state=0
    )
    table = TNEmbedding(16 * 16, 32, in_dims=(16, 16), out_dims=(32,), random_state=0)
    table.network = tg.TensorNetwork.random(
        tg.Structure(table.layout.dims, {(0, 2): 3, (1, 2): 3}), random_state=0
    )
    for hidden in (conv, table):
        result = compress(hidden.to_dense(), max_error=1e-3, **OPTIONS)
        assert result.num_parameters <= 1.1 * hidden.num_parameters
        assert result.layers[0].relative_error <= 1e-3


def test_an_embedding_may_be_slower_than_a_lookup():
    torch.manual_seed(0)
    table = nn.Embedding.from_pretrained(torch.randn(5000, 2) @ torch.randn(2, 32))
    result = compress(nn.Sequential(table), max_error=0.01, max_seconds=0.0, measure=False)
    (report,) = result.layers
    assert report.kind == "low rank" and report.note == "slower"
    assert report.bytes_after < report.bytes_before


def test_layers_that_cannot_be_compressed_are_named():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch is about to drop it
        quantised = torch.ao.nn.quantized.Linear(8, 8)
    with pytest.raises(tg.OptionError, match=r"not Linear, Conv1d.*a quantised Linear"):
        compress(nn.Sequential(quantised, nn.Linear(9, 9)), max_error=0.1, layers=["0"])
    lazy = nn.Sequential(nn.LazyLinear(8))
    with pytest.raises(tg.OptionError, match="no size yet"):
        compress(lazy, max_error=0.1, layers=["0"])
    with pytest.raises(tg.OptionError, match="complex64"):
        compress(nn.Linear(64, 64, dtype=torch.complex64), max_error=0.1, layers=[""])
    with pytest.raises(tg.OptionError, match="max_norm"):
        compress(nn.Embedding(100, 64, max_norm=1.0), max_error=0.1)
    with pytest.raises(tg.OptionError, match="ConvTranspose2d"):
        compress(nn.Sequential(nn.ConvTranspose2d(4, 4, 3)), max_error=0.1, layers=["0"])


def test_prime_sizes_get_truncated_svds_or_stay():
    torch.manual_seed(0)
    result = compress(nn.Sequential(nn.Linear(61, 67)), max_error=0.05, **OPTIONS)
    assert result.layers[0].kind == "dense" and "61 and 67" in result.layers[0].note
    assert result.layers[0].note in result.table()
    thin = compress(nn.Sequential(nn.Linear(61, 67)), max_ratio=0.5, **OPTIONS)
    assert thin.layers[0].kind == "low rank"


def test_frozen_layers_stay_frozen():
    model = nn.Sequential(planted().to_linear(), nn.Embedding(64, 16))
    model[1].requires_grad_(False)
    result = compress(model, max_ratio=0.5, max_seconds=0.0, **OPTIONS)
    assert all(p.requires_grad for p in result.model[0].parameters())
    assert not any(p.requires_grad for p in result.model[1].parameters())


def test_convolutions_and_embeddings_grow():
    torch.manual_seed(0)
    tokens = torch.randint(20, (64, 8))
    labels = (tokens < 10).sum(1).clamp(2, 5) - 2
    model = nn.Sequential(
        TNEmbedding(20, 8, in_dims=(5, 4), out_dims=(8,), random_state=0),
        TNConv2d(8, 4, 1, in_dims=(8,), out_dims=(4,), random_state=0),
        nn.Flatten(),
        TNLinear(32, 4, in_dims=(8, 4), out_dims=(2, 2), random_state=0),
    )
    model[0].register_forward_hook(lambda m, i, out: out.transpose(1, 2)[..., None])
    training = tg.nn.TrainingOptions(optimizer="adam", learning_rate=1e-2, epochs=3, candidate_epochs=1)
    data = (tokens, labels)
    result = grow(model, data, data, max_steps=2, training=training, random_state=0)
    assert result.history[1].layer in {"0", "1", "3"}
    assert result.history[-1].num_parameters > result.history[0].num_parameters
    assert sum(p.numel() for p in model.parameters()) == result.history[0].num_parameters
