"""The paper's completion of an image, on a tiny one."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tensorgrow.experiments import completion, reproduce


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A smooth picture of 8 x 8 pixels in place of the image."""
    u, v = np.meshgrid(np.linspace(0, 1, 8), np.linspace(0, 1, 8), indexing="ij")
    picture = np.stack([0.5 + 0.4 * np.sin(3 * u + k) * np.cos(2 * v) for k in range(3)], -1)
    monkeypatch.setattr(completion, "load", lambda folder, quick: picture)
    monkeypatch.setattr(completion, "QUICK_SHAPE", (2, 4, 8, 3))
    monkeypatch.setattr(completion, "SHARE", 0.5)
    monkeypatch.setattr(completion, "QUICK_MOST", 50)
    monkeypatch.setattr(completion, "QUICK_RANKS", {"tt_als": (2,)})
    (tmp_path / "einstein").mkdir()
    return tmp_path


def test_the_protocol_of_the_paper_runs_with_its_growth_curve(tiny):
    pytest.importorskip("matplotlib")
    done = reproduce("completion", quick=True, data=tiny, folder=tiny / "out")
    assert done.failures == 0
    rows = json.loads(done.results.read_text())["cases"]
    greedy = rows["greedy/00050/mask0"]
    assert greedy["validation_error"] is None  # nothing is held out
    sizes, errors = zip(*greedy["curve"])
    assert list(sizes) == sorted(sizes) and sizes[0] == sum(completion.QUICK_SHAPE) and sizes[-1] <= 50
    assert errors[-1] < 0.5 * errors[0]
    assert len(sizes) > 3
    assert rows["default/00050/mask0"]["curve"][-1][1] < errors[0]
    assert rows["tt_als/rank002/mask0"]["curve"] == []
    for method in ("tensorgrow", "Greedy (paper preset)", "TT-ALS"):
        assert f"| {method} |" in done.text
    (figure,) = done.figures
    assert figure.stat().st_size > 1000


def test_the_paper_s_sizes_are_read_off_the_curve():
    """The best network within each size that the paper names, as the paper reports its iterations."""
    row = {"size": 24_000, "curve": [[9_000, 0.12], [10_000, 0.11], [20_000, 0.10], [24_000, 0.105]]}
    points = completion.points("greedy", row)
    assert points == [(10_096, 10_000, 0.11), (21_375, 20_000, 0.10), (24_000, 20_000, 0.10)]


def test_tucker_has_the_picture_itself(tiny, monkeypatch):
    seen = []

    def run(method, x, mask, rank, **limits):
        seen.append((x.shape, int(mask.sum())))
        raise ZeroDivisionError

    monkeypatch.setattr(completion, "run_rival", run)
    monkeypatch.setattr(completion, "QUICK_RANKS", {"tucker": (2,), "tt_als": (2,)})
    settings = completion.Settings(True, tiny)
    for case in completion.cases(settings):
        if "rank" in case.params:
            with pytest.raises(ZeroDivisionError):
                completion.work(case, settings)
    assert [shape for shape, _ in seen] == [(8, 8, 3), (2, 4, 8, 3)]
    assert len({count for _, count in seen}) == 1
