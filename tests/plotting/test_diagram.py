from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow import Structure
from tests.plotting.conftest import gids

plt = pytest.importorskip("matplotlib.pyplot")


@pytest.mark.parametrize(
    "structure",
    [
        Structure.tensor_train((7,) * 5, (2, 3, 6, 5)),
        Structure.tensor_ring((4, 5, 6, 7), 3),
        Structure.tucker((5, 6, 7), (2, 3, 4)),
        Structure.hierarchical_tucker((4,) * 8, 3),
        Structure.rank_one((3,)),
        Structure((5, 1, 4), {(0, 1): 3, (1, 2): 2}),
        Structure((5, 1, 4), {(0, 3): 3, (1, 3): 2, (2, 3): 2}),
    ],
)
def test_a_drawing_has_every_part(structure):
    ax = tg.plotting.draw_network(structure)
    with_leg = {str(k) for k in range(structure.order)}
    assert gids(ax.lines, "edge") == {f"{i}-{j}" for i, j in structure.edges}
    assert gids(ax.lines, "leg") == gids(ax.patches, "node") == with_leg
    assert gids(ax.patches, "internal") == {str(k) for k in range(structure.order, structure.num_nodes)}
    written = sorted(t.get_text() for t in ax.texts)
    expected = [*map(str, range(structure.num_nodes)), *map(str, structure.dims)]
    assert written == sorted(expected + [str(r) for r in structure.ranks.values()])


def test_legs_carry_the_names_of_the_data():
    x = np.einsum("i,j,k->ijk", *(np.arange(1.0, n) for n in (4, 5, 6)))
    result = tg.decompose(x, max_error=0.1, names=("lon", "a $very$ long name", "t"), random_state=0)
    written = {t.get_text() for t in tg.plotting.draw_network(result).texts}
    assert {"lon\n3", r"a \$very\$ long…" + "\n4", "t\n5"} <= written
    ax = tg.plotting.draw_network(result.structure, names="abc")
    assert "a\n3" in {t.get_text() for t in ax.texts}
    ax.figure.canvas.draw()
    with pytest.raises(tg.OptionError, match="2 names are given, the network has 3 legs"):
        tg.plotting.draw_network(result, names=("a", "b"))


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
