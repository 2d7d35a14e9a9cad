"""How long a run may still take, from its steps so far."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..search import Limits
from ..steps import Record

# Steps before anything is said: a rate of fewer is mostly noise.
FEWEST_STEPS = 5


TARGET_MET = "target met, making it smaller; Ctrl-C keeps it"


def outlook(steps: Sequence[Record], limits: Limits, now: float, patience: int | None = None) -> str:
    """What is left of a run in a few words; empty while nothing can be said.

    Parameters
    ----------
    patience
        Steps without a lower held-out error after which the run ends.
    """
    left = remaining_seconds(steps, limits, now)
    if is_reached(steps, limits):
        return TARGET_MET if left is None else f"{TARGET_MET}, at most {describe_seconds(left)} left"
    if left is None:
        return "" if patience is None else _until_overfitting(steps, patience)
    # Where the held-out error may end a run at any time, a limit is not what it waits for.
    return f"{'about' if patience is None else 'at most'} {describe_seconds(left)} left"


def _until_overfitting(steps: Sequence[Record], patience: int) -> str:
    """For a run that ends when the held-out error rises: how soon that may be at the earliest."""
    steps = _under_way(steps)
    errors = [s.validation_error for s in steps if s.validation_error is not None]
    if len(errors) < FEWEST_STEPS or len(errors) < len(steps):  # the last steps are fits to everything
        return ""
    waited = len(errors) - 1 - errors.index(min(errors))
    late = steps[len(steps) // 2 :]
    each = (late[-1].seconds - late[0].seconds) / (len(late) - 1)
    left = describe_seconds(max(0, patience - waited) * each)
    return f"at least {left} left" if waited == 0 else f"about {left} left unless it falls again"


def _under_way(steps: Sequence[Record]) -> Sequence[Record]:
    """Steps of the growth under way: those after the last start."""
    starts = [k for k, s in enumerate(steps) if s.kind == "start"]
    return steps[starts[-1] :] if starts else steps


def is_reached(steps: Sequence[Record], limits: Limits) -> bool:
    """Whether a run has met its error target, so that what follows only makes the network smaller."""
    goal = limits.max_error
    return goal is not None and any(s.measure <= goal for s in steps)


def remaining_seconds(steps: Sequence[Record], limits: Limits, now: float) -> float | None:
    """Seconds until the first limit is met; None while nothing can be said.

    Errors fall like a power of time and sizes grow in proportion to it, each fitted to the later half of the
    steps of the growth under way. How long pruning takes once the error is reached cannot be foreseen.

    Parameters
    ----------
    now
        Seconds since the run began.
    """
    guesses = [] if limits.max_seconds is None else [limits.max_seconds - now]
    if is_reached(steps, limits):
        return max(0.0, guesses[0]) if guesses else None
    growth = [s for s in _under_way(steps) if s.seconds > 0]
    late = growth[len(growth) // 2 :]
    if len(growth) >= FEWEST_STEPS and late[-1].seconds > late[0].seconds:
        first, last = late[0], late[-1]
        if limits.max_parameters is not None and last.num_parameters > first.num_parameters:
            rate = (last.num_parameters - first.num_parameters) / (last.seconds - first.seconds)
            guesses.append((limits.max_parameters - last.num_parameters) / rate - (now - last.seconds))
        if limits.max_error:
            errors = [s.measure for s in late]
            fall = math.log(errors[0] / errors[-1]) if min(errors) > 0 else 0.0
            if fall > 0:
                power = fall / math.log(last.seconds / first.seconds)
                reached = last.seconds * (errors[-1] / limits.max_error) ** (1.0 / power)
                guesses.append(reached - now)
        if limits.max_steps is not None:
            each = (last.seconds - first.seconds) / (len(late) - 1)
            guesses.append((limits.max_steps - len(steps)) * each)
    return max(0.0, min(guesses)) if guesses else None


def describe_seconds(seconds: float) -> str:
    """A duration in words, no more exact than a guess is."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3600)} h" if seconds < 3.6e5 else "days"
