from __future__ import annotations

import functools
import importlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.cli import run

HIDDEN = tg.Structure.tensor_ring((4, 5, 6, 3), 2)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tensor(folder):
    x = tg.TensorNetwork.random(HIDDEN, random_state=0).to_dense().numpy()
    np.save(folder / "x.npy", x)
    return x


def picture(n: int, colour: bool) -> np.ndarray:
    t = np.linspace(0, 1, n)
    grey = 0.5 + 0.3 * np.sin(9 * t[:, None]) * np.cos(5 * t[None, :]) + 0.2 * (t[:, None] > t[None, :])
    pixels = np.stack([grey, 0.8 * grey, 1 - grey], 2) if colour else grey
    return np.rint(255 * pixels.clip(0, 1)).astype(np.uint8)


@pytest.fixture
def photo(folder):
    pillow = pytest.importorskip("PIL.Image")
    pillow.fromarray(picture(32, True)).save(folder / "photo.png")
    return picture(32, True) / 255.0


@pytest.fixture
def few_steps(monkeypatch):
    """Completions end after two steps: what is found within some seconds depends on the machine."""
    task = importlib.import_module("tensorgrow.tasks.complete")
    monkeypatch.setattr(task, "complete", functools.partial(task.complete, max_steps=2))


def call(capsys, *arguments: str, code: int = 0) -> str:
    capsys.readouterr()
    actual = run([*map(str, arguments)])
    written = capsys.readouterr()
    assert actual == code, written.err
    return written.out


def document(capsys, *arguments: str) -> dict:
    return json.loads(call(capsys, *arguments, "--json"))


def environment(**more: str) -> dict[str, str]:
    source = str(Path(tg.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": source, **more}
