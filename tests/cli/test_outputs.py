from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.cli import ExitCode, run
from tensorgrow.data.tensorization import Tensorization
from tests.cli.conftest import call, document
from tests.storage import file_size_limit

pytest.importorskip("typer")


JSON_FIELDS = {
    "schema": str,
    "command": str,
    "version": str,
    "input": str,
    "source": dict,
    "shape": list,
    "tensorization": dict,
    "names": list,
    "leg_names": list,
    "num_parameters": int,
    "compression_ratio": float,
    "num_bytes": int,
    "data_bytes": int,
    "relative_error": float,
    "error_name": str,
    "validation_error": float | None,
    "test_error": float | None,
    "gaps": str | None,
    "array_error": float | None,
    "psnr": float | None,
    "interpolation": dict | None,
    "observed": int | None,
    "members": list | None,
    "structure": dict,
    "steps": int,
    "stop": dict,
    "seconds": float | None,
    "seed": int,
    "device": str,
    "files": list,
    "file_bytes": list,
    "checkpoint": str | None,
}


@pytest.mark.parametrize(
    "arguments",
    [
        ("decompose", "photo.png", "-e", "0.2", "--effort", "fast"),
        ("complete", "photo.png", "--observed", "0.5", "--max-seconds", "1"),
        ("fit", "photo.png", "-s", "train", "--rank", "2"),
    ],
    ids=lambda a: a[0],
)
def test_json_is_as_documented(capsys, photo, arguments):
    printed = document(capsys, *arguments)
    assert list(printed) == list(JSON_FIELDS)
    for name, kind in JSON_FIELDS.items():
        assert isinstance(printed[name], kind), name
    assert printed["schema"] == "tensorgrow.result/1"
    assert printed["shape"] == [32, 32, 3]
    assert Tensorization.from_dict(printed["tensorization"]).shape == (32, 32, 3)
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    for name in JSON_FIELDS:
        assert f"`{name}`" in page, f"{name} is not documented"


@pytest.mark.parametrize("size", [1e300, 1e-300])
def test_sizes_whose_squares_have_no_room(capsys, tensor, size):
    np.save("x.npy", size * tensor)
    printed = document(capsys, "decompose", "x.npy", "-e", "0.3", "-o", "y.npy")
    error = np.linalg.norm(np.load("y.npy") / size - tensor) / np.linalg.norm(tensor)
    assert printed["array_error"] == pytest.approx(error)
    assert printed["array_error"] == pytest.approx(printed["relative_error"])


def test_a_small_file_by_default_and_the_whole_run_if_asked(capsys, photo):
    command = ("decompose", "photo.png", "-e", "0.1", "--effort", "fast")
    small = document(capsys, *command, "-o", "small.safetensors")
    whole = document(capsys, *command, "-o", "whole.safetensors", "--history")
    assert small["file_bytes"] == [Path("small.safetensors").stat().st_size]
    assert small["file_bytes"][0] < min(whole["file_bytes"][0] / 2, small["num_bytes"] + 4000)
    assert (small["num_bytes"], small["data_bytes"]) == (8 * small["num_parameters"], 32 * 32 * 3)
    a, b = tg.load("small.safetensors"), tg.load("whole.safetensors")
    assert a.path == () and len(b.path) > 1
    assert [(s.kind, s.edge, s.loss, s.structure) for s in a.history] == [
        (s.kind, s.edge, s.loss, s.structure) for s in b.history
    ]
    assert (a.relative_error, a.stop, a.structure) == (b.relative_error, b.stop, b.structure)


def test_a_small_file_is_enough(capsys, photo):
    call(capsys, "decompose", "photo.png", "-e", "0.2", "--effort", "fast")
    assert "steps" in call(capsys, "show", "photo.safetensors")
    assert "report" in call(capsys, "report", "photo.safetensors")
    call(capsys, "reconstruct", "photo.safetensors", "-o", "back.npy")
    assert np.linalg.norm(np.load("back.npy") - photo) < 0.2 * np.linalg.norm(photo)
    assert run(["reconstruct", "photo.safetensors", "-o", "back.npy", "-e", "0.5"]) == 2
    assert "saved without a path" in (said := capsys.readouterr().err) and "--history" in said


def test_sizes_are_in_the_table(capsys, tensor):
    text = call(capsys, "decompose", "x.npy", "-e", "1e-6")
    size = f"{Path('x.safetensors').stat().st_size / 1000:.3g} kB"
    assert f"x.safetensors, {size}" in text and "for 2.88 kB of data" in text


def test_a_checkpoint_is_not_replaced_by_the_result(capsys, tensor):
    command = ("decompose", "x.npy", "-e", "1e-6", "--checkpoint", "x.safetensors")
    first = document(capsys, *command)
    assert first["files"] == ["x-result.safetensors"]
    again = document(capsys, *command)
    assert again["relative_error"] == first["relative_error"] and again["files"] == first["files"]


def test_a_structure_is_not_replaced_by_the_result(capsys, tensor):
    call(capsys, "fit", "x.npy", "-s", "train", "--rank", "2")
    before = Path("x.safetensors").read_bytes()
    assert run(["fit", "x.npy", "-s", "./x.safetensors"]) == 0
    assert (
        "x.safetensors is the structure; the result goes to x-result.safetensors" in capsys.readouterr().err
    )
    assert Path("x.safetensors").read_bytes() == before and Path("x-result.safetensors").exists()


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("decompose x.npy -o ./x.npy", "data"),
        ("complete x.npy --observed 0.5 -o x.npy", "data"),
        ("complete x.npy --mask mask.npy -o mask.npy", "mask"),
        ("fit x.npy -s net.safetensors -o net.safetensors", "structure"),
        ("decompose x.npy --checkpoint run.safetensors -o run.safetensors", "checkpoint"),
    ],
)
def test_what_is_read_is_not_replaced(capsys, tensor, line, what):
    np.save("mask.npy", np.arange(tensor.size).reshape(tensor.shape) % 2)
    before = {p.name: p.read_bytes() for p in Path().iterdir()}
    assert run(line.split()) == 2
    assert f"would replace the {what}; choose another name" in capsys.readouterr().err
    assert {p.name: p.read_bytes() for p in Path().iterdir()} == before


# -- full disks --------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="limits of files")
def test_a_full_disk_is_one_line_and_leaves_the_previous_file(capsys, tensor, folder):
    previous = folder / "x.safetensors"
    previous.write_text("previous")
    with file_size_limit(500):
        code = run(["decompose", "x.npy", "-e", "1e-6", "--quiet", "-o", "x.safetensors"])
    said = capsys.readouterr().err
    assert code == ExitCode.BAD_INPUT
    assert "error: cannot write x.safetensors: " in said
    assert said.count("\n") == 1
    assert previous.read_text() == "previous"
    assert sorted(p.name for p in folder.iterdir()) == ["x.npy", "x.safetensors"]


def test_a_network_that_cannot_be_written_is_saved_elsewhere(capsys, tensor, folder, monkeypatch):
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    save = tg.Result.save

    def full(result, path, *more, **options):
        if Path(path).parent == Path():
            raise tg.WriteError(f"cannot write {path}: the disk is full")
        save(result, path, *more, **options)

    monkeypatch.setattr(tg.Result, "save", full)
    assert run(["decompose", "x.npy", "-e", "1e-6", "--quiet", "-o", "x.safetensors"]) == ExitCode.BAD_INPUT
    said = capsys.readouterr().err
    (saved,) = elsewhere.rglob("x.safetensors")
    assert f"The network is saved as {saved} instead" in said
    assert tg.load(saved).relative_error < 1e-6
