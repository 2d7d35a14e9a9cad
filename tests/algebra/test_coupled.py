from __future__ import annotations

import numpy as np
import pytest
import torch

from tensorgrow import priors
from tensorgrow.algebra import coupled
from tensorgrow.algebra.coupled import Coupling, solve_along_chain, solve_coupled
from tests.oracles import to_numpy

SIZE, WIDTH = 9, 3
PRIORS = {
    "banded": priors.smooth(),
    "wider band": priors.smooth(order=2),
    "wrapped": priors.periodic(),
    "graph": priors.graph(np.random.default_rng(3).random((SIZE, SIZE)) < 0.3),
}


def equations(dtype: torch.dtype, empty: tuple[int, ...] = ()) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(SIZE, 2 * WIDTH, WIDTH, dtype=dtype, generator=generator)
    y = torch.randn(SIZE, 2 * WIDTH, 1, dtype=dtype, generator=generator)
    rows[list(empty)] = 0
    return rows.mH @ rows, (rows.mH @ y)[:, :, 0]


def oracle(gram: torch.Tensor, rhs: torch.Tensor, matrix: np.ndarray, weight: float) -> np.ndarray:
    """The full system, unknowns slice by slice."""
    full = weight * np.kron(matrix, np.eye(WIDTH)).astype(to_numpy(gram).dtype)
    for s in range(SIZE):
        here = slice(s * WIDTH, (s + 1) * WIDTH)
        full[here, here] += to_numpy(gram)[s]
    return np.linalg.solve(full, to_numpy(rhs).reshape(-1)).reshape(SIZE, WIDTH)


@pytest.mark.parametrize("weight", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize("banded", [True, False], ids=["factors", "iterations"])
def test_it_is_the_full_system(name, weight, banded, double, monkeypatch):
    if not banded:
        monkeypatch.setattr(coupled, "NARROW", -1)
    gram, rhs = equations(double, empty=() if name == "graph" else (2, 3))
    coupling = Coupling(PRIORS[name].matrix(SIZE))
    expected = oracle(gram, rhs, coupling.quadratic.to_dense(), weight)
    start = torch.randn_like(rhs)
    found = solve_coupled(gram, rhs, coupling, weight, start)
    np.testing.assert_allclose(to_numpy(found), expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def test_slices_that_are_reached():
    chain = Coupling(priors.smooth().matrix(5))
    assert chain.reached(torch.tensor([1])).all()
    pairs = Coupling(priors.graph(np.kron(np.eye(2), np.ones((2, 2)))).matrix(4))
    assert pairs.reached(torch.tensor([1])).tolist() == [True, True, False, False]
    assert not pairs.reached(torch.tensor([], dtype=torch.long)).any()


def test_zeros_stay_zeros(monkeypatch):
    chain = Coupling(priors.smooth().matrix(SIZE))
    gram = torch.zeros(SIZE, WIDTH, WIDTH, dtype=torch.float64) + 1e-300 * torch.eye(WIDTH)
    zero = torch.zeros(SIZE, WIDTH, dtype=torch.float64)
    for narrow in (2, -1):
        monkeypatch.setattr(coupled, "NARROW", narrow)
        assert solve_coupled(gram, zero, chain, 0.0, zero).abs().max() == 0


def tall(width: int, dtype: torch.dtype, slices: int = 40, entries: int = 50):
    """Equations of slices along a chain, and the squared values that they come from."""
    generator = torch.Generator().manual_seed(1)
    scales = torch.logspace(0, -1.5, width, dtype=torch.float64)
    rows = scales * torch.randn(slices, entries, width, dtype=torch.float64, generator=generator)
    y = torch.randn(slices, entries, 1, dtype=torch.float64, generator=generator)
    gram, rhs = rows.mT @ rows, (rows.mT @ y)[:, :, 0]
    return gram.to(dtype), rhs.to(dtype), float(y.square().sum())


@pytest.mark.parametrize("weight", [0.1, 10.0, 1e3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounds_along_a_chain_leave_little_to_gain(weight, dtype):
    """Of what is minimised, the direct solution lowers no more than rounds are stopped by."""
    gram, rhs, size = tall(24, dtype)
    slices, width = rhs.shape
    chain = Coupling(priors.smooth().matrix(slices))
    own = torch.linspace(0.5, 1.5, slices, dtype=torch.float64)
    wide = gram.double() + own[:, None, None] * torch.eye(width, dtype=torch.float64)
    best = solve_coupled(wide, rhs.double(), chain, weight, torch.zeros_like(rhs).double())

    def minimised(x: torch.Tensor) -> float:
        product = (wide @ x[:, :, None])[:, :, 0] + weight * chain.times(x)
        return size + float((x * (product - 2.0 * rhs.double())).sum())

    for start in (torch.zeros_like(best), best + 0.1, best):
        found = solve_along_chain(gram, rhs, chain, weight, own, start, size)
        assert found is not None and found.dtype == torch.float64
        assert minimised(found) - minimised(best) <= 10.0 * coupled.ENOUGH * minimised(best)


def test_rounds_are_for_wide_slices_along_a_chain():
    gram, rhs, size = tall(24, torch.float32)
    slices = len(rhs)
    own, start = torch.ones(slices, dtype=torch.float64), torch.zeros(rhs.shape, dtype=torch.float64)
    chain, wrapped = (Coupling(p.matrix(slices)) for p in (priors.smooth(), priors.periodic()))
    assert solve_along_chain(gram, rhs, chain, 1.0, own, start, size) is not None
    assert solve_along_chain(gram, rhs, wrapped, 1.0, own, start, size) is None
    few = coupled.WIDE - 1
    narrow = gram[:, :few, :few], rhs[:, :few]
    assert solve_along_chain(*narrow, chain, 1.0, own, start[:, :few], size) is None
    gram[3, 0, 0] = torch.nan
    assert solve_along_chain(gram, rhs, chain, 1.0, own, start, size) is None


def test_the_chain_of_a_matrix():
    matrix = priors.smooth().matrix(6)
    diagonal, below = matrix.chain
    np.testing.assert_allclose(diagonal, np.diag(matrix.to_dense()))
    np.testing.assert_allclose(below, [*np.diag(matrix.to_dense(), -1), 0.0])
