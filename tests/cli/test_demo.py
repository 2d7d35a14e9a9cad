from __future__ import annotations

import pytest

from tests.cli.conftest import call

pytest.importorskip("typer")


def test_demo(capsys, folder):
    pytest.importorskip("matplotlib")
    text = call(capsys, "demo", "--max-error", "0.5", "-q")
    assert text.rstrip().endswith("report: out/demo.html")
    assert {p.name for p in (folder / "out").iterdir()} == {"demo.html", "demo.safetensors", "demo.png"}
