"""Learning densities."""

import math

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.objectives import DensityLoss, Samples
from tensorgrow.objectives import density as objective_module
from tensorgrow.structure import Structure
from tensorgrow.tasks.density import rate_pairs
from tests.densities import RING, bars_and_stripes, entropy, everything, make, table
from tests.oracles import random_network


def test_a_planted_density_is_approached(kind):
    truth = make(Structure((2, 3, 2, 3), {(0, 2): 2, (1, 3): 2}), 7, kind)
    p = table(truth)
    x = truth.sample(5000, random_state=0)
    r = tg.learn_density(x, kind=kind, random_state=0, effort="fast")
    q = table(r.model)
    cross = float(-(p * np.log(np.maximum(q, 1e-300))).sum())
    assert cross - entropy(p) < 0.05
    independent = r.history[0].validation_error
    assert r.validation_nll < independent
    assert r.structure.rank(0, 2) > 1 or r.structure.rank(1, 3) > 1
    assert r.train_nll == pytest.approx(-float(r.model.log_prob(x).mean()), abs=0.1)
    assert r.model.kind == kind and "nats" in repr(r)


def test_the_start_is_the_best_network_of_independent_variables(kind):
    x = np.random.default_rng(0).integers(0, 3, (400, 4)) % np.array([2, 3, 3, 2])
    r = tg.learn_density(x, kind=kind, validation=False, max_steps=0, random_state=0)
    best = sum(entropy(np.bincount(x[:, k]) / len(x)) for k in range(4))
    assert r.train_nll == pytest.approx(best, abs=1e-5)
    assert r.validation_nll is None


def test_mutual_information_says_where_to_look_first():
    p = table(make(Structure((2, 3, 2), {(0, 1): 2, (1, 2): 2}), 1, "born"))
    rows = torch.as_tensor(everything(p.shape))
    found = rate_pairs(Samples(rows, torch.as_tensor(p.reshape(-1)), p.shape), p.shape)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        pair = p.sum(3 - i - j)
        gain = entropy(pair.sum(0)) + entropy(pair.sum(1)) - entropy(pair)
        assert found[(i, j)] == pytest.approx(gain / (p.shape[i] + p.shape[j]))


def test_bars_and_stripes():
    x = bars_and_stripes(3)
    assert len(x) == 14
    r = tg.learn_density(x, validation=False, max_parameters=160, random_state=0, effort="fast")
    assert r.num_parameters <= 160
    assert r.train_nll < math.log(14) + 0.2
    assert bool((r.model.prob(x) > 0.01).all())


def test_validation_ends_the_growth():
    x = np.random.default_rng(0).integers(0, 2, (60, 5))  # nothing to learn
    r = tg.learn_density(x, random_state=0, effort="fast")
    assert r.stop is tg.StopReason.VALIDATION
    assert r.validation_nll <= r.history[0].validation_error
    mask = np.zeros(60, dtype=bool)
    mask[:20] = True
    r = tg.learn_density(x, validation=mask, max_steps=1, random_state=0, effort="fast")
    assert r.validation_nll == pytest.approx(r.model.nll(x[mask]), rel=1e-6)
    assert r.train_nll == pytest.approx(r.model.nll(x[~mask]), rel=1e-6)


def test_growth_stops_where_memory_ends(monkeypatch, kind):
    monkeypatch.setattr(objective_module, "DENSE_ENTRIES", 0)
    x = make(RING, 2, kind).sample(100, random_state=0)
    common = {"kind": kind, "validation": False, "max_steps": 9, "random_state": 0, "effort": "fast"}
    monkeypatch.setattr("tensorgrow.tasks.density.free_memory", lambda device: 6 * 8 * 8)
    r = tg.learn_density(x, **common)
    assert r.stop is tg.StopReason.MEMORY_LIMIT
    monkeypatch.setattr("tensorgrow.tasks.density.free_memory", lambda device: 0)
    with pytest.raises(tg.MemoryLimitError, match="numbers at once"):
        tg.learn_density(x, **common)


