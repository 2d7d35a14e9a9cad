"""Size against accuracy of convolutional networks, compressed by `nn.compress` and by what others do.

Two networks of 3x3 convolutions, trained here with three seeds:

* cnn: MNIST, 1-32-64-128-128 channels, 20,000 of the training images;
* digits: the 8x8 digits of scikit-learn, 1-32-64-64 channels, 1,000 images.

The first convolution and the last, linear layer are small and stay as they are for everybody. The others get
a share of the parameters of the whole model, by

* svd: truncated SVDs of the kernels, whitened by the second moments of the patches (`compress` without
  networks, with calibration data);
* tucker: Tucker-2 of the kernels (TensorLy's `partial_tucker` of the channels): three convolutions;
* cp: CP of the kernels (TensorLy's `parafac`): four convolutions, two of them depthwise;
* weights, calibrated: `compress` without and with calibration data.

Layers share the budget by the same rule for all: the least sum of squared relative errors (of the kernel for
Tucker and CP, of the outputs where there is calibration data). Each is measured as it is and after the same
fine-tuning, on images that chose nothing.
"""

from __future__ import annotations

import copy
import functools
import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

import tensorgrow as tg
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Case, Results, Row, stopwatch
from tensorgrow.experiments.mnist import read_idx
from tensorgrow.nn.compression.choices import Choice, allocate, pareto
from tensorgrow.nn.modules import count_parameters, replace_module

from .benchmark import BenchmarkSettings

__all__ = ["NETS", "cases", "tabulate", "work"]

Pair = tuple[torch.Tensor, torch.Tensor]


class Net(NamedTuple):
    """A network and how it is trained."""

    channels: tuple[int, ...]
    epochs: int
    tuning_epochs: int
    batch: int
    ratios: tuple[float, ...]


NETS = {
    "cnn": Net((1, 32, 64, 128, 128), 3, 1, 128, (0.04, 0.08, 0.16, 0.3)),
    "digits": Net((1, 32, 64, 64), 30, 5, 64, (0.06, 0.12, 0.25)),
}
WAYS = ("svd", "tucker", "cp", "weights", "calibrated")
SEEDS = (0, 1, 2)
# The first images of MNIST's training data are for whoever chooses something; the next are trained with.
HELD_OUT, TRAINING = 5_000, 20_000
CALIBRATION = 500


