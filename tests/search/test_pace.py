from __future__ import annotations

from tensorgrow import StopReason as Stop
from tensorgrow import Structure
from tensorgrow.search import pace
from tests.oracles import dense, random_network
from tests.search.factories import GROWTH, make_search, noisy


def test_much_data_says_nothing_about_the_topology(monkeypatch):
    """Sweeps that are costly because the tensor is large leave all edges to choose from."""
    x = noisy((12, 12, 12), level=0.02)
    plain = [(s.kind, s.edge) for s in make_search(x, GROWTH, max_error=0.05)]
    monkeypatch.setattr(pace, "COSTLY", 0.0)
    search = make_search(x, GROWTH, max_error=0.05)
    assert [(s.kind, s.edge) for s in search] == plain
    assert search.state.stop is Stop.TARGET_REACHED
    assert len({edge for kind, edge in plain if kind == "grow"}) > 1


STRONG = Structure((4, 4, 4, 3), {(0, 2): 3, (1, 3): 2})


def test_costly_networks_get_new_edges_where_the_old_ones_do_not_help(monkeypatch):
    monkeypatch.setattr(pace, "COSTLY", 0.0)
    monkeypatch.setattr(pace, "WIDE_CUTS", 0)
    x = dense(STRONG, random_network(STRONG, 3).cores)
    search = make_search(x, GROWTH, max_error=1e-3)
    grown = [s.edge for s in search if s.kind == "grow"]
    assert search.state.stop is Stop.TARGET_REACHED
    assert grown in (
        [(0, 2), (0, 2), (1, 3)],
        [(1, 3), (0, 2), (0, 2)],
    )  # one edge to its end, then the other
