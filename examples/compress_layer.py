"""
Compress a layer
================

We train a small classifier, replace the matrix of its first layer by a network, and
recover the accuracy by a little more training.
"""

# %%
# Synthetic data: points in 64 dimensions, labelled by a network with a hidden layer of
# four units. Some inputs have far more variance than others, as in real data.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import nn

import tensorgrow as tg

torch.manual_seed(0)
x = torch.randn(6000, 64) * torch.logspace(0, -1.5, 64)
y = (torch.tanh(x @ torch.randn(64, 4) / 2) @ torch.randn(4, 5)).argmax(1)
seen, test = (x[:5000], y[:5000]), (x[5000:], y[5000:])


def train(model: nn.Module, epochs: int) -> None:
    """Train by Adam with a little weight decay."""
    optimizer = torch.optim.Adam(model.parameters(), 3e-3, weight_decay=1e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(seen[0])).split(128):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(seen[0][rows]), seen[1][rows]).backward()
            optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    """Share of unseen points classified correctly."""
    return float((model(test[0]).argmax(1) == test[1]).float().mean())


model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
train(model, 6)
before = accuracy(model)
print(
    f"{sum(p.numel() for p in model.parameters()):,} parameters, {before:.1%} correct"
)

# %%
# `tensorgrow.nn.compress` computes truncated SVDs and networks for the weight, and
# takes the best within a third of the parameters. With inputs for calibration, the
# error that counts is that of the layer's outputs.

small = tg.nn.compress(
    model,
    max_ratio=0.33,
    layers=["0"],
    calibration=[seen[0][:500]],
    max_seconds=5,
    random_state=0,
)
print(small.table())
compressed = accuracy(small.model)

# %%
# The new layer is trained like any other.

train(small.model, 2)
tuned = accuracy(small.model)
print(f"compressed {compressed:.1%}, after fine-tuning {tuned:.1%} correct")
assert sum(p.numel() for p in small.model.parameters()) <= 0.33 * sum(
    p.numel() for p in model.parameters()
)
assert tuned > before - 0.03

# %%
# Files hold numbers and structures only; the architecture comes from the model passed
# to `tensorgrow.load`.

path = Path(tempfile.mkdtemp()) / "compressed.safetensors"
small.save(path)
again = tg.load(path, model)
assert accuracy(again.model) == tuned

# %%
# Size against accuracy.

sizes = [
    sum(p.numel() for p in m.parameters()) for m in (model, small.model, small.model)
]
figure, axis = plt.subplots(figsize=(5, 3.4), layout="constrained")
for name, size, share in zip(
    ("dense", "compressed", "fine-tuned"), sizes, (before, compressed, tuned)
):
    axis.plot(size, 100 * share, "o", label=name)
axis.set(xlabel="parameters", ylabel="% correct", xlim=(0, None))
axis.legend(loc="center")
plt.show()
