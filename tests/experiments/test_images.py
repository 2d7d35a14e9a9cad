"""The report on images."""

from __future__ import annotations

import numpy as np
import pytest

from tensorgrow.experiments import images
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
