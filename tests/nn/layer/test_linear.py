from __future__ import annotations

import copy
import io
import json
import math
import string

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import tensorgrow as tg
from tensorgrow.nn import Layout, TNLinear, tn_layers
from tensorgrow.nn.layer.plans import dense_plan, through_plan
from tensorgrow.nn.layer.products import run
from tests import oracles
from tests.oracles import TOLERANCE, assert_close
from tests.strategies import seeds, structures

SAMPLE = {(0, 1): 2, (1, 2): 3, (0, 2): 2}


def plain_weight(layer: TNLinear) -> np.ndarray:
    """The weight by one einsum over digits, without the library's code."""
    dense = oracles.dense(layer.structure, layer.cores)
    n = len(layer.layout.out_dims)
    if layer.layout.paired:
        o, i = string.ascii_lowercase[:n], string.ascii_uppercase[:n]
        split = dense.reshape([d for pair in zip(layer.layout.out_dims, layer.layout.in_dims) for d in pair])
        dense = np.einsum("".join(a + b for a, b in zip(o, i)) + "->" + o + i, split)
    weight = dense.reshape(layer.out_features, layer.in_features)
    return weight if layer.input_scale is None else weight * oracles.to_numpy(layer.input_scale)


@st.composite
def layers(draw) -> TNLinear:
    paired = draw(st.booleans())
    n = draw(st.integers(1, 3))
    m = n if paired else draw(st.integers(1, 3))
    out_dims = draw(st.lists(st.integers(1, 3), min_size=n, max_size=n))
    in_dims = draw(st.lists(st.integers(1, 3), min_size=m, max_size=m))
    layout = Layout(tuple(in_dims), tuple(out_dims), paired)
    order = len(layout.dims)
    graph = draw(structures(min_order=order, max_order=order, max_internal=1))
    return TNLinear(
        layout.in_features,
        layout.out_features,
        in_dims=in_dims,
        out_dims=out_dims,
        structure=tg.Structure(layout.dims, graph.ranks, num_nodes=graph.num_nodes),
        paired=paired,
        bias=draw(st.booleans()),
        input_scale=draw(st.booleans()),
        dtype=torch.float64,
        random_state=draw(seeds),
    )


@given(layers(), seeds, st.sampled_from([1, 5, 300]))
def test_weight_and_both_ways_to_apply_it_agree_with_einsum(layer, seed, rows):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, layer.in_features, dtype=torch.float64, generator=generator)
    if layer.input_scale is not None:
        layer.input_scale.data.uniform_(0.5, 2.0, generator=generator)
    weight = plain_weight(layer)
    assert_close(layer.weight, weight, 1e-11)
    expected = x.numpy() @ weight.T
    scaled = x if layer.input_scale is None else x * layer.input_scale
    through = run(through_plan(layer.layout, layer.structure, rows), [scaled, *layer.cores])
    rebuilt = scaled @ run(dense_plan(layer.layout, layer.structure), list(layer.cores)).T
    bias = 0.0 if layer.bias is None else oracles.to_numpy(layer.bias)
    assert_close(through, expected, 1e-11)
    assert_close(rebuilt, expected, 1e-11)
    assert_close(layer(x), expected + bias, 1e-11, scale=np.linalg.norm(expected) + np.linalg.norm(bias) * 2)


def test_the_index_of_a_paired_leg_is_output_times_input_plus_input():
    layer = TNLinear(6, 8, in_dims=(2, 3), out_dims=(4, 2), random_state=0)
    a, b = (oracles.to_numpy(c) for c in layer.cores)
    weight = oracles.to_numpy(layer.weight)
    for o1, o2, i1, i2 in np.ndindex(4, 2, 2, 3):
        assert weight[o1 * 2 + o2, i1 * 3 + i2] == pytest.approx(a[o1 * 2 + i1] * b[o2 * 3 + i2], rel=1e-5)


@pytest.mark.parametrize("paired", [True, False])
def test_a_new_layer_has_the_variance_of_a_linear_one(paired):
    order = 3 if paired else 6
    ranks = {(k, k + 1): 2 for k in range(order - 1)}
    structure = tg.Structure((16,) * 3 if paired else (4,) * 6, ranks)
    like = nn.Linear(64, 64).weight.detach().square().mean()
    for seed in range(3):
        layer = TNLinear(
            64, 64, in_dims=(4,) * 3, out_dims=(4,) * 3, structure=structure, paired=paired, random_state=seed
        )
        assert float(layer.weight.detach().square().mean()) == pytest.approx(1 / (3 * 64), rel=1e-4)
        assert float(layer.weight.detach().square().mean()) == pytest.approx(float(like), rel=0.1)
        assert float(layer.bias.detach().abs().max()) <= 1 / 8
        sizes = [float(c.detach().square().mean()) for c in layer.cores]
        assert max(sizes) < 5 * min(sizes)


