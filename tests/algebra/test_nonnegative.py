from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensorgrow import priors
from tensorgrow.algebra import coupled, nonnegative
from tensorgrow.algebra.coupled import Coupling
from tensorgrow.algebra.linalg import solve_slices
from tensorgrow.algebra.nonnegative import SliceEquations, TiedEquations, solve_nonnegative
from tests.oracles import to_numpy

nnls = pytest.importorskip("scipy.optimize").nnls
COUPLINGS = {
    "banded": priors.smooth(),
    "wider band": priors.smooth(order=2),
    "wrapped": priors.periodic(),
    "graph": priors.graph(np.random.default_rng(3).random((7, 7)) < 0.4),
}


def equations(size: int, width: int, seed: int, ridge: float = 1e-3) -> tuple[torch.Tensor, torch.Tensor]:
    """Some solutions would be negative."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.rand(size, 2 * width, width, dtype=torch.float64, generator=generator)
    y = torch.randn(size, 2 * width, 1, dtype=torch.float64, generator=generator) + 0.3
    gram = rows.mT @ rows + ridge * torch.eye(width, dtype=torch.float64)
    return gram, (rows.mT @ y)[:, :, 0]


def oracle(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """``||L^T x - L^-1 b||`` has the same minimum."""
    factor = np.linalg.cholesky(matrix)
    return nnls(factor.T, np.linalg.solve(factor, right))[0]


def full(gram: torch.Tensor, matrix: np.ndarray, weight: float) -> np.ndarray:
    """The system of all slices together."""
    size, width = gram.shape[:2]
    out = weight * np.kron(matrix, np.eye(width))
    for s in range(size):
        here = slice(s * width, (s + 1) * width)
        out[here, here] += to_numpy(gram)[s]
    return out


@given(
    st.integers(1, 5),
    st.integers(1, 9),
    st.integers(0, 1000),
    st.sampled_from(["zero", "random", "negative"]),
)
def test_slices_are_those_of_an_active_set_method(size, width, seed, start):
    gram, rhs = equations(size, width, seed)
    noise = torch.randn(size, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    first = {"zero": 0 * noise, "random": noise, "negative": -noise.abs()}[start]
    found = solve_nonnegative(SliceEquations(gram, rhs), first)
    for x, matrix, right in zip(to_numpy(found), to_numpy(gram), to_numpy(rhs)):
        np.testing.assert_allclose(x, oracle(matrix, right), atol=1e-8)


@pytest.mark.parametrize("banded", [True, False], ids=["factors", "iterations"])
@pytest.mark.parametrize("weight", [1e-2, 3.0])
@pytest.mark.parametrize("name", COUPLINGS)
def test_tied_slices_are_those_of_an_active_set_method(name, weight, banded, monkeypatch):
    if not banded:
        monkeypatch.setattr(coupled, "NARROW", -1)
    coupling = Coupling(COUPLINGS[name].matrix(7))
    gram, rhs = equations(7, 4, 5)
    rhs[2:4] -= 3.0  # so that neighbours are held at zero
    found = solve_nonnegative(TiedEquations(gram, rhs, coupling, weight), torch.rand(1, 28).double())
    expected = oracle(full(gram, coupling.quadratic.to_dense(), weight), to_numpy(rhs).reshape(-1))
    assert 0 < (expected == 0).sum() < 28
    np.testing.assert_allclose(to_numpy(found)[0], expected, atol=1e-6)


@given(st.integers(1, 40), st.integers(0, 1000))
def test_solutions_meet_the_conditions_of_a_minimum(width, seed):
    """Slopes are zero where entries are positive, and point outwards where they are zero."""
    gram, rhs = equations(4, width, seed, ridge=1e-2)
    x = solve_nonnegative(SliceEquations(gram, rhs), torch.zeros_like(rhs))
    slope = (gram @ x[:, :, None])[:, :, 0] - rhs
    size = 1e-7 * float(rhs.abs().max())
    assert bool((x >= 0).all())
    assert bool((slope[x == 0] >= -size).all())
    assert bool((slope[x > 0].abs() <= size).all())


def test_without_negative_entries_it_is_the_plain_solution(device):
    gram, _ = equations(6, 5, 0)
    x = torch.rand(6, 5, dtype=torch.float64) + 0.1
    gram, rhs = gram.to(device), (gram @ x[:, :, None])[:, :, 0].to(device)
    found = solve_nonnegative(SliceEquations(gram, rhs), torch.ones_like(rhs))
    torch.testing.assert_close(found, solve_slices(gram, rhs, 0.0), rtol=1e-9, atol=1e-9)


def test_it_never_gets_worse(monkeypatch):
    """Cut short after one round, it is still no worse than where it began."""
    monkeypatch.setattr(nonnegative, "ROUNDS", 1)
    gram, rhs = equations(30, 20, 1, ridge=1e-6)
    first = torch.rand(30, 20, dtype=torch.float64)
    found = solve_nonnegative(SliceEquations(gram, rhs), first)

    def value(x: torch.Tensor) -> torch.Tensor:
        return 0.5 * (x * (gram @ x[:, :, None])[:, :, 0]).sum(1) - (x * rhs).sum(1)

    assert bool((value(found) < value(first)).all())


def test_zeros_stay_zeros():
    gram = torch.zeros(3, 2, 2, dtype=torch.float64) + 1e-300 * torch.eye(2)
    zero = torch.zeros(3, 2, dtype=torch.float64)
    assert not solve_nonnegative(SliceEquations(gram, zero), zero).any()
