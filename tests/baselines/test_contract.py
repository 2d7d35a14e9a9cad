"""What every baseline does alike: progress, trackers, Ctrl-C, limits, honest errors, no checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import baselines
from tensorgrow.callbacks.progress import ProgressBar
from tensorgrow.search import AnySearch
from tensorgrow.steps import Record

from .tensors import noise, planted, true_error

pytestmark = pytest.mark.filterwarnings("ignore::tensorgrow.DataWarning")

# What each needs to take several steps on a small tensor and not to reach an error.
DENSE: dict[str, dict[str, Any]] = {
    "cp": {"max_parameters": 60, "iterations": 50},
    "tucker": {"max_parameters": 100},
    "tt": {"max_parameters": 100},
    "tt_svd": {"max_parameters": 60, "order": "best", "tries": 2},
    "hosvd": {"max_parameters": 60},
    "ht_svd": {"max_parameters": 60, "tree": "best"},
    "greedy": {"max_parameters": 60},
    "random_walk": {"max_parameters": 60},
    "genetic": {"rank": 2, "population": 6, "generations": 2, "error_weight": 0.5},
    "tnls": {"max_rank": 2, "samples": 4, "iterations": 2},
    "tnale": {"max_rank": 2, "rounds": 1},
    "svd_ins_tn": {"max_rank": 2, "sparsity": (0.1, 1e-2), "iterations": 10},
}
COMPLETIONS: dict[str, dict[str, Any]] = {
    "cp": {"rank": 2, "iterations": 40},
    "tucker": {"rank": 2, "iterations": 40},
    "tt_als": {"ranks": (1, 2)},
    "tr_als": {"ranks": (1, 2)},
}
ALL = [*DENSE, *(f"{name} completion" for name in COMPLETIONS)]
# One step in all: a closed form or one fit.
SINGLE = ("hosvd", "cp completion", "tucker completion")
CLOSED = ("tt_svd", "hosvd", "ht_svd", "tucker", "tt")
PACKAGES = {"cp": "tensorly", "tucker": "tensorly", "tt": "tensorly", "genetic": "pymoo"}


def run(name: str, **more: Any) -> tg.Result:
    """A baseline on a small tensor; of a completion, on most of its entries."""
    x = noise(dims=(4, 3, 4, 3))
    method, _, completes = name.partition(" ")
    pytest.importorskip(PACKAGES.get(method, "tensorgrow"))
    options = {"random_state": 0, "progress": False, **(COMPLETIONS if completes else DENSE)[method], **more}
    if not completes:
        return baselines.run(method, x, **options)
    return baselines.run(method, x, np.random.default_rng(1).random(x.shape) < 0.8, **options)


class Tracker:
    """Notes what the trackers read of a run."""

    def __init__(self, act: Callable[[Record], bool | None] = lambda step: None) -> None:
        self.act = act
        self.rows: list[dict[str, float]] = []
        self.steps: list[Record] = []
        self.events: list[str] = []

    def on_start(self, search: AnySearch) -> None:
        assert search.limits.max_steps is None or search.limits.max_steps < 10**6
        self.events.append("start")

    def on_step(self, search: AnySearch, step: Record) -> bool | None:
        assert search.has_answer
        assert search.best_size is None or search.best_size > 0
        assert search.patience is None or search.patience > 0
        self.rows.append(step.metrics())
        self.steps.append(step)
        return self.act(step)

    def on_end(self, search: AnySearch) -> None:
        assert search.describe().startswith("Structure(")
        self.events.append("end")


def interrupt(step: Record) -> bool:
    raise KeyboardInterrupt


@pytest.mark.parametrize("name", ALL)
def test_progress_is_shown_after_every_step(name, monkeypatch):
    texts: list[str] = []
    monkeypatch.setattr(ProgressBar, "say", lambda self, text, left="": texts.append(text))
    r = run(name, progress=True)
    assert len(texts) >= len(r.history)
    assert texts[0].startswith("step 0: ")
    assert all("parameters" in text and "error" in text for text in texts)


@pytest.mark.parametrize("name", ALL)
def test_trackers_see_every_step_and_change_nothing(name):
    tracker = Tracker()
    r, alone = run(name, callbacks=tracker), run(name)
    assert tracker.events == ["start", "end"]
    assert tracker.steps == list(r.history)
    assert [s.index for s in r.history] == list(range(len(r.history)))
    assert len(r.history) == 1 if name in SINGLE else len(r.history) > 1
    assert all({"relative_error", "num_parameters", "compression_ratio"} <= set(row) for row in tracker.rows)
    assert [s.structure for s in alone.history] == [s.structure for s in r.history]
    assert alone.stop is r.stop
    sizes, errors = [p.num_parameters for p in r.path], [p.error for p in r.path]
    assert sizes == sorted(set(sizes))
    assert errors == sorted(set(errors), reverse=True)


@pytest.mark.parametrize("name", ALL)
def test_ctrl_c_keeps_what_there_is(name):
    tracker = Tracker(interrupt)
    r = run(name, callbacks=tracker)
    assert r.stop is tg.StopReason.INTERRUPTED
    assert len(r.history) == 1
    assert tracker.events == ["start", "end"]
    assert math.isfinite(r.relative_error)


@pytest.mark.parametrize("name", ALL)
def test_a_callback_stops_it(name):
    r = run(name, callbacks=lambda step: True)
    assert r.stop is tg.StopReason.CALLBACK
    assert len(r.history) == 1


@pytest.mark.parametrize("name", ALL)
def test_without_time_the_first_step_comes_back(name):
    r = run(name, max_seconds=0.0)
    assert r.stop is tg.StopReason.MAX_SECONDS
    assert len(r.history) == 1


@pytest.mark.parametrize("name", [n for n in ALL if n not in SINGLE])
def test_evaluations_are_limited(name):
    r = run(name, max_evaluations=1)
    assert r.stop in (tg.StopReason.MAX_EVALUATIONS, tg.StopReason.MAX_STEPS)
    assert sum(s.kind != "start" or name == "random_walk" for s in r.history) == 1


@pytest.mark.parametrize("name", DENSE)
def test_a_budget_is_never_exceeded(name):
    strong = {"sparsity": 0.5, "iterations": 100} if name == "svd_ins_tn" else {}  # it has no other way
    r = run(name, max_parameters=40, **strong)
    assert r.num_parameters <= 40


@pytest.mark.parametrize("name", [n for n in ALL if n != "greedy"])
def test_a_checkpoint_is_refused(name, tmp_path):
    with pytest.raises(tg.OptionError, match="takes no checkpoint"):
        run(name, checkpoint=tmp_path / "run.safetensors")


@pytest.mark.parametrize("name", ALL)
def test_reported_errors_are_true(name):
    r = run(name)
    if name in DENSE:
        assert math.isclose(true_error(r, noise(dims=(4, 3, 4, 3))), r.relative_error, rel_tol=1e-9)
    best = min(s.error for s in r.history)
    assert r.relative_error >= best * (1 - 1e-6)


# -- errors in single precision ------------------------------------------------------------------------


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("max_error", [1e-3, 1e-6])
def test_in_single_precision_the_target_is_only_reached_where_it_is(name, max_error):
    hidden = tg.Structure.tensor_train((4, 4, 4, 4), 2)
    x = (planted(hidden).numpy() + 1e-5 * noise(dims=hidden.dims)).astype(np.float32)
    options = {k: v for k, v in DENSE[name].items() if k != "max_parameters"}
    if name == "svd_ins_tn":
        options = {"max_rank": 2, "sparsity": 1e-4, "iterations": 100}
    r = baselines.run(
        name, x, max_error=max_error, random_state=0, progress=False, max_evaluations=20, **options
    )
    assert r.network.cores[0].dtype == torch.float32
    assert math.isclose(true_error(r, x), r.relative_error, rel_tol=1e-6)
    assert (r.stop is tg.StopReason.TARGET_REACHED) == (r.relative_error <= max_error)


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("max_error", [1e-3, 1e-4])
def test_closed_forms_reach_small_errors_in_single_precision(name, max_error):
    # Singular values fall like k^-3, so that every mode is cut and the rest is small beside rounding.
    rng = np.random.default_rng(0)
    x = rng.standard_normal((16, 16, 16))
    for mode in range(3):
        scaled = np.linalg.qr(rng.standard_normal((16, 16)))[0] * np.arange(1.0, 17.0) ** -3
        x = np.moveaxis(np.tensordot(scaled, x, ([1], [mode])), 0, mode)
    single = (x / np.linalg.norm(x)).astype(np.float32)
    r = baselines.run(name, single, max_error=max_error)
    assert r.stop is tg.StopReason.TARGET_REACHED
    assert r.relative_error <= max_error
    assert math.isclose(true_error(r, single), r.relative_error, rel_tol=1e-6)
    assert r.num_parameters <= baselines.run(name, single.astype(float), max_error=max_error).num_parameters


# -- fixed formats -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("max_error", [0.7, 0.2])
def test_the_error_asked_for_is_met_and_true(name, max_error):
    x = noise()
    r = baselines.run(name, x, max_error=max_error, progress=False)
    assert r.stop == tg.StopReason.TARGET_REACHED
    assert r.relative_error <= max_error
    # An error of 1e-15 is rounding, which the order of sums decides.
    assert math.isclose(true_error(r, x), r.relative_error, rel_tol=1e-9, abs_tol=1e-14)
    assert r.num_parameters == r.network.num_parameters == r.history[-1].num_parameters
    assert len(r.history) == r.info["evaluations"]


@pytest.mark.parametrize("name", CLOSED)
def test_a_budget_is_kept_and_used(name):
    x = noise(1)
    small, large = (baselines.run(name, x, max_parameters=n) for n in (30, 90))
    assert small.num_parameters <= 30 < large.num_parameters <= 90
    assert large.relative_error < small.relative_error
    assert small.stop == tg.StopReason.FINISHED


# -- modes of size 1 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DENSE)
def test_modes_of_size_one_work(name):
    x = noise(dims=(4, 1, 5, 1, 4))
    options = {**DENSE[name], "max_parameters": 60} if name != "svd_ins_tn" else DENSE[name]
    r = baselines.run(name, x, random_state=0, progress=False, **options)
    assert r.structure.dims == x.shape
    # An error of 1e-15 is rounding, which the order of sums decides.
    assert math.isclose(true_error(r, x), r.relative_error, rel_tol=1e-9, abs_tol=1e-14)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["tnls", "tnale"])
def test_ranks_that_a_mode_of_size_one_cannot_use_are_fitted(name, seed):
    x = noise(dims=(4, 1, 5, 1, 4))
    r = baselines.run(name, x, max_rank=5, random_state=seed, max_evaluations=12, progress=False)
    # An error of 1e-15 is rounding, which the order of sums decides.
    assert math.isclose(true_error(r, x), r.relative_error, rel_tol=1e-9, abs_tol=1e-14)