@functools.lru_cache(maxsize=2)
def load(name: str, folder: Path) -> dict[str, Pair]:
    """Images and labels to train with and to test on."""
    if name == "digits":
        from sklearn.datasets import load_digits

        data = load_digits()
        x = torch.tensor(data.images[:, None] / 8 - 1, dtype=torch.float32)
        y = torch.tensor(data.target)
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
        return {k: (x[rows], y[rows]) for k, rows in (("train", order[:1000]), ("test", order[1000:]))}
    out = {}
    rows = {"train": slice(HELD_OUT, HELD_OUT + TRAINING), "test": slice(None)}
    for key, prefix in (("train", "train"), ("test", "t10k")):
        pixels = torch.tensor(read_idx(folder / f"{prefix}-images-idx3-ubyte.gz")[rows[key]]).float()
        labels = torch.tensor(read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz")[rows[key]]).long()
        out[key] = ((pixels[:, None] / 255 - 0.1307) / 0.3081, labels)
    return out


def network(channels: Sequence[int], seed: int) -> nn.Sequential:
    """Convolutions of 3x3 with batch norms, halved in size after every second one, and a linear layer."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for k, (before, after) in enumerate(pairwise(channels)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        if k % 2:
            layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[-1], 10))


def train(model: nn.Module, pair: Pair, epochs: int, batch: int, rate: float = 2e-3) -> None:
    """Adam with one cycle of learning rates."""
    x, y = pair
    optimiser = torch.optim.Adam(model.parameters(), rate)
    steps = epochs * -(-len(x) // batch)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).to(x.device).split(batch):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
            cycle.step()
    model.eval()


@torch.no_grad()
def accuracy(model: nn.Module, pair: Pair) -> float:
    """Share of images that are classified correctly."""
    out = torch.cat([model(x).argmax(1) for x in pair[0].split(500)])
    return float((out == pair[1]).float().mean())


# -- rivals --------------------------------------------------------------------------------------------


def tucker(conv: nn.Conv2d, ranks: tuple[int, int]) -> nn.Sequential:
    """Tucker-2: channels mixed, the kernel, channels mixed."""
    from tensorly.decomposition import partial_tucker

    weight = conv.weight.detach()
    (core, (out, into)), _ = partial_tucker(weight.numpy(), rank=list(ranks), modes=[0, 1], init="svd")
    first = nn.Conv2d(conv.in_channels, ranks[1], 1, bias=False)
    middle = nn.Conv2d(ranks[1], ranks[0], conv.kernel_size, padding=conv.padding, bias=False)
    last = nn.Conv2d(ranks[0], conv.out_channels, 1)
    return _chain(
        conv, (first, torch.tensor(into.T)), (middle, torch.tensor(core)), (last, torch.tensor(out))
    )


def cp(conv: nn.Conv2d, rank: int) -> nn.Sequential:
    """CP: channels mixed, each one filtered along both axes, channels mixed."""
    from tensorly.decomposition import parafac

    weight = conv.weight.detach()
    start = "svd" if rank <= min(weight.shape[:2]) else "random"
    found = parafac(weight.numpy(), rank, n_iter_max=60, init=start, random_state=0, normalize_factors=True)
    out, into, high, wide = (torch.tensor(f) for f in found.factors)
    out = out * torch.tensor(found.weights)
    h, w = conv.kernel_size
    pad_h, pad_w = conv.padding
    return _chain(
        conv,
        (nn.Conv2d(conv.in_channels, rank, 1, bias=False), into.T),
        (nn.Conv2d(rank, rank, (h, 1), padding=(pad_h, 0), groups=rank, bias=False), high.T),
        (nn.Conv2d(rank, rank, (1, w), padding=(0, pad_w), groups=rank, bias=False), wide.T),
        (nn.Conv2d(rank, conv.out_channels, 1), out),
    )


@torch.no_grad()
def _chain(conv: nn.Conv2d, *parts: tuple[nn.Conv2d, torch.Tensor]) -> nn.Sequential:
    for layer, weight in parts:
        layer.weight.copy_(weight.reshape(layer.weight.shape))
    bias = parts[-1][0].bias
    assert bias is not None and conv.bias is not None
    bias.copy_(conv.bias)
    return nn.Sequential(*(layer for layer, _ in parts))


def kernel_of(chain: nn.Sequential, conv: nn.Conv2d) -> torch.Tensor:
    """The kernel of a chain, by what it does to every input channel's impulse."""
    side = conv.kernel_size[0]
    impulse = torch.zeros(conv.in_channels, conv.in_channels, side, side)
    impulse[range(conv.in_channels), range(conv.in_channels), side // 2, side // 2] = 1.0
    with torch.no_grad():
        answer = chain(impulse) - chain(torch.zeros_like(impulse[:1]))
    return answer.transpose(0, 1).flip(2, 3)


Forms = list[tuple[list[Choice], dict[tuple[int, float], nn.Sequential]]]


def rival_forms(model: nn.Module, way: str) -> Forms:
    """Forms of all convolutions but the first, by size, and their modules by size and error."""
    forms: Forms = []
    for conv in _convolutions(model):
        small, size, weight = min(conv.weight.shape[:2]), conv.weight.numel(), conv.weight.detach()
        # Sizes evenly in logarithms; beyond the dense size a form is of no use.
        shares = [small ** (k / 24) / small for k in range(1, 25)]
        if way == "tucker":
            pairs = [(math.ceil(s * conv.out_channels), math.ceil(s * conv.in_channels)) for s in shares]
            made = [tucker(conv, pair) for pair in dict.fromkeys(pairs)]
        else:
            made = [cp(conv, rank) for rank in dict.fromkeys(math.ceil(2 * s * small) for s in shares[::2])]
        found = {}
        for chain in made:
            count = count_parameters(chain) - conv.out_channels
            if count < size:
                error = float((kernel_of(chain, conv) - weight).norm() / weight.norm())
                found[count, error] = chain
        forms.append((pareto([Choice(way, *key) for key in found] + [Choice("dense", size, 0.0)]), found))
    return forms


def _convolutions(model: nn.Module) -> list[nn.Conv2d]:
    return [m for m in model.modules() if isinstance(m, nn.Conv2d)][1:]


def factorised(model: nn.Module, forms: Forms, ratio: float) -> nn.Module:
    """A copy of the model with forms of a rival that fit in a share of its parameters."""
    own = copy.deepcopy(model)
    convs = _convolutions(own)
    room = int(ratio * count_parameters(model)) - count_parameters(model)
    picks = allocate([choices for choices, _ in forms], room + sum(c.weight.numel() for c in convs))
    if picks is None:
        raise ValueError(f"no forms are as small as {ratio}")
    for conv, (choices, found), at in zip(convs, forms, picks):
        choice = choices[at]
        if choice.kind != "dense":
            replace_module(own, conv, copy.deepcopy(found[choice.num_parameters, choice.error]))
    return own


# -- cases ---------------------------------------------------------------------------------------------


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """One network, seed and way at all sizes; or the dense network."""
    params = case.params
    name, device, seed = params["model"], params["device"], params["seed"]
    net = NETS[name]
    folder = settings.folder("mnist") if name == "cnn" else Path()
    data = {k: (x.to(device), y.to(device)) for k, (x, y) in load(name, folder).items()}
    model = network(net.channels, seed).to(device)
    path = settings.scratch / f"compress-{name}-{seed}.pt"
    if path.exists():
        model.load_state_dict(torch.load(path, map_location=device, weights_only=True))
        model.eval()
    else:
        train(model, data["train"], net.epochs, net.batch)
        settings.scratch.mkdir(exist_ok=True)
        torch.save(model.state_dict(), path)
    if params["way"] == "dense":
        return {"sizes": [_measure(model, 1.0, data, net)]}
    model.cpu()
    with stopwatch() as watch:
        forms = rival_forms(model, params["way"]) if params["way"] in ("tucker", "cp") else None
    rows, calibration = [], data["train"][0][:CALIBRATION].cpu()
    for ratio in params["ratios"]:
        torch.manual_seed(seed)
        kinds: list[str] = []
        with stopwatch() as each:
            if forms is not None:
                own = factorised(model, forms, ratio)
            else:
                result = tg.nn.compress(
                    model,
                    max_ratio=ratio,
                    calibration=None if params["way"] == "weights" else calibration,
                    max_seconds=0.0 if params["way"] == "svd" else params["max_seconds"],
                    measure=False,
                    progress=False,
                )
                own, kinds = result.model, [f"{r.kind} {r.layout}" for r in result.layers]
        row = _measure(own.to(device), ratio, data, net)
        rows.append({**row, "cpu_seconds": each.cpu + watch.cpu, "forms": kinds})
    return {"sizes": rows}


def _measure(model: nn.Module, ratio: float, data: dict[str, Pair], net: Net) -> Row:
    row = {"ratio": ratio, "parameters": count_parameters(model), "plain": accuracy(model, data["test"])}
    train(model, data["train"], net.tuning_epochs, net.batch)
    return {**row, "tuned": accuracy(model, data["test"])}


def cases(settings: BenchmarkSettings, name: str) -> list[Case]:
    """The dense network and every way at every size, for every seed."""
    if name == "cnn":
        settings.folder("mnist")  # refused before anything is run
    found = []
    ratios = NETS[name].ratios[-1:] if settings.quick else NETS[name].ratios
    for seed in SEEDS[:1] if settings.quick else SEEDS:
        for way in ("dense", *WAYS):
            params: Row = {"model": name, "way": way, "seed": seed, "device": settings["device"]}
            if way != "dense":
                params["ratios"] = ratios
            if way in ("weights", "calibrated"):
                params["max_seconds"] = settings["max_seconds"]
            found.append(Case(f"networks/{name}/{way}/seed{seed}", params))
    return found


def tabulate(results: Results, out: Report) -> None:
    """Means over the seeds, and the least and largest."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for case in results.rows("networks/"):
        p = case["params"]
        for row in case["sizes"]:
            key = (p["model"], -row["ratio"], ("dense", *WAYS).index(p["way"]), p["way"])
            groups.setdefault(key, []).append(row)
    table = []
    for (name, ratio, _, way), rows in sorted(groups.items()):
        line: Row = {"model": name, "share": -ratio, "way": way, "seeds": len(rows)}
        line["parameters"] = round(statistics.fmean(r["parameters"] for r in rows))
        for kind, title in (("plain", "accuracy %"), ("tuned", "fine-tuned %")):
            values = [100 * r[kind] for r in rows]
            line[title] = statistics.fmean(values)
            line[f"{title}, least"] = min(values)
        table.append(line)
    out.summary = {**(out.summary or {}), "networks": table}
    out.tabulate_rows("Convolutional networks: test accuracy", table)
