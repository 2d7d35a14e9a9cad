from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensorgrow.data.tensorization import Tensorization
from tests.cli.conftest import document

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
