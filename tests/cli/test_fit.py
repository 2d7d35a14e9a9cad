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
