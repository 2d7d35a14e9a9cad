"""Steps of an optimiser: plain ones everywhere, recorded ones where there is a GPU."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from tensorgrow.solvers import TrainingOptions, train
from tensorgrow.solvers.cuda_graphs import CapturedStep, PlainStep

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="GPU"))]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def problem(device, *, dropout=0.0, norm=False):
    """A small model and batches for it, the last of them short."""
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(16)] if norm else []
    model = nn.Sequential(
        nn.Linear(8, 16, bias=not norm), *middle, nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, 3)
    ).to(device)
    x = torch.randn(150, 8, device=device)
    y = (x[:, :3] ** 2).argmax(1)
    return model, list(zip(x.split(16), y.split(16)))


def fit(device, *, loss=None, epochs=6, **options):
    """Losses of the epochs, and what became of the model."""
    model, batches = problem(device, dropout=options.pop("dropout", 0.0), norm=options.pop("norm", False))
    own = loss or (lambda batch: nn.functional.cross_entropy(model(batch[0]), batch[1]))
    seen = []

    def measure():
        with torch.no_grad():
            seen.append(sum(float(nn.functional.cross_entropy(model(x), y)) for x, y in batches))
        return seen[-1]

    if device == "cuda":
        torch.cuda.manual_seed(1)
    torch.manual_seed(1)
    made = TrainingOptions(optimizer="adam", learning_rate=1e-2, **options)
    done = train(
        list(model.parameters()),
        lambda: batches,
        own,
        made,
        measure=measure,
        epochs=epochs,
        buffers=list(model.buffers()),
    )
    return done, seen, [v.detach().cpu() for v in model.state_dict().values()]


@pytest.mark.parametrize("device", DEVICES)
def test_a_plain_step_is_that_of_the_optimiser(device):
    model, batches = problem(device)
    twin = problem(device)[0]
    twin.load_state_dict(model.state_dict())
    mine = torch.optim.Adam(model.parameters(), 0.1)
    theirs = torch.optim.Adam(twin.parameters(), 0.1)
    step = PlainStep(
        mine, list(model.parameters()), lambda b: nn.functional.cross_entropy(model(b[0]), b[1]), 0.5
    )
    losses = []
    for x, y in batches:
        step((x, y))
        theirs.zero_grad()
        loss = nn.functional.cross_entropy(twin(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(twin.parameters(), 0.5)
        theirs.step()
        losses.append(float(loss.detach()))
    mean, count = step.take_mean()
    assert count == len(batches) and mean == pytest.approx(np.mean(losses), rel=1e-6)
    assert step.take_mean() == (0.0, 0)
    for a, b in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("device", DEVICES)
def test_the_best_epoch_is_kept_with_its_buffers_and_loss(device):
    scores = iter([3.0, 2.0, 1.0, 5.0, 6.0])
    model, batches = problem(device, norm=True)
    kept = []

    def measure():
        kept.append([b.clone() for b in model.buffers()])
        return next(scores)

    done = train(
        list(model.parameters()),
        lambda: batches,
        lambda b: nn.functional.cross_entropy(model(b[0]), b[1]),
        TrainingOptions(optimizer="adam"),
        measure=measure,
        epochs=4,
        buffers=list(model.buffers()),
    )
    assert done.measure == 1.0 and done.epochs == 4 and 0 < done.loss < 3
    for now, then, last in zip(model.buffers(), kept[2], kept[-1]):
        assert torch.equal(now, then) and not torch.equal(now, last)


@needs_gpu
@pytest.mark.parametrize(
    "how",
    [{}, {"dropout": 0.5}, {"norm": True}, {"schedule": "cosine"}, {"clip": 0.1}, {"weight_decay": 0.1}],
    ids=str,
)
def test_recorded_steps_are_plain_steps(how):
    plain = fit("cuda", capture=False, **how)
    recorded = fit("cuda", capture=True, **how)
    np.testing.assert_allclose(recorded[1], plain[1], rtol=2e-3)
    assert recorded[0].loss == pytest.approx(plain[0].loss, rel=2e-3)
    for a, b in zip(recorded[2], plain[2]):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-3)


def steps_on_gpu(loss, model, batches, count=30):
    parameters = list(model.parameters())
    options = TrainingOptions(optimizer="adam", learning_rate=1e-2)
    step = options.step(options.make(parameters, whole=False), parameters, loss, [])
    assert isinstance(step, CapturedStep)
    for k, batch in enumerate(itertools.islice(itertools.cycle(batches), count)):
        step(batch)
        if k % len(batches) == len(batches) - 1:
            step.take_mean()
    return step


@needs_gpu
def test_a_graph_is_made_and_used():
    model, batches = problem("cuda")
    calls = []

    def loss(batch):
        calls.append(len(batch[0]))
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    step = steps_on_gpu(loss, model, batches, 40)
    assert step.works and len(calls) < 25  # of 40 steps
    step.close()
    assert all(p.grad is None for p in model.parameters())


@needs_gpu
@pytest.mark.parametrize("kind", ["asks", "host noise", "anneals"])
def test_what_cannot_be_recorded_stays_plain(kind):
    model, batches = problem("cuda")
    generator = np.random.default_rng(0)
    calls = []

    def loss(batch):
        calls.append(1)
        value = nn.functional.cross_entropy(model(batch[0]), batch[1])
        if kind == "asks" and float(value.detach()) < 0:
            value = 2 * value
        if kind == "host noise":
            value = value * float(generator.uniform(0.5, 2.0))
        if kind == "anneals":
            value = value * (1.0 + 0.01 * len(calls))
        return value

    step = steps_on_gpu(loss, model, batches, 40)
    assert not step.works
    assert torch.isfinite(torch.randn(3, device="cuda")).all()  # torch's generator is in order
