from __future__ import annotations

from contextlib import contextmanager

from torch import nn

from tensorgrow.nn import TNLinear
from tensorgrow.nn.growth.trainer import Trainer, freeze
from tests.nn.growth.models import model, run


def test_frozen_parts_get_no_gradients(monkeypatch):
    seen, trials = [], []
    batch_loss, trial = Trainer.batch_loss, TNLinear.trial

    @contextmanager
    def count_trials(self, *args):
        trials.append(self)
        with trial(self, *args):
            yield
        trials.pop()

    def spy(self, batch):
        value = batch_loss(self, batch)
        if trials:
            seen.append([n for n, p in self.model.named_parameters() if p.requires_grad])
        return value

    monkeypatch.setattr(TNLinear, "trial", count_trials)
    monkeypatch.setattr(Trainer, "batch_loss", spy)
    net = nn.Sequential(nn.Linear(16, 16), model()[0], nn.Linear(16, 16))
    result = run(net, max_steps=1)
    assert seen
    assert not any(seen)
    assert all(p.requires_grad for p in result.model.parameters())
    with freeze(net):
        assert not any(p.requires_grad for p in net.parameters())
    assert all(p.requires_grad for p in net.parameters())
