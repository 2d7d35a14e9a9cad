"""Moves of the search by gradients."""

from itertools import combinations

import torch

import tensorgrow as tg
from tensorgrow.search.gradient import choose_edges, grow_moments
from tensorgrow.structure import Structure

DOUBLE = torch.float64


def target(structure=None, seed=1):
    structure = structure or Structure((4,) * 4, {(0, 1): 2, (1, 2): 2, (2, 3): 2, (0, 3): 2})
    x = tg.TensorNetwork.random(structure, random_state=seed).to_dense()
    return x / x.square().mean().sqrt()


def test_moments_grow_with_the_cores():
    structure = Structure((2, 3, 4), {(0, 1): 2})
    shapes = structure.core_shapes
    moments = [
        {"exp_avg": torch.full(s, 1.0), "exp_avg_sq": torch.full(s, 4.0), "step": torch.tensor(7.0)}
        for s in shapes
    ]
    grown = grow_moments(structure, moments, 1, 2)
    after = structure.with_rank(1, 2, 2)
    for k, memory in enumerate(grown):
        assert tuple(memory["exp_avg"].shape) == after.core_shape(k)
        assert float(memory["step"]) == 7.0
        assert bool((memory["exp_avg_sq"] == 4.0).all())
    assert float(grown[2]["exp_avg"].sum()) == 4.0  # old ones, and zeros for the new slice
    assert float(moments[2]["exp_avg"].sum()) == 4.0 and tuple(moments[2]["exp_avg"].shape) == shapes[2]
    assert grow_moments(structure, [{}, {}, {}], 0, 1) == [{}, {}, {}]
    assert grow_moments(structure, [], 0, 1) == []


def test_only_new_slices_get_gradients_while_an_edge_is_tried():
    x = target()
    calls = []

    def loss(network):
        trained = frozenset(k for k, c in enumerate(network.cores) if c.requires_grad)
        calls.append((network.structure, trained, any(c.requires_grad and c.is_leaf for c in network.cores)))
        return ((network.to_dense() - x) ** 2).mean()

    init = tg.TensorNetwork.random(Structure.rank_one(x.shape), random_state=0)
    start = tg.learn(loss, x.shape, max_steps=0, init=init, dtype=DOUBLE, random_state=0)
    everything = frozenset(range(4))
    assert {trained for _, trained, leaves in calls if leaves} == {everything}
    calls.clear()
    tg.learn(loss, x.shape, max_steps=1, init=start.network, dtype=DOUBLE, random_state=0)
    tried = [(structure, trained) for structure, trained, leaves in calls if trained and not leaves]
    assert {structure.edges for structure, _ in tried} == {((i, j),) for i, j in combinations(range(4), 2)}
    for structure, trained in tried:  # no core is a leaf: slices are joined to frozen cores
        assert trained == set(structure.edges[0])


def tried(**scores):
    """Edges named by their two nodes, with scores."""
    return [((int(e[1]), int(e[2])), (torch.zeros(0), torch.zeros(0)), score) for e, score in scores.items()]


def chosen(scores, most_edges=9, most=None, flops=lambda structure: 1.0):
    found = choose_edges(Structure.rank_one((2,) * 8), tried(**scores), most_edges, most, flops)
    return [edge for edge, _ in found]


def test_edges_that_share_no_node_and_are_nearly_as_good_grow_together():
    scores = {"e01": 8.0, "e12": 7.0, "e23": 3.0, "e45": 1.9, "e67": -torch.inf}
    assert chosen(scores) == [(0, 1), (2, 3)]
    assert chosen(scores, most_edges=1) == [(0, 1)]
    assert chosen(scores, most=16 + 2 * 2) == [(0, 1)]
    assert chosen({"e01": -1.0, "e23": -2.0}) == [(0, 1)]
    assert chosen({"e01": -torch.inf}) == []


def test_what_an_edge_gains_is_weighed_against_the_longer_sweeps():
    def flops(structure):
        return 10.0 ** sum(edge == (0, 1) for edge in structure.ranks)

    assert chosen({"e01": 8.0, "e23": 1.0}, flops=flops) == [(2, 3)]  # and the first one not beside it
    assert chosen({"e01": 80.0, "e23": 1.0}, flops=flops) == [(0, 1)]
    assert chosen({"e01": 8.0}, flops=flops) == [(0, 1)]


def test_edges_that_grow_together_make_sweeps_at_most_twice_as_long():
    def flops(structure):
        return 1.3 ** len(structure.ranks)

    scores = {"e01": 8.0, "e23": 7.9, "e45": 7.8, "e67": 7.7}
    assert chosen(scores, flops=flops) == [(0, 1), (2, 3)]  # 1.3 ** 3 > 2
