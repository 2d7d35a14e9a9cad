"""`Result.update`: more entries, new slices, windows, only what is new."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import Structure
from tensorgrow.results import networks_among
from tests.tasks.completions import FAST, StopAfter, assert_same, error_at, planted, rebuilt, some

DAYS = 9
SHAPE = (6, DAYS, 7)
TRUTH = planted(Structure.tensor_train(SHAPE, 2), seed=3)
X = TRUTH + 0.02 * TRUTH.std() * np.random.default_rng(0).standard_normal(SHAPE)
SEEN = some(SHAPE, 0.7)


@pytest.fixture(scope="module")
def first() -> tg.Result:
    """All days but the last."""
    return tg.complete(X[:, :-1], SEEN[:, :-1], **FAST)


def quality(result: tg.Result, where=slice(None)) -> float:
    return float(np.linalg.norm((rebuilt(result) - TRUTH)[:, where]) / np.linalg.norm(TRUTH[:, where]))


def known_at(day: int) -> tuple[np.ndarray, tg.Observations]:
    """Positions that are known of one day, and their entries."""
    where = np.argwhere(SEEN & (np.arange(DAYS) == day)[:, None])
    return where, tg.Observations(where, X[tuple(where.T)])


def test_a_new_day_costs_a_few_moves_and_no_accuracy(first):
    fresh = tg.complete(X, SEEN, **FAST)
    updated = first.update(X, SEEN, random_state=0)
    assert updated.structure.dims == SHAPE
    assert quality(updated) < 1.1 * quality(fresh)
    assert len(updated.history) < len(fresh.history)
    assert updated.info["updates"] == 1 and updated.info["remembered"] == 0
    assert first.structure.dims == (6, DAYS - 1, 7)  # the old result is as it was


def test_more_entries_of_the_same_tensor():
    few = some(SHAPE, 0.35)
    old = tg.complete(X, few, **FAST)
    updated = old.update(X, SEEN | few, random_state=0)
    assert quality(updated) < quality(old)
    assert updated.info["num_observations"] == int((SEEN | few).sum())


def test_it_grows_where_that_pays():
    old = tg.complete(X, SEEN, max_steps=0, **FAST)  # rank one
    assert not old.structure.edges
    updated = old.update(X, SEEN, random_state=0)
    assert updated.structure.edges and quality(updated) < 0.1
    assert not old.update(X, SEEN, random_state=0, max_steps=0).structure.edges


def test_the_ridge_stays_until_the_data_is_another(first):
    assert first.update(X, SEEN, **FAST).info["ridge"] == first.info["ridge"]
    options = tg.GreedyOptions.for_update("fast").replace(ridge=0.5)
    assert first.update(X, SEEN, random_state=0, options=options).info["ridge"] == 0.5


def test_a_window_moves_on(first):
    updated = first.update(X[:, 2:], SEEN[:, 2:], forget={1: 2}, **FAST)
    assert updated.structure.dims == (6, DAYS - 2, 7)
    assert np.linalg.norm(rebuilt(updated) - TRUTH[:, 2:]) < 0.1 * np.linalg.norm(TRUTH[:, 2:])


def test_only_the_new_day(first):
    """Listed, or dense with NaN; the network stands for the days before."""
    where, listed = known_at(DAYS - 1)
    dense = np.full(SHAPE, np.nan)
    dense[tuple(where.T)] = X[tuple(where.T)]
    updated = first.update(listed, **FAST)
    assert updated.info["remembered"] == first.info["num_observations"]
    assert updated.info["num_observations"] == updated.info["remembered"] + len(where)
    assert quality(updated, slice(-1)) < 1.4 * quality_before(first)
    assert quality(updated, slice(-1, None)) < 0.1
    np.testing.assert_allclose(rebuilt(first.update(dense, **FAST)), rebuilt(updated), atol=1e-8)
    # Where the user says that this is all there is, the days before are not respected.
    with pytest.warns(tg.DataWarning, match="slices without any observation"):
        alone = first.update(listed, only_new=False, validation=False, **FAST)
    assert alone.info["remembered"] == 0 and alone.info["num_observations"] == len(where)


def quality_before(result: tg.Result) -> float:
    return float(np.linalg.norm(rebuilt(result) - TRUTH[:, :-1]) / np.linalg.norm(TRUTH[:, :-1]))


def test_a_few_entries_are_fitted_and_nothing_grows(first, recwarn):
    where = np.array([[0, 8, 0], [1, 8, 3], [2, 8, 1]])
    updated = first.update(tg.Observations(where, X[tuple(where.T)]), random_state=0)
    assert updated.structure == first.structure.with_dims(SHAPE)
    assert updated.validation_error is None
    assert not [w for w in recwarn if "held out" in str(w.message)]


def test_a_corrected_entry_counts_instead_of_the_remembered_one(first):
    where, value = np.array([[0, 0, 0]]), np.abs(X).max()
    heavy = tg.Observations(where, [value], weights=[1.0])
    updated = first.update(heavy, only_new=True, random_state=0)
    assert rebuilt(updated)[0, 0, 0] > rebuilt(first)[0, 0, 0]


def test_stream_of_only_new_days():
    """Three days, one after the other, each known to one update alone."""
    result = tg.fit(X[:, :6], Structure.tensor_train((6, 6, 7), 2), SEEN[:, :6], random_state=0)
    for day in range(6, DAYS):
        result = result.update(known_at(day)[1], effort="fast", random_state=0)
    assert result.structure.dims == SHAPE and result.info["updates"] == DAYS - 6
    assert quality(result) < 0.1


def test_tables_find_their_labels():
    import pandas as pd

    where = np.argwhere(SEEN)
    table = pd.DataFrame(
        {
            "place": [f"p{k}" for k in where[:, 0]],
            "day": np.datetime64("2024-03-01") + where[:, 1],
            "hour": where[:, 2],
            "count": X[tuple(where.T)],
        }
    )
    day = where[:, 1]
    old = tg.complete(table[day < 8], **FAST)
    later = old.update(table[day > 1], **FAST)  # two days gone, one new
    assert later.structure.dims == (6, 7, 7)
    labels = [("p3", "2024-03-09", 4), ("p0", "2024-03-03", 0)]
    np.testing.assert_allclose(later.predict(labels), [TRUTH[3, 8, 4], TRUTH[0, 2, 0]], atol=0.1)
    with pytest.raises(tg.DataError, match="not known"):
        later.predict([("p3", "2024-03-01", 4)])
    today = old.update(table[day == 8], **FAST)  # nothing gone: only what is new
    assert today.structure.dims == SHAPE and today.info["remembered"] > 0
    np.testing.assert_allclose(today.predict(labels), [TRUTH[3, 8, 4], TRUTH[0, 2, 0]], atol=0.1)
    assert old.update(table[day == 8], forget={"day": 3}, **FAST).structure.dims == (6, 6, 7)
    with pytest.raises(tg.DataError, match="must be of one kind"):
        old.update(table.assign(day=day), **FAST)
    with pytest.raises(tg.DataError, match="columns"):
        old.update(table.rename(columns={"place": "zone"}), **FAST)


def test_named_arrays_find_their_labels(tmp_path):
    import xarray as xr

    dates = np.datetime64("2024-03-01") + np.arange(DAYS)
    x = xr.DataArray(np.where(SEEN, X, np.nan), dims=("place", "day", "hour"), coords={"day": dates})
    old = tg.complete(x[:, :-1], **FAST)
    old.save(tmp_path / "old.safetensors")
    later = tg.load(tmp_path / "old.safetensors").update(x[:, 2:], **FAST)
    filled = later.to_array()
    assert filled.dims == x.dims and (filled.day == x.day[2:]).all()
    np.testing.assert_allclose(filled, TRUTH[:, 2:], atol=0.2 * TRUTH.std())
    today = old.update(x[:, -1:], **FAST).to_array()
    assert (today.day == x.day).all()
    with pytest.raises(tg.DataError, match="no labels for them"):
        old.update(x.to_numpy(), **FAST)
    with pytest.raises(tg.DataError, match="axes of the new data"):
        old.update(x.rename(day="date"), **FAST)


def test_losses_and_bounds_stay():
    rates = np.exp(1.0 + TRUTH / TRUTH.std() / 3)
    counts = np.random.default_rng(0).poisson(rates).astype(float)
    old = tg.complete(counts[:, :-1], SEEN[:, :-1], loss="poisson", bounds=(0.5, 40), max_steps=2, **FAST)
    for new in (counts, np.where(np.arange(DAYS)[:, None] == DAYS - 1, counts, np.nan)):
        updated = old.update(new, SEEN & ~np.isnan(new), max_steps=1, **FAST)
        assert updated.info["loss"] == "poisson" and updated.info["bounds"] == [0.5, 40]
        filled = updated.to_array()
        assert filled.min() >= 0.5 and np.corrcoef(filled.ravel(), rates.ravel())[0, 1] > 0.5


def test_weights_and_torch_and_complex():
    x = torch.as_tensor(X + 1j * X[::-1].copy())
    old = tg.complete(x[:, :-1], SEEN[:, :-1], **FAST)
    updated = old.update(x, SEEN, weights=np.ones(SHAPE), **FAST)
    assert isinstance(updated.to_array(), torch.Tensor) and updated.network.is_complex


def test_checkpoints_keep_an_update(first, tmp_path):
    options = {"random_state": 0, "max_parameters": 70, "truth": TRUTH}
    for x, mask in ((X, SEEN), (known_at(DAYS - 1)[1], None)):
        whole = first.update(x, mask, **options)
        file = tmp_path / f"{mask is None}.ckpt"
        first.update(x, mask, checkpoint=file, callbacks=StopAfter(2), **options)
        assert_same(first.update(x, mask, checkpoint=file, **options), whole)


def test_decompositions_are_fitted_anew():
    old = tg.decompose(TRUTH[:, :-1], max_error=1e-6, effort="fast")
    updated = old.update(TRUTH, random_state=0)
    assert updated.structure.dims == SHAPE and quality(updated) < 1e-4


BAD = {
    "empty": (lambda r: r.update(np.full(SHAPE, np.nan)), "at least one observation"),
    "no entries": (lambda r: r.update(tg.Observations(np.empty((0, 3), int), [], SHAPE)), "empty"),
    "other order": (lambda r: r.update(X[0]), "number of axes"),
    "shorter": (lambda r: r.update(X[:, :5], SEEN[:, :5]), "forget={1: 3}"),
    "all gone": (lambda r: r.update(X, SEEN, forget={1: 8}), "leaves none"),
    "no such axis": (lambda r: r.update(X, SEEN, forget={"day": 1}), "names the axis 'day'"),
    "less than nothing": (lambda r: r.update(X, SEEN, forget={1: -1}), "at least 0"),
    "complex": (lambda r: tg.complete(X * 1j, SEEN, **FAST).update(X, SEEN), "complex"),
    "blocks": (lambda r: r.update(tg.Blocks(X)), "in memory"),
    "options": (lambda r: r.update(X, SEEN, effort="lazy"), "lazy"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_updates_are_refused(name, first):
    call, message = BAD[name]
    with pytest.raises((tg.DataError, tg.OptionError), match=message):
        call(first)


def test_other_results_and_keywords_are_refused(first):
    loss = tg.learn(lambda net: (net.to_dense() - 1).square().sum(), (2, 2), max_steps=0, effort="fast")
    with pytest.raises(tg.DataError, match="completions and decompositions"):
        loss.update(np.ones((2, 2)))
    with pytest.raises(TypeError, match="unexpected keyword argument 'windows'"):
        first.update(X, SEEN, windows=3)


def test_the_warm_fit_has_converged(first):
    updated = first.update(X, SEEN, max_steps=0, **FAST)
    fitted = tg.fit(X, updated.structure, SEEN, init=updated.network, ridge=updated.info["ridge"])
    assert error_at(updated, TRUTH, ~SEEN) < 1.05 * error_at(fitted, TRUTH, ~SEEN)


@pytest.fixture
def costly(monkeypatch):
    """Sweeps count as costly: few are made, and where they begin matters."""
    monkeypatch.setattr("tensorgrow.search.pace.CHEAP", 0.0)


def test_new_slices_are_solved_for_before_the_sweeps(first, costly):
    updated = first.update(X, SEEN, max_steps=0, **FAST)
    assert quality(updated) < 1.2 * quality_before(first)
    again = updated.update(X, SEEN, max_steps=0, **FAST)  # nothing is new
    assert quality(again) < 1.05 * quality(updated)


def test_the_last_fit_begins_with_what_saw_the_held_out_entries(first, costly, monkeypatch):
    same = first.update(X[:, :-1], SEEN[:, :-1], max_steps=0, **FAST)
    begun, fit = [], tg.tasks.held_out.als

    def watched(objective, network, *args, **keywords):
        begun.append(network)
        return fit(objective, network, *args, **keywords)

    monkeypatch.setattr(tg.tasks.held_out, "als", watched)
    same.update(X[:, :-1], SEEN[:, :-1], max_steps=0, **FAST)
    (network,) = begun
    np.testing.assert_allclose(rebuilt(same), network.to_dense().numpy(), rtol=1e-9)


def test_the_strength_of_the_same_priors_stays_where_sweeps_are_costly(costly):
    smooth = {2: tg.priors.smooth()}
    old = tg.complete(X[:, :-1], SEEN[:, :-1], priors=smooth, **FAST)
    updated = old.update(X, SEEN, priors=smooth, **FAST)
    assert updated.info["prior_strength"] == old.info["prior_strength"]
    given = old.update(X, SEEN, priors={2: tg.priors.smooth(0.3)}, **FAST)
    assert "prior_strength" not in given.info


@pytest.mark.parametrize("loss", ["poisson", "absolute"])
def test_other_losses_where_sweeps_are_costly(loss, costly):
    counts = np.random.default_rng(0).poisson(3 * np.exp(0.2 * TRUTH / TRUTH.std())).astype(float)
    old = tg.complete(counts[:, :-1], SEEN[:, :-1], loss=loss, max_steps=1, **FAST)
    updated = old.update(counts, SEEN, max_steps=0, **FAST)
    assert updated.structure.dims == SHAPE and np.isfinite(rebuilt(updated)).all()


def test_digits_and_committees():
    """Members in digits of their own: whole axes grow, cut ones within their padding."""
    rows = np.arange(30)
    full = np.cos(rows / 5)[:, None] * np.exp(-rows[:DAYS] / 9) + 0.1 * np.sin(rows)[:, None]
    mask = some(full.shape, 0.8)
    old = tg.complete(full[:29, :-1], mask[:29, :-1], tensorize=((5, 6), (DAYS - 1,)), members=2, **FAST)
    assert len(networks_among(old.members)) == 2
    updated = old.update(full[:29], mask[:29], **FAST)
    assert len(networks_among(updated.members)) == 2 and updated.to_array().shape == (29, DAYS)
    assert np.linalg.norm(updated.to_array() - full[:29]) < 0.05 * np.linalg.norm(full[:29])
    where = np.argwhere(mask[:29] & (np.arange(DAYS) == DAYS - 1))
    today = old.update(tg.Observations(where, full[tuple(where.T)]), **FAST)
    assert today.info["remembered"] and today.to_array().shape == (29, DAYS)
    one = old.members[0]
    longer = one.update(full[:, :-1], mask[:, :-1], **FAST)
    assert longer.tensorization.shape == (30, DAYS - 1)
    with pytest.raises(tg.DataError, match="cut into digits"):
        one.update(full[1:, :-1], mask[1:, :-1], forget={0: 1})
    with pytest.raises(tg.DataError, match="it cannot have 31"):
        one.update(np.concatenate([full, full[:1]])[:, :-1])
