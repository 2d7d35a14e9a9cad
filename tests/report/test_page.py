"""What the page says, and what it may do."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import re

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.report.content import MOST_STEPS
from tensorgrow.report.page import shape_text
from tests.report.conftest import HOSTILE, content_of, long_run, photograph


def test_the_page_says_what_the_result_says(grown, tmp_path):
    path = grown.report(tmp_path / "run.html", rivals={"TT-SVD": (99, 0.2)})
    assert path == tmp_path / "run.html"
    page = path.read_text(encoding="utf-8")
    visible = html.unescape(re.sub(r"<script.*?</script>", "", page, flags=re.S))
    for words in (
        f"{grown.num_parameters:,}",
        f"{grown.relative_error:.4g}",
        grown.stop.text,
        "'run.safetensors'",
    ):
        assert words in visible
    assert "A 4⁴ tensor" in visible
    assert re.search(r"<dt>seed</dt><dd>3</dd>", page)
    assert torch.__version__ in visible
    assert visible.count("<tr>") == len(grown.history) + 1
    content = content_of(page)
    assert [s["size"] for s in content["steps"]] == [s.num_parameters for s in grown.history]
    assert [s["name"] for s in content["series"]] == ["growth", "result", "TT-SVD"]
    for step, drawn in zip(grown.history, content["steps"]):
        edges = content["structures"][drawn["structure"]]["edges"]
        assert {(i, j): rank for i, j, rank, _ in edges} == dict(step.structure.ranks)


def test_a_mode_of_size_one_has_a_leg_and_an_internal_node_has_none(tmp_path):
    network = tg.TensorNetwork.random(tg.Structure.tucker((3, 1, 2), (2, 2, 2)), random_state=0)
    result = tg.Result(network, tg.Errors(0.1), (), tg.StopReason.CONVERGED)
    page = result.report(tmp_path / "p.html").read_text(encoding="utf-8")
    (drawn,) = content_of(page)["structures"]
    assert [node[-1] for node in drawn["nodes"]] == [3, 1, 2, None]
    assert "4 cores (1 internal)" in page


def test_a_tensor_made_from_an_array_says_so(grown, tmp_path):
    _, how = tg.tensorize(photograph(), (4,) * 4)
    page = (
        dataclasses.replace(grown, tensorization=how).report(tmp_path / "p.html").read_text(encoding="utf-8")
    )
    assert "16×16 as 4⁴ = 256 entries" in page


def test_spectra_are_those_of_the_balanced_network(tmp_path):
    """On a chain of two the weights are the singular values."""
    x = np.diag([4.0, 2.0, 1.0])
    page = tg.decompose(x, max_error=1e-9, random_state=0).report(tmp_path / "p.html").read_text()
    (spectrum,) = content_of(page)["spectra"]
    assert spectrum["edge"] == [0, 1]
    assert spectrum["values"] == pytest.approx([1, 0.5, 0.25], rel=1e-2)


def test_nothing_but_this_page_may_run(grown, tmp_path):
    page = grown.report(tmp_path / "p.html", title=HOSTILE).read_text()
    policy = html.unescape(re.search(r'Content-Security-Policy" content="(.*?)"', page)[1])
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        text = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
        assert len(text) == 1
        digest = base64.b64encode(hashlib.sha256(text[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert set(re.findall(r"https?://[^\s\"']+", page)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"\s(style|on\w+)=", re.sub(r"<(script|title|h1).*?</\1>", "", page, flags=re.S))


def test_hostile_strings_stay_text(grown, tmp_path):
    step = dataclasses.replace(grown.history[-1], kind=HOSTILE)
    info = {HOSTILE: HOSTILE, "nested": {HOSTILE: [HOSTILE]}}
    result = dataclasses.replace(grown, history=(step,), info=info)
    page = result.report(
        tmp_path / "p.html", title=HOSTILE + "\ud800", rivals={HOSTILE: (5, 0.1)}
    ).read_text()
    assert "<img" not in page
    assert page.count("<script") == page.count("</script") == 2
    assert content_of(page)["steps"][0]["kind"] == HOSTILE


def test_long_runs_are_thinned(tmp_path):
    path = long_run(5000).report(tmp_path / "long.html")
    page = path.read_text()
    steps = content_of(page)["steps"]
    assert len(steps) == MOST_STEPS
    assert (steps[0]["index"], steps[-1]["index"]) == (0, 4999)
    assert "600 of 5,000 steps" in page
    assert path.stat().st_size < 500_000


def test_an_empty_history(grown, tmp_path):
    bare = dataclasses.replace(grown, history=(), path=(), info={})
    page = bare.report(tmp_path / "p.html", image=(16, 16)).read_text()
    assert "without its history" in page
    assert "Nothing was recorded" in page
    assert len(content_of(page)["images"]["frames"]) == 1


def test_numbers_json_has_no_word_for(grown, tmp_path):
    steps = tuple(dataclasses.replace(s, relative_error=float("nan")) for s in grown.history)
    result = dataclasses.replace(grown, history=steps, errors=tg.Errors(float("inf")))
    page = result.report(tmp_path / "p.html")
    assert content_of(page.read_text())["series"] == []


def test_where_it_cannot_be_written(grown, tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        grown.report(tmp_path / "no" / "run.html")
    with pytest.raises(tg.OptionError, match="rivals"):
        grown.report(tmp_path / "run.html", rivals={"x": "y"})
    assert not (tmp_path / "run.html").exists()


def test_shapes_in_words():
    assert shape_text((4,) * 8 + (3,)) == "4⁸×3"
    assert shape_text((7, 7, 12)) == "7×7×12"
    assert shape_text((2,) * 12) == "2¹²"
