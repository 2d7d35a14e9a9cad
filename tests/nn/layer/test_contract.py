"""What every layer with a network as weight must do, whatever its kind."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

import tensorgrow as tg
from tensorgrow.nn import TNConv1d, TNConv2d, TNConv3d, TNEmbedding, TNLayer, TNLinear, tn_layers
from tests import oracles
from tests.nn.onnx_files import through_onnx
from tests.oracles import assert_close

# A layer of rank one, and an input with that many rows, for every kind.
KINDS: dict[str, tuple[Callable[..., TNLayer], Callable[[int], torch.Tensor]]] = {
    "linear": (lambda **o: TNLinear(16, 8, in_dims=(4, 4), out_dims=(4, 2), **o), lambda n: _numbers(n, 16)),
    "conv1d": (
        lambda **o: TNConv1d(8, 12, 3, in_dims=(4, 2), out_dims=(4, 3), padding="same", **o),
        lambda n: _numbers(n, 8, 9),
    ),
    "conv2d": (
        lambda **o: TNConv2d(8, 12, 3, in_dims=(2, 2), out_dims=(4, 3), stride=2, groups=2, **o),
        lambda n: _numbers(n, 8, 7, 6),
    ),
    "conv2d, reflected": (
        lambda **o: TNConv2d(
            6, 4, (3, 1), in_dims=(6,), out_dims=(4,), padding=(1, 0), padding_mode="reflect", **o
        ),
        lambda n: _numbers(n, 6, 5, 5),
    ),
    "conv3d": (
        lambda **o: TNConv3d(4, 6, 2, in_dims=(4,), out_dims=(6,), dilation=2, bias=False, **o),
        lambda n: _numbers(n, 4, 5, 4, 4),
    ),
    "embedding": (
        lambda **o: TNEmbedding(23, 6, 2, in_dims=(2, 4, 3), out_dims=(3, 2), **o),
        lambda n: torch.arange(5 * n).reshape(n, 5) % 23,
    ),
}


def _numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def layer_of(kind: str, rank: int = 2, **options) -> TNLayer:
    layer = KINDS[kind][0](random_state=0, **options)
    structure = tg.Structure.complete(layer.layout.dims, rank)
    like = layer.cores[0]
    layer.network = tg.TensorNetwork.random(structure, random_state=1, dtype=like.dtype)
    return layer


def input_of(kind: str, rows: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = KINDS[kind][1](rows)
    return x.to(dtype) if x.is_floating_point() else x


def ways_of(layer: TNLayer) -> list[object]:
    """All ways through the cores, and rebuilding."""
    return [*layer.application.ways(layer.layout, layer.structure, "cpu", 8), None]


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    return request.param


def test_every_way_is_the_dense_layer_with_the_weight_by_einsum(kind):
    layer, x = layer_of(kind, dtype=torch.float64), input_of(kind, 3, torch.float64)
    dense = layer.to_dense()
    tensor = torch.from_numpy(oracles.dense(layer.structure, layer.cores))
    matrix = layer.layout.to_matrix(tensor)[:, : layer.columns]
    weight = matrix.T if kind == "embedding" else matrix.reshape(dense.weight.shape)
    if kind == "embedding":
        weight = weight.index_fill(0, torch.tensor([2]), 0.0)  # padding_idx
    assert_close(layer.weight, weight, 1e-12)
    with torch.no_grad():
        dense.weight.copy_(weight)
    arriving = torch.randn_like(dense(x))
    expected = torch.autograd.grad(dense(x), dense.weight, arriving)[0]
    ways = ways_of(layer)
    assert len(ways) > 1
    for way in ways:
        layer._schedules = (((1 << 62, way),),) * 2
        given = x.clone().requires_grad_(x.is_floating_point())
        out = layer(given)
        assert_close(out, dense(x), 1e-11)
        cores = list(layer.cores)
        own = torch.autograd.grad(out, cores, arriving, retain_graph=True)
        through = torch.autograd.grad(layer.weight, cores, expected)
        for a, b in zip(own, through):
            assert_close(a, b, 1e-10)
        if given.requires_grad:
            other = x.clone().requires_grad_()
            want = torch.autograd.grad(dense(other), other, arriving)[0]
            assert_close(torch.autograd.grad(out, given, arriving)[0], want, 1e-11)


def test_an_input_scale_scales_the_weight(kind):
    layer = layer_of(kind, dtype=torch.float64, input_scale=True)
    nn.init.uniform_(layer.input_scale, 0.5, 2.0)
    x = input_of(kind, 2, torch.float64)
    for way in ways_of(layer):
        layer._schedules = (((1 << 62, way),),) * 2
        assert_close(layer(x), layer.to_dense()(x), 1e-11)


def test_a_dense_layer_becomes_a_network_and_goes_back(kind):
    hidden = layer_of(kind, 1, dtype=torch.float64)
    dense = hidden.to_dense()
    dense.weight.requires_grad_(False)
    layer = type(hidden).from_dense(dense, hidden.layout, max_error=0.5, random_state=0)
    assert_close(layer.weight, dense.weight, 0.5)
    assert not any(core.requires_grad for core in layer.cores)
    back = layer.to_dense()
    assert type(back) is type(dense) and repr(back) == repr(dense)
    x = input_of(kind, 2, torch.float64)
    assert_close(back(x), layer(x), 1e-11)
    with pytest.raises(tg.OptionError, match="without network and structure"):
        type(layer).from_dense(dense, layer.layout, max_error=0.1, structure=layer.structure)


def test_an_empty_batch_goes_every_way(kind):
    layer, x = layer_of(kind), input_of(kind, 3)
    for way in ways_of(layer):
        layer._schedules = (((1 << 62, way),),) * 2
        assert layer(x[:0]).shape == (0, *layer(x).shape[1:])


def test_a_new_layer_has_the_variance_of_a_dense_one(kind):
    layer = KINDS[kind][0](random_state=0)
    torch.manual_seed(0)
    dense = layer.to_dense()
    dense.reset_parameters()
    wanted = 1.0 if kind == "embedding" else 1 / (3 * layer.layout.in_features)
    matrix = layer.layout.to_matrix(layer.network.to_dense())
    assert float(matrix.square().mean()) == pytest.approx(wanted, rel=1e-4)
    assert float(dense.weight.detach().square().mean()) == pytest.approx(wanted, rel=0.5)


def test_state_goes_into_a_layer_of_another_rank_and_the_function_survives_copies(kind):
    layer, x = layer_of(kind, 3), input_of(kind, 2)
    file = io.BytesIO()
    torch.save(nn.Sequential(layer).state_dict(), file)
    file.seek(0)
    other = nn.Sequential(layer_of(kind, 1))
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(x), layer(x))
    assert torch.equal(copy.deepcopy(other)(x), layer(x))
    assert list(tn_layers(other)) == ["0"]
    assert f"parameters={layer.num_parameters:,}" in repr(other)


def test_growth_and_its_trial(kind):
    layer, x = layer_of(kind), input_of(kind, 3)
    before = layer(x)
    edge, structure = (0, 1), layer.structure
    sizes = [structure.leg_dim(n) * structure.bond_product(n, without=o) for n, o in ((0, 1), (1, 0))]
    slices = tuple(torch.randn(size, requires_grad=True) for size in sizes)
    with layer.trial(*edge, slices):
        during = layer(x)
        during.sum().backward()
    assert all(s.grad is not None for s in slices) and all(c.grad is None for c in layer.cores)
    assert torch.equal(layer(x), before)
    layer.grow_edge(*edge, slices=slices)
    assert_close(layer(x), during, 1e-4)


@pytest.mark.parametrize(
    "kind", ["conv2d", "embedding"]
)  # seconds each; linear layers have a test of their own
def test_compiles_to_one_graph(kind):
    layer = layer_of(kind)
    torch.compiler.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=True)
    x = input_of(kind, 4)
    assert_close(compiled(x), layer(x), 1e-4)
    compiled(x).sum().backward()
    assert math.isfinite(float(layer.cores[0].grad.abs().sum()))
    torch.compiler.reset()


@pytest.mark.skipif(not hasattr(torch.compiler, "is_exporting"), reason="an older torch")
def test_exports_for_any_batch(kind):
    layer = layer_of(kind).eval()
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(layer, (input_of(kind, 3),), dynamic_shapes=({0: batch},))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    x = input_of(kind, 5)
    assert_close(loaded(x), layer(x), 1e-4)


@pytest.mark.filterwarnings("ignore")  # of the exporter, about its own parts
def test_exports_to_onnx(kind, tmp_path):
    layer = layer_of(kind).eval()
    exported = through_onnx(layer, input_of(kind, 3), tmp_path)
    for rows in (3, 7):
        x = input_of(kind, rows)
        assert_close(exported(x), layer(x).detach(), 1e-4)


def test_mixed_and_half_precision(kind):
    layer, x = layer_of(kind), input_of(kind, 3)
    expected = layer(x).detach()
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x)
        assert out.dtype == layer.to_dense()(x).dtype
    for way in ways_of(layer):
        forced = copy.deepcopy(layer)
        forced._schedules = (((1 << 62, way),),) * 2
        with torch.autocast("cpu", torch.bfloat16):
            own = forced(x)
        assert own.dtype == out.dtype
        own.float().sum().backward()
        assert all(core.grad.dtype == torch.float32 for core in forced.cores)
    out.float().sum().backward()
    assert all(core.grad.dtype == torch.float32 for core in layer.cores)
    half = copy.deepcopy(layer).bfloat16()
    assert half(input_of(kind, 3, torch.bfloat16)).dtype == torch.bfloat16
    for found in (out, half(input_of(kind, 3, torch.bfloat16))):
        assert_close(found.float(), expected, 0.05)


def test_cores_have_no_memory_format(kind):
    layer, x = layer_of(kind), input_of(kind, 3)
    assert any(core.dim() in (4, 5) for core in layer.cores) or len(layer.cores) < 4
    expected = layer(x)
    for memory_format in (torch.channels_last, torch.channels_last_3d):
        assert torch.equal(nn.Sequential(layer).to(memory_format=memory_format)(x), expected)


def test_a_state_that_is_assigned_says_how_the_layer_is_applied(kind):
    layer, x = layer_of(kind), input_of(kind, 3)
    for other in (layer_of(kind, 1, dtype=torch.float64), KINDS[kind][0](device="meta")):
        nn.Sequential(other).load_state_dict(nn.Sequential(layer).state_dict(), assign=True)
        assert other._schedules == layer._schedules
        assert torch.equal(other(x), layer(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_search_ends_within_the_error(dtype):
    torch.manual_seed(0)
    weight = torch.randn(16, 4) @ torch.randn(4, 256)
    dense = nn.Linear(256, 16, dtype=dtype)
    # The search stops short of 0.3 in single precision, and goes on from there.
    dense.weight.data.copy_(weight.to(dtype))
    how = {"in_dims": (16, 16), "out_dims": (16,), "paired": False, "random_state": 0}
    exact = dense.weight.detach().double()
    for max_error in (0.3, 4e-3):
        layer = TNLinear.from_linear(dense, max_error=max_error, **how)
        stored = layer.layout.to_matrix(layer.network.to(dtype=torch.float64).to_dense())
        assert float((stored - exact).norm() / exact.norm()) <= max_error
    if dtype is torch.bfloat16:
        with pytest.raises(tg.OptionError, match=r"stored as torch.bfloat16, has an error of 0\.00\d+"):
            TNLinear.from_linear(dense, max_error=1e-3, **how)


@pytest.mark.parametrize("dims", ["44", 16, (), (4, 4.5), (4, True), ("4", "4")])
def test_digits_that_are_none_are_named(dims):
    makers = [
        lambda d: TNLinear(16, 16, in_dims=d),
        lambda d: TNConv2d(16, 16, 3, out_dims=d),
        lambda d: TNEmbedding(16, 16, in_dims=d),
        lambda d: TNConv1d.from_conv1d(nn.Conv1d(16, 16, 3), in_dims=d),
    ]
    for make in makers:
        with pytest.raises(tg.StructureError, match="must be whole numbers of at least 1"):
            make(dims)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: TNEmbedding(16, 16, padding_idx="0"), "padding_idx='0' must be one of 16 tokens"),
        (lambda: tg.nn.TNMultiheadAttention("16", 4), "embed_dim='16' must be a whole number"),
        (
            lambda: TNLinear.from_linear(nn.Linear(4, 4), max_error="0.1"),
            "max_error='0.1' must be",
        ),
        (lambda: TNLinear.from_linear(nn.Linear(4, 4), max_error=0), "max_error=0 must be"),
    ],
)
def test_arguments_of_another_type_are_named(make, match):
    with pytest.raises(tg.OptionError, match=match):
        make()


@pytest.mark.parametrize("name", ["weight_orig", "weight"])
def test_the_weight_is_no_parameter(kind, name):
    layer = layer_of(kind)
    with pytest.raises(tg.OptionError, match=f"of a {type(layer).__name__}.*{layer.to_name}"):
        if name == "weight":
            del layer.weight
        else:
            layer.register_parameter(name, None)


@pytest.mark.parametrize(
    ("make", "dense", "match"),
    [
        (TNLinear.from_linear, lambda: nn.Conv1d(4, 4, 1), r"a torch.nn.Linear, not of a .*conv\.Conv1d"),
        (TNConv2d.from_conv2d, lambda: nn.Conv1d(4, 4, 3), "a torch.nn.Conv2d, not of"),
        (TNConv1d.from_conv1d, lambda: nn.ConvTranspose1d(4, 4, 3), "not of a .*ConvTranspose1d"),
        (TNEmbedding.from_embedding, lambda: nn.Linear(4, 4), "a torch.nn.Embedding, not of"),
        (TNLinear.from_linear, lambda: nn.LazyLinear(4), "no size yet"),
        (TNLinear.from_linear, lambda: nn.Linear(4, 4, dtype=torch.complex64), "complex64"),
        (TNConv2d.from_conv2d, lambda: nn.Conv2d(4, 4, 3, device="meta"), "meta device"),
    ],
)
def test_layers_whose_place_it_cannot_take_are_refused(make, dense, match):
    with pytest.raises(tg.OptionError, match=match):
        make(dense())


def test_layers_that_quantisation_is_trained_in_are_refused():
    class FakeQuantised(nn.Linear):
        """As torch has it: the weight is rounded wherever it is used."""

        def __init__(self) -> None:
            super().__init__(64, 64)
            self.weight_fake_quant = nn.Identity()

    with pytest.raises(tg.OptionError, match="trained to be quantised"):
        TNLinear.from_linear(FakeQuantised())
    for call in (tg.nn.adapt, lambda m, **o: tg.nn.compress(m, max_error=0.1, **o)):
        with pytest.raises(tg.OptionError, match="trained to be quantised"):
            call(nn.Sequential(FakeQuantised()), layers=["0"])


def test_what_is_frozen_stays_so_in_the_dense_layer(kind):
    layer = layer_of(kind)
    assert all(p.requires_grad for p in layer.to_dense().parameters())
    layer.cores.requires_grad_(False)
    dense = layer.to_dense()
    assert not dense.weight.requires_grad
    assert layer.bias is None or dense.bias.requires_grad
