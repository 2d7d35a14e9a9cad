"""Fits of a known structure where entries are missing."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import StopReason as Stop
from tensorgrow import Structure, TensorNetwork
from tensorgrow.search import grow as growth
from tests.oracles import random_network
from tests.tasks.completions import SMALL, STRUCTURES, assert_same, error_at, noisy, planted, rebuilt, some


@pytest.mark.parametrize("structure", STRUCTURES.values(), ids=STRUCTURES)
def test_fit_recovers(structure):
    x, mask = planted(structure), some(structure.dims, 0.7)
    runs = (tg.fit(x, structure, mask, truth=x, random_state=s) for s in (1, 2))  # ALS has local optima
    best = min(runs, key=lambda r: r.validation_error)
    assert best.structure == structure
    assert best.test_error < 1e-5
    assert best.test_error == pytest.approx(error_at(best, x, ~mask), rel=1e-3, abs=1e-12)


def test_fit_with_a_ridge_holds_nothing_out():
    x, mask = noisy(), some(SMALL.dims, 0.8)
    result = tg.fit(x, SMALL, mask, ridge=1e-2, random_state=0)
    assert result.validation_error is None and result.info["num_held_out"] == 0
    assert result.train_error == pytest.approx(result.relative_error, rel=1e-6)
    assert result.relative_error == pytest.approx(error_at(result, x, mask), rel=1e-6)
    assert result.info["ridge"] == 1e-2
    strong = tg.fit(x, SMALL, mask, ridge=1.0, random_state=0)
    assert strong.relative_error > result.relative_error


def test_fit_takes_every_form():
    x, mask = noisy(), some(SMALL.dims, 0.8)
    where = np.argwhere(mask)
    forms = [
        (tg.Observations(where, x[mask], x.shape), None),
        (
            torch.sparse_coo_tensor(
                torch.tensor(where).T, torch.tensor(x[mask]), x.shape, check_invariants=True
            ),
            None,
        ),
        (torch.tensor(x), torch.tensor(mask)),
    ]
    first = tg.fit(x, SMALL, mask, ridge=1e-3, random_state=0)
    for data, seen in forms:
        assert_same(first, tg.fit(data, SMALL, seen, ridge=1e-3, random_state=0))


def test_a_full_mask_fits_like_the_dense_tensor():
    x = noisy(level=0.3)
    start = random_network(SMALL, 0)
    sweeps = {"max_sweeps": 400, "tolerance": 1e-10, "init": start}
    whole = tg.fit(x, SMALL, **sweeps)
    masked = tg.fit(x, SMALL, np.ones(x.shape, bool), ridge=0.0, **sweeps)
    assert masked.relative_error == pytest.approx(whole.relative_error, rel=1e-5)
    np.testing.assert_allclose(rebuilt(masked), rebuilt(whole), atol=1e-3)


@pytest.mark.parametrize("validation", [False, 0.1])
def test_max_sweeps_is_a_maximum(validation, monkeypatch):
    x, mask = noisy(), some(SMALL.dims, 0.8)
    most = 0
    real = growth.als

    def counted(*arguments, **keywords):
        nonlocal most
        fitted = real(*arguments, **keywords)
        most = max(most, fitted.num_sweeps)
        return fitted

    monkeypatch.setattr(growth, "als", counted)
    for sweeps in (1, 3):
        most = 0
        tg.fit(x, SMALL, mask, validation=validation, max_sweeps=sweeps, tolerance=0.0, random_state=0)
        assert most == sweeps


def test_fit_stops_at_the_error():
    x, mask = planted(), some(SMALL.dims, 0.9)
    assert tg.fit(x, SMALL, mask, max_error=0.5, random_state=0).stop is Stop.TARGET_REACHED
    noise = np.random.default_rng(0).standard_normal(SMALL.dims)
    result = tg.fit(noise, SMALL, mask, max_error=1e-3, random_state=0)
    assert result.stop is Stop.CONVERGED
    assert tg.fit(noise, SMALL, mask, max_seconds=0, random_state=0).stop in (
        Stop.CONVERGED,
        Stop.MAX_SECONDS,
    )


def test_fit_goes_on_from_a_network():
    truth = random_network(SMALL, 1)
    x = truth.to_dense().numpy()
    mask = some(SMALL.dims, 0.8)
    result = tg.fit(x, SMALL, mask, init=truth, ridge=0.0)
    assert error_at(result, x, ~mask) < 1e-8
    with pytest.raises(tg.OptionError, match="init"):
        tg.fit(x, SMALL, mask, init=random_network(Structure.rank_one(SMALL.dims), 0))


@pytest.mark.parametrize(
    ("options", "kind", "word"),
    [
        ({"structure": Structure.rank_one((5, 6))}, tg.DataError, r"\(5, 6\)"),
        ({"structure": "tt"}, tg.StructureError, "str"),
        ({"max_sweeps": 0}, tg.OptionError, "max_sweeps"),
        ({"tolerance": -1}, tg.OptionError, "tolerance"),
        ({"ridge": -1.0}, tg.OptionError, "ridge"),
        ({"ridge": math.nan}, tg.OptionError, "ridge"),
        ({"max_error": -1}, tg.OptionError, "max_error"),
        ({"mask": np.ones((5, 6), bool)}, tg.DataError, "mask"),
        ({"truth": np.ones((5, 6))}, tg.DataError, "truth"),
        ({"weights": np.ones((5, 6))}, tg.DataError, "weights"),
        ({"validation": 2.0}, tg.OptionError, "validation"),
        ({"mask": None, "weights": np.ones(SMALL.dims)}, tg.OptionError, "weights"),
        ({"mask": None, "ridge": 1.0}, tg.OptionError, "ridge"),
        ({"mask": None, "truth": np.ones(SMALL.dims)}, tg.OptionError, "truth"),
    ],
)
def test_bad_fit(options, kind, word):
    arguments = {"structure": SMALL, "mask": some(SMALL.dims, 0.8)} | options
    with pytest.raises(kind, match=word):
        tg.fit(noisy(), **arguments)


def test_a_checkpoint_of_another_structure_is_refused(tmp_path):
    x, mask, file = noisy(), some(SMALL.dims, 0.8), tmp_path / "fit.ckpt"
    whole = tg.fit(x, SMALL, mask, random_state=0, checkpoint=file)
    assert_same(tg.fit(x, SMALL, mask, random_state=0, checkpoint=file), whole)
    with pytest.raises(tg.OptionError, match=r"another run.*structure"):
        tg.fit(x, Structure.rank_one(SMALL.dims), mask, random_state=0, checkpoint=file)


# -- forms of missing entries, losses ----------------------------------------------------------------------


def test_nan_and_masked_entries_are_missing():
    x, mask = noisy(), some(SMALL.dims, 0.8)
    expected = tg.fit(x, SMALL, mask, random_state=0)
    hidden = np.where(mask, x, np.nan)
    forms = [hidden, torch.tensor(hidden), np.ma.masked_array(x, ~mask), hidden.astype(np.complex128)]
    for form in forms[:3]:
        assert_same(tg.fit(form, SMALL, random_state=0), expected)
    assert tg.fit(forms[3], SMALL, random_state=0).network.is_complex
    for loss in ("squared", tg.losses.squared):
        whole = tg.fit(x, SMALL, loss=loss, random_state=0)
        assert whole.validation_error is None  # nothing is missing: all is fitted


@pytest.mark.parametrize("missing", [True, False], ids=["some missing", "all known"])
def test_a_loss_with_a_structure(missing):
    """Entries of the network are logarithms of rates."""
    structure = Structure.tensor_train((6, 7, 6), 1)
    rates = np.exp(1.0 + planted(structure, seed=2))
    counts = np.random.default_rng(0).poisson(rates).astype(float)
    seen = some(counts.shape, 0.8) if missing else np.ones(counts.shape, bool)
    x = np.where(seen, counts, np.nan)
    result = tg.fit(x, structure, loss="poisson", random_state=0)
    assert result.structure == structure
    assert result.errors.kind == "deviance" and 0.0 < result.relative_error < 1.0
    assert result.info["loss"] == "poisson" and math.isfinite(result.info["train_loss"])
    expected = tg.fit(counts, structure, seen, loss=tg.losses.Poisson(), random_state=0)
    assert_same(result, expected)
    error = np.linalg.norm(result.fill(x, keep_observed=False) - rates) / np.linalg.norm(rates)
    assert error < 0.35


def test_bad_losses_are_refused():
    with pytest.raises(tg.OptionError, match="loss"):
        tg.fit(noisy(), SMALL, loss="cubic")
    with pytest.raises(tg.DataError, match="counts"):
        tg.fit(noisy(), SMALL, loss="poisson")


def test_a_validation_error_of_zero_reaches_the_target():
    x, held = np.zeros((4, 5, 6)), np.zeros((4, 5, 6), bool)
    x[:2], held[2:, 0] = 1.0, True
    result = tg.fit(x, Structure.rank_one(x.shape), x == x, validation=held, max_error=1e-6, random_state=0)
    assert result.validation_error == 0.0 and result.relative_error > 1e-6
    assert result.stop == Stop.TARGET_REACHED


def test_blocks_are_for_known_tensors():
    x, mask = noisy(), some(SMALL.dims, 0.8)
    for run in (lambda: tg.complete(tg.Blocks(x)), lambda: tg.fit(tg.Blocks(x), SMALL, mask)):
        with pytest.raises(tg.DataError, match=r"every entry is known.* Observations"):
            run()


def test_an_order_beyond_the_largest_float():
    """2^1030 entries: their number is no float, and neither is the memory they would take."""
    dims, rng = (2,) * 1030, np.random.default_rng(0)
    entries = tg.Observations(rng.integers(0, 2, (30, 1030)), np.ones(30), dims)
    ones = TensorNetwork(Structure.rank_one(dims), [torch.ones(2, dtype=torch.float64)] * 1030)
    with pytest.warns(tg.DataWarning, match="degrees of freedom"):
        result = tg.fit(entries, ones.structure, init=ones, ridge=1e-2, max_sweeps=1, random_state=0)
    assert result.relative_error < 0.2
    assert "2,060 parameters" in repr(result) and "10^301 GB" in result._repr_html_()
    with pytest.raises(tg.MemoryLimitError, match=r"10\^301 GB"):
        result.network.to_dense()
