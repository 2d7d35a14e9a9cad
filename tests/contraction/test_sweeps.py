from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensorgrow.algebra.linalg import solve_normal
from tensorgrow.contraction import (
    GramParts,
    clear_plans,
    dense_plan,
    gram_plan,
    inner_plan,
    pair_plan,
    sweep_plan,
    sweeps,
    whole_gram,
)
from tensorgrow.contraction.dimension_tree import ALL_SUBSETS_UP_TO, best_tree, star
from tensorgrow.contraction.sweeps import EnvironmentBuilder, compile_sweep
from tensorgrow.objectives import DenseLeastSquares
from tensorgrow.structure import Structure
from tests.contraction.cases import (
    LARGE,
    MIXED,
    random_target,
    sweep_with_random_updates,
)
from tests.oracles import (
    TOLERANCE,
    as_arrays,
    assert_close,
    best_core,
    dense,
    environment,
    node_equations,
    random_network,
    to_numpy,
)
from tests.strategies import networks, seeds, structures


@given(st.data())
def test_dense_is_einsum(use_numpy, dtype, data):
    net = data.draw(networks(dtype))
    plan = dense_plan(net.structure, net.is_complex)
    result = plan.run(as_arrays(net, use_numpy))
    assert isinstance(result, np.ndarray if use_numpy else torch.Tensor)
    assert_close(result, dense(net.structure, net.cores), TOLERANCE[dtype])


def test_dense_of_large_networks(large, use_numpy, double):
    net = random_network(large, 0, double)
    result = dense_plan(large, net.is_complex).run(as_arrays(net, use_numpy))
    assert_close(result, dense(large, net.cores), 1e-11)


def test_dense_on_the_device(dtype, device):
    net = random_network(MIXED, 1, dtype)
    result = dense_plan(MIXED, net.is_complex).run(list(net.to(device).cores))
    assert result.device.type == device
    assert result.dtype == dtype
    assert_close(result, dense(MIXED, net.cores), TOLERANCE[dtype])


@given(st.data())
def test_inner_is_the_inner_product_of_the_dense_tensors(use_numpy, double, data):
    a = data.draw(networks(double))
    other = data.draw(structures(min_order=a.structure.order, max_order=a.structure.order))
    b = random_network(Structure(a.structure.dims, other.ranks, num_nodes=other.num_nodes), 7, double)
    plan = inner_plan(a.structure, b.structure, a.is_complex)
    conjugated = [c.conj().resolve_conj() for c in a.cores]
    left = [c.numpy() for c in conjugated] if use_numpy else conjugated
    value = to_numpy(plan.run([*left, *as_arrays(b, use_numpy)])).reshape(())
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


@pytest.mark.parametrize("recipe", ["absorb_in_groups", "absorb_joined"])
def test_both_ways_to_absorb_a_gram_agree_with_the_environment(recipe, large, double):
    net = random_network(large, 3, double)
    builder = EnvironmentBuilder(large, is_complex=net.is_complex)
    node = 3
    first = tuple(k for k in range(7, large.num_nodes))
    second = tuple(k for k in range(7) if k != node)
    assert len(builder.groups((), second)) > 1
    absorb = getattr(builder, recipe)
    gram = absorb((absorb((), first),), second)
    bonds = builder.legs.bonds[node]
    result = builder.program.arrange(gram, (*bonds, *builder.legs.bra(bonds)))
    program = builder.program.finish([result])
    slots = program.run(dict(zip(builder.cores, net.cores)))
    env = environment(large, net.cores, node)
    value = to_numpy(program.value(slots, result)).reshape(2 * env.shape[:1])
    assert_close(value, env @ env.conj().T, 1e-11)


@pytest.fixture
def in_parts(monkeypatch):
    """Gram matrices in parts, however small."""
    clear_plans()
    monkeypatch.setattr(sweeps, "WHOLE_ROWS", 0)
    yield
    clear_plans()


@pytest.mark.usefixtures("in_parts")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(structures(), seeds)
def test_gram_matrices_in_parts_are_those_of_the_environment(use_numpy, double, structure, seed):
    net = random_network(structure, seed, double)
    for node in range(structure.num_nodes) if structure.num_nodes > 1 else ():
        gram = whole_gram(gram_plan(structure, node, net.is_complex).run(as_arrays(net, use_numpy)))
        env = environment(structure, net.cores, node)
        assert tuple(gram.shape) == 2 * structure.core_shape(node)[1:]
        assert_close(to_numpy(gram).reshape(2 * env.shape[:1]), env @ env.conj().T, 1e-11)
    sweep_with_random_updates(structure, sweep_plan, use_numpy, double, seed)


@pytest.mark.usefixtures("in_parts")
def test_every_bond_of_a_tree_has_a_part_of_its_own(use_numpy, double):
    structure = Structure.tucker((4, 5, 6), (2, 3, 4))
    net = random_network(structure, 1, double)
    gram = gram_plan(structure, 3, net.is_complex).run(as_arrays(net, use_numpy))
    assert isinstance(gram, GramParts)
    assert sorted(gram.bonds) == [(0,), (1,), (2,)]
    (wide,) = {type(gram_plan(structure, 0, net.is_complex).run(as_arrays(net, use_numpy)))}
    assert wide is not GramParts  # a single bond


def test_large_grams_come_in_parts_by_themselves():
    structure = Structure.tucker((12, 12, 12), 6)
    assert len(gram_plan(structure, 3, False).results) == 3
    assert len(gram_plan(Structure.tucker((12, 12), 2), 2, False).results) == 1


