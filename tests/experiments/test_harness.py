"""Cases are run once, stored and resumed."""

from __future__ import annotations

import json
import math
import multiprocessing
import time

import pytest
import torch

from tensorgrow.errors import DataError
from tensorgrow.experiments.experiment import Experiment, Report, Settings, run_experiment
from tensorgrow.experiments.harness import (
    Case,
    Results,
    describe_row,
    is_stale,
    limit_threads,
    run_cases,
    sample_of,
    stale_cases,
    stale_groups,
    table,
    tidy,
)
from tensorgrow.experiments.provenance import COMMIT_VARIABLE, modules_hash, source_hash
from tests.warm import forks


def test_finished_cases_are_not_run_again(tmp_path):
    calls = []

    def work(case):
        n = case.params["n"]
        calls.append(n)
        if n == 2 and len(calls) < 4:
            raise ValueError("not today")
        return {"value": n / 3}

    cases = [Case(f"part/{n}", {"n": n}) for n in range(3)]
    run_cases(Results(tmp_path / "r.json"), cases, work)
    assert calls == [0, 1, 2]
    results = Results(tmp_path / "r.json")
    assert results.failures("part/") == 1
    assert "not today" in results.cases["part/2"]["failed"]
    run_cases(results, cases, work)
    assert calls == [0, 1, 2, 2]  # what failed is tried again
    assert results.failures("part/") == 0
    cases[0] = Case("part/0", {"n": 7})
    run_cases(Results(tmp_path / "r.json"), cases, work)
    assert calls[-1] == 7  # other parameters, another measurement
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["cases"]["part/0"]["value"] == tidy(7 / 3)
    assert len(document["environments"]) == 1
    run_cases(Results(tmp_path / "r.json", forget=("part/1",)), cases, work)
    assert calls[-1] == 1


def test_a_raised_time_limit_redoes_only_what_ended_there():
    case = Case("a", {"n": 1, "max_seconds": 9.0})
    row = {"params": {"n": 1, "max_seconds": 3.0}, "hit_limit": False}
    assert case.is_done(row)
    assert not case.is_done({**row, "hit_limit": True})
    assert not case.is_done(None)


def test_tables():
    assert table(["a", "b"], [[1, 0.123456], [None, "x"]]).splitlines()[2:] == ["| 1 | 0.1235 |", "| - | x |"]


def test_threads_of_a_case_are_set_and_recorded(tmp_path):
    before = torch.get_num_threads()
    results = Results(tmp_path / "r.json", threads=1)
    cases = [Case("a", {}), Case("b", {}, threads=2)]
    run_cases(results, cases, lambda case: {"threads": torch.get_num_threads()})
    assert torch.get_num_threads() == before
    assert [results.cases[k]["threads"] for k in "ab"] == [1, 2]
    places = results.document["environments"]
    assert [places[results.cases[k]["environment"]]["threads"] for k in "ab"] == [1, 2]
    with limit_threads(None):
        assert torch.get_num_threads() == before


def root_of(case):
    return {"root": math.sqrt(case.params["n"])}


def test_cases_run_in_processes_but_for_those_that_are_timed(tmp_path, monkeypatch):
    quick = forks()
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: quick)
    results = Results(tmp_path / "r.json", jobs=2)
    run_cases(
        results, [Case("p/0", {"n": 4}), Case("p/1", {"n": -1}), Case("t", {"n": 9}, alone=True)], root_of
    )
    assert (results.cases["p/0"]["root"], results.cases["t"]["root"]) == (2.0, 3.0)
    assert "ValueError" in results.cases["p/1"]["failed"]
    places = results.document["environments"]
    assert [places[results.cases[k]["environment"]]["jobs"] for k in ("p/0", "t")] == [2, 1]


def test_no_case_is_started_after_the_deadline(tmp_path):
    said = []
    results = Results(tmp_path / "r.json", say=said.append)
    run_cases(results, [Case("a", {"n": 1})], root_of, deadline=time.perf_counter() - 1.0)
    assert not results.cases
    assert said == ["the time is spent; 1 cases are left for the next run"]


