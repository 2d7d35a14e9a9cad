from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.data.blocks import as_source, entries_of

zarr = pytest.importorskip("zarr")


@pytest.mark.parametrize("version", [2, 3])
def test_plain_zarr_chunks_are_read_in_parts(version, tmp_path):
    x = np.random.default_rng(0).standard_normal((12, 14, 10, 11)).astype(np.float32)
    stored = zarr.create_array(
        str(tmp_path / "x.zarr"),
        shape=x.shape,
        chunks=(5, 7, 10, 11),
        dtype=x.dtype,
        compressors=None,
        fill_value=2.0,
        zarr_format=version,
    )
    stored[:10] = x[:10]  # the last chunks do not exist: they count as filled
    expected = np.concatenate([x[:10], np.full_like(x[10:], 2.0)])
    source = as_source(stored)
    for most in (10**6, 4000, 900, 100, 7):
        boxes = source.boxes(10**6, most)
        assert max(map(entries_of, boxes)) <= max(most, 1)
        seen = np.zeros(x.shape, dtype=int)
        for box in boxes:
            where = tuple(slice(*r) for r in box)
            seen[where] += 1
            assert np.array_equal(source.read(box), expected[where])
        assert (seen == 1).all()
    file = next(
        p for p in sorted((tmp_path / "x.zarr").rglob("*")) if p.is_file() and p.stat().st_size > 10**4
    )
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(
        tg.DataError, match=r"chunk .* of the zarr array .* cannot be read .*bytes instead of"
    ):
        [source.read(box) for box in source.boxes(10**6, 900)]
