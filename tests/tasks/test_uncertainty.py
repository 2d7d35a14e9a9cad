"""How sure completions are: intervals and standard deviations, calibrated on held-out entries."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch

import tensorgrow as tg
from tensorgrow import Structure
from tests.oracles import random_network

RING = Structure.tensor_ring((8, 8, 8, 8), 2)


def noisy(seed, noise=0.3, scale=1.0):
    rng = np.random.default_rng(seed)
    x = random_network(RING, seed).to_dense().numpy()
    return scale * (x / x.std() + noise * rng.standard_normal(x.shape)), rng.random(x.shape) < 0.5


@pytest.fixture(scope="module")
def fitted():
    """Data, mask and a fit of the true structure."""
    y, mask = noisy(0)
    return y, mask, tg.fit(y, RING, mask, random_state=0)


def test_intervals_hold_as_many_values_as_they_say():
    shares, widths = {0.5: [], 0.9: []}, []
    for seed in range(4):
        y, mask = noisy(seed)
        result = tg.fit(y, RING, mask, random_state=0)
        hidden = np.argwhere(~mask)
        for level, found in shares.items():
            values, low, high = result.predict(hidden, interval=level)
            found.append(np.mean((low <= y[~mask]) & (y[~mask] <= high)))
            assert values == pytest.approx(result.predict(hidden))
        widths.append(np.mean(high - low))
        assert np.sqrt(np.mean(result.std(hidden) ** 2)) == pytest.approx(0.32, rel=0.2)
    # Each mask holds out 200 entries, which alone leaves two percent to chance.
    assert np.mean(shares[0.5]) == pytest.approx(0.5, abs=0.06)
    assert np.mean(shares[0.9]) == pytest.approx(0.9, abs=0.04)
    assert np.mean(widths) == pytest.approx(2 * 1.645 * 0.32, rel=0.15)  # those of the noise, nearly


def test_widths_follow_the_noise_and_what_is_known():
    rng = np.random.default_rng(0)
    y, mask = noisy(1, noise=0.0)
    y = y + rng.standard_normal(y.shape) * np.array([0.1] * 4 + [0.6] * 4)[:, None, None, None]
    mask[:, 0] &= rng.random(mask[:, 0].shape) < 0.05  # a slice of which little is known
    std = tg.fit(y, RING, mask, random_state=0).std()
    assert std[4:].mean() > 2.0 * std[:4].mean()
    assert std[:, 0].mean() > 1.3 * std[:, 1:].mean()
    assert std.shape == y.shape


def test_a_slice_without_entries_is_least_known():
    y, mask = noisy(2)
    mask[:, :, 3] = False
    with pytest.warns(tg.DataWarning, match="without any observation"):
        std = tg.fit(y, RING, mask, random_state=0).std()
    assert np.isfinite(std).all()
    assert std[:, :, 3].mean() > 2.0 * std[:, :, 4].mean()
    assert std[:, :, 3].mean() < 2.0 * y.std()


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_units_do_not_matter(fitted, scale):
    _, mask, result = fitted
    other = tg.fit(noisy(0, scale=scale)[0], RING, mask, random_state=0)
    where = np.argwhere(~mask)[:50]
    assert other.std(where) / scale == pytest.approx(result.std(where), rel=1e-3)


def test_exact_data_has_narrow_intervals():
    x, mask = noisy(3, noise=0.0)
    result = tg.complete(x, mask, random_state=0)
    values, low, high = result.predict(np.argwhere(~mask), interval=0.9)
    assert np.isfinite(low).all() and np.isfinite(high).all()
    assert np.max(high - low) < 1e-4
    assert values == pytest.approx(x[~mask], abs=1e-4)


def test_files_keep_it(fitted, tmp_path):
    _, mask, result = fitted
    where = np.argwhere(~mask)[:20]
    for whole in (True, False):
        result.save(tmp_path / "run", whole=whole)
        again = tg.load(tmp_path / "run")
        assert again.std(where) == pytest.approx(result.std(where))
        assert np.allclose(again.predict(where, interval=0.8), result.predict(where, interval=0.8))


def test_arrays_made_of_digits_answer_in_their_own_shape():
    rng = np.random.default_rng(0)
    picture = np.add.outer(np.sin(np.arange(16) / 3.0), np.cos(np.arange(16) / 4.0))
    picture = picture + 0.05 * rng.standard_normal(picture.shape)
    mask = rng.random(picture.shape) < 0.7
    tensor, how = tg.tensorize(picture, ((4, 4), (4, 4)), order="interleaved")
    result = tg.complete(tensor, how.apply(mask), random_state=0, effort="fast")
    result = dataclasses.replace(result, tensorization=how)
    std = result.std()
    assert std.shape == (16, 16)
    assert std[3, 7] == pytest.approx(result.std(how.positions(np.array([[3, 7]])))[0])


def test_labels_answer_with_a_series(fitted):
    y, mask, _ = fitted
    where = np.argwhere(mask)
    table = pd.DataFrame(
        {"a": [f"u{i}" for i in where[:, 0]], **{c: where[:, k] for k, c in enumerate("abcd") if k}}
    )
    table["value"] = y[mask]
    result = tg.fit(table, RING, random_state=0)
    asked = table.iloc[5:9]
    values, low, high = result.predict(asked, interval=0.9)
    std = result.std(asked)
    assert list(low.index) == list(std.index) == list(asked.index)
    assert ((low < values) & (values < high)).all()


def test_torch_data_gives_torch(fitted):
    y, mask, _ = fitted
    result = tg.fit(torch.tensor(y), RING, torch.tensor(mask), random_state=0)
    low = result.predict(np.argwhere(~mask)[:3], interval=0.9)[1]
    assert isinstance(low, torch.Tensor) and isinstance(result.std(), torch.Tensor)


def test_bounds_hold_for_intervals(fitted):
    y, mask, _ = fitted
    result = tg.fit(y, RING, mask, random_state=0, bounds=(-1.0, 1.0))
    _, low, high = result.predict(np.argwhere(~mask), interval=0.9)
    assert low.min() == -1.0 and high.max() == 1.0


def test_robust_losses_have_intervals(fitted):
    y, mask, _ = fitted
    result = tg.fit(y, RING, mask, loss="huber", random_state=0)
    _, low, high = result.predict(np.argwhere(~mask), interval=0.9)
    assert np.mean((low <= y[~mask]) & (y[~mask] <= high)) == pytest.approx(0.9, abs=0.07)


# -- committees --------------------------------------------------------------------------------------------


def test_a_committee_that_held_out_the_same_entries_is_measured_as_one(tmp_path):
    rng = np.random.default_rng(0)
    picture = np.sin(np.add.outer(np.arange(16) / 3.0, np.arange(16) / 4.0))
    picture = picture + 0.1 * rng.standard_normal(picture.shape)
    mask = rng.random(picture.shape) < 0.8
    digits = ((4, 4), (4, 4))
    run = {"effort": "fast", "random_state": 0, "max_steps": 4}
    result = tg.complete(picture, mask, tensorize=digits, members=2, validation=0.4, **run)
    where, weights = np.argwhere(~mask), result.member_weights
    values, low, high = result.predict(where, interval=0.8)
    assert values == pytest.approx(result.predict(where))
    assert np.mean((low <= picture[~mask]) & (picture[~mask] <= high)) == pytest.approx(0.8, abs=0.15)
    parts = np.stack([m.predict(where) for m in result.members])
    spread = np.average((parts - values) ** 2, axis=0, weights=weights)
    model = np.average([m.std(where) ** 2 for m in result.members], axis=0, weights=weights) + spread
    ratio = result.std(where) ** 2 / model
    assert ratio == pytest.approx(np.full(len(ratio), ratio[0]))  # one factor, measured on held-out entries
    assert result.std()[~mask] == pytest.approx(result.std(where))
    result.save(tmp_path / "run")
    assert tg.load(tmp_path / "run").std(where) == pytest.approx(result.std(where))


def test_a_committee_whose_members_held_out_others_counts_what_they_differ_by():
    y, mask = noisy(0)
    result = tg.complete(y, mask, members=2, effort="fast", random_state=0, max_steps=4)
    hidden = np.argwhere(~mask)
    assert result.uncertainty.count == sum(m.uncertainty.count for m in result.members)
    off = np.sqrt(np.mean((result.predict(hidden) - y[~mask]) ** 2))
    alone = np.sqrt(np.mean([m.std(hidden) ** 2 for m in result.members]))
    assert off == pytest.approx(np.sqrt(np.mean(result.std(hidden) ** 2)), rel=0.15)
    assert np.sqrt(np.mean(result.std(hidden) ** 2)) <= alone * 1.001


# -- refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.0, 1.0, 90, -0.5, "wide"])
def test_levels_outside_zero_and_one_are_refused(fitted, level):
    with pytest.raises(tg.OptionError, match="must lie between 0 and 1"):
        fitted[2].predict([[0, 0, 0, 0]], interval=level)


def test_what_held_nothing_out_says_so(fitted):
    y, mask, _ = fitted
    whole = tg.fit(y, RING, random_state=0, max_sweeps=2)
    none = tg.fit(y, RING, mask, ridge=0.01, random_state=0, max_sweeps=2)
    counts = np.random.default_rng(0).poisson(3.0, y.shape)
    rates = tg.fit(counts, RING, mask, loss="poisson", random_state=0, max_sweeps=2)
    for result, why in (
        (whole, "not learned from some entries"),
        (none, "validation=0.1"),
        (rates, "poisson"),
    ):
        with pytest.raises(tg.OptionError, match=f"measured on held-out entries, but .*{why}"):
            result.predict([[0, 0, 0, 0]], interval=0.9)
        with pytest.raises(tg.OptionError, match=why):
            result.std()


def test_complex_values_have_deviations_but_no_intervals():
    y, mask = noisy(0)
    result = tg.fit(y + 1j * noisy(1)[0], RING, mask, random_state=0, max_sweeps=3)
    assert result.std([[0, 0, 0, 0]])[0] > 0.0
    with pytest.raises(tg.OptionError, match="real values"):
        result.predict([[0, 0, 0, 0]], interval=0.9)


def test_positions_are_checked(fitted):
    with pytest.raises(tg.DataError, match="outside"):
        fitted[2].std([[8, 0, 0, 0]])
