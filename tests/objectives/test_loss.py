"""Losses that users write."""

import torch

import tensorgrow as tg
from tensorgrow.objectives import LossFunction
from tensorgrow.structure import Structure


def test_loss_function_takes_means_over_batches():
    objective = LossFunction(
        lambda n, b: n.cores[0].sum() * 0 + b, (2, 2), [torch.tensor(1.0), torch.tensor(3.0)]
    )
    network = tg.TensorNetwork.random(Structure.rank_one((2, 2)), random_state=0)
    assert objective.total(network) == 2.0
    assert objective.num_batches == 2 and not objective.is_whole and not objective.holds_out
    assert objective.validate(network) is None
