"""What notebooks show: small, static, and nothing but text and a drawing."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ElementTree

import pytest

import tensorgrow as tg
from tensorgrow import Structure, TensorNetwork
from tensorgrow.data.axes import Axes
from tests.report.conftest import HOSTILE


def drawing(fragment: str) -> ElementTree.Element:
    root = ElementTree.fromstring(fragment)  # well formed, or this raises
    (svg,) = root.iter("{http://www.w3.org/2000/svg}svg")
    return svg


def test_a_result_in_a_notebook(grown, completed):
    for result in (grown, completed):
        fragment = result._repr_html_()
        assert len(fragment) < 12_000
        assert not re.search(r"<(script|style|link|img|iframe)|\bon\w+=", fragment)
        texts = [t.text for t in drawing(fragment).iter("{http://www.w3.org/2000/svg}text")]
        ranks, structure = result.structure.ranks.values(), result.structure
        assert sorted(texts) == sorted(map(str, [*ranks, *structure.dims, *range(structure.num_nodes)]))
        assert f"{result.num_parameters:,}" in fragment
    assert fragment.index("on hidden entries") < fragment.index("parameters")


@pytest.mark.parametrize(
    "structure",
    [Structure.hierarchical_tucker((4,) * 8, 3), Structure((3, 1), {(0, 1): 2}), Structure.rank_one((5,))],
)
def test_a_network_in_a_notebook(structure):
    fragment = TensorNetwork.random(structure, random_state=0)._repr_html_()
    edges = [p for p in drawing(fragment).iter("{http://www.w3.org/2000/svg}path") if "Q" in p.get("d")]
    assert len(edges) == len(structure.edges)
    assert "float64" in fragment


def test_large_networks_are_not_drawn():
    assert (
        "<svg" not in TensorNetwork.random(Structure.tensor_train((2,) * 80, 2), random_state=0)._repr_html_()
    )


def test_strings_of_a_run_stay_text(grown):
    info, axes = {HOSTILE: HOSTILE, "source": {"name": HOSTILE}}, Axes((HOSTILE[:14], "x", "y", "z"))
    fragment = dataclasses.replace(grown, info=info, axes=axes)._repr_html_()
    drawing(fragment)
    assert "<img" not in fragment


def test_a_result_without_an_error_or_history(grown):
    bare = tg.Result(grown.network, tg.Errors(float("nan")), (), tg.StopReason.CONVERGED)
    assert "nan" in bare._repr_html_()
