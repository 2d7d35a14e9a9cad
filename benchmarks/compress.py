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
"""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from typing import Any

from _common import (
    FIGURES,
    ROOT,
    Case,
    Results,
    Row,
    data_folder,
    make_parser,
    open_results,
    print_table,
    pyplot,
    run_cases,
    stopwatch,
)

# isort: split
import torch
from torch import nn

import tensorgrow as tg
from tensorgrow.experiments.mnist import read_idx

SCRATCH = ROOT / ".bench"
HELD_OUT = 5_000
CALIBRATION = 1_000
TUNING = {"epochs": 1, "rate": 1e-3}
# Width, hidden layers, training images, epochs, highest learning rate.
MODELS = {"mnist": (1024, 2, 55_000, 3, 1e-3), "large": (2048, 3, 30_000, 2, 5e-4)}
RATIOS = {"mnist": (0.015, 0.03, 0.05, 0.1, 0.2), "large": (0.005, 0.01, 0.02, 0.05)}
WAYS = ("svd", "weights", "calibrated svd", "calibrated")
BATCH = 256

Pair = tuple[torch.Tensor, torch.Tensor]


@functools.lru_cache(maxsize=1)
def images(folder: str) -> dict[str, Pair]:
    """Training and test images of 784 numbers, with labels."""
    out = {}
    for name, prefix in (("train", "train"), ("test", "t10k")):
        pixels = (
            torch.tensor(read_idx(Path(folder) / f"{prefix}-images-idx3-ubyte.gz")).float().reshape(-1, 784)
        )
        labels = torch.tensor(read_idx(Path(folder) / f"{prefix}-labels-idx1-ubyte.gz")).long()
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


def train(model: nn.Module, pair: Pair, epochs: int, rate: float) -> None:
    """Adam with one cycle of learning rates."""
    x, y = pair
    optimiser = torch.optim.Adam(model.parameters(), rate)
    steps = epochs * -(-len(x) // BATCH)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(BATCH):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[rows.to(x.device)]), y[rows.to(x.device)]).backward()
            optimiser.step()
            cycle.step()
    model.eval()


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


def trained(name: str, data: dict[str, Pair], device: str) -> nn.Module:
    """The dense model, trained once and kept beside the results."""
    width, hidden, _, epochs, rate = MODELS[name]
    model = mlp(width, hidden).to(device)
    path = SCRATCH / f"compress-{name}.pt"
    if path.exists():
        model.load_state_dict(torch.load(path, map_location=device, weights_only=True))
    else:
        train(model, training_images(name, data), epochs, rate)
        SCRATCH.mkdir(exist_ok=True)
        torch.save(model.state_dict(), path)
    return model.eval()


def run(params: Row) -> Row:
    """One model, one way, one size; or the dense model."""
    device = params["device"]
    data = {k: (x.to(device), y.to(device)) for k, (x, y) in images(params["folder"]).items()}
    model = trained(params["model"], data, device)
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
            calibration=data["train"][0][:CALIBRATION] if "calibrated" in params["way"] else None,
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
    train(result.model, training_images(params["model"], data), **params["tuning"])
    row["tuned"] = quality(result.model, data["test"])
    return row


def line(row: Row) -> str:
    """What is printed when a case ends."""
    shown = " -> ".join(f"{row[k]['accuracy']:.2%}" for k in ("plain", "tuned") if k in row)
    kinds = ", ".join(r["kind"] for r in row.get("layers", ()))
    return f"{row['parameters']:,} parameters, {shown} {kinds}"


def figure(rows: list[Row], path: Path) -> None:
    """Accuracy against size, as compressed and after fine-tuning."""
    plt = pyplot()
    if plt is None:
        return
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
    fig.savefig(path, dpi=130)


def report(results: Results, path: Path) -> None:
    """Table and figure."""
    table: list[Row] = []
    rows = results.rows("compress/")
    for name in MODELS:
        mine = [r for r in rows if r["params"]["model"] == name]
        for size in sorted({r["params"]["ratio"] for r in mine}, reverse=True):
            for way in ("dense", *WAYS):
                for r in mine:
                    if (r["params"]["ratio"], r["params"]["way"]) == (size, way):
                        forms = ", ".join(x["kind"] for x in r.get("layers", ()))
                        table.append(
                            {
                                "model": name,
                                "way": way,
                                "parameters": r["parameters"],
                                "accuracy %": 100 * r["plain"]["accuracy"],
                                "fine-tuned %": 100 * r["tuned"]["accuracy"] if "tuned" in r else None,
                                "forms": forms,
                            }
                        )
    results.summarise({"table": table})
    if table:
        print_table(list(table[0]), [list(r.values()) for r in table])
        figure(rows, path)


def arguments() -> argparse.Namespace:
    """Command line."""
    parser = make_parser(__doc__, "compress", tuple(MODELS))
    parser.add_argument("--data", help="folder that holds mnist/")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--max-seconds", type=float, default=60.0, help="for the networks of one model")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="ways to compress")
    parser.add_argument("--ratios", type=float, nargs="+", help="shares of the parameters")
    parser.add_argument("--figure", type=Path, default=FIGURES / "compress.png")
    parser.add_argument("--summary", action="store_true", help="run nothing: report what there is")
    return parser.parse_args()


def main() -> None:
    """Run what is not done yet and report."""
    args = arguments()
    results = open_results(args, [f"compress/{name}" for name in args.only])
    folder = None if args.summary else str(data_folder(args.data) / "mnist")

    def case(name: str, way: str, ratio: float) -> Case:
        params: dict[str, Any] = {"model": name, "way": way, "ratio": ratio, "device": args.device}
        if way != "dense":
            params["tuning"] = TUNING
        if way in ("weights", "calibrated"):
            params["max_seconds"] = args.max_seconds
        return Case(f"compress/{name}/{ratio}/{way}", params)

    cases = []
    for name in args.only:
        cases.append(case(name, "dense", 1.0))
        cases += [case(name, way, ratio) for ratio in args.ratios or RATIOS[name] for way in args.ways]
    if not args.summary:
        run_cases(results, cases, lambda params: run({**params, "folder": folder}), report=line)
    report(results, args.figure)


if __name__ == "__main__":
    main()
