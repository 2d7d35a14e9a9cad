from __future__ import annotations

import json
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch

from tensorgrow.data.fingerprint import (
    fingerprint_entries,
    fingerprint_function,
    fingerprint_positions,
    fingerprint_tensor,
    fingerprint_tensors,
    format_codes,
    position_codes,
    sum_codes,
)
from tests.oracles import random_array

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128]


@pytest.mark.parametrize("kind", [*DTYPES, torch.int64, torch.int32, torch.uint8, torch.bool])
def test_one_entry_makes_a_difference(kind):
    x = (torch.arange(60).reshape(3, 4, 5) % 7).to(kind)
    mine = fingerprint_tensor(x)
    assert fingerprint_tensor(x.clone()) == mine
    other = x.clone()
    other[1, 2, 3] = not x[1, 2, 3] if kind == torch.bool else x[1, 2, 3] + 1
    assert fingerprint_tensor(other) != mine
    assert fingerprint_tensor(x.reshape(4, 3, 5)) != mine
    assert fingerprint_tensor(x.flip(0)) != mine


def test_the_same_numbers_wherever_and_however_they_lie(device, dtype):
    x = random_array(np.random.default_rng(0), (6, 7, 8), dtype)
    mine = fingerprint_tensor(x)
    assert fingerprint_tensor(x.to(device)) == mine
    assert fingerprint_tensor(x.permute(2, 0, 1).contiguous().permute(1, 2, 0)) == mine
    assert fingerprint_tensor(x.conj().resolve_conj().conj()) == mine
    assert fingerprint_tensor(x.clone().requires_grad_()) == mine
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert fingerprint_tensor(x) == mine
    finally:
        torch.set_num_threads(before)
    assert json.loads(json.dumps(mine)) == mine


def test_large_tensors_are_read_in_pieces():
    x = torch.zeros((1 << 22) + 5, dtype=torch.float32)
    mine = fingerprint_tensor(x)
    x[-1] = 1e-30
    assert fingerprint_tensor(x) != mine
    assert fingerprint_tensor(torch.zeros(0)) == "0:0000000000000000"


def test_several_tensors():
    a, b = torch.ones(3), torch.zeros(4)
    mine = fingerprint_tensors([a, None, b])
    assert mine == fingerprint_tensors(iter([a, None, b]))
    for other in ([a, b], [a, b, None], [b, None, a], [a, None, b + 1]):
        assert fingerprint_tensors(other) != mine


def test_positions_in_any_order_and_any_parts():
    where = np.argwhere(np.random.default_rng(0).random((5, 6, 7)) < 0.4)
    mine = fingerprint_positions(where)
    assert fingerprint_positions(where[::-1]) == mine == fingerprint_positions(torch.from_numpy(where))
    parts = sum(fingerprint_positions(p) for p in np.array_split(where, 3))
    assert parts % 2**64 == mine
    assert fingerprint_positions(where[1:]) != mine and fingerprint_positions(where[:, ::-1]) != mine
    assert len(np.unique(position_codes(where, 0))) == len(where)


def test_blocks_of_a_tensor_have_its_fingerprint_however_it_is_cut(dtype):
    x = random_array(np.random.default_rng(0), (6, 7, 4), dtype)
    for steps in ((2, 7, 4), (4, 3, 3), (6, 7, 4), (1, 1, 1)):
        cuts = [[(a, min(a + step, n)) for a in range(0, n, step)] for n, step in zip(x.shape, steps)]
        boxes = list(product(*cuts))
        codes = sum(sum_codes(x[tuple(slice(*side) for side in box)], box, x.shape) for box in boxes)
        assert format_codes(x.shape, codes) == fingerprint_tensor(x)


@pytest.mark.parametrize("kind", ["f4", "f8", "c16"])
def test_listed_entries_in_any_order_and_any_parts(kind):
    rng = np.random.default_rng(0)
    where = np.argwhere(rng.random((5, 6, 7)) < 0.4)
    values, weights = rng.standard_normal(len(where)).astype(kind), rng.random(len(where))
    mine = fingerprint_entries(where, values, weights)
    assert fingerprint_entries(where[::-1], values[::-1], weights[::-1]) == mine
    assert (
        sum(fingerprint_entries(where[k::3], values[k::3], weights[k::3]) for k in range(3)) % 2**64 == mine
    )
    flipped = values.copy()
    flipped[7] *= -1
    assert fingerprint_entries(where, flipped, weights) != mine
    assert fingerprint_entries(where, values[::-1], weights) != mine
    assert fingerprint_entries(where, values) != mine


# -- functions ---------------------------------------------------------------------------------------------

SHIFT = 1.0


def shifted(x):
    return x + SHIFT


def make(code, **known):
    scope = dict(known)
    exec(code, scope)
    return scope["f"]


def test_functions_by_what_they_do():
    mine = fingerprint_function(make("def f(x): return x + 1"))
    assert fingerprint_function(make("\n\ndef f(x): return x + 1")) == mine  # wherever it stands
    for other in ("def f(x): return x - 1", "def f(x): return x + 2", "def f(x): return abs(x + 1)"):
        assert fingerprint_function(make(other)) != mine
    nested = "def f(x): return (lambda y: y + {})(x)"
    assert fingerprint_function(make(nested.format(1))) != fingerprint_function(make(nested.format(2)))


def test_functions_by_the_numbers_they_refer_to():
    def closure(x, log):
        return lambda net: log.append(1) or (net - x).square().sum()

    x, log = torch.arange(6.0), []
    mine = fingerprint_function(closure(x, log))
    log.append(3)  # what changes from call to call does not count
    assert fingerprint_function(closure(x.clone(), log)) == mine
    assert fingerprint_function(closure(x + 1, log)) != mine
    assert fingerprint_function(closure(-x, log)) != mine
    code = "def f(net): return net - x"
    assert fingerprint_function(make(code, x=x)) == fingerprint_function(make(code, x=x.clone()))
    assert fingerprint_function(make(code, x=x)) != fingerprint_function(make(code, x=x.numpy()[::-1].copy()))
    assert fingerprint_function(make(code, x=shifted)) == fingerprint_function(make(code, x=shifted))
    assert fingerprint_function(partial(shifted, x)) != fingerprint_function(partial(shifted, x + 1))


def test_any_callable_has_a_fingerprint():
    class Loss:
        def __init__(self, x):
            self.x, self.me = x, self

        def __call__(self, net):
            return net - self.x

        def method(self, net):
            return net + self.x

    one, other = Loss(torch.ones(3)), Loss(torch.zeros(3))
    for of in (lambda loss: loss, lambda loss: loss.method):
        assert fingerprint_function(of(one)) == fingerprint_function(of(Loss(torch.ones(3))))
        assert fingerprint_function(of(one)) != fingerprint_function(of(other))
    layer = torch.nn.Linear(2, 2)
    before = fingerprint_function(layer)
    with torch.no_grad():
        layer.bias += 1
    assert fingerprint_function(layer) != before
    for function in (torch.norm, len, np.sum, torch.nn.functional.mse_loss, Loss, None):
        assert fingerprint_function(function) == fingerprint_function(function)
