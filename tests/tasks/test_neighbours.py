"""A thin plate as a member of a committee: its share, its answers, files, intervals, pages and updates."""

from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow.data.thin_plate import thin_plate
from tensorgrow.report.numbers import member_table, members_of
from tensorgrow.results import INTERPOLATION, best_network, networks_among
from tensorgrow.solvers.deadline import OutOfTime
from tensorgrow.tasks import neighbours
from tensorgrow.tasks.neighbours import PLACES, Plates, place_shares
from tensorgrow.tasks.shapes import with_digits

QUICK = {"effort": "fast", "random_state": 0, "max_steps": 3, "progress": False, "tensorize": "auto"}


def hills(size=36):
    """Smooth, without a period: after three steps no network is as good as neighbours are."""
    i, j = np.meshgrid(np.linspace(0.0, 1.0, size), np.linspace(0.0, 1.0, size), indexing="ij")
    return 2.0 + np.sin(7.0 * i * j + 2.0 * i) * np.cos(5.0 * j * j)


@pytest.fixture(scope="module")
def data():
    x = hills()
    return x, np.random.default_rng(0).random(x.shape) < 0.3


@pytest.fixture(scope="module")
def committee(data):
    x, mask = data
    return tg.complete(np.where(mask, x, 0.0), mask, members=2, truth=x, **QUICK)


def plate_of(result):
    (plate,) = [m for m in result.members if m.info.get("method") == INTERPOLATION]
    return plate


def test_it_interpolates_the_known_entries_in_the_users_shape(data, committee):
    x, mask = data
    plate = plate_of(committee)
    assert len(committee.members) == 3 and len(networks_among(committee.members)) == 2
    expected = thin_plate(x, mask, (0, 1)).clip(x[mask].min())  # no known value is negative: a bound
    assert np.abs(plate.to_array() - x)[mask].max() < 0.01  # what little the networks have of it
    apart = np.linalg.norm(plate.to_array() - expected)
    assert apart < 0.5 * np.linalg.norm(expected - x)  # a mended mean of poor networks is nearly the same
    assert plate.num_parameters == mask.sum()
    hidden = ~mask
    off = np.linalg.norm((plate.to_array() - x)[hidden]) / np.linalg.norm(x[hidden])
    assert plate.test_error == pytest.approx(off, rel=1e-4)


def test_held_out_entries_are_hidden_from_it_before_they_judge(committee):
    plate = plate_of(committee)
    assert max(plate.train_error, plate.relative_error) < 0.2 * plate.validation_error
    assert 0.2 * plate.test_error < plate.validation_error < 5.0 * plate.test_error


def test_a_committee_is_no_worse_than_interpolation(committee):
    plate = plate_of(committee)
    assert committee.validation_error <= 1.001 * min(m.validation_error for m in committee.members)
    assert committee.test_error <= 1.05 * plate.test_error
    assert committee.test_error < min(m.test_error for m in networks_among(committee.members))


def test_all_else_is_of_a_network_even_where_the_plate_is_best(committee):
    plate, best = plate_of(committee), best_network(committee.members)
    assert plate.validation_error < best.validation_error
    assert committee.structure == best.structure and committee.history == best.history
    assert [m["best"] for m in members_of(committee)].count(True) == 1
    rows = member_table(committee)[1]
    assert INTERPOLATION in rows[committee.members.index(plate)]


def test_it_is_saved_and_has_intervals(tmp_path, data, committee):
    x, mask = data
    committee.save(tmp_path / "c.safetensors")
    loaded = tg.load(tmp_path / "c.safetensors")
    assert np.array_equal(loaded.to_array(), committee.to_array())
    assert np.array_equal(loaded.std(), committee.std()) and np.isfinite(committee.std()).all()
    _, low, high = loaded.predict(np.argwhere(~mask), interval=0.9)
    inside = ((low <= x[~mask]) & (x[~mask] <= high)).mean()
    assert inside > 0.7


