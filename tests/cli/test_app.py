from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.cli import run
from tests.cli.conftest import call, document, environment

pytest.importorskip("typer")


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
