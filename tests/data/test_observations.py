from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

import tensorgrow as tg
from tensorgrow.data.observations import as_observations, is_listed
from tests.strategies import seeds

SHAPE = (4, 5, 6)
X = np.random.default_rng(0).standard_normal(SHAPE)
MASK = np.random.default_rng(1).random(SHAPE) < 0.4
NAN, INF = math.nan, math.inf


def as_dict(o: tg.Observations) -> dict[tuple[int, ...], complex]:
    found = {tuple(i): v for i, v in zip(o.indices.tolist(), o.values.tolist())}
    assert len(found) == len(o)
    return found


def weights_of(o: tg.Observations) -> dict[tuple[int, ...], float]:
    return {tuple(i): w for i, w in zip(o.indices.tolist(), o.weights.tolist())}


def listed(x: np.ndarray, mask: np.ndarray) -> dict[tuple[int, ...], complex]:
    return {tuple(int(k) for k in i): x[tuple(i)].item() for i in np.argwhere(mask)}


class Frame:
    """As much of a pandas frame as is used."""

    def __init__(self, columns: dict[str, object]) -> None:
        self.data = {k: np.asarray(v) for k, v in columns.items()}

    @property
    def columns(self):
        return list(self.data)

    def to_numpy(self):
        return np.stack(list(self.data.values()), 1)

    def __getitem__(self, name):
        return Column(self.data[name])


class Column:
    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def to_numpy(self):
        return self.values


def make_frame(columns: dict[str, object]):
    try:
        import pandas
    except ImportError:
        return Frame(columns)
    return pandas.DataFrame(columns)


# -- every form of the same entries ------------------------------------------------------------------------


def _nan(x, mask):
    return (np.where(mask, x, NAN),)


def _observations(x, mask):
    return (tg.Observations(np.argwhere(mask), x[mask], x.shape),)


def _torch_coo(x, mask):
    where = torch.tensor(np.argwhere(mask)).T
    return (torch.sparse_coo_tensor(where, torch.tensor(x[mask]), x.shape, check_invariants=True),)


def _frame(x, mask):
    where = np.argwhere(mask)
    return (make_frame({**{"abc"[k]: where[:, k] for k in range(where.shape[1])}, "value": x[mask]}),)


