"""Train a small classifier, compress its layers, fine-tune, and grow a layer from rank one for comparison.

The data is made up: points in 256 dimensions, classes by a hidden layer of eight units. It takes about
a minute and writes ``out/compressed.safetensors``.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import tensorgrow as tg
from tensorgrow.solvers import TrainingOptions

EPOCHS = 6


def data(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points and classes; some inputs carry far more power than others."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 256, generator=generator) * torch.logspace(0, -1.5, 256)
    hidden = torch.tanh(x @ torch.randn(256, 8, generator=generator) / 4)
    return x, (hidden @ torch.randn(8, 10, generator=generator)).argmax(1)


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int = EPOCHS) -> None:
    """Adam with a little weight decay."""
    optimizer = torch.optim.Adam(model.parameters(), 2e-3, weight_decay=1e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(128):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Share of points classified correctly."""
    return float((model(x).argmax(1) == y).float().mean())


def main() -> None:
    """Train, compress, fine-tune, grow."""
    torch.manual_seed(0)
    x, y = data(40_000)
    seen, test = (x[:32_000], y[:32_000]), (x[36_000:], y[36_000:])
    dense = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    train(dense, *seen)
    print(f"dense: {sum(p.numel() for p in dense.parameters()):,} parameters, {accuracy(dense, *test):.1%}")

    small = tg.nn.compress(dense, max_ratio=0.2, layers=["0"], max_seconds=15)
    print(f"\n{small.table()}")
    print(f"accuracy {accuracy(small.model, *test):.1%}", end="")
    train(small.model, *seen, epochs=2)  # a TNLinear trains like any other layer
    print(f", after fine-tuning {accuracy(small.model, *test):.1%}")

    folder = Path("out")
    folder.mkdir(exist_ok=True)
    small.save(folder / "compressed.safetensors")
    again = tg.nn.load_compressed(folder / "compressed.safetensors", dense)
    print(f"saved and loaded: {accuracy(again.model, *test):.1%}")

    layer = tg.nn.TNLinear(256, 256, in_dims=(4,) * 4, out_dims=(4,) * 4, random_state=0)
    grown = tg.nn.grow(
        nn.Sequential(layer, nn.ReLU(), nn.Linear(256, 10)),
        seen,
        (x[32_000:36_000], y[32_000:36_000]),
        max_steps=3,
        training=TrainingOptions(optimizer="adam", learning_rate=2e-3, epochs=EPOCHS, candidate_epochs=1),
        random_state=0,
    )
    print(f"\ngrown from rank one: {grown}, {accuracy(grown.model.eval(), *test):.1%}")
    for step in grown.history:
        print(
            f"  {step.num_parameters:,} parameters, edge {step.edge}, validation loss {step.validation:.3f}"
        )


if __name__ == "__main__":
    main()
