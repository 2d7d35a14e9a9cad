from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensorgrow.contraction import Entries, RowTree, entries_needed
from tensorgrow.contraction.rows import sets as row_sets
from tensorgrow.structure import Structure
from tests.oracles import (
    TOLERANCE,
    assert_close,
    dense,
    environment,
    pair_environment,
    random_array,
    random_network,
    to_numpy,
)
from tests.strategies import networks, seeds, structures

# Which combinations of indices are computed: all of them, those that occur, or one row per entry.
JOINS = {
    "default": (4.0, 0.8),
    "dense": (math.inf, 0.8),
    "sparse": (0.0, 2.0),
    "entry by entry": (0.0, 0.0),
    "mixed": (0.3, 0.7),
}


any_joins = st.sampled_from(list(JOINS.values()))


@pytest.fixture(params=JOINS)
def joins(request):
    return JOINS[request.param]


class Joins:
    """Sets the two module constants; a context, because Hypothesis draws them."""

    def __init__(self, joins: tuple[float, float]) -> None:
        self.values = joins

    def __enter__(self) -> None:
        self.before = row_sets.DENSE_FACTOR, row_sets.ALL_DIFFERENT
        factor, different = self.values
        row_sets.DENSE_FACTOR = 1e12 if math.isinf(factor) else factor
        row_sets.ALL_DIFFERENT = different

    def __exit__(self, *_: object) -> None:
        row_sets.DENSE_FACTOR, row_sets.ALL_DIFFERENT = self.before


