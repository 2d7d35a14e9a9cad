"""The report on images."""

from __future__ import annotations

import numpy as np
import pytest

from tensorgrow.experiments import images
from tensorgrow.experiments.experiment import Settings
from tensorgrow.experiments.harness import Case, Results


def test_the_image_report_compares_at_equal_errors(tmp_path):
    results = Results(tmp_path / "i.json")

    def put(method, error, size, reached, curve, **more):
        params = {"image": "C", "method": method, "max_error": error}
        row = {"size": size, "error": reached, "curve": curve, "evaluations": 3, "seconds": 1.0, **more}
        results.put(Case(f"C/{method}@{error}", params), row)

    put("default", 0.087, 600, 0.087, [])
    put("default", 0.08, 900, 0.08, [[700, 0.085]])
    # One run for all errors; ours took one second.
    times = [[1500, 0.086, 0.5], [1300, 0.086, 2.0], [2000, 0.075, 3.0]]
    put("tnale", 0.08, 2000, 0.075, [[1300, 0.086], [2000, 0.075]], times=times)
    put("genetic6", 0.08, 5000, 0.2, [])
    text = images.report(results).text
    assert "| C at 0.087 | TnALE | 1,300 | 2.17 | 1,500 |" in text
    assert "| C at 0.08 | TnALE | 2,000 | 2.22 | not reached |" in text
    missed = "not reached; 0.200 at 5,000 | 8.33 at its error | - | 3 | 1 | 1,231 |"
    assert f"| C at 0.087 | TNGA, rank 6 | {missed}" in text
    assert "2.17 to 2.22" in text


@pytest.mark.parametrize("max_error", [0.02, 0.3])
def test_rings_of_rivals_can_be_as_large_as_a_train_of_that_error(max_error):
    x = np.random.default_rng(0).random((4,) * 6)
    options = images.ring_options(x, max_error)
    train = images.run_method("tt_svd_interleaved", x, max_error=max_error)[1]["size"]
    assert options["max_rank"] >= images.LEAST_LIMIT
    assert options["max_rank"] ** 2 * sum(x.shape) >= train
    assert options["error_weight"] * max_error**2 == pytest.approx(train / x.size)


def test_the_papers_rule_is_averaged_over_seeds_and_judged_in_true_counts(tmp_path):
    results = Results(tmp_path / "i.json")

    def put(image, method, seed, curve, **more):
        error = min(images.ERRORS.get(image, (images.LIVE_ERROR,)))
        params = {"image": image, "method": method, "max_error": error, "seed": seed}
        size, reached = curve[-1]
        row = {"size": size, "error": reached, "curve": curve, "evaluations": 3, "seconds": 9.0, **more}
        results.put(Case(f"{image}/{method}@{error}/seed{seed}", params), {"hit_limit": False, **row})

    put("C", "default", 0, [[650, 0.087], [900, 0.08]])
    put("C", "default", 1, [[700, 0.08]])
    put("C", "greedy", 0, [[1100, 0.087], [1700, 0.083], [2000, 0.08]])
    put("C", "greedy", 1, [[1300, 0.087], [1800, 0.083], [2400, 0.08]])
    put("A", "greedy", 0, [[20_000, 0.13]], hit_limit=True)
    text = images.report(results).text
    # 65,536 / 2,000 and / 2,400: natural logarithms 3.489 and 3.307.
    assert (
        "| C at 0.08 | 2,200 (200), 2 of 2 runs | 3.398 (0.091) | 3.668 (0.103) | 800 (100), 2 of 2 runs |"
        in text
    )
    assert "on all images | A at 0.115: 0 of 1 runs, 14,337 published; C at 0.083: 1,750 (50)" in text
    assert "| C at 0.08: 2,200 (200), 2 of 2 runs, 1,231 published at 0.087" in text
    assert text.count("| in part |") == 2
    assert text.count("| **not** |") == 2
    assert "x ours" in text  # rivals beside the first seed alone
    assert "| C at 0.08 | Greedy (paper preset) | 2,000 | 2.22 |" in text


def test_the_papers_rule_has_several_seeds_on_every_image(tmp_path):
    (tmp_path / "bsd_tnga4").mkdir()
    cases = images.cases(Settings(data=tmp_path))
    seeds = {}
    for case in cases:
        if case.params["method"] == "greedy":
            assert case.params["iterations"] == 5
            seeds.setdefault(case.params["image"], set()).add(case.params["seed"])
    assert seeds == {image: set(range(5)) for image in ("A", "C", *images.LIVE)}
    more = images.cases(Settings(data=tmp_path, runs=7))
    assert sum(c.params["method"] == "greedy" for c in more) == 7 * 12
