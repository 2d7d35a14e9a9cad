from __future__ import annotations

import multiprocessing
import re
from pathlib import Path

import numpy as np
import pytest

import tensorgrow as tg
from tests.cli.conftest import call, document
from tests.warm import forks

pytest.importorskip("typer")
pillow = pytest.importorskip("PIL.Image")


def test_complete_hides_entries_and_says_how_well_they_were_found(capsys, photo, few_steps):
    options = ("--observed", "0.6", "--seed", "3", "--effort", "fast")
    printed = document(capsys, "complete", "photo.png", *options)
    known = np.random.default_rng(3).random(photo.shape) < 0.6
    assert printed["observed"] == known.sum()
    assert printed["files"] == ["photo.safetensors", "photo-completed.png"]
    completed = np.asarray(pillow.open("photo-completed.png")) / 255.0
    assert np.array_equal(completed[known], photo[known])  # known entries keep their values
    estimate = tg.load("photo.safetensors").to_array()
    hidden = ~known
    error = np.linalg.norm((estimate - photo)[hidden]) / np.linalg.norm(photo[hidden])
    assert printed["test_error"] == pytest.approx(error)
    assert error < 0.2
    text = call(capsys, "complete", "photo.png", *options, "--predict-all", "-o", "p.png")
    assert re.match(r"hidden entries +0\.\d+ relative error +\ninterpolation ", text) and "PSNR" in text


def test_interpolation_is_named_where_it_does_better(capsys, photo):
    """On the same entries; also of a saved run, and on held-out entries where the truth is not known."""
    pytest.importorskip("scipy")
    options = ("photo.png", "--observed", "0.6", "--seed", "3", "--max-parameters", "90", "--effort", "fast")
    found = document(capsys, "complete", *options, "--report", "p.html")
    known = np.random.default_rng(3).random(photo.shape) < 0.6
    ours, linear, cubic = found["interpolation"]["methods"]
    assert found["interpolation"]["entries"] == "hidden" and cubic["method"] == "cubic interpolation"
    assert ours["error"] == pytest.approx(found["test_error"])
    filled = tg.baselines.interpolate(photo, known)
    hidden = np.linalg.norm((filled - photo)[~known]) / np.linalg.norm(photo[~known])
    assert linear["error"] == pytest.approx(hidden) and hidden < found["test_error"]
    assert ours["psnr"] == pytest.approx(found["psnr"])
    said = r"interpolation +\w+ interpolation does better here: 0\.\d+ against 0\.\d+"
    text = call(capsys, "complete", *options)
    assert re.search(said, text)
    assert re.search(said, call(capsys, "show", "photo.safetensors"))
    call(capsys, "report", "photo.safetensors", "-o", "again.html")
    for page in ("p.html", "again.html"):
        assert "interpolation does better here" in Path(page).read_text(encoding="utf-8")
    np.save("holes.npy", np.where(known, photo, np.nan))
    text = call(capsys, "complete", "holes.npy", "--max-parameters", "90", "--effort", "fast")
    assert text.startswith("held-out error") and re.search(said, text)


@pytest.mark.parametrize(("stored", "completed"), [("jpg", "png"), ("webp", "png"), ("tiff", "tiff")])
def test_what_is_known_is_written_as_it_was(capsys, photo, stored, completed):
    """JPEG would change what is known."""
    pillow.open("photo.png").save(f"p.{stored}")
    before = np.asarray(pillow.open(f"p.{stored}"))
    printed = document(capsys, "complete", f"p.{stored}", "--observed", "0.5", "--max-seconds", "0.2")
    assert printed["files"] == ["p.safetensors", f"p-completed.{completed}"]
    known = np.random.default_rng(0).random(before.shape) < 0.5
    assert np.array_equal(np.asarray(pillow.open(f"p-completed.{completed}"))[known], before[known])


