from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tensorgrow as tg
from tensorgrow.nn import TNConv2d, TNEmbedding, TNLinear
from tensorgrow.nn.growth.gradients import weight_gradients
from tensorgrow.nn.growth.trainer import make_trainer
from tensorgrow.nn.layer.tied import TiedLinear
from tests.nn.growth.models import HIDDEN, OPTIONS, model, regression, run, same
from tests.oracles import assert_close


class Kinds(nn.Module):
    """An embedding, a convolution and a linear layer, with an operation in place after the last."""

    def __init__(self) -> None:
        super().__init__()
        kind = {"dtype": torch.float64, "random_state": 0}
        self.table = TNEmbedding(12, 16, **kind)
        self.conv = TNConv2d(4, 4, 3, padding=1, **kind)
        self.linear = TNLinear(16, 4, in_dims=(4, 4), out_dims=(2, 2), **kind)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.conv(self.table(ids).reshape(len(ids), 4, 2, 2))
        return self.linear(x.reshape(len(ids), 16)).relu_()


def test_gradients_of_weights_are_those_of_the_dense_layers():
    net = Kinds()
    ids, y = torch.arange(12), torch.randn(12, 4, dtype=torch.float64)
    trainer = make_trainer(net, ((ids, y), (ids, y)), F.mse_loss, None, OPTIONS, batch_size=12, device=None)
    found = weight_gradients(trainer, tg.nn.tn_layers(net), 0)
    dense = nn.ModuleDict({n: m.to_dense() for n, m in tg.nn.tn_layers(net).items()}).requires_grad_(True)
    x = dense["conv"](dense["table"](ids).reshape(12, 4, 2, 2))
    F.mse_loss(dense["linear"](x.reshape(12, 16)).relu(), y).backward()
    for name, layer in tg.nn.tn_layers(net).items():
        with torch.no_grad():
            dense[name].weight.copy_(dense[name].weight.grad)
        assert_close(found[name], layer.layout.to_tensor(layer.matrix_of(dense[name])), 1e-10)
    assert all(p.grad is None for p in net.parameters())


def test_growth_by_gradients_finds_the_hidden_edge():
    result = run(candidates="gradient")
    assert result.history[1].edge == (0, 2)
    assert result.best.structures["0"].rank(0, 2) >= HIDDEN.rank(0, 2)
    assert result.validation_error < 1e-2
    assert same(result, run(candidates="gradient"))


def test_new_slices_change_nothing_by_themselves():
    net, x = model(), torch.randn(5, 16)
    before = net(x)
    frozen = tg.nn.TrainingOptions(optimizer="sgd", learning_rate=1e-30, epochs=1)
    result = run(net, candidates="gradient", training=frozen, max_steps=2)
    assert result.history[-1].num_parameters > result.history[0].num_parameters
    assert_close(result.model(x), before, 1e-6)


def test_several_edges_grow_together_within_the_budget():
    torch.manual_seed(0)
    net = nn.Sequential(
        *(TNLinear(16, 16, in_dims=(4, 4), out_dims=(4, 4), random_state=k) for k in range(3))
    )
    short = tg.nn.TrainingOptions(optimizer="adam", epochs=1)
    before = sum(p.numel() for p in net.parameters())
    options = tg.GreedyOptions(edge_score="per_parameter", rank_increment=2)
    grown = run(net, candidates="gradient", edges_per_step=2, max_steps=1, training=short, options=options)
    changed = [s.ranks for s in grown.history[1].structures.values() if s.ranks]
    assert [list(ranks.values()) for ranks in changed] == [[3], [3]]
    limit = {"max_parameters": before + 100, "max_steps": 3}
    small = run(net, candidates="gradient", edges_per_step=3, training=short, **limit)
    assert all(s.num_parameters <= before + 100 for s in small.history)
    assert small.stop is tg.StopReason.MAX_PARAMETERS


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"candidates": "best"}, "candidates"),
        ({"edges_per_step": 2}, "edges_per_step=2 goes with"),
        ({"edges_per_step": 0, "candidates": "gradient"}, "edges_per_step"),
        (
            {
                "candidates": "gradient",
                "options": tg.GreedyOptions(edge_score=lambda a, b, n: 0.0, patience=5),
            },
            "a function as edge_score",
        ),
    ],
)
def test_options_that_do_not_go_together(options, match):
    with pytest.raises(tg.OptionError, match=match):
        run(**options)


def test_a_teacher_shows_which_edge_to_grow():
    """Targets of the training data say nothing; what the teacher makes of the inputs does."""
    (x, y), validation = regression()
    dense = nn.Linear(16, 16, bias=False)
    with torch.no_grad():
        dense.weight.copy_(torch.linalg.lstsq(x, y).solution.T)
    teacher = tg.nn.Teacher(dense, share=1.0, loss=F.mse_loss)
    result = tg.nn.grow(
        model(),
        (x, torch.zeros_like(y)),
        validation,
        loss=F.mse_loss,
        teacher=teacher,
        candidates="gradient",
        training=OPTIONS,
        max_steps=1,
        random_state=0,
    )
    assert result.history[1].edge == (0, 2)


def test_a_tied_head_counts_in_the_gradient_of_its_table():
    table = TNEmbedding(20, 6, random_state=0)
    model = nn.Sequential(table, TiedLinear(table, nn.Parameter(torch.randn(20))))
    x, y = torch.arange(40) % 20, torch.arange(40) % 7
    data = ((x, y), (x, y))
    how = {"batch_size": 40, "device": None}
    trainer = make_trainer(model, data, None, None, tg.TrainingOptions(), **how)
    (gradient,) = weight_gradients(trainer, {"0": table}, 0).values()
    weight = table.weight.detach().requires_grad_()
    F.cross_entropy(weight[x] @ weight.T + model[1].bias, y).backward()
    columns = F.pad(weight.grad.T.double(), (0, table.layout.in_features - 20))
    assert_close(gradient, table.layout.to_tensor(columns), 1e-5)


class Aside(nn.Module):
    """A layer whose output the loss does not see."""

    def __init__(self) -> None:
        super().__init__()
        self.seen, self.aside = TNLinear(16, 4, random_state=0), TNLinear(16, 4, random_state=0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept = self.aside(x).detach()
        return self.seen(x) + 0 * self.kept


def test_a_layer_that_the_loss_does_not_see_has_no_gradient():
    x, y = torch.randn(8, 16), torch.arange(8) % 4
    how = {"batch_size": 8, "device": None}
    trainer = make_trainer(Aside(), ((x, y), (x, y)), None, None, tg.TrainingOptions(), **how)
    found = weight_gradients(trainer, tg.nn.tn_layers(trainer.model), 0)
    assert float(found["seen"].norm()) > 0 and float(found["aside"].norm()) == 0