def test_weights_stand_for_repetitions():
    x = np.array([[0, 0], [1, 1], [0, 1], [1, 0]])
    w = [5, 3, 1, 1]
    common = {"validation": False, "max_steps": 1, "random_state": 0}
    weighted = tg.learn_density(x, weights=w, **common)
    repeated = tg.learn_density(np.repeat(x, w, 0), **common)
    assert weighted.train_nll == pytest.approx(repeated.train_nll, abs=1e-6)
    np.testing.assert_allclose(weighted.model.prob(x).numpy(), np.array(w) / 10, atol=5e-3)


def test_complex_cores_learn_too():
    x = make(RING, 2, "born").sample(300, random_state=0)
    r = tg.learn_density(x, dtype="complex128", max_steps=1, random_state=0, effort="fast")
    assert r.network.is_complex and r.validation_nll <= r.history[0].validation_error


def test_batches_learn_and_repeat(monkeypatch):
    monkeypatch.setattr(objective_module, "WHOLE_SAMPLES", 10)
    monkeypatch.setattr(objective_module, "BATCH_SAMPLES", 8)
    x = make(RING, 2, "born").sample(400, random_state=0)
    training = tg.TrainingOptions(optimizer="adam", epochs=10, candidate_epochs=1)
    runs = [tg.learn_density(x, max_steps=1, training=training, random_state=0) for _ in range(2)]
    assert runs[0].validation_nll == runs[1].validation_nll
    assert runs[0].validation_nll <= runs[0].history[0].validation_error


@pytest.mark.parametrize("order", [4, 5])
def test_checkpoints_resume_to_the_same_steps(tmp_path, order):
    # With five legs only some edges are tried again; which ones must survive the checkpoint.
    x = make(Structure.tensor_ring((2,) * order, 2), 4, "born").sample(200, random_state=0).numpy()
    common = {"validation": False, "random_state": 3, "effort": "fast", "max_parameters": 60}
    whole = tg.learn_density(x, max_steps=3, **common)
    file = tmp_path / "run.safetensors"
    tg.learn_density(x, max_steps=1, checkpoint=file, **common)
    resumed = tg.learn_density(x, max_steps=3, checkpoint=file, **common)
    assert [s.edge for s in resumed.history] == [s.edge for s in whole.history]
    assert [s.loss for s in resumed.history] == [s.loss for s in whole.history]
    with pytest.raises(tg.OptionError, match="another run"):
        tg.learn_density(1 - x, max_steps=3, checkpoint=file, **common)
    with pytest.raises(tg.OptionError, match="another run"):
        tg.learn_density(x, kind="nonnegative", max_steps=3, checkpoint=file, **common)


def test_results_survive_files_and_start_other_runs(tmp_path, kind):
    x = make(RING, 2, kind).sample(200, random_state=0)
    r = tg.learn_density(x, kind=kind, max_steps=1, random_state=0, effort="fast")
    r.save(tmp_path / "r.safetensors")
    again = tg.load(tmp_path / "r.safetensors")
    assert isinstance(again, tg.DensityResult)
    assert again.validation_nll == r.validation_nll and again.train_nll == r.train_nll
    assert bool((again.predict(x) == r.predict(x)).all())
    model = tg.DensityModel.load(tmp_path / "r.safetensors")
    assert bool((model.prob(x) == r.predict(x)).all())
    with pytest.raises(tg.OptionError, match="conditional"):
        r.fill(np.ones(RING.dims))
    more = tg.learn_density(
        x, kind=kind, init=r.network, validation=False, max_steps=0, random_state=0, effort="fast"
    )
    assert more.train_nll <= r.model.nll(x) + 1e-6


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"samples": [[0, -1], [1, 0]]}, tg.DataError, "negative"),
        ({"samples": [[0.0, 0.5], [1, 0]]}, tg.DataError, "whole numbers"),
        ({"samples": [[0.0, math.nan], [1, 0]]}, tg.DataError, "whole numbers"),
        ({"samples": [["a", "b"], ["c", "d"]]}, tg.DataError, "Encode"),
        ({"samples": [0, 1, 1]}, tg.DataError, "shape"),
        ({"samples": [[0, 1]]}, tg.DataError, "at least two"),
        ({"samples": np.zeros((0, 3), int)}, tg.DataError, "at least two"),
        ({"samples": np.ones((10, 3), int), "validation": 0.1}, tg.DataError, "too few"),
        ({"dims": (2, 2)}, tg.OptionError, "dims"),
        ({"dims": 0}, tg.OptionError, "dims"),
        ({"dims": 2.5}, tg.OptionError, "dims"),
        ({"dims": (2, 2, 1)}, tg.DataError, "variable 2"),
        ({"kind": "cubed"}, tg.OptionError, "kind"),
        ({"validation": 1.5}, tg.OptionError, "validation"),
        ({"validation": np.ones(30, bool)}, tg.OptionError, "mask"),
        ({"validation": np.ones(4, bool)}, tg.OptionError, "mask"),
        ({"weights": [1.0]}, tg.DataError, "weights"),
        ({"weights": -np.ones(30)}, tg.DataError, "weights"),
        ({"weights": np.zeros(30)}, tg.DataError, "weights"),
        ({"max_steps": None}, tg.OptionError, "stop"),
        ({"max_parameters": 3}, tg.OptionError, "max_parameters"),
        ({"kind": "nonnegative", "dtype": "complex128"}, tg.OptionError, "complex"),
        ({"init": random_network(RING, 0)}, tg.OptionError, "init"),
        ({"effort": "huge"}, tg.OptionError, "effort"),
    ],
)
def test_bad_input_is_refused(change, error, text):
    x = np.random.default_rng(0).integers(0, 2, (30, 3))
    arguments = {"samples": x, "validation": False, "max_steps": 1, **change}
    with pytest.raises(error, match=text):
        tg.learn_density(arguments.pop("samples"), **arguments)


