"""Ruin and regrow: give up some ranks, grow others."""

from __future__ import annotations

import math
from dataclasses import replace

from .grow import PLAIN, Care, grow_once, refit
from .problem import Problem
from .reduce import propose_shrinks, prune_once, removal_score
from .state import Fitted


def regrow(problem: Problem, current: Fitted, best: Fitted, care: Care = PLAIN) -> Fitted | None:
    """One cycle: drop some ranks, grow back to the target or the budget, prune.

    None when the cycle did not get back to a target that the best network reaches.
    """
    state, is_reached = _ruin(problem, current), best.loss <= problem.target
    room = 1.3 * best.size if is_reached else math.inf  # beyond it the cycle has failed
    while state.loss > problem.target and state.size < room and not problem.context.is_out_of_time:
        width = min(4, problem.lookahead(state.network.structure))
        grown = grow_once(problem, state, replace(care, randomise=True, lookahead=width))
        if grown is None:
            break
        state, _ = grown
    if state.loss > problem.target:
        return None if is_reached else state
    while not problem.context.is_out_of_time:
        smaller = prune_once(problem, state, randomise=True)
        if smaller is None:
            break
        state, _ = smaller
    return state


def exchange(problem: Problem, current: Fitted, care: Care) -> Fitted | None:
    """Grow beyond the budget, then give up what matters least until it holds again; None if nothing grows.

    What fits into the last of a budget is seldom what is needed most, and what paid early may pay no more.
    """
    budget = problem.max_parameters
    assert budget is not None
    structure = current.network.structure
    costs = [structure.growth_cost(*e) for e in problem.policy.growable(structure)]
    beyond = max([int(problem.options.overshoot * budget), *costs])  # any one edge may grow
    state, wider = current, replace(problem, max_parameters=budget + beyond)
    while state.size < budget + beyond / 2.0 and not problem.context.is_out_of_time:
        grown = grow_once(wider, state, care)
        if grown is None:
            break
        state = grown[0]
    if state is current:
        return None
    while state.size > budget and not problem.context.is_out_of_time:
        excess = state.size - budget
        # What is saved beyond the excess is lost: the rank that just suffices comes before a larger one.
        shrinks = [
            replace(r, saved=min(r.saved, excess)) for r in propose_shrinks(problem, state.network, None)
        ]
        least = min(shrinks, key=lambda r: removal_score(r, state.measure))
        state = refit(problem, least.make(), sweeps=2, tolerance=0.0)  # more follow below
    return refit(problem, state.network) if state.size <= budget else None


def _ruin(problem: Problem, current: Fitted) -> Fitted:
    """Drop a few ranks, those that cost little more often."""
    for _ in range(problem.context.choose(problem.options.regrow_depth)):
        reference = problem.target or current.loss
        options = [
            (max(removal_score(r, reference), 1e-12) * problem.context.noise(0.7), k, r)
            for k, r in enumerate(propose_shrinks(problem, current.network, None))
        ]
        if not options:
            break
        current = refit(problem, min(options)[2].make(), sweeps=2)
    return refit(problem, current.network)