FORMS = {
    "mask": lambda x, mask: (x.copy(), mask.copy()),
    "mask as list": lambda x, mask: (x.tolist(), mask.tolist()),
    "mask of ints": lambda x, mask: (x.copy(), mask.astype(np.int8)),
    "mask of floats": lambda x, mask: (x.copy(), mask.astype(float)),
    "torch": lambda x, mask: (torch.tensor(x), torch.tensor(mask)),
    "torch and numpy": lambda x, mask: (torch.tensor(x), mask.copy()),
    "torch grad": lambda x, mask: (torch.tensor(x).requires_grad_(), torch.tensor(mask)),
    "torch conjugated": lambda x, mask: (torch.tensor(x + 0j).conj().real, mask.copy()),
    "nan": _nan,
    "torch nan": lambda x, mask: (torch.tensor(_nan(x, mask)[0]),),
    "junk where nothing is observed": lambda x, mask: (np.where(mask, x, INF), mask.copy()),
    "masked array": lambda x, mask: (np.ma.masked_array(np.where(mask, x, 7.0), ~mask),),
    "fortran": lambda x, mask: (np.asfortranarray(x), np.asfortranarray(mask)),
    "strided": lambda x, mask: (np.repeat(x, 2, axis=1)[:, ::2], mask.copy()),
    "reversed": lambda x, mask: (x[::-1].copy()[::-1], mask[::-1].copy()[::-1]),
    "byte-swapped": lambda x, mask: (x.astype(x.dtype.newbyteorder()), mask.copy()),
    "longdouble": lambda x, mask: (x.astype(np.longdouble), mask.copy()),
    "Observations": _observations,
    "torch sparse": _torch_coo,
    "frame": _frame,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_entries(form):
    given_data = FORMS[form](X, MASK)
    o = as_observations(*given_data)
    assert o.shape == SHAPE and o.order == 3
    assert o.values.dtype == torch.float64 and o.indices.dtype == torch.int64
    assert o.weights is None
    assert as_dict(o) == listed(X, MASK)
    assert o.density == pytest.approx(MASK.mean())
    codes = np.ravel_multi_index(o.indices.T.numpy(), SHAPE)
    assert (np.diff(codes) > 0).all()  # in order, each once


@pytest.mark.parametrize("form", FORMS)
def test_inputs_are_never_modified(form):
    def copies(things):
        out = []
        for t in things:
            if isinstance(t, tg.Observations):
                out += [t.indices.clone(), t.values.clone()]
            elif isinstance(t, torch.Tensor):
                out.append(t.detach().to_dense().clone() if t.layout != torch.strided else t.detach().clone())
            elif isinstance(t, np.ma.MaskedArray):
                out += [t.data.copy(), np.ma.getmaskarray(t).copy()]
            elif hasattr(t, "columns"):
                out.append(t.to_numpy().copy())
            else:
                out.append(np.array(t))
        return out

    given_data = FORMS[form](X, MASK)
    before = copies(given_data)
    o = as_observations(*given_data)
    o.values.zero_()  # what comes out shares no memory with what went in
    o.indices.zero_()
    for a, b in zip(before, copies(given_data)):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_precision_is_kept(dtype):
    x = X.astype(dtype) * (1 + 1j if np.dtype(dtype).kind == "c" else 1)
    o = as_observations(x.astype(dtype), MASK)
    assert str(o.values.dtype) == f"torch.{np.dtype(dtype).name}"
    assert as_dict(o) == listed(x.astype(dtype), MASK)
    wanted = as_observations(x.astype(dtype), MASK, dtype=torch.complex128)
    assert wanted.values.dtype == torch.complex128


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, bool, np.float16])
def test_other_numbers_are_widened(dtype):
    x = (np.abs(X) * 3).astype(dtype)
    for o in (as_observations(x, MASK), as_observations(torch.tensor(x), torch.tensor(MASK))):
        assert o.values.dtype in (torch.float32, torch.float64)
        assert as_dict(o) == pytest.approx(listed(x.astype(float), MASK))


def test_complex_nan_is_missing():
    x = X + 1j
    x[0, 0, 0] = complex(0, NAN)
    x[1, 0, 0] = complex(NAN, 0)
    o = as_observations(x)
    assert len(o) == X.size - 2 and (0, 0, 0) not in as_dict(o) and (1, 0, 0) not in as_dict(o)


@pytest.mark.parametrize("kind", ["coo", "csr", "csc", "lil", "array coo", "array csr"])
def test_scipy_sparse(kind):
    rows, columns, values = [3, 0, 2, 0], [1, 4, 0, 0], [1.0, 2.0, 0.0, -3.0]  # a stored zero is observed
    coo = scipy.sparse.coo_matrix((values, (rows, columns)), shape=(4, 5))
    given_matrix = {
        "coo": coo,
        "csr": coo.tocsr(),
        "csc": coo.tocsc(),
        "lil": scipy.sparse.coo_matrix((values[:2], (rows[:2], columns[:2])), shape=(4, 5)).tolil(),
        "array coo": scipy.sparse.coo_array((values, (rows, columns)), shape=(4, 5)),
        "array csr": scipy.sparse.csr_array(coo),
    }[kind]
    expected = {(3, 1): 1.0, (0, 4): 2.0, (2, 0): 0.0, (0, 0): -3.0}
    if kind == "lil":
        expected = {(3, 1): 1.0, (0, 4): 2.0}
    assert is_listed(given_matrix)
    o = as_observations(given_matrix)
    assert as_dict(o) == expected and o.shape == (4, 5)


def test_scipy_duplicates_are_sums():
    coo = scipy.sparse.coo_matrix(([1.0, 2.0, 5.0], ([0, 0, 1], [1, 1, 2])), shape=(2, 3))
    o = as_observations(coo)
    assert as_dict(o) == {(0, 1): 3.0, (1, 2): 5.0}
    assert o.weights is None
    assert coo.nnz == 3  # not summed in place
    np.testing.assert_array_equal(coo.data, [1.0, 2.0, 5.0])


