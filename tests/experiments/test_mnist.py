"""The growing layer, in small."""

from __future__ import annotations

import torch

from tensorgrow.experiments import mnist
from tensorgrow.experiments.experiment import Settings
from tensorgrow.experiments.harness import Case, Results


def test_the_growing_layer_in_small(tmp_path, monkeypatch):
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(80, 1024, generator=rng), torch.randint(10, (80,), generator=rng)
    monkeypatch.setattr(mnist, "load", lambda folder: ((x, y), (x[:20], y[:20])))
    monkeypatch.setattr(mnist, "HELD_OUT", 20)
    (tmp_path / "mnist").mkdir()
    settings = Settings(data=tmp_path, figures=tmp_path)
    results = Results(tmp_path / "mnist.json")
    for case in mnist.cases(settings):
        if case.params.get("rank", 2) != 2:
            continue
        small = {"images": 60, "epochs": 1, "candidate_epochs": 1, "max_parameters": 11_400}
        params = {**case.params, **small, "final_epochs": min(case.params["final_epochs"], 1)}
        results.cases[case.key] = row = {"params": params, **mnist.work(Case(case.key, params), settings)}
        assert 0.0 <= row["accuracy"] <= 1.0
    for recipe in ("greedy", "default"):
        grown, train = results.cases[recipe], results.cases[f"tt/{recipe}/rank2"]
        assert grown["size"] <= 11_400
        assert grown["points"][0][0] < grown["points"][-1][0]  # it grew
        assert len(train["points"]) == 1
        # Size, test accuracy, seconds, training accuracy.
        assert all(0.0 <= right <= 1.0 for p in grown["points"] for right in (p[1], p[3]))
    text = mnist.report(results).text
    told = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| grown")]
    assert told.count("| grown, paper's protocol") == len(results.cases["greedy"]["points"])
    assert told.count("| grown, default, all images") == 1  # only the default trains on all images at the end
    said = [line for line in text.splitlines() if line.startswith("| for every model size")]
    assert ["ahead at" in line for line in said] == [True]
    (picture,) = mnist.draw(results, settings)
    assert picture.stat().st_size > 0
