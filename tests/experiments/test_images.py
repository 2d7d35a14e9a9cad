"""The report on images."""

from __future__ import annotations

from tensorgrow.experiments import images
from tensorgrow.experiments.harness import Case, Results


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
