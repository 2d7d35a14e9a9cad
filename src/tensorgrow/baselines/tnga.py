"""TNGA: the genetic topology search of Li and Sun (ICML 2020), inside pymoo (extra `baselines`)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Generator, Sequence
from itertools import combinations
from typing import Any, Unpack

import numpy as np

from ..errors import OptionError
from ..results import Result
from ..structure import Structure
from .common import DenseKeywords, Setting, explore, refuse_vectors, require
from .exploration import Goal, Outcome, Proposal, Strategy
from .inner_fit import Fit


def genetic(
    x: Any,
    *,
    rank: int,
    error_weight: float = 50.0,
    population: int = 40,
    generations: int = 30,
    elites: int = 2,
    removed: float = 0.36,
    mutation: float = 0.05,
    density: float = 0.5,
    fit: Fit = "als",
    **common: Unpack[DenseKeywords],
) -> Result:
    """Which edges to have, all at one rank, by a genetic algorithm.

    A genome is the upper triangle of the adjacency matrix over the modes: every edge is there at `rank`, or
    not. Individuals are ranked by ``F = parameters / entries + error_weight * error^2``. In every generation
    the worst share is removed, parents are drawn from the rest with a probability that falls linearly with
    their rank, children take a part of the genome from each parent, bits flip, and the elites survive.

    Parameters
    ----------
    rank
        Of every edge (6 and 7 in the published comparison).
    error_weight
        ``lambda`` of the fitness.
    population, generations
        Individuals, and how often they are replaced. The first population counts as a generation.
    elites
        Individuals that survive unchanged.
    removed
        Share of the population that has no children.
    mutation
        Probability that a bit flips.
    density
        Probability of an edge in the first population.
    fit
        "als", or "adam" as published, or `FitOptions`.

    Notes
    -----
    Structures with more parameters than the data, than `max_parameters`, or than memory can take are not
    fitted: they count as if they explained nothing. So do those that, by their size alone, could have no
    children or lose against a network without edges. A structure that comes back is not fitted again;
    ``info`` holds the number of fits. The published text leaves the exact probabilities open; the defaults
    are ours.
    """
    if population < 2 or generations < 1 or not 0 <= elites < population:
        raise OptionError(
            f"population={population}, generations={generations}, elites={elites}: at least 2 individuals, "
            "1 generation and fewer elites than individuals are needed"
        )
    if not (0 <= removed < 1 and 0 <= mutation <= 1 and 0 <= density <= 1):
        raise OptionError("removed must lie in [0, 1), mutation and density in [0, 1]")
    if rank < 2:
        raise OptionError(f"rank={rank} gives no edges; at least 2 is needed")
    parents = max(1, round((1.0 - removed) * population))

    def strategy(setting: Setting) -> Strategy:
        refuse_vectors("genetic", setting.dims)
        pairs = list(combinations(range(setting.order), 2))
        first = setting.rng.random((population, len(pairs))) < density
        algorithm = _algorithm(first, generations, elites, parents, mutation, setting.rng)
        for _ in range(generations):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of pymoo's own dependencies
                children = algorithm.ask()
            genomes = np.asarray(children.get("X"), dtype=bool)
            structures = [
                Structure(setting.dims, {e: rank for e, there in zip(pairs, bits) if there})
                for bits in genomes
            ]
            fitness = yield from _generation(structures, setting.goal, parents)
            children.set("F", np.array([[f] for f in fitness]))
            for child in children:
                child.evaluated.add("F")
            algorithm.tell(infills=children)

    return explore(x, "genetic", strategy, common, fit=fit, error_weight=error_weight, rank=rank)


def _generation(
    structures: Sequence[Structure], goal: Goal, parents: int
) -> Generator[Sequence[Proposal | Outcome], list[Outcome], list[float]]:
    """Fitness of all, the smallest fitted first.

    Those whose size alone is above the fitness of as many others as may have children are not fitted: they
    would have none, however well they fit.
    """
    least = [goal.fitness(Outcome(s, 0.0)) for s in structures]
    most = [goal.fitness(Outcome(s, 1.0)) for s in structures]
    values: dict[int, float] = {}
    order = sorted(range(len(structures)), key=lambda k: least[k])
    step = math.ceil(len(order) / 8)  # the earlier parts show which of the later cannot have children
    for begin in range(0, len(order), step):
        known = sorted(values.values())
        bound = known[parents - 1] if len(known) >= parents else math.inf
        worth = [k for k in order[begin : begin + step] if least[k] < bound]
        if worth:
            outcomes = yield [Proposal(structures[k]) for k in worth]
            values |= {k: goal.fitness(o) for k, o in zip(worth, outcomes)}
    return [values.get(k, most[k]) for k in range(len(structures))]


def _algorithm(
    first: np.ndarray, generations: int, elites: int, parents: int, mutation: float, rng: np.random.Generator
) -> Any:
    """Set up a pymoo algorithm that starts with some genomes and is driven by `ask` and `tell`."""
    population, bits = first.shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        core = require("pymoo.core.problem", "genetic")
        from pymoo.algorithms.base.genetic import GeneticAlgorithm
        from pymoo.operators.crossover.ux import UniformCrossover
        from pymoo.operators.mutation.bitflip import BitflipMutation

        algorithm = GeneticAlgorithm(
            pop_size=population,
            n_offsprings=population - elites,
            sampling=first,
            selection=_selection(parents),
            crossover=UniformCrossover(),
            mutation=BitflipMutation(prob=1.0, prob_var=mutation),
            survival=_survival(elites),
            eliminate_duplicates=False,
            advance_after_initial_infill=True,
        )
        problem = core.Problem(n_var=bits, n_obj=1, xl=0, xu=1, vtype=bool)
        seed = int(rng.integers(2**31))
        algorithm.setup(problem, seed=seed, termination=("n_gen", generations), verbose=False)
    return algorithm


def _selection(parents: int) -> Any:
    """Draw parents with a probability that falls linearly with their rank; the worst have none."""
    from pymoo.core.selection import Selection

    class ByRank(Selection):  # type: ignore[misc]
        def _do(self, _: Any, pop: Any, n_select: int, n_parents: int, **keywords: Any) -> Any:
            order = np.argsort([i.F[0] for i in pop], kind="stable")
            weights = np.arange(parents, 0, -1.0)
            rng = keywords["random_state"]
            return rng.choice(order[:parents], (n_select, n_parents), p=weights / weights.sum())

    return ByRank()


def _survival(elites: int) -> Any:
    """Keep the best of the parents and all children."""
    from pymoo.core.population import Population
    from pymoo.core.survival import Survival

    class Replacement(Survival):  # type: ignore[misc]
        def _do(self, _: Any, pop: Any, *args: Any, n_survive: int, **keywords: Any) -> Any:
            newest = max(i.get("n_gen") for i in pop)
            parents = sorted((i for i in pop if i.get("n_gen") < newest), key=lambda i: i.F[0])
            survivors = [*parents[:elites], *(i for i in pop if i.get("n_gen") == newest)]
            return Population.create(*sorted(survivors, key=lambda i: i.F[0])[:n_survive])

    return Replacement(filter_infeasible=False)
