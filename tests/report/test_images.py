"""Pictures on the page."""

from __future__ import annotations

import base64
import io
import re
import sys

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow import Result, Step, StopReason, Structure, TensorNetwork
from tensorgrow.report.images import MOST_BYTES, MOST_FRAMES
from tests.report.conftest import content_of, photograph


def decoded(address: str) -> np.ndarray:
    from PIL import Image

    assert address.startswith("data:image/")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.split(",", 1)[1]))), dtype=float) / 255


def test_pictures_show_the_networks(grown, tmp_path):
    pytest.importorskip("PIL")
    pytest.importorskip("scipy")
    x = photograph().reshape((4,) * 4)
    observed = np.where(x > 0.6, np.nan, x)
    path = grown.report(tmp_path / "p.html", image=lambda d: d.reshape(16, 16), truth=x, observed=observed)
    images = content_of(path.read_text())["images"]
    steps = content_of(path.read_text())["steps"]
    filled = dict(re.findall(r'<figure data-name="(.*?)"><img src="(.*?)"', path.read_text()))
    assert list(filled) == ["original", "observed", "linear interpolation", "tensorgrow"]
    assert list(images["stills"]) == ["difference"]
    made = grown.network.to_dense().numpy().reshape(16, 16)
    np.testing.assert_allclose(decoded(images["frames"][-1]["src"]), made.clip(0, 1), atol=0.003)
    np.testing.assert_allclose(decoded(filled["original"]), photograph(), atol=0.003)
    np.testing.assert_allclose(
        decoded(filled["observed"]), np.nan_to_num(observed.reshape(16, 16)), atol=0.003
    )
    kept = np.where(np.isnan(observed), grown.network.to_dense().numpy(), observed).reshape(16, 16)
    np.testing.assert_allclose(decoded(filled["tensorgrow"]), kept.clip(0, 1), atol=0.003)
    rival = tg.baselines.interpolate(observed.reshape(16, 16))
    np.testing.assert_allclose(decoded(filled["linear interpolation"]), rival.clip(0, 1), atol=0.003)
    np.testing.assert_allclose(
        decoded(images["stills"]["difference"]),
        (images["gain"] * np.abs(made.clip(0, 1) - photograph())).clip(0, 1),
        atol=0.003,
    )
    assert [f["name"] for f in images["frames"][-2:]] == ["error", "relative error"]
    assert steps[-1]["frame"] == len(images["frames"]) - 1
    for step in steps:
        assert images["frames"][step["frame"]]["size"] <= step["size"]
    errors = [np.linalg.norm(decoded(f["src"]) - photograph()) for f in images["frames"]]
    assert errors[-1] == min(errors)


def test_pictures_of_a_completion_say_which_error(completed, tmp_path):
    pytest.importorskip("PIL")
    images = content_of(completed.report(tmp_path / "p.html", image=(16, 32)).read_text())["images"]
    *before, last = images["frames"]
    assert {f["name"] for f in before} == {"held-out error"}
    known = {s.validation_error for s in completed.history}
    assert {f["error"] for f in before} <= known
    assert (last["name"], last["error"]) == ("relative error on hidden entries", completed.test_error)


def test_many_large_pictures_stay_small(tmp_path):
    pytest.importorskip("PIL")
    dims = (30, 30, 3)
    networks = [TensorNetwork.random(Structure(dims, {(0, 1): r}), random_state=r) for r in range(2, 70)]
    path = [tg.results.PathPoint(n, 1 / n.num_parameters) for n in networks]
    steps = [
        Step(k, "grow", (0, 1), p.num_parameters, 1.0, p.error, None, 0.0, p.network.structure)
        for k, p in enumerate(path)
    ]
    errors = tg.Errors(path[-1].error)
    result = Result(networks[-1], errors, tuple(steps), StopReason.MAX_STEPS, tuple(path))
    noise = np.random.default_rng(0).random((500, 400, 3))
    file = result.report(tmp_path / "p.html", image=lambda d: noise)
    images = content_of(file.read_text())["images"]
    assert len(images["frames"]) == MOST_FRAMES
    assert decoded(images["frames"][0]["src"]).shape == (384, 307, 3)
    assert file.stat().st_size < 1.4 * MOST_BYTES < 3_000_000


def test_completion_with_a_loss_shows_expected_values(tmp_path):
    pytest.importorskip("PIL")
    counts = np.random.default_rng(0).poisson(5.0, (6, 6)).astype(float)
    result = tg.complete(counts, loss="poisson", max_steps=1, random_state=0)
    images = content_of(result.report(tmp_path / "p.html", image=(6, 6), truth=counts).read_text())["images"]
    rates = result.predict(np.argwhere(counts >= 0)).reshape(6, 6)
    low, high = np.quantile(counts, (0.01, 0.99))
    expected = ((rates - low) / (high - low)).clip(0, 1)
    np.testing.assert_allclose(decoded(images["frames"][-1]["src"]), expected, atol=0.003)


def test_pictures_that_do_not_fit_are_refused(grown, tmp_path, monkeypatch):
    with pytest.raises(tg.DataError, match=r"truth has shape \(16, 16\)"):
        grown.report(tmp_path / "p.html", image=(16, 16), truth=photograph())
    with pytest.raises(tg.DataError, match="entries"):
        grown.report(tmp_path / "p.html", image=(5, 5))
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(tg.MissingPackageError, match=r"pip install .*\[plot\]"):
        grown.report(tmp_path / "p.html", image=(16, 16))
    assert grown.report(tmp_path / "plain.html").exists()  # without pictures nothing more is needed
