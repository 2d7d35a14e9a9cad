"""Size against quality of a transformer of characters whose linear layers are networks.

The model: four blocks of width 128, 1.02 million parameters, trained here by 2,000 steps of AdamW on nine
tenths of tinyshakespeare.txt. A twentieth of the text chooses epochs, another one is only measured (loss in
nats, share of characters that are right). Embeddings, normalisations and the head stay as they are, and
count.

Ways to reach a share of the parameters:

* ours: `nn.compress` with calibration data and the loss, networks and truncated SVDs;
* errors: the same without the loss, by relative errors of each layer's outputs;
* grown: as ours to 70 % of the size; then `nn.grow` by gradients up to it;
* svd: whitened SVDs (inputs' second moment), the same share of every layer;
* tt: tensor trains of one rank for all layers, by TT-SVD;
* tucker, blocktt: TensorLy-Torch's FactorizedLinear, the same share of every layer (skipped without it).

Each is measured as it is, and after --tuning-epochs of 250 steps: the same optimiser, batches, teacher (the
dense model, whose outputs have --teacher-share of the loss) and held-out choice for all of them, but that
growth itself has no teacher. "dense" is the model itself, and trained further as long.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import torch
from torch import nn

import tensorgrow as tg
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.figures import pyplot, save_figure
from tensorgrow.experiments.harness import Case, Results, Row, mean, stopwatch
from tensorgrow.nn.modules import count_parameters

from .benchmark import DEVICE, Benchmark, BenchmarkSettings, Option
from .characters import (
    WINDOWS,
    Text,
    character_loss,
    grow_and_tune,
    linear_names,
    make_text,
    quality,
    read_text,
    train_base,
    tune,
    use_fast_products,
)
from .factorised import tensor_trains, tensorly_layers, whitened_svds

__all__ = ["BENCHMARK"]

OURS = ("ours", "errors", "grown")
TENSORLY = ("tucker", "blocktt")
WAYS = (*OURS, "svd", "tt", *TENSORLY)
RATIOS = (0.4, 0.2, 0.1, 0.07)
# Share of the size that growth starts from.
START = 0.7


def load(params: Row, settings: BenchmarkSettings) -> tuple[Text, nn.Module]:
    """The text, and the dense model of a seed."""
    whole = read_text(settings.folder("text"))
    characters = "".join(sorted(set(whole)))
    text = make_text(whole, characters, params["seed"], params["windows"], params["device"])
    path = settings.scratch / f"characters-{params['seed']}-{params['windows']}-{params['base_epochs']}.pt"
    kind = {"epochs": params["base_epochs"], "seed": params["seed"], "device": params["device"]}
    return text, train_base(text, path, **kind)


def compress(model: nn.Module, text: Text, budget: int, params: Row) -> tg.nn.CompressResult:
    """By `nn.compress`, on the CPU."""
    rows = params["calibration"]
    x, y = (part[:rows].cpu().split(16) for part in text.training)
    return tg.nn.compress(
        model.cpu(),
        max_parameters=budget,
        layers=linear_names(model),
        calibration=list(zip(x, y)),
        loss=None if params["way"] == "errors" else character_loss,
        max_seconds=params["max_seconds"],
        effort="fast",
        measure=False,
        progress=False,
    )


def smaller(model: nn.Module, text: Text, way: str, budget: int, params: Row) -> nn.Module:
    """The model in a smaller form."""
    device, names = params["device"], linear_names(model)
    if way in OURS:
        size = int(START * budget) if way == "grown" else budget
        return compress(model, text, size, params).model.to(device)
    if way == "svd":
        return whitened_svds(model, names, budget, text.training[0][: params["calibration"]])
    if way == "tt":
        return tensor_trains(model, names, budget)
    return tensorly_layers(model, names, budget, way)


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """One seed, one way, one size."""
    params = case.params
    way, seed = params["way"], params["seed"]
    use_fast_products(params["device"])
    if way in TENSORLY and importlib.util.find_spec("tltorch") is None:
        return {"skipped": "TensorLy-Torch is not installed"}
    text, model = load(params, settings)
    share = params["teacher_share"]
    teacher = tg.nn.Teacher(copy.deepcopy(model), share) if share else None
    torch.manual_seed(seed)
    with stopwatch() as watch:
        if way != "dense":
            budget = int(params["ratio"] * count_parameters(model))
            model = smaller(model, text, way, budget, params)
    row: Row = {"parameters": count_parameters(model), "plain": quality(model, text.test)}
    row["seconds"] = watch.wall
    how = {"epochs": params["tuning_epochs"], "rate": params["rate"], "seed": seed, "teacher": teacher}
    with stopwatch() as watch:
        if way == "grown":
            room = budget - count_parameters(model)
            tuned = grow_and_tune(model, text, room, rounds=params["rounds"], **how)
        else:
            tuned = tune(model, text, **how)
    row |= {"tuned": quality(tuned, text.test), "tuning_seconds": watch.wall}
    row["parameters"] = count_parameters(tuned)
    return row


# -- cases and report ----------------------------------------------------------------------------------


def cases(settings: BenchmarkSettings) -> list[Case]:
    """The dense models, which the others start from."""
    settings.folder("text")  # refused before anything is run
    names = ("device", "windows", "base_epochs", "tuning_epochs", "teacher_share", "rate")
    shared = {n: settings[n] for n in names}
    then = {n: settings[n] for n in ("ways", "ratios", "calibration", "max_seconds", "rounds")}
    first = settings["seed_from"]
    return [
        Case(f"dense/{seed}", {"way": "dense", "seed": seed, "ratio": 1.0, **shared, "then": then})
        for seed in range(first, first + settings["seeds"])
    ]


def follow_up(results: Results, dense: Sequence[Case]) -> list[Case]:
    """Every way at every size, where the dense model of a seed is there."""
    more = []
    for case in dense:
        if case.key in results.finished():
            params = dict(case.params)
            then = params.pop("then")
            common = {**params, "calibration": then["calibration"]}
            for ratio, way in product(then["ratios"], then["ways"]):
                own = {n: then[n] for n in ("max_seconds", *(["rounds"] if way == "grown" else []))}
                changed = {"way": way, "ratio": ratio, **(own if way in OURS else {})}
                more.append(Case(f"{way}/{params['seed']}/{ratio}", {**common, **changed}))
    return more


def report(results: Results) -> Report:
    """Loss and accuracy by way and size, as they are and after training."""
    out = Report("A transformer of characters, smaller")
    groups = results.groups("way", "ratio")
    seeds = sorted({r["params"]["seed"] for r in results.rows()})
    table = []
    for way, ratio in sorted(groups, key=lambda g: (-g[1], ("dense", *WAYS).index(g[0]))):
        rows = groups[way, ratio]
        line: Row = {"share": ratio, "way": way, "runs": len(rows)}
        line["parameters"] = mean(r["parameters"] for r in rows)
        for kind in ("plain", "tuned"):
            line |= {
                f"{kind}: loss": mean(r[kind]["loss"] for r in rows),
                f"{kind}: accuracy %": 100 * (mean(r[kind]["accuracy"] for r in rows) or 0.0),
            }
        line["seconds"] = mean(r["seconds"] + r["tuning_seconds"] for r in rows)
        table.append(line)
    out.summary = {"table": table, "seeds": seeds}
    out.tabulate_rows("Mean over seeds; a text that chose nothing", table)
    return out


def draw(results: Results, settings: BenchmarkSettings) -> list[Path]:
    """Loss against size, as compressed and after fine-tuning."""
    plt = pyplot()
    table = results.document["summary"].get("table", [])
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for axis, kind in zip(axes, ("plain", "tuned")):
        for number, way in enumerate(WAYS):
            mine = [line for line in table if line["way"] == way]
            if not mine or (kind == "plain" and way == "grown"):
                continue
            sizes = [line["parameters"] / 1000 for line in mine]
            style = "o-" if way in OURS else "s--"
            axis.plot(sizes, [line[f"{kind}: loss"] for line in mine], style, color=f"C{number}", label=way)
        for line in table:
            if line["way"] == "dense":
                axis.axhline(line[f"{kind}: loss"], color="black", linewidth=0.8, label="dense")
        title = "as compressed" if kind == "plain" else "after the same training"
        axis.set(
            xscale="log" if len(axis.lines) > 1 else "linear",
            xlabel="parameters, thousands",
            ylabel="test loss, nats",
            title=title,
        )
        axis.legend(fontsize=8)
        axis.grid(True, alpha=0.3)
    return save_figure(figure, settings.figures / "transformer.png", dpi=130)


BENCHMARK = Benchmark(
    "transformer",
    "a transformer of characters: loss and accuracy against size of compressed, tuned and grown models",
    cases,
    work,
    report,
    draw,
    follow_up,
    uses=("nn",),
    options=(
        DEVICE,
        Option("seeds", 3, "runs", quick=1),
        Option("seed_from", 0, "the first seed"),
        Option("ways", WAYS, "to make it smaller", choices=WAYS, quick=("ours", "grown", "svd")),
        Option("ratios", RATIOS, "shares of the parameters", quick=(0.2,)),
        Option("windows", WINDOWS, "of 128 characters in an epoch", quick=256),
        Option("base_epochs", 8, "of the dense model", quick=1),
        Option("tuning_epochs", 8, "after a compression; as many as the dense model had", quick=2),
        Option("teacher_share", 0.5, "of the loss after a compression that is the dense model's; 0: none"),
        Option("rate", 1e-3, "of learning after a compression"),
        Option("calibration", 64, "windows that calibrate", quick=8),
        Option("max_seconds", 12.0, "of a search for smaller forms", quick=1.0),
        Option("rounds", 10, "of growth", quick=2),
    ),
)
