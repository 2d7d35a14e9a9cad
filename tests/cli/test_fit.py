from __future__ import annotations

import numpy as np
import pytest

from tensorgrow.cli import run
from tests.cli.conftest import document

pytest.importorskip("typer")


@pytest.mark.parametrize("structure", ["train", "ring", "tucker", "tree"])
def test_fit(capsys, tensor, structure):
    printed = document(capsys, "fit", "x.npy", "--structure", structure, "--rank", "2")
    assert printed["structure"]["dims"] == list(tensor.shape)
    if structure == "ring":
        assert printed["relative_error"] < 1e-3
        again = document(capsys, "fit", "x.npy", "--structure", "x.safetensors", "-o", "y.safetensors")
        assert again["structure"] == printed["structure"]


def test_fit_resumes_from_its_checkpoint(capsys, tensor):
    command = ("fit", "x.npy", "-s", "ring", "--rank", "2", "-q", "--checkpoint", "run.safetensors")
    first = document(capsys, *command)
    assert first["checkpoint"] == "run.safetensors"
    again = document(capsys, *command)
    assert again["relative_error"] == first["relative_error"]
    assert run(["fit", "x.npy", "-s", "train", *command[4:]]) == 2
    assert "run.safetensors" in capsys.readouterr().err


def test_fit_to_known_entries(capsys, tensor):
    printed = document(capsys, "fit", "x.npy", "-s", "ring", "--rank", "2", "--observed", "0.8")
    assert printed["test_error"] < 1e-2


def test_fit_takes_nan_for_missing(capsys, tensor):
    known = np.random.default_rng(0).random(tensor.shape) < 0.8
    np.save("nan.npy", np.where(known, tensor, np.nan))
    printed = document(capsys, "fit", "nan.npy", "-s", "ring", "--rank", "2", "-o", "y.npy")
    assert printed["observed"] == known.sum()
    assert np.linalg.norm(np.load("y.npy") - tensor) < 1e-2 * np.linalg.norm(tensor)


def test_a_saved_structure_brings_the_shape_it_was_learned_in(capsys, folder):
    np.save("m.npy", np.sin(np.add.outer(np.arange(20.0), np.arange(30.0)) ** 1.3))
    learned = document(capsys, "decompose", "m.npy", "-e", "0.2", "-t", "4x5,5x6", "-o", "m.safetensors")
    fitted = document(capsys, "fit", "m.npy", "--structure", "m.safetensors", "-o", "again.safetensors")
    assert fitted["tensorization"] == learned["tensorization"]
    assert fitted["structure"] == learned["structure"]
    assert run(["fit", "m.npy", "--structure", "m.safetensors", "-t", "none"]) == 2


def test_a_chain_is_given_the_shape_of_the_smallest_train(capsys, folder):
    """A search over all edges makes more of digits than a chain does, which is a train."""
    frequencies = np.hypot(np.fft.fftfreq(64)[:, None], np.fft.fftfreq(64)[None])
    frequencies[0, 0] = np.inf
    noise = np.random.default_rng(1).standard_normal((64, 64))
    x = np.fft.ifft2(np.fft.fft2(noise) / frequencies**1.3).real
    np.save("m.npy", x / x.std() + 3.0)
    cut = [document(capsys, "decompose", "m.npy", "--edges", edges) for edges in ("all", "chain")]
    assert [len(c["structure"]["dims"]) for c in cut] == [4, 2]
    assert cut[0]["num_parameters"] < 0.7 * cut[1]["num_parameters"]
