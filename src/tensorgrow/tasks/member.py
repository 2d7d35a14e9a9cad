"""A member of a committee: what it ran on, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..network import TensorNetwork
from ..results import Result
from .entry_task import EntryTask


@dataclass(frozen=True)
class Member:
    """A network of a committee, or what interpolates beside them.

    Attributes
    ----------
    task
        What it ran on.
    result
        What came of it, fitted to all entries.
    judged
        All entries as predicted before the last fit, from those that are not held out, in the task's units.
    doubts
        The errors to expect of these predictions; None where nothing tells.
    share
        Its share in the mean where that is settled: of the last member only.
    """

    task: EntryTask
    result: Result
    judged: torch.Tensor
    doubts: torch.Tensor | None
    share: float | None = None

    @property
    def network(self) -> TensorNetwork:
        """What answers in the end, in the task's units."""
        return self.result.network.times_power(-self.task.exponent)

    def entries(self, where: torch.Tensor | None = None) -> torch.Tensor:
        """Entries as predicted in the end, in the task's units; by default all that are known."""
        network = self.network
        return network.entries((self.task.indices if where is None else where).to(network.device))


def hold_out_the_same(members: Sequence[Member]) -> bool:
    """Whether all members held out the same entries, or none."""
    first = members[0].task.held_out
    return all(_same(m.task.held_out, first) for m in members)


def _same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    return one is other or (one is not None and other is not None and torch.equal(one, other))
