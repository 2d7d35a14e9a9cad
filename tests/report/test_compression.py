from __future__ import annotations

import pytest
import torch
from torch import nn

import tensorgrow as tg
from tests.browser import chromium
from tests.nn.compression.models import FAST, small


@pytest.fixture(scope="module")
def result() -> tg.nn.CompressResult:
    model = small()
    model.add_module("<b>&amp;", nn.Linear(5, 5))
    options = {**FAST, "measure": True, "layers": ["0", "2"]}
    return tg.nn.compress(model, max_ratio=0.3, calibration=torch.randn(64, 64), **options)


def test_the_page_shows_every_layer(result, tmp_path):
    path = result.report(tmp_path / "page.html", title="<script>alert(1)</script>")
    text = path.read_text(encoding="utf-8")
    assert "<script" not in text  # nothing runs, and titles are text
    assert text.count("<figure>") == sum(r.structure is not None for r in result.layers) > 0
    for layer in result.layers:
        assert f"{layer.parameters_before:,} → {layer.parameters_after:,}" in text
        assert f"{layer.relative_error:.3g}" in text
    assert "page.safetensors" in text
    with pytest.raises(FileNotFoundError, match="folder"):
        result.report(tmp_path / "missing" / "page.html")


def test_layers_that_were_left_are_named(tmp_path):
    torch.manual_seed(0)
    model = nn.ModuleDict({"a<b": nn.Linear(64, 64), "small": nn.Linear(4, 4)})
    found = tg.nn.compress(model, max_ratio=0.9, **{**FAST, "max_seconds": 0.0})
    text = found.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Left as they are" in text and "fewer than min_size" in text
    assert "a&lt;b" in text and "a<b" not in text


def test_a_browser_shows_it_without_complaints(result, tmp_path):
    path = result.report(tmp_path / "page.html")
    with chromium(tmp_path / "profile") as browser:
        for width in (1100, 390):
            browser.open(path, width=width)
            assert browser.problems() == []
            assert browser.requests() == []
            assert browser.run("return document.querySelectorAll('#layers tbody tr').length") == 2
            wide = browser.run("return document.documentElement.scrollWidth")
            assert wide <= width
