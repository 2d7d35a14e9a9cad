"""Why a run ended, whatever it was: the reason agrees with the error, and limits hold."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import StopReason as Stop


def test_a_budget_that_is_too_small_is_not_a_target_reached():
    ring = tg.TensorNetwork.random(tg.Structure.tensor_ring((8,) * 4, 4), random_state=0)
    result = tg.decompose(ring.to_dense(), max_parameters=400, max_error=1e-6, random_state=0)
    assert result.relative_error > 0.1
    assert result.num_parameters <= 400
    assert result.stop is Stop.MAX_PARAMETERS


def test_regrowing_lowers_the_error_while_the_target_is_out_of_reach():
    ring = tg.TensorNetwork.random(tg.Structure.tensor_ring((8,) * 4, 4), random_state=2).to_dense()
    limits: dict[str, Any] = {"max_parameters": 400, "max_error": 1e-6, "random_state": 2}
    once = tg.decompose(ring, **limits, options=tg.GreedyOptions(starts=1))
    more = tg.decompose(ring, **limits, options=tg.GreedyOptions(starts=1, regrow_cycles=12))
    assert more.relative_error < 0.98 * once.relative_error
    assert more.history[-1].kind == "regrow"


def draw_tensor(rng: np.random.Generator) -> np.ndarray:
    dims = tuple(int(d) for d in rng.integers(1, 5, rng.integers(1, 4)))
    noise = rng.standard_normal(dims)
    x: np.ndarray = (noise, 1.0 / (1.0 + np.indices(dims).sum(0)), noise + 1j * noise[::-1], 0.0 * noise)[
        rng.choice(4, p=[0.4, 0.4, 0.15, 0.05])
    ]
    return x.astype(np.float32) if x.dtype == float and rng.random() < 0.3 else x


def draw_limits(rng: np.random.Generator, x: np.ndarray) -> dict[str, Any]:
    limits: dict[str, Any] = {"max_error": float(10.0 ** -rng.integers(0, 9))}
    if rng.random() < 0.6:
        limits["max_parameters"] = int(sum(x.shape) * rng.uniform(1, 4))
    if rng.random() < 0.15:
        limits["max_seconds"] = float(rng.choice([0.0, 0.01]))
    return limits


def true_error(result: tg.Result, x: np.ndarray, known: np.ndarray | bool = True) -> float:
    """The relative error, or that of the known entries, from its definition."""
    rest, whole = (np.where(known, y, 0).astype(complex) for y in (result.network.to_dense().numpy() - x, x))
    return float(np.linalg.norm(rest) / (np.linalg.norm(whole) or 1.0))


def run_one(seed: int) -> tuple[tg.Result, dict[str, Any], float]:
    """Any of the verbs and baselines on a small tensor, with one or both limits; and the true error."""
    rng = np.random.default_rng(seed)
    x, common = draw_tensor(rng), {"random_state": seed, "progress": False}
    limits, mask = draw_limits(rng, x), rng.random(x.shape) < 0.7
    mask.flat[0] = True
    verb = rng.choice(["decompose", "complete", "fit", "masked fit", "learn", "baseline"])
    if verb == "learn" and not np.iscomplexobj(x):
        target = torch.as_tensor(x.astype(float))
        loss = lambda net: ((net.to_dense() - target) ** 2).mean()  # noqa: E731
        more = {"dtype": torch.float64, "max_steps": 2, "effort": "fast"}
        result = tg.learn(loss, x.shape, **limits, **more, **common)
        return result, limits, float(loss(result.network))
    if "fit" in verb:
        limits.pop("max_parameters", None)
        train = tg.Structure.tensor_train(x.shape, 2)
        known = mask if verb == "masked fit" else None
        result = tg.fit(x, train, known, **limits, **common)
        return result, limits, true_error(result, x, True if known is None else known)
    if verb == "complete":
        result = tg.complete(x, mask, **limits, **common)
        return result, limits, true_error(result, x, mask)
    if verb == "baseline":
        name = rng.choice(["tt_svd", "hosvd", "random_walk", "tnls", "greedy"])
        most = {"max_evaluations": int(rng.integers(1, 8))}
        result = tg.baselines.run(str(name), x, **limits, **most, **common)
    else:
        result = tg.decompose(x, **limits, **common)
    return result, limits, true_error(result, x)


def test_reasons_and_errors_are_true_in_mixed_runs():
    seen: Counter[Stop] = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tg.DataWarning)  # of so few entries that none are held out
        for seed in range(60):
            try:
                result, limits, error = run_one(seed)
            except tg.OptionError as refused:
                assert "all are larger than" in str(refused), seed
                continue
            assert (result.stop is Stop.TARGET_REACHED) == (result.errors.measure <= limits["max_error"]), (
                seed
            )
            rounding = 4 * torch.finfo(result.network.dtype).eps
            assert result.errors.total == pytest.approx(error, rel=1e-6, abs=rounding), seed
            assert result.num_parameters <= limits.get("max_parameters", np.inf), seed
            seen[result.stop] += 1
    assert seen[Stop.TARGET_REACHED] > 15 and len(seen) >= 5


@pytest.mark.parametrize("name", ["cp", "tucker"])
def test_completions_by_tensorly_refuse_vectors(name):
    pytest.importorskip("tensorly")
    with pytest.raises(tg.OptionError, match="at least two axes"):
        tg.baselines.run(name, np.arange(4.0), np.array([1, 1, 0, 1], bool), rank=1)


def test_a_closed_form_that_exceeds_the_budget_is_refused():
    x = np.random.default_rng(0).standard_normal((3, 3, 4, 1))
    with pytest.raises(tg.OptionError, match="proposed no structure that fits in"):
        tg.baselines.run("hosvd", x, max_error=1e-4, max_parameters=11)
