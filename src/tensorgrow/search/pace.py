"""How long computations take on a device, and what a search can afford at that pace.

Every rule here asks for seconds, not for flops: what one core needs a second for is nothing to a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ..data.devices import flops_in
from ..objectives import LeastSquares
from ..structure import Edge, Structure
from .options import GrowthOptions

# Seconds of a sweep. Cheap: a refit may continue until it converges, as held-out data guards against too many
# sweeps. Costly: refitting several candidates takes longer than another growth. Slow: nothing is tried beyond
# growing.
CHEAP, COSTLY, SLOW = 0.01, 0.05, 0.3
# From here on only edges that may win are scored and second looks are rare; and, with held-out data, ranks
# grow by several at once. On the CPU, against 0.3 and 1 s: hidden errors of six completions (five pictures,
# other masks than those of the results) are 0 to 1.2 % smaller, after 0.72 to 1.02 times the seconds. On a
# GPU, where edges are cheap to score, the first made Einstein 1 and 2 % worse on two masks.
SELECTIVE, SEVERAL_RANKS = {"cpu": 0.05, "cuda": 0.3}, {"cpu": 0.05, "cuda": 1.0}
# What a growth counts as beside its parameters where sweeps are costly: this share of the network times the
# logarithm of how many times longer a sweep takes after it. Cuts count squared in a sweep: a rank more of an
# edge on many cycles has few parameters and may double the time of every sweep that follows. Photograph A at
# 0.137 ends with sweeps of 0.4 to 0.9e9 flops (three seeds), before with 2 and 10e9 (two). Means of three
# seeds at half, once and twice this price: 7,150, 6,990 and 7,400 parameters; seeds differ by 600.
TIME_PRICE = 0.1
# Seconds of sweeps after the error target is met that nobody minds, however soon it was met.
NOT_LONG = 2.0
# Cuts are wide where a sweep takes this many times as long as one over a network of rank one, which does
# little more than read the data.
WIDE_CUTS = 16
# There an edge of rank 12 grows by 2, of rank 18 by 3.
RANKS_PER_STEP = 6


@dataclass(frozen=True)
class Pace:
    """What sweeps over one objective cost on the device that computes them."""

    objective: LeastSquares

    def seconds(self, structure: Structure) -> float:
        """Of one sweep."""
        return self.objective.sweep_flops(structure) / flops_in(1.0, self.objective.device)

    def is_cheap(self, structure: Structure) -> bool:
        """Whether a refit may take as many sweeps as it needs."""
        return self.seconds(structure) < CHEAP

    def is_costly(self, structure: Structure) -> bool:
        """Whether refitting candidates costs more than it gains."""
        return self.seconds(structure) > COSTLY

    def is_slow(self, structure: Structure) -> bool:
        """Whether nothing is tried beyond growing."""
        return self.seconds(structure) > SLOW

    def is_selective(self, structure: Structure) -> bool:
        """Whether scoring every edge costs more than it gains."""
        return self.seconds(structure) > self._of_device(SELECTIVE)

    def _of_device(self, seconds: Mapping[str, float]) -> float:
        return seconds.get(torch.device(self.objective.device).type, seconds["cpu"])

    def has_wide_cuts(self, structure: Structure) -> bool:
        """Whether a sweep is costly because of the network, not because there is much data."""
        least = self.seconds(Structure.rank_one(self.objective.dims))
        return self.seconds(structure) > max(COSTLY, WIDE_CUTS * least)

    def price(self, structure: Structure, edge: Edge) -> float:
        """Parameters that longer sweeps count as, after a growth of an edge; see `TIME_PRICE`."""
        grown = structure.with_rank(*edge, structure.rank(*edge) + 1)
        before, after = (max(self.seconds(s), COSTLY) for s in (structure, grown))
        return TIME_PRICE * structure.num_parameters * max(0.0, math.log(after / before))

    def increment(self, structure: Structure, edge: Edge, options: GrowthOptions) -> int:
        """Ranks to add at once where held-out data guards against too many."""
        several = self.seconds(structure) > self._of_device(SEVERAL_RANKS)
        return max(options.rank_increment, structure.rank(*edge) // RANKS_PER_STEP if several else 1)
