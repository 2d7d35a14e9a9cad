"""Data in any unit gives the same run: the same steps and errors, and a network in the unit of the data."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import Structure
from tensorgrow.tasks.regress import regress
from tests.tasks.completions import FAST, noisy, some

RING = Structure.tensor_ring((5, 4, 6), 2)
# Powers of two round nothing: the same bits. Others perturb the data by its rounding.
POWERS = [-990, -30, 133, 990]
SIZES = [1e-300, 1e-30, 1e40, 1e300]


def field(dtype: str = "float64") -> np.ndarray:
    """A ring with noise, the largest part between one and two."""
    x = noisy(RING)
    if dtype.startswith("complex"):
        x = x + 1j * noisy(RING, seed=2)
    return (1.5 * x / max(np.abs(x.real).max(), np.abs(x.imag).max())).astype(dtype)


def decompose(x, unit):
    return tg.decompose(x, max_error=0.3, **FAST)


def blocks(x, unit):
    return tg.decompose(tg.Blocks(x, method="stream"), max_error=0.4, max_steps=2, random_state=0)


def fit(x, unit):
    return tg.fit(x, RING, some(x.shape, 0.8), truth=x, max_sweeps=10, random_state=0)


def complete(x, unit):
    return tg.complete(x, some(x.shape, 0.8), truth=x, max_steps=1, **FAST)


def absolute(x, unit):
    return tg.fit(x, RING, some(x.shape, 0.8), truth=x, loss="absolute", max_sweeps=5, random_state=0)


def huber(x, unit):
    loss = tg.losses.Huber(0.05 * unit)
    options = tg.GreedyOptions.for_completion("fast").replace(final_sweeps=5)
    return tg.complete(
        x, some(x.shape, 0.8), truth=x, loss=loss, max_steps=1, options=options, random_state=0
    )


def regression(x, unit):
    samples = np.random.default_rng(0).standard_normal((40, 4, 6)).astype(x.dtype)
    y = np.tensordot(samples, x[0], 2)
    return regress(samples, y, max_steps=1, random_state=0).result


RUNS = [decompose, blocks, fit, complete, absolute, huber, regression]
REAL = [absolute, huber]


def numbers(result: tg.Result) -> list[float]:
    e = result.errors
    errors = [v for v in (e.total, e.train, e.validation, e.test) if v is not None]
    return errors + [s.relative_error for s in result.history if s.relative_error is not None]


def assert_same_run(one: tg.Result, other: tg.Result, unit: float, rel: float) -> None:
    assert [(s.kind, s.edge, s.structure) for s in one.history] == [
        (s.kind, s.edge, s.structure) for s in other.history
    ]
    assert one.stop is other.stop
    assert numbers(other) == pytest.approx(numbers(one), rel=rel, abs=rel * 1e-3)
    a, b = (r.network.to_dense().numpy() for r in (one, other))
    np.testing.assert_allclose(b / unit, a, atol=max(rel, 1e-7) * np.abs(a).max(), rtol=0)


@pytest.mark.parametrize("run", RUNS)
def test_powers_of_two_change_nothing(run):
    for dtype in ("float64",) if run in REAL else ("float64", "complex128"):
        x = field(dtype)
        one = run(x, 1.0)
        for power in POWERS:
            unit = 2.0**power
            assert_same_run(one, run(unit * x, unit), unit, rel=1e-12)


# Not the other losses: where they end depends on how far from the data they start.
@pytest.mark.parametrize("run", [run for run in RUNS if run not in REAL])
def test_other_units_change_no_more_than_rounding(run):
    x = field()
    one = run(x, 1.0)
    for unit in SIZES:
        assert_same_run(one, run(unit * x, unit), unit, rel=3e-3)


@pytest.mark.parametrize("run", RUNS)
def test_single_precision_within_its_range(run):
    x = field("float32")
    one = run(x, 1.0)
    for power in (-110, 110):
        unit = np.float32(2.0**power)
        other = run(unit * x, float(unit))
        assert other.network.dtype == torch.float32
        assert_same_run(one, other, float(unit), rel=1e-6)


def test_huber_far_from_its_threshold_is_squared_or_absolute():
    """In powers of two and after few sweeps: where a fit ends may depend on rounding, a sweep does not."""
    x, mask = field(), some(RING.dims, 0.8)
    options = {"random_state": 0, "ridge": 1e-3, "max_sweeps": 3}
    for power, threshold in ((-664, 1e10), (664, 1e-15)):  # about 1e-200 and 1e200
        far = tg.fit(2.0**power * x, RING, mask, loss="huber", **options)  # the threshold is 1
        near = tg.fit(x, RING, mask, loss=tg.losses.Huber(threshold), **options)
        assert_same_run(near, far, 2.0**power, rel=1e-9)
        assert far.errors.total > 1e-3


def test_a_start_is_in_the_unit_of_the_data():
    x, mask = field(), some(RING.dims, 0.8)
    start = tg.fit(x, RING, mask, ridge=1e-3, random_state=0).network
    for loss in ("squared", "absolute"):
        options = {"loss": loss, "ridge": 1e-3, "max_sweeps": 2}
        one = tg.fit(x, RING, mask, init=start, **options)
        other = tg.fit(2.0**900 * x, RING, mask, init=start.times_power(900), **options)
        assert_same_run(one, other, 2.0**900, rel=1e-9)


def test_weights_of_any_size():
    x, mask = field(), some(RING.dims, 0.8)
    weights = 0.5 + np.random.default_rng(0).random(x.shape)
    runs = [tg.complete(x, mask, weights=2.0**k * weights, max_steps=1, **FAST) for k in (0, 900, -900)]
    for other, power in zip(runs[1:], (900, -900)):
        assert_same_run(runs[0], other, 1.0, rel=1e-12)
        assert other.history[-1].loss == pytest.approx(runs[0].history[-1].loss * 2.0 ** (power / 2))
