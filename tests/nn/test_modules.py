"""What may not happen to a model that is compressed, adapted or trained, and what it is left like."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune

import tensorgrow as tg
from tensorgrow.nn import adapt, compress, fine_tune, grow, merge_adapters

X = torch.randn(40, 3, 6, 6, generator=torch.Generator().manual_seed(0))
Y = torch.arange(40) % 5
DATA = (X, Y)
BOTH = (DATA, DATA)
FAST = {"max_seconds": 0.0, "progress": False}
ONE = tg.TrainingOptions(epochs=1)


def model() -> nn.Sequential:
    """A model that is trained with a frozen batch norm."""
    torch.manual_seed(0)
    made = nn.Sequential(
        nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12), nn.Flatten(), nn.Dropout(0.1), nn.Linear(192, 24)
    )
    made[1].eval()
    return made


CALLS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "compress": lambda m: compress(m, max_ratio=0.5, min_size=100, calibration=[X], **FAST).model,
    "loss": lambda m: (
        compress(m, max_ratio=0.5, min_size=100, calibration=[DATA], loss=F.cross_entropy, **FAST).model
    ),
    "adapt": lambda m: adapt(m),
    "merge": lambda m: merge_adapters(adapt(m)),
    "fine_tune": lambda m: fine_tune(m, DATA, DATA, epochs=1, random_state=0, progress=False).model,
    "grow": lambda m: (
        grow(
            adapt(m),
            DATA,
            DATA,
            candidates="gradient",
            max_steps=1,
            training=ONE,
            random_state=0,
            progress=False,
        ).model
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_modes_stay_and_nobody_draws_from_torchs_numbers(call):
    given = model()
    modes, values = [m.training for m in given.modules()], copy.deepcopy(given.state_dict())
    given[4].register_forward_hook(lambda *_: None)
    random = torch.get_rng_state()
    made = CALLS[call](given)
    assert torch.equal(torch.get_rng_state(), random)
    assert [m.training for m in given.modules()] == modes
    assert not made[1].training and made.training and made[3].training
    assert all(torch.equal(v, values[n]) for n, v in given.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in given.parameters())
    assert len(given[4]._forward_hooks) == 1


def hooked() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch would rather have it as a parametrisation
        return nn.Sequential(nn.utils.weight_norm(nn.Linear(64, 64)))


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (hooked, "remove_weight_norm"),
        (lambda: nn.Sequential(prune.random_unstructured(nn.Linear(64, 64), "weight", 0.5)), "prune.remove"),
        (lambda: nn.Sequential(nn.LazyLinear(64), nn.Linear(64, 64)), "'0.weight' has no size yet"),
        (lambda: nn.Linear(64, 64, device="meta"), "meta device"),
        (lambda: "model.pt", "model must be a Module, not str"),
    ],
)
def test_models_that_cannot_be_copied_are_refused(made, match):
    calls = [
        lambda m: compress(m, max_ratio=0.5, **FAST),
        adapt,
        lambda m: fine_tune(m, DATA, DATA),
        lambda m: grow(m, DATA, DATA),
    ]
    for call in calls:
        with pytest.raises(tg.OptionError, match=match):
            call(made())


@pytest.mark.parametrize("call", ["compress", "adapt", "merge"])
def test_what_listens_to_a_layer_listens_to_the_one_in_its_place(call):
    torch.manual_seed(0)
    given = nn.ModuleDict(
        {
            "linear": nn.Linear(32, 32),
            "attention": nn.MultiheadAttention(32, 4, batch_first=True),
            "table": nn.Embedding(40, 32),
            "head": nn.Linear(32, 40),
        }
    )
    given["head"].weight = given["table"].weight
    heard: list[tuple[str, object]] = []
    for name, layer in given.items():
        layer.register_forward_hook(lambda _, x, out, name=name: heard.append((name, out)))
        layer.register_forward_pre_hook(
            lambda _, x, kw, name=name: heard.append(("", x[0])), with_kwargs=True
        )
    if call == "compress":
        made = compress(given, max_ratio=0.7, layers=["linear", "attention", "table"], **FAST).model
    else:
        made = adapt(given, layers=list(given))
        made = merge_adapters(made) if call == "merge" else made
    x, tokens = torch.randn(2, 3, 32), torch.arange(5)
    heard.clear()  # of what was measured
    want = [made["linear"](x), made["table"](tokens), made["head"](x), made["attention"](x, x, x)]
    assert [name for name, _ in heard if name] == ["linear", "table", "head", "attention"]
    assert all(out is known for (_, out), known in zip([h for h in heard if h[0]], want))
    assert sum(not name for name, _ in heard) == 4
    assert sum(len(m._forward_hooks) for m in given.modules()) == 4
