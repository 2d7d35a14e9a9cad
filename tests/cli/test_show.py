from __future__ import annotations

import pytest

from tests.cli.conftest import HIDDEN, call, document

pytest.importorskip("typer")


def test_show(capsys, tensor):
    call(capsys, "decompose", "x.npy", "-e", "1e-6")
    text = call(capsys, "show", "x.safetensors")
    assert "0-1:2" in text and "TARGET_REACHED" in text and "x.npy" in text
    assert document(capsys, "show", "x.safetensors")["num_parameters"] == HIDDEN.num_parameters
