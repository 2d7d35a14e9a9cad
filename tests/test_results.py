from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import Result, Step, Structure
from tensorgrow import StopReason as Stop
from tensorgrow.results import PathPoint, add_to_path, best_on_path
from tests.oracles import dense, random_network


@pytest.fixture(scope="module")
def data():
    structure = Structure.tensor_train((4, 3, 4, 3), 2)
    x = dense(structure, random_network(structure, 0).cores)
    rest = np.random.default_rng(0).standard_normal(x.shape)
    return x / np.linalg.norm(x) + 0.3 * rest / np.linalg.norm(rest)


@pytest.fixture(scope="module")
def result(data):
    return tg.decompose(data, max_error=0.2, effort="fast", random_state=0)


def test_properties(result, data):
    assert result.structure is result.network.structure
    assert result.num_parameters == sum(c.numel() for c in result.network.cores)
    assert result.compression_ratio == pytest.approx(data.size / result.num_parameters)
    error = np.linalg.norm(data - dense(result.structure, result.network.cores)) / np.linalg.norm(data)
    assert result.relative_error == pytest.approx(error, rel=1e-9)
    assert isinstance(result.relative_error, float)
    assert isinstance(result.history, tuple)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.relative_error = 0


def test_copies_of_the_dense_tensor_need_room(monkeypatch):
    network = random_network(Structure.rank_one((200, 200, 200)), 0)  # 64 MB
    result = Result(network, tg.Errors(0.0, "relative"), (), Stop.CONVERGED)
    monkeypatch.setattr("tensorgrow.data.devices.free_memory", lambda device: 100e6)
    assert result.to_array().shape == (200, 200, 200)
    rates = dataclasses.replace(result, info={"loss": "poisson"})
    with pytest.raises(tg.MemoryLimitError, match=r"8,000,000 entries needs about 0.13 GB"):
        rates.to_array()
    with pytest.raises(tg.MemoryLimitError, match=r"8,000,000 entries needs about 0.13 GB"):
        result.fill(np.full((200, 200, 200), np.nan))


@pytest.mark.parametrize("kind", ["relative", "deviance", "loss", "nats"])
def test_errors_say_what_kind_they_are(kind, tmp_path):
    network = random_network(Structure.rank_one((2, 3)), 0)
    errors = tg.Errors(0.5, kind, train=0.25, validation=0.75)
    result = Result(network, errors, (), Stop.CONVERGED)
    assert (result.train_error, result.validation_error, result.test_error) == (0.25, 0.75, None)
    name = {"relative": "relative error", "deviance": "relative deviance"}.get(kind, kind)
    assert f"{name} 0.5 (train 0.25, validation 0.75)" in repr(result)
    if kind in ("relative", "deviance"):
        assert result.relative_error == 0.5
    else:
        assert not hasattr(result, "relative_error")
        with pytest.raises(AttributeError, match=rf"no relative error.*\({kind}\).*errors\.total"):
            _ = result.relative_error
    result.save(tmp_path / "run")
    assert tg.load(tmp_path / "run").errors == errors


def test_repr_says_what_matters(result):
    text = repr(result)
    assert f"{result.num_parameters:,} parameters" in text
    assert f"{result.relative_error:.4g}" in text
    assert "TARGET_REACHED" in text
    assert f"{len(result.history)} steps" in text
    assert "\n" not in text
    assert len(text) < 200


def test_info_is_plain_and_complete(result):
    info = json.loads(json.dumps(dict(result.info)))
    assert info == dict(result.info)
    assert info["library_version"] == tg.__version__
    assert info["torch"] == torch.__version__
    assert info["effort"] == "fast"
    assert info["dtype"] == "torch.float64"
    assert info["seconds"] > 0
    assert info["options"] == tg.GreedyOptions.for_effort("fast").to_dict()


def test_at_gives_the_smallest_or_the_best(result, data):
    points = [(p.num_parameters, p.error) for p in result.path]
    assert len(points) >= 4
    for max_error in (0.9, 0.5, 0.31, 0.2):
        expected = min(n for n, e in points if e <= max_error)
        network = result.at(max_error=max_error)
        assert network.num_parameters == expected
        error = np.linalg.norm(data - dense(network.structure, network.cores)) / np.linalg.norm(data)
        assert error <= max_error * (1 + 1e-9)
    for size in {n for n, _ in points} | {n + 1 for n, _ in points}:
        expected = min((e, n) for n, e in points if n <= size)
        assert result.at(max_parameters=size).num_parameters == expected[1]
    both = result.at(max_error=0.5, max_parameters=10_000)
    assert both.num_parameters == result.at(max_error=0.5).num_parameters


