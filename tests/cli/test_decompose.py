from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.cli import run
from tests.cli.conftest import HIDDEN, call, document
from tests.warm import start, tensorgrow

pytest.importorskip("typer")


def test_decompose_finds_the_hidden_ring(capsys, tensor):
    printed = document(capsys, "decompose", "x.npy", "--max-error", "1e-6")
    assert printed["num_parameters"] == HIDDEN.num_parameters
    assert printed["relative_error"] <= 1e-6
    assert tg.Structure.from_dict(printed["structure"]) == HIDDEN
    assert printed["stop"]["name"] == "TARGET_REACHED"
    assert printed["files"] == ["x.safetensors"]
    result = tg.load("x.safetensors")
    assert result.structure == HIDDEN
    assert result.info["source"]["name"] == "x.npy"
    assert result.info["seed"] == 0


def test_edges_and_budget(capsys, tensor):
    printed = document(capsys, "decompose", "x.npy", "--edges", "0-1,2-3", "--max-parameters", "60")
    assert printed["num_parameters"] <= 60
    assert {(i, j) for i, j, _ in printed["structure"]["ranks"]} <= {(0, 1), (2, 3)}
    printed = document(capsys, "decompose", "x.npy", "--edges", "chain", "-e", "0.3", "--effort", "fast")
    assert {(i, j) for i, j, _ in printed["structure"]["ranks"]} <= {(0, 1), (1, 2), (2, 3)}


def test_a_seed_gives_the_same_again(capsys, tensor):
    def once(seed: int) -> dict:
        printed = document(capsys, "decompose", "x.npy", "-e", "0.4", "--seed", seed)
        times = ("seconds", "file_bytes")  # the file has them too
        return {k: v for k, v in printed.items() if k not in times}

    assert once(1) == once(1)


def test_checkpoints_are_resumed(capsys, tensor):
    first = document(capsys, "decompose", "x.npy", "-e", "1e-6", "--checkpoint", "run.safetensors")
    assert first["checkpoint"] == "run.safetensors"
    again = document(capsys, "decompose", "x.npy", "-e", "1e-6", "--checkpoint", "run.safetensors")
    assert again["structure"] == first["structure"]
    assert again["relative_error"] == first["relative_error"]


def test_a_network_larger_than_the_data_is_called_so(capsys, folder):
    np.save("x.npy", np.random.default_rng(0).standard_normal((4, 4, 4)))
    assert "x larger than the data" in call(capsys, "decompose", "x.npy", "-e", "1e-9")


def test_ctrl_c_saves_the_best_so_far(folder):
    np.save("x.npy", np.random.default_rng(0).standard_normal((4,) * 8))
    arguments = ["decompose", "x.npy", "-e", "1e-3", "-o", "n.safetensors", "-o", "y.npy"]
    arguments += ["--checkpoint", "c.safetensors", "--json"]
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        process = start(tensorgrow, *arguments, folder=folder, out=out.fileno(), err=err.fileno())
    try:
        while not Path("c.safetensors").exists() and process.is_alive():
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGINT)
        process.join(100)
    finally:
        process.kill()
    errors = Path("err").read_text()
    assert process.exitcode == 130, errors
    printed = json.loads(Path("out").read_text())
    assert printed["stop"]["name"] == "INTERRUPTED"
    assert errors.startswith("interrupted: the best network so far is saved (n.safetensors, y.npy)")
    result = tg.load("n.safetensors")
    assert result.num_parameters == printed["num_parameters"]
    assert np.array_equal(np.load("y.npy"), result.to_array())


def test_a_network_is_rounded(capsys, folder):
    one = tg.TensorNetwork.random(tg.Structure.tensor_ring((4,) * 5, 2), random_state=0)
    (one + one).save("net.safetensors")
    printed = document(capsys, "decompose", "net.safetensors", "--max-error", "1e-6")
    assert printed["num_parameters"] == one.num_parameters
    assert printed["relative_error"] <= 1e-6
    assert printed["files"] == ["net-result.safetensors"]
    again = document(capsys, "decompose", "net-result.safetensors", "-e", "0.5", "-o", "small.safetensors")
    assert again["num_parameters"] < one.num_parameters
    for arguments, reason in ((("-t", "auto"), "--tensorize"), (("-e", "1e-18"), "float64 can tell")):
        assert run(["decompose", "net.safetensors", *arguments]) == 2
        assert reason in " ".join(capsys.readouterr().err.split())
