"""Queries of densities: dense enumeration is the oracle of each."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorgrow as tg
from tensorgrow.structure import Structure
from tests.densities import KINDS, RING, everything, make, table
from tests.oracles import random_network, to_numpy
from tests.strategies import seeds, structures


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
