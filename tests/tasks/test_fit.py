"""Fits of a known structure to a tensor that is known."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import StopReason as Stop
from tensorgrow import Structure
from tensorgrow.data.arrays import norm_of
from tensorgrow.objectives import DenseLeastSquares
from tests.tasks.tensors import RING, error_of, is_same_run, noisy, planted, tt_svd


def test_fit_recovers_a_planted_network():
    x = planted()
    result = tg.fit(x, RING, random_state=2, max_error=1e-8)
    assert result.structure == RING
    assert result.stop is Stop.TARGET_REACHED
    assert error_of(x, result.network) == pytest.approx(result.relative_error, rel=1e-5)
    assert result.relative_error <= 1e-8
    assert len(result.history) == 1
    assert result.history[0].structure == RING


def test_fit_of_a_matrix_is_the_truncated_svd():
    x = np.random.default_rng(0).standard_normal((8, 11))
    s = np.linalg.svd(x, compute_uv=False)
    result = tg.fit(x, Structure((8, 11), {(0, 1): 3}), random_state=0, tolerance=1e-12)
    assert result.relative_error == pytest.approx(np.linalg.norm(s[3:]) / np.linalg.norm(s), rel=1e-5)


def test_fit_of_tucker_and_chain_is_not_worse_than_tt_svd():
    x = noisy()
    size, error = tt_svd(x, 2)
    structure = Structure.tensor_train(x.shape, 2)
    assert structure.num_parameters == size
    best = min(tg.fit(x, structure, random_state=k).relative_error for k in range(3))
    assert best <= error


@pytest.mark.parametrize(
    "scale", [1.0, 2.0**600, 2.0**-600], ids=["one", "squares overflow", "squares vanish"]
)
def test_one_look_tells_the_norm_and_that_nothing_is_missing(scale, monkeypatch):
    x = noisy()
    structure = Structure.tensor_ring(x.shape, 2)
    wanted = tg.fit(torch.from_numpy(x), structure, random_state=0, max_sweeps=3)  # looked at twice
    looks = []
    monkeypatch.setattr("tensorgrow.data.arrays.norm_of", lambda t: looks.append(1) or norm_of(t))
    monkeypatch.setattr("tensorgrow.tasks.fit.norm_of", lambda t: looks.append(1) or norm_of(t))
    found = tg.fit(x * scale, structure, random_state=0, max_sweeps=3)
    assert found.relative_error == pytest.approx(wanted.relative_error, rel=1e-12)
    assert error_of(x, found.network.times_power(-round(np.log2(scale)))) == pytest.approx(
        found.relative_error
    )
    if scale == 1.0:
        assert len(looks) == 1
        x[1, 1, 1, 1] = np.nan
        assert tg.fit(x, structure, random_state=0, max_sweeps=3).errors.train is not None  # as a completion


def test_the_error_of_a_large_fit_is_that_of_its_network():
    structure = Structure.tucker((80, 80, 80), 3)
    rng = np.random.default_rng(0)
    x = tg.TensorNetwork.random(structure, random_state=0).to_dense().numpy()
    x += 0.1 * np.linalg.norm(x) / x.size**0.5 * rng.standard_normal(x.shape)
    for limits in ({"max_sweeps": 1}, {}, {"max_error": 0.5}):
        result = tg.fit(x, structure, random_state=0, **limits)
        rest = np.linalg.norm(x - result.network.to_dense().numpy())
        assert result.relative_error == pytest.approx(rest / np.linalg.norm(x), rel=1e-9)


def test_fit_starts_from_init_and_never_gets_worse():
    x = noisy()
    structure = Structure.tensor_train(x.shape, 2)
    first = tg.fit(x, structure, random_state=0, max_sweeps=2)
    assert first.stop is Stop.MAX_STEPS
    before = [c.clone() for c in first.network.cores]
    second = tg.fit(x, structure, init=first.network, max_sweeps=1)
    assert second.relative_error <= first.relative_error * (1 + 1e-12)
    assert all(torch.equal(a, b) for a, b in zip(before, first.network.cores))
    longer = tg.fit(x, structure, init=first.network)
    assert longer.stop is Stop.CONVERGED
    assert longer.relative_error <= second.relative_error


def test_fit_stops_at_max_error():
    x = noisy()
    structure = Structure.complete(x.shape, 2)
    free = tg.fit(x, structure, random_state=0)
    stopped = tg.fit(x, structure, random_state=0, max_error=1.2 * free.relative_error)
    assert free.relative_error < stopped.relative_error <= 1.2 * free.relative_error
    assert stopped.stop is Stop.TARGET_REACHED
    assert stopped.info["sweeps"] < free.info["sweeps"]
    unreachable = tg.fit(x, structure, random_state=0, max_error=0.5 * free.relative_error)
    assert unreachable.stop is not Stop.TARGET_REACHED


def test_fit_respects_max_seconds():
    x = np.random.default_rng(0).standard_normal((8,) * 5)
    begin = time.perf_counter()
    result = tg.fit(
        x, Structure.complete(x.shape, 2), max_seconds=0.3, tolerance=0, max_sweeps=10**6, random_state=0
    )
    assert time.perf_counter() - begin < 15
    assert result.stop is Stop.MAX_SECONDS
    assert result.relative_error < 1


@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
def test_fit_dtypes(dtype):
    kind = torch.complex128 if dtype.startswith("c") else torch.float64
    x = planted(dtype=kind).astype(dtype)
    result = tg.fit(x, RING, random_state=0, max_error=1e-4)
    assert str(result.network.dtype).endswith(dtype)
    assert error_of(x, result.network) <= 1.01e-4


def test_fit_is_reproducible():
    x = noisy()
    structure = Structure.tensor_ring(x.shape, 2)
    assert is_same_run(tg.fit(x, structure, random_state=1), tg.fit(x, structure, random_state=1))


# -- one run like any other --------------------------------------------------------------------------------


def test_callbacks_see_the_one_step():
    x = noisy()
    steps = []
    result = tg.fit(x, Structure.tensor_train(x.shape, 2), random_state=0, callbacks=steps.append)
    assert [(s.index, s.kind, s.edge) for s in steps] == [(0, "fit", None)]
    assert steps[0].relative_error == pytest.approx(result.relative_error, rel=1e-9)
    assert result.history == tuple(steps)


@pytest.fixture
def interrupt(monkeypatch):
    """Press Ctrl-C in a sweep, counted from one."""

    def after(sweeps: int) -> None:
        real, calls = DenseLeastSquares.sweep, 0

        def sweep(*arguments):
            nonlocal calls
            calls += 1
            if calls == sweeps:
                raise KeyboardInterrupt
            return real(*arguments)

        monkeypatch.setattr(DenseLeastSquares, "sweep", sweep)

    yield after
    monkeypatch.undo()


def test_ctrl_c_keeps_the_last_sweep(interrupt):
    x = noisy()
    structure = Structure.complete(x.shape, 2)
    expected = tg.fit(x, structure, random_state=0, max_sweeps=3)
    interrupt(4)
    result = tg.fit(x, structure, random_state=0)
    assert result.stop is Stop.INTERRUPTED
    assert result.info["sweeps"] == 3
    assert all(map(torch.equal, result.network.cores, expected.network.cores))
    interrupt(1)
    with pytest.raises(KeyboardInterrupt):  # there is nothing to return yet
        tg.fit(x, structure, random_state=0)


def test_a_fit_resumes_from_a_checkpoint(interrupt, monkeypatch, tmp_path):
    x, file = noisy(), tmp_path / "fit.ckpt"
    structure = Structure.tensor_train(x.shape, 2)
    whole = tg.fit(x, structure, random_state=0)
    interrupt(3)
    assert tg.fit(x, structure, random_state=0, checkpoint=file).stop is Stop.INTERRUPTED
    monkeypatch.undo()
    resumed = tg.fit(x, structure, random_state=0, checkpoint=file)
    assert resumed.stop is Stop.CONVERGED
    assert resumed.info["sweeps"] > 2
    assert resumed.relative_error == pytest.approx(whole.relative_error, rel=1e-3)
    again = tg.fit(x, structure, random_state=0, checkpoint=file)  # it is done
    assert is_same_run(again, resumed)
    for change in ({"tolerance": 1e-3}, {"max_error": 0.1}):
        with pytest.raises(tg.OptionError, match=f"another run.*{next(iter(change))}"):
            tg.fit(x, structure, random_state=0, checkpoint=file, **change)
    with pytest.raises(tg.OptionError, match=r"another run.*structure"):
        tg.fit(x, Structure.rank_one(x.shape), random_state=0, checkpoint=file)


def test_more_sweeps_go_on_from_a_checkpoint(tmp_path):
    x, file = noisy(), tmp_path / "fit.ckpt"
    structure = Structure.complete(x.shape, 2)
    first = tg.fit(x, structure, random_state=0, max_sweeps=2, checkpoint=file)
    assert first.stop is Stop.MAX_STEPS
    same = tg.fit(x, structure, random_state=0, max_sweeps=2, checkpoint=file)
    assert is_same_run(same, first) and same.stop is Stop.MAX_STEPS
    more = tg.fit(x, structure, random_state=0, max_sweeps=20, checkpoint=file)
    assert more.relative_error < first.relative_error
    assert 2 < more.info["sweeps"] <= 20
