"""The experiments of the paper: cases, resuming, what is refused, the command line."""

from __future__ import annotations

import json

import pytest

import tensorgrow as tg
from tensorgrow.experiments import EXPERIMENTS, ablation, images, reproduce
from tensorgrow.experiments.experiment import Settings
from tensorgrow.experiments.harness import Results, tidy

SMALL = tg.Structure.tensor_train((4,) * 4, 2)


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


def test_what_makes_no_sense_is_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("TENSORGROW_DATA", raising=False)
    with pytest.raises(tg.OptionError, match="choose one of decomposition"):
        reproduce("everything", folder=tmp_path)
    with pytest.raises(tg.OptionError, match="processes"):
        reproduce("timing", folder=tmp_path, processes=0)
    with pytest.raises(tg.OptionError, match="runs=0"):
        reproduce("timing", folder=tmp_path, runs=0)
    with pytest.raises(tg.DataError, match="TENSORGROW_DATA"):
        reproduce("images", folder=tmp_path)
    with pytest.raises(tg.DataError, match="bsd_tnga4"):
        images.cases(Settings(data=tmp_path))


def test_the_command_line_runs_an_experiment(tmp_path, monkeypatch, capsys):
    pytest.importorskip("typer")
    from tensorgrow.cli import run

    monkeypatch.setattr(ablation, "TRAIN", SMALL)
    monkeypatch.setattr(ablation, "RUNS", {True: 1})
    assert run(["reproduce", "ablation", "--quick", "--runs", "1", "-o", str(tmp_path)]) == 0
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
    monkeypatch.setattr(ablation, "RUNS", {True: 1})
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
