"""The way in: units, sizes, limits, and what is refused."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow import baselines

from .tensors import noise


def test_a_tensor_in_other_units_gives_the_same():
    x = noise()
    for name in ("tt_svd", "cp", "random_walk"):
        a, b = (baselines.run(name, f * x, max_parameters=45, random_state=0) for f in (1.0, 1e9))
        assert a.num_parameters == b.num_parameters
        assert math.isclose(a.relative_error, b.relative_error, rel_tol=1e-6)
        assert math.isclose(a.history[-1].loss * 1e9, b.history[-1].loss, rel_tol=1e-6)


def test_vectors_matrices_and_zeros():
    vector = np.arange(1.0, 5.0)
    for name in ("tt_svd", "hosvd", "random_walk"):
        assert baselines.run(name, vector, max_error=1e-6).relative_error < 1e-6
        assert baselines.run(name, np.zeros((2, 3)), max_error=0.1).relative_error == 0.0
    matrix = np.outer(vector, vector) + np.eye(4)
    assert baselines.cp(matrix, max_error=1e-3, random_state=0).relative_error <= 1e-3
    assert baselines.tt_svd(matrix, max_error=1e-9).structure.rank(0, 1) == 4


def test_callbacks_and_limits_end_a_run():
    x = noise(dims=(4,) * 4)
    seen = []

    def third(step):
        seen.append(step)
        return len(seen) == 3

    r = baselines.random_walk(x, max_parameters=200, callbacks=third, random_state=0)
    assert r.stop == tg.StopReason.CALLBACK
    assert len(seen) == len(r.history) == 3
    r = baselines.random_walk(x, max_parameters=200, max_evaluations=4, random_state=0)
    assert r.stop == tg.StopReason.MAX_EVALUATIONS
    assert len(r.history) == 4
    r = baselines.random_walk(x, max_parameters=200, max_seconds=0.0, random_state=0)
    assert r.stop == tg.StopReason.MAX_SECONDS
    assert len(r.history) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: baselines.run("nothing", x), "choose one of cp"),
        (lambda x: baselines.run("tnls", x, np.ones(x.shape, bool)), "choose one of cp, tucker, tt_als"),
        (lambda x: baselines.tt_svd(x), "give max_error or max_parameters"),
        (lambda x: baselines.tt_svd(x, order="odd", max_error=0.1), "interleaved"),
        (lambda x: baselines.tt_svd(x, order=(0, 0, 1, 2), max_error=0.1), "permutation"),
        (lambda x: baselines.tt_svd(x, max_parameters=3), "already has 14"),
        (lambda x: baselines.tt_svd(x, max_error=0.1, sweeps=3), "does not know sweeps"),
        (lambda x: baselines.tnale(x, max_evaluations=0), "max_evaluations"),
        (lambda x: baselines.tnale(x, template="square"), "'lattice'"),
        (lambda x: baselines.tnale(x, max_rank=1), "max_rank"),
        (lambda x: baselines.tnls(x, samples=0), "samples"),
        (lambda x: baselines.genetic(x, rank=1), "rank=1"),
        (lambda x: baselines.genetic(x, rank=2, population=1), "population=1"),
        (lambda x: baselines.genetic(x, rank=2, error_weight=0.0), "error_weight"),
        (lambda x: baselines.svd_ins_tn(x, sparsity=2.0), "between 0 and 1"),
        (lambda x: baselines.svd_ins_tn(x + 1j, max_error=0.1), "real tensors"),
        (lambda x: baselines.cp(x[0, 0, 0], max_error=0.1), "cp needs a tensor with at least two axes"),
        (lambda x: baselines.genetic(x[0, 0, 0], rank=2), "at least two axes"),
        (lambda x: baselines.tnale(x, fit="sgd"), "'adam'"),
        (lambda x: baselines.tnale(x, fit=baselines.FitOptions(restarts=0)), "restarts"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises(tg.OptionError, match=message):
        call(noise())


@pytest.mark.parametrize(
    ("package", "name", "options"),
    [("tensorly", "cp", {"max_error": 0.1}), ("pymoo.core.problem", "genetic", {"rank": 2})],
)
def test_a_missing_package_is_named_with_its_extra(monkeypatch, package, name, options):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(tg.MissingPackageError, match=r"pip install .*\[baselines\]"):
        baselines.run(name, noise(), **options)
