"""Runs that held-out data guides: the ridge, when to stop, and a last fit to everything."""

from __future__ import annotations

import math
import time
from abc import abstractmethod

import torch

from ..callbacks.signals import interruptible
from ..data.devices import check_memory
from ..errors import warn
from ..losses import squared
from ..network import TensorNetwork
from ..objectives import NO_PRIORS, HeldOut, Penalties
from ..results import Errors, Result
from ..search import Context, Fitted, HeldOutProblem, HeldOutSearch
from ..solvers import ALSFit, ALSSettings, SweepGraphs, als
from ..steps import Step, StopReason
from .task import NetworkTask, deadline_of_last_fit

# For a known structure where data is held out: sweeps at most, and the relative decrease per sweep at which
# they have converged; more sweeps mostly fit noise.
FIT_SWEEPS, FIT_TOLERANCE = 100, 1e-4


class HeldOutTask(NetworkTask[HeldOutSearch]):
    """A run on data of which some may be held out.

    Attributes
    ----------
    held_out
        True for entries or samples that are not fitted before the last fit; None when all are.
    begun
        A search that has taken its first steps, to be continued; None where one is to be built.
    judged
        After the run: the network that the held-out data has judged, before the last fit to all.
    most_per_entry
        Parameters per fitted entry at most, where data is held out.
    noise_power
        Power of the level that weights are the inverse of; 0: all are equal; None: held-out data chooses.
    """

    held_out: torch.Tensor | None = None
    begun: HeldOutSearch | None = None
    judged: TensorNetwork | None = None
    most_per_entry: float = 1.0
    noise_power: float | None = 0.0
    draws_split = True

    @property
    def penalties(self) -> Penalties:
        """What priors add, at the strength to start with."""
        return NO_PRIORS

    @property
    def num_held_out(self) -> int:
        """Entries or samples that are not fitted before the last fit."""
        return 0 if self.held_out is None else int(self.held_out.sum())

    @property
    @abstractmethod
    def what(self) -> str:
        """What the run does, for messages about memory."""

    @property
    def default_ridge(self) -> float:
        """The ridge to start with."""
        return squared.ridge

    @abstractmethod
    def objective(self, ridge: float, *, everything: bool = False) -> HeldOut:
        """Return the loss on the fitted data, or on all."""

    @abstractmethod
    def errors(self, search: HeldOutSearch, network: TensorNetwork, total: float) -> Errors:
        """Measure the answer of the search, and the network after its last fit."""

    def search(self) -> HeldOutSearch:
        if self.begun is not None:
            return self.begun
        request, policy = self.request, self.policy
        ridge = request.options.ridge
        objective = self.objective(self.default_ridge if ridge is None else ridge)
        objective = objective.with_penalties(self.penalties)
        limits, memory = request.limits, request.memory(self.probe.device)
        check_memory(objective.memory_needed(self.first), memory, self.what)
        most = limits.max_parameters
        # No more parameters than numbers that could determine them. Without held-out data twice as many: the
        # gauge takes some, and whoever wants no data held out may want every number met.
        per_entry = self.most_per_entry if self.num_held_out else 2
        enough = max(round(per_entry * objective.num_fitted), self.first.num_parameters)
        most = enough if most is None else min(most, enough)
        problem = HeldOutProblem(
            objective,
            request.options,
            policy,
            Context(self.generator, graphs=SweepGraphs(memory)),
            target=(limits.max_error or 0.0) * (objective.validation_norm or objective.norm),
            max_parameters=most,
            memory_limit=memory,
            split_nodes=request.splits_nodes(policy),
            is_patient=self.structure is None,
            elsewhere=request.elsewhere(self.probe.device),
            power=self.noise_power,
        )
        return HeldOutSearch(problem, limits, self.start())

    def finish(self, search: HeldOutSearch) -> Result:
        begin, history, options = time.perf_counter(), self.history(search), search.problem.options
        tuned = search.tuned
        objective = self.objective(tuned.ridge, everything=True).with_penalties(tuned.penalties)
        objective = objective.on(torch.device(tuned.device))
        answer = search.answer
        assert answer is not None
        self.judged = answer.network
        fit = None
        if self._may_refit(search, answer):
            weighed = search.weighed(objective)
            fit = self._refit(search, self.last_start(search, weighed), weighed)
        network, is_late = (answer if fit is None else fit).network, search.context.is_out_of_time
        loss = objective.loss(network.structure, objective.to_arrays(network))
        error = loss / (objective.norm or 1.0)
        seconds = search.state.elapsed + time.perf_counter() - begin
        if fit is not None:
            same = (s.start for s in reversed(history) if s.structure == network.structure)
            step = Step(
                index=len(history),
                kind="refit",
                edge=None,
                num_parameters=network.num_parameters,
                loss=loss * self.loss_scale,
                relative_error=error,
                validation_error=None,
                seconds=seconds,
                structure=network.structure,
                start=next(same, 0),
            )
            history = (*history, step)
        stop = StopReason.INTERRUPTED if fit is not None and fit.interrupted else search.state.stop
        errors = self.errors(search, network, error)
        if self.structure is not None and stop is StopReason.MAX_STEPS:  # no step was asked for
            converged = search.context.is_converged if fit is None else fit.num_sweeps < options.final_sweeps
            stop = StopReason.CONVERGED if converged else StopReason.MAX_STEPS
            stop = StopReason.MAX_SECONDS if is_late else stop
        if stop is StopReason.NOTHING_LEARNED:
            data, share = search.problem.objective, answer.measure / search.problem.scale
            warn(
                f"nothing was learned: the error on {data.num_held_out:,} held-out entries is {share:.3g} of "
                "that of predicting zero, no measurable gain. More entries "
                f"(there are {data.num_fitted:,} for {answer.size:,} parameters), priors of the axes, edges "
                "that are known, or another shape may help"
            )
        chosen: dict[str, object] = {"ridge": tuned.ridge, "device": str(objective.device)}
        if tuned.penalties.is_open:
            chosen["prior_strength"] = tuned.penalties.strength
        if search.state.power:
            chosen["noise_power"] = search.state.power
        return self.result(search, network, errors, history=history, stop=stop, seconds=seconds, **chosen)

    def last_start(self, search: HeldOutSearch, everything: HeldOut) -> TensorNetwork:
        """The network that the last fit, to all data, begins with."""
        assert search.answer is not None
        return search.answer.network

    def _may_refit(self, search: HeldOutSearch, answer: Fitted) -> bool:
        """Whether data was held out, and there is time for a last fit or it takes none."""
        if not search.problem.holds_out or time.perf_counter() <= deadline_of_last_fit(search):
            return search.problem.holds_out
        return search.problem.pace.is_cheap(answer.network.structure)

    def _refit(self, search: HeldOutSearch, network: TensorNetwork, objective: HeldOut) -> ALSFit:
        """Fit the answer to all data, where some was held out.

        Fits that were cut short are far from where they would settle with a ridge, and the first sweeps may
        raise the loss: losses are compared over a period of sweeps then. Against an end at the first sweep
        that gains little, 80 sweeps lowered the errors of six 300x300 photographs from a tenth by 0.4 % of
        themselves on the mean (by 1.1 % at best, raised by 0.2 % at worst), and that of one mask of Einstein
        from 8.98 to 8.90 %. A 512x512 photograph as it is has settled after 15.
        """
        o = search.problem.options
        # A structure that is given has only been fitted: that ends as it does.
        is_settled = self.structure is not None or search.problem.refits_fully(network.structure)
        settings = ALSSettings(
            max_sweeps=o.final_sweeps,
            min_sweeps=o.least_sweeps,
            tolerance=o.final_tolerance,
            by_period=not is_settled,
            ridge=o.rounding_ridge,
            balance_every=o.balance_every,
            accelerate=o.accelerate,
            momentum=search.problem.momentum(network.structure),
        )
        try:
            with interruptible():
                return als(
                    objective,
                    network,
                    settings,
                    deadline=deadline_of_last_fit(search),
                    keep_on_interrupt=True,
                    graphs=search.context.graphs,
                )
        except KeyboardInterrupt:  # before the first sweep was done: the network as it is
            return ALSFit(network, math.nan, (), interrupted=True)
