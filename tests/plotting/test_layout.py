from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorgrow as tg
from tensorgrow import Structure
from tensorgrow.plotting.layout import Layout, bezier, choose_layout


def test_chains_are_lines_in_their_order():
    structure = Structure((3,) * 5, {(3, 1): 2, (1, 4): 3, (4, 0): 2, (0, 2): 2})
    layout = choose_layout(structure)
    assert layout.kind == "line"
    assert layout.order in ((3, 1, 4, 0, 2), (2, 0, 4, 1, 3))
    nodes = layout.place(structure).nodes
    assert {y for _, y in nodes} == {0.0}
    assert all(abs(nodes[i][0] - nodes[j][0]) == pytest.approx(1.0) for i, j in structure.edges)


def test_a_chain_with_a_gap_is_still_a_line():
    assert choose_layout(Structure((3,) * 5, {(0, 1): 2, (3, 4): 3})) == Layout("line", (0, 1, 2, 3, 4))


def test_rings_are_circles_in_their_order():
    tour = [0, 3, 1, 4, 2, 5]
    structure = Structure((3,) * 6, dict.fromkeys(zip(tour, tour[1:] + tour[:1]), 2))
    layout = choose_layout(structure)
    assert layout.kind == "circle"
    assert list(layout.order) == tour
    nodes = np.array(layout.place(structure).nodes)
    assert np.ptp(np.linalg.norm(nodes, axis=1)) < 1e-12
    lengths = [np.linalg.norm(nodes[i] - nodes[j]) for i, j in structure.edges]
    assert lengths == pytest.approx([1.0] * 6)


def test_a_path_beside_a_ring_is_no_chain():
    triangle_and_pair = Structure((3,) * 5, {(0, 1): 2, (1, 2): 2, (0, 2): 2, (3, 4): 2})
    assert choose_layout(triangle_and_pair).kind == "circle"


def test_the_centre_of_a_star_is_in_the_middle():
    nodes = choose_layout(Structure.tucker((4, 5, 6, 7), 2)).place(Structure.tucker((4, 5, 6, 7), 2)).nodes
    assert math.hypot(*nodes[4]) < 0.01


def test_legs_keep_still_while_a_network_grows(grown):
    steps = [s.structure for s in grown.history]
    for layout in (choose_layout(steps), choose_layout(grown.structure)):
        first, *rest = [layout.place(s).nodes[:4] for s in steps]
        assert all(nodes == first for nodes in rest)


def test_on_a_line_edges_pass_above_the_legs_between():
    chain = Structure.tensor_train((3,) * 5, 2)
    step = Structure((3,) * 5, {(0, 1): 2, (0, 3): 4, (1, 5): 2, (3, 5): 2, (4, 5): 3})
    placed = choose_layout(chain).place(step)
    assert {y for _, y in placed.nodes[:5]} == {0.0}
    assert placed.nodes[5][1] > 0.6
    assert placed.controls[0, 1] == pytest.approx((-1.5, 0))
    assert placed.labels[0, 3][1] > 0.6


@st.composite
def graphs(draw):
    order = draw(st.integers(1, 7))
    count = order + draw(st.integers(0, 3))
    pairs = list(itertools.combinations(range(count), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return Structure((3,) * order, {e: draw(st.integers(2, 9)) for e in chosen}, num_nodes=count)


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_nodes_never_overlap_and_labels_lie_on_their_edges(structure):
    placed = choose_layout(structure).place(structure)
    assert len(placed.nodes) == len(placed.legs) == structure.num_nodes
    for (x, y), (u, v) in itertools.combinations(placed.nodes, 2):
        assert math.hypot(x - u, y - v) > 0.25
    assert set(placed.labels) == set(structure.edges)
    stops = np.linspace(0, 1, 201)
    for (i, j), label in placed.labels.items():
        curve = bezier(placed.nodes[i], placed.controls[i, j], placed.nodes[j], stops)
        assert np.linalg.norm(curve - label, axis=1)[20:-20].min() < 0.05
    assert all(math.hypot(*leg) == pytest.approx(1.0) for leg in placed.legs)


def test_wrong_layouts_are_refused():
    with pytest.raises(tg.OptionError, match="choose one of 'auto', 'line', 'circle'"):
        choose_layout(Structure.rank_one((2, 3)), "spiral")
    with pytest.raises(tg.StructureError, match="at least one"):
        choose_layout([])
    with pytest.raises(tg.StructureError, match="for 2 legs"):
        choose_layout(Structure.rank_one((2, 3))).place(Structure.rank_one((2, 3, 4)))
