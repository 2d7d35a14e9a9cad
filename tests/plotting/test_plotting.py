from __future__ import annotations

import dataclasses
import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorgrow as tg
from tensorgrow import Structure
from tensorgrow.plotting.layout import Layout, choose_layout
from tensorgrow.plotting.values import (
    ValueRange,
    as_image,
    as_rivals,
    evenly,
    main_growth,
    network_at,
    shape_text,
)

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

RIVALS = {"TT-SVD": [(60, 0.2), (90, 0.1)], "Tucker": (80, 0.3)}


@pytest.fixture(scope="module")
def picture():
    rows, columns = np.mgrid[0:16, 0:16] / 16
    return 0.5 + 0.4 * np.sin(5 * rows) * np.cos(4 * columns) * (rows > columns)


@pytest.fixture(scope="module")
def grown(picture):
    return tg.decompose(picture.reshape((4,) * 4), max_error=0.05, effort="fast", random_state=0)


@pytest.fixture(scope="module")
def completed():
    x = np.einsum(
        "ia,ajb,bk->ijk", *(np.random.default_rng(0).standard_normal(s) for s in ((8, 2), (2, 8, 2), (2, 8)))
    )
    known = np.random.default_rng(1).random(x.shape) < 0.6
    return tg.complete(x, known, truth=x, random_state=0, effort="fast")


@pytest.fixture(autouse=True)
def nothing_left_behind():
    before = dict(matplotlib.rcParams)
    yield
    plt.close("all")
    assert dict(matplotlib.rcParams) == before


def gids(artists, kind):
    return {
        a.get_gid().removeprefix(kind + " ") for a in artists if (a.get_gid() or "").startswith(kind + " ")
    }


# -- layouts -------------------------------------------------------------------------------------------


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
    layout = choose_layout(steps)
    first, *rest = [layout.place(s).nodes[:4] for s in steps]
    assert all(nodes == first for nodes in rest)


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
    assert all(0 < stop < 1 for stop in placed.labels.values())
    assert all(math.hypot(*leg) == pytest.approx(1.0) for leg in placed.legs)


def test_wrong_layouts_are_refused():
    with pytest.raises(tg.OptionError, match="'auto', 'line' or 'circle'"):
        choose_layout(Structure.rank_one((2, 3)), "spiral")
    with pytest.raises(tg.StructureError, match="at least one"):
        choose_layout([])
    with pytest.raises(tg.StructureError, match="for 2 legs"):
        choose_layout(Structure.rank_one((2, 3))).place(Structure.rank_one((2, 3, 4)))


# -- drawings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "structure",
    [
        Structure.tensor_train((7,) * 5, (2, 3, 6, 5)),
        Structure.tensor_ring((4, 5, 6, 7), 3),
        Structure.tucker((5, 6, 7), (2, 3, 4)),
        Structure.hierarchical_tucker((4,) * 8, 3),
        Structure.rank_one((3,)),
        Structure((5, 1, 4), {(0, 1): 3, (1, 2): 2}),
    ],
)
def test_a_drawing_has_every_part(structure):
    ax = tg.plotting.draw_network(structure)
    with_leg = {str(k) for k in range(structure.num_nodes) if structure.leg_dim(k) > 1}
    assert gids(ax.lines, "edge") == {f"{i}-{j}" for i, j in structure.edges}
    assert gids(ax.lines, "leg") == gids(ax.patches, "node") == with_leg
    assert gids(ax.patches, "internal") == {str(k) for k in structure.internal_nodes}
    written = sorted(t.get_text() for t in ax.texts)
    expected = [*map(str, range(structure.num_nodes)), *(str(structure.leg_dim(int(k))) for k in with_leg)]
    assert written == sorted(expected + [str(r) for r in structure.ranks.values()])


def test_wider_edges_for_larger_ranks_and_one_highlighted():
    ax = tg.plotting.draw_network(Structure.tensor_train((9,) * 4, (2, 4, 8)), highlight=(2, 1), labels=False)
    lines = {a.get_gid(): a for a in ax.lines}
    widths = [lines[f"edge {k}-{k + 1}"].get_linewidth() for k in range(3)]
    assert widths == sorted(widths)
    assert widths[0] < widths[2]
    colors = {k: lines[f"edge {k}-{k + 1}"].get_color() for k in range(3)}
    assert colors[0] == colors[2] != colors[1]
    assert not ax.texts


@pytest.mark.parametrize("make", [tg.Structure.tensor_train, tg.Structure.tensor_ring])
def test_new_figures_have_room_for_many_nodes(make):
    """Neighbours are about as far apart on paper however many there are."""

    def inches_between_nodes(count):
        ax = tg.plotting.draw_network(make((2,) * count, 2))
        first, second = (ax.transData.transform(p.get_center()) for p in ax.patches[:2])
        return float(np.hypot(*(second - first))) / ax.figure.dpi

    assert inches_between_nodes(30) > 0.3
    assert inches_between_nodes(3) < 1.5
    ax = tg.plotting.draw_network(make((2,) * 100, 2))
    assert max(ax.figure.get_size_inches()) <= 20


