"""The fit of one structure: Adam as published, and ranks that no end can use."""

from __future__ import annotations

import torch

import tensorgrow as tg
from tensorgrow import baselines
from tensorgrow.baselines import FitOptions
from tensorgrow.baselines.inner_fit import FitTask, InnerFit, drop_surplus, pad_cores

from .tensors import planted


def test_adam_as_published_lowers_the_error():
    x = planted()
    short, long = (
        baselines.tnale(x, max_rank=2, random_state=0, max_evaluations=1, fit=FitOptions("adam", steps=n))
        for n in (5, 150)
    )
    assert short.structure == long.structure
    assert long.relative_error < 0.8 * short.relative_error
    assert long.info["rounds"] == 150
    assert long.info["fit"] == "adam"


def test_surplus_ranks_are_fitted_without_and_stored_with():
    # Rank 6 on a leaf of dimension 3; its neighbour then has surplus towards the next one.
    chain = tg.Structure((3, 2, 4), {(0, 1): 6, (1, 2): 6})
    lean = drop_surplus(chain)
    assert dict(lean.ranks) == {(0, 1): 3, (1, 2): 4}
    network = tg.TensorNetwork.random(lean, random_state=0)
    whole = tg.TensorNetwork(chain, list(pad_cores(lean, chain, network.cores)))
    assert torch.allclose(whole.to_dense(), network.to_dense(), rtol=1e-13, atol=0.0)
    x = torch.randn((3, 2, 4), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    cores, loss, _ = InnerFit(x, FitOptions())(FitTask(chain, seed=0))
    assert [c.shape for c in cores] == list(chain.core_shapes)
    assert loss < 1e-9  # it holds every tensor of this shape


def test_a_surplus_edge_of_dimension_one_vanishes():
    structure = tg.Structure((1, 2, 2), {(0, 1): 3, (1, 2): 2})
    lean = drop_surplus(structure)
    assert dict(lean.ranks) == {(1, 2): 2}
    cores = list(pad_cores(lean, structure, tg.TensorNetwork.random(lean, random_state=0).cores))
    assert [tuple(c.shape) for c in cores] == list(structure.core_shapes)


def test_surplus_ranks_at_modes_of_size_one_are_fitted():
    # The core of mode 1 has the shape (1, rank, rank): its first axis is the leg, although that has size 1.
    structure = tg.Structure((3, 1, 3), {(0, 1): 5, (1, 2): 5})
    lean = drop_surplus(structure)
    network = tg.TensorNetwork.random(lean, random_state=0)
    whole = tg.TensorNetwork(structure, list(pad_cores(lean, structure, network.cores)))
    assert torch.allclose(whole.to_dense(), network.to_dense(), rtol=1e-13, atol=0.0)
    x = torch.randn((3, 1, 3), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    cores, loss, _ = InnerFit(x, FitOptions())(FitTask(structure, seed=0))
    assert [c.shape for c in cores] == list(structure.core_shapes)
    assert loss < 1e-9
