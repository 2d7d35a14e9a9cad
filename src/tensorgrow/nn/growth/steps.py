"""A growing model, step by step: the search behind `grow`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from ...algebra.spectra import propose_splits
from ...search import Context, Limits, Search, SearchState
from ...search.state import Json
from ...solvers import TrainingOptions, grow_state
from ...steps import StopReason
from ...structure import Edge
from ..modules import count_parameters, model_tensors
from .candidates import Candidate, GrowProblem, best_candidate
from .gradients import gradient_candidates
from .result import GrowStep

Tensors = dict[str, torch.Tensor]


@dataclass
class GrowState(SearchState):
    """What a `GrowSearch` keeps."""

    steps: list[GrowStep] = field(default_factory=list)
    model: Tensors = field(default_factory=dict)  # what the next move starts from
    best: Tensors = field(default_factory=dict)  # the model after the step with the best score
    memory: dict[str, Tensors] = field(default_factory=dict)  # the optimiser's, by name of the parameter


class GrowSearch(Search[GrowProblem, GrowState]):
    """A model that grows: one training, then one growth after the other; see `Search`."""

    uses = frozenset(
        {"edge_score", "slice_noise", "patience", "rank_increment", "max_degree", "transfer"}
        | {"split_while_growing", "split_threshold", "max_internal_nodes"}
    )

    def __init__(self, problem: GrowProblem, limits: Limits, generator: torch.Generator) -> None:
        super().__init__(problem, limits, GrowState(), Context(generator))
        self.state.model = self._copy_model()
        self._is_model_current = True

    @property
    def model(self) -> nn.Module:
        """The model after the last step."""
        return self.problem.trainer.model

    @property
    def has_answer(self) -> bool:
        return bool(self.state.steps)

    @property
    def patience(self) -> int | None:
        return self.problem.patience

    @property
    def best_step(self) -> GrowStep:
        """The first of the steps with the best score."""
        return min(self.state.steps, key=lambda s: (s.validation_error, s.index))

    @property
    def best_size(self) -> int | None:
        return self.best_step.num_parameters if self.state.steps else None

    def describe(self) -> str:
        if not self.state.steps:
            return ""
        return ", ".join(f"{n or 'model'}: {s!r}" for n, s in self.best_step.structures.items())

    def resume(self, header: Mapping[str, Json], tensors: Tensors) -> None:
        super().resume(header, tensors)
        state, device = self.state, next(self.model.parameters()).device
        state.memory = {
            name: {k: v if v.dim() == 0 else v.to(device) for k, v in values.items()}
            for name, values in state.memory.items()
        }
        self._is_model_current = False
        self._load_model()
        state.stop = self._reason() if state.steps else None

    def draw_seed(self) -> int:
        generator = self.context.generator
        return int(torch.randint(2**31, (), generator=generator, device=generator.device))

    @property
    def _phases(self) -> Mapping[str, Callable[[], None]]:
        return {"start": self._start, "grow": self._grow}

    def _start(self) -> None:
        self._load_model()
        self._train("start", None, None)
        self.state.phase = "grow"

    def _grow(self) -> None:
        self._load_model()
        problem, state, generator = self.problem, self.state, self.context.generator
        if problem.options.split_while_growing:
            self._split_nodes()
        edges = list(problem.growable(self._room))
        if not edges:
            has_edges = any(True for _ in problem.growable(math.inf))
            self._end(StopReason.MAX_PARAMETERS if has_edges else StopReason.SATURATED)
            return
        random = generator.get_state()
        seed, last = self.draw_seed(), state.steps[-1].validation_error
        if problem.candidates == "gradient":
            chosen = gradient_candidates(problem, edges, seed, self._room)
        else:
            best = best_candidate(problem, edges, seed, last, self.context.deadline)
            chosen = [] if best is None else [best]
        if not chosen:
            generator.set_state(random)  # a run that is resumed tries the same candidates
            self.hit_limit = True
            self._end(StopReason.MAX_SECONDS)
            return
        self._is_model_current = False
        for candidate in chosen:
            self._raise_rank(candidate)
        if not problem.options.transfer:
            state.memory.clear()
            for grown in problem.layers.values():
                grown.reset_parameters(generator)
        self._train("grow", chosen[0].layer, chosen[0].edge)

    def _split_nodes(self) -> None:
        """Split nodes of layers where that saves parameters and hardly changes the weight; then grow on."""
        options = self.problem.options
        for name, layer in self.problem.layers.items():
            while layer.structure.num_nodes < 2 * layer.structure.order + options.max_internal_nodes:
                network = layer.network.to(dtype=torch.float64)
                found = [
                    split
                    for node in range(layer.structure.num_nodes)
                    for split in propose_splits(
                        layer.structure, network.cores, node, threshold=options.split_threshold
                    )
                ]
                if not found:
                    break
                best = max(found, key=lambda s: s.saved)
                self._is_model_current = False
                layer.network = network.split_node(best.node, best.axes, rank=best.rank)
                prefix = f"{name}.cores." if name else "cores."
                # The optimiser remembers cores that are no more.
                for core in [n for n in self.state.memory if n.startswith(prefix)]:
                    del self.state.memory[core]

    def _raise_rank(self, candidate: Candidate) -> None:
        problem, options, generator = self.problem, self.problem.options, self.context.generator
        name, edge, layer = candidate.layer, candidate.edge, problem.layers[candidate.layer]
        memory = self.state.memory
        for n in range(options.rank_increment):
            if n and (name, edge) not in problem.growable(self._room):
                break
            for node, other in (edge, edge[::-1]):
                core = f"{name}.cores.{node}" if name else f"cores.{node}"
                if core in memory:
                    memory[core] = grow_state(memory[core], layer.structure, node, other)
            slices = candidate.slices[n] if n < len(candidate.slices) else None
            layer.grow_edge(*edge, slices=slices, noise=options.slice_noise, random_state=generator)

    def _train(
        self,
        kind: str,
        layer: str | None,
        edge: Edge | None,
        *,
        epochs: int | None = None,
        options: TrainingOptions | None = None,
    ) -> None:
        state, trainer = self.state, self.problem.trainer
        self._is_model_current = False
        named = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        keeps = trainer.options.keep_state and state.memory
        done = trainer.fit(
            list(named.values()),
            self.draw_seed(),
            epochs=epochs or trainer.options.epochs,
            state=[state.memory.get(n, {}) for n in named] if keeps else None,
            deadline=self.context.deadline,
            # The model before is the luckiest of many epochs on this validation data: growth would start from
            # it for ever. That step is in the history and may still be the result.
            may_stay=False,
            options=options,
        )
        state.memory = dict(zip(named, done.state))
        self._note(kind, layer, edge, loss=done.loss, score=done.measure, epochs=done.epochs)

    def _note(
        self,
        kind: str,
        layer: str | None = None,
        edge: Edge | None = None,
        *,
        loss: float,
        score: float,
        epochs: int,
    ) -> None:
        """Add a step for the model as it is now, and end where it is good enough or no longer gets better."""
        state = self.state
        step = GrowStep(
            index=len(state.steps),
            kind=kind,
            edge=edge,
            num_parameters=count_parameters(self.model),
            loss=loss,
            relative_error=None,
            validation_error=score,
            seconds=self.seconds,
            layer=layer,
            epochs=epochs,
            structures={n: m.structure for n, m in self.problem.layers.items()},
        )
        state.steps.append(step)
        state.model = self._copy_model()
        self._is_model_current = True
        if self.best_step is step:
            state.best = state.model
        reason = self._reason()
        if reason is not None:
            self._end(reason)

    def _reason(self) -> StopReason | None:
        """Why no growth should follow the last step, limits of steps and time aside."""
        last = self.state.steps[-1]
        if self.limits.max_error is not None and last.validation_error <= self.limits.max_error:
            return StopReason.TARGET_REACHED
        if self.patience is not None and last.index - self.best_step.index >= self.patience:
            return StopReason.VALIDATION
        return None

    @property
    def _room(self) -> float:
        limit = self.limits.max_parameters
        return math.inf if limit is None else limit - count_parameters(self.model)

    def _copy_model(self) -> Tensors:
        return {k: v.detach().clone() for k, v in model_tensors(self.model).items()}

    def _load_model(self) -> None:
        """Undo what a move that was broken off did to the model."""
        if not self._is_model_current:
            self.model.load_state_dict(self.state.model)
            self._is_model_current = True