def some_entries(structure: Structure, seed: int, count: int | None = None) -> torch.Tensor:
    """Positions, in random order, some of them twice."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 40)) if count is None else count
    return torch.tensor(np.stack([rng.integers(0, d, count) for d in structure.dims], 1))


def node_legs(structure: Structure, indices: torch.Tensor) -> list[np.ndarray]:
    """Leg index of every node at every entry; 0 for internal ones."""
    zero = np.zeros(len(indices), dtype=int)
    return [indices[:, k].numpy() if k < structure.order else zero for k in range(structure.num_nodes)]


def expected_rows(network, node: int, indices: torch.Tensor) -> np.ndarray:
    structure = network.structure
    matrix = environment(structure, network.cores, node)
    others = [k for k in range(structure.num_nodes) if k != node]
    if not others:
        return np.ones((len(indices), 1))
    legs = node_legs(structure, indices)
    where = np.ravel_multi_index([legs[k] for k in others], [structure.leg_dim(k) for k in others])
    return matrix[:, where].T


def expected_pair_rows(network, node: int, other: int, piece, indices: torch.Tensor) -> np.ndarray:
    structure = network.structure
    tensor = pair_environment(structure, network.cores, node, other)
    legs = node_legs(structure, indices)
    rest = [k for k in range(structure.num_nodes) if k not in (node, other)]
    where = np.zeros(len(indices), dtype=int)
    if rest:
        where = np.ravel_multi_index([legs[k] for k in rest], [structure.leg_dim(k) for k in rest])
    flat = to_numpy(piece).reshape(structure.leg_dim(other), -1)
    return np.einsum("ijn,nj->ni", tensor[:, :, where], flat[legs[other]])


def in_order(source, found: torch.Tensor, edges, structure: Structure) -> np.ndarray:
    """Rows with their columns in the order of `edges`."""
    assert sorted(source.edges) == sorted(edges)
    sizes = [structure.ranks[e] for e in source.edges]
    moved = found.reshape(len(found), *sizes).permute(0, *(1 + source.edges.index(e) for e in edges))
    return to_numpy(moved.reshape(len(found), -1))


def tree_of(network, indices: torch.Tensor, *, keeps_layouts: bool = False) -> RowTree:
    entries = Entries(indices, network.structure.dims)
    return RowTree(entries, network.structure, network.cores, keeps_layouts=keeps_layouts)


def random_piece(structure: Structure, node: int, other: int, seed: int, dtype: torch.dtype) -> torch.Tensor:
    """A core without its edge to another one."""
    bonds = (structure.rank(node, k) for k in structure.neighbours[node] if k != other)
    return random_array(np.random.default_rng(seed), [structure.leg_dim(node), *bonds], dtype)


# -- against plain einsum ----------------------------------------------------------------------------------


@given(st.data())
def test_values_are_entries_of_the_dense_tensor(dtype, data):
    joins = data.draw(any_joins)
    network = data.draw(networks(dtype))
    indices = some_entries(network.structure, data.draw(seeds))
    budget = data.draw(st.sampled_from([1, 7, 1 << 20]))
    with Joins(joins):
        found = tree_of(network, indices).values(budget)
    expected = dense(network.structure, network.cores)
    assert found.dtype == dtype
    assert_close(found, expected[tuple(indices.T.numpy())], TOLERANCE[dtype], np.linalg.norm(expected))


@given(st.data())
def test_environments(dtype, data):
    joins = data.draw(any_joins)
    network = data.draw(networks(dtype))
    structure = network.structure
    indices = some_entries(structure, data.draw(seeds))
    chosen = torch.tensor(data.draw(st.lists(st.integers(0, len(indices) - 1), min_size=1, max_size=9)))
    with Joins(joins):
        tree = tree_of(network, indices)
        assert sorted(tree.order) == list(range(structure.num_nodes))
        for node in tree.order:
            source = tree.environment(node)
            assert source.width == structure.bond_product(node)
            assert source.dtype == dtype
            expected = expected_rows(network, node, indices)
            size = np.linalg.norm(environment(structure, network.cores, node))
            for picked in (torch.arange(len(indices)), chosen):
                found = in_order(source, source.rows(picked), tree.structure.edges_of(node), structure)
                assert_close(found, expected[picked.numpy()], TOLERANCE[dtype], size * math.sqrt(len(picked)))


@given(st.data())
def test_tables_are_what_rows_are_taken_from(data):
    joins = data.draw(any_joins)
    network = data.draw(networks(torch.float64))
    indices = some_entries(network.structure, data.draw(seeds))
    with Joins(joins):
        tree = tree_of(network, indices)
        for node in tree.order:
            source = tree.environment(node)
            table = source.table()
            if table is None:
                assert len(source.parts) == 2
                assert source.row_entries > source.width
                continue
            whole, ids = table
            everyone = source.rows(torch.arange(len(indices)))
            taken = whole.expand(len(indices), -1) if ids is None else whole[ids].reshape(len(indices), -1)
            torch.testing.assert_close(everyone, taken, rtol=0, atol=0)


@given(st.data())
def test_pair_environments(dtype, data):
    joins = data.draw(any_joins)
    network = data.draw(networks(dtype, kind=structures, min_nodes=2, min_order=1))
    structure = network.structure
    if structure.num_nodes < 2:
        return
    indices = some_entries(structure, data.draw(seeds))
    i = data.draw(st.integers(0, structure.num_nodes - 1))
    j = data.draw(st.integers(0, structure.num_nodes - 1).filter(lambda k: k != i))
    piece = random_piece(structure, j, i, data.draw(seeds), dtype)
    with Joins(joins):
        tree = tree_of(network, indices, keeps_layouts=data.draw(st.booleans()))
        tree.pair_environment(j, i, random_piece(structure, i, j, 0, dtype)).rows(torch.arange(len(indices)))
        tree.pair_environment(i, j, 2.0 * piece).rows(torch.arange(len(indices)))
        source = tree.pair_environment(i, j, piece)
        edges = [e for e in tree.structure.edges_of(i) if e != (min(i, j), max(i, j))]
        found = in_order(source, source.rows(torch.arange(len(indices))), edges, structure)
        size = np.linalg.norm(pair_environment(structure, network.cores, i, j)) * np.linalg.norm(piece)
        expected = expected_pair_rows(network, i, j, piece, indices)
        assert_close(found, expected, TOLERANCE[dtype], size * math.sqrt(len(indices)))
        # The partial contractions that it shared are still right.
        values = tree.values(1 << 20)
    true = dense(structure, network.cores)
    assert_close(values, true[tuple(indices.T.numpy())], TOLERANCE[dtype], np.linalg.norm(true))


@given(st.data())
def test_changed_cores_are_noticed(data):
    joins = data.draw(any_joins)
    network = data.draw(networks(torch.float64, min_order=2))
    structure = network.structure
    indices = some_entries(structure, data.draw(seeds))
    other = random_network(structure, data.draw(seeds))
    order = data.draw(st.permutations(range(structure.num_nodes)))
    with Joins(joins):
        tree = tree_of(network, indices)
        cores = list(network.cores)
        for node in order:
            tree.environment(node)  # everything is computed before it changes
            tree.values(1 << 20)
            cores[node] = other.cores[node]
            tree.set_core(node, cores[node])
            mixed = type(network)(structure, cores)
            for k in range(structure.num_nodes):
                source = tree.environment(k)
                every = torch.arange(len(indices))
                found = in_order(source, source.rows(every), structure.edges_of(k), structure)
                size = np.linalg.norm(environment(structure, cores, k)) * math.sqrt(len(indices))
                assert_close(found, expected_rows(mixed, k, indices), 1e-11, size)
        found = tree.values(1 << 20)
    true = dense(structure, cores)
    assert_close(found, true[tuple(indices.T.numpy())], 1e-11, np.linalg.norm(true))


# -- index tables ------------------------------------------------------------------------------------------

RING = Structure.tensor_ring((4, 5, 6, 3), 2)


def test_joins_have_the_promised_rows():
    indices = some_entries(RING, 0, 30)
    pairs = {tuple(p) for p in indices[:, :2].tolist()}
    for name, count in [("dense", 20), ("sparse", len(pairs)), ("entry by entry", 30)]:
        with Joins(JOINS[name]):
            entries = Entries(indices, RING.dims)
            joined = entries.join(entries.leaf(0), entries.leaf(1))
        assert joined.count == count
        assert (joined.left is None) is (name == "dense")
        ids = joined.ids
        assert ids.shape == (30,) and int(ids.max()) < count
        if joined.left is not None:  # the rows of both parts behind each row
            torch.testing.assert_close(joined.left[ids], indices[:, 0])
            torch.testing.assert_close(joined.right[ids], indices[:, 1])
        else:
            torch.testing.assert_close(ids, indices[:, 0] * 5 + indices[:, 1])


def test_joins_are_kept_and_forgotten(monkeypatch):
    monkeypatch.setattr(row_sets, "KEPT_JOINS", 2)
    monkeypatch.setattr(row_sets, "JOIN_BYTES", 0)
    entries = Entries(some_entries(RING, 1, 20), RING.dims)
    leaves = [entries.leaf(k) for k in range(4)]
    first = entries.join(leaves[0], leaves[1])
    assert entries.join(entries.leaf(0), entries.leaf(1)) is first
    entries.join(leaves[1], leaves[2])
    assert entries.join(leaves[0], leaves[1]) is first  # used again, so the other one is the oldest
    entries.join(leaves[2], leaves[3])
    assert entries.join(leaves[0], leaves[1]) is first
    entries.join(leaves[1], leaves[2])
    entries.join(leaves[2], leaves[3])
    assert entries.join(leaves[0], leaves[1]) is not first


@pytest.mark.parametrize("kept", [1, 3])
def test_forgotten_joins_change_nothing(kept, monkeypatch):
    monkeypatch.setattr(row_sets, "KEPT_JOINS", kept)
    monkeypatch.setattr(row_sets, "JOIN_BYTES", 0)
    network = random_network(RING, 0)
    indices = some_entries(RING, 2, 25)
    tree = tree_of(network, indices)
    for _ in range(2):
        for node in range(4):
            source = tree.environment(node)
            found = in_order(source, source.rows(torch.arange(25)), tree.structure.edges_of(node), RING)
            assert_close(found, expected_rows(network, node, indices), 1e-12)


def test_an_internal_node_has_one_row():
    entries = Entries(some_entries(RING, 0, 10), RING.dims)
    leaf = entries.leaf(4)
    assert leaf.count == 1 and leaf.ids is None and leaf.of(slice(0, 3)) is None
    joined = entries.join(entries.leaf(2), leaf)
    assert joined.count == 6 and joined.left is None
    torch.testing.assert_close(joined.ids, entries.columns[2])


def test_sources_of_the_same_entries_follow_each_other():
    """Scratch memory is shared: a source is valid until the next one, and the next one is right."""
    indices = some_entries(RING, 3, 50)
    networks = [random_network(RING, s) for s in (0, 1)]
    entries = Entries(indices, RING.dims)
    trees = [RowTree(entries, RING, n.cores) for n in networks]
    for _ in range(2):
        for node in range(4):
            for tree, network in zip(trees, networks):
                source = tree.environment(node)
                found = in_order(source, source.rows(torch.arange(50)), tree.structure.edges_of(node), RING)
                assert_close(found, expected_rows(network, node, indices), 1e-12)
    with_float = RowTree(entries, RING, [c.float() for c in networks[0].cores])
    source = with_float.environment(2)
    assert source.dtype == torch.float32
    found = in_order(source, source.rows(torch.arange(50)), RING.edges_of(2), RING)
    assert_close(found, expected_rows(networks[0], 2, indices), 1e-5)


# -- special networks --------------------------------------------------------------------------------------


def test_one_node(dtype, device):
    structure = Structure.rank_one((5,))
    network = random_network(structure, 0, dtype).to(device)
    indices = torch.tensor([[3], [0], [3]], device=device)
    tree = tree_of(network, indices)
    torch.testing.assert_close(tree.values(10), network.cores[0][[3, 0, 3]])
    source = tree.environment(0)
    assert source.edges == () and source.width == 1
    torch.testing.assert_close(source.rows(torch.arange(2, device=device)).cpu(), torch.ones(2, 1).to(dtype))


def test_one_entry(joins):
    network = random_network(Structure.tucker((3, 4, 5), 2), 0)
    indices = torch.tensor([[2, 3, 4]])
    with Joins(joins):
        tree = tree_of(network, indices)
        assert_close(tree.values(1), dense(network.structure, network.cores)[2:3, 3, 4], 1e-12)


@pytest.mark.parametrize("kind", ["train", "ring", "rank one", "hierarchical"])
@pytest.mark.parametrize("bounded", [n for n in JOINS if n != "dense"])
def test_sixty_legs(kind, bounded, device):
    dims = (2,) * 60
    structure = {
        "train": Structure.tensor_train(dims, 3),
        "ring": Structure.tensor_ring(dims, 2),
        "rank one": Structure.rank_one(dims),
        "hierarchical": Structure.hierarchical_tucker(dims, 2),
    }[kind]
    rng = np.random.default_rng(0)
    cores = [torch.tensor(rng.standard_normal(s) / math.sqrt(np.prod(s[1:]))) for s in structure.core_shapes]
    indices = some_entries(structure, 1, 12)

    def slices(k: int, n: int) -> np.ndarray:
        return cores[k].numpy()[int(indices[n, k]) if k < 60 else 0]

    labels = {e: 60 + k for k, e in enumerate(structure.edges)}
    expected = np.empty(12)
    for n in range(12):
        result, legs = np.ones(()), []
        for k in _walk(structure):  # node by node, so that no einsum has too many letters
            piece = slices(k, n)
            mine = [labels[min(k, j), max(k, j)] for j in structure.neighbours[k]]
            shared = [x for x in legs if x in mine]
            axes = [legs.index(x) for x in shared], [mine.index(x) for x in shared]
            result = np.tensordot(result, piece, axes)
            legs = [x for x in legs if x not in shared] + [x for x in mine if x not in shared]
        assert not legs
        expected[n] = result
    with Joins(JOINS[bounded]):
        entries = Entries(indices.to(device), dims)
        tree = RowTree(entries, structure, [c.to(device) for c in cores])
        assert_close(tree.values(1 << 20), expected, 1e-10, np.abs(expected).max() * math.sqrt(12))
        for node in (0, 31, structure.num_nodes - 1):
            source = tree.environment(node)
            order = [1 + structure.neighbours[node].index(j) for j in _others(source.edges, node)]
            own = torch.tensor(np.stack([slices(node, n) for n in range(12)])).permute(0, *order)
            rebuilt = (source.rows(torch.arange(12, device=device)).cpu() * own.reshape(12, -1)).sum(1)
            assert_close(rebuilt, expected, 1e-10, np.abs(expected).max() * math.sqrt(12))


def _walk(structure: Structure) -> list[int]:
    """Nodes by depth-first search, so that few edges are open at a time."""
    found: list[int] = []
    waiting = list(range(structure.num_nodes))
    while waiting:
        k = waiting.pop()
        if k not in found:
            found.append(k)
            waiting += [j for j in structure.neighbours[k] if j not in found]
    return found


def _others(edges, node: int) -> list[int]:
    return [a + b - node for a, b in edges]


def test_huge_legs_stay_small():
    """The rows held are bounded by the entries, not by products of dimensions."""
    dims = (10_000, 10_000, 1_000)
    structure = Structure.tensor_ring(dims, 2)
    indices = some_entries(structure, 0, 500)
    network = random_network(structure, 0)
    tree = tree_of(network, indices)
    for node in range(3):
        source = tree.environment(node)
        held = sum(math.prod(p.array.shape) for p in source.parts)
        assert held <= 4 * max(dims) * 4
        found = source.rows(torch.arange(500))
        i, j = (k for k in range(3) if k != node)
        a, b = (network.cores[k].numpy()[indices[:, k].numpy()] for k in (i, j))
        edges = {0: {1: "p", 2: "q"}, 1: {0: "p", 2: "r"}, 2: {0: "q", 1: "r"}}
        left = "n" + "".join(edges[i][k] for k in sorted(edges[i]))
        right = "n" + "".join(edges[j][k] for k in sorted(edges[j]))
        out = "n" + "".join(edges[node][k] for k in sorted(edges[node]))
        expected = np.einsum(f"{left},{right}->{out}", a, b).reshape(500, -1)
        assert_close(in_order(source, found, tree.structure.edges_of(node), structure), expected, 1e-12)


def test_needed_entries_bound_what_is_held():
    for structure in (RING, Structure.tucker((4, 5, 6), 3), Structure.tensor_train((3,) * 6, 2)):
        for count in (3, 40, 400):
            tree = tree_of(random_network(structure, 0), some_entries(structure, 0, count))
            for node in range(structure.num_nodes):
                tree.environment(node)
            held = sum(t.array.numel() for t in tree.held)
            assert 0 < held <= entries_needed(structure, count)


def test_given_tensors_are_not_modified(joins):
    network = random_network(RING, 0)
    indices = some_entries(RING, 0, 30)
    cores, given_indices = [c.clone() for c in network.cores], indices.clone()
    with Joins(joins):
        tree = tree_of(network, indices)
        for node in range(4):
            tree.environment(node).rows(torch.arange(30))
        tree.pair_environment(0, 2, torch.ones(6, 2, 2, dtype=torch.float64))
        tree.values(100)
    torch.testing.assert_close(indices, given_indices)
    for a, b in zip(network.cores, cores):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
