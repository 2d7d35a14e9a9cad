from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tensorgrow as tg
from tensorgrow.data.tensorization import Tensorization, plan, train_size
from tensorgrow.data.tensorization.digits import even_digits

ORDERS = ("C", "F", "interleaved", "grouped")
orders = st.sampled_from(ORDERS)
paddings = st.sampled_from(("edge", "reflect"))


@st.composite
def digits_and_sizes(draw):
    """Digits of one to three axes, and sizes of axes that they hold, padded or not."""
    digits = draw(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=3))
    whole = [math.prod(axis) for axis in digits]
    sizes = [draw(st.integers((m + 2) // 2 if len(digits) == 1 else max(1, m - 1), m)) for m in whole]
    if math.prod(whole) > 2 * math.prod(sizes):
        sizes = whole
    return digits, tuple(sizes)


@given(digits_and_sizes(), orders, paddings, st.booleans())
def test_round_trips_are_exact(case, order, padding, use_torch):
    digits, sizes = case
    x = np.random.default_rng(0).standard_normal(sizes)
    given_x = torch.from_numpy(x.copy()) if use_torch else x.copy()
    tensor, how = tg.tensorize(given_x, digits, order=order, padding=padding)
    assert isinstance(tensor, type(given_x))
    assert tuple(tensor.shape) == how.dims
    assert math.prod(how.dims) == math.prod(math.prod(axis) for axis in digits)
    back = tg.detensorize(tensor, how)
    assert isinstance(back, type(given_x))
    assert np.array_equal(np.asarray(back), x)
    assert np.array_equal(np.asarray(given_x), x)  # the input is as it was
    assert Tensorization.from_dict(json.loads(json.dumps(how.to_dict()))) == how


@given(digits_and_sizes(), orders, paddings)
def test_every_entry_of_the_tensor_is_an_entry_of_the_array(case, order, padding):
    digits, sizes = case
    x = np.arange(math.prod(sizes)).reshape(sizes)
    tensor, how = tg.tensorize(x, digits, order=order, padding=padding)
    assert set(tensor.ravel()) == set(x.ravel())
    assert how.pads == (tensor.size > x.size)
    mask, _ = tg.tensorize(np.ones(sizes, bool), how)
    assert mask.sum() == x.size  # padding is not observed
    assert sorted(tensor[mask]) == sorted(x.ravel())


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), orders, st.data())
def test_plain_shapes_give_tensors_of_that_shape(sizes, order, data):
    x = np.random.default_rng(1).standard_normal(sizes)
    dims = data.draw(st.permutations(list(sizes)))
    try:
        tensor, how = tg.tensorize(x, tuple(dims), order=order)
    except tg.OptionError:
        assert order in ("interleaved", "grouped") or math.prod(dims) != x.size
        assert order != "interleaved"  # every axis is one mode of a permutation
        return
    assert tensor.shape == tuple(dims)
    assert np.array_equal(tg.detensorize(tensor, how), x)
    if order in ("C", "F"):
        assert np.array_equal(tensor, x.reshape(dims, order=order))


@pytest.mark.parametrize(
    ("sizes", "dims"),
    [
        ((256, 256), (4,) * 8),
        ((600, 600, 3), (6, 10, 10, 6, 10, 10, 3)),
        ((12, 10), (5, 4, 6)),  # across the axes
        ((7,), (7,)),
        ((1, 8, 1), (2, 1, 4)),
    ],
)
def test_c_and_f_are_those_of_numpy(sizes, dims):
    x = np.random.default_rng(2).random(sizes)
    for order in ("C", "F"):
        expected = x.reshape(dims, order=order)
        for given_x in (x, torch.from_numpy(x)):
            tensor, how = tg.tensorize(given_x, dims, order=order)
            assert np.array_equal(np.asarray(tensor), expected)
            assert np.array_equal(np.asarray(tg.detensorize(tensor, how)), x)


def test_interleaved_puts_the_digits_of_a_scale_side_by_side():
    x = np.arange(64.0).reshape(8, 8)
    tensor, how = tg.tensorize(x, (2,) * 6, order="interleaved")
    expected = x.reshape((2,) * 6).transpose(0, 3, 1, 4, 2, 5)
    assert np.array_equal(tensor, expected)
    assert how.modes == (((0, 0),), ((1, 0),), ((0, 1),), ((1, 1),), ((0, 2),), ((1, 2),))


def test_grouped_makes_blocks():
    x = np.arange(64.0 * 3).reshape(8, 8, 3)
    tensor, _ = tg.tensorize(x, (4, 4, 4, 3), order="grouped")
    expected = x.reshape(2, 2, 2, 2, 2, 2, 3).transpose(0, 3, 1, 4, 2, 5, 6).reshape(4, 4, 4, 3)
    assert np.array_equal(tensor, expected)
    # The last spatial mode is a block of 2 x 2 neighbouring pixels.
    assert set(tensor[0, 0, :, 0]) == set(x[:2, :2, 0].ravel())


def test_padding():
    x = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    edge, how = tg.tensorize(x, (2, 3))
    assert np.array_equal(edge, [[1, 2, 3], [4, 5, 5]])
    assert how.pads and how.padded_shape == (6,)
    assert np.array_equal(tg.tensorize(x, (2, 3), padding="reflect")[0], [[1, 2, 3], [4, 5, 4]])
    mask = np.array([True, False, True, True, True])
    assert np.array_equal(tg.tensorize(mask, how)[0], [[True, False, True], [True, True, False]])
    missing, _ = tg.tensorize(np.where(mask, x, np.nan), how)
    assert np.array_equal(np.isnan(missing), [[False, True, False], [False, False, True]])
    missing, _ = tg.tensorize(torch.from_numpy(np.where(mask, x, np.nan)), how)
    assert missing.isnan().tolist() == [[False, True, False], [False, False, True]]


@pytest.mark.parametrize("size", [2, 3, 97, 256, 321, 481, 500, 512, 600, 1000, 1021])
@pytest.mark.parametrize("base", [2, 4, 8])
def test_even_digits(size, base):
    digits = even_digits(size, base)
    padded = math.prod(digits)
    assert size <= padded <= 1.05 * size
    assert list(digits) == sorted(digits)
    assert max(digits) <= max(2 * base, 5)
    # No slice of the most significant digit is all padding.
    assert padded - size < padded // digits[0] or len(digits) == 1


def smooth_picture(n: int) -> np.ndarray:
    t = np.linspace(0, 1, n)
    return np.sin(40 * t[:, None] ** 2) * np.cos(23 * t[None, :]) + np.sin(31 * t[:, None] * t[None, :])


@pytest.mark.parametrize("sizes", [(64, 64), (60, 50, 3), (97,), (5, 4, 3)])
def test_auto_comes_back_exactly(sizes):
    x = np.random.default_rng(0).random(sizes)
    tensor, how = tg.tensorize(x)
    assert np.array_equal(tg.detensorize(tensor, how), x)
    for order in ORDERS:
        tensor, how = tg.tensorize(torch.from_numpy(x), "auto", order=order)
        assert how.order == order
        assert np.array_equal(tg.detensorize(tensor, how).numpy(), x)


def test_auto_takes_the_smallest_train():
    x = smooth_picture(256)
    tensor, how = tg.tensorize(x, max_error=0.05)
    assert len(how.dims) > 2
    chosen = train_size(torch.from_numpy(tensor), 0.05)
    others = [
        (x, None),
        tg.tensorize(x, (4,) * 8, order="interleaved"),
        tg.tensorize(x, (16,) * 4, order="grouped"),
    ]
    assert all(chosen <= train_size(torch.from_numpy(t), 0.05) for t, _ in others)


def rough_picture(n: int, seed: int) -> np.ndarray:
    """A spectrum that falls as that of a photograph: its network of digits is far smaller than its train."""
    frequencies = np.hypot(np.fft.fftfreq(n)[:, None], np.fft.fftfreq(n)[None])
    frequencies[0, 0] = np.inf
    noise = np.random.default_rng(seed).standard_normal((n, n))
    x = np.fft.ifft2(np.fft.fft2(noise) / frequencies**1.3).real
    return x / x.std() + 3.0


def test_auto_goes_by_networks_and_not_by_trains():
    x = rough_picture(64, seed=1)
    tensor, _ = tg.tensorize(x, max_error=0.1)
    assert train_size(torch.from_numpy(tensor), 0.1) > train_size(torch.from_numpy(x), 0.1)
    digits, whole = (tg.decompose(t, max_error=0.1, random_state=0) for t in (tensor, x))
    assert digits.relative_error <= 0.1
    assert digits.num_parameters < 0.7 * whole.num_parameters


@pytest.mark.parametrize("max_error", [0.1, 1e-3])
def test_auto_leaves_a_matrix_of_low_rank_as_it_is(max_error):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 6)) @ rng.standard_normal((6, 150))
    assert tg.tensorize(x, max_error=max_error)[1].dims == (200, 150)