def test_it_draws_where_it_is_told(grown):
    _, (left, right) = plt.subplots(1, 2)
    assert tg.plotting.draw_network(grown, left) is left
    assert tg.plotting.draw_network(grown.network, left) is left
    assert tg.plotting.plot_errors(grown, right) is right
    assert len(plt.get_fignums()) == 1
    with pytest.raises(tg.OptionError, match="not list"):
        tg.plotting.draw_network([1, 2])


def test_error_curve_of_a_decomposition(grown):
    ax = tg.plotting.plot_errors(grown, rivals=RIVALS)
    labels = [line.get_label() for line in ax.lines]
    assert labels == ["growth", "result", "TT-SVD", "Tucker"]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == labels
    assert list(ax.lines[0].get_xdata()) == [s.num_parameters for s in grown.history]
    assert list(ax.lines[0].get_ydata()) == [s.relative_error for s in grown.history]
    assert ax.lines[1].get_xydata().tolist() == [[grown.num_parameters, grown.relative_error]]
    assert ax.lines[2].get_xydata().tolist() == [[60, 0.2], [90, 0.1]]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("parameters", "relative error")


def test_error_curve_of_a_completion(completed):
    ax = tg.plotting.plot_errors(completed)
    assert [line.get_label() for line in ax.lines][:2] == ["fitted data", "held-out data"]
    assert ax.lines[-1].get_label() == "test data"
    held_out = [s for s in completed.history if s.validation_error is not None]
    assert list(ax.lines[1].get_ydata()) == [s.validation_error for s in held_out]


def test_losses_below_zero_get_a_linear_axis(grown):
    steps = tuple(dataclasses.replace(s, relative_error=s.relative_error - 1) for s in grown.history)
    lower = dataclasses.replace(grown, history=steps, relative_error=-0.9, info={"training": {}})
    ax = tg.plotting.plot_errors(lower)
    assert (ax.get_yscale(), ax.get_ylabel()) == ("linear", "loss")


def test_rank_map(grown):
    ax = tg.plotting.plot_ranks(grown)
    shown = ax.images[0].get_array()
    assert shown.shape == (grown.structure.num_nodes,) * 2
    for i, j in itertools.combinations(range(grown.structure.num_nodes), 2):
        rank = grown.structure.rank(i, j)
        assert (np.ma.is_masked(shown[i, j]) or np.isnan(shown[i, j])) if rank == 1 else shown[i, j] == rank
    assert sorted(t.get_text() for t in ax.texts) == sorted(
        2 * [str(r) for r in grown.structure.ranks.values()]
    )


def test_result_plot(grown):
    left, right = grown.plot(rivals=RIVALS)
    assert gids(left.lines, "edge") == {f"{i}-{j}" for i, j in grown.structure.edges}
    assert right.get_ylabel() == "relative error"
    assert left.figure is right.figure


def test_image_panels(grown, picture):
    x = picture.reshape((4,) * 4)
    observed = np.ma.masked_array(x, mask=x > 0.6)
    axes = tg.plotting.plot_images(grown, (16, 16), truth=x, observed=observed)
    assert [a.get_title() for a in axes] == ["original", "observed", "reconstruction", "difference"]
    dense = grown.network.to_dense().numpy().reshape(16, 16)
    np.testing.assert_allclose(axes[0].images[0].get_array(), picture)
    np.testing.assert_allclose(axes[1].images[0].get_array(), np.where(picture > 0.6, 0, picture))
    np.testing.assert_allclose(axes[2].images[0].get_array(), np.clip(dense, 0, 1))
    np.testing.assert_allclose(axes[3].images[0].get_array(), np.abs(np.clip(dense, 0, 1) - picture))
    only = tg.plotting.plot_images(grown.network, lambda d: d.reshape(16, 16).T)
    np.testing.assert_allclose(only[0].images[0].get_array(), np.clip(dense.T, 0, 1))
    with pytest.raises(tg.DataError, match="original picture"):
        tg.plotting.plot_images(grown, lambda d: d.reshape(16, -1), truth=np.zeros((4, 4, 4)))


# -- films ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["gif", "webp"])
def test_film(grown, tmp_path, suffix):
    from PIL import Image

    path = tg.plotting.growth_film(
        grown, tmp_path / f"film.{suffix}", image=(16, 16), max_frames=4, seconds=2, dpi=40
    )
    with Image.open(path) as film:
        assert film.n_frames == 4
        assert film.info["loop"] == 0
        frames = []
        for k in range(4):
            film.seek(k)
            frames.append(np.asarray(film.convert("RGB"), dtype=float))
    assert all(np.abs(a - b).max() > 50 for a, b in itertools.pairwise(frames))
    assert plt.get_fignums() == []


