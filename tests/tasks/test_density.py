"""Densities: dense enumeration is the oracle of every query; then learning them."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorgrow as tg
from tensorgrow.algebra import moves
from tensorgrow.objectives import DensityLoss, Samples
from tensorgrow.objectives import density as objective_module
from tensorgrow.objectives import density_slices as pairs_module
from tensorgrow.structure import Structure
from tensorgrow.tasks.density import _information
from tests.oracles import random_network, to_numpy
from tests.strategies import seeds, structures

KINDS = ("born", "nonnegative")
RING = Structure.tensor_ring((2, 3, 2, 2), 2)


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


def make(structure, seed, kind, dtype=torch.float64):
    network = random_network(structure, seed, dtype)
    if kind == "nonnegative":
        network = tg.TensorNetwork(structure, [c.abs() for c in network.cores])
    return tg.DensityModel(network, kind)


def table(model) -> np.ndarray:
    """Every probability, without the library's contractions."""
    cores = [to_numpy(c) for c in model.network.cores]
    equation, _ = model.network.einsum()
    dense = np.einsum(equation, *cores, optimize=True)
    weights = np.abs(dense) ** 2 if model.kind == "born" else dense.real
    return weights / weights.sum()


def everything(dims):
    return np.array(list(itertools.product(*(range(d) for d in dims))))


def bars_and_stripes(side):
    lines = np.array(list(itertools.product((0, 1), repeat=side)))
    bars = np.repeat(lines[:, :, None], side, 2).reshape(len(lines), -1)
    stripes = np.repeat(lines[:, None, :], side, 1).reshape(len(lines), -1)
    return np.unique(np.concatenate([bars, stripes]), axis=0)


def entropy(p):
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


# -- queries -------------------------------------------------------------------------------------------


