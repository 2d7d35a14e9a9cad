"""The contract of block sources: every kind of storage gives the blocks of the dense array."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.data.blocks import ArraySource, as_source, entries_of, is_lazy
from tests.storage import CHUNKS, STORAGE, in_dask, in_hdf5, in_memmap, in_netcdf, in_zarr

SHAPE = (12, 14, 10, 11)
X = np.random.default_rng(0).standard_normal(SHAPE)


def in_array(folder, x):
    return x


def in_tensor(folder, x):
    return torch.from_numpy(x)


ALL = [*STORAGE, in_array, in_tensor]


@pytest.mark.parametrize("store", ALL)
@pytest.mark.parametrize("most", [2400, 10**6])
def test_blocks_are_those_of_the_dense_array_and_cover_it_once(store, most, tmp_path):
    stored = store(tmp_path, X)
    source = as_source(stored)
    assert is_lazy(stored) == (store in STORAGE)
    assert source.shape == SHAPE and source.itemsize == 8
    assert as_source(source) is source
    seen = np.zeros(SHAPE, dtype=int)
    for box in source.boxes(most):
        where = tuple(slice(*r) for r in box)
        assert entries_of(box) <= most
        assert np.array_equal(np.asarray(source.read(box)), X[where])
        for (start, stop), c, n in zip(box, source.chunks, SHAPE):
            assert start % c == 0 and (stop % c == 0 or stop == n)
        assert source.name(box)
        seen[where] += 1
    assert (seen == 1).all()
    assert np.array_equal(np.asarray(source.load()), X)


@pytest.mark.parametrize("store", ALL)
def test_fewer_entries_may_be_wanted_than_allowed(store, tmp_path):
    source = as_source(store(tmp_path, X))
    least = 1 if source.chunks == (1,) * 4 else int(np.prod(CHUNKS))
    assert max(map(entries_of, source.boxes(10**6, 2400))) <= max(2400, least)


@pytest.mark.parametrize("store", [in_zarr, in_memmap, in_hdf5, in_netcdf, in_dask, in_array, in_tensor])
def test_sources_travel_to_other_processes(store, tmp_path):
    source = pickle.loads(pickle.dumps(as_source(store(tmp_path, X))))
    assert source.shape == SHAPE
    for box in source.boxes(2400)[:3]:
        where = tuple(slice(*r) for r in box)
        assert np.array_equal(np.asarray(source.read(box)), X[where])


def test_a_part_of_a_memory_map_does_not_travel(tmp_path):
    with pytest.raises(tg.DataError, match="memory map"):
        pickle.dumps(as_source(in_memmap(tmp_path, X)[2:5]))


def test_arrays_in_memory_are_not_lazy():
    xarray = pytest.importorskip("xarray")
    assert not is_lazy(np.ones(3))
    assert not is_lazy(torch.ones(3))
    assert not is_lazy(xarray.DataArray(np.ones(3)))


def test_what_cannot_be_read_is_named():
    class Broken(ArraySource):
        def _read(self, box):
            if box[0][0] <= 3 < box[0][1]:
                raise OSError("the disk is gone")
            return super()._read(box)

    source = Broken(X)
    with pytest.raises(tg.DataError, match=r"block \[3:4, .*the tensor cannot be read .*the disk is gone"):
        source.read(((0, 12), (0, 14), (0, 10), (0, 11)))
    with pytest.raises(tg.DataError, match="list cannot be read block by block"):
        as_source([1.0])


@pytest.mark.parametrize(("store", "word"), [(in_zarr, "smaller chunks"), (in_dask, "rechunk")])
def test_chunks_above_the_limit_are_refused(store, word, tmp_path):
    with pytest.raises(tg.MemoryLimitError, match=word):
        as_source(store(tmp_path, X)).boxes(100)
