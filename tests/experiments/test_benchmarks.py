"""Every benchmark: its cases, the report on its committed results, the command line."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.__main__ import main
from benchmarks.benchmark import Benchmark
from benchmarks.completion.quality import mape, psnr, relative_error, rmse, ssim
from benchmarks.density import chain_cases
from benchmarks.registry import RESULTS, State, benchmark_names, find_benchmark, read_state, results_file

import tensorgrow
from tensorgrow.errors import OptionError
from tensorgrow.experiments import mnist
from tensorgrow.experiments.harness import Case, Results, tidy
from tensorgrow.experiments.provenance import modules_hash

SOURCE = Path(tensorgrow.__file__).parents[1]

# Every folder of real data that a benchmark asks for.
FOLDERS = (
    "bsd_tnga4",
    "density",
    "einstein",
    "hyperspectral",
    "lightfield",
    "testimages",
    "traffic",
    "video",
    "mnist",
    "text",
    "tn_demo",
)


@pytest.mark.parametrize("name", benchmark_names())
@pytest.mark.parametrize("quick", [True, False])
def test_every_benchmark_has_cases_with_plain_parameters(name, quick, tmp_path):
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
    benchmark = find_benchmark(name)
    assert isinstance(benchmark, Benchmark)
    cases = benchmark.cases(benchmark.settings(quick=quick, data=tmp_path))
    assert len({c.key for c in cases}) == len(cases) > 0
    assert all(json.loads(json.dumps(c.params)) == tidy(c.params) for c in cases)
    assert not any(str(tmp_path) in json.dumps(c.params) for c in cases)  # results know no folders


@pytest.mark.parametrize("name", benchmark_names())
def test_the_report_on_committed_results(name):
    benchmark = find_benchmark(name)
    path = results_file(name)
    results = Results(path)
    report = benchmark.report(results)
    assert report.text.startswith("# ")
    if path.exists():
        assert report.text.count("\n| ") > 2
        if report.summary is not None:
            assert set(report.summary) == set(results.document["summary"])


def test_every_results_file_belongs_to_a_benchmark():
    named = {results_file(n) for n in benchmark_names()}
    assert set(RESULTS.rglob("*.json")) <= named


def test_a_committed_row_answers_its_case():
    benchmark = find_benchmark("decomposition")
    results = Results(results_file("decomposition"))
    cases = benchmark.cases(benchmark.settings(parts=("recovery",)))
    assert len(cases) == 80
    assert all(c.is_done(results.cases.get(c.key)) for c in cases)


def test_density_grows_a_chain_of_the_size_that_was_learned():
    results = Results(results_file("density"))
    row = results.cases["bars3/born/0"]
    (chain,) = chain_cases(results, [Case("bars3/born/0", row["params"])])
    assert chain.key == "bars3/born/0/chain"
    assert chain.params["max_parameters"] == row["learned"]["size"]
    assert chain.is_done(results.cases[chain.key])


def test_the_state_of_results(tmp_path):
    assert read_state(tmp_path / "none.json") == State(0, "-", "-")
    results = Results(tmp_path / "r.json")
    results.put(Case("a", {}), {"value": 1})
    state = read_state(results.path)
    assert (state.rows, state.source) == (1, results.document["environments"][0]["tensorgrow_source"])
    assert state.day == results.cases["a"]["date"]


def test_the_list_names_every_benchmark(capsys):
    assert main(["--list"]) == 0
    printed = capsys.readouterr().out
    lines = {line.split(" | ")[0].removeprefix("| "): line for line in printed.splitlines()}
    for name in benchmark_names():
        state = read_state(results_file(name))
        assert lines[name].endswith(f" | {state.rows} | {state.day} | {state.source} |")
    assert "source now: " in printed


def test_a_benchmark_runs_and_resumes(tmp_path, capsys):
    out = tmp_path / "r.json"
    line = ["scaling", "--quick", "--only", "parameters", "--threads", "1", "--max-parameters", "200"]
    files = ["--out", str(out), "--figures", str(tmp_path)]
    assert main([*line, "--budget", "0.01", *files]) == 0
    assert "image graph | 1 | 65536 | 108 |" in capsys.readouterr().out
    rows = json.loads(out.read_text())["cases"]
    assert set(rows) == {"machine/threads1", "parameters/threads1/000108"}
    assert (tmp_path / "scaling.png").stat().st_size > 1000
    assert main([*line, "--budget", "0.01", *files]) == 0
    assert "2 of 2 cases are already in r.json" in capsys.readouterr().out
    assert main([*line, "--summary", *files]) == 0
    assert main([*line, "--budget", "0.01", "--fresh", "--match", "000108", *files]) == 0
    assert "already" not in capsys.readouterr().out.split("already in r.json")[-1]
    assert main([*line, "--match", "threads1/000108", *files]) == 2
    assert "no case has all of the words threads1/000108; a key is" in capsys.readouterr().err


@pytest.mark.parametrize("has_gpu", [False, True])
def test_stale_rows_that_need_a_gpu_are_counted_apart(has_gpu, tmp_path, monkeypatch, capsys):
    old = {"uses": [], "modules": "of old", "environment": 0}
    cases = {
        "sweeps/cuda/a": {**old, "params": {"device": "cuda"}},
        "sweeps/cuda/b": {**old, "params": {"device": "cuda"}, "modules": modules_hash(())},
        "sweeps/cpu/a": {**old, "params": {"device": "cpu"}},
        "runs/a": {**old, "params": {}, "cpu": {"seconds": 1.0}, "cuda": {"seconds": 0.5}},
        "runs/b": {**old, "params": {}, "cpu": {"seconds": 1.0}},
    }
    path = tmp_path / "r.json"
    path.write_text(json.dumps({"environments": [{"commit": "abcdef1234"}], "cases": cases}))
    monkeypatch.setattr("benchmarks.__main__.results_file", lambda name: path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    assert main(["gpu", "--stale"]) == 1
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "4 of 5 rows; --refresh measures them again",
        f"2 of these 4 need a GPU, and there is {'one' if has_gpu else 'none'} here; 2 need none",
        "    gpu 2",
    ]
    del cases["sweeps/cpu/a"], cases["runs/b"]
    path.write_text(json.dumps({"environments": [{"commit": "abcdef1234"}], "cases": cases}))
    assert main(["gpu", "--stale"]) == 1  # also where nothing can be refreshed without one


@pytest.mark.parametrize("name", benchmark_names())
def test_every_benchmark_explains_its_options(name, capsys):
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    assert "--quick" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "word", "options"),
    [
        ("decomposition", "recovery/tt/seed00", {}),
        ("decomposition", "speed/sweep", {}),
        ("decomposition", "speed/shares", {}),
        ("gpu", "sweeps/cpu/float32/7^5", {}),
        ("layers", "layers/cpu/1024x1024/train2/rows1", {"budget": 0.001}),
        ("completion", "degenerate/cpu/single-observation", {}),
        ("uncertainty", "planted/tt@10/ours/default/mask0", {"max_seconds": 0.2}),
        ("regression", "recovery/tt/2/0.1/ridge/0", {}),
        ("classification", "iris/logistic/0.0", {}),
        ("mnist", "tt/cpu/0/rank1/1", {"baseline_epochs": 1, "train_images": 60}),
        ("speed", "hidden/after/cpu/tt/balanced/seed00", {}),
    ],
)
def test_a_small_case_of_a_benchmark(name, word, options, tmp_path, monkeypatch):
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(80, 1024, generator=rng), torch.randint(10, (80,), generator=rng)
    monkeypatch.setattr(mnist, "load", lambda folder: ((x, y), (x[:20], y[:20])))
    monkeypatch.setattr(mnist, "HELD_OUT", 20)
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
    benchmark = find_benchmark(name)
    settings = benchmark.settings(quick=True, data=tmp_path, scratch=tmp_path, options=options)
    (case,) = [c for c in benchmark.cases(settings) if c.key == word]
    results = Results(tmp_path / "r.json")
    row = benchmark.work(case, settings)
    results.put(case, row)
    assert not {"failed", "skipped"} & set(row)
    assert len(benchmark.report(results).text.splitlines()) > 3


def test_an_earlier_source_finds_what_this_one_finds_where_it_is_the_same(tmp_path):
    benchmark = find_benchmark("speed")
    rows = {}
    for label in ("after", "before"):
        options = {"label": label, "earlier": SOURCE}
        settings = benchmark.settings(quick=True, data=tmp_path, scratch=tmp_path, options=options)
        (case,) = [c for c in benchmark.cases(settings) if c.key == f"hidden/{label}/cpu/tt/balanced/seed00"]
        rows[label] = benchmark.work(case, settings)
    assert rows["before"]["size"] == rows["after"]["size"]
    assert rows["before"]["error"] == pytest.approx(rows["after"]["error"], rel=1e-6, abs=1e-14)


@pytest.mark.parametrize("folder", [None, "nowhere"])
def test_rows_of_an_earlier_source_need_its_folder(folder, tmp_path):
    earlier = None if folder is None else tmp_path / folder
    benchmark = find_benchmark("speed")
    options = {"label": "before", "earlier": earlier}
    settings = benchmark.settings(quick=True, data=tmp_path, scratch=tmp_path, options=options)
    with pytest.raises(OptionError, match="--earlier"):
        benchmark.work(next(c for c in benchmark.cases(settings) if c.part == "hidden"), settings)


def test_what_the_command_line_refuses(tmp_path, monkeypatch, capsys):
    assert main(["nothing"]) == 2
    assert "there is no benchmark 'nothing'" in capsys.readouterr().out
    monkeypatch.setenv("TENSORGROW_DATA", str(tmp_path))
    assert main(["losses", "--quick", "--out", str(tmp_path / "r.json")]) == 2
    assert "TENSORGROW_DATA" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["gpu", "--only", "nothing"])
    assert "invalid choice" in capsys.readouterr().err


def test_measures_of_quality_have_known_values():
    pytest.importorskip("skimage")
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 16, 18, 3))
    flat = np.full((12, 13, 1), 0.25)
    # The Gaussian window of one pixel, and the constants of the paper.
    line = np.exp(-((np.arange(11) - 5) ** 2) / (2.0 * 1.5**2))
    window = np.outer(line, line) / line.sum() ** 2
    c1, c2 = 0.01**2, 0.03**2
    a, b = x[2:13, 5:16, 1], y[2:13, 5:16, 1]
    mean_a, mean_b = (window * a).sum(), (window * b).sum()
    var_a, var_b = (window * (a - mean_a) ** 2).sum(), (window * (b - mean_b) ** 2).sum()
    covariance = (window * (a - mean_a) * (b - mean_b)).sum()
    one = (2 * mean_a * mean_b + c1) * (2 * covariance + c2)
    one /= (mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2)
    assert ssim(x, x) == pytest.approx(1.0)
    assert ssim(a[..., None], b[..., None]) == pytest.approx(one, rel=1e-9)
    assert ssim(2 * flat, flat) == pytest.approx((2 * 0.125 + c1) / (0.25 + 0.0625 + c1), rel=1e-9)
    assert ssim(x, y) == pytest.approx(np.mean([ssim(x[..., [k]], y[..., [k]]) for k in range(3)]), rel=1e-9)
    assert psnr(flat + 0.1, flat) == pytest.approx(20.0)
    assert psnr(flat, flat) == math.inf
    assert relative_error(1.5 * x, x) == pytest.approx(0.5)
    assert mape(np.array([2.0, 9.0]), np.array([1.0, 0.0])) == pytest.approx(100.0)
    assert rmse(np.array([3.0, 1.0]), np.array([0.0, 5.0])) == pytest.approx(math.sqrt(12.5))