def test_complete_by_mask_and_nan(capsys, tensor):
    known = np.random.default_rng(0).random(tensor.shape) < 0.7
    np.save("mask.npy", known)
    np.save("nan.npy", np.where(known, tensor, np.nan))
    by_mask = document(capsys, "complete", "x.npy", "--mask", "mask.npy", "-o", "a.npy")
    by_nan = document(capsys, "complete", "nan.npy", "-o", "b.npy")
    assert by_mask["observed"] == by_nan["observed"] == known.sum()
    assert by_mask["test_error"] is None and by_nan["test_error"] is None
    assert np.linalg.norm(np.load("a.npy") - tensor) < 1e-4 * np.linalg.norm(tensor)
    assert np.allclose(np.load("a.npy"), np.load("b.npy"), atol=1e-4)


def test_a_grey_mask_serves_all_colours(capsys, photo, few_steps):
    known = np.random.default_rng(0).random(photo.shape[:2]) < 0.7
    pillow.fromarray(np.where(known, 255, 0).astype(np.uint8)).save("mask.png")
    printed = document(capsys, "complete", "photo.png", "--mask", "mask.png", "--effort", "fast")
    assert printed["observed"] == 3 * known.sum()
    assert printed["gaps"].startswith("whole fibres along colour")  # pixels
    options = ("--mask", "mask.png", "--max-parameters", "90", "--effort", "fast", "-o", "p.safetensors")
    assert "held out alike" in call(capsys, "complete", "photo.png", *options)
    assert "whole fibres" in call(capsys, "show", "p.safetensors")


def test_a_committee_is_the_default_of_pictures_and_says_who_is_in_it(capsys, photo, few_steps):
    options = ("complete", "photo.png", "--observed", "0.3")
    printed = document(capsys, *options)
    learned = [m for m in printed["members"] if m["method"] is None]
    assert len(learned) == 4  # and one that interpolates where it has a share
    assert len({tuple(m["dims"]) for m in learned}) > 1
    assert printed["shape"] == [32, 32, 3]
    loaded = tg.load("photo.safetensors")
    hidden = np.random.default_rng(0).random(photo.shape) >= 0.3
    error = np.linalg.norm((loaded.to_array() - photo)[hidden]) / np.linalg.norm(photo[hidden])
    assert printed["test_error"] == pytest.approx(error)
    # A size is that of one network, and losses other than squares have no mean.
    for single in (("--max-parameters", "100"), ("--loss", "huber")):
        assert document(capsys, *options, *single)["members"] is None


def test_members_run_in_processes_that_tell_where_they_are(photo, monkeypatch):
    """Without a terminal in plain lines; the result is that of one process."""
    from tensorgrow.callbacks.progress import LogLines

    quick = forks()
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: quick)
    known = np.random.default_rng(0).random(photo.shape) < 0.3
    lines: list[str] = []
    alike = {"tensorize": ((4, 8), (4, 8), (3,)), "members": 2, "max_steps": 2, "random_state": 0}
    beside = tg.complete(photo, known, workers=2, callbacks=LogLines(lines.append, every=0.0), **alike)
    alone = tg.complete(photo, known, **alike)
    assert lines and all("of 2 members done" in line for line in lines)
    assert beside.validation_error == pytest.approx(alone.validation_error, rel=1e-6)


def test_what_is_known_of_axes(capsys, folder):
    """A ramp whose last fifth of columns has no entry at all: smooth continues it, nothing does not."""
    x = np.outer(np.linspace(1, 2, 12), np.linspace(1, 2, 20))[:, :, None] * np.ones(3)
    gaps = x + 0.01 * np.random.default_rng(0).standard_normal(x.shape)
    gaps[:, 17:] = np.nan
    np.save("gaps.npy", gaps)

    def error(*options: str) -> float:
        call(capsys, "complete", "gaps.npy", "-o", "out.npy", "--effort", "fast", *options)
        return float(np.linalg.norm(np.load("out.npy")[:, 17:] - x[:, 17:]))

    assert error("--prior", "1=smooth:2") < 0.5 * error("--prior", "none")


def test_sparse_pictures_are_smooth_by_themselves(capsys, photo, few_steps):
    def priors(*options):
        document(capsys, "complete", "photo.png", "--effort", "fast", "--members", "1", *options)
        return tg.load("photo.safetensors").info.get("priors")

    assert set(priors("--observed", "0.1")) == {"0", "1"}
    assert not priors("--observed", "0.1", "--prior", "none")
    assert not priors("--observed", "0.3")
