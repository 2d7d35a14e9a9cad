from __future__ import annotations

import math
from contextlib import contextmanager
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tensorgrow.contraction.pairs as contraction_pairs
import tensorgrow.contraction.program as contraction_program
import tensorgrow.objectives.dense as objective_dense
import tensorgrow.objectives.dense_slices as objective_pairs
from tensorgrow.algebra import linalg
from tensorgrow.algebra.linalg import is_single, solve_normal
from tensorgrow.contraction import dense_plan, gram_plan, inner_plan, pair_plan, paths, sweep_plan
from tensorgrow.contraction.dimension_tree import ALL_SUBSETS_UP_TO, best_tree, leaves, star
from tensorgrow.contraction.paths import find_path, size_class
from tensorgrow.contraction.program import MATMUL, SELF
from tensorgrow.contraction.strided import product_by_runs, runs_of
from tensorgrow.contraction.sweeps import EnvironmentBuilder, _compile_sweep
from tensorgrow.objectives import DenseLeastSquares
from tensorgrow.structure import Structure
from tests.oracles import (
    TOLERANCE,
    added_by_slices,
    as_arrays,
    assert_close,
    best_core,
    dense,
    environment,
    matricize,
    pair_environment,
    pair_matricize,
    random_array,
    random_network,
    to_numpy,
)
from tests.strategies import networks, seeds, structures, trees

DOUBLES = st.sampled_from([torch.float64, torch.complex128])

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


@pytest.fixture(params=list(LARGE))
def large(request):
    return LARGE[request.param]


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


# -- the dense tensor --------------------------------------------------------------------------------------


@given(st.data())
def test_dense_is_einsum(use_numpy, dtype, data):
    net = data.draw(networks(dtype))
    plan = dense_plan(net.structure, net.is_complex)
    result = plan.run(as_arrays(net, use_numpy), net.structure.dims)
    assert isinstance(result, np.ndarray if use_numpy else torch.Tensor)
    assert_close(result, dense(net.structure, net.cores), TOLERANCE[dtype])


def test_dense_of_large_networks(large, use_numpy, double):
    net = random_network(large, 0, double)
    result = dense_plan(large, net.is_complex).run(as_arrays(net, use_numpy), large.dims)
    assert_close(result, dense(large, net.cores), 1e-11)


def test_dense_on_the_device(dtype, device):
    net = random_network(MIXED, 1, dtype)
    result = dense_plan(MIXED, net.is_complex).run(list(net.to(device).cores), MIXED.dims)
    assert result.device.type == device
    assert result.dtype == dtype
    assert_close(result, dense(MIXED, net.cores), TOLERANCE[dtype])


# -- inner products and Grams ------------------------------------------------------------------------------


@given(st.data())
def test_inner_is_the_inner_product_of_the_dense_tensors(use_numpy, double, data):
    a = data.draw(networks(double))
    other = data.draw(structures(min_order=a.structure.order, max_order=a.structure.order))
    b = random_network(Structure(a.structure.dims, other.ranks, num_nodes=other.num_nodes), 7, double)
    plan = inner_plan(a.structure, b.structure, a.is_complex)
    conjugated = [c.conj().resolve_conj() for c in a.cores]
    left = [c.numpy() for c in conjugated] if use_numpy else conjugated
    value = to_numpy(plan.run(left, as_arrays(b, use_numpy))).reshape(())
    x, y = dense(a.structure, a.cores), dense(b.structure, b.cores)
    assert_close(value, np.vdot(x, y), 1e-11, scale=np.linalg.norm(x) * np.linalg.norm(y))


@given(st.data())
def test_gram_is_that_of_the_environment(use_numpy, double, data):
    net = data.draw(networks(double, min_nodes=2))
    node = data.draw(st.integers(0, net.structure.num_nodes - 1))
    gram = gram_plan(net.structure, node, net.is_complex).run(as_arrays(net, use_numpy))
    env = environment(net.structure, net.cores, node)
    assert tuple(gram.shape) == 2 * net.structure.core_shape(node)[1:]
    assert_close(to_numpy(gram).reshape(2 * env.shape[:1]), env @ env.conj().T, 1e-11)