@given(
    structures(min_order=2, max_order=5, max_dim=3), seeds, st.sampled_from([*KINDS, "complex"]), st.data()
)
@settings(max_examples=60)
def test_likelihoods_marginals_and_conditionals(structure, seed, kind, data):
    dtype = torch.complex128 if kind == "complex" else torch.float64
    model = make(structure, seed, "nonnegative" if kind == "nonnegative" else "born", dtype)
    p = table(model)
    dense = to_numpy(model.network.to_dense())
    whole = (np.abs(dense) ** 2).sum() if model.kind == "born" else dense.sum().real
    assert model.log_partition() == pytest.approx(math.log(whole), rel=1e-10, abs=1e-10)
    found = model.prob(everything(structure.dims)).numpy()
    assert float(found.sum()) == pytest.approx(1.0, rel=1e-10)
    np.testing.assert_allclose(found, p.reshape(-1), rtol=1e-7, atol=1e-13)

    order = structure.order
    legs = data.draw(st.permutations(range(order)))
    asked = legs[: data.draw(st.integers(0, order))]
    marginal = model.marginal(asked).numpy()
    others = [k for k in range(order) if k not in asked]
    expected = np.transpose(p, [*asked, *others]).reshape(*(structure.dims[k] for k in asked), -1).sum(-1)
    np.testing.assert_allclose(marginal, expected, rtol=1e-7, atol=1e-12)

    fixed = {k: data.draw(st.integers(0, structure.dims[k] - 1)) for k in others[: len(others) // 2 + 1]}
    cut = p[tuple(fixed.get(k, slice(None)) for k in range(order))]
    if cut.sum() > 1e-6:
        left = [k for k in range(order) if k not in fixed]
        at = [left.index(k) for k in asked]
        rest = [n for n in range(len(left)) if n not in at]
        joint = np.transpose(cut, [*at, *rest]).reshape(*(structure.dims[k] for k in asked), -1).sum(-1)
        got = model.conditional(fixed, asked).numpy()
        np.testing.assert_allclose(got, joint / cut.sum(), rtol=1e-6, atol=1e-9)
        assert model.conditional(fixed).shape == tuple(structure.dims[k] for k in left)


def test_large_and_tiny_cores_do_no_harm(kind):
    structure = Structure.tensor_train((2,) * 40, 2)
    model = make(structure, 0, kind)
    scaled = tg.DensityModel(
        tg.TensorNetwork(structure, [c * 1e30 ** (-1) ** k for k, c in enumerate(model.network.cores)]), kind
    )
    x = torch.randint(0, 2, (5, 40), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model.log_prob(x), scaled.log_prob(x), rtol=1e-9, atol=1e-9)
    huge = tg.DensityModel(tg.TensorNetwork(structure, [c * 1e100 for c in model.network.cores]), kind)
    torch.testing.assert_close(model.log_prob(x), huge.log_prob(x), rtol=1e-9, atol=1e-9)
    power = 2 if kind == "born" else 1
    assert huge.log_partition() - model.log_partition() == pytest.approx(power * 40 * 100 * math.log(10))
    assert model.marginal([0, 39]).sum() == pytest.approx(1.0)
    # Unlikely is not impossible: 39 legs are set, and the ratio of two likelihoods is the odds.
    odds = model.conditional({k: int(x[0, k]) for k in range(39)}, [39])
    logs = model.log_prob([[*x[0, :39].tolist(), 0], [*x[0, :39].tolist(), 1]])
    assert float(odds[0]) == pytest.approx(1 / (1 + math.exp(float(logs[1] - logs[0]))), rel=1e-6)


def test_impossible_events_are_refused_and_impossible_samples_have_no_likelihood(kind):
    # x_0 = x_1, x_2 free
    cores = [torch.eye(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64), torch.ones(2).double()]
    model = tg.DensityModel(tg.TensorNetwork(Structure((2, 2, 2), {(0, 1): 2}), cores), kind)
    assert float(model.log_prob([[0, 1, 0]])) == -math.inf
    assert float(model.prob([[0, 0, 1]])) == pytest.approx(0.25)
    with pytest.raises(tg.DataError, match="probability zero"):
        model.conditional({0: 0, 1: 1}, [2])
    np.testing.assert_allclose(model.conditional({0: 1}, 1).numpy(), [0, 1])
    drawn = model.sample(200, random_state=0)
    assert bool((drawn[:, 0] == drawn[:, 1]).all())


def test_zeros_by_cancellation_are_refused():
    # f(x) = sum_a A[x_0, a] B[x_1, a] with f(0, .) = 0 only up to rounding
    a = torch.tensor([[0.1, -0.3], [1.0, 1.0]], dtype=torch.float64)
    b = torch.tensor([[0.3, 0.1], [0.6, 0.2]], dtype=torch.float64)
    model = tg.DensityModel(tg.TensorNetwork(Structure((2, 2), {(0, 1): 2}), [a, b]))
    with pytest.raises(tg.DataError, match="rounding"):
        model.conditional({0: 0}, [1])


@pytest.mark.parametrize("structure", [RING, Structure.tucker((3, 2, 2), 2)], ids=["ring", "tucker"])
def test_sampling_is_exact(structure, kind):
    model = make(structure, 3, kind)
    p, n = table(model).reshape(-1), 20_000
    drawn = model.sample(n, random_state=1).numpy()
    assert drawn.shape == (n, structure.order)
    counts = np.bincount(np.ravel_multi_index(drawn.T, structure.dims), minlength=len(p))
    likely = p * n >= 5
    chi2 = ((counts - n * p)[likely] ** 2 / (n * p)[likely]).sum()
    freedom = int(likely.sum()) - 1
    assert chi2 < freedom + 4 * math.sqrt(2 * freedom)
    assert bool((model.sample(n, random_state=1).numpy() == drawn).all())
    assert model.sample(0).shape == (0, structure.order)


def test_queries_in_chunks_agree(monkeypatch, kind):
    model = make(RING, 5, kind)
    expected = model.sample(300, random_state=0)
    monkeypatch.setattr("tensorgrow.tasks.density_model.CHUNK_ENTRIES", 20)
    assert bool((model.sample(300, random_state=0) == expected).all())


def test_too_large_answers_are_refused(monkeypatch):
    model = make(Structure.tensor_train((2,) * 45, 2), 0, "nonnegative")
    with pytest.raises(tg.MemoryLimitError, match="fewer legs"):
        model.marginal(range(45))
    assert tuple(model.marginal([3, 40]).shape) == (2, 2)


@pytest.mark.parametrize(
    "query",
    [
        lambda m: m.marginal([0, 0]),
        lambda m: m.marginal([7]),
        lambda m: m.marginal([-1]),
        lambda m: m.conditional({0: 1}, [0]),
        lambda m: m.conditional({0: 2}, [1]),
        lambda m: m.conditional({0: 0.5}, [1]),
        lambda m: m.conditional([0], [1]),
        lambda m: m.sample(-1),
        lambda m: m.sample(1.5),
    ],
)
def test_bad_queries_are_refused(query):
    with pytest.raises(tg.OptionError):
        query(make(RING, 0, "born"))


def test_bad_models_are_refused():
    network = random_network(RING, 0)
    with pytest.raises(tg.DataError, match="negative"):
        tg.DensityModel(network, "nonnegative")
    with pytest.raises(tg.OptionError, match="kind"):
        tg.DensityModel(network, "squared")
    with pytest.raises(tg.DataError, match="zero everywhere"):
        tg.DensityModel(tg.TensorNetwork(RING, [0 * c for c in network.cores]))
    with pytest.raises(tg.DataError, match="finite"):
        tg.DensityModel(tg.TensorNetwork(RING, [c * math.nan for c in network.cores]))
    with pytest.raises(tg.OptionError, match="TensorNetwork"):
        tg.DensityModel(network.to_dense())
    with pytest.raises(tg.DataError, match="outside"):
        tg.DensityModel(network).log_prob([[0, 3, 0, 0]])


def test_models_survive_files(tmp_path, kind):
    model = make(RING, 1, kind)
    model.save(tmp_path / "m.safetensors")
    for read in (tg.DensityModel.load, tg.load):
        again = read(tmp_path / "m.safetensors")
        assert isinstance(again, tg.DensityModel) and again.kind == kind
        assert bool((again.log_prob([[0, 1, 1, 0]]) == model.log_prob([[0, 1, 1, 0]])).all())
    tg.decompose(np.ones((2, 2)), max_error=0.1).save(tmp_path / "r.safetensors")
    with pytest.raises(tg.FileFormatError, match="learn_density"):
        tg.DensityModel.load(tmp_path / "r.safetensors")


# -- the loss ------------------------------------------------------------------------------------------


def loss_of(rows, dims, kind, **more):
    rows = torch.as_tensor(np.asarray(rows))
    return DensityLoss(Samples(rows, torch.ones(len(rows), dtype=torch.float64), dims), dims, kind, **more)


@given(structures(min_order=2, max_order=4, max_dim=3), seeds, st.sampled_from(KINDS), st.booleans())
@settings(max_examples=30)
def test_loss_and_gradient(structure, seed, kind, dense):
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.integers(0, d, 7) for d in structure.dims], 1)
    before = objective_module.DENSE_ENTRIES
    objective_module.DENSE_ENTRIES = before if dense else 0
    try:
        loss = loss_of(rows, structure.dims, kind)
    finally:
        objective_module.DENSE_ENTRIES = before
    cores = [c.requires_grad_() for c in random_network(structure, seed).cores]
    squared = cores if kind == "born" else [c.detach() ** 2 for c in cores]
    model = tg.DensityModel(tg.TensorNetwork(structure, squared), kind)
    logs = model.log_prob(rows)
    if float(logs.min()) < -12:  # near a zero of f, finite differences say nothing
        return
    assert loss.total(tg.TensorNetwork(structure, cores)) == pytest.approx(-float(logs.mean()), rel=1e-9)
    assert torch.autograd.gradcheck(
        lambda *c: loss.loss(tg.TensorNetwork(structure, c), None), cores, rtol=1e-4, atol=1e-6
    )


