from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensorgrow.algebra import linalg
from tensorgrow.algebra.linalg import (
    contributions_to,
    is_single,
    solve_normal,
)
from tensorgrow.contraction import GramParts
from tests.oracles import assert_close, random_array, to_numpy
from tests.strategies import seeds

DOUBLES = st.sampled_from([torch.float64, torch.complex128])


either_lapack = pytest.mark.parametrize("scipy", [True, False], ids=["scipy", "no-scipy"])


def problem(seed, rows, unknowns, columns, dtype, rank=None):
    """Environment ``E`` (unknowns x columns), target ``T`` (rows x columns), Gram and right-hand side."""
    rng = np.random.default_rng(seed)
    if rank is None:
        env = random_array(rng, (unknowns, columns), dtype)
    else:
        env = random_array(rng, (unknowns, rank), dtype) @ random_array(rng, (rank, columns), dtype)
    target = random_array(rng, (rows, columns), dtype)
    return env, target, env @ env.mH, target @ env.mH


def solve(gram, rhs, ridge, use_numpy, scipy=True):
    with pytest.MonkeyPatch.context() as patch:
        if not scipy:
            patch.setattr(linalg, "lapack_module", lambda: None)
        if use_numpy:
            return solve_normal(gram.resolve_conj().numpy(), rhs.resolve_conj().numpy(), ridge)
        return solve_normal(gram, rhs, ridge)


@either_lapack
@given(st.integers(1, 4), st.integers(1, 6), DOUBLES, seeds)
def test_solution_is_that_of_lstsq(scipy, use_numpy, rows, unknowns, dtype, seed):
    env, target, gram, rhs = problem(seed, rows, unknowns, unknowns + 10, dtype)
    x, explained = solve(gram, rhs, 1e-14, use_numpy, scipy)
    best = np.linalg.lstsq(to_numpy(env).T, to_numpy(target).T)[0].T
    assert_close(x, best, 1e-9)
    total = np.linalg.norm(to_numpy(target)) ** 2
    left = np.linalg.norm(to_numpy(target) - best @ to_numpy(env)) ** 2
    assert explained == pytest.approx(total - left, rel=1e-9)


@given(DOUBLES, seeds, st.permutations(range(3)))
def test_a_gram_in_parts_is_solved_like_the_whole(use_numpy, dtype, seed, order):
    rng = np.random.default_rng(seed)
    sizes = (2, 3, 4)
    first, second = tuple(order[:1]), tuple(order[1:])
    parts = []
    for bonds in (first, second):
        shape = [sizes[b] for b in bonds]
        env = random_array(rng, (math.prod(shape), 20), dtype)
        parts.append((env @ env.mH).reshape(*shape, *shape))
    rhs = random_array(rng, (5, *sizes), dtype)
    if use_numpy:
        parts, rhs = [p.resolve_conj().numpy() for p in parts], rhs.numpy()
    gram = GramParts((first, second), tuple(parts))
    (x, explained), (y, wanted) = solve_normal(gram, rhs, 1e-14), solve_normal(gram.whole(), rhs, 1e-14)
    assert x.dtype == rhs.dtype
    assert x.shape == rhs.shape
    assert_close(x, to_numpy(y), 1e-9)
    assert explained == pytest.approx(wanted, rel=1e-9)


@given(DOUBLES, seeds, st.permutations(range(3)))
def test_contributions_are_added_up_entry_by_entry(use_numpy, dtype, seed, order):
    rng = np.random.default_rng(seed)
    sizes = (2, 3, 2)
    groups, parts, norms = (tuple(order[:1]), tuple(order[1:])), [], []
    for bonds in groups:
        shape = [sizes[b] for b in bonds]
        env = random_array(rng, (math.prod(shape), 7), dtype)
        parts.append((env @ env.mH).reshape(*shape, *shape))
        norms.append(torch.linalg.vector_norm(env, dim=1))
    core = random_array(rng, (4, *sizes), dtype)
    whole = torch.outer(*norms).reshape([sizes[b] for b in order]).permute(np.argsort(order).tolist())
    expected = pytest.approx(float((core.abs() * whole).square().sum()))
    alone = pytest.approx(float(core.abs().square().sum()))
    if use_numpy:
        parts, core = [p.resolve_conj().numpy() for p in parts], core.numpy()
    gram = GramParts(groups, tuple(parts))
    assert float(contributions_to(gram, core)) == expected
    assert float(contributions_to(gram.whole(), core)) == expected
    assert float(contributions_to(None, core)) == alone


