"""The paper's MNIST experiment: a 1024 x 1024 layer over 16^5 that grows while it is trained, and trains."""

from __future__ import annotations

import gzip
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ..nn import TNLinear, grow
from ..solvers import TrainingOptions
from ..structure import Structure
from .base import Experiment, Report, Settings
from .runner import Case, Results, Row, pyplot

__all__ = ["EXPERIMENT", "accuracy", "model_around", "read_idx", "split", "train_layer"]

DIGITS = (4,) * 5
HELD_OUT = 5_000
BATCH, RATE = 256, 1e-3
TRAIN_EPOCHS = 4
# Parameters of the whole model and test accuracy.
PAPER = {"greedy": {12_266: 0.9846, 15_050: 0.9874}, "tt": {14_602: 0.9846}}
RANKS, QUICK_RANKS = (2, 3, 4, 5, 6, 7, 8), (2,)

Pair = tuple[torch.Tensor, torch.Tensor]


def cases(settings: Settings) -> list[Case]:
    """Growth to the paper's size, and tensor trains of several ranks."""
    settings.folder("mnist")  # refused before anything is run
    common: Row = {"seed": 0}
    if settings.quick:
        common |= {"images": 4_000, "epochs": 3, "candidate_epochs": 1, "max_parameters": 11_700}
    else:
        common |= {"images": 55_000, "epochs": 50, "candidate_epochs": 5, "max_parameters": 15_050}
    ranks = QUICK_RANKS if settings.quick else RANKS
    # A grown model has been trained after every growth; a train from scratch gets more epochs in one go.
    longer = {"epochs": TRAIN_EPOCHS * common["epochs"]}
    return [
        Case("greedy", {**common, "method": "greedy"}),
        *(Case(f"tt/rank{r}", {**common, **longer, "method": "tt", "rank": r}) for r in ranks),
    ]


