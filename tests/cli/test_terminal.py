"""Every command that computes, in a terminal with the live progress line on."""

from __future__ import annotations

import re

import pytest

import tensorgrow as tg
from tests.cli.terminal import run_in_terminal

for package in ("typer", "rich", "PIL"):
    pytest.importorskip(package)

LIVE = r"step \d+: [\d,]+ parameters.*error \d|target met, .* \([\d,]+ parameters\)"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("decompose x.npy -e 1e-6", ["TARGET_REACHED", "0-1:2", "x.safetensors"]),
        ("decompose x.npy -e 0.5 -q --json", ['"schema": "tensorgrow.result/1"']),
        ("complete x.npy --observed 0.7 --effort fast", ["held-out error", "x-completed.npy"]),
        ("complete rain.csv --bounds 0, --effort fast", ["station, year", "rain-completed.csv"]),
        ("decompose x.npy -e 1e-6 --names a,b,c,d", ["TARGET_REACHED", "x.safetensors"]),
        ("decompose net.safetensors -e 1e-6", ["TARGET_REACHED", "0-1:2", "net-result.safetensors"]),
        ("fit x.npy -s ring --rank 2", ["parameters", "x.safetensors"]),
        ("fit x.npy -s ring --rank 2 -q", ["parameters", "x.safetensors"]),
        ("compare x.npy -e 0.2", ["TT-SVD, stored order", "times ours", "our edges"]),
        ("compare x.npy -e 0.2 -q", ["TT-SVD, stored order", "times ours", "our edges"]),
    ],
)
def test_it_runs_and_shows_progress(tensor, folder, command, words):
    if "rain.csv" in command:
        pytest.importorskip("pandas")
        rows = [f"s{i},{2000 + j},{i + j if i + j != 7 else ''}" for i in range(8) for j in range(9)]
        (folder / "rain.csv").write_text("\n".join(["station,year,rain", *rows]))
    if "net.safetensors" in command:
        one = tg.TensorNetwork.random(tg.Structure((3, 4, 5), {(0, 1): 2, (1, 2): 2}), random_state=0)
        (one + one).save(folder / "net.safetensors")
    if command.startswith("compare"):
        pytest.importorskip("tensorly")
    screen = run_in_terminal(*command.split(), folder=folder)
    assert screen.code == 0, screen.text
    for word in words:
        assert word in screen.text
    assert bool(re.search(LIVE, screen.text)) != ("-q" in command)


def test_show(tensor, folder):
    assert run_in_terminal("decompose", "x.npy", "-e", "1e-6", "-q", "--history", folder=folder).code == 0
    screen = run_in_terminal("show", "x.safetensors", folder=folder)
    assert screen.code == 0, screen.text
    assert "0-1:2" in screen.text and "nodes" in screen.text and "smaller networks" in screen.text


def test_demo(folder):
    pytest.importorskip("matplotlib")
    screen = run_in_terminal("demo", "--max-error", "0.5", folder=folder)
    assert screen.code == 0, screen.text
    assert re.search(LIVE, screen.text)
    assert screen.text.rstrip().endswith("report: out/demo.html")


def test_errors_are_one_line(folder):
    screen = run_in_terminal("decompose", "missing.npy", folder=folder)
    assert screen.code == 2
    assert screen.text.strip() == "error: no such file: missing.npy"
