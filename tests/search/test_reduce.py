from __future__ import annotations

from itertools import pairwise

import tensorgrow as tg
from tensorgrow import Structure
from tests.oracles import dense, random_network
from tests.search.factories import GROWTH, make_search, noisy, true_error


def test_pruning_is_optional_and_pays():
    x = noisy(seed=3)
    grown = make_search(x, GROWTH.replace(prune=False), max_error=0.25)
    assert {s.kind for s in grown} == {"start", "grow"}
    pruned = make_search(x, GROWTH, max_error=0.25)
    steps = list(pruned)
    assert pruned.answer.size <= grown.answer.size
    for search in (grown, pruned):
        assert true_error(x, search.answer.network) <= 0.25
    for before, after in pairwise(steps):
        if after.kind in ("shrink", "split"):
            assert after.num_parameters < before.num_parameters
            assert after.relative_error <= 0.25


def test_pruning_removes_what_init_has_too_much():
    true = Structure.tensor_train((4,) * 4, 2)
    x = dense(true, random_network(true, 0).cores)
    init = random_network(Structure.tensor_train((4,) * 4, 4), 1)
    result = tg.decompose(x, max_error=1e-6, init=init, edges="chain", random_state=0)
    assert result.structure == true
    assert {s.kind for s in result.history} == {"start", "shrink"}