def work(params: Row, settings: Settings) -> Row:
    """One growth, or one tensor train trained from scratch."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(params["seed"])
    train, validation, test = split(
        settings.folder("mnist"), seed=params["seed"], images=params["images"], device=device
    )
    model = model_around(train_layer(params.get("rank", 1), params["seed"])).to(device)
    options = TrainingOptions(
        optimizer="adam",
        learning_rate=RATE,
        epochs=params["epochs"],
        candidate_epochs=params["candidate_epochs"],
        patience=params["epochs"],
    )
    grows = params["method"] == "greedy"
    watcher = Watcher(test)
    result = grow(
        model,
        train,
        validation,
        max_parameters=params["max_parameters"] if grows else None,
        max_steps=None if grows else 0,
        patience=None,
        training=options,
        batch_size=BATCH,
        random_state=params["seed"],
        callbacks=watcher,
        progress=False,
    )
    size = sum(p.numel() for p in result.model.parameters())
    right = accuracy(result.model, test)
    return {
        "size": size,
        "error": 1.0 - right,
        "accuracy": right,
        "validation": result.history[-1].validation,
        "seconds": result.info["seconds"],
        "points": watcher.points,
    }


class Watcher:
    """Notes size and test accuracy after every step; the test images choose nothing."""

    def __init__(self, test: Pair) -> None:
        self.test = test
        self.points: list[list[float]] = []

    def on_start(self, run: Any) -> None:
        """Nothing to do."""

    def on_step(self, run: Any, step: Any) -> None:
        """Note a point."""
        self.points.append([step.num_parameters, accuracy(run.model, self.test), step.seconds])

    def on_end(self, run: Any) -> None:
        """Nothing to do."""


# -- data and models -----------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def load(folder: Path) -> tuple[Pair, Pair]:
    """Images of 32x32 numbers and labels, for training and test."""
    pairs = []
    for prefix in ("train", "t10k"):
        pixels = torch.tensor(read_idx(folder / f"{prefix}-images-idx3-ubyte.gz"))
        x = (pixels[:, None].float() / 255 - 0.1307) / 0.3081
        x = nn.functional.interpolate(x, size=(32, 32), mode="bilinear", align_corners=False)
        labels = torch.tensor(read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz")).long()
        pairs.append((x.reshape(len(x), -1), labels))
    return pairs[0], pairs[1]


def read_idx(path: Path) -> np.ndarray:
    """The array in a compressed idx file."""
    with gzip.open(path) as file:
        raw = file.read()
    shape = [int.from_bytes(raw[4 + 4 * k : 8 + 4 * k], "big") for k in range(raw[3])]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


def split(folder: Path, *, seed: int, images: int, device: str) -> tuple[Pair, Pair, Pair]:
    """Training, held-out and test images on a device."""
    (x, y), test = load(folder)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    held, rest = order[:HELD_OUT], order[HELD_OUT : HELD_OUT + images]
    first, second, third = (
        (a.to(device), b.to(device)) for a, b in ((x[rest], y[rest]), (x[held], y[held]), test)
    )
    return first, second, third


def train_layer(rank: int, seed: int) -> TNLinear:
    """The hidden layer, 1024x1024 over 16^5, as a tensor train."""
    structure = Structure.tensor_train((16,) * 5, rank)
    return TNLinear(1024, 1024, in_dims=DIGITS, out_dims=DIGITS, structure=structure, random_state=seed)


def model_around(hidden: nn.Module) -> nn.Module:
    """The network around a hidden layer."""
    return nn.Sequential(hidden, nn.ReLU(), nn.Dropout(0.5), nn.Linear(1024, 10))


@torch.no_grad()
def accuracy(model: nn.Module, pair: Pair) -> float:
    """Share of images that are classified correctly."""
    mode = model.training
    model.eval()
    right = 0
    for first in range(0, len(pair[0]), 1000):
        rows = slice(first, first + 1000)
        right += int((model(pair[0][rows]).argmax(1) == pair[1][rows]).sum())
    model.train(mode)
    return right / len(pair[1])


# -- report --------------------------------------------------------------------------------------------


def report(results: Results) -> Report:
    """Accuracies at sizes, beside the paper's."""
    out = Report("MNIST: a 1024 x 1024 layer as a network over 16^5")
    out.say(
        "Paper (parameters of the whole model): Greedy 98.46 % at 12,266 and 98.74 % at 15,050, tensor train "
        "98.46 % at 14,602. Needs a GPU for the full run; quick trains on 4,000 images for 3 epochs and only "
        "shows that it works."
    )
    rows = {k: r for k, r in results.cases.items() if "failed" not in r}
    points = rows.get("greedy", {}).get("points", [])
    lines: list[list[Any]] = [
        ["grown", int(n), f"{100 * a:.2f} %", _paper("greedy", int(n))] for n, a, _ in points
    ]
    trains = sorted((r["size"], r["accuracy"], k) for k, r in rows.items() if k != "greedy")
    lines += [[k, n, f"{100 * a:.2f} %", _paper("tt", n)] for n, a, k in trains]
    out.tabulate("Test accuracy", ["model", "parameters", "accuracy", "paper at or below this size"], lines)
    return out


def _paper(method: str, size: int) -> str | None:
    known = [(n, a) for n, a in PAPER[method].items() if n <= size]
    return None if not known else f"{100 * max(known)[1]:.2f} % ({max(known)[0]:,})"


def draw(results: Results, folder: Path) -> list[Path]:
    """Accuracy against parameters."""
    plt = pyplot()
    rows = {k: r for k, r in results.cases.items() if "failed" not in r}
    if plt is None or not rows:
        return []
    figure, axis = plt.subplots(figsize=(6, 4.5), layout="constrained")
    grown = rows.get("greedy", {}).get("points", [])
    trains = sorted((r["size"], r["accuracy"]) for k, r in rows.items() if k != "greedy")
    axis.plot([p[0] for p in grown], [100 * p[1] for p in grown], "o-", label="grown")
    axis.plot([p[0] for p in trains], [100 * p[1] for p in trains], ".-", label="tensor train")
    for (method, known), mark in zip(PAPER.items(), ("kx", "k+")):
        values = [100 * a for a in known.values()]
        axis.plot(list(known), values, mark, label=f"{'Greedy' if method == 'greedy' else 'TT'}, paper")
    axis.set(xlabel="parameters of the model", ylabel="test accuracy, %")
    axis.legend()
    axis.grid(True, alpha=0.3)
    path = folder / f"{results.path.stem}.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return [path]


EXPERIMENT = Experiment("mnist", "a layer that grows", cases, work, report, draw)
