from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.cli import run
from tensorgrow.cli.reproduce import EXPERIMENTS as NAMED
from tensorgrow.experiments import EXPERIMENTS
from tests.cli.conftest import call, document, environment
from tests.cli.terminal import run_in_terminal

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


def test_no_arguments_show_the_help(capsys, folder):
    assert "Start with: tensorgrow demo" in call(capsys)
    screen = run_in_terminal(folder=folder)
    assert screen.code == 0 and "Start with: tensorgrow demo" in screen.text
    assert "error:" not in screen.text and "─ Error" not in screen.text


def test_version(capsys):
    assert call(capsys, "--version") == f"tensorgrow {tg.__version__}\n"
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


def python(code: str, **more: str) -> str:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment(**more), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("line", ["--help", "--version", "decompose --help", "reproduce --help"])
def test_help_needs_no_torch(line):
    """Torch takes seconds to import; help, version and completion of the shell must not wait for it."""
    code = f"from tensorgrow.cli import run; assert run({line.split()}) == 0; import sys; print(*sys.modules)"
    assert not {"torch", "numpy"} & set(python(code).split())


def test_completion_needs_no_torch():
    code = """
import sys
from tensorgrow.cli import run
try:
    run([])
except SystemExit:
    print(*sys.modules)
"""
    line = {"COMP_WORDS": "tensorgrow decompose --max-", "COMP_CWORD": "2"}
    words = python(code, _TENSORGROW_COMPLETE="complete_bash", **line).split()
    assert "--max-error" in words and not {"torch", "numpy"} & set(words)


@pytest.mark.parametrize("arguments", ["show x.safetensors", "show x.safetensors --json", "--help"])
def test_nobody_reads_on(tensor, arguments):
    """As in `tensorgrow show x.safetensors | head -1`: no error, and nothing on standard error."""
    tg.TensorNetwork.random(tg.Structure.tensor_train((2,) * 30, 2), random_state=0).save("x.safetensors")
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "tensorgrow", *arguments.split()]
    done = subprocess.run(command, env=environment(), stdout=writer, stderr=subprocess.PIPE, timeout=120)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_experiments_are_named_in_the_help():
    assert list(NAMED) == list(EXPERIMENTS)


def test_ctrl_c_before_there_is_anything(capsys, tensor, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("tensorgrow.tasks.decompose.decompose", interrupted)
    assert run(["decompose", "x.npy"]) == 130
    assert capsys.readouterr().err == "error: interrupted; what is not written yet is lost\n"
    assert not Path("x.safetensors").exists()


def test_ctrl_c_within_evaluated_code_still_ends_with_130(tensor):
    """CPython remembers such an interrupt and would end `python -m` by the signal itself."""
    Path("interrupted.py").write_text(
        "import tensorgrow.cli, tensorgrow.tasks.decompose as command\n"
        "def stop(*_, **__): raise KeyboardInterrupt\n"
        "command.decompose = lambda *_, **__: eval('stop()', {'stop': stop})\n"
        "tensorgrow.cli.main()\n"
    )
    command = [sys.executable, "-m", "interrupted", "decompose", "x.npy"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 130
    assert done.stderr == "error: interrupted; what is not written yet is lost\n"
