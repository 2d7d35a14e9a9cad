"""Networks from chosen points: a part of a grid, cross approximations, and the search."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
import torch

from tensorgrow import StopReason as Stop
from tensorgrow import Structure, TensorNetwork
from tensorgrow.data.evaluations import Evaluations
from tensorgrow.network import as_generator
from tensorgrow.search import Context, CrossProblem, CrossSearch, GreedyOptions, Limits, run
from tensorgrow.search.skeleton import Skeleton
from tensorgrow.search.sub_grid import SubGrid, all_points, spread
from tensorgrow.search.trees import TreeNode, linked_tree

SHAPE = (6, 5, 6, 5)
TREE = {0b1111: TreeNode(0, (0b1110,)), 0b1110: TreeNode(1, (0b1100,))}
TREE |= {0b1100: TreeNode(None, (0b0100, 0b1000)), 0b0100: TreeNode(2, ()), 0b1000: TreeNode(3, ())}


def evaluations_of(network: TensorNetwork, **more) -> Evaluations:
    return Evaluations(lambda i: network.entries(torch.from_numpy(i)).numpy(), network.structure.dims, **more)


def planted(structure: Structure, seed: int = 0) -> TensorNetwork:
    return TensorNetwork.random(structure, random_state=seed)


def search_for(network: TensorNetwork, max_error=1e-6, **more) -> CrossSearch:
    problem = CrossProblem(
        evaluations_of(network), GreedyOptions.for_effort("fast"), Context(as_generator(0)), max_error, **more
    )
    return CrossSearch(problem, Limits(max_error=max_error))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_a_skeleton_of_the_right_ranks_is_exact(dtype):
    network = TensorNetwork.random(Structure.tensor_train(SHAPE, 2), random_state=1, dtype=dtype)
    known = evaluations_of(network)
    points = torch.stack([torch.randint(n, (6,), generator=as_generator(0)) for n in SHAPE], 1)
    skeleton = Skeleton.of(TREE).grow(points[:1], known, 1e-9).grow(points, known, 1e-9)
    assert skeleton.ranks == {0b1110: 2, 0b1100: 2, 0b0100: 4, 0b1000: 2}
    found = skeleton.network(known)
    assert skeleton.cost(SHAPE) == found.num_parameters
    assert torch.allclose(found.to_dense(), network.to_dense())


def test_pivots_from_a_part_on_which_all_is_known():
    network = planted(Structure.tensor_train(SHAPE, 2))
    known = evaluations_of(network)
    points = all_points(((0, 3), (1, 4), (5, 2), (0, 1)))
    values = known.at(points)
    count = len(known)
    skeleton = Skeleton.of(TREE).spanned(points, values, 1e-9)
    assert len(known) == count  # nothing else was evaluated
    assert torch.allclose(skeleton.network(known).entries(points.reshape(-1, 4)), values.flatten())


def test_a_part_is_extended_where_it_is_large_enough():
    structure = Structure.tensor_ring((6,) * 5, 2)
    network = planted(structure)
    pivots = ((0, 2, 4),) * 5
    points = all_points(pivots)
    part = SubGrid(evaluations_of(network), pivots, 1e-6)
    small = TensorNetwork(Structure.tensor_ring((3,) * 5, 2), [c[[0, 2, 4]] for c in network.cores])
    assert torch.allclose(part.values, small.to_dense())
    wide = part.extend(small)
    assert wide is not None and wide.structure == structure
    assert torch.allclose(wide.to_dense(), network.to_dense())
    assert len(part.evaluations) < points[..., 0].numel() + 5 * 6 * 5
    triangle = planted(Structure.tensor_ring((6,) * 3, 3))
    part = SubGrid(evaluations_of(triangle), ((0, 1),) * 3, 1e-6)
    assert part.extend(planted(Structure.tensor_ring((2,) * 3, 2))) is None


def test_points_of_a_part_differ():
    assert spread(torch.tensor([1.0, 5.0, 1.0, 5.0, 3.0]), 0, 3) == (0, 1, 4)
    assert spread(torch.tensor([1.0, 2.0]), 1, 3) == (1, 0)


def test_a_tree_joins_near_axes_first():
    apart = torch.ones(4, 4)
    apart[0, 2] = apart[2, 0] = apart[1, 3] = apart[3, 1] = 0.0
    nodes = linked_tree(apart)
    assert nodes[0b0101] == TreeNode(None, (0b0001, 0b0100))
    assert nodes[0b1111].children == (0b0101, 0b1010)


@pytest.mark.parametrize(
    "structure",
    [
        Structure.tensor_train((7,) * 5, 2),
        Structure.tensor_ring((7,) * 5, 2),
        Structure((6,) * 6, dict.fromkeys(((0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)), 2)),
    ],
    ids=["train", "ring", "two triangles"],
)
def test_planted_networks_are_found_from_a_few_points(structure):
    network = planted(structure, 3)
    search = search_for(network)
    run(search, [])
    assert search.state.stop is Stop.TARGET_REACHED
    dense = network.to_dense()
    error = torch.linalg.vector_norm(search.answer.network.to_dense() - dense) / torch.linalg.vector_norm(
        dense
    )
    assert float(error) <= 1e-6
    assert len(search.evaluations) < 0.1 * math.prod(structure.dims)
    assert len(search.state.counts) == len(search.state.steps)
    assert search.state.counts[-1] <= len(search.evaluations)


def test_more_axes_than_a_part_can_have():
    order = torch.randperm(12, generator=as_generator(1)).numpy()

    def chain(index: np.ndarray) -> np.ndarray:
        x = index[:, order] / 2.0 - 1.0
        return np.sum((x[:, 1:] - x[:, :-1] ** 2) ** 2, 1)

    known = Evaluations(chain, (5,) * 12)
    problem = CrossProblem(known, GreedyOptions.for_effort("fast"), Context(as_generator(0)), 1e-6)
    search = CrossSearch(problem, Limits(max_error=1e-6))
    run(search, [])
    assert search.state.stop is Stop.TARGET_REACHED
    points = np.random.default_rng(0).integers(0, 5, (500, 12))
    assert np.allclose(search.answer.network.entries(points).numpy(), chain(points))
    assert len(known) < 5000


def test_memory_ends_a_run_that_grows_beyond_it():
    network = planted(Structure.tensor_ring((6,) * 4, 4))
    search = search_for(network, memory_limit=1e5)
    run(search, [])
    assert search.state.stop is Stop.MEMORY_LIMIT
    assert search.has_answer


def test_time_that_ends_while_the_part_of_the_grid_is_evaluated():
    network = planted(Structure.tensor_ring(SHAPE, 3))
    search = search_for(network)

    def slow(points):
        if search.state.phase == "grid":
            search.context.deadline = time.perf_counter() - 0.1
        return network.entries(torch.from_numpy(points)).numpy()

    search.evaluations.function = slow
    run(search, [])
    assert search.answer is not None
