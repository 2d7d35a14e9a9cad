from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import tensorgrow as tg
from tensorgrow.nn import TNEmbedding
from tensorgrow.nn.layer.layout import padded_digits
from tensorgrow.nn.layer.lookups import lookups
from tests.oracles import assert_close
from tests.strategies import seeds, structures


@st.composite
def tables(draw) -> TNEmbedding:
    paired = draw(st.booleans())
    n = draw(st.integers(1, 3))
    m = n if paired else draw(st.integers(1, 3))
    in_dims = draw(st.lists(st.integers(1, 3), min_size=n, max_size=n))
    out_dims = draw(st.lists(st.integers(1, 3), min_size=m, max_size=m))
    most = torch.tensor(in_dims).prod().item()
    size = torch.tensor(out_dims).prod().item()
    tokens = draw(st.integers(1, most))
    options = {"in_dims": in_dims, "out_dims": out_dims, "paired": paired, "dtype": torch.float64}
    padding = draw(st.none() | st.integers(-tokens, tokens - 1))
    dims = TNEmbedding(tokens, size, **options).layout.dims
    graph = draw(structures(min_order=len(dims), max_order=len(dims), max_internal=1))
    structure = tg.Structure(dims, graph.ranks, num_nodes=graph.num_nodes)
    return TNEmbedding(tokens, size, padding, structure=structure, random_state=draw(seeds), **options)


@given(tables())
def test_all_ways_are_torchs_embedding(layer):
    tokens = torch.arange(layer.num_embeddings).repeat(2).reshape(2, -1)
    expected = layer.to_embedding()(tokens)
    assert_close(layer(tokens), expected, 1e-11)
    for lookup in [*lookups(layer.layout, layer.structure), None]:
        layer._schedules = (((1 << 62, lookup),),) * 2
        assert_close(layer(tokens), expected, 1e-11)
        assert_close(layer(tokens[0].int()), expected[0], 1e-11)


def test_vocabularies_of_any_size():
    layer = TNEmbedding(50_257, 768)
    assert 50_257 <= layer.layout.in_features <= 1.01 * 50_257
    assert layer.weight.shape == (50_257, 768) and layer.uses_cores(1000)
    assert layer(torch.tensor([50_256])).shape == (1, 768)
    for size, count in ((17, 2), (97, 3), (50_257, 4), (1, 3)):
        digits = padded_digits(size, count)
        assert len(digits) == count and digits[0] <= 2 * digits[-1]
        assert size <= torch.tensor(digits).prod() <= 1.3 * size


def test_a_few_tokens_touch_few_numbers():
    layer = TNEmbedding(50_000, 768, in_dims=(25, 20, 10, 10), out_dims=(8, 8, 4, 3), paired=True)
    layer.network = tg.TensorNetwork.random(tg.Structure.tensor_train(layer.layout.dims, 16), random_state=0)
    few, many = layer.way_for(1), layer.way_for(2_000)
    assert len(few.parts) == 4 and few.entries(1) < 100_000
    assert len(many.parts) < 4


def test_what_a_network_cannot_do_is_refused():
    for options, said in (({"max_norm": 1.0}, "max_norm"), ({"sparse": True}, "sparse")):
        with pytest.raises(tg.OptionError, match=said):
            TNEmbedding.from_embedding(nn.Embedding(9, 4, **options))
    with pytest.raises(tg.OptionError, match="padding_idx=3 is not zero"):
        TNEmbedding.from_embedding(nn.Embedding.from_pretrained(torch.ones(9, 4), padding_idx=3))
    with pytest.raises(tg.OptionError, match="one of 9 tokens"):
        TNEmbedding(9, 4, 9)
    with pytest.raises(tg.OptionError, match="write 8 tokens; there are 9"):
        TNEmbedding(9, 4, in_dims=(4, 2))
    with pytest.raises(tg.OptionError, match="num_embeddings"):
        TNEmbedding(0, 4)


def test_tokens_that_there_are_not_are_refused():
    layer = TNEmbedding(7, 4)  # written with more than seven
    for tokens in ([7], [-1]):
        with pytest.raises(tg.DataError, match="there are 7, from 0 on"):
            layer(torch.tensor(tokens))
    with pytest.raises(tg.DataError, match="numbers, not"):
        layer(torch.zeros(3))
    assert layer(torch.zeros(0, 3, dtype=torch.int64)).shape == (0, 3, 4)


def test_padding_gets_no_gradient_and_is_zero():
    layer = TNEmbedding(12, 4, 5, in_dims=(4, 3), out_dims=(4,), random_state=0)
    layer(torch.tensor([5, 5])).sum().backward()
    assert all(float(core.grad.abs().sum()) == 0 for core in layer.cores)
    assert not layer(torch.tensor([5])).any() and layer(torch.tensor([4])).any()
    assert layer.to_embedding().padding_idx == 5


def test_many_tokens_of_a_small_vocabulary_are_read_from_the_table():
    small, large = TNEmbedding(500, 64), TNEmbedding(10_000, 256)
    for layer in (small, large):
        structure = tg.Structure.tensor_train(layer.layout.dims, 8)
        layer.network = tg.TensorNetwork.random(structure, random_state=0)
    assert not small.uses_cores(10_000) and not small.uses_cores(10_000, gradients=True)
    assert large.uses_cores(10_000) and large.uses_cores(32)
