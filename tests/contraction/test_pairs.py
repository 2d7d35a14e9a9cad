from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensorgrow.contraction import (
    pair_plan,
)
from tests.contraction.cases import (
    all_pairs,
    expected_gradient,
    random_target,
)
from tests.oracles import (
    as_arrays,
    assert_close,
    pair_environment,
    random_network,
)
from tests.strategies import networks


def test_all_pairs_of_a_large_network_at_once(large, use_numpy):
    net = random_network(large, 0, torch.complex128)
    target = random_target(large, 1, torch.complex128)
    edges = all_pairs(large)[::3]
    plan = pair_plan(large, tuple(edges), True)
    legs = [large.leg_dim(k) for k in range(large.num_nodes)]
    shaped = target.reshape(legs)
    found = plan.run([shaped.numpy() if use_numpy else shaped], as_arrays(net, use_numpy))
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
    (found,) = plan.run([target.numpy() if use_numpy else target], as_arrays(net, use_numpy))
    assert found.is_pair_gram
    env = pair_environment(structure, net.cores, i, j)
    gram = np.einsum("abr,cdr->acbd", env, env.conj())
    a, b = env.shape[:2]
    assert_close(found.gram, gram.reshape(a * a, b * b), 1e-11)
