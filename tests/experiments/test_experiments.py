"""The experiments of the paper: cases, resuming, and what is reported."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.experiments import EXPERIMENTS, ablation, decomposition, demos, images, mnist, reproduce
from tensorgrow.experiments.experiment import (
    Settings,
    best_error,
    front,
    groups,
    mean_and_deviation,
    run_method,
)
from tensorgrow.experiments.harness import Case, Results, run_cases, table, tidy
from tensorgrow.experiments.high_order import target
from tensorgrow.experiments.targets import TARGETS, planted_tensor

SMALL = tg.Structure.tensor_train((4,) * 4, 2)


# -- the runner ----------------------------------------------------------------------------------------


def test_finished_cases_are_not_run_again(tmp_path):
    calls = []

    def worker(params):
        calls.append(params["n"])
        if params["n"] == 2 and len(calls) < 4:
            raise ValueError("not today")
        return {"value": params["n"] / 3}

    cases = [Case(f"part/{n}", {"n": n}) for n in range(3)]
    run_cases(Results(tmp_path / "r.json"), cases, worker)
    assert calls == [0, 1, 2]
    results = Results(tmp_path / "r.json")
    assert results.failures("part/") == 1
    assert "not today" in results.cases["part/2"]["failed"]
    run_cases(results, cases, worker)
    assert calls == [0, 1, 2, 2]  # what failed is tried again
    assert results.failures("part/") == 0
    cases[0] = Case("part/0", {"n": 7})
    run_cases(Results(tmp_path / "r.json"), cases, worker)
    assert calls[-1] == 7  # other parameters, another measurement
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["cases"]["part/0"]["value"] == tidy(7 / 3)
    assert len(document["environments"]) == 1
    run_cases(Results(tmp_path / "r.json", forget=("part/1",)), cases, worker)
    assert calls[-1] == 1


def test_a_raised_time_limit_redoes_only_what_ended_there():
    case = Case("a", {"n": 1, "max_seconds": 9.0})
    row = {"params": {"n": 1, "max_seconds": 3.0}, "hit_limit": False}
    assert case.is_done(row)
    assert not case.is_done({**row, "hit_limit": True})
    assert not case.is_done(None)


def test_tables():
    assert table(["a", "b"], [[1, 0.123456], [None, "x"]]).splitlines()[2:] == ["| 1 | 0.1235 |", "| - | x |"]


# -- numbers -------------------------------------------------------------------------------------------


def test_fronts_and_errors_at_a_size():
    row = {"curve": front([(30, 0.5), (10, 0.9), (20, 0.95), (40, 0.1), (40, 0.3)])}
    assert row["curve"] == [[10, 0.9], [30, 0.5], [40, 0.1]]
    assert best_error(row, 9) is None
    assert best_error(row, 35) == 0.5
    assert mean_and_deviation([1.0, None, 3.0]) == (2.0, 1.0)
    assert mean_and_deviation([None]) is None


def test_the_targets_are_those_of_the_paper():
    assert {k: s.num_parameters for k, s in TARGETS.items()} == {
        "tt": 427,
        "tr": 511,
        "tucker": 242,
        "triangle": 378,
    }
    assert ablation.TRAIN.num_parameters == 539
    assert float(planted_tensor(TARGETS["tt"], 3).norm()) == pytest.approx(1.0)
    for seed in range(4):
        structure = target(6, seed)
        assert set(structure.ranks.values()) <= {2, 3}
        assert 6 <= len(structure.edges) <= 10
        assert all(structure.neighbours)


# -- experiments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("quick", [True, False])
def test_cases_have_names_and_plain_parameters(name, quick, tmp_path):
    for folder in ("bsd_tnga4", "einstein", "mnist", "tn_demo"):
        (tmp_path / folder).mkdir()
    cases = EXPERIMENTS[name].cases(Settings(quick, tmp_path))
    assert len({c.key for c in cases}) == len(cases) > 0
    assert all(json.loads(json.dumps(c.params)) == tidy(c.params) for c in cases)
    assert not any(str(tmp_path) in json.dumps(c.params) for c in cases)  # results know no folders
    empty = EXPERIMENTS[name].report(Results(tmp_path / "none.json"))
    assert empty.text.startswith("# ")


def test_the_decomposition_experiment_in_small(tmp_path, monkeypatch):
    monkeypatch.setattr(decomposition, "TARGETS", {"tt": SMALL})
    monkeypatch.setattr(decomposition, "BUDGET", 90)
    monkeypatch.setattr(decomposition, "QUICK_RUNS", 1)
    said = []
    done = reproduce("decomposition", quick=True, folder=tmp_path, say=said.append)
    assert done.failures == 0
    assert len(said) == len(decomposition.METHODS)
    rows = groups(Results(done.results), "method")
    ours = rows[("default",)][0]
    assert ours["reached"]
    assert ours["size"] == SMALL.num_parameters
    assert all(r[0]["size"] <= 90 for r in rows.values())
    assert done.report.read_text(encoding="utf-8") == done.text
    assert "| TT 2,3,6,5 (48) | tensorgrow, default | 1 | 1 | 48 | 1 |" in done.text
    assert "the default ends there in 1 of 1" in done.text
    assert all(f.stat().st_size > 1000 for f in done.figures)
    again = reproduce("decomposition", quick=True, folder=tmp_path, say=said.append)
    assert again.text == done.text
    assert said[-1] == "7 of 7 cases are already in decomposition-quick.json"


def test_the_ablation_in_small(tmp_path, monkeypatch):
    monkeypatch.setattr(ablation, "TRAIN", SMALL)
    monkeypatch.setattr(ablation, "QUICK_RUNS", 1)
    done = reproduce("ablation", quick=True, folder=tmp_path)
    assert done.failures == 0
    rows = groups(Results(done.results), "transfer")
    assert set(rows) == {(True,), (False,)}
    assert "| weights kept | 1 | 1 |" in done.text


def test_methods_with_implied_options():
    x = planted_tensor(SMALL, 0)
    result, row = run_method("tt_svd_interleaved", x, max_error=1e-6)
    assert row["size"] == result.num_parameters
    assert set(result.structure.edges) == {(0, 2), (1, 2), (1, 3)}
    assert row["reached"]
    assert not run_method("greedy", x, max_error=0.1, random_state=0)[0].structure.internal_nodes


def test_what_makes_no_sense_is_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("TENSORGROW_DATA", raising=False)
    with pytest.raises(tg.OptionError, match="choose one of decomposition"):
        reproduce("everything", folder=tmp_path)
    with pytest.raises(tg.OptionError, match="processes"):
        reproduce("timing", folder=tmp_path, processes=0)
    with pytest.raises(tg.DataError, match="TENSORGROW_DATA"):
        reproduce("images", folder=tmp_path)
    with pytest.raises(tg.DataError, match="bsd_tnga4"):
        images.cases(Settings(data=tmp_path))


def test_the_command_line_runs_an_experiment(tmp_path, monkeypatch, capsys):
    pytest.importorskip("typer")
    from tensorgrow.cli import run

    monkeypatch.setattr(ablation, "TRAIN", SMALL)
    monkeypatch.setattr(ablation, "QUICK_RUNS", 1)
    assert run(["reproduce", "ablation", "--quick", "-o", str(tmp_path)]) == 0
    assert "| weights kept | 1 | 1 |" in capsys.readouterr().out
    assert (tmp_path / "ablation-quick.md").exists()
    assert run(["reproduce", "nothing", "-o", str(tmp_path)]) == 2
    assert "choose one of" in capsys.readouterr().err


def test_all_runs_what_it_can_and_names_what_it_leaves_out(tmp_path, monkeypatch, capsys):
    pytest.importorskip("typer")
    from tensorgrow.cli import reproduce as command
    from tensorgrow.cli import run

    monkeypatch.delenv("TENSORGROW_DATA", raising=False)
    monkeypatch.setattr(ablation, "TRAIN", SMALL)
    monkeypatch.setattr(ablation, "QUICK_RUNS", 1)
    monkeypatch.setattr(command, "EXPERIMENTS", {k: EXPERIMENTS[k] for k in ("images", "ablation", "mnist")})
    assert run(["reproduce", "all", "--quick", "-o", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert "| weights kept | 1 | 1 |" in said.out  # after images, which needs data
    assert "left out for lack of data: images, mnist" in said.err
    assert run(["reproduce", "all", "--quick", "-o", str(tmp_path), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [e["name"] for e in document["experiments"]] == ["ablation"]
    assert [(e["name"], "bsd_tnga4" in e["reason"]) for e in document["skipped"]] == [
        ("images", True),
        ("mnist", False),
    ]
    assert run(["reproduce", "images", "--quick", "-o", str(tmp_path)]) == 2  # asked for by name: refused


def test_a_demo_tensor_is_read_and_found(tmp_path, monkeypatch):
    hidden = tg.Structure((2,) * 4, {(0, 1): 2, (2, 3): 2})
    ranks = torch.zeros(4, 4, dtype=torch.int64)
    ranks[0, 1], ranks[2, 3] = 2, 2
    (tmp_path / "tn_demo").mkdir()
    np.savez(
        tmp_path / "tn_demo" / "tnga_demo_2pow4.npz",
        goal=planted_tensor(hidden, 0).float().numpy(),
        adj_matrix=(ranks + ranks.T + 2 * torch.eye(4, dtype=torch.int64)).numpy(),
    )
    monkeypatch.setattr(demos, "FILES", {"TNGA 2^4": "tnga_demo_2pow4.npz"})
    monkeypatch.setattr(demos, "OURS", ("default",))
    done = reproduce("demos", quick=True, folder=tmp_path, data=tmp_path)
    assert done.failures == 0
    found = {r["params"]["method"]: r["found"] for r in Results(done.results).cases.values()}
    assert found == {"default": True, "genetic": True, "tnls": True, "tnale": True, "svd_ins_tn": True}
    assert "| TNGA 2^4 | TNLS | 1 of 1 | 16 |" in done.text


def test_the_growing_layer_in_small(tmp_path, monkeypatch):
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(80, 1024, generator=rng), torch.randint(10, (80,), generator=rng)
    monkeypatch.setattr(mnist, "load", lambda folder: ((x, y), (x[:20], y[:20])))
    monkeypatch.setattr(mnist, "HELD_OUT", 20)
    (tmp_path / "mnist").mkdir()
    settings = Settings(data=tmp_path)
    results = Results(tmp_path / "mnist.json")
    for case in mnist.cases(settings):
        if case.params.get("rank", 2) != 2:
            continue
        small = {"images": 60, "epochs": 1, "candidate_epochs": 1, "max_parameters": 11_400}
        params = {**case.params, **small, "final_epochs": min(case.params["final_epochs"], 1)}
        results.cases[case.key] = row = {"params": params, **mnist.work(params, settings)}
        assert 0.0 <= row["accuracy"] <= 1.0
    for recipe in ("greedy", "default"):
        grown, train = results.cases[recipe], results.cases[f"tt/{recipe}/rank2"]
        assert grown["size"] <= 11_400
        assert grown["points"][0][0] < grown["points"][-1][0]  # it grew
        assert len(train["points"]) == 1
    text = mnist.report(results).text
    told = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| grown")]
    assert told.count("| grown, paper's protocol") == len(results.cases["greedy"]["points"])
    assert told.count("| grown, default, all images") == 1  # only the default trains on all images at the end
    (picture,) = mnist.draw(results, tmp_path)
    assert picture.stat().st_size > 0


def test_the_image_report_compares_at_equal_errors(tmp_path):
    results = Results(tmp_path / "i.json")

    def put(method, error, size, reached, curve):
        params = {"image": "C", "method": method, "max_error": error}
        row = {"size": size, "error": reached, "curve": curve, "evaluations": 3, "seconds": 1.0}
        results.put(Case(f"C/{method}@{error}", params), row)

    put("default", 0.087, 600, 0.087, [])
    put("default", 0.08, 900, 0.08, [[700, 0.085]])
    put("tnale", 0.08, 2000, 0.075, [[1300, 0.086], [2000, 0.075]])  # one run for all errors
    put("genetic6", 0.08, 5000, 0.2, [])
    text = images.report(results).text
    assert "| C at 0.087 | TnALE | 1,300 | 2.17 |" in text
    assert "| C at 0.08 | TnALE | 2,000 | 2.22 |" in text
    missed = "not reached; 0.200 at 5,000 | 8.33 at its error | 3 | 1 | 1,231 |"
    assert f"| C at 0.087 | TNGA, rank 6 | {missed}" in text
    assert "2.17 to 2.22" in text