def test_at_explains_what_it_cannot_give(result):
    with pytest.raises(tg.OptionError, match="max_error or max_parameters"):
        result.at()
    small, best = result.path[0], result.path[-1]
    for wanted in (
        {"max_error": 1e-9},
        {"max_parameters": small.num_parameters - 1},
        {"max_error": 0.3, "max_parameters": small.num_parameters},
    ):
        with pytest.raises(tg.OptionError) as caught:
            result.at(**wanted)
        for value in wanted.values():
            assert str(value) in str(caught.value)
        assert f"{small.num_parameters} parameters" in str(caught.value)
        assert f"{best.error:.3g}" in str(caught.value)


def test_best_on_path_against_brute_force():
    rng = np.random.default_rng(0)
    networks = [random_network(Structure((4, 4), {(0, 1): r}), 0) for r in range(1, 5)]
    errors = sorted(rng.random(4), reverse=True)
    path = [PathPoint(n, e) for n, e in zip(networks, errors)]
    for max_error in [None, *errors, 0.0, 1.0]:
        for size in [None, *range(0, 40, 4)]:
            fits = [
                p
                for p in path
                if (max_error is None or p.error <= max_error) and (size is None or p.num_parameters <= size)
            ]
            found = best_on_path(path, max_error, size)
            if not fits:
                assert found is None
            elif max_error is None:
                assert found.error == min(p.error for p in fits)
            else:
                assert found.num_parameters == min(p.num_parameters for p in fits)


@pytest.mark.parametrize("edge", [(0, 2), None])
def test_steps_survive_json(edge):
    structure = Structure((3, 4, 5), {(0, 2): 2, (1, 3): 2})
    step = Step(3, "grow", edge, structure.num_parameters, 0.5, 0.25, None, 1.5, structure, start=2)
    again = Step.from_dict(json.loads(json.dumps(step.to_dict())))
    assert again == step
    assert isinstance(again.structure, Structure)


@pytest.mark.parametrize("kind", [str, "path"])
def test_save_and_load(result, tmp_path, kind):
    file = tmp_path / "run.safetensors"
    result.save(str(file) if kind is str else file)
    again = tg.load(str(file) if kind is str else file)
    assert isinstance(again, Result)
    assert again.history == result.history
    assert again.relative_error == result.relative_error
    assert again.stop is result.stop
    assert again.structure == result.structure
    assert dict(again.info) == dict(result.info)
    for a, b in zip(
        (again.network, *(p.network for p in again.path)), (result.network, *(p.network for p in result.path))
    ):
        assert a.dtype == b.dtype
        assert all(torch.equal(u, v) for u, v in zip(a.cores, b.cores))
    for size in (20, 40):
        one, two = (r.at(max_parameters=size) for r in (again, result))
        assert torch.equal(one.to_dense(), two.to_dense())
    assert repr(again) == repr(result)
    again.save(tmp_path / "again.safetensors")  # what was loaded can be saved
    assert [f.name for f in sorted(tmp_path.iterdir())] == ["again.safetensors", "run.safetensors"]


@pytest.mark.parametrize("stop", list(Stop))
def test_every_stop_reason_can_be_saved(stop, tmp_path):
    network = random_network(Structure.rank_one((2, 3)), 0)
    tg.Result(network, tg.Errors(0.5), (), stop).save(tmp_path / "r")
    again = tg.load(tmp_path / "r")
    assert again.stop is stop
    assert again.history == ()
    assert again.path == ()


def test_a_fit_can_be_saved(data, tmp_path):
    fitted = tg.fit(data, Structure.tensor_train(data.shape, 2), random_state=0)
    fitted.save(tmp_path / "fit")
    again = tg.load(tmp_path / "fit")
    assert again.history == fitted.history
    assert again.at(max_parameters=10_000).num_parameters == fitted.num_parameters


def test_saving_over_a_file_replaces_it(result, tmp_path):
    file = tmp_path / "run"
    file.write_bytes(b"something older")
    result.save(file)
    assert tg.load(file).num_parameters == result.num_parameters


def test_add_to_path_keeps_what_nothing_beats():
    rng = np.random.default_rng(0)
    points = []
    for _ in range(200):
        structure = Structure((4, 4), {(0, 1): int(rng.integers(1, 5))})
        points.append(PathPoint(random_network(structure, 0), float(rng.integers(1, 30))))
    path: list[PathPoint] = []
    for point in points:
        add_to_path(path, point)
    best = {}
    for p in points:
        best[p.num_parameters] = min(best.get(p.num_parameters, math.inf), p.error)
    expected, least = [], math.inf
    for size in sorted(best):
        if best[size] < least:
            expected.append((size, best[size]))
            least = best[size]
    assert [(p.num_parameters, p.error) for p in path] == expected
