"""Numbers on pages are those of the results they name."""

from __future__ import annotations

import json

import pytest
from benchmarks import pages, registry

from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.provenance import modules_hash

DOCUMENT = {
    "environments": [
        {"cpu": "Abacus", "cores": 2, "threads": 1, "gpu": None, "tensorgrow_source": "0123456789ab"},
        {"cpu": "Loom", "cores": 4, "threads": 4, "gpu": "Jet", "commit": "abcdef123456"},
    ],
    "summary": {},
    "cases": {
        "a/seed0": {"size": 1000, "error": 0.1, "exact": True},
        "a/seed1": {"size": 3000, "error": 0.3, "exact": False},
        "a/seed2": {"failed": "not today"},
        "b": {"size": 12345, "deep": {"error": 0.0902}},
        "runs/cpu/0": {"params": {"seed": 0}, "environment": 0},
        "runs/cpu/1": {"params": {"seed": 1}, "environment": 1, "uses": [], "modules": modules_hash(())},
        "runs/cpu/2": {"params": {"seed": 2}, "environment": 1, "uses": [], "modules": "of old"},
        "runs/cuda/7": {"params": {}, "environment": 1, "uses": [], "modules": modules_hash(())},
    },
}

REPORT = Report(
    "r", summary={"best": {"sizes": [3, 5]}, "claims": [{"claim": "small, all", "measured": 0.12, "won": 2}]}
)
REPORT.tabulate(
    "Sizes; by name", ["name", "of", "size"], [["a", "x", 1000], ["a", "y", 2.5], ["b", "x", None]]
)
REPORT.say("Ours is ahead on 3 of 4; TT on none.")


@pytest.fixture
def results(tmp_path, monkeypatch):
    (tmp_path / "r.json").write_text(json.dumps(DOCUMENT))
    monkeypatch.setattr(pages, "results_file", lambda name: tmp_path / f"{name}.json")
    monkeypatch.setattr(pages, "_report", lambda name: REPORT)
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
        ("r ; summary ; claims.small, all.measured ; .0%", "12%"),
        ("cell r ; Sizes; by name ; a | x ; size ; ,", "1,000"),
        ("cell r ; Sizes; by name ; a ; sum size ; ,", "1,002.5"),
        ("cell r ; Sizes; by name ; * | x | * ; count ; d", "2"),
        ("cell r ; Sizes; by name ; b ; size ; s", "-"),
        ("says r ; Ours is", "Ours is ahead on 3 of 4; TT on none."),
        ("source r ; runs/cuda/*", "commit abcdef1; Jet; 1 row"),
        (
            "source r ; runs/cpu/[12] ; runs/cpu/0",
            "commit abcdef1 and source 0123456 (no commit noted); Abacus, 2 cores, 1 thread and Loom, 4 cores"
            ", 4 threads; seeds 0 to 2; 3 rows; 2 of 3 measured at an earlier source",
        ),
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
        ("source r ; runs/cpu/* ; c", "no row 'c'"),
        ("r ; b ; error ; ,", "no 'error'"),
        ("r ; a/seed* ; size ; ,", "2 rows"),
        ("r ; b ; size", "is not: file"),
        ("s ; b ; size ; ,", "no results of 's'"),
        ("r ; summary ; worst ; d", "no 'worst'"),
        ("r ; summary ; claims.large.measured ; d", "no 'claims.large.measured'"),
        ("cell r ; Sizes; by name ; a ; size ; ,", "2 rows"),
        ("cell r ; Sizes; by name ; c ; size ; ,", "no row 'c'"),
        ("cell r ; Sizes; by name ; a | x ; sizes ; ,", "no column 'sizes', but name, of, size"),
        ("cell r ; Sizes; by name ; b ; size ; d", "where a number is asked for"),
        ("cell r ; a ; size ; d", "is not: cell file"),
        ("says r ; Theirs", "0 paragraphs"),
    ],
)
def test_what_the_results_do_not_have_is_an_error(results, question, complaint):
    with pytest.raises(pages.PageError, match=complaint):
        pages.fill(f"<!--= {question} -->1<!--/-->")


def test_claims_that_were_not_met_are_told(monkeypatch):
    claims = [
        {"claim": "small", "limit": 9, "measured": 10, "cases": 3, "met": False},
        {"claim": "exact", "cases": 20, "won": 19, "met": True},
    ]
    report = Report("r", summary={"claims": claims})
    monkeypatch.setattr(pages, "_report", lambda name: report)
    text = pages.fill("<!--= claims r -->?<!--/-->")
    assert "| small | 9 | 10 | 3 | **not met** |\n| exact | 20 | 19 | 20 | met |" in text
    report.summary = None
    with pytest.raises(pages.PageError, match="makes no claims"):
        pages.fill(text)


@pytest.mark.parametrize("path", pages.pages(), ids=lambda p: p.name)
def test_pages_say_what_the_results_say(path):
    text = path.read_text(encoding="utf-8")
    assert pages.is_filled(text), "run `make pages`"


def test_a_change_of_the_library_leaves_a_page_right_and_one_of_the_results_does_not(results):
    page = pages.fill("<!--= source r ; runs/cpu/2 --><!--/-->")
    assert "; 1 of 1 measured at an earlier source" in page
    assert pages.is_filled(page.replace("; 1 of 1 measured at an earlier source", ""))
    assert not pages.is_filled(page.replace("seed 2", "seed 3"))


# A clone without the history knows no commit but the last.
@pytest.mark.skipif(
    registry.git("rev-parse", "--is-shallow-repository") != "false",
    reason="needs the history of the repository",
)
def test_rows_name_commits_that_exist():
    assert pages.unknown_commits() == {}
