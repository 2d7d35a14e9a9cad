"""Other networks to start from where rank one is blind."""

from __future__ import annotations

from itertools import combinations

import torch

from tensorgrow import GreedyOptions, Structure, TensorNetwork
from tensorgrow.objectives import ObservedLeastSquares
from tensorgrow.search import Context, EdgePolicy, HeldOutProblem
from tensorgrow.search.blind import has_learned, starting_structures
from tensorgrow.search.grow import measure

DIMS = (5,) * 4
RING = ((0, 1), (1, 2), (2, 3), (0, 3))


def _problem(
    values: torch.Tensor | None = None, policy: EdgePolicy | None = None, **limits
) -> HeldOutProblem:
    where = torch.cartesian_prod(*(torch.arange(d) for d in DIMS))
    held_out = torch.arange(len(where)) % 4 == 0
    values = torch.zeros(len(where), dtype=torch.float64) if values is None else values
    return HeldOutProblem(
        ObservedLeastSquares(where, values, DIMS, held_out=held_out),
        GreedyOptions.for_completion("fast"),
        policy or EdgePolicy(None),
        Context(torch.Generator().manual_seed(0)),
        **limits,
    )


def _strengths(strong: tuple[tuple[int, int], ...]) -> dict[tuple[int, int], float]:
    return {e: 20.0 + e[0] if e in strong else 0.1 * e[1] for e in combinations(range(len(DIMS)), 2)}


def test_starts_go_along_the_pairs_that_interact():
    found = starting_structures(_problem(), _strengths(RING))
    assert set(found[0].edges) == set(RING)
    assert all(set(s.edges) <= set(RING) for s in found)
    assert {s.rank(*e) for s in found for e in s.edges} == {2, 3, 4}
    assert len(found) == 2 * len(set(found))  # each twice: the cores are random


def test_a_tree_joins_all_modes_where_few_pairs_interact():
    for structure in starting_structures(_problem(), _strengths(((0, 1), (2, 3)))):
        assert len(structure.edges) >= len(DIMS) - 1


def test_starts_stay_within_what_is_allowed():
    chain = EdgePolicy.parse("chain", len(DIMS))
    found = starting_structures(_problem(policy=chain), _strengths(RING))
    assert found and all(set(s.edges) == {(0, 1), (1, 2), (2, 3)} for s in found)
    most = Structure.tensor_train(DIMS, 2).num_parameters
    small = starting_structures(_problem(max_parameters=most), _strengths(RING))
    assert small and all(s.num_parameters <= most for s in small)
    assert starting_structures(_problem(memory_limit=1.0), _strengths(RING)) == []
    low = starting_structures(_problem(policy=EdgePolicy(None, max_degree=2)), _strengths(RING))
    assert low and all(max(map(len, s.neighbours)) <= 2 for s in low)


def test_a_network_has_learned_something_where_held_out_entries_agree():
    network = TensorNetwork.random(Structure.tensor_train(DIMS, 2), random_state=1)
    values = network.to_dense().flatten()
    noise = torch.randn(len(values), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for share, learned in ((3.0, True), (1.0, True), (0.0, False)):
        problem = _problem(share * values + float(values.std()) * noise)
        assert has_learned(problem.objective, measure(problem, network)) is learned


def test_a_gain_on_few_entries_counts_if_it_is_large():
    """Of eight entries one holds nearly everything: its gain alone has no standard error to speak of."""
    where = torch.arange(16)[:, None].repeat(1, 2)
    values = torch.full((16,), 0.1, dtype=torch.float64)
    values[0] = 10.0
    held_out = torch.arange(16) < 8
    objective = ObservedLeastSquares(where, values, (16, 16), held_out=held_out)
    structure = Structure((16, 16))
    network = TensorNetwork(structure, [values, torch.ones(16, dtype=torch.float64)])
    problem = HeldOutProblem(
        objective,
        GreedyOptions.for_completion("fast"),
        EdgePolicy(None),
        Context(torch.Generator().manual_seed(0)),
    )
    assert has_learned(objective, measure(problem, network))
