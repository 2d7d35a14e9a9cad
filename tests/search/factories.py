"""Searches to test, and plain answers to test them with.

`CASES` lists every kind of search for `test_contract.py`. A new search needs one entry there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import torch

from tensorgrow import GreedyOptions, Structure, TensorNetwork, TrainingOptions, baselines, nn
from tensorgrow.baselines.inner_fit import InnerFit
from tensorgrow.data.evaluations import Evaluations
from tensorgrow.network import as_generator
from tensorgrow.objectives import (
    CompressedLeastSquares,
    DenseLeastSquares,
    LossFunction,
    ObservedLeastSquares,
)
from tensorgrow.objectives.compressed import truncate
from tensorgrow.search import (
    AnySearch,
    Context,
    CrossProblem,
    CrossSearch,
    CutBounds,
    EdgePolicy,
    FitProblem,
    FitSearch,
    GradientProblem,
    GradientSearch,
    GreedySearch,
    HeldOutProblem,
    HeldOutSearch,
    Limits,
    Problem,
    Start,
)
from tensorgrow.steps import Record
from tests.oracles import dense, random_network

GROWTH = GreedyOptions(lookahead=1, starts=1, certify=False)


def noisy(shape=(4, 4, 4, 3), seed: int = 0, level: float = 0.3) -> np.ndarray:
    structure = Structure.tensor_ring(shape, 2)
    x = dense(structure, random_network(structure, seed).cores)
    rest = np.random.default_rng(seed).standard_normal(shape)
    return x / np.linalg.norm(x) + level * rest / np.linalg.norm(rest)


def image() -> np.ndarray:
    """A smooth scene with an edge, 16 x 16, as 4^4."""
    u, v = np.meshgrid(np.linspace(-1, 1, 16), np.linspace(-1, 1, 16))
    scene = np.exp(-3 * (u - 0.2) ** 2 - 2 * v**2) + 0.4 * (u + 0.6 * v > 0.3) + 0.2 * np.sin(5 * u * v)
    return scene.reshape((2,) * 8).transpose(0, 4, 1, 5, 2, 6, 3, 7).reshape((4,) * 4)


# -- searches ----------------------------------------------------------------------------------------------


def make_search(x: np.ndarray, options: GreedyOptions, seed: int = 0, **limits: Any) -> GreedySearch:
    split = limits.pop("split_nodes", True)
    edges = limits.pop("edges", "all")
    target = torch.from_numpy(x)
    objective = limits.pop("objective", None) or DenseLeastSquares(target)
    max_error = limits.get("max_error")
    problem = Problem(
        objective,
        options,
        EdgePolicy.parse(edges, x.ndim, options.max_degree),
        Context(as_generator(seed)),
        target=(max_error or 0.0) * objective.norm,
        max_parameters=limits.get("max_parameters"),
        split_nodes=split,
        bounds=CutBounds(target, max_error) if max_error and options.certify else None,
    )
    return GreedySearch(problem, Limits(**limits), Start(dtype=target.dtype))


def make_core_search(options: GreedyOptions, **limits: Any) -> GreedySearch:
    """A field with long modes, searched on its core; `edges` and `split_nodes` are as for `make_search`."""
    u, v, t = np.meshgrid(*(np.linspace(-1, 1, n) for n in (24, 20, 18)), indexing="ij")
    x = np.exp(-4 * (u - 0.5 * t) ** 2 - 3 * (v + 0.3 * t**2) ** 2) + 0.3 * np.sin(2 * u + v * t)
    core, bases, lost = truncate(torch.from_numpy(x), 0.005 * float(np.linalg.norm(x)))
    objective = CompressedLeastSquares(core, bases, math.sqrt(lost))
    return make_search(x, options, objective=objective, **limits)


def make_held_out(
    x: np.ndarray, options: GreedyOptions, seed: int = 0, is_patient: bool = False, **limits: Any
) -> HeldOutSearch:
    """A completion from some of the entries, of which a fifth are held out."""
    rng = np.random.default_rng(seed)
    indices = torch.from_numpy(np.argwhere(rng.random(x.shape) < 0.7))
    values = torch.from_numpy(x)[tuple(indices.T)]
    held_out = torch.from_numpy(rng.random(len(values)) < 0.2)
    ridge = 1e-2 if options.ridge is None else options.ridge
    objective = ObservedLeastSquares(indices, values, x.shape, held_out=held_out, ridge=ridge)
    problem = HeldOutProblem(
        objective,
        options,
        EdgePolicy.parse("all", x.ndim, options.max_degree),
        Context(as_generator(seed)),
        target=(limits.get("max_error") or 0.0) * objective.validation_norm,
        max_parameters=limits.get("max_parameters", objective.num_fitted),
        is_patient=is_patient,
    )
    return HeldOutSearch(problem, Limits(**limits, held_out=True), Start(dtype=values.dtype))


def make_gradient(x: np.ndarray, options: GreedyOptions, seed: int = 0, **limits: Any) -> GradientSearch:
    """The squared error on most entries, and on the others for validation."""
    target = torch.from_numpy(x)
    held_out = torch.from_numpy(np.random.default_rng(seed).random(x.shape) < 0.2)

    def loss(network: TensorNetwork, entries: torch.Tensor) -> torch.Tensor:
        return (network.to_dense() - target)[entries].square().mean()

    objective = LossFunction(
        lambda network: loss(network, ~held_out), x.shape, validation=lambda network: loss(network, held_out)
    )
    max_error = limits.get("max_error")
    problem = GradientProblem(
        objective,
        options,
        TrainingOptions(optimizer="adam", epochs=20, candidate_epochs=4),
        EdgePolicy.parse("all", x.ndim, options.max_degree),
        Context(as_generator(seed)),
        max_parameters=limits.get("max_parameters"),
        target=-math.inf if max_error is None else max_error,
        shortlist=4,
    )
    return GradientSearch(problem, Limits(**limits, held_out=True), Start(dtype=target.dtype))


def make_fit(x: np.ndarray, seed: int = 0, **limits: Any) -> FitSearch:
    objective = DenseLeastSquares(torch.from_numpy(x))
    problem = FitProblem(
        Structure.tensor_ring(x.shape, 2), ((objective, 0.0),), Context(as_generator(seed)), 500, 1e-3
    )
    return FitSearch(problem, Limits(**limits, held_out=True), Start(dtype=torch.float64))


def make_cross(**limits: Any) -> CrossSearch:
    """A noisy tensor as a function, which takes crosses to the end."""
    x = noisy((5, 4, 5, 4), seed=2)
    known = Evaluations(lambda index: x[tuple(index.T)], x.shape)
    problem = CrossProblem(
        known,
        GreedyOptions.for_effort("fast"),
        Context(as_generator(0)),
        limits.get("max_error") or 1e-9,
        limits.get("max_parameters"),
        20,
    )
    return CrossSearch(problem, Limits(**limits, held_out=True))


class _Ready(Exception):
    def __init__(self, search: AnySearch) -> None:
        self.search = search


class _Catch:
    """Ends a run before its first step."""

    def on_start(self, search: AnySearch) -> None:
        raise _Ready(search)

    def on_step(self, search: AnySearch, step: Record) -> bool | None:
        return None

    def on_end(self, search: AnySearch) -> None:
        pass


def search_of(verb: Callable[..., object], *args: Any, **keywords: Any) -> AnySearch:
    """The search that a verb is about to run."""
    try:
        verb(*args, **keywords, callbacks=_Catch(), progress=False)
    except _Ready as ready:
        return ready.search
    raise AssertionError("nothing was to be run")


def grow_model(**limits: Any) -> AnySearch:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 60, 8, generator=generator)
    layer = nn.TNLinear(8, 8, in_dims=(2, 4), out_dims=(4, 2), paired=False, random_state=0)
    return search_of(
        nn.grow,
        torch.nn.Sequential(layer),
        (x[:40], y[:40]),
        (x[40:], y[40:]),
        loss=torch.nn.functional.mse_loss,
        training=TrainingOptions(optimizer="adam", epochs=3, candidate_epochs=1, patient_steps=0),
        batch_size=20,
        random_state=1,
        **limits,
    )


def explore(**limits: Any) -> AnySearch:
    return search_of(baselines.tnls, SMALL, max_rank=2, samples=3, iterations=2, random_state=0, **limits)


def raise_ranks(**limits: Any) -> AnySearch:
    x = noisy()
    mask = np.random.default_rng(1).random(x.shape) < 0.8
    return search_of(baselines.tr_als, x, mask, ranks=(1, 2, 3), random_state=0, **limits)


# -- every kind of search, for the contract ----------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A search that ends by itself within a second.

    Attributes
    ----------
    make
        Makes it anew from limits, each time with the same random numbers.
    work
        Class and name of a method that every move calls often, to interrupt the search in.
    limits
        What it is made with when nothing else matters.
    budget
        Parameters that it exceeds unless it is told not to; None where it cannot be told.
    grows
        Whether it makes steps after its start.
    undoes
        Whether a move that is interrupted is undone, to be made again; otherwise half of it is kept.
    packs
        Whether the search can be kept in a file.
    """

    make: Callable[..., AnySearch]
    work: tuple[type, str]
    limits: dict[str, Any] = field(default_factory=dict)
    budget: int | None = None
    grows: bool = True
    undoes: bool = True
    packs: bool = True

    def __call__(self, **limits: Any) -> AnySearch:
        return self.make(**(limits or self.limits))