@either_lapack
@given(st.integers(1, 3), st.integers(2, 6), DOUBLES, seeds)
def test_singular_gram_still_gives_the_best_fit(scipy, use_numpy, rows, unknowns, dtype, seed):
    env, target, gram, rhs = problem(seed, rows, unknowns, 12, dtype, rank=unknowns // 2)
    x, explained = solve(gram, rhs, 1e-14, use_numpy, scipy)
    best = np.linalg.lstsq(to_numpy(env).T, to_numpy(target).T, rcond=1e-10)[0].T
    assert_close(to_numpy(x) @ to_numpy(env), best @ to_numpy(env), 1e-6)
    total = np.linalg.norm(to_numpy(target)) ** 2
    left = np.linalg.norm(to_numpy(target) - to_numpy(x) @ to_numpy(env)) ** 2
    assert explained == pytest.approx(total - left, rel=1e-7)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_a_factorisation_that_fails_spoils_nothing(dtype):
    """LAPACK works in the memory of the scaled matrix, and fails here after most of the columns."""
    rng = np.random.default_rng(0)
    u = np.linalg.qr(random_array(rng, (40, 40), dtype).numpy())[0]
    gram = (u * np.append(np.linspace(1.0, 2.0, 39), -1e-3)) @ u.conj().T
    gram = (gram + gram.conj().T) / 2
    rhs = random_array(rng, (3, 40), dtype).numpy()
    before = gram.copy(), rhs.copy()
    x, _ = solve_normal(gram, rhs, 1e-14)
    wanted, _ = solve_normal(torch.from_numpy(gram), torch.from_numpy(rhs), 1e-14)
    np.testing.assert_allclose(x, wanted.numpy(), atol=1e-9)
    np.testing.assert_array_equal(gram, before[0])
    np.testing.assert_array_equal(rhs, before[1])


@given(DOUBLES, seeds)
def test_explained_is_right_for_a_large_ridge_too(use_numpy, dtype, seed):
    env, target, gram, rhs = problem(seed, 3, 5, 20, dtype)
    x, explained = solve(gram, rhs, 0.3, use_numpy)
    total = np.linalg.norm(to_numpy(target)) ** 2
    left = np.linalg.norm(to_numpy(target) - to_numpy(x) @ to_numpy(env)) ** 2
    assert explained == pytest.approx(total - left, rel=1e-10)
    assert explained < solve(gram, rhs, 0.0, use_numpy)[1]


@either_lapack
@given(DOUBLES, seeds)
def test_scaling_of_unknowns_does_not_hurt(scipy, use_numpy, dtype, seed):
    _, _, gram, rhs = problem(seed, 2, 4, 20, dtype)
    scale = torch.tensor([1e-4, 1.0, 1e3, 1e5], dtype=torch.float64)
    plain, _ = solve(gram, rhs, 1e-14, use_numpy, scipy)
    scaled, _ = solve(gram * scale[:, None] * scale, rhs * scale, 1e-14, use_numpy, scipy)
    assert_close(to_numpy(scaled) * scale.numpy(), plain, 1e-7)


def test_single_precision_is_solved_in_double(use_numpy):
    rng = np.random.default_rng(0)
    # Condition 1e4: a single precision factor would lose four of seven digits.
    u = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    gram = torch.tensor(u @ np.diag(np.geomspace(1, 1e-4, 6)) @ u.T, dtype=torch.float32)
    rhs = torch.tensor(rng.standard_normal((2, 6)), dtype=torch.float32)
    x, _ = solve(gram, rhs, 1e-14, use_numpy)
    assert is_single(x.dtype)
    assert_close(x, np.linalg.solve(to_numpy(gram), to_numpy(rhs).T).T, 1e-6)


def test_shapes_and_types_are_kept(dtype, device):
    rng = np.random.default_rng(0)
    env = random_array(rng, (6, 9), dtype).to(device)
    rhs = random_array(rng, (4, 2, 3), dtype).to(device)
    gram = (env @ env.mH).reshape(2, 3, 2, 3)
    x, _ = solve_normal(gram, rhs, 1e-14)
    assert (x.shape, x.dtype, x.device.type) == (rhs.shape, dtype, device)
    expected = np.linalg.solve(to_numpy(gram).reshape(6, 6).T, to_numpy(rhs).reshape(4, 6).T).T
    assert_close(x, expected.reshape(4, 2, 3), 1e-3 if is_single(dtype) else 1e-10)


def test_inputs_are_not_changed(use_numpy):
    _, _, gram, rhs = problem(0, 3, 4, 9, torch.complex128)
    before = gram.clone(), rhs.clone()
    solve(gram, rhs, 1e-3, use_numpy)
    assert torch.equal(gram, before[0])
    assert torch.equal(rhs, before[1])


def test_no_gram_means_one(use_numpy):
    rhs = torch.tensor([3.0, 4.0])
    x, explained = solve_normal(None, rhs.numpy() if use_numpy else rhs, 1e-14)
    assert_close(x, rhs, 0.0)
    assert explained == 25.0


@either_lapack
@pytest.mark.parametrize("unknowns", [1, 3])
def test_zero_environment_gives_zero(scipy, use_numpy, dtype, unknowns):
    gram, rhs = torch.zeros(unknowns, unknowns, dtype=dtype), torch.zeros(2, unknowns, dtype=dtype)
    x, explained = solve(gram, rhs, 1e-14, use_numpy, scipy)
    assert not to_numpy(x).any()
    assert explained == 0.0


def test_numpy_and_torch_agree_on_a_batch_of_shapes():
    for unknowns in (1, 2, 7):
        _, _, gram, rhs = problem(unknowns, 3, unknowns, 9, torch.complex128)
        a, b = solve(gram, rhs, 1e-14, True), solve(gram, rhs, 1e-14, False)
        assert_close(a[0], b[0], 1e-12)
        assert a[1] == pytest.approx(b[1], rel=1e-12)


def test_is_single_knows_both_libraries():
    for lib in (np, torch):
        assert is_single(lib.zeros(1, dtype=lib.float32).dtype)
        assert is_single(lib.zeros(1, dtype=lib.complex64).dtype)
        assert not is_single(lib.zeros(1, dtype=lib.float64).dtype)
        assert not is_single(lib.zeros(1, dtype=lib.complex128).dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_norm_that_rounding_made_negative_gives_nothing(use_numpy, dtype):
    """It was taken for a tiny one, and the solution overflowed."""
    gram, rhs = torch.tensor([[-2.4e-4]], dtype=dtype), torch.tensor([[2.7e-4], [0.0], [-1.0]], dtype=dtype)
    x, explained = solve(gram, rhs, 1e-12, use_numpy)
    assert to_numpy(torch.as_tensor(x)).tolist() == [[0.0], [0.0], [0.0]]
    assert explained == 0.0


# -- batches of systems ------------------------------------------------------------------------------------


def psd(rng, width: int, rank: int, dtype: torch.dtype) -> torch.Tensor:
    a = random_array(rng, (rank, width), dtype)
    return a.mH @ a


@pytest.mark.parametrize("width", [1, 2, 7])
def test_solve_slices(width, double):
    rng = np.random.default_rng(width)
    gram = torch.stack([psd(rng, width, width + 2, double) for _ in range(5)])
    rhs = random_array(rng, (5, width), double)
    found = linalg.solve_slices(gram, rhs, 0.0)
    expected = np.stack([np.linalg.solve(to_numpy(g), to_numpy(m)) for g, m in zip(gram, rhs)])
    assert_close(found, expected, 1e-8)
    ridge = linalg.solve_slices(gram, rhs, 0.5)
    for g, m, x in zip(gram, rhs, ridge):
        scaled = to_numpy(g) + 0.5 * np.diag(np.diag(to_numpy(g)))
        assert_close(x, np.linalg.solve(scaled, to_numpy(m)), 1e-8)


def test_solve_slices_is_finite_on_singular_and_zero_matrices(double):
    rng = np.random.default_rng(0)
    gram = torch.stack([psd(rng, 4, 2, double), torch.zeros(4, 4, dtype=double), psd(rng, 4, 6, double)])
    x = random_array(rng, (3, 4), double)
    rhs = (gram @ x[:, :, None])[:, :, 0]
    found = linalg.solve_slices(gram, rhs, 0.0)
    assert bool(torch.isfinite(torch.view_as_real(found) if found.is_complex() else found).all())
    again = (gram @ found[:, :, None])[:, :, 0]
    assert_close(again, rhs, 1e-6)
    assert_close(found[2], x[2], 1e-8)
    assert_close(found[1], np.zeros(4), 1e-12)


@pytest.mark.parametrize("factor", [1e-120, 1e-30, 1e30, 1e120])
def test_solve_slices_does_not_mind_the_scale(factor):
    rng = np.random.default_rng(0)
    gram = torch.stack([psd(rng, 3, 5, torch.float64) for _ in range(2)])
    rhs = random_array(rng, (2, 3), torch.float64)
    assert_close(
        linalg.solve_slices(gram * factor, rhs * factor, 1e-14), linalg.solve_slices(gram, rhs, 1e-14), 1e-9
    )


# -- unwatched ---------------------------------------------------------------------------------------------


def test_solves_without_a_look_are_the_same(dtype, device):
    rng = np.random.default_rng(0)
    env, rhs = (random_array(rng, shape, dtype).to(device) for shape in ((6, 9), (4, 6)))
    close = 1e-4 if is_single(dtype) else 1e-10
    for gram in (None, env @ env.mH):
        x, explained = solve_normal(gram, rhs, 1e-14)
        found, number = solve_normal(gram, rhs, 1e-14, careful=False)
        assert isinstance(number, torch.Tensor) and found.dtype == dtype
        assert_close(found, x, close)
        assert float(number) == pytest.approx(explained, rel=close)


def test_a_failed_factorisation_is_nan_and_spoils_no_other(double, device):
    rng = np.random.default_rng(0)
    gram = torch.stack([psd(rng, 4, 6, double) for _ in range(3)]).to(device)
    rhs = random_array(rng, (3, 4), double).to(device)
    expected = linalg.solve_slices(gram, rhs, 0.0)
    gram[1] *= -1.0
    found = linalg.solve_or_nan(gram, rhs[:, :, None])[:, :, 0]
    assert bool(torch.isnan(found[1].abs()).all())
    assert_close(found[[0, 2]], expected[[0, 2]], 1e-8)
    x, explained = solve_normal(gram[1], rhs, 0.0, careful=False)
    assert bool(torch.isnan(x.abs()).all()) and bool(torch.isnan(torch.as_tensor(explained)))


def test_small_cores_are_decomposed_on_the_host(double, device, monkeypatch):
    cores = [
        random_array(np.random.default_rng(k), shape, double).to(device)
        for k, shape in enumerate([(2, 3), (4,)])
    ]
    near = linalg.on_host(cores)
    assert all(c.device.type == "cpu" and torch.equal(c, own.cpu()) for c, own in zip(near, cores))
    monkeypatch.setattr(linalg, "HOST_ENTRIES", 9)
    assert all(a is b for a, b in zip(linalg.on_host(cores), cores))


@pytest.mark.parametrize("has_scipy", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (4, 4)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_thin_qr(shape, dtype, has_scipy, monkeypatch):
    if not has_scipy:
        monkeypatch.setattr(linalg, "lapack_module", lambda: None)
    matrix = to_numpy(random_array(np.random.default_rng(0), shape, getattr(torch, dtype)))
    q, r = linalg.thin_qr(matrix)
    tight = 1e-5 if np.finfo(dtype).eps > 1e-10 else 1e-12
    assert q.dtype == r.dtype == matrix.dtype
    np.testing.assert_allclose(q @ r, matrix, atol=tight)
    np.testing.assert_allclose(q.conj().T @ q, np.eye(shape[1]), atol=tight)
    np.testing.assert_array_equal(r, np.triu(r))
