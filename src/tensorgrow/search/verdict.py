"""What the error on held-out data says of networks: good enough, as good as another, better."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .knobs import HeldOutProblem
from .limits import Limits
from .state import Fitted


@dataclass(frozen=True)
class Verdict:
    """Judges networks by held-out data, as far as that can tell them apart."""

    problem: HeldOutProblem
    limits: Limits

    @property
    def exact(self) -> float:
        """Held-out loss that counts as zero."""
        return math.sqrt(self.problem.objective.epsilon) * self.problem.scale

    def is_reached(self, fitted: Fitted) -> bool:
        """Whether a network is as good as the user wants, or exact."""
        goal = self.problem.target if self.limits.max_error is not None else 0.0
        return fitted.measure <= (max(goal, self.exact) if self.problem.holds_out else goal)

    def acceptable(self, loss: float) -> float:
        """Held-out loss that cannot be told from another one: half a standard error above it."""
        slack = 0.5 / math.sqrt(2.0 * max(self.problem.objective.num_held_out, 1))
        return max(loss * (1.0 + slack), self.exact)

    def prefers(self, one: Fitted, other: Fitted) -> bool:
        """Whether `one` is the better answer: the smaller of two that cannot be told apart."""
        if self.limits.max_parameters is None:
            acceptable = max(self.acceptable(min(one.measure, other.measure)), self.problem.target)
            if one.measure <= acceptable and other.measure <= acceptable:
                return (one.size, one.measure) <= (other.size, other.measure)
        return one.measure <= other.measure
