"""Templates by name and from pairs."""

from __future__ import annotations

from tensorgrow.baselines.templates import Point, make_template


def test_templates():
    dims = (2,) * 6
    edges = {
        n: set(make_template(n, dims, 3).edges) for n in ("chain", "ring", "tree", "lattice", "complete")
    }
    assert edges["ring"] - edges["chain"] == {(0, 5)}
    assert edges["tree"] == {(0, 1), (0, 2), (1, 3), (1, 4), (2, 5)}
    assert edges["lattice"] == {(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)}
    assert len(edges["complete"]) == 15
    assert not make_template("complete", dims, 3).permutes
    template = make_template([(0, 1), (2, 1)], (2, 3, 4), 3)
    structure = template.structure(Point((2, 3), (2, 0, 1)))
    assert dict(structure.ranks) == {(0, 2): 2, (0, 1): 3}
