from __future__ import annotations

import numpy as np
import pytest

from tests.cli.conftest import HIDDEN, document, picture

pytest.importorskip("typer")


def test_padding_is_cut_off_again(capsys, folder):
    x = np.random.default_rng(0).random((11, 7)) + 3.0
    np.save("x.npy", x)
    outputs = ("-o", "n.safetensors", "-o", "y.npy")
    printed = document(capsys, "decompose", "x.npy", "-t", "3x4,2x4", "-e", "0.3", *outputs)
    y = np.load("y.npy")
    assert y.shape == x.shape
    assert printed["array_error"] == pytest.approx(np.linalg.norm(x - y) / np.linalg.norm(x))


def test_other_files(capsys, tensor):
    np.savez("two.npz", a=tensor, b=tensor[0])
    printed = document(capsys, "decompose", "two.npz", "--key", "a", "-e", "1e-6")
    assert printed["num_parameters"] == HIDDEN.num_parameters
    assert printed["source"]["key"] == "a"


def test_default_tensorisations(capsys, folder):
    np.save("matrix.npy", picture(64, False) / 255.0)
    np.save("cube.npy", np.random.default_rng(0).random((4, 4, 4)))
    options = ("-e", "0.5", "--effort", "fast")
    matrix = document(capsys, "decompose", "matrix.npy", *options)
    assert len(matrix["structure"]["dims"]) > 2
    plain = document(capsys, "decompose", "matrix.npy", "-t", "none", *options)
    assert plain["structure"]["dims"] == [64, 64]
    cube = document(capsys, "decompose", "cube.npy", *options)
    assert cube["structure"]["dims"] == [4, 4, 4]