def test_auto_leaves_noise_as_it_is():
    x = np.random.default_rng(0).standard_normal((300, 300))
    assert tg.tensorize(x, max_error=0.2)[1].dims == (300, 300)


def test_arrays_with_missing_entries_are_grouped_into_blocks():
    x = smooth_picture(64)
    x[::3, ::3] = np.nan
    tensor, how = tg.tensorize(x)
    assert (how.order, how.dims) == ("grouped", (64, 64))
    assert np.array_equal(tg.detensorize(tensor, how), x, equal_nan=True)


def test_train_sizes_are_those_of_nested_svds():
    rng = np.random.default_rng(3)
    hidden = tg.Structure.tensor_train((4, 5, 6, 3), (2, 3, 2))
    x = tg.TensorNetwork.random(hidden, random_state=0).to_dense()
    assert train_size(x, 1e-5) == hidden.num_parameters
    assert train_size(torch.from_numpy(rng.standard_normal((3, 4))), 1e-9) == 3 * 3 + 3 * 4


def test_networks_come_back_too():
    network = tg.TensorNetwork.random(tg.Structure.tensor_ring((4, 4, 4), 2), random_state=0)
    how = plan((8, 8), (4, 4, 4), order="grouped")
    assert torch.equal(tg.detensorize(network, how), how.invert(network.to_dense()))


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((3, 3), {}, "at least that"),
        ((40, 40), {}, "more than half would be padding"),
        ((0, 4), {}, "at least 1"),
        ((2.5, 4), {}, "whole numbers"),
        ("best", {}, "neither 'auto' nor"),
        (7, {}, "neither 'auto' nor"),
        ((8, 8), {"order": "Z"}, "order='Z' is not known"),
        ("auto", {"order": "Z"}, "order='Z' is not known"),
        ((8, 8), {"padding": "zero"}, "padding='zero' is not known"),
        (((8,), (8,), (1,)), {}, "digits are given for 3 axes, but the array has 2"),
        (((2, 2), (8, 2)), {}, "do not hold an array"),
        ((64,), {"order": "grouped"}, None),
        ((16, 5), {"order": "interleaved"}, "cannot be laid over"),
    ],
)
def test_bad_shapes(shape, options, message):
    x = np.random.default_rng(0).random((8, 8))
    if message is None:
        assert tg.tensorize(x, shape, **options)[0].shape == shape
        return
    with pytest.raises(tg.OptionError, match=message):
        tg.tensorize(x, shape, **options)


