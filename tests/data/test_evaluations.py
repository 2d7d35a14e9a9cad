"""Functions on a grid: batches, the cache, workers, and what functions must not return."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from tensorgrow import DataError, OptionError
from tensorgrow.data.evaluations import BudgetSpent, Evaluations

SHAPE = (3, 4, 5)
POINTS = torch.stack(torch.meshgrid(*map(torch.arange, SHAPE), indexing="ij"), -1)


def plain(index: np.ndarray) -> np.ndarray:
    return index @ np.array([100.0, 10.0, 1.0]) + 1.0


class Counter:
    """A function that notes what it is asked for."""

    def __init__(self, fails_at: tuple[int, ...] | None = None) -> None:
        self.asked: list[tuple[int, ...]] = []
        self.sizes: list[int] = []
        self.fails_at = fails_at

    def __call__(self, index: np.ndarray) -> np.ndarray:
        rows = [tuple(r) for r in index.tolist()]
        if self.fails_at in rows:
            raise RuntimeError("no convergence")
        self.asked += rows
        self.sizes.append(len(rows))
        return plain(index)


@pytest.mark.parametrize("workers", [None, 1, 3, "executor"])
def test_every_point_is_evaluated_once_in_batches(workers):
    f = Counter()
    pool = ThreadPoolExecutor(2)
    known = Evaluations(f, SHAPE, batch=7, workers=pool if workers == "executor" else workers)
    some = POINTS[:, :2]
    twice = torch.cat([some.reshape(-1, 3), some.reshape(-1, 3)])
    assert torch.equal(known.at(twice), torch.from_numpy(plain(twice.numpy())))
    assert torch.equal(
        known.at(POINTS), torch.from_numpy(plain(POINTS.reshape(-1, 3).numpy()).reshape(SHAPE))
    )
    assert len(known) == len(f.asked) == len(set(f.asked)) == 60
    assert max(f.sizes) <= 7
    assert sorted(map(tuple, known.points.tolist())) == sorted(f.asked)
    pool.shutdown()


def test_coordinates_come_from_the_grids():
    seen = []
    grids = [np.linspace(k, k + 1, n) for k, n in enumerate(SHAPE)]
    known = Evaluations(lambda x: seen.append(x) or x.sum(1), SHAPE, grids=grids)
    assert float(known.at(torch.tensor([2, 0, 4]))) == pytest.approx(1.0 + 1.0 + 3.0)
    assert seen[0].shape == (1, 3) and seen[0].dtype == float


def test_values_far_from_one_are_scaled_by_a_power_of_two():
    known = Evaluations(lambda x: 1e200 * plain(x), SHAPE)
    values = known.at(POINTS)
    assert float(values.abs().max()) < 1e6
    assert torch.equal(values * 2.0**known.exponent, known.values.reshape(SHAPE))


def test_a_budget_is_never_exceeded():
    f = Counter()
    known = Evaluations(f, SHAPE, most=20)
    known.at(POINTS[0])
    with pytest.raises(BudgetSpent):
        known.at(POINTS[1])
    assert len(f.asked) == 20
    assert known.at(POINTS[0]).shape == (4, 5)  # what is known is free


def test_what_was_evaluated_before_an_error_is_kept():
    f = Counter(fails_at=(1, 2, 3))
    known = Evaluations(f, SHAPE, batch=16)
    with pytest.raises(DataError, match=r"RuntimeError at the index \(1, 2, 3\): no convergence") as error:
        known.at(POINTS)
    assert isinstance(error.value.__cause__, RuntimeError)
    assert len(known) == len(f.asked) == 33  # all before it, one by one in its batch
    f.fails_at = None
    again = Evaluations(f, SHAPE)
    again.restore(known.points, known.values)
    again.at(POINTS)
    assert len(f.asked) == len(set(f.asked)) == 60


def test_an_error_of_a_batch_that_no_point_of_it_raises():
    def f(x):
        if len(x) > 1:
            raise MemoryError("too many")
        return plain(x)

    with pytest.raises(DataError, match="60 points at once, though at none of them alone"):
        Evaluations(f, SHAPE).at(POINTS)


BAD = {
    "number": (lambda x: plain(x)[1:], "for 60 points; it must return one number per row"),
    "axes": (lambda x: plain(x)[:, None], r"shape \(60, 1\)"),
    "text": (lambda x: np.full(len(x), "a"), "must return numbers"),
    "nan": (lambda x: np.where(x[:, 2] == 4, np.nan, plain(x)), r"nan at the index \(0, 0, 4\)"),
    "inf": (lambda x: np.where(x[:, 1] == 1, np.inf, plain(x)), r"inf at the index \(0, 1, 0\)"),
    "complex": (lambda x: plain(x) + 1j * (x[:, 0] == 2), r"complex number.*the index \(2, 0, 0\).*promised"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_values_are_refused_with_the_index(kind):
    function, message = BAD[kind]
    known = Evaluations(function, SHAPE, is_complex=False)
    with pytest.raises(DataError, match=message):
        known.at(POINTS)
    assert bool(torch.isfinite(known.values).all())


def test_an_index_is_named_with_its_coordinates():
    known = Evaluations(lambda x: np.full(len(x), np.nan), SHAPE, grids=[np.arange(n) / 2 for n in SHAPE])
    with pytest.raises(DataError, match=r"the index \(0, 1, 2\), the point \(0, 0.5, 1\)"):
        known.at(torch.tensor([0, 1, 2]))


def test_bad_arguments():
    with pytest.raises(OptionError, match="function of an array"):
        Evaluations(3, SHAPE)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="workers"):
        Evaluations(plain, SHAPE, workers=0)
    with pytest.raises(OptionError, match="batch_size"):
        Evaluations(plain, SHAPE, batch=0)
