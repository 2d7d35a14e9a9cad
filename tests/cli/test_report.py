from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import call, document

pytest.importorskip("typer")


def test_reports(capsys, photo):
    call(capsys, "decompose", "photo.png", "-e", "0.2", "--effort", "fast", "--report", "a.html")
    assert "photo.png" in Path("a.html").read_text(encoding="utf-8")
    assert "report: b.html" in call(capsys, "report", "photo.safetensors", "-o", "b.html")
    assert document(capsys, "report", "photo.safetensors", "-o", "c.html") == {
        "schema": "tensorgrow.page/1",
        "command": "report",
        "network": "photo.safetensors",
        "file": "c.html",
    }
    assert Path("c.html").stat().st_size == Path("b.html").stat().st_size
    assert Path("b.html").stat().st_size > 10_000
    for page in ("a.html", "b.html"):  # both tell to load the file that was written
        assert "photo.safetensors" in Path(page).read_text(encoding="utf-8")
        assert f"{page[0]}.safetensors" not in Path(page).read_text(encoding="utf-8")
