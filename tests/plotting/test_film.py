from __future__ import annotations

import dataclasses
import itertools
import re

import numpy as np
import pytest

import tensorgrow as tg

plt = pytest.importorskip("matplotlib.pyplot")


@pytest.mark.parametrize("suffix", ["gif", "webp"])
def test_film(grown, tmp_path, suffix):
    from PIL import Image

    path = tg.plotting.growth_film(
        grown, tmp_path / f"film.{suffix}", image=(16, 16), max_frames=4, seconds=2, dpi=40
    )
    with Image.open(path) as film:
        assert film.n_frames == 4
        assert film.info["loop"] == 0
        frames = []
        for k in range(4):
            film.seek(k)
            frames.append(np.asarray(film.convert("RGB"), dtype=float))
    assert all(np.abs(a - b).max() > 50 for a, b in itertools.pairwise(frames))
    assert plt.get_fignums() == []


def test_film_as_a_page(grown, tmp_path):
    text = tg.plotting.growth_film(grown, tmp_path / "film.html", max_frames=3, dpi=40).read_text()
    assert text.count("data:image/webp;base64,") == 3
    assert "Content-Security-Policy" in text
    assert not re.search(r"https?:", text)


def test_what_cannot_be_filmed(grown, tmp_path):
    with pytest.raises(tg.OptionError, match=r"\.gif, \.webp or \.html"):
        tg.plotting.growth_film(grown, tmp_path / "film.mp4")
    with pytest.raises(tg.OptionError, match="max_frames=0"):
        tg.plotting.growth_film(grown, tmp_path / "film.gif", max_frames=0)
    with pytest.raises(tg.OptionError, match="no history"):
        tg.plotting.growth_film(dataclasses.replace(grown, history=()), tmp_path / "film.gif")


def test_a_missing_matplotlib_is_named(grown, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(tg.MissingPackageError, match=r"pip install .*\[plot\]"):
        tg.plotting.draw_network(grown)
    with pytest.raises(tg.MissingPackageError, match=r"pip install .*\[plot\]"):
        tg.plotting.growth_film(grown, "film.gif")
