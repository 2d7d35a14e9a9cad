"""What a run reports as it goes: a record after every step, and the reason why it stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .structure import Edge, Structure


class StopReason(Enum):
    """Why a run ended; the value says what to try next, in words for Python and the command line."""

    TARGET_REACHED = "The error target is reached. A smaller target, or more effort, goes further."
    MAX_PARAMETERS = "The parameter budget is used up. A larger one gives a smaller error."
    MAX_STEPS = "The allowed number of steps is done. Allow more to go on."
    MAX_EVALUATIONS = (
        "The allowed evaluations are done: structures that were fitted, or points of a function. Allow "
        "more to go on."
    )
    MAX_SECONDS = "The allowed time is spent. Allow more to go on, or resume from a checkpoint."
    NO_PROGRESS = (
        "No allowed edge lowers the error any more: what is left is rounding or lies outside the allowed "
        "edges. Allow more edges, compute in double precision, or ask for a larger error."
    )
    SATURATED = (
        "Every allowed edge is at its useful rank: this structure cannot fit better. Allow more edges, or "
        "ask for a larger error."
    )
    MEMORY_LIMIT = (
        "Growing further would need more memory than allowed. Allow more, compute in single precision, or "
        "restrict the edges: a chain or a ring is much lighter than a dense graph."
    )
    VALIDATION = (
        "The error on held-out entries no longer falls: a larger network would fit noise. More observations, "
        "another tensorisation or more effort may go further."
    )
    NOTHING_LEARNED = (
        "No network predicts held-out entries measurably better than zero does, from rank one or from random "
        "starts of small rank: the entries are noise, or too few to find what is in them. More entries, "
        "priors of the axes, edges that are known, or another shape may help."
    )
    CONVERGED = "The fit has converged. A larger structure would fit better."
    FINISHED = (
        "The search made all its rounds. More rounds, another seed, or another weight of size against error "
        "may find more."
    )
    INTERRUPTED = "Interrupted. This is the best result so far."
    CALLBACK = "A callback asked to stop. This is the best result so far."

    @property
    def text(self) -> str:
        """What it means and what to try."""
        return self.value


@dataclass(frozen=True)
class Record:
    """What every run reports after a step, whatever it works on.

    Attributes
    ----------
    kind
        What the step did, such as "start" or "grow".
    edge
        The edge whose rank changed, where there is one.
    loss
        What the fit minimises, in the units of the data.
    relative_error
        `loss` relative to the norm of the data; None where the loss is not a norm.
    seconds
        Since the run began.
    """

    index: int
    kind: str
    edge: Edge | None
    num_parameters: int
    loss: float
    relative_error: float | None
    validation_error: float | None
    seconds: float

    @property
    def error(self) -> float:
        """The relative error; the loss where there is none."""
        return self.loss if self.relative_error is None else self.relative_error

    @property
    def measure(self) -> float:
        """What the run judges by: the error on held-out data where there is some."""
        return self.error if self.validation_error is None else self.validation_error

    def metrics(self) -> dict[str, float]:
        """Return by name what is worth a curve in an experiment tracker."""
        values = {
            "loss" if self.relative_error is None else "relative_error": self.error,
            "validation_error": self.validation_error,
            "num_parameters": self.num_parameters,
            "seconds": self.seconds,
        }
        return {name: float(value) for name, value in values.items() if value is not None}

    def move(self) -> str:
        """Describe the step in a line of text: its kind and its edge."""
        return self.kind if self.edge is None else f"{self.kind} {self.edge[0]}-{self.edge[1]}"


@dataclass(frozen=True)
class Step(Record):
    """One step of a search for a network.

    Attributes
    ----------
    kind
        "start", "grow" (an edge), "term" (a rank more along a spanning tree), "shrink", "split", "bypass" (an
        edge that goes past a node), "tree" (the smallest tree that bounds on ranks allow), "decompose" (a
        smaller network for the completed tensor), "regrow" (ranks given up and others grown), "exchange"
        (the same within what a budget leaves over), "try" (a random start of small rank, where rank one is
        blind), "weigh" (large entries count less, since their noise is larger), "refit", "distil" (one
        network for the mean of several); of a function "grid" (the graph of a part of the grid), "cross" (a
        cross approximation) and "fit" (to all that was evaluated); of a baseline "fit", one per structure.
    start
        Number of the growth from scratch this step belongs to.
    """

    structure: Structure
    start: int = 0

    def metrics(self) -> dict[str, float]:
        return {**super().metrics(), "compression_ratio": self.structure.compression_ratio}

    def to_dict(self) -> dict[str, Any]:
        """JSON-friendly form; `from_dict` is its inverse."""
        return {**self.__dict__, "structure": self.structure.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Step:
        """Inverse of `to_dict`."""
        edge = None if data["edge"] is None else tuple(data["edge"])
        return cls(**{**data, "edge": edge, "structure": Structure.from_dict(data["structure"])})