def test_bad_arrays():
    with pytest.raises(tg.DataError, match="single number"):
        tg.tensorize(np.float64(3))
    with pytest.raises(tg.DataError, match="empty"):
        tg.tensorize(np.ones((0, 3)))
    with pytest.raises(tg.DataError, match="numbers are needed"):
        tg.tensorize(np.array(["a", "b"]))
    how = plan((8, 8), (4, 4, 4), order="grouped")
    with pytest.raises(tg.DataError, match=r"the tensorisation is for \(8, 8\)"):
        tg.tensorize(np.ones((8, 9)), how)
    with pytest.raises(tg.DataError, match="the tensorisation gives"):
        tg.detensorize(np.ones((8, 8)), how)


def test_mostly_zero_arrays_are_judged():
    """Eigenvalues of nearly empty matrices came out as NaN in single precision."""
    columns_of = {
        6: (25, 26, 39),
        7: (24, 39, 40),
        8: (32, 41),
        49: (27, 37, 38),
        50: (28, 36, 37),
        51: (29, 36, 37),
        52: (28, 37),
        53: (27,),
        57: (32, 33),
        58: (31, 32, 33),
        59: (31, 32),
        60: (31,),
        61: (11,),
    }
    x = np.zeros((64, 64, 3))
    for row, columns in columns_of.items():
        x[row, list(columns)] = 1.0
    tensor, how = tg.tensorize(x)
    assert np.array_equal(how.invert(tensor), x)


def test_files_of_the_future_are_refused():
    data = plan((8, 8), (4, 4, 4), order="grouped").to_dict()
    with pytest.raises(tg.FileFormatError, match="Upgrade"):
        Tensorization.from_dict({**data, "version": 99})
    with pytest.raises(tg.FileFormatError, match="not a tensorisation"):
        Tensorization.from_dict({"version": 1})
    with pytest.raises(tg.FileFormatError, match="not a tensorisation"):
        Tensorization.from_dict({**data, "modes": []})