def test_film_as_a_page(grown, tmp_path):
    text = tg.plotting.growth_film(grown, tmp_path / "film.html", max_frames=3, dpi=40).read_text()
    assert text.count("data:image/webp;base64,") == 3
    assert "Content-Security-Policy" in text
    assert not re.search(r"https?:", text)


def test_what_cannot_be_filmed(grown, tmp_path):
    with pytest.raises(tg.OptionError, match=r"\.gif, \.webp or \.html"):
        tg.plotting.growth_film(grown, tmp_path / "film.mp4")
    with pytest.raises(tg.OptionError, match="max_frames=0"):
        tg.plotting.growth_film(grown, tmp_path / "film.gif", max_frames=0)
    with pytest.raises(tg.OptionError, match="no history"):
        tg.plotting.growth_film(dataclasses.replace(grown, history=()), tmp_path / "film.gif")


# -- values --------------------------------------------------------------------------------------------


def test_rivals_are_checked():
    assert as_rivals({"a": (2, 0.5), "b": [(3, 1), (1, 2)]}) == {
        "a": [(2.0, 0.5)],
        "b": [(1.0, 2.0), (3.0, 1.0)],
    }
    assert as_rivals(None) == {}
    for bad in (3, (1, 2, 3), [(1, math.nan)], "text", [[(1, 2)]], []):
        with pytest.raises(tg.OptionError, match=r"rivals\['x'\]"):
            as_rivals({"x": bad})
    with pytest.raises(tg.OptionError, match="mapping"):
        as_rivals([("x", 1)])


def test_images_are_checked():
    x = np.arange(24.0)
    assert as_image(x, (4, 6)).shape == (4, 6)
    assert as_image(x, (2, 4, 3)).shape == (2, 4, 3)
    assert as_image(x, (4, 6, 1)).shape == (4, 6)
    assert as_image(1j * x, (4, 6)).tolist() == x.reshape(4, 6).tolist()
    with pytest.raises(tg.DataError, match="25 entries, the tensor 24"):
        as_image(x, (5, 5))
    with pytest.raises(tg.DataError, match="height, width"):
        as_image(x, (2, 3, 4, 1))
    with pytest.raises(tg.DataError, match="height, width"):
        as_image(x, lambda d: d)


def test_black_and_white():
    ramp = np.linspace(0, 1, 100).reshape(10, 10)
    assert ValueRange.of(ramp) == ValueRange(0.0, 1.0)
    assert ValueRange.of(255 * ramp) == ValueRange(0.0, 255.0)
    assert ValueRange.of(np.full((3, 3), np.nan)) == ValueRange(0.0, 1.0)
    wide = ValueRange.of(1e6 * ramp - 3)
    assert wide.to_unit(1e6 * ramp - 3).min() == 0.0
    assert ValueRange.of(np.zeros((3, 3))).to_unit(np.zeros((3, 3))).tolist() == [[0.0] * 3] * 3


def test_shapes_in_words():
    assert shape_text((4,) * 8 + (3,)) == "4⁸×3"
    assert shape_text((7, 7, 12)) == "7×7×12"
    assert shape_text((2,) * 12) == "2¹²"


@given(st.integers(1, 300), st.integers(2, 50))
def test_thinning_keeps_the_ends(count, most):
    kept = evenly(range(count), most)
    assert len(kept) == min(count, most)
    assert (kept[0], kept[-1]) == (0, count - 1)
    assert kept == sorted(set(kept))


def test_the_network_of_a_step(grown):
    last = grown.history[-1]
    assert network_at(grown, last).network is grown.network
    for step in grown.history:
        point = network_at(grown, step)
        assert point.num_parameters <= step.num_parameters
        assert (
            point.relative_error <= step.relative_error * (1 + 1e-6)
            or point.num_parameters < step.num_parameters
        )


def test_the_growth_that_led_to_the_result(grown):
    begin, *_, end = grown.history
    worse = dataclasses.replace(end, relative_error=2 * end.relative_error, start=1, index=len(grown.history))
    two = dataclasses.replace(grown, history=(*grown.history, dataclasses.replace(begin, start=1), worse))
    assert main_growth(two) == 0
    assert main_growth(dataclasses.replace(two, relative_error=worse.relative_error)) == 1
    assert main_growth(dataclasses.replace(grown, history=())) == 0


def test_a_missing_matplotlib_is_named(grown, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(tg.MissingPackageError, match=r"tensorgrow\[plot\]"):
        tg.plotting.draw_network(grown)
    with pytest.raises(tg.MissingPackageError, match=r"tensorgrow\[plot\]"):
        tg.plotting.growth_film(grown, "film.gif")
