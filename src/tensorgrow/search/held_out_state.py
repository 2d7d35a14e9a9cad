"""What a growth by held-out data keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ..network import TensorNetwork
from ..steps import StopReason
from .score import Gains
from .state import Fitted, NetworkState


@dataclass
class HeldOutState(NetworkState):
    """Of a `HeldOutSearch`.

    Attributes
    ----------
    cycles, stalls
        Regrow cycles, and those of them since the last gain.
    ridge, strength, tuned_size
        The ridge and the strength of priors in use, None for the first ones, and the size of the network that
        they were last chosen for.
    stale
        Growths since the held-out error fell.
    gains
        The last known gains of edges.
    outcome
        Why the growth ended.
    earlier, earlier_ridge, earlier_strength
        The best network of earlier starts, its ridge and its strength.
    unsplit, unsplit_ridge
        Held-out loss of the best network, and the ridge, when a node was last split within a budget.
    tries
        Random starts of small rank so far.
    power, pilot
        Entries have weights by this power of the levels that this network says; None before it is chosen.
    """

    later: ClassVar[frozenset[str]] = frozenset(
        {"unsplit", "unsplit_ridge", "strength", "earlier_strength", "tries", "power", "pilot"}
    )

    cycles: int = 0
    stalls: int = 0
    ridge: float | None = None
    tuned_size: int = 0
    stale: int = 0
    gains: Gains = field(default_factory=dict)
    outcome: StopReason | None = None
    earlier: Fitted | None = None
    earlier_ridge: float | None = None
    unsplit: float | None = None
    unsplit_ridge: float | None = None
    strength: float | None = None
    earlier_strength: float | None = None
    tries: int = 0
    power: float | None = None
    pilot: TensorNetwork | None = None
