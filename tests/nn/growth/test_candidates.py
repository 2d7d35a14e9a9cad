from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import tensorgrow as tg
from tensorgrow.nn import tn_layers
from tensorgrow.nn.growth.batches import as_batches
from tensorgrow.nn.growth.candidates import GrowProblem, best_candidate
from tensorgrow.nn.growth.trainer import Trainer
from tensorgrow.search import EdgePolicy
from tests.nn.growth.models import OPTIONS, model, regression, run


def test_scoring_leaves_weights_and_running_statistics_alone():
    net = model(nn.BatchNorm1d(16))
    train, validation = regression()
    kind = {"batch_size": 50, "device": torch.device("cpu"), "dtype": torch.float32}
    trainer = Trainer(
        net,
        as_batches(train, "a", **kind),
        as_batches(validation, "b", **kind),
        nn.functional.mse_loss,
        None,
        OPTIONS,
    )
    before = {k: v.clone() for k, v in net.state_dict().items()}
    problem = GrowProblem(trainer, tn_layers(net), {"0": EdgePolicy(None)}, tg.GreedyOptions(), None)
    edges = [("0", (0, 1)), ("0", (0, 2))]
    best = best_candidate(problem, edges, seed=0, before=trainer.validate(), deadline=math.inf)
    assert best.edge == (0, 2)
    assert best.score > 0
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


def test_frozen_layers_do_not_grow():
    net = nn.Sequential(model()[0], nn.ReLU(), model()[0])
    net[0].requires_grad_(False)
    before = [c.clone() for c in net[0].cores]
    result = run(net)
    assert {s.layer for s in result.history[1:]} == {"2"}
    assert all(torch.equal(a, b) for a, b in zip(before, result.model[0].cores))
    net.requires_grad_(False)
    with pytest.raises(tg.OptionError, match="frozen"):
        run(net)
    net[0].bias.requires_grad_(True)
    with pytest.raises(tg.OptionError, match="all cores of \\['0', '2'\\] are frozen"):
        run(net)


def test_layers_with_common_cores_are_refused_and_a_module_used_twice_is_not():
    layer = model()[0]
    other = model()[0]
    other.cores[1] = layer.cores[1]
    with pytest.raises(tg.OptionError, match="\\['0', '2'\\] have cores in common"):
        run(nn.Sequential(layer, nn.ReLU(), other))
    result = run(nn.Sequential(layer, nn.ReLU(), layer), max_steps=1)
    assert result.model[0] is result.model[2]
    assert result.num_parameters == result.model[0].num_parameters
