"""A transformer of characters adapted to another text: grown networks beside low-rank updates (LoRA).

The base is the model of `transformer`, trained on the text in lower case (2,000 steps). It is then adapted to
the text as it is printed, where names of speakers and beginnings of lines are in capitals, with all its own
parameters frozen but for the adapters:

* grown: `nn.adapt` and `nn.grow` by gradients to a budget, then `nn.fine_tune`;
* lora: ``W + B A`` beside every linear layer, `B` zero at the start, one rank for all layers.

Both train by AdamW for the same number of steps and batches; the held-out twentieth of the text chooses the
epoch, and another one is only measured. Budgets are those of LoRA at ranks 1, 2, 4 and 8. "none" is the base
on the new text, "full" all of its parameters trained as long.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Sequence

import torch
from torch import nn

import tensorgrow as tg
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Case, Results, Row, mean, stopwatch
from tensorgrow.nn.modules import replace_module
from tensorgrow.solvers import TrainingOptions

from .benchmark import DEVICE, Benchmark, BenchmarkSettings, Option
from .characters import BATCH, WINDOWS, Text, character_loss, make_text, quality, read_text, train_base, tune

__all__ = ["BENCHMARK"]

LEGS = ("separate", "paired", "matrix")
WAYS = ("none", "full", "lora", "grown")
# Of all parameters; as in `transformer`.
FULL_RATE = 1e-3


class LowRank(nn.Module):
    """A frozen linear layer and an update of low rank (Hu et al., 2021), scaled by one."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        kind = {"device": base.weight.device, "dtype": base.weight.dtype}
        self.down = nn.Parameter(torch.empty(rank, base.in_features, **kind))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank, **kind))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.base(x) + x @ self.down.T @ self.up.T
        return out


def lora(model: nn.Module, rank: int) -> nn.Module:
    """A frozen copy with an update beside every linear layer but the head."""
    own = copy.deepcopy(model).requires_grad_(False)
    for name in linear_names(own):
        layer = own.get_submodule(name)
        assert isinstance(layer, nn.Linear)
        own = replace_module(own, layer, LowRank(layer, rank))
    return own


def linear_names(model: nn.Module) -> list[str]:
    """Layers that are adapted: all linear ones but the head."""
    return [n for n, m in model.named_modules() if isinstance(m, nn.Linear) and n != "head"]