def test_zero_entries_cost_much_but_not_everything(kind):
    structure = Structure((2, 2), {(0, 1): 2})
    loss = loss_of([[0, 0], [0, 1]], structure.dims, kind)
    cores = [torch.eye(2, dtype=torch.float64).requires_grad_() for _ in range(2)]
    value = loss.loss(tg.TensorNetwork(structure, cores), None)
    value.backward()
    assert 20 < float(value.detach()) < 60
    assert all(bool(torch.isfinite(c.grad).all()) for c in cores)
    zero = [torch.zeros((2, 2), dtype=torch.float64).requires_grad_() for _ in range(2)]
    value = loss.loss(tg.TensorNetwork(structure, zero), None)
    value.backward()
    assert math.isfinite(float(value.detach()))
    assert all(bool(torch.isfinite(c.grad).all()) for c in zero)


def test_equal_samples_are_merged_and_weights_count():
    rows = torch.tensor([[0, 1], [1, 1], [0, 1], [0, 1]])
    merged = Samples(rows, torch.tensor([1.0, 2.0, 3.0, 0.5]), (2, 2))
    assert merged.rows.tolist() == [[0, 1], [1, 1]]
    assert merged.weights.tolist() == [4.5, 2.0] and merged.total == 6.5


def test_mean_of_batches_is_the_mean(monkeypatch):
    monkeypatch.setattr(objective_module, "WHOLE_SAMPLES", 10)
    monkeypatch.setattr(objective_module, "BATCH_SAMPLES", 5)
    rows = np.random.default_rng(0).integers(0, 2, (60, 6))
    loss = loss_of(rows, (2,) * 6, "born", generator=torch.Generator().manual_seed(0))
    network = random_network(Structure.tensor_train((2,) * 6, 2), 0)
    assert not loss.is_whole
    values = [float(loss.loss(network, b)) for b in loss.batches()]
    assert len(values) == loss.num_batches > 2
    assert np.mean(values) == pytest.approx(loss.total(network))


