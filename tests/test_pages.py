"""Numbers on pages are those of the results they name."""

from __future__ import annotations

import json

import pytest
from benchmarks import pages

DOCUMENT = {
    "environments": [],
    "summary": {"best": {"sizes": [3, 5]}},
    "cases": {
        "a/seed0": {"size": 1000, "error": 0.1, "exact": True},
        "a/seed1": {"size": 3000, "error": 0.3, "exact": False},
        "a/seed2": {"failed": "not today"},
        "b": {"size": 12345, "deep": {"error": 0.0902}},
    },
}


@pytest.fixture
def results(tmp_path, monkeypatch):
    (tmp_path / "r.json").write_text(json.dumps(DOCUMENT))
    monkeypatch.setattr(pages, "results_file", lambda name: tmp_path / f"{name}.json")
    pages._read.cache_clear()
    yield
    pages._read.cache_clear()


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("r ; b ; size ; ,", "12,345"),
        ("r ; b ; deep.error ; .2%", "9.02%"),
        ("r ; a/seed* ; mean size ; ,.0f", "2,000"),
        ("r ; a/seed* ; max error ; .1f", "0.3"),
        ("r ; a/seed* ; count ; d", "2"),
        ("r ; a/seed* ; share exact ; .0%", "50%"),
        ("r ; summary ; best.sizes.1 ; d", "5"),
    ],
)
def test_numbers_are_filled_in(results, question, answer):
    page = f"before <!--= {question} -->?<!--/--> after"
    filled = pages.fill(page)
    assert filled == f"before <!--= {question} -->{answer}<!--/--> after"
    assert pages.fill(filled) == filled


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        ("r ; c ; size ; ,", "no row 'c'"),
        ("r ; b ; error ; ,", "no 'error'"),
        ("r ; a/seed* ; size ; ,", "2 rows"),
        ("r ; b ; size", "is not: file"),
        ("s ; b ; size ; ,", "no results of 's'"),
        ("r ; summary ; worst ; d", "no 'worst'"),
    ],
)
def test_what_the_results_do_not_have_is_an_error(results, question, complaint):
    with pytest.raises(pages.PageError, match=complaint):
        pages.fill(f"<!--= {question} -->1<!--/-->")


@pytest.mark.parametrize("path", pages.pages(), ids=lambda p: p.name)
def test_pages_say_what_the_results_say(path):
    text = path.read_text(encoding="utf-8")
    assert pages.fill(text) == text, "run `make pages`"


@pytest.mark.skipif(not (pages.ROOT / ".git").exists(), reason="needs the repository")
def test_rows_name_commits_that_exist():
    assert pages.unknown_commits() == {}
