"""Modes of networks taken away, multiplied, reordered, merged and split, as those of their tensors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensorgrow.algebra import absorption
from tensorgrow.errors import DataError, MemoryLimitError, OptionError, PositionError, StructureError
from tensorgrow.network import TensorNetwork
from tensorgrow.structure import Structure
from tests.conftest import DTYPES
from tests.oracles import TOLERANCE, assert_close, dense, magnitude, random_array, random_network
from tests.strategies import networks, seeds, structures

RING = Structure.tensor_ring((4, 3, 5, 4), (2, 3, 2, 3))
TUCKER = Structure.tucker((4, 3, 5, 4), (2, 3, 2, 3))
SLICES = [slice(None), slice(None, None, -1), slice(0, 1), slice(-1, None), slice(-3, None, 2)]
kinds = st.sampled_from(DTYPES)


def to_array(result: TensorNetwork | torch.Tensor) -> np.ndarray:
    return result.numpy() if isinstance(result, torch.Tensor) else dense(result.structure, result.cores)


def check(result: TensorNetwork | torch.Tensor, expected: np.ndarray, size: float) -> None:
    """Equal up to rounding errors of numbers of a size, and a number exactly where no mode is left."""
    assert isinstance(result, torch.Tensor) == (np.ndim(expected) == 0)
    assert_close(to_array(result), expected, TOLERANCE[result.dtype], size)


def size_of(result: TensorNetwork | torch.Tensor) -> int:
    return 1 if isinstance(result, torch.Tensor) else result.num_parameters


@given(data=st.data(), dtype=kinds)
def test_indexing_is_that_of_the_tensor(data, dtype):
    x = data.draw(networks(dtype))
    choices = [st.integers(-d, d - 1) | st.sampled_from(SLICES) for d in x.shape]
    key = data.draw(st.tuples(*choices))
    part = x[key]
    check(part, to_array(x)[key], magnitude(x))
    assert part.dtype == dtype
    assert size_of(part) <= x.num_parameters
    first, last = data.draw(choices[0]), data.draw(choices[-1])
    check(x[first], to_array(x)[first], magnitude(x))
    check(x[..., last], to_array(x)[..., last], magnitude(x))


@given(data=st.data(), dtype=kinds, large=st.sampled_from([4, 1 << 22]))
def test_sums_means_and_marginals_are_those_of_the_tensor(data, dtype, large):
    x = data.draw(networks(dtype))
    a, size, order = to_array(x), magnitude(x), list(range(x.ndim))
    modes = data.draw(st.lists(st.sampled_from(order), unique=True))
    size *= math.sqrt(a.size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(absorption, "LARGE_CORE", large)
        total = x.sum(modes)
    check(total, a.sum(tuple(modes)), size)
    assert size_of(total) <= x.num_parameters
    check(x.mean(modes), a.mean(tuple(modes)), size)
    if modes:
        check(x.marginal(modes), np.einsum(a, order, modes), size)
    rng = np.random.default_rng(0)
    weights = {k - x.ndim: rng.standard_normal(x.shape[k]) for k in modes}
    vectors = [v for k in modes for v in (weights[k - x.ndim], [k])]
    left = [k for k in order if k not in modes]
    check(x.integrate(weights), np.einsum(a, order, *vectors, left), 10 * size)
    in_order = [weights.get(k - x.ndim) for k in order]
    check(x.integrate(in_order), np.einsum(a, order, *vectors, left), 10 * size)


@given(data=st.data(), dtype=kinds)
def test_contractions_are_those_of_the_tensors(data, dtype):
    x, other = data.draw(networks(dtype, max_order=4)), data.draw(structures(max_order=4))
    count = data.draw(st.integers(0, min(x.ndim, other.order)))
    mine, theirs = (data.draw(st.permutations(range(n)))[:count] for n in (x.ndim, other.order))
    sizes = dict(zip(theirs, (x.shape[k] for k in mine)))
    other = other.with_dims([sizes.get(k, d) for k, d in enumerate(other.dims)])
    y = random_network(other, data.draw(seeds), dtype)
    product = x.contract(y, list(zip(mine, theirs)))
    check(product, np.tensordot(to_array(x), to_array(y), (mine, theirs)), magnitude(x) * magnitude(y))
    assert size_of(product) <= x.num_parameters + y.num_parameters
    if not count:
        assert product.structure == x.outer(y).structure


@given(data=st.data(), dtype=kinds)
def test_modes_can_be_multiplied_and_reordered(data, dtype):
    x = data.draw(networks(dtype))
    a, size = to_array(x), magnitude(x)
    order = data.draw(st.permutations(range(x.ndim)))
    check(x.permute(order), a.transpose(order), size)
    mode = data.draw(st.integers(-x.ndim, x.ndim - 1))
    matrix = random_array(np.random.default_rng(0), (3, x.shape[mode]), dtype)
    check(x.apply(mode, matrix), np.moveaxis(np.tensordot(matrix, a, (1, mode)), 0, mode), 20 * size)


@given(data=st.data(), dtype=kinds)
def test_modes_can_be_merged_and_split(data, dtype):
    x = data.draw(networks(dtype))
    a, size = to_array(x), magnitude(x)
    modes = data.draw(st.lists(st.sampled_from(range(x.ndim)), unique=True, min_size=1))
    merged = x.merge_modes(modes)
    groups = [modes if k == modes[0] else [k] for k in range(x.ndim) if k not in modes[1:]]
    expected = a.transpose([k for group in groups for k in group]).reshape(merged.shape)
    check(merged, expected, size)
    place = groups.index(modes)
    sizes = [x.shape[k] for k in modes]
    split = merged.split_mode(place, sizes)
    check(split, expected.reshape(split.shape), size)
    assert split.shape == tuple(x.shape[k] for group in groups for k in group)
    check(
        split.split_mode(place, (1, sizes[0], 1)),
        to_array(split)[..., None].reshape(*split.shape[:place], 1, sizes[0], 1, *split.shape[place + 1 :]),
        size,
    )


# -- what becomes of cores ---------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [3, 60])
def test_a_train_without_some_of_its_modes_is_a_train(order):
    train = random_network(Structure.tensor_train((3,) * order, 2), 0)
    assert train[1].structure == Structure.tensor_train((3,) * (order - 1), 2)
    assert train.sum(1).structure == Structure.tensor_train((3,) * (order - 1), 2)
    assert train.marginal([0, -1]).structure == Structure((3, 3), {(0, 1): 2})


def test_what_is_left_of_a_hub_is_absorbed():
    x = random_network(TUCKER, 0)
    assert x[:, 0, :, 1].structure == Structure((4, 5), {(0, 1): 2})
    assert x.marginal([2]).structure == Structure((5,))


def test_a_core_that_would_grow_becomes_an_internal_node():
    x = random_network(Structure.complete((2,) * 5, 2), 0)
    part = x[0]
    assert part.structure.num_nodes == 5
    assert part.structure.internal_nodes == (4,)
    check(part, to_array(x)[0], magnitude(x))


def test_far_modes_are_merged_beside_their_cores():
    train = random_network(Structure.tensor_train((2,) * 6, 6), 0)
    merged = train.merge_modes([1, 4])
    check(merged, to_array(train).transpose(0, 1, 4, 2, 3, 5).reshape(2, 4, 2, 2, 2), magnitude(train))
    assert merged.structure.num_nodes == 7
    assert merged.num_parameters < train.num_parameters + 20
    assert train.merge_modes([1, 2]).structure.num_nodes == 5


def test_many_modes_neither_overflow_nor_vanish():
    rng = np.random.default_rng(0)
    vectors = [torch.tensor(rng.random(10), dtype=torch.float32) for _ in range(60)]
    mean = math.prod(float(v.double().mean()) for v in vectors)
    # The product of the first half is 2^900, which single precision does not have.
    skewed = [v * 2.0 ** (30 if k < 30 else -30) for k, v in enumerate(vectors)]
    for cores in (vectors, skewed, skewed[::-1]):
        x = TensorNetwork(Structure.rank_one((10,) * 60), cores)
        assert math.isclose(float(x.mean()), mean, rel_tol=1e-5)
        assert math.isclose(float((x / 1e30).sum()), mean * 1e30, rel_tol=1e-5)
        assert math.isclose(float(x.mean(range(59)).mean()), mean, rel_tol=1e-5)
    ring = TensorNetwork.random(Structure.tensor_ring((9,) * 60, 5), random_state=0)
    single = ring.to(dtype=torch.float32)
    assert math.isclose(float(single.mean()), float(ring.mean()), rel_tol=1e-3)
    assert_close(single.mean(range(2, 60)).to_dense(), ring.mean(range(2, 60)).to_dense(), 1e-3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_gradients(dtype):
    structure = Structure((2, 3, 2, 2), {(0, 1): 2, (1, 2): 2, (2, 3): 2, (0, 4): 2, (3, 4): 2})
    x = random_network(structure, 0, dtype)
    matrix, weights = torch.rand(2, 3, dtype=dtype), torch.rand(2, dtype=dtype)

    def compute(matrix, weights, *cores):
        net = TensorNetwork(structure, cores)
        parts = net[1, ::2, [1, 0]], net.apply(1, matrix).sum([0, 2]), net.integrate({0: weights, 3: weights})
        joined = net.contract(net.permute([3, 1, 2, 0]), [(0, 0), (1, 1)])
        merged = net.merge_modes([0, 3]).split_mode(0, (2, 2))
        numbers = net.sum(), net[0, 1, 1, 0], net.contract(net, [(k, k) for k in range(4)])
        dense = [n.to_dense().flatten() for n in (*parts, joined, merged)]
        return torch.cat([*dense, torch.stack(numbers)])

    inputs = [c.clone().requires_grad_() for c in (matrix, weights, *x.cores)]
    assert torch.autograd.gradcheck(compute, inputs, fast_mode=True)


# -- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key, error, match",
    [
        (4, PositionError, "index 4 is out of range for mode 0, which has size 4"),
        ((0, -4), PositionError, "index -4 is out of range for mode 1, which has size 3"),
        ((0,) * 5, PositionError, "5 indices"),
        ((..., 0, ...), PositionError, "2 ellipses"),
        (slice(2, 2), PositionError, "takes nothing of mode 0"),
        (slice(0, 2, 0), OptionError, "slice"),
        (slice(0.5), OptionError, "slice"),
        ([0, 4], PositionError, "from -4 to 3"),
        ([], OptionError, "cannot be indexed"),
        ([True, False], OptionError, "cannot be indexed"),
        ([False] * 4, PositionError, "at least one"),
        (([0, 1], [0, 1]), OptionError, "arrays index 2 modes"),
        (1.0, OptionError, "cannot be indexed by 1.0"),
        (None, OptionError, "cannot be indexed by None"),
        (True, OptionError, "cannot be indexed by True"),
        ("a", OptionError, "cannot be indexed by 'a'"),
        ([[0, 1]], OptionError, "cannot be indexed"),
    ],
)
def test_indices_that_make_no_sense(key, error, match):
    with pytest.raises(error, match=match):
        random_network(RING, 0)[key]


def test_an_index_out_of_range_is_an_index_error():
    with pytest.raises(IndexError):
        random_network(RING, 0)[9]


@pytest.mark.parametrize("key", [[0, 3, -1], np.array([True, False, True, True]), torch.tensor([2, 2])])
def test_one_mode_may_be_indexed_by_an_array(key):
    x = random_network(RING, 0)
    check(x[key, 1:], to_array(x)[np.asarray(key), 1:], magnitude(x))
    check(x[np.array(2), torch.tensor(1), np.int64(-1)], to_array(x)[2, 1, -1], magnitude(x))


@pytest.mark.parametrize(
    "call, error, match",
    [
        (lambda x: x.sum(4), PositionError, "mode 4 does not exist; modes are 0..3"),
        (lambda x: x.sum([0, -4]), OptionError, "twice"),
        (lambda x: x.mean(0.5), OptionError, "whole number"),
        (lambda x: x.sum("0"), OptionError, "whole number"),
        (lambda x: x.marginal([]), OptionError, "at least one mode"),
        (lambda x: x.integrate([np.ones(4)]), OptionError, "1 weights were given for 4 modes"),
        (lambda x: x.integrate({1: np.ones(4)}), DataError, "mode 1 has size 3 and takes as many weights"),
        (lambda x: x.integrate({1: "abc"}), DataError, "the weights of mode 1"),
        (lambda x: x.apply(1, np.ones((3, 4))), DataError, "mode 1 has size 3"),
        (lambda x: x.apply(1, np.ones(3)), DataError, "shape \\(3,\\)"),
        (lambda x: x.apply(0, x), DataError, "to_dense"),
        (lambda x: x.permute([0, 1, 2]), OptionError, "each of the 4 modes once"),
        (lambda x: x.permute([0, 1, 2, 2]), OptionError, "twice"),
        (lambda x: x.merge_modes([]), OptionError, "at least one"),
        (lambda x: x.split_mode(0, (2, 3)), StructureError, "size 4, which is not the product"),
        (lambda x: x.split_mode(0, (-2, -2)), OptionError, "whole number"),
        (lambda x: x.contract(x, [(0, 1)]), StructureError, "mode 0 has size 4 and mode 1 .* 3"),
        (lambda x: x.contract(x, [(0, 4)]), PositionError, "mode 4 does not exist"),
        (lambda x: x.contract(x, [(0, 0), (0, 3)]), OptionError, "twice"),
        (lambda x: x.contract(x, [(0,)]), OptionError, "pairs of modes"),
    ],
)
def test_arguments_that_make_no_sense(call, error, match):
    with pytest.raises(error, match=match):
        call(random_network(RING, 0))


def test_a_sum_over_a_wide_graph_says_what_it_needs():
    side = 14
    edges = [(k, k + 1) for k in range(side * side) if (k + 1) % side]
    edges += [(k, k + side) for k in range(side * (side - 1))]
    grid = Structure((1,) * side * side, dict.fromkeys(edges, 8))
    with pytest.raises(MemoryLimitError, match="wide cuts"):
        TensorNetwork.random(grid, random_state=0).sum()
