"""Size against accuracy of trained models whose linear layers `tensorgrow.nn.compress` replaced.

Models, trained here on MNIST (5,000 training images are held out, and 1,000 of those calibrate):

* mnist: 784-1024-1024-10, 1.9 million parameters;
* large: 784-2048-2048-2048-10, 10 million parameters.

Ways to compress to a share of the parameters:

* svd: truncated SVDs of the weights alone, shared out among the layers by `compress` (no networks);
* weights: `compress` without data;
* calibrated svd, calibrated: the same two with calibration data.

Each is measured as it is and after one epoch of fine-tuning on the images the model was trained with.
Accuracy is that of the 10,000 test images, which choose nothing.

The parts cnn and digits are convolutional networks; see `benchmarks/convolutions.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

import tensorgrow as tg
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.figures import pyplot, save_figure
from tensorgrow.experiments.harness import Case, Results, Row, stopwatch
from tensorgrow.experiments.mnist import read_idx

from . import convolutions
from .benchmark import DEVICE, Benchmark, BenchmarkSettings, Option

__all__ = ["BENCHMARK"]

HELD_OUT = 5_000
TUNING = {"epochs": 1, "rate": 1e-3}
# Width, hidden layers, training images, epochs, highest learning rate.
MODELS = {"mnist": (1024, 2, 55_000, 3, 1e-3), "large": (2048, 3, 30_000, 2, 5e-4)}
RATIOS = {"mnist": (0.015, 0.03, 0.05, 0.1, 0.2), "large": (0.005, 0.01, 0.02, 0.05)}
WAYS = ("svd", "weights", "calibrated svd", "calibrated")
BATCH = 256

Pair = tuple[torch.Tensor, torch.Tensor]


@functools.lru_cache(maxsize=1)
def load(folder: Path) -> dict[str, Pair]:
    """Training and test images of 784 numbers, with labels."""
    out = {}
    for name, prefix in (("train", "train"), ("test", "t10k")):
        pixels = torch.tensor(read_idx(folder / f"{prefix}-images-idx3-ubyte.gz")).float().reshape(-1, 784)
        labels = torch.tensor(read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz")).long()
        out[name] = ((pixels / 255 - 0.1307) / 0.3081, labels)
    return out


def mlp(width: int, hidden: int) -> nn.Sequential:
    """Linear layers with ReLU and dropout between."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    before = 784
    for _ in range(hidden):
        layers += [nn.Linear(before, width), nn.ReLU(), nn.Dropout(0.2)]
        before = width
    return nn.Sequential(*layers, nn.Linear(before, 10))


@torch.no_grad()
def quality(model: nn.Module, pair: Pair) -> Row:
    """Share of images that are classified correctly, and the cross-entropy."""
    out = torch.cat([model(x) for x in pair[0].split(1000)])
    return {
        "accuracy": float((out.argmax(1) == pair[1]).float().mean()),
        "loss": float(nn.functional.cross_entropy(out, pair[1])),
    }


def training_images(name: str, data: dict[str, Pair]) -> Pair:
    """What a model is trained with."""
    x, y = data["train"]
    last = HELD_OUT + MODELS[name][2]
    return x[HELD_OUT:last], y[HELD_OUT:last]


def dense_model(name: str, data: dict[str, Pair], device: str, scratch: Path) -> nn.Module:
    """The dense model, trained once and stored."""
    width, hidden, _, epochs, rate = MODELS[name]
    model = mlp(width, hidden).to(device)
    path = scratch / f"compress-{name}.pt"
    if path.exists():
        model.load_state_dict(torch.load(path, map_location=device, weights_only=True))
    else:
        convolutions.train(model, training_images(name, data), epochs, BATCH, rate)
        scratch.mkdir(exist_ok=True)
        torch.save(model.state_dict(), path)
    return model.eval()


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """One model, one way, one size; or the dense model."""
    params = case.params
    if params["model"] in convolutions.NETS:
        return convolutions.work(case, settings)
    device = params["device"]
    data = {k: (x.to(device), y.to(device)) for k, (x, y) in load(settings.folder("mnist")).items()}
    model = dense_model(params["model"], data, device, settings.scratch)
    if params["way"] == "dense":
        return {
            "parameters": sum(p.numel() for p in model.parameters()),
            "plain": quality(model, data["test"]),
        }
    torch.manual_seed(0)
    with stopwatch() as watch:
        result = tg.nn.compress(
            model,
            max_ratio=params["ratio"],
            calibration=data["train"][0][:1_000] if "calibrated" in params["way"] else None,
            max_seconds=0.0 if "svd" in params["way"] else params["max_seconds"],
            progress=False,
        )
    row: Row = {
        "parameters": result.num_parameters,
        "seconds": watch.wall,
        "cpu_seconds": watch.cpu,
        "layers": [
            {
                "kind": r.kind,
                "parameters": r.parameters_after,
                "error": r.relative_error,
                "output_error": r.weighted_error,
                "latency": [r.latency_before, r.latency_after],
                "bytes": [r.bytes_before, r.bytes_after],
            }
            for r in result.layers
        ],
        "latency": [result.latency_before, result.latency_after],
        "plain": quality(result.model, data["test"]),
    }
    images = training_images(params["model"], data)
    convolutions.train(result.model, images, batch=BATCH, **params["tuning"])
    row["tuned"] = quality(result.model, data["test"])
    return row