def test_one_seed_gives_one_layer():
    first, second = (TNLinear(16, 16, random_state=4) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters()))


def test_gradients():
    structure = tg.Structure((4, 4, 4), SAMPLE)
    layer = TNLinear(8, 8, in_dims=(2,) * 3, out_dims=(2,) * 3, structure=structure, dtype=torch.float64)
    x = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    names = [n for n, _ in layer.named_parameters()]

    def apply(x, *values):
        return torch.func.functional_call(layer, dict(zip(names, values)), (x,))

    assert torch.autograd.gradcheck(apply, (x, *layer.parameters()))
    layer._schedules = (((1 << 62, None),),) * 2  # by rebuilding
    assert torch.autograd.gradcheck(apply, (x, *layer.parameters()))


@pytest.mark.parametrize("paired", [True, False])
def test_growing_without_noise_keeps_the_function(paired):
    layer = TNLinear(16, 8, in_dims=(4, 4), out_dims=(2, 4), paired=paired, random_state=0)
    x = torch.randn(5, 16)
    before = layer(x)
    size = layer.num_parameters
    for edge in [(0, 1), (0, 1)]:
        added = layer.structure.growth_cost(*edge)
        layer.grow_edge(*edge, noise=0.0)
        size += added
    assert layer.num_parameters == size == sum(p.numel() for p in layer.parameters())
    assert layer.structure.rank(0, 1) == 3
    assert_close(layer(x), before, 1e-5)
    layer.grow_edge(0, 1, noise=0.1, random_state=0)
    assert not torch.allclose(layer(x), before)
    layer(x).sum().backward()
    assert all(p.grad is not None and p.grad.shape == p.shape for p in layer.parameters())


def test_a_trial_acts_like_the_growth_and_gives_the_cores_no_gradient():
    layer = TNLinear(16, 16, in_dims=(4, 4), out_dims=(4, 4), random_state=0)
    x = torch.randn(3, 16)
    before = layer(x)
    slices = tuple(torch.randn(16, requires_grad=True) for _ in range(2))
    with layer.trial(0, 1, slices):
        during = layer(x)
        during.sum().backward()
    assert all(s.grad is not None for s in slices)
    assert all(c.grad is None for c in layer.cores)
    assert torch.equal(layer(x), before)
    layer.grow_edge(0, 1, slices=slices)
    assert_close(layer(x), during, 1e-5)


def test_state_goes_into_a_layer_of_another_rank():
    layer = TNLinear(16, 16, in_dims=(4, 4), out_dims=(4, 4), paired=False, random_state=0)
    layer.grow_edge(0, 2)
    layer.network = layer.network.grow_edge(1, 3, random_state=0).grow_edge(0, 1, random_state=0)
    file = io.BytesIO()
    torch.save(nn.Sequential(layer).state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    other = nn.Sequential(TNLinear(16, 16, in_dims=(4, 4), out_dims=(4, 4), paired=False))
    other[0].grow_edge(2, 3)
    other.load_state_dict(state)
    x = torch.randn(3, 16)
    assert other[0].structure == layer.structure
    assert torch.equal(other(x), layer(x))
    core = other[0].cores[0]
    other.load_state_dict(state)
    assert other[0].cores[0] is core  # an optimiser's parameter stays the same where nothing changed


def test_state_of_internal_nodes():
    layer = TNLinear(8, 8, in_dims=(2,) * 3, out_dims=(2,) * 3, structure=tg.Structure.tucker((4,) * 3, 2))
    other = TNLinear(8, 8, in_dims=(2,) * 3, out_dims=(2,) * 3)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other.weight, layer.weight)


def test_state_with_other_digits_is_refused():
    layer = TNLinear(16, 16, in_dims=(4, 4), out_dims=(4, 4))
    with pytest.raises(tg.StructureError, match="digits"):
        TNLinear(16, 16, in_dims=(2, 8), out_dims=(4, 4)).load_state_dict(layer.state_dict())
    state = layer.state_dict() | {"_extra_state": torch.zeros(3, dtype=torch.uint8)}
    with pytest.raises(tg.FileFormatError, match="not that of a TNLinear"):
        layer.load_state_dict(state)