# -- learning ------------------------------------------------------------------------------------------


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
    found = _information(Samples(rows, torch.as_tensor(p.reshape(-1)), p.shape), p.shape)
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
    training = tg.TrainingOptions(epochs=10, candidate_epochs=1)
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


@pytest.mark.parametrize("factor", [1e-30, 1e30])
def test_single_precision_cores_of_any_size(factor):
    """Squares of such numbers vanish or overflow in single precision."""
    network = random_network(RING, 0, torch.float32)
    cores = [c * factor for c in network.cores]
    model = tg.DensityModel(tg.TensorNetwork(RING, cores))
    x = everything(RING.dims)
    want = table(tg.DensityModel(network.to(dtype=torch.float64)))
    np.testing.assert_allclose(to_numpy(model.prob(x)), want.reshape(-1), atol=1e-6)
    assert model.log_partition() == pytest.approx(
        tg.DensityModel(network).log_partition() + 8 * math.log(factor), rel=1e-5
    )


def test_tables_with_nullable_columns():
    pandas = pytest.importorskip("pandas")
    x = np.random.default_rng(0).integers(0, 2, (40, 3))
    frame = pandas.DataFrame(x).astype("Int64")
    options = {"max_steps": 0, "random_state": 0}
    assert tg.learn_density(frame, **options).train_nll == tg.learn_density(x, **options).train_nll
    frame.iloc[3, 1] = pandas.NA
    with pytest.raises(tg.DataError):
        tg.learn_density(frame, **options)


@pytest.mark.parametrize("entries", [0, 1 << 17], ids=["listed", "dense"])
@pytest.mark.parametrize(
    ("kind", "dtype"), [("born", torch.float64), ("born", torch.complex128), ("nonnegative", torch.float64)]
)
@pytest.mark.parametrize(
    "structure",
    [
        Structure.rank_one((2, 3)),
        Structure((3, 2), {(0, 1): 2}),
        Structure((2, 3, 2, 4), {(0, 1): 2, (1, 2): 3, (0, 3): 2, (2, 3): 2, (0, 2): 2}),
        Structure((2, 3, 2, 4), {(0, 1): 2, (0, 4): 2, (2, 4): 2, (3, 4): 3}, num_nodes=5),
    ],
    ids=["rank one", "pair", "loops", "internal"],
)
def test_shared_environments_give_the_loss_of_the_grown_network(structure, kind, dtype, entries, monkeypatch):
    monkeypatch.setattr(objective_module, "DENSE_ENTRIES", entries)
    generator = torch.Generator().manual_seed(0)
    dims = structure.dims
    rows = torch.stack([torch.randint(d, (30,), generator=generator) for d in dims], 1)
    weights = torch.rand(30, dtype=torch.float64, generator=generator)
    objective = DensityLoss(Samples(rows, weights, dims), dims, kind)
    network = random_network(structure, 3, dtype)
    edges = list(itertools.combinations(range(len(dims)), 2))
    shared = objective.around(network, edges)
    for i, j in edges:
        sizes = [structure.leg_dim(a) * structure.bond_product(a, without=b) for a, b in ((i, j), (j, i))]
        slices = [torch.randn(n, dtype=dtype, generator=generator).requires_grad_() for n in sizes]
        grown = tg.TensorNetwork(*moves.grow(structure, network.cores, i, j, *slices))
        for batch in (None, torch.tensor([0, 2, 1])):
            got, want = shared((i, j))(*slices, batch), objective.loss(grown, batch)
            assert float(got.detach()) == pytest.approx(float(want.detach()), rel=1e-10)
            for a, b in zip(*(torch.autograd.grad(v, slices, retain_graph=True) for v in (got, want))):
                torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


def test_environments_that_are_too_large_are_not_shared(monkeypatch):
    x = np.random.default_rng(0).integers(0, 2, (60, 4))
    x[:, 3] = x[:, 0]
    monkeypatch.setattr(pairs_module, "MOST_ENTRIES", 0)
    plain = tg.learn_density(x, max_steps=1, random_state=0)
    monkeypatch.undo()
    shared = tg.learn_density(x, max_steps=1, random_state=0)
    assert plain.history[1].edge == shared.history[1].edge == (0, 3)
    assert plain.train_nll == pytest.approx(shared.train_nll, abs=1e-3)


def test_candidates_do_not_contract_the_network_again(monkeypatch):
    x = np.random.default_rng(0).integers(0, 2, (60, 5))
    calls = []
    loss = DensityLoss.loss
    monkeypatch.setattr(DensityLoss, "loss", lambda *args: calls.append(args[1].structure) or loss(*args))
    result = tg.learn_density(x, max_steps=1, random_state=0)
    trained = {step.structure for step in result.history}
    assert set(calls) <= trained