def test_torch_duplicates_are_sums():
    where = torch.tensor([[0, 0, 1], [1, 1, 2], [0, 0, 1]])
    sparse = torch.sparse_coo_tensor(where, torch.tensor([1.0, 2.0, 5.0]), (2, 3, 2), check_invariants=True)
    o = as_observations(sparse)
    assert as_dict(o) == {(0, 1, 0): 3.0, (1, 2, 1): 5.0}
    assert o.values.dtype == torch.float32 and o.weights is None
    assert not sparse.is_coalesced()


def test_torch_csr():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls the layout beta
        sparse = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse_csr()
        o = as_observations(sparse)
    assert as_dict(o) == {(0, 1): 2.0, (1, 0): 3.0}


def test_hybrid_sparse_tensors_are_refused():
    hybrid = torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.ones(2, 3), (4, 3), check_invariants=True)
    with pytest.raises(tg.DataError, match="dense axes"):
        as_observations(hybrid)


@pytest.mark.parametrize("kind", ["scipy", "torch", "csr"])
def test_weights_stay_with_their_stored_entries(kind):
    """Stored entries need not come in order, and summing duplicates sorts them."""
    rows, columns, values = np.array([2, 0, 1, 0]), np.array([0, 2, 1, 0]), np.array([1.0, 2.0, 3.0, 4.0])
    weights = [10.0, 20.0, 30.0, 40.0]
    if kind == "scipy":
        sparse = scipy.sparse.coo_matrix((values, (rows, columns)), shape=(3, 3))
        stored = values
    elif kind == "csr":
        sparse = scipy.sparse.coo_matrix((values, (rows, columns)), shape=(3, 3)).tocsr()
        stored = sparse.data
    else:
        where = torch.tensor(np.stack([rows, columns]))
        sparse = torch.sparse_coo_tensor(where, torch.tensor(values), (3, 3), check_invariants=True)
        stored = values
    o = as_observations(sparse, weights=weights)
    expected = dict(zip(stored.tolist(), weights))
    assert {v: weights_of(o)[i] for i, v in as_dict(o).items()} == expected


def test_weights_of_summed_entries_are_refused():
    coo = scipy.sparse.coo_matrix(([1.0, 2.0, 5.0], ([0, 0, 1], [1, 1, 2])), shape=(2, 3))
    where = torch.tensor([[0, 0, 1], [1, 1, 2]])
    tensor = torch.sparse_coo_tensor(where, torch.ones(3), (2, 3), check_invariants=True)
    for sparse in (coo, tensor):
        for weights in ([1.0, 2.0, 3.0], [1.0, 2.0]):
            with pytest.raises(tg.DataError, match="weights"):
                as_observations(sparse, weights=weights)


# -- frames ------------------------------------------------------------------------------------------------


def test_frames_with_names():
    frame = make_frame(
        {
            "value": [1.0, 2.0, 3.0],
            "user": ["bob", "ann", "bob"],
            "item": [7, 0, 3],
            "day": np.array(["2024-01-02", "2024-01-01", "2024-01-02"], dtype="datetime64[D]"),
            "trust": [1.0, 0.5, 2.0],
        }
    )
    o = tg.Observations.from_frame(frame, value="value", weights="trust")
    assert o.shape == (2, 8, 2)
    assert as_dict(o) == {(1, 7, 1): 1.0, (0, 0, 0): 2.0, (1, 3, 1): 3.0}
    assert weights_of(o) == {(1, 7, 1): 1.0, (0, 0, 0): 0.5, (1, 3, 1): 2.0}
    assert list(o.labels[0]) == ["ann", "bob"] and o.labels[1] is None
    assert len(o.labels[2]) == 2 and o.labels[2][0] < o.labels[2][1]
    swapped = tg.Observations.from_frame(frame, value="value", index=["item", "user"], shape=(9, 2))
    assert swapped.shape == (9, 2)
    assert as_dict(swapped) == {(7, 1): 1.0, (0, 0): 2.0, (3, 1): 3.0}
    assert as_observations(o).labels is not None


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"value": "nope"}, "nope"),
        ({"index": ["i", "nope"]}, "nope"),
        ({"weights": "nope"}, "nope"),
        ({"index": []}, "index"),
    ],
)
def test_frames_without_the_columns(options, word):
    frame = make_frame({"i": [0, 1], "v": [1.0, 2.0]})
    with pytest.raises(tg.DataError, match=word):
        tg.Observations.from_frame(frame, **options)


