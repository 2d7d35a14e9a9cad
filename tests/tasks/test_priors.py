"""Priors from the keyword to the filled array."""

from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow import priors
from tensorgrow.search import GreedyOptions

NOISE = 0.1


def waves(size: int = 24, seed: int = 0) -> np.ndarray:
    """Smooth along the first axis, not along the others, of rank two."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, size)
    time = np.stack([np.cos(3 * t), np.sin(5 * t)], 1)
    return np.einsum("tr,ar,br->tab", time, rng.normal(size=(8, 2)), rng.normal(size=(6, 2)))


def observed(x: np.ndarray, share: float, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return x + NOISE * x.std() * rng.normal(size=x.shape), rng.random(x.shape) < share


def error(result: tg.Result, x: np.ndarray, where: np.ndarray) -> float:
    return float(np.linalg.norm((result.to_array() - x)[where]) / np.linalg.norm(x[where]))


def complete(y, mask, known=None, **more):
    options = {"effort": "fast", "max_steps": 4, "random_state": 0} | more
    return tg.complete(y, mask, priors=known, **options)


def test_what_is_smooth_is_filled_better():
    x = waves()
    y, mask = observed(x, 0.12)
    plain, smooth = complete(y, mask), complete(y, mask, {0: priors.smooth()})
    assert error(smooth, x, ~mask) < 0.7 * error(plain, x, ~mask)
    assert smooth.info["prior_strength"] > 0
    assert smooth.info["priors"] == {"0": [priors.smooth().describe()]}
    assert "priors" not in plain.info and "prior_strength" not in plain.info


def test_gaps_come_from_the_prior():
    x = waves()
    y, mask = observed(x, 0.5)
    gap = np.zeros(x.shape, bool)
    gap[9:12] = True
    mask &= ~gap
    with pytest.warns(tg.DataWarning):  # slices without entries
        plain = complete(y, mask, {})
    with pytest.warns(tg.DataWarning):
        smooth = complete(y, mask, {0: priors.smooth(order=2)})
    assert error(smooth, x, gap) < 0.2 < error(plain, x, gap)


def test_silent_sensors_come_from_their_neighbours():
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(4), 6)
    sensor = rng.normal(size=(4, 2))[clusters] + 0.05 * rng.normal(size=(24, 2))
    x = np.einsum("sr,tr,ur->stu", sensor, rng.normal(size=(10, 2)), rng.normal(size=(8, 2)))
    y, mask = observed(x, 0.5)
    silent = np.zeros(x.shape, bool)
    silent[[0, 7, 20]] = True
    mask &= ~silent
    graph = priors.graph(clusters[:, None] == clusters)
    with pytest.warns(tg.DataWarning):
        result = complete(y, mask, {"sensor": graph}, names=("sensor", "a", "b"))
    assert error(result, x, silent) < 0.2


@pytest.mark.parametrize("known", [priors.periodic(6), priors.autoregressive(6)], ids=["period", "lag"])
def test_periods_fill_gaps(known):
    rng = np.random.default_rng(0)
    x = np.einsum("tr,ar->ta", np.tile(rng.normal(size=(6, 2)), (4, 1)), rng.normal(size=(12, 2)))
    y, mask = observed(x, 0.6)
    gap = np.zeros(x.shape, bool)
    gap[8:11] = True
    mask &= ~gap
    with pytest.warns(tg.DataWarning):
        result = complete(y, mask, {0: known})
    assert error(result, x, gap) < 0.25


def test_a_given_strength_is_kept():
    x = waves()
    y, mask = observed(x, 0.2)
    known = {0: [priors.smooth(0.3), priors.periodic(strength=0.01)]}
    assert "prior_strength" not in complete(y, mask, known, max_steps=1).info


def test_without_held_out_entries_the_strength_is_the_default():
    x = waves()
    y, mask = observed(x, 0.2)
    result = complete(y, mask, {0: priors.smooth()}, max_steps=1, validation=False)
    assert result.info["prior_strength"] == 0.1


@pytest.mark.parametrize("loss", ["absolute", "huber"])
def test_other_losses_take_priors(loss):
    x = waves()
    y, mask = observed(x, 0.12)
    structure = tg.Structure.tensor_train(x.shape, 2)
    plain = tg.fit(y, structure, mask, loss=loss, random_state=0)
    smooth = tg.fit(y, structure, mask, loss=loss, priors={0: priors.smooth()}, random_state=0)
    assert error(smooth, x, ~mask) < 0.7 * error(plain, x, ~mask)


def test_fits_of_one_structure_take_priors():
    x = waves()
    y, mask = observed(x, 0.12)
    structure = tg.Structure.tensor_train(x.shape, 2)
    plain = tg.fit(y, structure, mask, random_state=0)
    smooth = tg.fit(y, structure, mask, priors={0: priors.smooth()}, random_state=0)
    assert error(smooth, x, ~mask) < 0.7 * error(plain, x, ~mask)


def test_resumed_runs_have_the_same_priors(tmp_path):
    x = waves(12)
    y, mask = observed(x, 0.3)
    file, known = tmp_path / "run", {0: priors.smooth()}
    whole = complete(y, mask, known, max_steps=3)
    complete(y, mask, known, max_steps=1, checkpoint=file)
    resumed = complete(y, mask, known, max_steps=3, checkpoint=file)
    assert [(s.kind, s.edge) for s in resumed.history] == [(s.kind, s.edge) for s in whole.history]
    assert resumed.info["prior_strength"] == whole.info["prior_strength"]
    for other in (None, {0: priors.smooth(0.1)}, {1: priors.smooth()}):
        with pytest.raises(tg.TensorgrowError, match="prior"):
            complete(y, mask, other, max_steps=3, checkpoint=file)


def test_pictures_are_smooth_along_digits():
    i, j = np.meshgrid(np.arange(24), np.arange(24), indexing="ij")
    x = np.stack([np.cos((i + c * j) / 9) for c in range(3)], 2)
    y, mask = observed(x, 0.2)
    known, graph = priors.smooth(), priors.graph(np.ones((24, 24)))
    digits = ((4, 6), (4, 6), (3,))
    plain = complete(y, mask, tensorize=digits)
    smooth = complete(y, mask, {0: known, 1: known}, tensorize=digits)
    assert error(smooth, x, ~mask) < error(plain, x, ~mask)
    assert set(smooth.info["priors"]) == {"0", "1"}  # as the user says it
    kept = complete(y, mask, {0: graph}, tensorize="auto", max_steps=1)  # such an axis is not cut
    assert kept.tensorization is None or len(kept.tensorization.digits[0]) == 1
    with pytest.raises(tg.OptionError, match="digits"):
        complete(y, mask, {0: graph}, tensorize=((4, 6), (24,), (3,)))


def test_complex_numbers_take_priors():
    x = waves() * np.exp(1j * np.linspace(0, 2, 24))[:, None, None]
    y, mask = observed(x.real, 0.3)
    result = complete(y + 1j * x.imag, mask, {0: priors.smooth()})
    assert error(result, x, ~mask) < 0.3


def test_bad_priors_are_refused():
    x = waves(6)
    with pytest.raises(tg.OptionError, match="axis 7"):
        complete(x, x > 0, {7: priors.smooth()})
    with pytest.raises(tg.DataError, match="3 nodes"):
        complete(x, x > 0, {0: priors.graph(np.ones((3, 3)))})


# -- non-negativity ------------------------------------------------------------------------------------------


def parts_of(shape=(9, 8, 7), rank=3, seed=0) -> np.ndarray:
    """A sum of a few parts, none of them negative and each of them zero here and there."""
    rng = np.random.default_rng(seed)
    factors = [rng.random((n, rank)) * (rng.random((n, rank)) < 0.6) for n in shape]
    return np.einsum("ar,br,cr->abc", *factors)


def noisy(x: np.ndarray, share: float, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    y, mask = observed(x, share, seed)
    return y.clip(0), mask


def assert_nonnegative(result: tg.Result, nodes=None) -> None:
    """No core has a negative entry, on the way as at the end; nor has the tensor where no core has."""
    for one in result.members or (result,):
        for network in (one.network, *(p.network for p in one.path)):
            every = range(network.structure.num_nodes) if nodes is None else nodes
            assert all((network.cores[k] >= 0).all() for k in every)
    if nodes is None:
        assert (np.asarray(result.to_array()) >= 0).all()


SOME = {0: priors.nonnegative(), 2: priors.nonnegative()}


@pytest.mark.parametrize("effort", ["fast", "balanced"])
def test_completed_tensors_have_no_negative_entries(effort):
    y, mask = noisy(parts_of(), 0.5)
    assert_nonnegative(complete(y, mask, "nonnegative", effort=effort, max_steps=3))


def test_some_axes_may_keep_their_signs():
    x = parts_of() * np.where(np.arange(8) % 2, 1.0, -1.0)[:, None]
    y, mask = observed(x, 0.5)
    result = complete(y, mask, SOME, max_steps=6)
    assert_nonnegative(result, SOME)
    assert (result.network.cores[1] < 0).any()
    assert result.relative_error < 0.2


def test_parts_are_found_better_without_negative_entries():
    logs = []
    for seed in range(4):  # a single fit may end anywhere
        x = parts_of((12, 11, 10), 2, seed)
        y, mask = noisy(x, 0.2)
        structure = tg.Structure.tensor_train(x.shape, 2)
        plain = tg.fit(y, structure, mask, random_state=0)
        parts = tg.fit(y, structure, mask, priors="nonnegative", random_state=0)
        assert (plain.to_array() < 0).any()
        assert_nonnegative(parts)
        logs.append(np.log([error(parts, x, ~mask), error(plain, x, ~mask)]))
    parts, plain = np.exp(np.mean(logs, 0))
    assert parts < 0.6 * plain


def test_growth_finds_the_parts():
    x = parts_of()
    y, mask = noisy(x, 0.5)
    result = complete(y, mask, "nonnegative", max_steps=8)
    assert_nonnegative(result)
    assert error(result, x, ~mask) < 0.25


def test_other_priors_go_with_it():
    x = parts_of((24, 8, 7))
    y, mask = noisy(x, 0.4)
    mask[5] = False
    both = {0: [priors.smooth(), priors.nonnegative()], 1: priors.nonnegative(), 2: priors.nonnegative()}
    with pytest.warns(tg.DataWarning):  # a slice without entries
        assert_nonnegative(complete(y, mask, both))


@pytest.mark.parametrize("loss", ["absolute", "huber"])
def test_other_losses_have_no_negative_entries(loss):
    y, mask = noisy(parts_of(), 0.5)
    assert_nonnegative(complete(y, mask, "nonnegative", loss=loss, max_steps=1))


def test_inner_nodes_have_no_negative_entries():
    y, mask = noisy(parts_of(), 0.6)
    hub = tg.Structure(y.shape, {(k, 3): 2 for k in range(3)})
    assert_nonnegative(tg.fit(y, hub, mask, priors="nonnegative", random_state=0))
    some = tg.fit(y, hub, mask, priors=SOME, random_state=0)
    assert_nonnegative(some, SOME)


def test_any_network_may_be_the_start():
    y, mask = noisy(parts_of(), 0.5)
    init = tg.TensorNetwork.random(tg.Structure.tensor_ring(y.shape, 2), random_state=1)
    assert_nonnegative(complete(y, mask, "nonnegative", init=init, max_steps=0))


def test_resumed_runs_have_no_negative_entries(tmp_path):
    y, mask = noisy(parts_of(), 0.5)
    file = tmp_path / "run"
    whole = complete(y, mask, "nonnegative", max_steps=2)
    complete(y, mask, "nonnegative", max_steps=1, checkpoint=file)
    resumed = complete(y, mask, "nonnegative", max_steps=2, checkpoint=file)
    assert_nonnegative(resumed)
    assert [(s.kind, s.edge) for s in resumed.history] == [(s.kind, s.edge) for s in whole.history]


def test_committees_have_no_negative_entries():
    y, mask = noisy(parts_of(), 0.5)
    assert_nonnegative(complete(y, mask, "nonnegative", members=2, max_steps=2))


def test_digits_have_no_negative_entries():
    y, mask = noisy(parts_of((12, 8, 7)), 0.5)
    assert_nonnegative(complete(y, mask, "nonnegative", tensorize=((3, 4), (8,), (7,)), max_steps=3))


def test_updates_take_priors():
    y, mask = noisy(parts_of(), 0.5)
    result = complete(y[:-1], mask[:-1], "nonnegative", max_steps=2)
    updated = result.update(y, mask, priors="nonnegative", max_steps=1)
    assert updated.structure.dims == y.shape
    assert_nonnegative(updated)


def test_partitions_have_no_negative_entries():
    pandas, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    y, mask = noisy(parts_of(), 0.5)
    where = np.argwhere(mask)
    frame = pandas.DataFrame({n: where[:, k] for k, n in enumerate("abc")} | {"value": y[mask]})
    parts = dd.from_pandas(frame, npartitions=2)
    assert_nonnegative(tg.complete(parts, priors="nonnegative", effort="fast", max_steps=1, random_state=0))
    frame.loc[3, "value"] = -2.0
    with pytest.raises(tg.DataError, match="smallest value is -2"):
        tg.complete(dd.from_pandas(frame, npartitions=2), priors="nonnegative")


# -- tensors that are known ----------------------------------------------------------------------------------


def test_fits_of_known_tensors_take_priors():
    x = parts_of()
    structure = tg.Structure.tensor_ring(x.shape, 3)
    exact = tg.fit(x, structure, priors="nonnegative", random_state=0)
    assert_nonnegative(exact)
    assert exact.relative_error < 0.02
    waved = waves()
    y, _ = observed(waved, 1.0)
    everything = np.ones(y.shape, bool)
    plain = tg.fit(y, tg.Structure.tensor_train(y.shape, 2), random_state=0)
    smooth = tg.fit(y, tg.Structure.tensor_train(y.shape, 2), priors={0: priors.smooth(1.0)}, random_state=0)
    assert error(smooth, waved, everything) < error(plain, waved, everything)


def test_decompositions_take_priors():
    x = parts_of()
    result = tg.decompose(x, priors="nonnegative", max_error=0.05, random_state=0)
    assert_nonnegative(result)
    assert result.relative_error <= 0.05
    assert result.info["num_held_out"] == 0 and result.info["ridge"] == 0.0
    within = tg.decompose(x, priors=SOME, max_parameters=80, random_state=0, tensorize=((3, 3), (8,), (7,)))
    assert within.num_parameters <= 80
    assert (within.network.cores[0] >= 0).all() and (within.network.cores[1] >= 0).all()


REFUSED = {
    "complex": (lambda y, m: complete(y + 1j, m, SOME), tg.DataError, ["real numbers", "complex128"]),
    "negative": (
        lambda y, m: complete(y - 3.0 * m, m, "nonnegative"),
        tg.DataError,
        ["smallest value is -3", "axis that carries the sign"],
    ),
    "counts": (
        lambda y, m: complete(np.rint(9 * y), m, SOME, loss="poisson"),
        tg.OptionError,
        ["'poisson'", "logarithms"],
    ),
    "bits": (lambda y, m: complete(y > 0.5, m, SOME, loss="logistic"), tg.OptionError, ["'logistic'"]),
    "gaps in a decomposition": (
        lambda y, m: tg.decompose(np.where(m, y, np.nan), priors=SOME, max_error=0.1),
        tg.DataError,
        ["every entry", "tensorgrow.complete"],
    ),
    "digits that are chosen": (
        lambda y, m: tg.decompose(y, priors=SOME, max_error=0.1, tensorize="auto"),
        tg.OptionError,
        ["auto"],
    ),
    "no limit": (lambda y, m: tg.decompose(y, priors=SOME), tg.OptionError, ["max_error"]),
    "blocks": (
        lambda y, m: tg.fit(tg.Blocks(y), tg.Structure.tensor_train(y.shape, 2), priors=SOME),
        tg.DataError,
        ["Blocks"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_nonnegative_is_refused(case):
    call, kind, words = REFUSED[case]
    y, mask = noisy(parts_of(), 0.5)
    mask[np.unravel_index(np.argmin(y), y.shape)] = True
    with pytest.raises(kind) as raised:
        call(y, mask)
    for word in words:
        assert word in str(raised.value)


def test_where_days_are_missing_neighbours_speak_for_themselves():
    """Unless the user says that there is nothing to know."""
    rng = np.random.default_rng(0)
    level = np.cumsum(rng.standard_normal((6, 30)), axis=1)  # of places, from day to day
    x = level[:, :, None] + np.sin(np.arange(9)) + 0.05 * rng.standard_normal((6, 30, 9))
    days = np.broadcast_to(rng.random((6, 30, 1)) < 0.7, x.shape)
    options = {"truth": x, "random_state": 0, "max_steps": 4, "effort": "fast"}
    found = tg.complete(x, days, **options)
    assert found.info["gaps"] == "whole fibres along mode 2" and list(found.info["priors"]) == ["1"]
    without = tg.complete(x, days, priors={}, **options)
    assert "priors" not in without.info and found.test_error < without.test_error
    ring = tg.Structure.tensor_ring(x.shape, 2)
    assert "priors" not in tg.fit(x, ring, days, random_state=0, max_sweeps=2).info


def test_where_single_entries_are_missing_only_close_neighbours_speak():
    rng = np.random.default_rng(0)
    places = rng.standard_normal((20, 1, 12))
    hours = np.cumsum(rng.standard_normal((20, 40, 1)), axis=1)
    days = hours + 6.0 * rng.standard_normal((20, 40, 1))  # neighbours differ by half as much as any two
    for x, axes in ((places * hours, ["1"]), (places * days, [])):
        result = tg.complete(x, rng.random(x.shape) < 0.7, random_state=0, max_steps=1, effort="fast")
        assert list(result.info.get("priors", {})) == axes


def test_a_prior_that_does_not_hold_exactly_vanishes_where_data_is_exact():
    """Values on a grid are smooth along it, and no smooth fit meets them."""
    a, b, c = np.arange(1.0, 13.0), np.linspace(1.0, 2.0, 14), np.sin(np.arange(15.0) / 5.0)
    x = np.einsum("i,j,k->ijk", a, b, c)
    result = tg.complete(x, np.random.default_rng(0).random(x.shape) < 0.4, truth=x, random_state=0)
    assert result.info["prior_strength"] < 1e-12 and result.test_error < 1e-10


def test_a_decomposition_with_priors_is_pruned():
    """Splits and lower ranks, as without priors, while the target is met."""
    t, rng = np.linspace(0.0, 1.0, 20), np.random.default_rng(1)
    waves = [np.stack([np.sin(3.0 * (k + 1) * t + rng.random()) for k in range(3)], 1) for _ in range(3)]
    x = np.einsum("ar,br,cr->abc", *waves) + 0.01 * rng.normal(size=(20, 20, 20))
    known = {0: tg.priors.smooth(1e-6)}
    pruned, grown = (
        tg.decompose(x, max_error=0.05, priors=known, random_state=0, options=options)
        for options in (None, GreedyOptions.for_completion("balanced").replace(prune=False))
    )
    for result in (pruned, grown):
        assert result.stop is tg.StopReason.TARGET_REACHED and result.relative_error <= 0.05
    assert pruned.num_parameters < grown.num_parameters
    assert "split" in [s.kind for s in pruned.history]
