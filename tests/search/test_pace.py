from __future__ import annotations

import math

import numpy as np
import pytest

from tensorgrow import GreedyOptions, Structure
from tensorgrow import StopReason as Stop
from tensorgrow.search import pace
from tensorgrow.search.grow import priced_candidates
from tensorgrow.search.score import Candidate
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


class Costs:
    """An objective whose sweeps take some flops at rank one, and others elsewhere."""

    dims = (2, 2)

    def __init__(self, device: str, flops: float, at_rank_one: float = 0.0) -> None:
        self.device, self.flops, self.at_rank_one = device, flops, at_rank_one

    def sweep_flops(self, structure: Structure) -> float:
        return self.flops if structure.edges else self.at_rank_one


@pytest.mark.parametrize("device", ["cpu", "meta"])  # a device nobody measured counts as a CPU
@pytest.mark.parametrize(
    ("flops", "cheap", "costly", "slow", "ranks"),
    [
        (1e8 - 1, True, False, False, 1),
        (1e8, False, False, False, 1),
        (5e8, False, False, False, 1),
        (5e8 + 1, False, True, False, 3),
        (3e9, False, True, False, 3),
        (3e9 + 1, False, True, True, 3),
    ],
)
def test_a_core_does_ten_billion_flops_in_a_second(flops, device, cheap, costly, slow, ranks):
    structure, options = Structure((2, 2), {(0, 1): 18}), GreedyOptions()
    speed = pace.Pace(Costs(device, flops))
    assert speed.seconds(structure) == flops / 1e10
    assert speed.is_cheap(structure) == cheap
    assert speed.is_costly(structure) == speed.has_wide_cuts(structure) == costly
    assert speed.is_slow(structure) == slow and speed.is_selective(structure) == costly
    assert speed.increment(structure, (0, 1), options) == ranks
    assert speed.increment(structure, (0, 1), options.replace(rank_increment=4)) == 4
    assert not pace.Pace(Costs(device, flops, flops / 16)).has_wide_cuts(structure)


def test_a_gpu_scores_all_edges_for_longer():
    structure, options = Structure((2, 2), {(0, 1): 18}), GreedyOptions()
    for flops, selective, ranks in ((3e10, False, 1), (3e10 + 1, True, 1), (1e11 + 1, True, 3)):
        speed = pace.Pace(Costs("cuda", flops))
        assert speed.is_selective(structure) == selective
        assert speed.increment(structure, (0, 1), options) == ranks


class CostsOfRanks(Costs):
    """An objective whose sweeps take flops in proportion to the first rank."""

    def sweep_flops(self, structure: Structure) -> float:
        return self.flops * structure.rank(0, 1)


@pytest.mark.parametrize(("flops", "longer"), [(1e8, 1.0), (2e8, 6 / 5), (2.5e8, 3 / 2), (1e9, 3 / 2)])
def test_longer_sweeps_have_a_price_once_they_are_costly(flops, longer):
    structure = Structure((2, 2), {(0, 1): 2})
    price = pace.Pace(CostsOfRanks("cpu", flops)).price(structure, (0, 1))
    assert price == pytest.approx(pace.TIME_PRICE * structure.num_parameters * math.log(longer))


def test_the_cheaper_sweep_wins_among_equals(monkeypatch):
    search = make_search(noisy(), GROWTH, max_error=0.3)
    problem, structure = search.problem, Structure.tensor_ring(search.problem.objective.dims, 2)
    first, second, *_ = structure.edges
    monkeypatch.setattr(pace, "CHEAP", 0.0)
    prices = {first: 50.0, second: 0.0}
    monkeypatch.setattr(pace.Pace, "price", lambda self, structure, edge: prices[edge])
    slices = np.ones(2)
    best, other, worse = (
        Candidate(edge, slices, slices, 0.5, 10, 10.0, gain / 10.0, gain)
        for edge, gain in ((first, 0.2), (second, 0.19), ((0, 2), 0.01))
    )
    assert [c.edge for c in priced_candidates(problem, structure, [best, other, worse])] == [
        second,
        first,
        (0, 2),
    ]