def test_frames_through_the_door():
    frame = make_frame({"i": [0, 1, 1], "j": [2, 0, 1], "v": [1.0, 2.0, 3.0]})
    o = as_observations(frame, weights=[1.0, 2.0, 3.0])
    assert as_dict(o) == {(0, 2): 1.0, (1, 0): 2.0, (1, 1): 3.0}
    assert weights_of(o) == {(0, 2): 1.0, (1, 0): 2.0, (1, 1): 3.0}
    with pytest.raises(tg.DataError, match="outside"):
        as_observations(make_frame({"i": [0, -1], "v": [1.0, 2.0]}))


# -- repeated positions ------------------------------------------------------------------------------------


def test_repeated_positions_are_averaged_with_a_warning():
    o = tg.Observations([[0, 1], [2, 2], [0, 1], [0, 1]], [1.0, 5.0, 2.0, 6.0], (3, 3))
    with pytest.warns(tg.DataWarning, match="1 entries"):
        merged = as_observations(o)
    assert as_dict(merged) == {(0, 1): 3.0, (2, 2): 5.0}
    assert weights_of(merged) == {(0, 1): 3.0, (2, 2): 1.0}  # three measurements weigh three times
    assert len(o) == 4 and o.weights is None  # the object that was given stays


def test_repeated_positions_with_weights():
    o = tg.Observations([[1], [0], [1]], [1.0, 9.0, 4.0], weights=[1.0, 5.0, 2.0])
    with pytest.warns(tg.DataWarning, match="1 entries"):
        merged = as_observations(o)
    assert as_dict(merged) == {(1,): pytest.approx(3.0), (0,): 9.0}
    assert weights_of(merged) == {(1,): 3.0, (0,): 5.0}


def test_repeated_equal_values_need_no_warning():
    merged = as_observations(tg.Observations([[1], [0], [1]], [2.0, 9.0, 2.0]))
    assert as_dict(merged) == {(1,): 2.0, (0,): 9.0}


@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.uint8, torch.float16, torch.complex64])
def test_means_are_not_rounded_to_the_given_type(kind):
    o = tg.Observations(
        torch.tensor([[0], [0], [1]]), torch.tensor([1, 2, 3], dtype=kind), weights=[0.5, 0.5, 1]
    )
    with pytest.warns(tg.DataWarning):
        merged = as_observations(o)
    assert as_dict(merged) == {(0,): 1.5, (1,): 3.0}
    assert weights_of(merged) == {(0,): 1.0, (1,): 1.0}


@pytest.mark.parametrize("size", [1e-200, 1e-50, 1e50, 1e200])
def test_means_do_not_mind_the_size_of_the_weights(size):
    values = torch.tensor([1.0, 4.0, 3.0])  # single precision
    o = tg.Observations([[0], [0], [1]], values, weights=np.array([2.0, 1.0, 1.0]) * size)
    with pytest.warns(tg.DataWarning):
        merged = as_observations(o)
    assert as_dict(merged) == {(0,): pytest.approx(2.0), (1,): 3.0}


