from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tensorgrow as tg
from tests.cli.conftest import HIDDEN, call, document, environment

pytest.importorskip("typer")


def test_decompose_finds_the_hidden_ring(capsys, tensor):
    found = document(capsys, "decompose", "x.npy", "--max-error", "1e-6")
    assert found["num_parameters"] == HIDDEN.num_parameters
    assert found["relative_error"] <= 1e-6
    assert tg.Structure.from_dict(found["structure"]) == HIDDEN
    assert found["stop"]["name"] == "TARGET_REACHED"
    assert found["files"] == ["x.safetensors"]
    result = tg.load("x.safetensors")
    assert result.structure == HIDDEN
    assert result.info["source"]["name"] == "x.npy"
    assert result.info["seed"] == 0


def test_edges_and_budget(capsys, tensor):
    found = document(capsys, "decompose", "x.npy", "--edges", "0-1,2-3", "--max-parameters", "60")
    assert found["num_parameters"] <= 60
    assert {(i, j) for i, j, _ in found["structure"]["ranks"]} <= {(0, 1), (2, 3)}
    found = document(capsys, "decompose", "x.npy", "--edges", "chain", "-e", "0.3", "--effort", "fast")
    assert {(i, j) for i, j, _ in found["structure"]["ranks"]} <= {(0, 1), (1, 2), (2, 3)}


def test_a_seed_gives_the_same_again(capsys, tensor):
    def once(seed: int) -> dict:
        found = document(capsys, "decompose", "x.npy", "-e", "0.4", "--seed", seed)
        return {k: v for k, v in found.items() if k != "seconds"}

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
    process = subprocess.Popen(
        [sys.executable, "-m", "tensorgrow", *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 100
    while not Path("c.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    found = json.loads(out)
    assert found["stop"]["name"] == "INTERRUPTED"
    assert err.startswith("interrupted: the best network so far is saved (n.safetensors, y.npy)")
    result = tg.load("n.safetensors")
    assert result.num_parameters == found["num_parameters"]
    assert np.array_equal(np.load("y.npy"), result.to_array().numpy())