def test_tables_with_nullable_columns():
    pandas = pytest.importorskip("pandas")
    x = np.random.default_rng(0).integers(0, 2, (40, 3))
    frame = pandas.DataFrame(x).astype("Int64")
    options = {"max_steps": 0, "random_state": 0}
    assert tg.learn_density(frame, **options).train_nll == tg.learn_density(x, **options).train_nll
    frame.iloc[3, 1] = pandas.NA
    with pytest.raises(tg.DataError):
        tg.learn_density(frame, **options)


def test_candidates_do_not_contract_the_network_again(monkeypatch):
    x = np.random.default_rng(0).integers(0, 2, (60, 5))
    contracted = []
    tree = DensityLoss._tree
    monkeypatch.setattr(
        DensityLoss, "_tree", lambda *args: contracted.append(args[1].structure) or tree(*args)
    )
    result = tg.learn_density(x, max_steps=1, random_state=0)
    assert {step.structure for step in result.history} == set(contracted)


def test_edges_that_fit_into_memory_one_by_one_only_grow_one_by_one(monkeypatch):
    """A run on 69 variables was lost: of edges that grew at once, each alone had been small enough."""
    sweep, seen = DensityLoss.sweep, []

    def careful(self, network, deadline):
        edges = len(network.structure.edges)
        if edges > (seen[-1] if seen else 0) + 1:
            raise tg.MemoryLimitError("too many at once")
        seen.append(edges)
        return sweep(self, network, deadline)

    monkeypatch.setattr(DensityLoss, "sweep", careful)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (200, 1)) ^ (rng.random((200, 40)) < 0.1)
    r = tg.learn_density(x, max_steps=2, random_state=0, effort="fast")
    assert [len(step.structure.edges) for step in r.history] == [0, 1, 2]
    assert r.stop is tg.StopReason.MAX_STEPS


def test_many_variables_are_joined_in_few_steps():
    """Copies of copies: 40 bits on a tree, of which several edges grow at once and none is left out."""
    rng = np.random.default_rng(0)
    x = np.zeros((600, 40), dtype=int)
    x[:, 0] = rng.integers(0, 2, 600)
    for k in range(1, 40):
        x[:, k] = x[:, (k - 1) // 2] ^ (rng.random(600) < 0.1)
    r = tg.learn_density(x, max_steps=8, random_state=0, effort="fast")
    noise = entropy(np.array([0.1, 0.9]))
    assert r.model.nll(x) < math.log(2) + 39 * noise + 0.1 * 39 * (math.log(2) - noise)
    assert len(r.history) <= 9
    again = tg.learn_density(x, max_steps=2, random_state=0, effort="fast")
    assert [(s.structure, s.loss) for s in again.history[:3]] == [
        (s.structure, s.loss) for s in r.history[:3]
    ]
