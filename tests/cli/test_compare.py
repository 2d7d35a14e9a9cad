from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.cli import run
from tests.cli.conftest import call, document

pytest.importorskip("typer")


def test_compare(capsys, tensor):
    pytest.importorskip("tensorly")
    printed = document(capsys, "compare", "x.npy", "-e", "0.2", "-q")
    rows = {row["method"]: row for row in printed["methods"]}
    assert {"tensorgrow", "TT-SVD, stored order", "Tucker", "CP"} <= set(rows)
    assert all(row["reached"] == (row["relative_error"] <= 0.2 * (1 + 1e-9)) for row in rows.values())
    assert rows["tensorgrow"]["num_parameters"] <= rows["TT-SVD, stored order"]["num_parameters"]
    assert "times ours" in call(capsys, "compare", "x.npy", "-e", "0.2", "-q")


def test_the_page_shows_the_rivals(capsys, tensor):
    pytest.importorskip("tensorly")
    printed = document(capsys, "compare", "x.npy", "-e", "0.2", "-q", "--report", "page.html")
    assert printed["files"] == ["page.html"]
    page = Path("page.html").read_text(encoding="utf-8")
    for row in printed["methods"][1:]:
        assert f"<th scope=row>{row['method']}</th><td>{row['num_parameters']:,}</td>" in page
    assert "PSNR" in page
    assert run(["compare", "x.npy", "--report", "page.pdf"]) == 2


def test_compare_vectors(capsys, folder):
    """CP is for tensors, but a vector is no reason to fail."""
    np.save("v.npy", np.random.default_rng(0).random(7))
    printed = document(capsys, "compare", "v.npy", "-t", "none", "-q")
    assert [row["num_parameters"] for row in printed["methods"]] == [7, 7, 8]


@pytest.mark.parametrize("late", [False, True])
def test_ctrl_c_ends_a_comparison_with_what_was_found(capsys, tensor, monkeypatch, late):
    from tensorgrow.cli import compare

    def stopped(*arguments, **options):
        result = tg.decompose(*arguments, **options)
        return result if late else dataclasses.replace(result, stop=tg.StopReason.INTERRUPTED)

    def rival(name, *_, **__):
        if name == "Tucker":
            raise KeyboardInterrupt
        return None

    monkeypatch.setattr("tensorgrow.tasks.decompose.decompose", stopped)
    monkeypatch.setattr(compare, "run_rival", rival)
    assert run(["compare", "x.npy", "-q", "--json"]) == 130
    written = capsys.readouterr()
    assert [row["method"] for row in json.loads(written.out)["methods"]] == ["tensorgrow"]
    assert written.err == "error: interrupted; these are the results so far\n"


def test_the_array_as_it_is_competes_where_its_axes_are_cut(capsys, folder):
    """Digits suit a search over all edges; the SVD of the matrix may be smaller than a train of them."""
    pytest.importorskip("tensorly")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((16, 2)) @ rng.standard_normal((2, 16))
    np.save("m.npy", x)
    printed = document(capsys, "compare", "m.npy", "-t", "4x4,4x4", "-e", "0.01", "-q", "--report", "p.html")
    rows = {row["method"]: row for row in printed["methods"]}
    assert rows["TT-SVD, axes uncut"]["num_parameters"] == 2 * (16 + 16)
    assert "TT-SVD, axes uncut" in Path("p.html").read_text(encoding="utf-8")
    whole = document(capsys, "compare", "m.npy", "-t", "none", "-e", "0.01", "-q")
    assert "TT-SVD, axes uncut" not in [row["method"] for row in whole["methods"]]