def test_gram_of_large_networks(large, use_numpy, double):
    net = random_network(large, 2, double)
    for node in (0, large.num_nodes // 2, large.num_nodes - 1):
        gram = gram_plan(large, node, net.is_complex).run(as_arrays(net, use_numpy))
        env = environment(large, net.cores, node)
        assert_close(to_numpy(gram).reshape(2 * env.shape[:1]), env @ env.conj().T, 1e-11)


@pytest.mark.parametrize("recipe", ["_absorb_in_groups", "_absorb_joined"])
def test_both_ways_to_absorb_a_gram_agree_with_the_environment(recipe, large, double):
    net = random_network(large, 3, double)
    builder = EnvironmentBuilder(large, is_complex=net.is_complex)
    node = 3
    first = tuple(k for k in range(7, large.num_nodes))
    second = tuple(k for k in range(7) if k != node)
    assert len(builder._groups(None, second)) > 1
    gram = getattr(builder, recipe)(getattr(builder, recipe)(None, first), second)
    bonds = builder.legs.bonds[node]
    result = builder.program.arrange(gram, (*bonds, *builder.legs.bra(bonds)))
    program = builder.program.finish([result])
    slots = program.run(dict(zip(builder.cores, net.cores)))
    env = environment(large, net.cores, node)
    value = to_numpy(program.value(slots, result)).reshape(2 * env.shape[:1])
    assert_close(value, env @ env.conj().T, 1e-11)


# -- sweeps ------------------------------------------------------------------------------------------------


@given(st.data())
def test_normal_equations_are_those_of_the_environment_matrix(use_numpy, dtype, data):
    net = data.draw(networks(dtype))
    structure = net.structure
    target = random_target(structure, data.draw(seeds), dtype)
    node = data.draw(st.integers(0, structure.num_nodes - 1))
    found = DenseLeastSquares(target, use_numpy=use_numpy).normal_equations(net, node)
    assert_normal_equations(structure, net.cores, node, target, *found, TOLERANCE[dtype])


@given(st.data())
def test_normal_equations_solve_to_what_lstsq_finds(use_numpy, double, data):
    net = data.draw(networks(double))
    structure = net.structure
    target = random_target(structure, data.draw(seeds), double)
    node = data.draw(st.integers(0, structure.num_nodes - 1))
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    core, explained = solve_normal(*objective.normal_equations(net, node), 1e-14)
    env = environment(structure, net.cores, node)
    wanted = best_core(structure, net.cores, node, target).reshape(structure.leg_dim(node), -1)
    fitted = to_numpy(core).reshape(wanted.shape) @ env
    norm = np.linalg.norm(to_numpy(target))
    assert_close(fitted, wanted @ env, 1e-6, scale=norm)
    assert explained == pytest.approx(np.linalg.norm(wanted @ env) ** 2, abs=1e-9 * norm**2)


def sweep_with_random_updates(structure, compile_plan, use_numpy, dtype, seed=0):
    """Replace every core by a random one; each node must see the cores as they are by then."""
    rng = np.random.default_rng(seed)
    net = random_network(structure, seed, dtype)
    target = random_target(structure, seed + 1, dtype)
    plan = compile_plan(structure, net.is_complex)
    stored = target.reshape([structure.leg_dim(k) for k in range(structure.num_nodes)])
    stored = stored.permute(plan.leg_order).contiguous()
    assert tuple(stored.shape) == plan.target_shape
    current = list(net.cores)
    visited = []

    def update(node, gram, rhs):
        assert_normal_equations(structure, current, node, target, gram, rhs, TOLERANCE[dtype])
        visited.append(node)
        current[node] = random_array(rng, structure.core_shape(node), dtype)
        return current[node].numpy() if use_numpy else current[node]

    plan.run(stored.numpy() if use_numpy else stored, as_arrays(net, use_numpy), update)
    assert sorted(visited) == list(range(structure.num_nodes))
    assert tuple(visited) == plan.leg_order
    return visited


@given(structures(), seeds)
def test_a_sweep_sees_updated_cores(use_numpy, double, structure, seed):
    sweep_with_random_updates(structure, sweep_plan, use_numpy, double, seed)


@settings(max_examples=15)
@given(structures(min_order=3), seeds, st.booleans())
def test_sweeps_are_right_for_any_tree(use_numpy, double, structure, seed, shared):
    tree = best_tree(structure) if shared else star(structure.num_nodes)
    sweep_with_random_updates(
        structure, lambda s, is_complex: _compile_sweep(s, is_complex, tree), use_numpy, double, seed
    )


@settings(max_examples=15)
@given(st.data())
def test_sweeps_are_right_for_unbalanced_trees(data):
    structure = data.draw(structures(min_order=3))
    order = data.draw(st.permutations(range(structure.num_nodes)))
    tree = order[0]
    for k in order[1:]:
        tree = (tree, k) if data.draw(st.booleans()) else (k, tree)
    sweep_with_random_updates(structure, lambda s, c: _compile_sweep(s, c, tree), True, torch.complex128)


def test_sweeps_of_large_networks(large, use_numpy, double):
    assert large.num_nodes > ALL_SUBSETS_UP_TO
    sweep_with_random_updates(large, sweep_plan, use_numpy, double)


def test_sweep_on_the_device(dtype, device):
    net = random_network(MIXED, 4, dtype)
    target = random_target(MIXED, 5, dtype)
    objective = DenseLeastSquares(target.to(device))
    for node in range(MIXED.num_nodes):
        gram, rhs = objective.normal_equations(net.to(device), node)
        assert_normal_equations(MIXED, net.cores, node, target, gram, rhs, TOLERANCE[dtype])


def test_one_objective_serves_structures_that_want_other_axis_orders(use_numpy):
    paths_through = [(0, 1, 2, 3, 4), (2, 0, 4, 1, 3), (3, 2, 4, 0, 1), (0, 1, 2, 3, 4)]
    chains = [Structure((2, 3, 4, 3, 2), dict.fromkeys(pairwise(p), 2)) for p in paths_through]
    assert len({sweep_plan(s, False).leg_order for s in chains}) > 1
    target = random_target(chains[0], 0, torch.float64)
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    for structure in chains:
        net = random_network(structure, 1)
        for node in range(5):
            found = objective.normal_equations(net, node)
            assert_normal_equations(structure, net.cores, node, target, *found, 1e-11)


def test_targets_may_be_strided_or_conjugated_views(use_numpy):
    rng = np.random.default_rng(0)
    structure = Structure.tensor_ring((3, 4, 2), 2)
    net = random_network(structure, 0, torch.complex128)
    target = random_array(rng, (2, 4, 3), torch.complex128).permute(2, 1, 0)
    for view in (target, target.conj()):
        objective = DenseLeastSquares(view, use_numpy=use_numpy)
        for node in range(3):
            gram, rhs = objective.normal_equations(net, node)
            assert_normal_equations(structure, net.cores, node, view, gram, rhs, 1e-11)


# -- trees and paths ---------------------------------------------------------------------------------------


def is_binary(tree):
    return isinstance(tree, int) or (len(tree) == 2 and all(is_binary(t) for t in tree))


@given(structures())
def test_best_tree_holds_every_node_once(structure):
    tree = best_tree(structure)
    assert sorted(leaves(tree)) == list(range(structure.num_nodes))
    assert is_binary(tree)


@pytest.mark.parametrize("count", [ALL_SUBSETS_UP_TO, ALL_SUBSETS_UP_TO + 1, 30])
def test_best_tree_on_both_sides_of_the_limit(count):
    tree = best_tree(Structure.tensor_train((2,) * count, 3))
    assert sorted(leaves(tree)) == list(range(count))
    assert is_binary(tree)


@pytest.mark.parametrize("count", [8, 20])
def test_best_tree_halves_a_chain_into_runs(count):
    def runs(tree):
        if not isinstance(tree, int):
            members = sorted(leaves(tree))
            assert members == list(range(members[0], members[-1] + 1))
            for child in tree:
                runs(child)

    shuffled = np.random.default_rng(0).permutation(count)
    chain = Structure((4,) * count, {(int(a), int(b)): 3 for a, b in pairwise(shuffled)})
    place = {int(k): n for n, k in enumerate(shuffled)}

    def rename(tree):
        return place[tree] if isinstance(tree, int) else tuple(rename(t) for t in tree)

    runs(rename(best_tree(chain)))


def test_sharing_pays_on_a_chain():
    structure = Structure.tensor_train((6,) * 6, 3)
    shared = _compile_sweep(structure, False, best_tree(structure)).program
    alone = _compile_sweep(structure, False, star(6)).program
    assert shared.flops < 0.6 * alone.flops
    assert sweep_plan(structure, False).program.cost <= min(shared.cost, alone.cost)


@pytest.fixture(params=["rust", "python"])
def path_finder(request, monkeypatch, fresh_plans):
    if request.param == "rust":
        pytest.importorskip("cotengrust")
    else:
        monkeypatch.setattr(paths, "_rust", lambda: None)
        monkeypatch.setattr(linalg, "_lapack", lambda: None)
    return request.param


def assert_path_is_complete(path, count):
    used = [k for pair in path for k in pair]
    assert len(path) == count - 1
    assert sorted(used) == list(range(2 * count - 2))
    for n, pair in enumerate(path):
        assert max(pair) < count + n


@pytest.mark.parametrize("count", [1, 2, 3, 6, 10, 11, 25])
def test_paths_use_every_operand_once(path_finder, count):
    chain = [(k, k + 1) for k in range(count)]
    assert_path_is_complete(find_path(chain, (0, count), lambda leg: 3), count)
    # Nothing in common, and everything in common with one operand.
    assert_path_is_complete(find_path([(k,) for k in range(count)], range(count), lambda leg: 2), count)
    hub = [tuple(range(count - 1)), *((k,) for k in range(count - 1))]
    assert_path_is_complete(find_path(hub, (), lambda leg: 2 + leg % 3), count)


def test_a_matrix_chain_gets_the_optimal_order(path_finder):
    sizes = [40, 2, 40, 2, 40]  # the cheapest order multiplies (1, 2) first
    path = find_path([(k, k + 1) for k in range(4)], (0, 4), lambda leg: sizes[leg])
    assert sorted(path[0]) == [1, 2]


def test_everything_works_with_either_path_finder(path_finder, use_numpy):
    for structure in (MIXED, LARGE["scattered"]):
        net = random_network(structure, 6, torch.complex128)
        arrays = as_arrays(net, use_numpy)
        assert_close(
            dense_plan(structure, True).run(arrays, structure.dims), dense(structure, net.cores), 1e-11
        )
        sweep_with_random_updates(structure, sweep_plan, use_numpy, torch.complex128)
    target = random_target(MIXED, 8, torch.complex128)
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    core, _ = solve_normal(*objective.normal_equations(random_network(MIXED, 6, torch.complex128), 0), 1e-14)
    cores = random_network(MIXED, 6, torch.complex128).cores
    env = environment(MIXED, cores, 0)
    wanted = best_core(MIXED, cores, 0, target)
    assert_close(to_numpy(core).reshape(3, -1) @ env, wanted.reshape(3, -1) @ env, 1e-8)


def test_size_classes_are_half_octaves():
    assert [size_class(s) for s in (1, 2, 3, 4, 6, 8, 16, 1024)] == [0, 2, 3, 4, 5, 6, 8, 20]
    assert all(size_class(a) <= size_class(a + 1) for a in range(1, 200))


# -- the cache and the bill --------------------------------------------------------------------------------


def test_plans_are_compiled_once_per_structure():
    def make():
        return Structure((3, 4, 5), {(0, 1): 2, (1, 2): 3})

    assert dense_plan(make(), False) is dense_plan(make(), False)
    assert sweep_plan(make(), True) is sweep_plan(make(), True)
    assert gram_plan(make(), 1, False) is gram_plan(make(), 1, False)
    assert inner_plan(make(), make(), False) is inner_plan(make(), make(), False)
    assert pair_plan(make(), ((0, 2),), False) is pair_plan(make(), ((0, 2),), False)
    assert dense_plan(make(), False) is not dense_plan(make(), True)
    assert dense_plan(make(), False) is not dense_plan(make().with_rank(0, 1, 3), False)


def test_growth_within_a_size_class_searches_no_new_path(fresh_plans):
    sweep_plan(Structure.tensor_ring((7,) * 5, 5), False)
    searched = paths._search.cache_info().misses
    assert searched > 0
    sweep_plan(Structure.tensor_ring((7,) * 5, 6), False)
    assert paths._search.cache_info().misses == searched
    sweep_plan(Structure.tensor_ring((7,) * 5, 16), False)
    assert paths._search.cache_info().misses > searched


def test_a_plan_can_be_run_again_with_other_cores(use_numpy):
    plan = dense_plan(MIXED, False)
    for seed in (0, 1, 0):
        net = random_network(MIXED, seed)
        assert_close(plan.run(as_arrays(net, use_numpy), MIXED.dims), dense(MIXED, net.cores), 1e-11)


@pytest.mark.parametrize(("is_complex", "factor"), [(False, 2), (True, 8)])
def test_flops_of_a_matrix_by_hand(is_complex, factor):
    structure = Structure((3, 5), {(0, 1): 2})
    program = dense_plan(structure, is_complex).program
    assert program.flops == factor * 3 * 2 * 5
    assert program.peak_entries == 15
    # Each node: the target by the other core, and the other core by itself, of which real numbers need half.
    sweep = sweep_plan(structure, is_complex).program
    half = factor if is_complex else factor // 2
    assert sweep.flops == factor * (3 * 5 * 2 + 5 * 3 * 2) + half * (2 * 2 * 5 + 2 * 2 * 3)


def test_flops_of_a_chain_by_hand(path_finder):
    structure = Structure((2, 3, 4), {(0, 1): 2, (1, 2): 3})
    # (0 1) 2: 2*2*9 + 6*3*4; 0 (1 2): 6*3*4 + 2*2*12: the first is 108, the second 120 multiplications.
    assert dense_plan(structure, False).program.flops in (2 * 108, 2 * 120)
    assert gram_plan(structure, 2, False).program.flops > 0


@given(structures(min_nodes=2))
def test_every_plan_has_a_positive_bill(structure):
    largest = max(math.prod(s) for s in structure.core_shapes)
    programs = [
        dense_plan(structure, False).program,
        sweep_plan(structure, False).program,
        gram_plan(structure, 0, False).program,
        inner_plan(structure, structure, False).program,
        pair_plan(structure, ((0, 1),), False).program,
    ]
    if structure.num_nodes == 2:
        programs.pop()  # the pair is all there is
    for program in programs:
        assert program.flops > 0
        assert program.peak_entries > 0
        assert program.cost > program.flops
    assert programs[0].peak_entries >= structure.num_entries
    assert programs[1].flops >= 2 * largest
    assert dense_plan(structure, True).program.flops == 4 * programs[0].flops


@given(structures(min_nodes=2), st.booleans())
def test_intermediates_are_freed_and_results_kept(structure, is_complex):
    net = random_network(structure, 0, torch.complex128 if is_complex else torch.float64)
    plan = dense_plan(structure, is_complex)
    slots = plan.program.run(dict(zip(plan.cores, net.cores)))
    kept = {plan.program.slot[r] for r in (*plan.cores, plan.result)}
    assert {n for n, x in enumerate(slots) if x is not None} == kept


@given(structures(min_nodes=2))
def test_peak_covers_what_is_alive_during_a_run(structure):
    plan = sweep_plan(structure, False)
    program = plan.program
    inputs = {program.slot[r] for r in (*plan.cores, plan.target)}
    alive, peak = {}, 0
    for instruction in program.instructions:
        if instruction[0] == MATMUL:
            alive[instruction[1]] = math.prod(instruction[8])
        elif instruction[0] == SELF:
            alive[instruction[1]] = math.prod(instruction[5])
        peak = max(peak, sum(alive.values()))
        for slot in instruction[-1]:
            alive.pop(slot, None)
        assert not inputs & set(instruction[-1])
    assert program.peak_entries >= peak
    assert not alive


RUN_SIZES = st.lists(st.integers(1, 3), min_size=1, max_size=2)


@given(st.lists(RUN_SIZES, min_size=3, max_size=3), st.booleans(), seeds)
def test_products_by_runs_equal_products_of_matrices(sizes, summed_first, seed):
    axes = [(summed_first != k % 2, n) for k, run in enumerate(sizes) for n in (2, *run)]
    runs = runs_of(axes)
    assert runs is not None and runs_of(axes[: len(axes) - len(sizes[2]) - 1]) is None
    tensor = torch.from_numpy(np.random.default_rng(seed).standard_normal([n for _, n in axes]))
    order = [k for k, (s, _) in enumerate(axes) if s] + [k for k, (s, _) in enumerate(axes) if not s]
    summed = math.prod(n for s, n in axes if s)
    matrix = torch.from_numpy(np.random.default_rng(seed + 1).standard_normal((3, summed)))
    expected = matrix @ tensor.permute(order).reshape(summed, -1)
    torch.testing.assert_close(product_by_runs(matrix, tensor, runs), expected)


@given(networks(torch.float64))
def test_dense_tensors_in_order(net):
    plan = dense_plan(net.structure, False, in_order=True)
    assert_close(plan.run(list(net.cores), net.structure.dims), dense(net.structure, net.cores), 1e-10)


def test_a_ring_is_written_in_order():
    ring = Structure.tensor_ring((2, 30, 40), 2)
    cores = list(random_network(ring, 0).cores)
    plain, ordered = (dense_plan(ring, False, in_order=o).run(cores, ring.dims) for o in (False, True))
    assert ordered.is_contiguous() and not plain.is_contiguous()
    torch.testing.assert_close(ordered, plain.contiguous())


@given(networks(torch.float64, min_nodes=3), seeds)
def test_sweeps_without_copies_of_the_target(net, seed):
    """What is done on a GPU, where no product may copy the target."""
    x = random_array(np.random.default_rng(seed), net.structure.dims, torch.float64)
    plain, spared = (DenseLeastSquares(x, use_numpy=False) for _ in range(2))
    nodes = range(net.structure.num_nodes)
    expected = [plain.normal_equations(net, k).rhs for k in nodes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contraction_program, "is_worthwhile", lambda *_: True)
        for k in nodes:
            assert_close(spared.normal_equations(net, k).rhs, expected[k], 1e-10)


# -- pairs -------------------------------------------------------------------------------------------------


def unshared_pair_plan(structure, edges, is_complex):
    return contraction_pairs._compile_pairs(structure, edges, is_complex, share=False)


PAIR_MODES = {
    "pair gram": {},
    "shared gram": {"PAIR_GRAM_ENTRIES": 0},
    "no gram": {"PAIR_GRAM_ENTRIES": 0, "SHARED_GRAM_ENTRIES": 0},
    "gram too expensive": {"SHARED_GRAM_FLOPS": 0},
    "nothing shared": {"pair_plan": unshared_pair_plan},
    "separable": {"PAIR_GRAM_ENTRIES": 0, "EXACT_FLOPS": -1},
}
EXACT_MODES = [m for m in PAIR_MODES if m != "separable"]


@contextmanager
def pair_mode(name):
    """Take one of the ways to come by the Gram of a pair."""
    with pytest.MonkeyPatch.context() as patch:
        for key, value in PAIR_MODES[name].items():
            places = (objective_dense,) if key == "pair_plan" else (contraction_pairs, objective_pairs)
            patch.setattr(next(m for m in places if key in vars(m)), key, value)
        pair_plan.cache_clear()
        yield
    pair_plan.cache_clear()


def all_pairs(structure):
    return list(combinations(range(structure.num_nodes), 2))


def expected_gradient(structure, cores, target, i, j):
    env = pair_environment(structure, cores, i, j)
    unfolded = pair_matricize(structure, target, i, j)
    gradient = np.einsum("xyr,abr->xayb", unfolded, env.conj())
    rows = unfolded.shape[0] * env.shape[0]
    return gradient.reshape(rows, -1), np.linalg.norm(unfolded) * np.linalg.norm(env)


@given(st.data())
def test_pair_gradient_is_the_target_with_all_other_cores(use_numpy, dtype, data):
    net = data.draw(networks(dtype, min_nodes=2))
    structure = net.structure
    target = random_target(structure, data.draw(seeds), dtype)
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    i, j = data.draw(st.sampled_from(all_pairs(structure)))
    expected, scale = expected_gradient(structure, net.cores, target, i, j)
    assert_close(objective.pair_gradient(net, (i, j)), expected, TOLERANCE[dtype], scale)


def test_all_pairs_of_a_large_network_at_once(large, use_numpy):
    net = random_network(large, 0, torch.complex128)
    target = random_target(large, 1, torch.complex128)
    edges = all_pairs(large)[::3]
    plan = pair_plan(large, tuple(edges), True)
    legs = [large.leg_dim(k) for k in range(large.num_nodes)]
    shaped = target.reshape(legs)
    found = plan.run(shaped.numpy() if use_numpy else shaped, as_arrays(net, use_numpy))
    assert [env.edge for env in found] == edges
    for env in found:
        expected, scale = expected_gradient(large, net.cores, target, *env.edge)
        assert_close(env.gradient, expected, 1e-11, scale)
    shared = plan.program.flops
    alone = sum(pair_plan(large, (e,), True).program.flops for e in edges)
    assert shared < 0.8 * alone


@given(st.data())
def test_pair_gram_is_that_of_the_pair_environment(use_numpy, double, data):
    net = data.draw(networks(double, min_nodes=3))
    structure = net.structure
    i, j = data.draw(st.sampled_from(all_pairs(structure)))
    plan = pair_plan(structure, ((i, j),), net.is_complex)
    legs = [structure.leg_dim(k) for k in range(structure.num_nodes)]
    target = torch.zeros(legs, dtype=double)
    (found,) = plan.run(target.numpy() if use_numpy else target, as_arrays(net, use_numpy))
    assert found.is_pair_gram
    env = pair_environment(structure, net.cores, i, j)
    gram = np.einsum("abr,cdr->acbd", env, env.conj())
    a, b = env.shape[:2]
    assert_close(found.gram, gram.reshape(a * a, b * b), 1e-11)


def best_slice(structure, cores, residual, i, j, given):
    """Least-squares slice of node i when node j holds the slice `given`."""
    env = pair_environment(structure, cores, i, j)
    held = to_numpy(given).reshape(structure.leg_dim(j), env.shape[1])
    design = np.einsum("abr,yb->ayr", env, held).reshape(env.shape[0], -1)
    unfolded = pair_matricize(structure, residual, i, j).reshape(structure.leg_dim(i), -1)
    return np.linalg.lstsq(design.T, unfolded.T, rcond=1e-9)[0].T.reshape(-1)


@pytest.mark.parametrize("mode", EXACT_MODES)
@settings(max_examples=15)
@given(st.data())
def test_slice_fit_alternates_exact_least_squares(mode, use_numpy, double, data):
    net = data.draw(networks(double, min_nodes=2))
    structure = net.structure
    target = random_target(structure, data.draw(seeds), double)
    i, j = data.draw(st.sampled_from(all_pairs(structure)))
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    residual = to_numpy(target) - dense(structure, net.cores)
    total = np.linalg.norm(residual) ** 2
    gradient, scale = expected_gradient(structure, net.cores, residual, i, j)
    start = random_array(np.random.default_rng(0), gradient.shape[1:], double)
    with pair_mode(mode):
        (problem,) = objective.pair_problems(structure, objective.to_arrays(net), [(i, j)])
        fit = problem.fit(start.numpy() if use_numpy else start, 1)
    assert problem.edge == (i, j)
    assert_close(problem.gradient, gradient, 1e-10, scale)
    added = added_by_slices(structure, net.cores, (i, j), fit.left, fit.right)
    decrease = total - np.linalg.norm(residual - added) ** 2
    assert fit.explained == pytest.approx(decrease, abs=1e-6 * total + 1e-200)

    left = best_slice(structure, net.cores, residual, i, j, start)
    right = best_slice(structure, net.cores, residual, j, i, left)
    wanted = added_by_slices(structure, net.cores, (i, j), left, right)
    assert_close(added, wanted, 1e-5, scale=math.sqrt(total))


@pytest.mark.parametrize("mode", PAIR_MODES)
@settings(max_examples=15)
@given(st.data())
def test_slice_fit_from_the_spectrum_lowers_the_loss_by_what_it_says(mode, use_numpy, double, data):
    net = data.draw(networks(double, min_nodes=2))
    structure = net.structure
    target = random_target(structure, data.draw(seeds), double)
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    residual = to_numpy(target) - dense(structure, net.cores)
    total = np.linalg.norm(residual) ** 2
    edges = data.draw(st.lists(st.sampled_from(all_pairs(structure)), min_size=1, max_size=3, unique=True))
    with pair_mode(mode):
        problems = objective.pair_problems(structure, objective.to_arrays(net), edges)
        fits = [(p.fit(None, 1), p.fit(None, 3)) for p in problems]
    assert [p.edge for p in problems] == edges
    for edge, (one, three) in zip(edges, fits):
        for fit in (one, three):
            assert isinstance(fit.left, np.ndarray if use_numpy else torch.Tensor)
            added = added_by_slices(structure, net.cores, edge, fit.left, fit.right)
            decrease = total - np.linalg.norm(residual - added) ** 2
            assert fit.explained == pytest.approx(decrease, abs=1e-4 * total + 1e-200)
            assert fit.explained >= -1e-9 * total
        assert three.explained >= one.explained - 1e-4 * total


def test_slices_next_to_an_unconnected_part_when_the_pair_gram_is_too_large(use_numpy):
    # Nodes 3 and 4 have no bonds: their Gram is a number, and it must not get lost.
    structure = Structure((2, 2, 2, 2, 2), {(0, 2): 20, (1, 2): 20})
    net = random_network(structure, 0)
    target = random_target(structure, 1, torch.float64)
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    (problem,) = objective.pair_problems(structure, objective.to_arrays(net), [(0, 1)])
    fit = problem.fit(None, 2)
    residual = to_numpy(target) - dense(structure, net.cores)
    added = added_by_slices(structure, net.cores, (0, 1), fit.left, fit.right)
    decrease = np.linalg.norm(residual) ** 2 - np.linalg.norm(residual - added) ** 2
    assert fit.explained == pytest.approx(decrease, rel=1e-6)


def test_slices_of_a_matrix_are_its_leading_singular_pair(use_numpy, dtype):
    structure = Structure.rank_one((6, 5))
    rng = np.random.default_rng(3)
    u, v = (np.linalg.qr(to_numpy(random_array(rng, (n, n), dtype)))[0] for n in (6, 5))
    matrix = torch.tensor((u[:, :5] * [5, 1, 0.5, 0.2, 0.1]) @ v, dtype=dtype)
    objective = DenseLeastSquares(matrix, use_numpy=use_numpy)
    zero = random_network(structure, 0, dtype)
    zero = type(zero)(structure, [0 * c for c in zero.cores])
    (problem,) = objective.pair_problems(structure, objective.to_arrays(zero), [(0, 1)])
    fit = problem.fit(None, 10)
    tolerance = 1e-5 if is_single(dtype) else 1e-10
    assert fit.explained == pytest.approx(25, rel=tolerance)
    assert_close(np.outer(to_numpy(fit.left), to_numpy(fit.right)), 5 * np.outer(u[:, 0], v[0]), tolerance)


def test_slice_fits_on_the_device(dtype, device):
    net = random_network(MIXED, 4, dtype)
    target = random_target(MIXED, 5, dtype)
    residual = to_numpy(target) - dense(MIXED, net.cores)
    objective = DenseLeastSquares(target.to(device))
    problems = objective.pair_problems(MIXED, objective.to_arrays(net), all_pairs(MIXED))
    assert len(problems) == 15
    for problem in problems:
        fit = problem.fit(None, 2)
        added = added_by_slices(MIXED, net.cores, problem.edge, fit.left, fit.right)
        total = np.linalg.norm(residual) ** 2
        decrease = total - np.linalg.norm(residual - added) ** 2
        assert fit.explained == pytest.approx(decrease, abs=(1e-2 if is_single(dtype) else 1e-6) * total)
        assert fit.explained > 0


def test_no_edges_no_problems():
    objective = DenseLeastSquares(torch.ones(2, 3))
    net = random_network(Structure.rank_one((2, 3)), 0, torch.float32)
    assert objective.pair_problems(net.structure, objective.to_arrays(net), []) == []


@pytest.mark.parametrize("mode", ["pair gram", "separable"])
@pytest.mark.parametrize("structure", [Structure.rank_one((2, 3)), MIXED], ids=["pair", "mixed"])
def test_nothing_to_explain_gives_finite_slices(structure, mode, use_numpy, dtype):
    net = random_network(structure, 0, dtype)
    zero = type(net)(structure, [0 * c for c in net.cores])
    objective = DenseLeastSquares(torch.zeros(structure.dims, dtype=dtype), use_numpy=use_numpy)
    for network in (zero, type(net)(structure, [zero.cores[0], *net.cores[1:]])):
        arrays = objective.to_arrays(network)
        with pair_mode(mode):
            fits = [p.fit(None, 2) for p in objective.pair_problems(structure, arrays, all_pairs(structure))]
        for fit in fits:
            assert np.isfinite(to_numpy(fit.left)).all()
            assert np.isfinite(to_numpy(fit.right)).all()
            assert fit.explained == pytest.approx(0.0, abs=1e-12)


@settings(max_examples=25)
@given(st.data())
def test_separable_fit_is_optimal_on_the_edges_of_a_tree(use_numpy, double, data):
    # Without the edge, a tree falls in two: the Gram of the pair is a product and the metric is exact. The
    # best slices are the leading singular pair of the residual between orthonormal bases of both halves.
    structure = data.draw(trees(min_dim=2, max_internal=1))
    net = random_network(structure, data.draw(seeds), double)
    i, j = data.draw(st.sampled_from(structure.edges))
    residual = random_target(structure, data.draw(seeds), double)
    env = pair_environment(structure, net.cores, i, j)
    roots = []
    for gram in (np.einsum("abr,cbr->ac", env, env.conj()), np.einsum("abr,acr->bc", env, env.conj())):
        values, vectors = np.linalg.eigh(gram)
        assume(values[0] > 1e-4 * values[-1])  # worse ones are regularised
        roots.append((vectors / np.sqrt(values)) @ vectors.conj().T)
    gradient = expected_gradient(structure, net.cores, residual, i, j)[0]
    shaped = gradient.reshape(structure.leg_dim(i), env.shape[0], structure.leg_dim(j), env.shape[1])
    white = np.einsum("xayb,ac,bd->xcyd", shaped, roots[0], roots[1]).reshape(gradient.shape)
    singular = np.append(np.linalg.svd(white, compute_uv=False), 0.0)
    assume(singular[1] < 0.7 * singular[0])  # ten power iterations separate these
    best = singular[0] ** 2 * np.linalg.norm(env) ** 2

    target = residual + torch.from_numpy(dense(structure, net.cores))
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    with pair_mode("separable"):
        (problem,) = objective.pair_problems(structure, objective.to_arrays(net), [(i, j)])
        assert problem.fit(None, 2).explained == pytest.approx(best, rel=1e-2)


def test_separable_fit_in_single_precision(use_numpy):
    structure = Structure.tensor_ring((4, 4, 4, 4), 2)
    for dtype in (torch.float32, torch.complex64):
        net = random_network(structure, 0, dtype)
        target = random_target(structure, 1, dtype)
        objective = DenseLeastSquares(target, use_numpy=use_numpy)
        residual = to_numpy(target) - dense(structure, net.cores)
        total = np.linalg.norm(residual) ** 2
        with pair_mode("separable"):
            problems = objective.pair_problems(structure, objective.to_arrays(net), all_pairs(structure))
            fits = [p.fit(None, 2) for p in problems]
        for problem, fit in zip(problems, fits):
            added = added_by_slices(structure, net.cores, problem.edge, fit.left, fit.right)
            decrease = total - np.linalg.norm(residual - added) ** 2
            assert fit.explained == pytest.approx(decrease, abs=1e-4 * total)
            assert fit.explained > 0
