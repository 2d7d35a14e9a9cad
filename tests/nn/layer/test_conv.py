from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import tensorgrow as tg
from tensorgrow.nn import Layout, TNConv1d, TNConv2d, TNConv3d
from tensorgrow.nn.layer.chains import chains
from tests.oracles import assert_close
from tests.strategies import seeds, structures

CLASSES = (TNConv1d, TNConv2d, TNConv3d)


@st.composite
def convolutions(draw) -> tuple[object, torch.Tensor]:
    dims = draw(st.integers(1, 3))
    groups = draw(st.integers(1, 2))
    each = st.integers(1, 2)
    mode = draw(st.sampled_from(["zeros", "reflect", "circular", "replicate"]))
    stride = draw(st.tuples(*[each] * dims))
    padding = draw(st.sampled_from(["valid", "same"])) if stride == (1,) * dims else draw(st.integers(0, 1))
    paired = draw(st.booleans())
    in_dims = draw(st.lists(st.integers(1, 3), min_size=2, max_size=2))
    out_dims = [groups * draw(each), draw(st.integers(1, 3))]
    options = {
        "in_dims": in_dims,
        "out_dims": out_dims,
        "stride": stride,
        "padding": padding,
        "dilation": draw(st.tuples(*[each] * dims)),
        "groups": groups,
        "padding_mode": mode,
        "bias": draw(st.booleans()),
        "paired": paired,
        "dtype": torch.float64,
        "random_state": draw(seeds),
    }
    channels = (groups * in_dims[0] * in_dims[1], out_dims[0] * out_dims[1])
    kernel = draw(st.tuples(*[st.integers(1, 3)] * dims))
    made = CLASSES[dims - 1](*channels, kernel, **options)
    order = len(made.layout.dims)
    graph = draw(structures(min_order=order, max_order=order, max_internal=1))
    structure = tg.Structure(made.layout.dims, graph.ranks, num_nodes=graph.num_nodes)
    layer = CLASSES[dims - 1](*channels, kernel, structure=structure, **options)
    generator = torch.Generator().manual_seed(draw(seeds))
    sizes = draw(st.lists(st.integers(5, 7), min_size=dims, max_size=dims))
    return layer, torch.randn(2, channels[0], *sizes, generator=generator, dtype=torch.float64)


@given(convolutions())
def test_all_ways_are_torchs_convolution(case):
    layer, x = case
    dense = layer.to_dense()
    expected = dense(x)
    assert_close(layer(x), expected, 1e-10)
    for chain in chains(layer.layout, layer.structure, layer.form):
        layer._schedules = (((1 << 62, chain),),) * 2
        assert_close(layer(x), expected, 1e-10)
    assert_close(layer(x[0]), expected[0], 1e-10)


def test_a_train_over_the_kernel_is_three_convolutions():
    layer = TNConv2d(256, 256, 3, padding=1, in_dims=(256,), out_dims=(256,))
    layer.network = tg.TensorNetwork.random(
        tg.Structure(layer.layout.dims, {(0, 2): 32, (1, 2): 32}), random_state=0
    )
    way = layer.way_for(14 * 14)
    assert way is not None and way.before is not None and way.after is not None
    assert (way.inner, way.outer, way.passing) == (32, 32, 1)
    full = TNConv2d(256, 256, 3, padding=1, in_dims=(256,), out_dims=(256,))
    full.network = tg.TensorNetwork.random(
        tg.Structure(layer.layout.dims, {(0, 2): 256, (1, 2): 256}), random_state=0
    )
    assert not full.uses_cores(56 * 56)


def test_digits_of_channels_and_of_the_kernel():
    conv = nn.Conv2d(12, 20, 3)
    assert TNConv2d.from_conv2d(conv).layout == Layout((4, 3, 9), (5, 4), paired=False)
    assert TNConv2d.from_conv2d(conv, paired=True).layout == Layout((4, 3, 9), (5, 4, 1))
    joint = TNConv2d.from_conv2d(conv, in_dims=(108,), out_dims=(20,))
    assert joint.layout.dims == (20, 108)
    assert TNConv2d(12, 20, 1).layout.dims == (5, 4, 4, 3)
    exact = TNConv1d.from_conv1d(nn.Conv1d(4, 4, 3), max_error=1e-7)
    assert exact.to_conv1d().kernel_size == (3,)
    assert TNConv3d.from_conv3d(nn.Conv3d(2, 4, 2)).to_conv3d().kernel_size == (2, 2, 2)


def test_wrong_arguments_are_named():
    with pytest.raises(tg.OptionError, match="divisible by groups"):
        TNConv2d(6, 8, 3, groups=4)
    with pytest.raises(tg.OptionError, match="padding_mode"):
        TNConv2d(6, 8, 3, padding_mode="mirror")
    with pytest.raises(tg.StructureError, match="product 5"):
        TNConv2d(6, 8, 3, in_dims=(5,))
    layer = TNConv2d(6, 8, 3)
    for shape in ((6, 4), (1, 5, 4, 4), (1, 6, 4)):
        with pytest.raises(tg.DataError, match="2 axes of positions"):
            layer(torch.zeros(shape))


@pytest.mark.parametrize("paired", [False, True])
def test_a_layer_with_one_input_channel_keeps_its_digits(paired):
    torch.manual_seed(0)
    conv = nn.Conv2d(1, 32, 3)
    layer = TNConv2d.from_conv2d(conv, max_error=0.3, paired=paired, random_state=0)
    assert float((layer.weight - conv.weight).detach().norm()) <= 0.3 * float(conv.weight.detach().norm())
    assert TNConv2d.from_conv2d(conv, in_dims=(1, 9), out_dims=(1, 32)).layout.dims == (1, 32, 1, 9)


def test_gradients_of_few_channels_at_a_time_are_not_for_free():
    layer = TNConv2d(64, 64, 3, padding=2, dilation=2)
    layer.network = tg.TensorNetwork.random(tg.Structure.complete(layer.layout.dims, 2), random_state=0)
    rows = 4 * 28 * 28
    # The kernel goes from 4 to 4 channels, for each of 16 that pass by it.
    way = layer.way_for(rows)
    assert way is not None and (way.passing, way.inner, way.outer) == (16, 4, 4)
    assert not layer.uses_cores(rows, gradients=True)
