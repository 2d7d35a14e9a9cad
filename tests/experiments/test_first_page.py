"""Numbers of README measured again, and rows of an earlier source listed by their reasons."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import first_page, registry
from benchmarks.__main__ import main
from benchmarks.benchmark import Benchmark

from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Case
from tensorgrow.experiments.provenance import modules_hash

from .test_benchmarks import FOLDERS


def test_every_number_with_new_rows_stands_beside_the_new_one():
    rows = {"hidden/a": {"exact": True}, "hidden/b": {"exact": False}, "e/cpu/seed0": {"error": 0.0912}}
    documents = {"speed": {"cases": rows, "summary": {"claims": [{"won": 3}]}}}
    asked = {
        "speed ; hidden/* ; sum exact ; d": "2",
        "speed ; e/cuda/seed* ; mean error ; .2%": "9.04%",
        "speed ; summary ; claims.0.won ; d": "4",
        "source speed ; *": "not a number",
        "other ; a ; size ; d": "7",  # no new results
        "speed ; none/* ; count ; d": "9",  # no new rows
    }
    page = ", ".join(f"<!--= {question} -->{shown}<!--/-->" for question, shown in asked.items())
    assert first_page.compare(page, documents) == [
        ["speed", "hidden/*", "sum exact", "2", "1"],
        ["speed", "e/cpu/seed*", "mean error", "9.04%", "9.12%"],
        ["speed", "summary", "claims.0.won", "4", "3"],
    ]


@pytest.mark.parametrize("step", first_page.STEPS, ids=lambda s: f"{s.name}-{s.part}")
def test_every_step_has_cases_and_an_hour_is_enough(step, tmp_path):
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
    benchmark = first_page.find_benchmark(step.name)
    parts = (step.part,) if step.part else benchmark.parts
    settings = benchmark.settings(data=tmp_path, parts=parts, options=step.options)
    cases = first_page.chosen(step, benchmark).cases(settings)
    assert 0 < len(cases) < 200
    assert sum(s.minutes for s in first_page.STEPS) <= 60


def test_a_step_measures_what_is_missing_and_what_is_of_an_earlier_source(tmp_path, monkeypatch, capsys):
    done: list[str] = []

    def work(case, settings):
        done.append(case.key)
        return {"seconds": 0.0}

    names = ("part/first", "part/second", "part/other")
    trial = Benchmark(
        "trial", "a trial", lambda s: [Case(n, {}) for n in names], work, lambda r: Report("trial")
    )
    monkeypatch.setattr(first_page, "find_benchmark", lambda name: trial)
    monkeypatch.setattr(first_page, "FOLDER", tmp_path)
    step = first_page.Step("trial", "", ("*/first", "*/second"), 1, "two of three", jobs=1)
    first_page.run(step, None, 60.0)
    assert done == ["part/first", "part/second"]
    first_page.run(step, None, 60.0)
    assert len(done) == 2
    path = tmp_path / "trial.json"
    path.write_text(path.read_text().replace(modules_hash(trial.uses), "of old", 1))
    first_page.run(step, None, 60.0)
    assert len(done) == 3


def test_stale_rows_are_told_by_benchmark_and_reason(tmp_path, monkeypatch, capsys):
    fresh = {"uses": [], "modules": modules_hash(()), "environment": 0}
    cases = {
        "a/1": fresh,
        "a/2": {**fresh, "modules": "of old"},
        "b/1": {**fresh, "modules": "of old", "environment": 1},
        "b/2": {"environment": 1},
        "b/3": {"environment": 1},
    }
    path = tmp_path / "scaling.json"
    path.write_text(json.dumps({"environments": [{"commit": "abcdef1234"}, {}], "cases": cases}))
    assert registry.stale_rows(path) == {
        "measured at abcdef1; its modules have changed": ["a/2"],
        "measured at a source that no commit has; its modules have changed": ["b/1"],
        "measured before rows named their modules": ["b/2", "b/3"],
    }
    assert registry.stale_rows(Path("nowhere.json")) == {}
    monkeypatch.setattr("benchmarks.__main__.results_file", lambda name: path)
    assert main(["scaling", "--stale"]) == 1
    assert capsys.readouterr().out.endswith("    b 2\n4 of 5 rows; --refresh measures them again\n")
    path.write_text(json.dumps({"environments": [{}], "cases": {"a/1": fresh}}))
    assert main(["scaling", "--stale"]) == 0
    assert capsys.readouterr().out == ""