@given(st.data())
def test_merging_is_a_weighted_mean(data):
    rng = np.random.default_rng(data.draw(seeds))
    shape = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
    n = data.draw(st.integers(1, 30))
    indices = np.stack([rng.integers(0, d, n) for d in shape], 1)
    values, weights = rng.standard_normal(n), rng.integers(0, 3, n).astype(float)
    weights[0] = 1.0
    total, sums = np.zeros(shape), np.zeros(shape)
    np.add.at(total, tuple(indices.T), weights)
    np.add.at(sums, tuple(indices.T), weights * values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tg.DataWarning)
        merged = as_observations(tg.Observations(indices, values, shape, weights=weights))
    assert as_dict(merged) == {
        i: pytest.approx(v / total[i], abs=1e-12) for i, v in listed(sums, total > 0).items()
    }
    assert weights_of(merged) == pytest.approx(listed(total, total > 0))


def test_positions_of_a_tensor_too_large_to_number():
    shape = (2,) * 70
    rng = np.random.default_rng(0)
    indices = rng.integers(0, 2, (40, 70))
    indices[20:] = indices[:20]
    values = np.r_[np.arange(20.0), np.arange(20.0) + 1]
    with pytest.warns(tg.DataWarning, match="20 entries"):
        merged = as_observations(tg.Observations(indices, values, shape))
    assert as_dict(merged) == {tuple(i): v + 0.5 for i, v in zip(indices[:20].tolist(), np.arange(20.0))}


# -- weights -----------------------------------------------------------------------------------------------


def test_weights_of_a_dense_tensor():
    weights = np.random.default_rng(2).uniform(1, 2, SHAPE)
    for o in (
        as_observations(X, MASK, weights),
        as_observations(torch.tensor(X), MASK, torch.tensor(weights)),
        as_observations(np.where(MASK, X, NAN), None, np.where(MASK, weights, NAN)),
        as_observations(tg.Observations(np.argwhere(MASK), X[MASK], SHAPE), None, weights[MASK]),
    ):
        assert o.weights.dtype == torch.float64
        assert weights_of(o) == listed(weights, MASK)
        assert as_dict(o) == listed(X, MASK)


def test_entries_of_weight_zero_are_dropped():
    o = as_observations(tg.Observations([[0], [1], [2]], [1.0, 2.0, 3.0], weights=[1, 0, 2]))
    assert as_dict(o) == {(0,): 1.0, (2,): 3.0} and o.shape == (3,)


def test_new_weights_replace_old_ones():
    o = tg.Observations([[0], [1]], [1.0, 2.0], weights=[1.0, 1.0])
    assert weights_of(as_observations(o, weights=[3.0, 4.0])) == {(0,): 3.0, (1,): 4.0}
    assert o.weights.tolist() == [1.0, 1.0]


# -- the object --------------------------------------------------------------------------------------------


def test_shape_is_just_large_enough():
    o = tg.Observations([[0, 4], [2, 1]], [1.0, 2.0])
    assert o.shape == (3, 5) and len(o) == 2 and o.order == 2
    assert repr(o) == "Observations(2 of shape (3, 5))"
    assert "weighted" in repr(tg.Observations([[0]], [1.0], weights=[1.0]))
    assert tg.Observations([[3]], [1.0], 7).shape == (7,)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.uint16, np.uint32, np.uint64, np.int32, ">i4", float])
def test_whole_numbers_of_any_type(kind):
    o = tg.Observations(np.array([[0, 4], [2, 1]], dtype=kind), [1.0, 2.0])
    assert o.indices.tolist() == [[0, 4], [2, 1]] and o.indices.dtype == torch.int64


def test_what_counts_as_a_list():
    assert is_listed(tg.Observations([[0, 0]], [1.0])) and is_listed(torch.eye(2).to_sparse())
    assert is_listed(scipy.sparse.eye(2).tocsr()) and is_listed(make_frame({"i": [0], "v": [1.0]}))
    assert not is_listed(X) and not is_listed(torch.eye(2)) and not is_listed([[1.0, 2.0]])


def test_devices(device):
    o = tg.Observations([[0], [1]], torch.tensor([1.0, 2.0], device=device), weights=[1.0, 2.0])
    assert {t.device.type for t in (o.indices, o.values, o.weights)} == {device}
    dense = as_observations(torch.tensor(X, device=device), MASK, weights=np.ones(SHAPE))
    assert {t.device.type for t in (dense.indices, dense.values, dense.weights)} == {device}