def _greedy(options: GreedyOptions, **limits: Any) -> Case:
    return Case(
        lambda **others: make_search(SMALL, options, **others),
        (DenseLeastSquares, "sweep"),
        limits,
        budget=30,
    )


SMALL = noisy((3, 3, 3, 2), level=0.1)
_COMPLETION = GreedyOptions.for_completion("fast")

CASES: dict[str, Case] = {
    "greedy": _greedy(GreedyOptions(starts=2), max_error=0.3),
    "greedy: paper": _greedy(GreedyOptions.paper().replace(sweeps=20), max_error=0.3),
    "greedy: regrow": _greedy(GreedyOptions(starts=1, regrow_cycles=3), max_parameters=60),
    "greedy: core": Case(
        lambda **limits: make_core_search(GreedyOptions(starts=2, certify=False), **limits),
        (CompressedLeastSquares, "sweep"),
        {"max_error": 0.1},
        budget=100,
    ),
    "held out": Case(
        lambda **limits: make_held_out(noisy(level=0.02), _COMPLETION, **limits),
        (ObservedLeastSquares, "sweep"),
        budget=40,
    ),
    "held out: two starts within a budget": Case(
        lambda **limits: make_held_out(
            SMALL,
            GreedyOptions.for_completion("balanced").replace(
                regrow_cycles=1, ridge=1e-4, sweeps=3, lookahead_sweeps=2
            ),
            **limits,
        ),
        (ObservedLeastSquares, "sweep"),
        {"max_parameters": 40},
        budget=30,
    ),
    "gradient": Case(
        lambda **limits: make_gradient(SMALL, GreedyOptions.for_learning("balanced"), **limits),
        (LossFunction, "loss"),
        {"max_parameters": 60},
        budget=40,
    ),
    "fit": Case(
        lambda **limits: make_fit(SMALL, **limits), (DenseLeastSquares, "sweep"), grows=False, undoes=False
    ),
    "cross": Case(make_cross, (Evaluations, "at"), budget=100),
    "grown model": Case(grow_model, (nn.TNLinear, "forward"), {"max_parameters": 50}, budget=40),
    "exploration": Case(explore, (InnerFit, "__call__"), packs=False),
    "rising ranks": Case(raise_ranks, (ObservedLeastSquares, "sweep"), packs=False),
}


# -- plain answers -----------------------------------------------------------------------------------------


def cost(structure: Structure, i: int, j: int) -> int:
    """Parameters that one more rank adds, from the core shapes."""
    total = 0
    for a, b in ((i, j), (j, i)):
        others = [structure.rank(a, k) for k in range(structure.num_nodes) if k not in (a, b)]
        total += structure.leg_dim(a) * math.prod(others)
    return total


def unsaturated(structure: Structure) -> list[tuple[int, int]]:
    edges = []
    for i, j in combinations(range(structure.num_nodes), 2):
        ends = []
        for a, b in ((i, j), (j, i)):
            others = [structure.rank(a, k) for k in range(structure.num_nodes) if k not in (a, b)]
            ends.append(structure.leg_dim(a) * math.prod(others))
        if structure.rank(i, j) < min(ends):
            edges.append((i, j))
    return edges


def true_error(x: np.ndarray, network: TensorNetwork) -> float:
    return float(np.linalg.norm(x - dense(network.structure, network.cores)) / np.linalg.norm(x))