def test_rows_of_another_machine_are_added_with_where_they_come_from(tmp_path):
    here, there = Results(tmp_path / "here.json"), Results(tmp_path / "there.json", jobs=3)
    here.put(Case("a/0", {}), {"error": 1.0})
    here.put(Case("a/1", {}), {"error": 1.0})
    there.put(Case("a/1", {}), {"error": 2.0})
    there.put(Case("a/2", {}), {"error": 3.0})
    there.put(Case("a/3", {}), {"failed": "no room"})
    assert here.add(there.path) == 2
    again = Results(here.path)
    assert {k: r["error"] for k, r in again.cases.items()} == {"a/0": 1.0, "a/1": 2.0, "a/2": 3.0}
    jobs = [again.document["environments"][r["environment"]]["jobs"] for r in again.cases.values()]
    assert jobs == [1, 3, 3]


def test_what_is_said_of_a_row(tmp_path):
    row = {"size": 12, "error": 0.123456, "reached": False, "seconds": 1.5, "hit_limit": True}
    assert describe_row(row) == "size 12, error 0.1235, 1.5 s, NOT REACHED, TIME LIMIT"
    assert describe_row({"skipped": "no package"}) == "no package"
    assert describe_row({}) == "done"
    assert describe_row({"cpu": {"seconds": 2.0}, "gpu": {"seconds": 1.0}}) == "cpu (2 s), gpu (1 s)"
    results = Results(tmp_path / "r.json")
    results.put(Case("a/b", {"n": 1}), row)
    results.put(Case("a/c", {"n": 2}), {"skipped": "no package"})
    assert list(results.finished("a/")) == ["a/b"]
    assert results.groups("n") == {(1,): [results.cases["a/b"]]}
    assert results.document["environments"][0]["tensorgrow_source"] == source_hash()


def test_rows_of_an_earlier_source_are_measured_again_and_no_others(tmp_path):
    calls = []

    def work(case):
        calls.append(case.key)
        if calls == ["stale/0", "stale/1"]:
            raise KeyboardInterrupt
        return {"value": 1}

    cases = [Case("fresh", {}), Case("rival", {}, uses=()), Case("stale/0", {}), Case("stale/1", {})]
    path = tmp_path / "r.json"
    run_cases(Results(path, uses=("structure",)), cases, lambda case: {"value": 0})
    document = json.loads(path.read_text())
    rows = document["cases"]
    assert (rows["fresh"]["uses"], rows["rival"]["uses"]) == (["structure"], [])
    assert not any(map(is_stale, rows.values()))
    rows["stale/0"]["modules"] = "0" * 12
    del rows["stale/1"]["modules"]  # as in files from before modules were noted
    path.write_text(json.dumps(document))
    said = []
    results = Results(path, uses=("structure",), say=said.append)
    assert "2 rows" in said[0] and "--refresh" in said[0]
    run_cases(results, cases, work)
    assert calls == []
    with pytest.raises(KeyboardInterrupt):
        run_cases(results, cases, work, refresh=True)
    run_cases(Results(path, uses=("structure",)), cases, work, refresh=True)
    assert calls == ["stale/0", "stale/1", "stale/1"]
    rows = json.loads(path.read_text())["cases"]
    assert not any(map(is_stale, rows.values()))
    assert [rows[c.key]["value"] for c in cases] == [0, 0, 1, 1]


def test_a_row_stays_where_its_case_fails_now(tmp_path):
    results = Results(tmp_path / "r.json", uses=("structure",))
    cases = [Case("a/0", {}), Case("a/1", {})]
    run_cases(results, cases, lambda case: {"value": 0})
    results.cases["a/0"]["modules"] = results.cases["a/1"]["modules"] = "0" * 12

    def work(case):
        if case.key == "a/0":
            raise ValueError("no package")
        return {"value": 1}

    said = []
    results.say = said.append
    run_cases(results, cases, work, refresh=True)
    assert [r["value"] for r in results.rows()] == [0, 1]
    assert [is_stale(r) for r in results.rows()] == [True, False]
    assert said[0] == "a/0: ValueError: no package, its earlier row stays"


def test_stale_rows_run_again_as_they_were_measured(tmp_path):
    results = Results(tmp_path / "r.json", uses=("structure",))
    for key, params in (("a/0", {"n": 1}), ("a/1", {"n": 2}), ("a/2", {"n": 3}), ("b/0", {"n": 4})):
        results.put(Case(key, params), {"value": 0})
    for key in ("a/0", "a/1", "b/0"):
        results.cases[key]["modules"] = "0" * 12
    results.cases["a/0"]["params"] = {"n": 1, "device": "cpu"}
    # Other options than then, a row that is fresh, one that options leave out, and one of another part.
    today = [Case("a/0", {"n": 10}, alone=True, threads=3), Case("a/2", {"n": 3}), Case("a/9", {})]
    found = stale_cases(results, today)
    assert found == [Case("a/0", {"n": 1, "device": "cpu"}, alone=True, threads=3), Case("a/1", {"n": 2})]
    results.cases["a/1"]["params"]["device"] = "cuda"
    assert len(stale_cases(results, today)) == (2 if torch.cuda.is_available() else 1)
    del results.cases["a/1"]["params"]["device"]
    results.cases["a/1"]["cuda_seconds"] = 0.1  # a row of both, which would lose what the GPU took
    assert len(stale_cases(results, today)) == (2 if torch.cuda.is_available() else 1)