@pytest.mark.parametrize(
    "change",
    [{"num_nodes": 10**9}, {"num_nodes": 60_000}, {"ranks": [[0, 1, 10**9]]}, {"dims": [16, 16, 16]}],
)
def test_sizes_in_a_state_take_no_memory(change):
    """The cores that are there say what a state needs, not the numbers in it."""
    layer = TNLinear(16, 16, in_dims=(4, 4), out_dims=(4, 4), random_state=0)
    before = [c.detach().clone() for c in layer.cores]
    document = json.loads(bytes(layer.state_dict()["_extra_state"].tolist()))
    document["structure"] |= change
    state = layer.state_dict()
    state["_extra_state"] = torch.tensor(list(json.dumps(document).encode()), dtype=torch.uint8)
    with pytest.raises(tg.FileFormatError, match="the saved state of the layer") as caught:
        layer.load_state_dict(state)
    assert "\n" not in str(caught.value)
    assert all(torch.equal(a, b) for a, b in zip(layer.cores, before))


def test_copies_moves_and_leading_axes(device):
    layer = TNLinear(16, 8, in_dims=(4, 4), out_dims=(2, 4), random_state=0)
    layer.grow_edge(0, 1)
    moved = copy.deepcopy(layer).to(device=device, dtype=torch.float64)
    x = torch.randn(2, 3, 16)
    assert moved(x.to(device, torch.float64)).dtype == torch.float64
    assert_close(moved(x.to(device, torch.float64)), layer(x), TOLERANCE[torch.float32])
    assert layer(x[0, 0]).shape == (8,)
    assert layer(x[:0]).shape == (0, 3, 8)
    assert_close(layer.to_linear()(x), layer(x), 1e-5)
    assert "0-1: 2" in repr(layer)
    assert list(tn_layers(nn.Sequential(nn.ReLU(), layer))) == ["1"]


def test_from_a_dense_layer():
    hidden = TNLinear(16, 16, in_dims=(4, 4), out_dims=(4, 4), dtype=torch.float64, random_state=0)
    hidden.grow_edge(0, 1, noise=1.0, random_state=1)
    linear = hidden.to_linear()
    layer = TNLinear.from_linear(
        linear, in_dims=(4, 4), out_dims=(4, 4), structure=hidden.structure, random_state=0
    )
    assert_close(layer.weight, linear.weight, 1e-6)
    assert torch.equal(layer.bias, linear.bias)
    same = TNLinear.from_linear(linear, in_dims=(4, 4), out_dims=(4, 4), network=hidden.network)
    assert_close(same.weight, linear.weight, 1e-12)


def test_wrong_arguments_are_named():
    with pytest.raises(tg.StructureError, match="product 15"):
        TNLinear(16, 16, in_dims=(3, 5), out_dims=(4, 4))
    with pytest.raises(tg.StructureError, match="paired=False"):
        TNLinear(16, 16, in_dims=(16,), out_dims=(4, 4))
    with pytest.raises(tg.StructureError, match="multiplied in pairs"):
        TNLinear(16, 16, in_dims=(4, 4), out_dims=(4, 4), structure=tg.Structure((4,) * 4))
    with pytest.raises(tg.DataError, match=r"\(2, 15\); its last axis must have 16"):
        TNLinear(16, 16)(torch.zeros(2, 15))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_to_one_graph(dynamic):
    layer = TNLinear(64, 64, in_dims=(4,) * 3, out_dims=(4,) * 3, random_state=0)
    layer.grow_edge(0, 1)
    torch.compiler.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for rows in (3, 17):
        x = torch.randn(rows, 64)
        assert_close(compiled(x), layer(x), 1e-5)
    compiled(x).sum().backward()
    assert math.isfinite(float(layer.cores[0].grad.abs().sum()))
    layer.grow_edge(1, 2, noise=1.0)
    assert_close(compiled(x), layer(x), 1e-5)
    torch.compiler.reset()


def test_sizes_and_inputs_that_are_none_are_refused():
    for sizes in ((4.0, 4), (4, True), (0, 4), (4, -1)):
        with pytest.raises(tg.StructureError, match="whole number of at least 1"):
            TNLinear(*sizes)
    with pytest.raises(tg.DataError, match="must have 16 features"):
        TNLinear(16, 16)(torch.tensor(1.0))


def test_a_frozen_dense_layer_gives_a_frozen_one():
    linear = nn.Linear(16, 16)
    linear.weight.requires_grad_(False)
    layer = TNLinear.from_linear(linear, in_dims=(4, 4), out_dims=(4, 4))
    assert [n for n, p in layer.named_parameters() if p.requires_grad] == ["bias"]
