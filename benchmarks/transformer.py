"""Size against quality of a transformer of characters whose linear layers are networks.

The model: four blocks of width 128, 1.02 million parameters, trained here by 2,000 steps of AdamW on nine
tenths of tinyshakespeare.txt. A twentieth of the text chooses epochs, another one is only measured (loss in
nats, share of characters that are right).

Ways to reach a share of the parameters:

* ours: `nn.compress` with calibration data and the loss: networks and truncated SVDs of all linear layers and
  embeddings, the budget shared out by what the loss feels;
* errors: the same without the loss, by relative errors of each layer's outputs;
* grown: as ours to 70 % of the size; then `nn.grow` by gradients up to it;
* svd: whitened SVDs (inputs' second moment) of the linear layers in the blocks, the same share of each;
* svd_all: the same of embeddings and the head too;
* tt: tensor trains of one rank for the layers in the blocks, by TT-SVD;
* tucker, blocktt: TensorLy-Torch's FactorizedLinear, the same share of each (skipped without it).

Each is measured as it is, and after --tuning-epochs of 250 steps, as many as the dense model had: the same
optimiser, rate, batches, teacher (the dense model, whose outputs have --teacher-share of the loss) and
held-out choice for all of them, without dropout. "dense" is the model itself; "further" is it trained as long
again, with its dropout and no teacher. Rate and dropout were chosen with a smaller model (two blocks of width
64) on another part of the text and another seed, where they were the better ones for truncated SVDs too.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Sequence
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
    without_dropout,
)
from .factorised import tensor_trains, tensorly_layers, whitened_svds

__all__ = ["BENCHMARK"]

OURS = ("ours", "errors", "grown")
TENSORLY = ("tucker", "blocktt")
WHOLE = ("dense", "further")
WAYS = (*OURS, "svd", "svd_all", "tt", *TENSORLY)
# The one of the goal first: a run that is cut short has it.
RATIOS = (0.2, 0.1, 0.4, 0.07)
# Of the dense model when it is trained further.
DENSE_RATE = 1e-3
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
    if way in ("svd", "svd_all"):
        more = ["tokens", "places", "head"] if way == "svd_all" else []
        return whitened_svds(model, names + more, budget, text.training[0][: params["calibration"]])
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
        if way not in WHOLE:
            budget = int(params["ratio"] * count_parameters(model))
            model = smaller(model, text, way, budget, params)
    row: Row = {"parameters": count_parameters(model), "plain": quality(model, text.test)}
    row["seconds"] = watch.wall
    if way == "dense":
        return row
    is_whole = way == "further"
    how = {"epochs": params["tuning_epochs"], "rate": DENSE_RATE if is_whole else params["rate"]}
    how |= {"seed": seed, "teacher": None if is_whole else teacher}
    model = model if is_whole else without_dropout(model)
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


def without_plans(params: Row) -> Row:
    """What a model was trained with, without what follows it."""
    return {n: v for n, v in params.items() if n != "then"}


def follow_up(results: Results, dense: Sequence[Case]) -> list[Case]:
    """Every way at every size, where the dense model of a seed is there; one size after the other."""
    ready = [c for c in dense if c.key in results.finished()]
    more = [Case(f"further/{c.params['seed']}", {**without_plans(c.params), "way": "further"}) for c in ready]
    for number in range(max((len(c.params["then"]["ratios"]) for c in ready), default=0)):
        for case in ready:
            params, then = without_plans(case.params), case.params["then"]
            common, ratio = {**params, "calibration": then["calibration"]}, then["ratios"][number]
            for way in then["ways"]:
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
    for way, ratio in sorted(groups, key=lambda g: (-g[1], (*WHOLE, *WAYS).index(g[0]))):
        rows = groups[way, ratio]
        line: Row = {"share": ratio, "way": way, "runs": len(rows)}
        line["parameters"] = mean(r["parameters"] for r in rows)
        for kind in ("plain", "tuned"):
            found = [r[kind] for r in rows if kind in r]  # the dense model is not tuned
            accuracy = mean(r["accuracy"] for r in found)
            line[f"{kind}: loss"] = mean(r["loss"] for r in found)
            line[f"{kind}: accuracy %"] = None if accuracy is None else 100 * accuracy
        line["seconds"] = mean(r["seconds"] + r.get("tuning_seconds", 0.0) for r in rows)
        table.append(line)
    out.summary = {"table": table, "seeds": seeds}
    out.tabulate_rows("Mean over seeds; a text that chose nothing", table)
    out.tabulate_rows("Ours beside the best other way, trained", beside(table))
    return out


def beside(table: Sequence[Row]) -> list[Row]:
    """Accuracy and loss of ours and of the best of the others at each size, each by its own measure."""
    lines = []
    for share in dict.fromkeys(line["share"] for line in table):
        mine = [line for line in table if line["share"] == share and line["way"] == "ours"]
        others = [line for line in table if line["share"] == share and line["way"] not in (*WHOLE, *OURS)]
        if mine and others:
            line: Row = {"share": share}
            for name, column, best in (
                ("accuracy %", "tuned: accuracy %", max),
                ("loss", "tuned: loss", min),
            ):
                rival = best(others, key=lambda o: float(o[column]))
                line[f"ours, {name}"] = mine[0][column]
                line[f"best other, {name}"] = f"{rival[column]:.4g}, {rival['way']}"
            lines.append(line)
    return lines


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
            if line["way"] == ("dense" if kind == "plain" else "further"):
                axis.axhline(line[f"{kind}: loss"], color="black", linewidth=0.8, label=line["way"])
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
        Option("rate", 3e-3, "of learning after a compression"),
        Option("calibration", 256, "windows that calibrate", quick=8),
        Option("max_seconds", 40.0, "of a search for smaller forms", quick=1.0),
        Option("rounds", 10, "of growth", quick=2),
    ),
)