def trained(model: nn.Module) -> int:
    """Parameters that are not frozen."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def grow(model: nn.Module, text: Text, budget: int, params: Row) -> nn.Module:
    """Growth in short rounds over half of the steps that others have, and training for the rest."""
    names = linear_names(model)
    layers = {n: model.get_submodule(n) for n in names}
    whole = {n: ((m.in_features,), (m.out_features,)) for n, m in layers.items()}
    adapted = tg.nn.adapt(
        model,
        layers=names,
        max_parameters=budget,
        paired=params["legs"] == "paired",
        dims=whole if params["legs"] == "matrix" else None,
        random_state=params["seed"],
    )
    rounds, windows = params["rounds"], params["epochs"] * len(text.training[0]) // 2
    deltas = tg.nn.tn_layers(adapted)
    # A growth costs more the more neighbours an edge has: rounds that would not suffice use what is there.
    cost = (
        statistics.fmean(2 * statistics.fmean(m.structure.dims) for m in deltas.values())
        * params["thickness"]
    )
    count = max(1, math.ceil((budget - trained(adapted)) / (rounds - 1) / cost))
    ranks = -(-count // len(deltas))
    result = tg.nn.grow(
        adapted,
        tuple(part[: windows // rounds] for part in text.training),
        text.validation,
        loss=character_loss,
        max_steps=rounds - 1,
        candidates="gradient",
        edges_per_step=-(-count // ranks),
        training=TrainingOptions(
            optimizer="adamw", learning_rate=params["rate"], epochs=1, clip=1.0, weight_decay=0.01, patience=1
        ),
        options=tg.GreedyOptions(edge_score="per_parameter", rank_increment=ranks, patience=rounds),
        batch_size=BATCH,
        random_state=params["seed"],
        progress=False,
    )
    return tune(result.model, text, epochs=params["epochs"] // 2, rate=params["rate"], seed=params["seed"])


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """One seed, one way, one budget."""
    params = case.params
    seed, device, epochs = params["seed"], params["device"], params["epochs"]
    printed = read_text(settings.folder("text"))
    characters = "".join(sorted(set(printed)))
    path = settings.scratch / f"lower-{seed}-{params['windows']}-{params['base_epochs']}.pt"
    lower = make_text(printed.lower(), characters, seed, params["windows"], device)
    base = train_base(lower, path, epochs=params["base_epochs"], seed=seed, device=device)
    text = make_text(printed, characters, seed + 1, params["windows"], device)
    torch.manual_seed(seed)
    budget = trained(lora(base, params["rank"])) if params["rank"] else 0
    with stopwatch() as watch:
        if params["way"] == "none":
            model = base
        elif params["way"] == "grown":
            model = grow(base, text, budget, params)
        else:
            model = lora(base, params["rank"]) if params["way"] == "lora" else base
            model = tune(
                model, text, epochs=epochs, rate=params["rate"] if params["rank"] else FULL_RATE, seed=seed
            )
    row: Row = {"parameters": trained(model) if params["rank"] else 0, "seconds": watch.wall}
    row |= quality(model, text.test)
    if params["way"] == "grown":
        merged = quality(tg.nn.merge_adapters(model), text.test)
        row["merged_loss"] = merged["loss"]
        row["structures"] = [
            {f"{i}-{j}": r for (i, j), r in m.structure.ranks.items()}
            for m in tg.nn.tn_layers(model).values()
        ]
    return row


# -- cases and report ----------------------------------------------------------------------------------


def cases(settings: BenchmarkSettings) -> list[Case]:
    """The base models on the other text, which the others start from."""
    settings.folder("text")  # refused before anything is run
    shared = {n: settings[n] for n in ("device", "windows", "base_epochs", "epochs", "rate")}
    then = {n: settings[n] for n in ("ways", "ranks", "rounds", "thickness", "legs")}
    first = settings["seed_from"]
    return [
        Case(f"none/{seed}", {"way": "none", "rank": 0, "seed": seed, **shared, "then": then})
        for seed in range(first, first + settings["seeds"])
    ]


def follow_up(results: Results, bases: Sequence[Case]) -> list[Case]:
    """Every way at every budget, where the base of a seed is there."""
    more = []
    for case in bases:
        if case.key not in results.finished():
            continue
        params = dict(case.params)
        then = params.pop("then")
        own = {n: then[n] for n in ("rounds", "thickness", "legs")}
        more.append(Case(f"full/{params['seed']}", {**params, "way": "full"}))
        for way in then["ways"]:
            for rank in then["ranks"]:
                changed = {"way": way, "rank": rank, **(own if way == "grown" else {})}
                more.append(Case(f"{way}/{params['seed']}/{rank}", {**params, **changed}))
    return more


def report(results: Results) -> Report:
    """Loss and accuracy by way and budget."""
    out = Report("A transformer of characters, adapted to another text")
    groups = results.groups("way", "rank")
    table = [
        {
            "budget of LoRA rank": rank,
            "way": way,
            "runs": len(rows),
            "parameters": mean(r["parameters"] for r in rows),
            "loss": mean(r["loss"] for r in rows),
            "accuracy %": 100 * (mean(r["accuracy"] for r in rows) or 0.0),
            "seconds": mean(r["seconds"] for r in rows),
        }
        for (way, rank), rows in sorted(groups.items(), key=lambda g: (g[0][1], WAYS.index(g[0][0])))
    ]
    pairs = [
        (ours["loss"], theirs["loss"])
        for (way, rank), rows in groups.items()
        if way == "grown"
        for ours in rows
        for theirs in groups.get(("lora", rank), [])
        if theirs["params"]["seed"] == ours["params"]["seed"]
    ]
    out.summary = {"table": table, "grown better than lora": [sum(a < b for a, b in pairs), len(pairs)]}
    out.tabulate_rows("Mean over seeds; a text that chose nothing", table)
    out.say(f"Grown networks have the smaller loss in {sum(a < b for a, b in pairs)} of {len(pairs)} pairs.")
    return out


BENCHMARK = Benchmark(
    "adapters",
    "a transformer of characters adapted to another text: grown networks beside LoRA at equal parameters",
    cases,
    work,
    report,
    follow_up=follow_up,
    options=(
        DEVICE,
        Option("seeds", 3, "runs", quick=1),
        Option("seed_from", 0, "the first seed"),
        Option("ways", ("lora", "grown"), "to adapt", choices=("lora", "grown")),
        Option("ranks", (1, 2, 4, 8), "of LoRA, whose sizes are the budgets", quick=(1,)),
        Option("windows", WINDOWS, "of 128 characters in an epoch", quick=256),
        Option("base_epochs", 8, "of the base", quick=1),
        Option("epochs", 4, "of every way", quick=2),
        Option("rounds", 10, "of growth", quick=2),
        Option(
            "thickness", 2.0, "what a growth costs, in those of the first one; sets how many grow together"
        ),
        Option("legs", "separate", "digits of inputs and outputs, or pairs", choices=LEGS),
        Option("rate", 3e-3, "of AdamW at the start"),
    ),
)
