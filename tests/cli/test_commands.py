"""Every command on good input: files, tables, JSON, round trips, Ctrl-C."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.cli import run
from tensorgrow.data.tensorization import Tensorization

pytest.importorskip("typer")
pillow = pytest.importorskip("PIL.Image")

COMMANDS = (
    "demo",
    "decompose",
    "complete",
    "fit",
    "reconstruct",
    "show",
    "compare",
    "report",
    "reproduce",
    "version",
)
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
    pillow.fromarray(picture(32, True)).save(folder / "photo.png")
    return picture(32, True) / 255.0


def call(capsys, *arguments: str, code: int = 0) -> str:
    capsys.readouterr()
    found = run([*map(str, arguments)])
    written = capsys.readouterr()
    assert found == code, written.err
    return written.out


def document(capsys, *arguments: str) -> dict:
    return json.loads(call(capsys, *arguments, "--json"))


@pytest.mark.parametrize("command", [None, *COMMANDS])
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help(capsys, command, flag):
    text = call(capsys, *([] if command is None else [command]), flag)
    assert "Usage: tensorgrow" in text
    assert command is not None or all(name in text for name in COMMANDS)


def test_no_arguments_show_the_help(capsys):
    run([])
    written = capsys.readouterr()
    assert "Usage: tensorgrow" in written.out + written.err


def test_version(capsys):
    assert f"tensorgrow {tg.__version__}" in call(capsys, "version")
    assert document(capsys, "version")["tensorgrow"] == tg.__version__


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


JSON_FIELDS = {
    "schema": str,
    "command": str,
    "version": str,
    "input": str,
    "source": dict,
    "shape": list,
    "tensorization": dict,
    "num_parameters": int,
    "compression_ratio": float,
    "relative_error": float,
    "validation_error": float | None,
    "test_error": float | None,
    "array_error": float | None,
    "psnr": float | None,
    "observed": int | None,
    "structure": dict,
    "steps": int,
    "stop": dict,
    "seconds": float | None,
    "seed": int,
    "device": str,
    "files": list,
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
    found = document(capsys, *arguments)
    assert list(found) == list(JSON_FIELDS)
    for name, kind in JSON_FIELDS.items():
        assert isinstance(found[name], kind), name
    assert found["schema"] == "tensorgrow.result/1"
    assert found["shape"] == [32, 32, 3]
    assert Tensorization.from_dict(found["tensorization"]).shape == (32, 32, 3)
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    for name in JSON_FIELDS:
        assert f"`{name}`" in page, f"{name} is not documented"


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
    assert torch.equal(result.to_array(), torch.from_numpy(expected))
    assert np.array_equal(np.asarray(pillow.open("c.png")), np.rint(255 * expected.clip(0, 1)))
    assert np.linalg.norm(expected - photo) <= 0.2 * np.linalg.norm(photo) * (1 + 1e-9)


def test_padding_is_cut_off_again(capsys, folder):
    x = np.random.default_rng(0).random((11, 7)) + 3.0
    np.save("x.npy", x)
    outputs = ("-o", "n.safetensors", "-o", "y.npy")
    found = document(capsys, "decompose", "x.npy", "-t", "3x4,2x4", "-e", "0.3", *outputs)
    y = np.load("y.npy")
    assert y.shape == x.shape
    assert found["array_error"] == pytest.approx(np.linalg.norm(x - y) / np.linalg.norm(x))


def test_smaller_networks_on_the_way(capsys, tensor):
    call(capsys, "decompose", "x.npy", "-e", "1e-6")
    found = document(capsys, "reconstruct", "x.safetensors", "--max-error", "0.5", "-o", "y.npy")
    assert found["num_parameters"] < HIDDEN.num_parameters
    assert np.linalg.norm(np.load("y.npy") - tensor) <= 0.5 * np.linalg.norm(tensor) * (1 + 1e-6)


def test_a_bare_network_can_be_shown_and_reconstructed(capsys, folder):
    network = tg.TensorNetwork.random(HIDDEN, random_state=0)
    network.save("n.safetensors")
    call(capsys, "reconstruct", "n.safetensors", "-o", "x.npy")
    assert np.array_equal(np.load("x.npy"), network.to_dense().numpy())
    assert document(capsys, "show", "n.safetensors")["relative_error"] is None
    assert f"{HIDDEN.num_parameters}" in call(capsys, "show", "n.safetensors")


def test_show(capsys, tensor):
    call(capsys, "decompose", "x.npy", "-e", "1e-6")
    text = call(capsys, "show", "x.safetensors")
    assert "0-1:2" in text and "TARGET_REACHED" in text and "x.npy" in text
    assert document(capsys, "show", "x.safetensors")["num_parameters"] == HIDDEN.num_parameters


def test_complete_hides_entries_and_says_how_well_they_were_found(capsys, photo):
    options = ("--observed", "0.6", "--seed", "3", "--effort", "fast")
    found = document(capsys, "complete", "photo.png", *options)
    known = np.random.default_rng(3).random(photo.shape) < 0.6
    assert found["observed"] == known.sum()
    assert found["files"] == ["photo.safetensors", "photo-completed.png"]
    completed = np.asarray(pillow.open("photo-completed.png")) / 255.0
    assert np.array_equal(completed[known], photo[known])  # what was known is kept
    estimate = tg.load("photo.safetensors").to_array().numpy()
    hidden = ~known
    error = np.linalg.norm((estimate - photo)[hidden]) / np.linalg.norm(photo[hidden])
    assert found["test_error"] == pytest.approx(error)
    assert error < 0.2
    text = call(
        capsys, "complete", "photo.png", *options, "--max-seconds", "1", "--predict-all", "-o", "p.png"
    )
    assert "hidden entries" in text and "PSNR" in text


@pytest.mark.parametrize(("given", "completed"), [("jpg", "png"), ("webp", "png"), ("tiff", "tiff")])
def test_what_is_known_is_written_as_it_was(capsys, photo, given, completed):
    """JPEG would change what is known."""
    pillow.open("photo.png").save(f"p.{given}")
    before = np.asarray(pillow.open(f"p.{given}"))
    found = document(capsys, "complete", f"p.{given}", "--observed", "0.5", "--max-seconds", "0.2")
    assert found["files"] == ["p.safetensors", f"p-completed.{completed}"]
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


def test_a_grey_mask_serves_all_colours(capsys, photo):
    known = np.random.default_rng(0).random(photo.shape[:2]) < 0.7
    pillow.fromarray(np.where(known, 255, 0).astype(np.uint8)).save("mask.png")
    found = document(capsys, "complete", "photo.png", "--mask", "mask.png", "--max-seconds", "1")
    assert found["observed"] == 3 * known.sum()


@pytest.mark.parametrize("structure", ["train", "ring", "tucker", "tree"])
def test_fit(capsys, tensor, structure):
    found = document(capsys, "fit", "x.npy", "--structure", structure, "--rank", "2")
    assert found["structure"]["dims"] == list(tensor.shape)
    if structure == "ring":
        assert found["relative_error"] < 1e-3
        again = document(capsys, "fit", "x.npy", "--structure", "x.safetensors", "-o", "y.safetensors")
        assert again["structure"] == found["structure"]


def test_fit_to_known_entries(capsys, tensor):
    found = document(capsys, "fit", "x.npy", "-s", "ring", "--rank", "2", "--observed", "0.8")
    assert found["test_error"] < 1e-2


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


def test_checkpoints_are_gone_on_with(capsys, tensor):
    first = document(capsys, "decompose", "x.npy", "-e", "1e-6", "--checkpoint", "run.safetensors")
    assert first["checkpoint"] == "run.safetensors"
    again = document(capsys, "decompose", "x.npy", "-e", "1e-6", "--checkpoint", "run.safetensors")
    assert again["structure"] == first["structure"]
    assert again["relative_error"] == first["relative_error"]


def test_other_files(capsys, tensor):
    np.savez("two.npz", a=tensor, b=tensor[0])
    found = document(capsys, "decompose", "two.npz", "--key", "a", "-e", "1e-6")
    assert found["num_parameters"] == HIDDEN.num_parameters
    assert found["source"]["key"] == "a"


def test_names_with_brackets_are_shown_as_they_are(capsys, tensor):
    """Rich takes brackets for its markup."""
    Path("run[1]").mkdir()
    np.savez("run[1]/x[a].npz", t=tensor)
    text = call(capsys, "decompose", "run[1]/x[a].npz", "-e", "0.9", "-o", "run[1]/n[b].safetensors")
    assert "x[a].npz [t], 4x5x6x3" in text and "run[1]/n[b].safetensors" in text
    text = call(capsys, "show", "run[1]/n[b].safetensors")
    assert "x[a].npz [t]" in text and "run[1]/n[b].safetensors" in text
    assert "run[1]/y[c].npy" in call(
        capsys, "reconstruct", "run[1]/n[b].safetensors", "-o", "run[1]/y[c].npy"
    )
    assert "p[d].html" in call(capsys, "report", "run[1]/n[b].safetensors", "-o", "p[d].html")


@pytest.mark.parametrize("size", [1e300, 1e-300])
def test_sizes_whose_squares_have_no_room(capsys, tensor, size):
    np.save("x.npy", size * tensor)
    found = document(capsys, "decompose", "x.npy", "-e", "0.3", "-o", "y.npy")
    error = np.linalg.norm(np.load("y.npy") / size - tensor) / np.linalg.norm(tensor)
    assert found["array_error"] == pytest.approx(error)
    assert found["array_error"] == pytest.approx(found["relative_error"])


def test_a_network_larger_than_the_data_is_called_so(capsys, folder):
    np.save("x.npy", np.random.default_rng(0).standard_normal((4, 4, 4)))
    assert "x larger than the data" in call(capsys, "decompose", "x.npy", "-e", "1e-9")


def test_fit_takes_nan_for_missing(capsys, tensor):
    known = np.random.default_rng(0).random(tensor.shape) < 0.8
    np.save("nan.npy", np.where(known, tensor, np.nan))
    found = document(capsys, "fit", "nan.npy", "-s", "ring", "--rank", "2", "-o", "y.npy")
    assert found["observed"] == known.sum()
    assert np.linalg.norm(np.load("y.npy") - tensor) < 1e-2 * np.linalg.norm(tensor)


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


def test_compare(capsys, tensor):
    pytest.importorskip("tensorly")
    found = document(capsys, "compare", "x.npy", "-e", "0.2", "-q")
    rows = {row["method"]: row for row in found["methods"]}
    assert {"tensorgrow", "TT-SVD, stored order", "Tucker", "CP"} <= set(rows)
    assert all(row["reached"] == (row["relative_error"] <= 0.2 * (1 + 1e-9)) for row in rows.values())
    assert rows["tensorgrow"]["num_parameters"] <= rows["TT-SVD, stored order"]["num_parameters"]
    assert "times ours" in call(capsys, "compare", "x.npy", "-e", "0.2", "-q")


def test_compare_vectors(capsys, folder):
    """CP is for tensors, but a vector is no reason to fail."""
    np.save("v.npy", np.random.default_rng(0).random(7))
    found = document(capsys, "compare", "v.npy", "-t", "none", "-q")
    assert [row["num_parameters"] for row in found["methods"]] == [7, 7, 8]


def test_reports(capsys, photo):
    call(capsys, "decompose", "photo.png", "-e", "0.2", "--effort", "fast", "--report", "a.html")
    assert "photo.png" in Path("a.html").read_text(encoding="utf-8")
    assert "report: b.html" in call(capsys, "report", "photo.safetensors", "-o", "b.html")
    assert Path("b.html").stat().st_size > 10_000
    for page in ("a.html", "b.html"):  # both tell to load the file that was written
        assert "photo.safetensors" in Path(page).read_text(encoding="utf-8")
        assert f"{page[0]}.safetensors" not in Path(page).read_text(encoding="utf-8")


def test_demo(capsys, folder):
    pytest.importorskip("matplotlib")
    text = call(capsys, "demo", "--max-error", "0.5", "-q")
    assert text.rstrip().endswith("report: out/demo.html")
    assert {p.name for p in (folder / "out").iterdir()} == {"demo.html", "demo.safetensors", "demo.png"}


# -- as a process of its own ---------------------------------------------------------------------------


def environment(**more: str) -> dict[str, str]:
    source = str(Path(tg.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", **more}


def test_shell_completion():
    env = environment(_TENSORGROW_COMPLETE="complete_bash", COMP_WORDS="tensorgrow deco", COMP_CWORD="1")
    command = [sys.executable, "-m", "tensorgrow.cli"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["decompose"]


def test_ctrl_c_before_there_is_anything(capsys, tensor, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("tensorgrow.cli.decompose.decompose", interrupted)
    assert run(["decompose", "x.npy"]) == 130
    assert capsys.readouterr().err == "error: interrupted; what is not written yet is lost\n"
    assert not Path("x.safetensors").exists()


@pytest.mark.parametrize("late", [False, True])
def test_ctrl_c_ends_a_comparison_with_what_was_found(capsys, tensor, monkeypatch, late):
    from tensorgrow.cli import compare

    def stopped(*arguments, **options):
        found = tg.decompose(*arguments, **options)
        return found if late else dataclasses.replace(found, stop=tg.StopReason.INTERRUPTED)

    def rival(name, *_, **__):
        if name == "Tucker":
            raise KeyboardInterrupt
        return None

    monkeypatch.setattr(compare, "decompose", stopped)
    monkeypatch.setattr(compare, "run_rival", rival)
    assert run(["compare", "x.npy", "-q", "--json"]) == 130
    written = capsys.readouterr()
    assert [row["method"] for row in json.loads(written.out)["methods"]] == ["tensorgrow"]
    assert written.err == "error: interrupted; this is what was found until then\n"


def test_ctrl_c_within_evaluated_code_still_ends_with_130(tensor):
    """CPython remembers such an interrupt and would end `python -m` by the signal itself."""
    Path("interrupted.py").write_text(
        "import tensorgrow.cli, tensorgrow.cli.decompose as command\n"
        "def stop(*_, **__): raise KeyboardInterrupt\n"
        "command.decompose = lambda *_, **__: eval('stop()', {'stop': stop})\n"
        "tensorgrow.cli.main()\n"
    )
    command = [sys.executable, "-m", "interrupted", "decompose", "x.npy"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 130
    assert done.stderr == "error: interrupted; what is not written yet is lost\n"


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
    assert err.startswith("interrupted: the best network so far is kept (n.safetensors, y.npy)")
    result = tg.load("n.safetensors")
    assert result.num_parameters == found["num_parameters"]
    assert np.array_equal(np.load("y.npy"), result.to_array().numpy())
