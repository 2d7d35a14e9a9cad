"""Networks beside Python's and NumPy's numbers, and what cannot be computed with them."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.errors import DataError, MemoryLimitError, OptionError, StructureError
from tensorgrow.network import TensorNetwork
from tensorgrow.structure import Structure
from tests.oracles import assert_close, dense, random_network

RING = Structure.tensor_ring((4, 3, 5, 4), (2, 3, 2, 3))
NUMBERS = [2, 2.0, True, Fraction(1, 3), np.float64(0.5), np.float32(2), np.int64(3), np.array(1.5)]
NUMBERS += [torch.tensor(3), torch.tensor(0.25), torch.tensor(2.5, requires_grad=True)]


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_numbers_of_all_kinds_stand_on_both_sides(number):
    x = random_network(RING, 0)
    a, value = dense(RING, x.cores), float(number.detach() if isinstance(number, torch.Tensor) else number)
    results = {x * number: a * value, number * x: a * value, x / number: a / value}
    results |= {x + number: a + value, number + x: a + value, x - number: a - value, number - x: value - a}
    for result, expected in results.items():
        assert isinstance(result, TensorNetwork)
        assert result.dtype == torch.float64
        assert_close(dense(result.structure, result.cores), expected, 1e-12)


def test_networks_can_be_summed_by_python():
    parts = [random_network(RING, k) for k in range(3)]
    total = sum(parts)
    assert isinstance(total, TensorNetwork)
    assert_close(total.to_dense(), sum(dense(RING, x.cores) for x in parts), 1e-12)


def test_numpy_sees_an_array():
    x = random_network(RING, 0)
    a = dense(RING, x.cores)
    assert (np.shape(x), np.ndim(x), x.shape, x.ndim, len(x)) == (RING.dims, 4, RING.dims, 4, 4)
    assert_close(np.asarray(x), a, 1e-12)
    assert_close(np.exp(x), np.exp(a), 1e-12)
    assert_close(np.asarray(x[1:3, 0]), a[1:3, 0], 1e-12)


def test_iteration_gives_slices_and_ends():
    x = random_network(RING, 0)
    a = dense(RING, x.cores)
    assert len(list(x)) == 4
    for part, expected in zip(x, a, strict=True):
        assert_close(part.to_dense(), expected, 1e-12)
    numbers = list(random_network(Structure((3,)), 1))
    assert [n.shape for n in numbers] == [()] * 3


def test_networks_are_equal_only_to_themselves():
    x, y = random_network(RING, 0), random_network(RING, 0)
    assert x == x
    assert x != y
    assert len({x, y}) == 2
    assert x


def test_results_can_be_saved_pickled_and_shown(tmp_path):
    x, y = random_network(RING, 0), random_network(Structure.tucker(RING.dims, 2), 1)
    for result in (x + y, (x * y)[1:3], (x + y).sum(2), x.split_mode(0, (2, 2))):
        result.save(tmp_path / "network.safetensors")
        loaded = tg.load(tmp_path / "network.safetensors")
        for again in (loaded, pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
            assert again.structure == result.structure
            assert all(map(torch.equal, again.cores, result.cores))
        assert repr(result.structure) in repr(result)
        assert all(c.is_contiguous() for c in result.cores)


def test_the_inner_product_is_a_contraction():
    x, y = (random_network(RING, k, torch.complex128) for k in range(2))
    product = x.conj().contract(y, [(k, k) for k in range(4)])
    assert abs(complex(product) - x.inner(y)) <= 1e-11 * x.norm() * y.norm()


# -- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["__add__", "__sub__", "__mul__"])
def test_networks_that_cannot_be_combined(operation):
    x = random_network(RING, 0)
    compute = getattr(x, operation)
    with pytest.raises(StructureError, match=r"\(4, 3, 5, 4\) and \(4, 3, 5, 3\)"):
        compute(random_network(RING.with_dims((4, 3, 5, 3)), 0))
    with pytest.raises(StructureError, match="same modes in the same order"):
        compute(random_network(Structure((4, 3, 5)), 0))
    for dtype in (torch.float32, torch.complex64):
        with pytest.raises(DataError, match=rf"torch.float64 and {dtype}; convert one .*to\(dtype="):
            compute(x.to(dtype=dtype))
    with pytest.raises(DataError, match=r"cpu and meta; move one of them: network.to\('cpu'\)"):
        compute(x.to("meta"))


def test_contraction_needs_one_precision_and_device():
    x = random_network(RING, 0)
    with pytest.raises(DataError, match="cannot contract networks of dtypes"):
        x.outer(x.to(dtype=torch.float32))
    with pytest.raises(DataError, match="cannot contract networks on cpu and meta"):
        x.contract(x.to("meta"), [(0, 0)])


@pytest.mark.parametrize("array", [np.ones(4), np.ones(RING.dims), torch.ones(RING.dims)], ids=np.shape)
def test_arrays_are_no_operands(array):
    x = random_network(RING, 0)
    for compute in (
        lambda: x + array,
        lambda: array + x,
        lambda: x * array,
        lambda: array * x,
        lambda: x / array,
    ):
        with pytest.raises(DataError, match="decompose"):
            compute()


@pytest.mark.parametrize("value", [np.nan, np.inf, complex(0, np.inf), np.float32("nan")])
def test_numbers_must_be_finite(value):
    x = random_network(RING, 0)
    for compute in (lambda: x + value, lambda: value * x, lambda: x / value, lambda: value - x):
        with pytest.raises(DataError, match="finite"):
            compute()


@pytest.mark.parametrize("zero", [0, 0.0, np.float64(0), torch.tensor(0.0, requires_grad=True)])
def test_division_by_zero_and_by_networks(zero):
    x = random_network(RING, 0)
    with pytest.raises(OptionError, match="divided by zero"):
        x / zero
    for divide in (lambda: x / x, lambda: 1 / x, lambda: np.float64(1) / x):
        with pytest.raises(OptionError, match="cannot be divided by a network"):
            divide()


@pytest.mark.parametrize("other", ["1", None, [1, 2], object()])
def test_other_objects_are_python_s_type_errors(other):
    x = random_network(RING, 0)
    for compute in (lambda: x + other, lambda: other - x, lambda: x * other, lambda: x / other):
        with pytest.raises(TypeError):
            compute()


def test_a_result_that_does_not_fit_says_so():
    long = Structure.tensor_train((6000,) * 3, 60)
    x = TensorNetwork(long, [torch.zeros(1).expand(shape) for shape in long.core_shapes])  # without memory
    with pytest.raises(MemoryLimitError, match="parameters and needs about"):
        x * x
