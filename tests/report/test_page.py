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
    assert re.search(r'<table id="steps">(.*)', visible, re.S)[1].count("<tr>") == len(grown.history) + 1
    content = content_of(page)
    assert [s["size"] for s in content["steps"]] == [s.num_parameters for s in grown.history]
    assert [s["name"] for s in content["series"]] == ["growth", "result", "TT-SVD"]
    for step, drawn in zip(grown.history, content["steps"]):
        edges = content["structures"][drawn["structure"]]["edges"]
        assert {(i, j): rank for i, j, rank, *_ in edges} == dict(step.structure.ranks)


def cards(page: str) -> dict[str, str]:
    return dict(re.findall(r'<div class="card[a-z ]*"><dt>(.*?)</dt><dd>(.*?)</dd></div>', page))


def test_it_leads_with_the_error_to_judge_by(grown, completed, tmp_path):
    """Of a completion that on hidden entries, or on held-out ones where the truth is not known."""
    unknown = dataclasses.replace(completed, errors=dataclasses.replace(completed.errors, test=None))
    for result, name, value in (
        (grown, "relative error", grown.relative_error),
        (completed, "relative error on hidden entries", completed.test_error),
        (unknown, "held-out error", completed.validation_error),
    ):
        page = result.report(tmp_path / "p.html").read_text(encoding="utf-8")
        assert re.search(r'class="card lead"><dt>(.*?)</dt>', page)[1] == next(iter(cards(page))) == name
        assert float(cards(page)[name]) == pytest.approx(value, rel=0.01)
    assert float(cards(page)["relative error on all known data"]) == pytest.approx(
        completed.relative_error, rel=0.01
    )


def test_bytes_and_peak_signal_to_noise(grown, tmp_path):
    x = photograph().reshape((4,) * 4)
    off = grown.network.to_dense().numpy() - x
    shown = cards(grown.report(tmp_path / "p.html", truth=x).read_text())
    assert float(shown["PSNR"].split()[0]) == pytest.approx(
        -10 * np.log10(np.mean(off**2) / np.ptp(x) ** 2), abs=0.06
    )
    assert float(shown["largest deviation"]) == pytest.approx(np.abs(off).max(), rel=1e-3)
    assert (shown["bytes of the network"], shown["bytes of the data"]) == (
        f"{grown.num_parameters * 8 / 1e3:.3g} kB",
        "2.05 kB",
    )
    picture = dataclasses.replace(grown, info={"source": {"kind": "picture", "levels": 255}})
    shown = cards(picture.report(tmp_path / "p.html", truth=x, image=(16, 16)).read_text())
    assert float(shown["PSNR"].split()[0]) == pytest.approx(-10 * np.log10(np.mean(off**2)), abs=0.06)
    assert shown["bytes of the data"] == "256 bytes"


def test_the_layout_is_that_of_the_plot(grown, tmp_path):
    """Page, plot and film place the network that was found alike, whatever its run went through."""
    *_, final = content_of(grown.report(tmp_path / "p.html").read_text())["structures"]
    placed = tg.plotting.choose_layout(grown.structure).place(grown.structure)
    assert np.allclose([node[:2] for node in final["nodes"]], placed.nodes, atol=1e-3)


def test_the_curve_never_turns_back(grown, tmp_path):
    steps = (*grown.history, *reversed(grown.history))
    content = content_of(dataclasses.replace(grown, history=steps).report(tmp_path / "p.html").read_text())
    (growth,) = [s for s in content["series"] if s["role"] == "fitted"]
    assert len(growth["points"]) == len(steps)
    sizes, errors = np.transpose([growth["points"][n][:2] for n in growth["line"]])
    assert (np.diff(sizes) > 0).all()
    assert (np.diff(errors) < 0).all()


def test_rivals_stand_in_a_table(grown, tmp_path):
    page = grown.report(tmp_path / "p.html", rivals={HOSTILE: grown, "Tucker": [(999, 0.5)]}).read_text()
    rows = re.findall(r"<tr>(.*?)</tr>", re.search(r'<table id="rivals">(.*?)</table>', page, re.S)[1])
    texts = [html.unescape(re.sub(r"<.*?>", " ", row)).split() for row in rows]
    ours = [f"{grown.num_parameters:,}", "1.00", f"{grown.relative_error:.4g}"]
    assert (texts[1][-3:], texts[2][-3:]) == (ours, ours)
    assert texts[3] == ["Tucker", "999", f"{999 / grown.num_parameters:.2f}", "0.5"]
    assert 'id="rivals"' not in grown.report(tmp_path / "p.html").read_text()


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


def test_a_committee_lists_its_members(committee, tmp_path):
    committee.save(tmp_path / "c.safetensors")
    x = photograph(32)
    known = np.random.default_rng(0).random(x.shape) < 0.6
    options = {"image": x.shape, "truth": x, "observed": np.where(known, x, np.nan)}
    for result in (committee, tg.load(tmp_path / "c.safetensors")):
        page = result.report(tmp_path / "p.html", **options).read_text(encoding="utf-8")
        assert cards(page)["members"] == "2"
        heads, *rows = re.findall(r"<tr>(.*?)</tr>", re.search(r'<table id="members">(.*?)</table>', page)[1])
        assert re.findall(r"<th>(.*?)</th>", heads)[-2:] == ["held-out", "hidden"]
        for row, member in zip(rows, result.members, strict=True):
            assert f"{member.num_parameters:,}</td>" in row and f"{member.validation_error:.4g}</td>" in row
        best = min(result.members, key=lambda m: m.validation_error)
        assert ", best<" in rows[result.members.index(best)] and page.count(", best<") == 1
        drawn = content_of(page)
        assert len(drawn["structures"][drawn["final"]]["nodes"]) == best.structure.num_nodes
        last = drawn["images"]["frames"][-1]
        assert (last["size"], last["error"]) == (result.num_parameters, result.test_error)
        hidden = re.search(r'<table id="fillings">.*?<td>(.*?)</td>', page)[1]
        assert float(hidden) == pytest.approx(result.test_error, rel=1e-3)
    assert "Members" not in tg.decompose(np.eye(3), max_steps=0).report(tmp_path / "p.html").read_text()


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


def test_a_page_is_not_written_under_the_name_of_another_format(grown, tmp_path):
    for name in ("p.pdf", "p.safetensors", "p"):
        with pytest.raises(tg.FileFormatError, match=r"ends in \.html"):
            grown.report(tmp_path / name)
    assert not list(tmp_path.iterdir())
    assert grown.report(tmp_path / "p.HTM").exists()
