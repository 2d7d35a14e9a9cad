from __future__ import annotations

import numpy as np
import pytest
import torch

from tensorgrow import priors
from tensorgrow.algebra import coupled
from tensorgrow.algebra.coupled import Coupling, solve_coupled
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
