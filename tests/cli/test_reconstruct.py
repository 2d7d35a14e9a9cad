from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.cli import ExitCode, run
from tests.cli.conftest import HIDDEN, call, document

pytest.importorskip("typer")
pillow = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize("order", ["C", "F", "interleaved", "grouped"])
def test_what_is_reconstructed_is_the_dense_network(capsys, photo, order):
    shapes = {"grouped": "4x16x16x3"}
    shape = shapes.get(order, "4x8,4x8,3")
    options = ("-t", shape, "--order", order, "-e", "0.2", "--effort", "fast")
    call(capsys, "decompose", "photo.png", *options, "-o", "n.safetensors", "-o", "a.npy")
    call(capsys, "reconstruct", "n.safetensors", "-o", "b.npy")
    call(capsys, "reconstruct", "n.safetensors", "-o", "c.png")
    result = tg.load("n.safetensors")
    how = result.tensorization
    assert how.order == order
    expected = how.invert(result.network.to_dense()).numpy()
    assert np.array_equal(np.load("b.npy"), expected)
    assert np.array_equal(np.load("a.npy"), expected)
    assert np.array_equal(result.to_array(), expected)
    assert np.array_equal(np.asarray(pillow.open("c.png")), np.rint(255 * expected.clip(0, 1)))
    assert np.linalg.norm(expected - photo) <= 0.2 * np.linalg.norm(photo) * (1 + 1e-9)


def test_smaller_networks_on_the_way(capsys, tensor):
    call(capsys, "decompose", "x.npy", "-e", "1e-6", "--history")
    printed = document(capsys, "reconstruct", "x.safetensors", "--max-error", "0.5", "-o", "y.npy")
    assert printed["num_parameters"] < HIDDEN.num_parameters
    assert np.linalg.norm(np.load("y.npy") - tensor) <= 0.5 * np.linalg.norm(tensor) * (1 + 1e-6)


def test_a_bare_network_can_be_shown_and_reconstructed(capsys, folder):
    network = tg.TensorNetwork.random(HIDDEN, random_state=0)
    network.save("n.safetensors")
    call(capsys, "reconstruct", "n.safetensors", "-o", "x.npy")
    assert np.array_equal(np.load("x.npy"), network.to_dense().numpy())
    assert document(capsys, "show", "n.safetensors")["relative_error"] is None
    assert f"{HIDDEN.num_parameters}" in call(capsys, "show", "n.safetensors")


def test_a_small_file_of_a_huge_tensor_is_refused(capsys, folder, monkeypatch):
    monkeypatch.setattr("tensorgrow.data.devices.free_memory", lambda device: 64e9)
    tg.TensorNetwork.random(tg.Structure.rank_one((2,) * 34), random_state=0).save("n.safetensors")
    assert run(["reconstruct", "n.safetensors", "-o", "x.npy"]) == ExitCode.BAD_INPUT
    said = " ".join(capsys.readouterr().err.split())
    assert "17,179,869,184 entries" in said and "137.44 GB" in said and "64.00 GB are free" in said
