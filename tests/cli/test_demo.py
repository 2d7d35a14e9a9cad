from __future__ import annotations

import pytest

from tests.cli.conftest import document

pytest.importorskip("typer")


def test_demo(capsys, folder):
    pytest.importorskip("matplotlib")
    printed = document(capsys, "demo", "--max-error", "0.5", "-q")  # test_terminal.py has the other form
    assert printed["files"] == ["out/demo.safetensors", "out/demo.png", "out/demo.html"]
    assert {p.name for p in (folder / "out").iterdir()} == {"demo.html", "demo.safetensors", "demo.png"}
