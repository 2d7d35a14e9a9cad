"""What every search shares: a state that can be saved, and one move after the other until a limit is met."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from ..network import TensorNetwork
from ..results import PathPoint, Step, StopReason, add_to_path, pack_path, unpack_path
from ..solvers.gradient import State
from .grow import Fitted
from .limits import Limits
from .score import Gains

__all__ = ["Search", "SearchProblem", "SearchState"]


class SearchProblem(Protocol):
    """What any search needs to know of its problem."""

    generator: torch.Generator
    deadline: float


@dataclass
class SearchState:
    """Everything the rest of a run depends on, plus what it reports.

    Attributes
    ----------
    ridge, tuned, stale, gains, grown
        Of a completion: the ridge in use, the size it was last chosen for, steps since the held-out error
        fell, the last known gains of edges, and why the growth ended.
    kept, kept_ridge
        Of a completion: the best of earlier starts.
    moments
        Of a training: what the optimiser remembers of each core.
    """

    phase: str = "start"
    start: int = 0
    current: Fitted | None = None
    best: Fitted | None = None
    cycles: int = 0
    stalls: int = 0
    elapsed: float = 0.0
    ridge: float | None = None
    tuned: int = 0
    stale: int = 0
    gains: Gains = field(default_factory=dict)
    grown: StopReason | None = None
    kept: Fitted | None = None
    kept_ridge: float | None = None
    moments: State = field(default_factory=list)
    stop: StopReason | None = None
    steps: list[Step] = field(default_factory=list)
    path: list[PathPoint] = field(default_factory=list)

    def pack(self, generator: torch.Generator) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """Header and tensors of a checkpoint."""
        tensors: dict[str, torch.Tensor] = {"generator": generator.get_state()}
        header: dict[str, Any] = {
            "phase": self.phase,
            "start": self.start,
            "cycles": self.cycles,
            "stalls": self.stalls,
            "elapsed": self.elapsed,
            "ridge": self.ridge,
            "kept_ridge": self.kept_ridge,
            "stale": self.stale,
            "tuned": self.tuned,
            "grown": None if self.grown is None else self.grown.name,
            "gains": [[*e, *g] for e, g in self.gains.items()],
            "stop": None if self.stop is None else self.stop.name,
            "steps": [s.to_dict() for s in self.steps],
        }
        for name in ("current", "best", "kept"):
            fitted: Fitted | None = getattr(self, name)
            if fitted is None:
                header[name] = None
                continue
            structure, cores = fitted.network.pack(name)
            header[name] = {"structure": structure, "loss": fitted.loss, "validation": fitted.validation}
            tensors |= cores
        header["path"], cores = pack_path(self.path)
        tensors |= cores
        header["moments"] = [sorted(m) for m in self.moments]
        tensors |= {f"moment.{k}.{n}": v for k, m in enumerate(self.moments) for n, v in m.items()}
        return header, tensors

    @classmethod
    def unpack(
        cls, header: dict[str, Any], tensors: dict[str, torch.Tensor], generator: torch.Generator
    ) -> SearchState:
        """Inverse of `pack`; the generator is set to where it was."""
        generator.set_state(tensors["generator"])

        def fitted(name: str) -> Fitted | None:
            data = header[name]
            if data is None:
                return None
            network = TensorNetwork.unpack(data["structure"], tensors, name)
            return Fitted(network, data["loss"], data["validation"])

        return cls(
            phase=header["phase"],
            start=header["start"],
            current=fitted("current"),
            best=fitted("best"),
            kept=fitted("kept"),
            cycles=header["cycles"],
            stalls=header["stalls"],
            elapsed=header["elapsed"],
            ridge=header["ridge"],
            kept_ridge=header["kept_ridge"],
            stale=header["stale"],
            tuned=header["tuned"],
            gains={(i, j): (gain, age) for i, j, gain, age in header["gains"]},
            grown=None if header["grown"] is None else StopReason[header["grown"]],
            moments=[
                {n: tensors[f"moment.{k}.{n}"] for n in names} for k, names in enumerate(header["moments"])
            ],
            stop=None if header["stop"] is None else StopReason[header["stop"]],
            steps=[Step.from_dict(s) for s in header["steps"]],
            path=unpack_path(header["path"], tensors),
        )


class Search:
    """Iterator of steps; pause it, look at `state`, go on.

    Parameters
    ----------
    problem
        Objective, options, allowed edges, target and budget.
    limits
        When to stop.
    init
        A network to start from; by default random rank one.
    state
        A state to resume from.
    """

    def __init__(
        self,
        problem: SearchProblem,
        limits: Limits,
        *,
        init: TensorNetwork | None = None,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
        state: SearchState | None = None,
    ) -> None:
        self.problem: Any = problem
        self.limits = limits
        self.init = init
        self.dtype = dtype
        self.device = device
        self.state = state or SearchState()
        self.hit_limit = False  # ended by steps or time: more of them would go on

    def __iter__(self) -> Iterator[Step]:
        """Advance until done; each move that changed the network is yielded."""
        state = self.state
        begin = time.perf_counter() - state.elapsed
        self.problem.deadline = (
            math.inf if self.limits.max_seconds is None else begin + self.limits.max_seconds
        )
        while state.stop is None:
            before = len(state.steps)
            random, cycles = self.problem.generator.get_state(), state.cycles
            try:
                self._advance(begin)
            except BaseException:
                # The broken move is made again when the run goes on; it must see the same random numbers.
                self.problem.generator.set_state(random)
                state.cycles = cycles
                raise
            state.elapsed = time.perf_counter() - begin
            if len(state.steps) > before:
                yield state.steps[-1]

    @property
    def answer(self) -> Fitted | None:
        """Best network so far: smallest under the target, else lowest loss within the budget."""
        return self.state.best or self.state.current

    # -- one move --------------------------------------------------------------------------------------

    def _advance(self, begin: float) -> None:
        state = self.state
        if state.phase != "start":
            made = sum(s.kind != "start" for s in state.steps)
            limit = self.limits.reached(made, time.perf_counter() - begin)
            if limit is not None:
                self.hit_limit = True
                self._end(limit)
                return
        self._phases[state.phase](begin)

    @property
    def _phases(self) -> dict[str, Callable[[float], None]]:
        """What to do in each phase, given when the run began."""
        raise NotImplementedError

    def _end(self, reason: StopReason) -> None:
        self.state.stop = reason

    def _errors(self, fitted: Fitted) -> tuple[float, float | None]:
        """Errors of a network to report: on the fitted and on the held-out data."""
        raise NotImplementedError

    def _record(self, kind: str, edge: tuple[int, int] | None, begin: float) -> None:
        state = self.state
        assert state.current is not None
        fitted = state.best if kind in ("tree", "regrow") else state.current
        assert fitted is not None
        error, held_out = self._errors(fitted)
        state.steps.append(
            Step(
                index=len(state.steps),
                kind=kind,
                edge=edge,
                num_parameters=fitted.size,
                loss=fitted.loss,
                relative_error=error,
                validation_error=held_out,
                seconds=time.perf_counter() - begin,
                structure=fitted.network.structure,
                start=state.start,
            )
        )
        add_to_path(state.path, PathPoint(fitted.network, error if held_out is None else held_out))
