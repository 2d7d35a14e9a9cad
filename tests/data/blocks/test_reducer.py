"""The contract of reducers: the same sums in the same bits, whoever reads the blocks."""

from __future__ import annotations

import math
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.data.blocks import (
    ArraySource,
    ClientReducer,
    Form,
    Partial,
    StagedReducer,
    ThreadReducer,
    as_source,
    gpu_stage,
    run_group,
)

SHAPE = (24, 10, 9)
X = np.random.default_rng(0).standard_normal(SHAPE)
X[20, 3, 4] = -77.0


class Moments:
    """Sums under several keys, one for each block, and the largest entry."""

    def __call__(self, block, box):
        first = box[0][0]
        return Partial(
            {"sum": block.sum(), "columns": block.sum(0), ("block", first): block.sum(1)},
            float(abs(block).max()),
        )


@pytest.fixture(params=["one thread", "threads", "staged", "cluster"])
def reducer(request, monkeypatch):
    monkeypatch.setattr(gpu_stage, "lock_pages", lambda size: torch.empty(size, dtype=torch.uint8))
    source = ArraySource(X)
    boxes = source.boxes(90)
    assert len(boxes) == 24
    if request.param == "staged":
        yield StagedReducer(source, boxes, Form("float64", "cpu"), 3)
    elif request.param == "cluster":
        distributed = pytest.importorskip("distributed")
        with distributed.Client(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None, memory_limit=0
        ) as client:
            yield ClientReducer(source, boxes, Form("float64"), client)
    else:
        yield ThreadReducer(source, boxes, Form("float64"), 1 if request.param == "one thread" else 3)


pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


def test_sums_are_those_of_the_whole_tensor_and_always_the_same(reducer):
    found = reducer.reduce(Moments())
    assert float(found.sums["sum"]) == pytest.approx(X.sum())
    assert np.allclose(found.sums["columns"], X.sum(0))
    blocks = [k for k in found.sums if isinstance(k, tuple)]
    assert [k[1] for k in blocks] == sorted(k[1] for k in blocks)  # groups are added in their order
    assert found.largest == 77.0
    again = reducer.reduce(Moments())
    plain = ThreadReducer(reducer.source, reducer.boxes, reducer.form, 1).reduce(Moments())
    for other in (again, plain):
        assert np.array_equal(np.asarray(other.sums["columns"]), np.asarray(found.sums["columns"]))
    assert reducer.passes == 2
    assert reducer.at_once >= 1


def test_another_form_counts_passes_together(reducer):
    half = reducer.with_form(Form("float32", reducer.form.device, 1))
    assert type(half) is type(reducer) and reducer.form.exponent == 0
    assert float(half.reduce(Moments()).sums["sum"]) == pytest.approx(X.sum() / 2, rel=1e-3)
    assert half.passes == reducer.passes == 1


class Watched(ArraySource):
    """Remembers the threads that read from it."""

    def __init__(self, array):
        super().__init__(array)
        self.threads = set()

    def _read(self, box):
        self.threads.add(threading.current_thread())
        return super()._read(box)


def watch(reducer):
    return replace(reducer, source=Watched(X)) if not isinstance(reducer, ClientReducer) else reducer


def assert_idle(reducer):
    """No thread of a pass is left; a client keeps its own."""
    if not isinstance(reducer, ClientReducer):
        assert reducer.source.threads
        assert not any(t.is_alive() for t in reducer.source.threads - {threading.main_thread()})


def test_errors_come_through_and_end_the_pass(reducer):
    reducer = watch(reducer)

    def fails(block, box):
        if box[0][0] >= 5:
            raise ZeroDivisionError("of a kernel")
        return Partial()

    with pytest.raises(ZeroDivisionError, match="of a kernel"):
        reducer.reduce(fails)
    assert_idle(reducer)
    assert float(reducer.reduce(Moments()).sums["sum"]) == pytest.approx(X.sum())


def test_ctrl_c_ends_a_pass(reducer, monkeypatch):
    reducer = watch(reducer)
    plain, added = Partial.add, []

    def add(self, other):
        plain(self, other)
        if threading.current_thread() is threading.main_thread():
            added.append(1)
            if len(added) == 3:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Partial, "add", add)
        with pytest.raises(KeyboardInterrupt):
            reducer.reduce(Moments())
    assert_idle(reducer)
    assert float(reducer.reduce(Moments()).sums["sum"]) == pytest.approx(X.sum())


def test_unreadable_blocks_are_named(reducer):
    class Broken(ArraySource):
        def _read(self, box):
            raise OSError("no disk")

    broken = type(reducer)(
        Broken(X), reducer.boxes, reducer.form, *([reducer.client] if hasattr(reducer, "client") else [2])
    )
    with pytest.raises(tg.DataError, match=r"block \[0:1.*no disk"):
        broken.reduce(Moments())


def test_partial_sums_keep_nan_and_widen():
    total = Partial()
    for value in (1.0, math.nan, 2.0):
        total.add(Partial({"a": np.ones(2, np.float32)}, value))
    assert math.isnan(total.largest)
    assert total.sums["a"].dtype == np.float64 and total.sums["a"].tolist() == [3.0, 3.0]


def test_what_a_kernel_keeps_is_not_the_memory_of_the_next_block(tmp_path):
    zarr = pytest.importorskip("zarr")
    x = np.arange(6.0 * 4).reshape(6, 4)
    stored = zarr.create_array(
        str(tmp_path / "x.zarr"), shape=x.shape, chunks=(6, 4), dtype="f8", compressors=None
    )
    stored[:] = x
    source = as_source(stored)
    boxes = source.boxes(10**6, 8)
    assert len(boxes) == 3
    found = run_group(source, boxes, Form("float64"), lambda block, box: Partial({box: block}))
    assert np.array_equal(np.concatenate([found.sums[b] for b in boxes]), x)
