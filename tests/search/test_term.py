from __future__ import annotations

import numpy as np
import pytest

from tensorgrow import GreedyOptions
from tensorgrow import StopReason as Stop
from tests.oracles import dense
from tests.search.factories import make_search


def superdiagonal(size: int, order: int) -> np.ndarray:
    """After the first term no single edge can add anything: all other cores vanish where the rest is."""
    x = np.zeros((size,) * order)
    for k in range(size):
        x[(k,) * order] = 1.0 + 0.1 * k
    return x


@pytest.mark.parametrize(("size", "order"), [(3, 3), (4, 4), (2, 7)])
@pytest.mark.parametrize("error", [0.3, 1e-6])
def test_what_no_edge_can_begin_is_begun_by_a_term(size, order, error):
    x = superdiagonal(size, order)
    search = make_search(x, GreedyOptions(), max_error=error)
    list(search)
    assert search.state.stop is Stop.TARGET_REACHED
    network = search.answer.network
    assert np.linalg.norm(dense(network.structure, network.cores) - x) <= error * np.linalg.norm(x)
    assert any(s.kind == "term" and s.edge is None for s in search.state.steps)


def test_terms_respect_limits():
    x = superdiagonal(3, 4)
    stuck = {"max_error": 0.3, "split_nodes": False}
    for options, limits in (
        (GreedyOptions(terms=False), {}),
        (GreedyOptions(max_degree=1), {}),
        (GreedyOptions(), {"max_parameters": 20}),
        (GreedyOptions(), {"edges": [(0, 1), (2, 3)]}),
    ):
        search = make_search(x, options, **stuck, **limits)
        steps = list(search)
        assert search.state.stop in (Stop.NO_PROGRESS, Stop.MAX_PARAMETERS)
        assert all(s.num_parameters <= 20 for s in steps)
