from __future__ import annotations

from itertools import combinations

import numpy as np

from tensorgrow.contraction import whole_gram
from tensorgrow.structure import Structure
from tests.oracles import (
    TOLERANCE,
    as_arrays,
    assert_close,
    environment,
    matricize,
    pair_environment,
    pair_matricize,
    random_array,
    random_network,
    to_numpy,
)

# A cycle with a chord, an internal node with three bonds, an internal node without bonds, a leg of size 1.
MIXED = Structure(
    (3, 2, 1, 4), {(0, 1): 2, (1, 2): 3, (2, 3): 2, (0, 3): 2, (0, 4): 2, (1, 4): 2, (3, 4): 3}, num_nodes=6
)


LARGE = {
    "chain": Structure.tensor_train((2,) * 13, 2),
    "ring": Structure.tensor_ring((2,) * 12, (2, 3, 2, 2, 3, 2, 2, 2, 2, 3, 2, 2)),
    "tree": Structure.hierarchical_tucker((2, 3, 2, 2, 2, 2, 3), 2),
    "scattered": Structure(
        (2,) * 11,
        {(0, 7): 2, (7, 3): 2, (3, 10): 3, (1, 8): 2, (8, 11): 2, (5, 11): 2, (2, 11): 2, (4, 9): 2}
        | {(9, 12): 2, (0, 12): 2, (6, 12): 2, (10, 1): 2},
        num_nodes=13,
    ),
}


def random_target(structure, seed, dtype):
    return random_array(np.random.default_rng(seed), structure.dims, dtype)


def assert_normal_equations(structure, cores, node, target, gram, rhs, tolerance):
    """Gram and right-hand side of one node against its explicit environment matrix."""
    env = environment(structure, cores, node)
    size = env.shape[0]
    if structure.num_nodes == 1:
        assert gram is None
    else:
        assert tuple(gram.shape) == 2 * structure.core_shape(node)[1:]
        assert_close(to_numpy(gram).reshape(size, size), env @ env.conj().T, tolerance)
    assert tuple(rhs.shape) == structure.core_shape(node)
    unfolded = matricize(structure, target, node)
    scale = np.linalg.norm(unfolded) * np.linalg.norm(env)
    assert_close(
        to_numpy(rhs).reshape(structure.leg_dim(node), size), unfolded @ env.conj().T, tolerance, scale
    )


def sweep_with_random_updates(structure, compile_plan, use_numpy, dtype, seed=0):
    """Replace every core by a random one; each node must see the cores as they are by then."""
    rng = np.random.default_rng(seed)
    net = random_network(structure, seed, dtype)
    target = random_target(structure, seed + 1, dtype)
    plan = compile_plan(structure, net.is_complex)
    stored = target.reshape([structure.leg_dim(k) for k in range(structure.num_nodes)])
    stored = stored.permute(plan.leg_order).contiguous()
    assert tuple(stored.shape) == plan.shape
    current = list(net.cores)
    visited = []

    def update(node, gram, rhs):
        assert_normal_equations(structure, current, node, target, whole_gram(gram), rhs, TOLERANCE[dtype])
        visited.append(node)
        current[node] = random_array(rng, structure.core_shape(node), dtype)
        return current[node].numpy() if use_numpy else current[node]

    plan.run(stored.numpy() if use_numpy else stored, as_arrays(net, use_numpy), update)
    assert sorted(visited) == list(range(structure.num_nodes))
    assert tuple(visited) == plan.leg_order
    return visited


def all_pairs(structure):
    return list(combinations(range(structure.num_nodes), 2))


def expected_gradient(structure, cores, target, i, j):
    env = pair_environment(structure, cores, i, j)
    unfolded = pair_matricize(structure, target, i, j)
    gradient = np.einsum("xyr,abr->xayb", unfolded, env.conj())
    rows = unfolded.shape[0] * env.shape[0]
    return gradient.reshape(rows, -1), np.linalg.norm(unfolded) * np.linalg.norm(env)
