"""Completion: seeds, checkpoints, interruption."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow import StopReason as Stop
from tensorgrow.search import grow as growth
from tests.tasks.completions import FAST, SMALL, StopAfter, assert_same, is_finite, noisy, planted, some


def test_a_seed_reproduces_a_run(plain):
    x, mask, result = plain
    assert_same(result, tg.complete(x, mask, truth=x, **FAST))
    other = tg.complete(x, mask, truth=x, effort="fast", random_state=1)
    assert other.validation_error != result.validation_error


RUNS = {
    "noisy": (noisy(), {"max_steps": 6}),
    "two starts": (noisy(level=0.2), {"effort": "balanced"}),
    "exact": (planted(), {}),
    "lookahead": (noisy(), {"effort": "thorough", "max_steps": 3}),
    "held by a mask": (noisy(), {"validation": some(SMALL.dims, 0.2, seed=4), "max_steps": 3}),
    "nothing held out": (noisy(), {"validation": False, "max_parameters": 40}),
    "complex": (noisy() + 1j * noisy(seed=2), {"effort": "fast", "max_steps": 4}),
}


@pytest.mark.parametrize("name", RUNS)
def test_interrupted_runs_end_like_uninterrupted_ones(name, tmp_path):
    x, options = RUNS[name]
    mask = some(x.shape, 0.8)
    options = {"random_state": 3, "effort": "fast", **options}
    whole = tg.complete(x, mask, truth=x, **options)
    steps = len([s for s in whole.history if s.kind != "refit"])
    later = [k for k, s in enumerate(whole.history, 1) if s.start > 0 and s.kind != "refit"]
    assert later or name != "two starts"
    for k in sorted({(steps + 1) // 2, *later[:2], steps}):
        file = tmp_path / f"{k}.ckpt"
        part = tg.complete(x, mask, checkpoint=file, callbacks=StopAfter(k), **options)
        assert part.stop is Stop.CALLBACK and is_finite(part)
        resumed = tg.complete(x, mask, truth=x, checkpoint=file, **options)
        assert_same(resumed, whole)
    finished = tg.complete(x, mask, truth=x, checkpoint=file, **options)
    assert_same(finished, whole)


def test_more_steps_go_on_from_a_checkpoint(tmp_path):
    x, mask = noisy(), some(SMALL.dims, 0.8)
    options = {"random_state": 3, "effort": "fast", "max_parameters": 40}
    whole = tg.complete(x, mask, **options)
    for steps in (1, None):
        result = tg.complete(x, mask, checkpoint=tmp_path / "c", max_steps=steps, **options)
    assert_same(result, whole)


def test_ctrl_c_returns_the_best_so_far(plain, tmp_path):
    x, mask, whole = plain
    file = tmp_path / "run.ckpt"
    result = tg.complete(
        x, mask, truth=x, checkpoint=file, callbacks=StopAfter(2, KeyboardInterrupt()), **FAST
    )
    assert result.stop is Stop.INTERRUPTED
    assert len([s for s in result.history if s.kind != "refit"]) == 2
    assert is_finite(result) and result.test_error is not None
    assert_same(tg.complete(x, mask, truth=x, checkpoint=file, **FAST), whole)


@pytest.mark.parametrize("call", [1, 3, 7])
def test_ctrl_c_within_a_move(plain, call, monkeypatch, tmp_path):
    """Between the growth of a network and the choice of its ridge, for example: the move is made again."""
    x, mask, whole = plain
    calls = 0
    real = growth.als

    def interrupted(*arguments, **keywords):
        nonlocal calls
        calls += 1
        if calls == call:
            raise KeyboardInterrupt
        return real(*arguments, **keywords)

    file = tmp_path / "run.ckpt"
    with monkeypatch.context() as patch:
        patch.setattr(growth, "als", interrupted)
        if call == 1:  # there is nothing to return yet
            with pytest.raises(KeyboardInterrupt):
                tg.complete(x, mask, checkpoint=file, **FAST)
        else:
            result = tg.complete(x, mask, checkpoint=file, **FAST)
            assert result.stop is Stop.INTERRUPTED and is_finite(result)
    assert calls == call
    assert_same(tg.complete(x, mask, truth=x, checkpoint=file, **FAST), whole)


def test_other_errors_come_through():
    x, mask = noisy(), some(SMALL.dims, 0.8)
    with pytest.raises(RuntimeError, match="mine"):
        tg.complete(x, mask, callbacks=StopAfter(2, RuntimeError("mine")), **FAST)


CHANGES = {
    "values": lambda x, mask: ((-x, mask), {}),
    "one value": lambda x, mask: (
        (np.where(np.arange(x.size).reshape(x.shape) == np.flatnonzero(mask)[0], 2 * x, x), mask),
        {},
    ),
    "mask": lambda x, mask: ((x, mask ^ (np.arange(x.size).reshape(x.shape) == 17)), {}),
    "mask of the same size": lambda x, mask: ((x, np.roll(mask, 1)), {}),
    "weights": lambda x, mask: ((x, mask), {"weights": np.linspace(1, 2, x.size).reshape(x.shape)}),
    "share": lambda x, mask: ((x, mask), {"validation": 0.3}),
    "nothing held out": lambda x, mask: ((x, mask), {"validation": False, "max_steps": 2}),
    "held-out entries": lambda x, mask: ((x, mask), {"random_state": 1}),
    "edges": lambda x, mask: ((x, mask), {"edges": "chain"}),
    "budget": lambda x, mask: ((x, mask), {"max_parameters": 30}),
    "error": lambda x, mask: ((x, mask), {"max_error": 0.1}),
    "effort": lambda x, mask: ((x, mask), {"effort": "balanced"}),
    "dtype": lambda x, mask: ((x, mask), {"dtype": "float32"}),
}


@pytest.fixture(scope="module")
def checkpoint_of_another_run(tmp_path_factory):
    file = tmp_path_factory.mktemp("run") / "run.ckpt"
    x = noisy(level=0.3)
    tg.complete(x, some(SMALL.dims, 0.8), checkpoint=file, max_steps=1, **FAST)
    return x, file


@pytest.mark.parametrize("change", CHANGES)
def test_checkpoints_of_another_run_are_refused(change, checkpoint_of_another_run):
    x, file = checkpoint_of_another_run
    content = file.read_bytes()
    arguments, options = CHANGES[change](x, some(SMALL.dims, 0.8))
    with pytest.raises(tg.OptionError, match="another run"):
        tg.complete(*arguments, checkpoint=file, **(FAST | options))
    assert file.read_bytes() == content


def test_a_transposed_dataset_is_another_one(tmp_path):
    """Constant values: only the positions tell."""
    mask = some((6, 6), 0.5)
    options = {"max_steps": 1, "validation": False, "effort": "fast", "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tg.DataWarning)
        tg.complete(
            tg.Observations([[0, 1], [1, 2], [2, 0]], [1.0] * 3, (3, 3)), checkpoint=tmp_path / "a", **options
        )
        with pytest.raises(tg.OptionError, match="another run"):
            other = tg.Observations([[0, 2], [1, 0], [2, 1]], [1.0] * 3, (3, 3))
            tg.complete(other, checkpoint=tmp_path / "a", **options)
        tg.complete(np.ones((6, 6)), mask, checkpoint=tmp_path / "b", **options)
        with pytest.raises(tg.OptionError, match="another run"):
            tg.complete(np.ones((6, 6)), mask.T, checkpoint=tmp_path / "b", **options)


def test_a_dense_run_is_another_one(tmp_path):
    x = noisy()
    tg.decompose(x, max_steps=1, checkpoint=tmp_path / "run", random_state=0)
    with pytest.raises(tg.OptionError, match="another run"):
        tg.complete(x, np.ones(x.shape, bool), checkpoint=tmp_path / "run", max_steps=1, random_state=0)
