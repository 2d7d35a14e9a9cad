"""A transformer of characters adapted to another text: grown networks beside low-rank updates (LoRA).

The base is the model of `transformer`, trained on the text in lower case (2,000 steps). It is then adapted to
the text as it is printed, where names of speakers and beginnings of lines are in capitals, with all its own
parameters frozen but for the adapters:

* grown: `nn.adapt` with a network of two legs beside every layer, inputs and outputs, and `nn.grow` by
  gradients to a budget, then `nn.fine_tune`;
* digits: the same with legs of digits near 16, whose graphs are learned;
* lora: ``W + B A`` beside every linear layer, `B` zero at the start, one rank for all layers.

Both train by AdamW for the same number of steps and batches; the held-out twentieth of the text chooses the
epoch, and another one is only measured. The rate was chosen for LoRA among 0.001, 0.003 and 0.01, on the test
text of another seed; it was the better of 0.003 and 0.01 for grown networks too. Three rounds of growth
were better than two or ten with a smaller model and another change of the text. Budgets are those of LoRA at
ranks 1, 2 and 4. "none" is the base on the new text, "full" all of its parameters trained as long.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from torch import nn

import tensorgrow as tg
from tensorgrow.experiments.experiment import Report
from tensorgrow.experiments.harness import Case, Results, Row, mean, stopwatch
from tensorgrow.nn.modules import replace_module

from .benchmark import DEVICE, Benchmark, BenchmarkSettings, Option
from .characters import (
    WINDOWS,
    Text,
    grow_and_tune,
    linear_names,
    make_text,
    quality,
    read_text,
    train_base,
    tune,
    use_fast_products,
)

__all__ = ["BENCHMARK"]

OURS = ("grown", "digits")
WAYS = ("none", "full", "lora", *OURS)
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


def trained(model: nn.Module) -> int:
    """Parameters that are not frozen."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def grow(model: nn.Module, text: Text, budget: int, params: Row) -> nn.Module:
    """Networks beside the layers, grown to a budget."""
    names = linear_names(model)
    layers = {n: model.get_submodule(n) for n in names}
    whole = {n: ((m.in_features,), (m.out_features,)) for n, m in layers.items()}
    adapted = tg.nn.adapt(
        model,
        layers=names,
        max_parameters=budget,
        dims=whole if params["way"] == "grown" else None,
        random_state=params["seed"],
    )
    how = {n: params[n] for n in ("rounds", "epochs", "rate", "seed")}
    return grow_and_tune(adapted, text, budget - trained(adapted), **how)


def work(case: Case, settings: BenchmarkSettings) -> Row:
    """One seed, one way, one budget."""
    params = case.params
    use_fast_products(params["device"])
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
        elif params["way"] in OURS:
            model = grow(base, text, budget, params)
        else:
            model = lora(base, params["rank"]) if params["way"] == "lora" else base
            model = tune(
                model, text, epochs=epochs, rate=params["rate"] if params["rank"] else FULL_RATE, seed=seed
            )
    row: Row = {"parameters": trained(model) if params["rank"] else 0, "seconds": watch.wall}
    row |= quality(model, text.test)
    if params["way"] in OURS:
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
    then = {n: settings[n] for n in ("ways", "ranks", "rounds")}
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
        own = {"rounds": then["rounds"]}
        more.append(Case(f"full/{params['seed']}", {**params, "way": "full"}))
        for way in then["ways"]:
            for rank in then["ranks"]:
                changed = {"way": way, "rank": rank, **(own if way in OURS else {})}
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
    wins = {}
    for way in OURS:
        theirs = {(r["params"]["seed"], r["params"]["rank"]): r for r in results.rows("lora/")}
        ours = {(r["params"]["seed"], r["params"]["rank"]): r for r in results.rows(f"{way}/")}
        both = sorted(set(ours) & set(theirs))
        wins[way] = [sum(ours[k]["loss"] < theirs[k]["loss"] for k in both), len(both)]
    out.summary = {"table": table, "runs better than LoRA, of": wins}
    out.tabulate_rows("Mean over seeds; a text that chose nothing", table)
    for way, (better, count) in wins.items():
        out.say(f"{way}: a smaller loss than LoRA in {better} of {count} runs.")
    return out


BENCHMARK = Benchmark(
    "adapters",
    "a transformer of characters adapted to another text: grown networks beside LoRA at equal parameters",
    cases,
    work,
    report,
    follow_up=follow_up,
    uses=("nn",),
    options=(
        DEVICE,
        Option("seeds", 3, "runs", quick=1),
        Option("seed_from", 0, "the first seed"),
        Option("ways", WAYS[2:], "to adapt", choices=WAYS[2:]),
        Option("ranks", (1, 2, 4), "of LoRA, whose sizes are the budgets", quick=(1,)),
        Option("windows", WINDOWS, "of 128 characters in an epoch", quick=256),
        Option("base_epochs", 8, "of the base", quick=1),
        Option("epochs", 2, "of every way", quick=2),
        Option("rounds", 3, "of growth", quick=2),
        Option("rate", 1e-2, "of AdamW at the start"),
    ),
)
