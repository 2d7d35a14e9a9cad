"""
Compress a CNN
==============

A small convolutional network for handwritten digits. `tensorgrow.nn.compress` replaces
its second convolution and its first fully connected layer, which hold nearly all the
weights, by tensor networks.
"""

# %%
# The digits of scikit-learn, 8 x 8 pixels, and a short training.

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

import tensorgrow as tg

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32)
labels = torch.tensor(digits.target)
order = torch.randperm(len(labels))
seen, unseen = order[:1400], order[1400:]

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(512, 64),
    nn.ReLU(),
    nn.Linear(64, 10),
)


def train(network: nn.Module, epochs: int) -> None:
    """Train by Adam."""
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    for _ in range(epochs):
        for rows in seen[torch.randperm(len(seen))].split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images[rows]), labels[rows]).backward()
            optimizer.step()


@torch.no_grad()
def accuracy(network: nn.Module) -> float:
    """Share of unseen digits that are recognised."""
    return float((network(images[unseen]).argmax(1) == labels[unseen]).float().mean())


train(model, 4)
before = accuracy(model)
print(f"{sum(p.numel() for p in model.parameters()):,} weights, {before:.1%} correct")

# %%
# A seventh of the weights; layers share them so that the sum of their squared errors is
# least. The error that counts is the one on what a layer gives for real digits, so some
# are passed for calibration. The table names the layers that are too small for it.

small = tg.nn.compress(
    model,
    max_ratio=0.15,
    calibration=[images[seen[:300]]],
    max_seconds=2,
    random_state=0,
)
print(small.table())
print(small.model[2])  # a convolution whose kernel is a network
compressed = accuracy(small.model)

# %%
# A little more training recovers most of what was lost.

train(small.model, 2)
tuned = accuracy(small.model)
size = sum(p.numel() for p in small.model.parameters())
print(f"{size:,} weights: {compressed:.1%} at once, {tuned:.1%} after training")
assert tuned > before - 0.03

# %%
# The digits that the small model still gets wrong, of those it has not seen.

with torch.no_grad():
    said = small.model(images[unseen]).argmax(1)
wrong = (said != labels[unseen]).nonzero().ravel()[:6]
figure, axes = plt.subplots(1, 6, figsize=(9, 2), layout="constrained")
for axis, k in zip(axes, wrong.tolist()):
    axis.imshow(images[unseen[k], 0].numpy(), cmap="gray_r")
    axis.set_title(f"{labels[unseen[k]]}, said {said[k]}", fontsize=10)
for axis in axes:
    axis.axis("off")
plt.show()
