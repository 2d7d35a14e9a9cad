"""Committees: their mean, their errors, files, processes, signals; shapes chosen by held-out entries."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.results import networks_among
from tensorgrow.tasks import committee as committees
from tensorgrow.tasks.shapes import candidates, member_shapes, with_digits

QUICK = {"effort": "fast", "random_state": 0, "max_steps": 4, "progress": False}


def waves(rows=36, columns=32):
    """A smooth picture with a period that digits can find."""
    i, j = np.meshgrid(np.arange(rows) % 6, np.arange(columns) % 8, indexing="ij")
    return 2.0 + np.sin(i) * np.cos(j) + 0.1 * (np.arange(rows) // 6)[:, None]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = waves() + 0.1 * rng.standard_normal((36, 32))
    return x, rng.random(x.shape) < 0.4


@pytest.fixture(scope="module")
def committee(data):
    x, mask = data
    return tg.complete(x, mask, tensorize="auto", members=3, truth=x, **QUICK)


def relative(estimate, x, where):
    return np.linalg.norm((estimate - x)[where]) / np.linalg.norm(x[where])


def test_answers_are_the_weighted_mean_of_the_members_in_the_users_shape(data, committee):
    x, mask = data
    assert len(networks_among(committee.members)) == 3
    assert sum(committee.member_weights) == pytest.approx(1.0)
    assert min(committee.member_weights) >= 0.0
    expected = sum(w * m.to_array() for w, m in zip(committee.member_weights, committee.members))
    assert np.allclose(committee.to_array(), expected)
    filled = committee.fill(x, mask)
    assert np.array_equal(filled[mask], x[mask])
    assert np.allclose(filled[~mask], expected[~mask])
    where = np.argwhere(~mask)
    assert np.allclose(committee.predict(where), expected[~mask])
    assert committee.num_parameters == sum(m.num_parameters for m in committee.members)
    assert f"{len(committee.members)} members" in repr(committee)


def test_a_committee_that_cuts_nothing_fills_the_array():
    rng = np.random.default_rng(0)
    x, mask = rng.random((5, 6, 4)), rng.random((5, 6, 4)) < 0.7
    united = tg.complete(x, mask, members=2, **QUICK)
    assert united.tensorization is None
    assert len(united.members) == 2
    assert np.allclose(united.fill(x, mask), np.where(mask, x, united.to_array()))
    with pytest.raises(tg.DataError, match="x has shape"):
        united.fill(x[:4])


def test_errors_are_those_of_the_mean(data, committee):
    x, mask = data
    mean = committee.to_array()
    assert committee.relative_error == pytest.approx(relative(mean, x, mask))
    assert committee.test_error == pytest.approx(relative(mean, x, ~mask))
    assert committee.validation_error <= min(m.validation_error for m in committee.members) * 1.001


def test_the_mean_is_better_than_the_best_member_on_hidden_entries(committee):
    assert committee.test_error < min(m.test_error for m in committee.members)


def test_a_member_that_is_exact_is_not_averaged_away():
    x = waves()
    mask = np.random.default_rng(0).random(x.shape) < 0.5
    united = tg.complete(x, mask, tensorize="auto", members=2, **QUICK)
    best = min(m.validation_error for m in united.members)
    assert best < 1e-10
    assert united.validation_error < 1e-9


def test_files_keep_the_members(committee, tmp_path):
    for whole in (True, False):
        committee.save(tmp_path / "c.safetensors", whole=whole)
        loaded = tg.load(tmp_path / "c.safetensors")
        assert np.array_equal(loaded.to_array(), committee.to_array())
        assert loaded.errors == committee.errors
        assert [m.tensorization for m in loaded.members] == [m.tensorization for m in committee.members]


def test_processes_and_executors_give_the_same_numbers(data, committee):
    x, mask = data
    with ThreadPoolExecutor(2) as pool:
        for workers in (2, pool):
            other = tg.complete(x, mask, tensorize="auto", members=3, truth=x, workers=workers, **QUICK)
            assert np.allclose(other.to_array(), committee.to_array(), rtol=1e-6)


def test_members_share_the_time_also_with_the_one_that_has_begun(data, monkeypatch):
    x, mask = data
    limits, run_member = [], committees.run_member

    def spy(task, audience):
        limits.append(task.search().limits.max_seconds)
        return run_member(task, audience)

    monkeypatch.setattr(committees, "run_member", spy)
    tg.complete(x, mask, tensorize="auto", members=3, max_seconds=3e4, **QUICK)
    # The first two end early, and leave what they do not need; a twentieth is left for what follows.
    assert np.allclose(limits, [0.95e4, 1.425e4, 2.85e4], rtol=0.01)
    limits.clear()
    with ThreadPoolExecutor(2) as pool:
        tg.complete(x, mask, tensorize="auto", members=3, max_seconds=3e4, workers=pool, **QUICK)
    assert np.allclose(limits, 2.85e4, rtol=0.01)


def test_the_start_of_processes_counts_as_time_of_the_user(data, monkeypatch):
    """Members in processes that began late have less time."""
    x, mask = data
    sent, limits = [], []

    class Pool(ThreadPoolExecutor):
        def submit(self, function, number, task, audience, last, rounds):
            sent.append((last, rounds))
            monkeypatch.setattr(committees, "_stop", threading.Event())
            late = last - 1e4 / 2  # as if the process had taken half of the time to begin
            return super().submit(function, number, task, audience, late, rounds)

    @contextmanager
    def threads(count, *begin):
        with Pool(1) as pool:
            yield pool

    def spy(task, audience):
        limits.append(task.request.limits.max_seconds)
        return run_member(task, replace(audience, callbacks=None))

    run_member = committees.run_member
    monkeypatch.setattr(committees, "process_pool", threads)
    monkeypatch.setattr(committees, "run_member", spy)
    monkeypatch.setattr(committees, "_stop", None)
    tg.complete(x, mask, tensorize="auto", members=3, max_seconds=1e4, workers=2, **QUICK)
    assert [rounds for _, rounds in sent] == [2, 2, 1]
    assert np.allclose(limits, [0.225e4, 0.225e4, 0.45e4], rtol=0.01)
    sent.clear()
    tg.complete(x, mask, tensorize="auto", members=2, workers=2, **QUICK)
    assert [last for last, _ in sent] == [np.inf] * 2  # time that was chosen for members is theirs


def test_members_of_arrays_without_long_axes_hold_out_other_entries():
    hidden = tg.Structure.tensor_train((6, 7, 8), (2, 2))
    x = tg.TensorNetwork.random(hidden, random_state=0).to_dense().numpy()
    x = x + 0.05 * np.random.default_rng(2).standard_normal(x.shape)
    mask = np.random.default_rng(0).random(x.shape) < 0.6
    united = tg.complete(x, mask, members=3, **QUICK)
    errors = [m.validation_error for m in united.members]
    assert len(set(errors)) == 3
    assert min(errors) <= united.validation_error <= max(errors)
    assert united.tensorization is None


def test_checkpoints_resume_every_member(data, tmp_path):
    x, mask = data
    arguments = {"tensorize": "auto", "members": 2, "checkpoint": tmp_path / "run.safetensors"}
    first = tg.complete(x, mask, **arguments, **QUICK)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.0.safetensors", "run.1.safetensors"]
    again = tg.complete(x, mask, **arguments, **QUICK)
    assert np.array_equal(again.to_array(), first.to_array())
    longer = tg.complete(x, mask, **arguments, **{**QUICK, "max_steps": 6})
    assert [m.history[:5] for m in longer.members] == [m.history[:5] for m in first.members]


def test_ctrl_c_unites_the_members_there_are(data):
    x, mask = data
    steps = []

    def interrupt(step):
        steps.append(step)
        if [s.index for s in steps].count(0) == 2 and step.index == 2:
            raise KeyboardInterrupt

    shape = with_digits(x.shape, 2)
    result = tg.complete(x, mask, tensorize=shape, members=4, callbacks=interrupt, **QUICK)
    assert len(networks_among(result.members)) == 2
    assert result.stop is tg.StopReason.INTERRUPTED


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"members": 0}, "members"),
        ({"members": 2, "workers": 0}, "processes must be at least 1"),
        ({"members": 2, "workers": 2, "callbacks": print}, "callbacks hear"),
        ({"members": 2, "loss": "poisson"}, "squared loss"),
        ({"tensorize": "best"}, "tensorize"),
        ({"tensorize": with_digits((30, 32), 2)}, "for arrays of shape"),
    ],
)
def test_what_cannot_be_is_refused(data, arguments, message):
    x, mask = data
    with pytest.raises(tg.OptionError, match=message):
        tg.complete(x, mask, **arguments)


# -- shapes ----------------------------------------------------------------------------------------------


def test_candidates_leave_short_axes_whole():
    assert [None if how is None else how.dims for how in candidates((128, 128, 3))] == [
        None,
        (8, 8, 16, 16, 3),
        (4, 4, 4, 4, 8, 8, 3),
    ]
    assert candidates((20, 7)) == [None]


def test_members_have_borders_in_different_places():
    shapes = member_shapes((128, 128, 3), 7)
    assert len(set(shapes)) == 7
    assert all(how.shift == () or how.shift[2] == 0 for how in shapes)
    assert member_shapes((5, 6), 2) == [None, None]


def test_the_better_shape_is_found():
    x = waves()
    mask = np.random.default_rng(0).random(x.shape) < 0.5
    cut = tg.complete(x, mask, tensorize="auto", members=1, **QUICK)
    assert cut.tensorization is not None
    rng = np.random.default_rng(3)
    plain = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 40))
    whole = tg.complete(plain, rng.random(plain.shape) < 0.5, tensorize="auto", **QUICK)
    assert whole.tensorization is None
    assert not whole.members


def test_tensorize_holds_out_in_the_users_array_and_answers_there():
    x = waves(12, 16)
    held_out = np.zeros(x.shape, bool)
    held_out[::3, ::4] = True
    result = tg.complete(torch.from_numpy(x), tensorize=((3, 4), (4, 4)), validation=held_out, **QUICK)
    assert result.structure.dims == (3, 4, 4, 4)
    assert result.info["num_held_out"] == held_out.sum()
    assert isinstance(result.to_array(), torch.Tensor)
    assert result.to_array().shape == x.shape
    everywhere = np.argwhere(np.ones(x.shape))
    assert torch.allclose(result.predict(everywhere), result.to_array().reshape(-1))
    decomposed = tg.decompose(x, tensorize=(3, 4, 4, 4), max_error=0.01)
    assert np.linalg.norm(decomposed.to_array() - x) <= 0.0101 * np.linalg.norm(x)


def test_a_matrix_of_low_rank_stays_whole():
    """Members are small, and a matrix of rank two has half as many parameters as it has known entries."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 6))
    known = rng.random(x.shape) < 0.7
    r = tg.complete(x, known, tensorize="auto", random_state=0)
    assert r.tensorization is None
    assert np.abs(r.fill(x, known) - x).max() < 1e-9