def test_an_update_starts_from_the_networks_and_interpolates_anew(data, committee):
    x, mask = data
    more = mask | (np.random.default_rng(1).random(x.shape) < 0.1)
    updated = committee.update(np.where(more, x, 0.0), more, truth=x, max_steps=1, progress=False)
    nets = networks_among(updated.members)
    assert plate_of(updated).relative_error < 0.1 * min(m.relative_error for m in nets)
    before = np.linalg.norm((committee.to_array() - x)[~more])
    assert np.linalg.norm((updated.to_array() - x)[~more]) < before


def test_a_page_lists_it(tmp_path, data, committee):
    x, _ = data
    page = committee.report(tmp_path / "page.html", truth=x).read_text()
    assert INTERPOLATION in page


@pytest.mark.parametrize("change", [{"max_parameters": 400}, {"tensorize": None}, {"validation": False}])
def test_it_has_no_share_where_nothing_is_cut_or_held_out_or_a_size_is_asked_for(data, change):
    x, mask = data
    result = tg.complete(x, mask, members=2, **{**QUICK, **change})
    assert len(result.members) == 2 == len(networks_among(result.members))


@pytest.mark.parametrize(("seconds", "plates"), [(1e-9, 0), (1e4, 1)])
def test_it_is_made_where_time_is_left(data, seconds, plates):
    x, mask = data
    how = with_digits(x.shape, 2)
    result = tg.complete(x, mask, members=2, max_seconds=seconds, **{**QUICK, "tensorize": how})
    assert len(networks_among(result.members)) == 2
    assert len(result.members) == 2 + plates


def test_one_that_comes_too_late_is_broken_off(data, monkeypatch):
    x, mask = data
    with pytest.raises(OutOfTime):
        Plates.through(x, x, mask, (0, 1), deadline=0.0)
    begun = []

    def break_off(deadline):
        begun.append(deadline)
        if len(begun) > 1:
            raise OutOfTime

    monkeypatch.setattr(neighbours, "check_time", break_off)
    result = tg.complete(x, mask, members=2, max_seconds=1e4, **QUICK)
    assert len(begun) == 2 and len(result.members) == 2 == len(networks_among(result.members))


def test_noise_has_no_neighbours_to_learn_from():
    rng = np.random.default_rng(5)
    x = np.kron(rng.standard_normal((6, 6)), np.ones((1, 1))).repeat(6, 0)[:, np.arange(36) % 6]
    mask = rng.random(x.shape) < 0.6
    result = tg.complete(x, mask, members=2, **{**QUICK, "max_steps": 30})
    shares = zip(result.members, result.member_weights)
    assert sum(w for m, w in shares if m.info.get("method") == INTERPOLATION) < 0.01


def judged(seed, plate_noise, rest_noise, count=400):
    """Held-out entries, all zero: what plates predict of them by place, and networks that err by 0.1."""
    rng = np.random.default_rng(seed)
    place = np.arange(count) % PLACES
    plate = rng.standard_normal(count) * np.asarray(plate_noise)[place]
    mean = 0.1 * rng.standard_normal(count)
    return Plates(plate, rest_noise * rng.standard_normal(count), place), mean, np.zeros(count)


def test_shares_go_by_place():
    shares = place_shares(*judged(0, (0.001, 0.1, 0.3, 1.0), 1.0), None)
    assert shares.shape == (PLACES, 3) and np.allclose(shares.sum(1), 1.0) and (shares >= 0.0).all()
    assert shares[0, 1] > 0.95 and shares[3, 1] < 0.1 < 0.8 < shares[3, 0]
    assert 0.3 < shares[1, 1] < 0.7


def test_weights_decide_which_entries_count():
    plates, mean, truth = judged(1, (1.0, 1.0, 1.0, 1.0), 1.0)
    weights = np.where(np.abs(plates.plate) < 0.05, 1e4, 1.0)  # where the plate happens to be right
    assert (place_shares(plates, mean, truth, weights)[:, 1] > 0.5).all()


@pytest.mark.parametrize("seed", range(3))
def test_plates_that_say_nothing_have_no_share(seed):
    assert place_shares(*judged(seed, (9.0, 9.0, 9.0, 9.0), 9.0), None) is None


def test_nothing_is_mended_that_is_exact():
    zero = np.zeros(8)
    assert place_shares(Plates(zero, zero, np.arange(8) % PLACES), zero, zero, None) is None
