"""How long computations take on a device, and what a search can afford at that pace.

Every rule here asks for seconds, not for flops: what one core needs a second for is nothing to a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..objectives import LeastSquares
from ..structure import Edge, Structure
from .options import GrowthOptions

# What sweeps reach in double precision. The figures are nominal, so that a run can be repeated on another
# machine of the same kind. One core of a Xeon or EPYC makes 8 to 20 GFlop/s. A GPU reaches more in large
# networks, but starts a kernel per product in small ones: of 1e10, 1e11 and 1e12 the second gave the best
# errors for the time on an H200 (five completions and an image, the changelog has the numbers).
FLOPS_PER_SECOND = {"cpu": 1e10, "cuda": 1e11}
# Seconds of a sweep. Cheap: a refit may continue until it converges, as held-out data guards against too many
# sweeps. Costly: refitting several candidates takes longer than another growth. Slow: only edges that may win
# are scored. Very slow: ranks grow by several at once.
CHEAP, COSTLY, SLOW, VERY_SLOW = 0.01, 0.05, 0.3, 1.0
# Cuts are wide where a sweep takes this many times as long as one over a network of rank one, which does
# little more than read the data.
WIDE_CUTS = 16
# In very slow networks an edge of rank 12 grows by 2, of rank 18 by 3.
RANKS_PER_STEP = 6


def flops_in(seconds: float, device: torch.device | str) -> float:
    """Arithmetic that a device does in some time."""
    return seconds * FLOPS_PER_SECOND.get(torch.device(device).type, FLOPS_PER_SECOND["cpu"])


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
        """Whether even scoring every edge costs too much."""
        return self.seconds(structure) > SLOW

    def has_wide_cuts(self, structure: Structure) -> bool:
        """Whether a sweep is costly because of the network, not because there is much data."""
        least = self.seconds(Structure.rank_one(self.objective.dims))
        return self.seconds(structure) > max(COSTLY, WIDE_CUTS * least)

    def increment(self, structure: Structure, edge: Edge, options: GrowthOptions) -> int:
        """Ranks to add at once where held-out data guards against too many."""
        several = self.seconds(structure) > VERY_SLOW
        return max(options.rank_increment, structure.rank(*edge) // RANKS_PER_STEP if several else 1)