@given(structures(), seeds)
def test_a_sweep_sees_updated_cores(use_numpy, double, structure, seed):
    sweep_with_random_updates(structure, sweep_plan, use_numpy, double, seed)


@settings(max_examples=15)
@given(structures(min_order=3), seeds, st.booleans())
def test_sweeps_are_right_for_any_tree(use_numpy, double, structure, seed, shared):
    tree = best_tree(structure) if shared else star(structure.num_nodes)
    sweep_with_random_updates(
        structure, lambda s, is_complex: compile_sweep(s, is_complex, tree), use_numpy, double, seed
    )


@settings(max_examples=15)
@given(st.data())
def test_sweeps_are_right_for_unbalanced_trees(data):
    structure = data.draw(structures(min_order=3))
    order = data.draw(st.permutations(range(structure.num_nodes)))
    tree = order[0]
    for k in order[1:]:
        tree = (tree, k) if data.draw(st.booleans()) else (k, tree)
    sweep_with_random_updates(structure, lambda s, c: compile_sweep(s, c, tree), True, torch.complex128)


def test_sweeps_of_large_networks(large, use_numpy, double):
    assert large.num_nodes > ALL_SUBSETS_UP_TO
    sweep_with_random_updates(large, sweep_plan, use_numpy, double)


def test_sharing_pays_on_a_chain(monkeypatch):
    structure = Structure.tensor_train((6,) * 6, 3)
    shared = compile_sweep(structure, False, best_tree(structure)).program
    by_chance = compile_sweep(structure, False, star(6)).program  # nodes that need the same products
    assert sweep_plan(structure, False).program.cost <= min(shared.cost, by_chance.cost)
    monkeypatch.setattr("tensorgrow.contraction.program.MANY_COPIES", 0.0)
    alone = compile_sweep(structure, False, star(6)).program
    assert shared.flops < 0.6 * alone.flops
    assert shared.flops < by_chance.flops < alone.flops


def test_plans_without_sharing_are_given_up_where_they_cost_more():
    structure = Structure.tensor_ring((4,) * 5, 3)
    whole = compile_sweep(structure, False, star(5)).program
    assert compile_sweep(structure, False, star(5), below=whole.cost).program.cost == whole.cost
    for below in (1.0, 0.5 * whole.flops):
        ended = compile_sweep(structure, False, star(5), below=below).program
        assert below <= ended.flops < whole.flops
        assert len(ended.instructions) < len(whole.instructions)


@pytest.mark.parametrize("rank", [2, 8, 14])
def test_wide_graphs_get_the_cheaper_plan(rank):
    structure = Structure.complete((4,) * 5, rank)
    plans = [compile_sweep(structure, False, tree) for tree in (best_tree(structure), star(5))]
    assert sweep_plan(structure, False).program.cost == min(plan.program.cost for plan in plans)


def test_a_product_is_computed_again_once_its_core_is_new():
    structure = Structure.tensor_ring((3,) * 4, 2)
    plan = sweep_plan(structure, False)
    begin = [c.numpy() for c in random_network(structure, 0, torch.float64).cores]
    target = random_target(structure, 1, torch.float64).numpy()
    cores, seen = list(begin), {}

    def update(node, gram, rhs):
        env = environment(structure, [torch.from_numpy(c) for c in cores], node)
        assert_close(np.asarray(gram).reshape(4, 4), env @ env.T, 1e-12)
        seen[node] = cores[node] = cores[node] + 1.0 + node
        return cores[node]

    plan.run(target.transpose(plan.leg_order), list(begin), update)
    assert sorted(seen) == [0, 1, 2, 3]


def test_everything_works_with_either_path_finder(path_finder, use_numpy):
    for structure in (MIXED, LARGE["scattered"]):
        net = random_network(structure, 6, torch.complex128)
        arrays = as_arrays(net, use_numpy)
        assert_close(dense_plan(structure, True).run(arrays), dense(structure, net.cores), 1e-11)
        sweep_with_random_updates(structure, sweep_plan, use_numpy, torch.complex128)
    target = random_target(MIXED, 8, torch.complex128)
    objective = DenseLeastSquares(target, use_numpy=use_numpy)
    equations = node_equations(objective, random_network(MIXED, 6, torch.complex128))
    core, _ = solve_normal(*equations[0], 1e-14)
    cores = random_network(MIXED, 6, torch.complex128).cores
    env = environment(MIXED, cores, 0)
    wanted = best_core(MIXED, cores, 0, target)
    assert_close(to_numpy(core).reshape(3, -1) @ env, wanted.reshape(3, -1) @ env, 1e-8)


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


def test_a_plan_can_be_run_again_with_other_cores(use_numpy):
    plan = dense_plan(MIXED, False)
    for seed in (0, 1, 0):
        net = random_network(MIXED, seed)
        assert_close(plan.run(as_arrays(net, use_numpy)), dense(MIXED, net.cores), 1e-11)


@given(networks(torch.float64))
def test_dense_tensors_in_order(net):
    plan = dense_plan(net.structure, False, in_order=True)
    assert_close(plan.run(list(net.cores)), dense(net.structure, net.cores), 1e-10)


def test_a_ring_is_written_in_order():
    ring = Structure.tensor_ring((2, 30, 40), 2)
    cores = list(random_network(ring, 0).cores)
    plain, ordered = (dense_plan(ring, False, in_order=o).run(cores) for o in (False, True))
    assert ordered.is_contiguous() and not plain.is_contiguous()
    torch.testing.assert_close(ordered, plain.contiguous())
