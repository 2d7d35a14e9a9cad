"""The site of the documentation, where the extra `docs` is installed: whole without a connection."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for package in ("sphinx", "furo", "myst_parser", "sphinx_gallery", "sphinx_copybutton", "latex2mathml"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("site")
    # Without running the examples, which have tests of their own; `make docs` also refuses warnings.
    command = [sys.executable, "-m", "sphinx", "-q", "-D", "plot_gallery=0", DOCS, folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder


def test_no_page_fetches_anything(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r"<(?:script|img|iframe|source)[^>]*\ssrc=\"(https?:[^\"]*)", text)
        fetched += re.findall(r"<link[^>]*rel=\"stylesheet\"[^>]*href=\"(https?:[^\"]*)", text)
        assert fetched == [], page.name


def test_formulas_are_drawn_by_the_browser_alone(site):
    for page in ("structures.html", "generated/tensorgrow.TensorNetwork.html"):
        text = (site / page).read_text(encoding="utf-8")
        assert '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">' in text
        assert "mathjax.js" not in text


def test_code_has_copy_buttons_and_the_home_page_a_picture_and_three_cards(site):
    home = (site / "index.html").read_text(encoding="utf-8")
    assert "copybutton.js" in home
    assert home.count('<div class="card">') == 3
    assert 'src="_images/growth_steps.webp"' in home
