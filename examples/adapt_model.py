"""
Adapt a model to other data
===========================

A trained classifier meets data that has changed. We freeze it, put a small network
beside each layer, let these grow while they are trained, and add them to the weights.
"""

# %%
# Points in 64 dimensions, labelled by a hidden layer; a classifier learns them. Then
# the world changes: the hidden layer becomes another one, by a matrix of rank two.

import matplotlib.pyplot as plt
import torch
from torch import nn

import tensorgrow as tg

torch.manual_seed(0)
hidden, head = torch.randn(64, 8), torch.randn(8, 4)
changed = hidden + torch.randn(64, 2) @ torch.randn(2, 8)


def draw(count: int, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Points and their labels."""
    x = torch.randn(count, 64)
    return x, (torch.tanh(x @ weight / 4) @ head).argmax(1)


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    """Share of unseen points of the changed world that are classified correctly."""
    return float((model(test[0]).argmax(1) == test[1]).float().mean())


before, data, held_out, test = (
    draw(count, weight)
    for count, weight in zip((6000, 800, 400, 2000), (hidden, *[changed] * 3))
)
model = nn.Sequential(
    nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)
)
base = tg.nn.fine_tune(model, before, draw(500, hidden), epochs=8, random_state=0).model
print(f"the model before: {accuracy(base):.1%} correct on the changed data")

# %%
# `tensorgrow.nn.adapt` freezes the model and puts a network of rank one beside its
# large layers. They start at zero, so that nothing changes yet.

adapted = tg.nn.adapt(base, max_parameters=700)
assert torch.equal(adapted(test[0]), base(test[0]))

# %%
# `tensorgrow.nn.grow` trains them and raises ranks where the gradient of the loss
# promises most, until the adapters have 700 parameters together.

grown = tg.nn.grow(
    adapted,
    data,
    held_out,
    candidates="gradient",
    edges_per_step=2,
    edge_score="per_parameter",
    training=tg.TrainingOptions(optimizer="adam", learning_rate=1e-2, epochs=6),
    patience=None,
    batch_size=64,
    random_state=0,
)
print(grown)
print(f"with adapters: {accuracy(grown.model):.1%} correct")

# %%
# Merged into the weights, the model has its first size and speed again.

merged = tg.nn.merge_adapters(grown.model)
assert type(merged[0]) is nn.Linear
assert torch.allclose(merged(test[0]), grown.model(test[0]), atol=1e-4)

# %%
# Held-out loss against the size of the adapters.

fixed = grown.num_parameters - sum(
    p.numel() for p in grown.model.parameters() if p.requires_grad
)
figure, axis = plt.subplots(figsize=(5, 3.4), layout="constrained")
axis.plot(
    [step.num_parameters - fixed for step in grown.history],
    [step.validation_error for step in grown.history],
    "o-",
)
axis.set(xlabel="parameters of the adapters", ylabel="held-out loss")
plt.show()
