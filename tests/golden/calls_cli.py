"""Commands."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from .reading import read_numbers
from .registry import SMALL, golden, noisy, seen

# -- command line --------------------------------------------------------------------------------------

# What differs from run to run, or says where the code lies.
CHANGING = ("seconds", "version", "device", "file_bytes")


def cli(*arguments: str) -> tuple[int, str, str]:
    """Run a command line in this process: exit code, standard output, standard error."""
    from tensorgrow.cli import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    return code, out.getvalue(), err.getvalue()


def _document(*arguments: str) -> dict[str, Any]:
    code, out, err = cli(*arguments, "--json")
    if code:
        return {"exit_code": code, "message": err}
    return _without(json.loads(out))


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without(v) for k, v in value.items() if k not in CHANGING}
    return [_without(v) for v in value] if isinstance(value, list) else value


@golden("cli/decompose-show-reconstruct")
def _cli_decompose(folder: Path) -> dict[str, Any]:
    np.save(folder / "x.npy", noisy(SMALL))
    made = _document("decompose", "x.npy", "-e", "0.1", "--effort", "fast", "--report", "x.html", "--history")
    shown = _document("show", "x.safetensors")
    rebuilt = _document("reconstruct", "x.safetensors", "-o", "y.npy", "-p", "20")
    values = read_numbers(np.load(folder / "y.npy")[0, 0]) if (folder / "y.npy").exists() else []
    files = sorted(p.name for p in folder.iterdir())
    return {"decompose": made, "show": shown, "reconstruct": rebuilt, "values": values, "files": files}


@golden("cli/picture")
def _cli_picture(folder: Path) -> dict[str, Any]:
    from PIL import Image

    t = np.linspace(0, 1, 16)
    grey = 0.5 + 0.3 * np.sin(9 * t[:, None]) * np.cos(5 * t[None, :])
    Image.fromarray(np.rint(255 * np.stack([grey, 0.8 * grey, 1 - grey], 2)).astype(np.uint8)).save(
        "photo.png"
    )
    made = _document("decompose", "photo.png", "-e", "0.1", "--effort", "fast", "-o", "back.png")
    return {"decompose": made, "files": sorted(p.name for p in folder.iterdir())}


@golden("cli/complete")
def _cli_complete(folder: Path) -> dict[str, Any]:
    np.save(folder / "x.npy", noisy(SMALL))
    made = _document("complete", "x.npy", "--observed", "0.8", "--effort", "fast")
    return {"complete": made, "files": sorted(p.name for p in folder.iterdir())}


@golden("cli/fit")
def _cli_fit(folder: Path) -> dict[str, Any]:
    np.save(folder / "x.npy", noisy(SMALL))
    np.save(folder / "mask.npy", seen(SMALL.dims, 0.8))
    return {
        "dense": _document("fit", "x.npy", "-s", "ring", "--rank", "2"),
        "masked": _document("fit", "x.npy", "-s", "train", "--rank", "2,3", "--mask", "mask.npy"),
        "from_file": _document("fit", "x.npy", "-s", "x.safetensors", "-o", "again.safetensors"),
    }


@golden("cli/compare")
def _cli_compare(folder: Path) -> dict[str, Any]:
    np.save(folder / "x.npy", noisy(SMALL))
    return _document("compare", "x.npy", "-e", "0.2", "--effort", "fast", "--quiet")


@golden("cli/checkpoint")
def _cli_checkpoint(folder: Path) -> dict[str, Any]:
    np.save(folder / "x.npy", noisy(SMALL))
    line = ("decompose", "x.npy", "-e", "0.1", "--effort", "fast", "--checkpoint", "run.ckpt")
    return {"first": _document(*line), "second": _document(*line)}


@golden("cli/help")
def _cli_help(folder: Path) -> dict[str, Any]:
    code, out, _ = cli("--help")
    return {"exit_code_of_help": code, "commands": [c for c in _COMMANDS if c in out]}


_COMMANDS = (
    "demo decompose complete fit reconstruct show compare report reproduce version".split()  # noqa: SIM905
)
