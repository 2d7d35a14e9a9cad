"""What searches on a least-squares problem share."""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeVar

from ..steps import StopReason
from .grow import refit
from .problem import Problem
from .search import NetworkSearch
from .state import Fitted, NetworkState

# A fit of rank one is cheap, and everything grows from it.
RANK_ONE_SWEEPS = 100

P_co = TypeVar("P_co", bound=Problem, covariant=True)
N_co = TypeVar("N_co", bound=NetworkState, covariant=True)


class LeastSquaresSearch(NetworkSearch[P_co, N_co]):
    """A search that fits by alternating least squares; see `Search`."""

    @abstractmethod
    def _is_reached(self, fitted: Fitted) -> bool:
        """Whether a network is as good as the user wants."""

    def _advance(self) -> None:
        if self.state.current is not None:
            moved = self.problem.moved(self.state.current.network.structure)
            self.problem = self.problem if moved is None else moved
        super()._advance()

    def _fit_first(self, sweeps: int | None) -> Fitted:
        """Fit the network that the growth starts from. Only a random one is followed by further starts."""
        network = self.start.first(self.problem.objective.dims, self.context.generator, self.state.start)
        return refit(self.problem, network, sweeps=sweeps, however_late=True)

    def _end(self, reason: StopReason) -> None:
        state, problem = self.state, self.problem
        if state.best is None and state.current is not None and self._is_reached(state.current):
            state.best = state.current
        if state.best is not None:  # more time or steps would only shrink a network that will do
            reason = self.limits.settle(reason, state.best.measure / problem.scale)
        super()._end(reason)

    def _errors(self, fitted: Fitted) -> tuple[float | None, float | None]:
        held_out = None if fitted.validation is None else fitted.validation / self.problem.scale
        return fitted.loss / (self.problem.objective.norm or 1.0), held_out
