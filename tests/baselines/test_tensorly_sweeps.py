"""CP, Tucker and trains by TensorLy."""

from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow import baselines

from .tensors import DIMS, noise, true_error


def test_cp_counts_its_factors_and_not_its_copy_tensors(tmp_path):
    rng = np.random.default_rng(3)
    x = np.einsum("az,bz,cz,dz->abcd", *(rng.standard_normal((d, 2)) for d in DIMS))
    r = baselines.cp(x, max_error=1e-5, random_state=0)
    assert r.num_parameters == 2 * sum(DIMS)
    assert r.network.num_parameters > r.num_parameters
    assert r.compression_ratio == pytest.approx(x.size / r.num_parameters)
    assert true_error(r, x) <= 1e-5
    assert [p.num_parameters for p in r.path] == [sum(DIMS), 2 * sum(DIMS)]
    r.save(tmp_path / "cp.safetensors")
    back = tg.load(tmp_path / "cp.safetensors")
    assert back.num_parameters == r.num_parameters
    assert [p.num_parameters for p in back.path] == [p.num_parameters for p in r.path]


def test_tensorly_keeps_the_backend_of_others():
    tl = pytest.importorskip("tensorly")
    before = tl.get_backend()
    with tl.backend_context("pytorch"):
        baselines.tensorly_tt(noise(), max_parameters=30)
        assert tl.get_backend() == "pytorch"
    assert tl.get_backend() == before
