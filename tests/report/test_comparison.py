"""Completions beside interpolation."""

from __future__ import annotations

import dataclasses
import html
import re

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.plotting.picture import View
from tensorgrow.report.comparison import Comparison, compare
from tests.report.conftest import HOSTILE, content_of, photograph

pytest.importorskip("scipy")

PICTURE = photograph(32)
KNOWN = np.random.default_rng(0).random(PICTURE.shape) < 0.5
HOLES = np.where(KNOWN, PICTURE, np.nan)


def answering(array: np.ndarray, **errors: float) -> tg.Result:
    """A result that stands for a matrix."""
    network = tg.TensorNetwork(
        tg.Structure(array.shape, {(0, 1): array.shape[1]}), [array, np.eye(array.shape[1])]
    )
    return tg.Result(network, tg.Errors(0.1, **errors), (), tg.StopReason.CONVERGED, info={"seed": 3})


def errors_by_hand(hidden: np.ndarray, holes: np.ndarray) -> dict[str, float]:
    filled = {m: tg.baselines.interpolate(holes, method=m) for m in ("linear", "cubic")}
    norm = np.linalg.norm(PICTURE[hidden])
    return {
        f"{m} interpolation": float(np.linalg.norm((x - PICTURE)[hidden])) / norm for m, x in filled.items()
    }


def test_on_hidden_entries():
    rough = PICTURE + 0.3
    found = compare(answering(rough), HOLES, PICTURE, View(PICTURE.shape))
    assert found.where == "hidden"
    expected = errors_by_hand(~KNOWN, HOLES)
    assert {f.name: f.error for f in found.others} == pytest.approx(expected)
    hidden = np.linalg.norm(0.3 * np.ones((~KNOWN).sum())) / np.linalg.norm(PICTURE[~KNOWN])
    assert found.ours.error == pytest.approx(hidden)
    off = np.where(KNOWN, 0.0, rough.clip(0, 1) - PICTURE)
    assert found.ours.psnr == pytest.approx(-10 * np.log10(np.mean(off**2)))
    assert 0 < found.ours.ssim < min(f.ssim for f in found.others) < 1
    best = min(expected, key=expected.get)
    assert found.verdict == f"{best} does better here: {expected[best]:.4g} against {hidden:.4g}"
    assert compare(answering(PICTURE), HOLES, PICTURE, None).verdict is None


def test_on_held_out_entries_where_the_truth_is_not_known():
    """They are those that the run held out."""
    shown = tg.complete(HOLES, max_steps=2, effort="fast", random_state=5)
    found = compare(shown, HOLES, None, None)
    assert (found.where, found.ours.error) == ("held-out", shown.validation_error)
    assert found.ours.psnr is None
    assert all(0 < f.error < 1 for f in found.others)
    poisson = dataclasses.replace(shown, errors=dataclasses.replace(shown.errors, kind="deviance"))
    assert compare(poisson, HOLES, None, None).others[0].error is None  # numbers of another kind
    assert compare(poisson, HOLES, None, None).verdict is None


def test_what_is_not_compared():
    assert compare(answering(PICTURE), PICTURE, PICTURE, None) is None
    assert compare(answering(np.ones((3, 4))), np.array([[1.0, np.nan] * 2] * 3), None, None) is None


def test_a_picture_folded_into_many_modes_is_compared_as_a_picture():
    x = PICTURE.reshape(2, 16, 2, 16)
    result = tg.complete(x, KNOWN.reshape(x.shape), max_steps=1, effort="fast", random_state=0)
    found = compare(result, HOLES.reshape(x.shape), x, View((32, 32)))
    assert {f.name: f.error for f in found.others} == pytest.approx(errors_by_hand(~KNOWN, HOLES))


def test_numbers_survive_a_file_and_nonsense_does_not():
    found = compare(answering(PICTURE + 0.3), HOLES, PICTURE, View(PICTURE.shape))
    again = Comparison.from_dict(found.to_dict())
    assert (again.verdict, again.to_dict()) == (found.verdict, found.to_dict())
    for data in (None, 3, {}, {"methods": []}, {"methods": [{"method": 1}], "entries": 2}, {"methods": 5}):
        assert Comparison.from_dict(data) is None


def test_the_page_leads_with_it(tmp_path):
    pytest.importorskip("PIL")
    result = answering(PICTURE + 0.3, test=0.5)
    page = result.report(tmp_path / "p.html", image=PICTURE.shape, truth=PICTURE, observed=HOLES).read_text()
    found = compare(result, HOLES, PICTURE, View(PICTURE.shape))
    panel = html.unescape(re.search(r'<section id="filled".*?</section>', page, re.S)[0])
    assert page.index('id="filled"') < page.index('id="growth"')
    assert f"{found.verdict[1:]}." in panel
    cells = [re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", panel)]
    assert cells[0] == ["method", "error on hidden entries", "PSNR", "SSIM"]
    assert [row[0] for row in cells[1:]] == ["tensorgrow", "linear interpolation", "cubic interpolation"]
    assert cells[1][1:] == [f"{found.ours.error:.4g}", f"{found.ours.psnr:.1f} dB", f"{found.ours.ssim:.3f}"]
    assert re.search(r"<dt>PSNR</dt><dd>(.*?) dB", page)[1] == f"{found.ours.psnr:.1f}"
    assert list(content_of(page)["images"]["stills"]) == ["difference"]


def test_a_saved_comparison_is_text_on_the_page(grown, tmp_path):
    rows = [{"method": HOSTILE, "error": 0.1 * k, "psnr": None, "ssim": None} for k in (2, 1)]
    saved = dataclasses.replace(grown, info={"interpolation": {"entries": "hidden", "methods": rows}})
    page = saved.report(tmp_path / "p.html").read_text()
    assert "does better here: 0.1 against 0.2" in page and "<img" not in page
    assert 'id="filled"' not in grown.report(tmp_path / "p.html").read_text()