OLD = "0" * 12


@pytest.fixture
def twenty(tmp_path, monkeypatch):
    """An experiment of twenty cases with rows of an earlier source, and how often its work has run."""
    monkeypatch.setenv(COMMIT_VARIABLE, "f" * 40)
    cases = [Case(f"a/{n}", {"n": n}) for n in range(20)]
    results = Results(tmp_path / "r.json", uses=("structure",))
    for case in cases:
        results.put(case, {"size": case.params["n"], "seconds": 1.0})
        results.cases[case.key]["modules"] = OLD
    results.write()
    return tmp_path / "r.json", cases


def confirm(path, cases, work):
    trial = Experiment("trial", "", lambda s: cases, work, lambda r: Report("trial"), uses=("structure",))
    return run_experiment(trial, Settings(), path, confirm=True)[0]


def test_rows_hold_where_a_sample_comes_out_the_same(twenty):
    path, cases = twenty
    done = []

    def work(case, settings):
        done.append(case.key)
        return {"size": case.params["n"], "seconds": 2.0}

    results = confirm(path, cases, work)
    assert sorted(done) == [c.key for c in sample_of(cases)]
    assert len(done) == 5
    for key, row in results.cases.items():
        assert not is_stale(row)
        if key in done:
            assert "confirmed" not in row
            assert row["seconds"] == 2.0
        else:
            assert row["modules"] == OLD
            assert row["confirmed"] == {
                "modules": modules_hash(("structure",)),
                "commit": "f" * 40,
                "checked": 5,
                "of": 20,
            }
    results.cases["a/0"]["confirmed"] = {"modules": "1" * 12}
    results.cases["a/0"]["modules"] = OLD
    assert is_stale(results.cases["a/0"])  # since the source that it was confirmed for, there was another


def test_rows_do_not_hold_where_one_of_a_sample_differs(twenty):
    path, cases = twenty
    other = sample_of(cases)[1].params["n"]
    results = confirm(path, cases, lambda case, s: {"size": case.params["n"] + (case.params["n"] == other)})
    stale = [k for k, r in results.cases.items() if is_stale(r)]
    assert len(stale) == 15
    assert results.cases[f"a/{other}"]["size"] == other + 1  # what was measured stays


def test_follow_ups_of_rows_that_come_out_otherwise_run_again(twenty):
    path, cases = twenty
    sizes = {"a/3": 30}
    done = []

    def work(case, settings):
        done.append(case.key)
        return {"size": sizes.get(case.key, case.params["n"])}

    def follow_up(results, first):
        found = [results.cases[c.key] for c in first[:5]]
        return [Case(f"b/{row['params']['n']}", {"n": row["size"]}) for row in found]

    trial = Experiment("trial", "", lambda s: cases, work, lambda r: Report("trial"), follow_up=follow_up)
    results = Results(path, uses=("structure",))
    for n in range(4):  # b/4 was never measured
        results.put(Case(f"b/{n}", {"n": n}), {"size": n})
    run_experiment(trial, Settings(), path, refresh=True)
    assert sorted(done) == sorted([*(c.key for c in cases), "b/3"])
    assert Results(path).cases["b/3"]["params"] == {"n": 30}


def test_what_fails_or_was_ended_by_the_clock_confirms_nothing(twenty, monkeypatch):
    path, cases = twenty

    def work(case, settings):
        raise ValueError("no package")

    results = confirm(path, cases, work)
    assert all(map(is_stale, results.cases.values()))
    results.cases["a/3"]["hit_limit"] = True
    results.cases["a/4"]["stop"] = "MAX_SECONDS"
    del results.cases["a/5"]["size"]
    results.cases["a/6"]["params"] = {"n": 6, "method": "another"}
    groups = stale_groups(results, cases)
    assert sorted(map(len, groups)) == [1, 16]
    monkeypatch.delenv(COMMIT_VARIABLE)
    with pytest.raises(DataError, match="commit the library's source first"):
        confirm(path, cases, work)