def draw(results: Results, settings: BenchmarkSettings) -> list[Path]:
    """Accuracy against size, as compressed and after fine-tuning."""
    plt = pyplot()
    rows = results.rows("compress/")
    if not rows:
        return []
    names = [n for n in MODELS if any(r["params"]["model"] == n for r in rows)]
    fig, axes = plt.subplots(1, len(names), figsize=(5.2 * len(names), 4), squeeze=False)
    colours = dict(zip(WAYS, ("#999999", "#1f77b4", "#ff7f0e", "#d62728")))
    for axis, name in zip(axes[0], names):
        mine = [r for r in rows if r["params"]["model"] == name]
        for way in WAYS:
            found = sorted((r for r in mine if r["params"]["way"] == way), key=lambda r: r["parameters"])
            for kind, style in (("plain", "-o"), ("tuned", "--^")):
                axis.plot(
                    [r["parameters"] for r in found],
                    [100 * (1 - r[kind]["accuracy"]) for r in found],
                    style,
                    color=colours[way],
                    markersize=4,
                    label=way + (", fine-tuned" if kind == "tuned" else ""),
                )
        for r in mine:
            if r["params"]["way"] == "dense":
                axis.axhline(100 * (1 - r["plain"]["accuracy"]), color="black", linewidth=0.8, label="dense")
                axis.set_title(f"{name}: {r['parameters']:,} parameters, dense")
        axis.set(xscale="log", yscale="log", xlabel="parameters, thousands", ylabel="test error, %")
        for side, ticks, unit in (
            (axis.yaxis, (2, 3, 5, 10, 20, 50), 1),
            (axis.xaxis, (10, 30, 100, 300), 1000),
        ):
            side.set_ticks([unit * t for t in ticks], [str(t) for t in ticks])
            side.set_minor_formatter("")
    axes[0][0].legend(fontsize=7, handlelength=3.5)  # long enough to tell dashes
    fig.tight_layout()
    return save_figure(fig, settings.figures / "compress.png", dpi=130)


def beside(rows: Sequence[Row]) -> list[Row]:
    """A line per model and share, a column per way: accuracy, tuned, layers that became networks."""
    by_case = {tuple(r["params"][n] for n in ("model", "ratio", "way")): r for r in rows}
    lines = []
    for model, share in dict.fromkeys(key[:2] for key in by_case):
        mine = {way: row for way in ("dense", *WAYS) if (row := by_case.get((model, share, way)))}
        if "dense" in mine:
            continue
        dense = by_case.get((model, 1.0, "dense"))
        best = {k: max(r[k]["accuracy"] for r in mine.values()) for k in ("plain", "tuned")}
        line: Row = {
            "model": model + (f", {dense['parameters']:,}" if dense else ""),
            "dense %": 100 * dense["plain"]["accuracy"] if dense else None,
            "share": share,
        }
        for way in WAYS:
            line[way] = _accuracies(mine[way], best) if way in mine else None
        lines.append(line)
    return lines


def _accuracies(row: Row, best: Row) -> str:
    shown = []
    for kind in ("plain", "tuned"):
        text = f"{100 * row[kind]['accuracy']:.2f}"
        shown.append(f"**{text}**" if row[kind]["accuracy"] == best[kind] else text)
    networks = sum(x["kind"] not in ("dense", "low rank") for x in row["layers"])
    return f"{shown[0]}, tuned {shown[1]}" + (f" ({networks})" if networks else "")


def report(results: Results) -> Report:
    """Accuracy by size and way."""
    out = Report("Compression of trained models")
    order = {way: k for k, way in enumerate(("dense", *WAYS))}
    rows = results.rows("compress/")
    rows.sort(key=lambda r: _place(r["params"], order))
    table = [
        {
            "model": r["params"]["model"],
            "way": r["params"]["way"],
            "parameters": r["parameters"],
            "accuracy %": 100 * r["plain"]["accuracy"],
            "fine-tuned %": 100 * r["tuned"]["accuracy"] if "tuned" in r else None,
            "forms": ", ".join(x["kind"] for x in r.get("layers", ())),
        }
        for r in rows
    ]
    out.summary = {"table": table}
    out.tabulate_rows("Test accuracy", table)
    out.tabulate_rows("Test accuracy by way", beside(rows))
    convolutions.tabulate(results, out)
    return out


def _place(params: Row, order: dict[str, int]) -> tuple[int, float, int]:
    """By model, from large to small, by way."""
    return list(MODELS).index(params["model"]), -params["ratio"], order[params["way"]]


def cases(settings: BenchmarkSettings) -> list[Case]:
    """The dense model, and every way at every size."""
    cases = []
    for name in settings.parts:
        if name in convolutions.NETS:
            cases += convolutions.cases(settings, name)
            continue
        settings.folder("mnist")  # refused before anything is run
        ratios = settings["ratios"] or RATIOS[name]
        for way, ratio in [("dense", 1.0), *((w, r) for r in ratios for w in settings["ways"])]:
            params: Row = {"model": name, "way": way, "ratio": ratio, "device": settings["device"]}
            if way != "dense":
                params["tuning"] = TUNING
            if way in ("weights", "calibrated"):
                params["max_seconds"] = settings["max_seconds"]
            cases.append(Case(f"compress/{name}/{ratio}/{way}", params))
    return cases


BENCHMARK = Benchmark(
    "compress",
    "accuracy against size of trained models, compressed by nn.compress, truncated SVDs, Tucker-2 and CP",
    cases,
    work,
    report,
    draw,
    parts=(*MODELS, *convolutions.NETS),
    uses=("nn.compression",),
    options=(
        DEVICE,
        Option("max_seconds", 60.0, "for the networks of one model", quick=2.0),
        Option("ways", WAYS, "to compress", choices=WAYS, quick=("svd", "weights")),
        Option("ratios", (), "shares of the parameters", kind=float, quick=(0.05,)),
    ),
)
