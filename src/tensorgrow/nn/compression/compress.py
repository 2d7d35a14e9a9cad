"""Layers of a trained model replaced by smaller ones."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...callbacks.base import Callbacks
from ...callbacks.progress import live_line
from ...data.fingerprint import fingerprint_tensor
from ...errors import DataError, OptionError, check_choice
from ...network import RandomState, as_generator
from ...search import Context, Effort, Limits, Search, SearchState
from ...search.state import Json
from ...steps import StopReason
from ...tasks.request import Audience
from ...tasks.task import Task, describe, run_task
from ..kinds.catalogue import known_kind
from ..kinds.statistics import Inputs
from ..layer.attention import pack_attention
from ..layer.layout import Layout
from ..layer.tied import tie
from ..modules import copy_model, count_bytes, count_parameters, move_hooks, replace_module
from .calibration import (
    Loss,
    Metric,
    apply,
    calibration_batches,
    calibration_pairs,
    input_moments,
    output_moments,
)
from .choices import Choice, Wish, allocate, find_choices, weigh
from .latency import median_seconds
from .layers import (
    Dims,
    Layers,
    budget_of,
    convert,
    layers_to_compress,
    layouts_of,
    merge_tied,
    parameters_that_stay,
    site_of,
    take_apart,
)
from .result import CompressResult, LayerSearch


def compress(
    model: nn.Module,
    *,
    max_error: float | None = None,
    max_parameters: int | None = None,
    max_ratio: float | None = None,
    layers: Layers = None,
    calibration: Any = None,
    loss: Loss | None = None,
    dims: Dims | Mapping[str, Dims] | None = None,
    paired: bool | None = None,
    min_size: int = 4096,
    allow_slower: bool | None = None,
    effort: Effort = "balanced",
    max_seconds: float | None = None,
    random_state: RandomState = 0,
    progress: bool | None = None,
    callbacks: Callbacks = None,
    checkpoint: str | Path | None = None,
    measure: bool = True,
) -> CompressResult:
    """Replace layers of a trained model by tensor networks: linear ones, convolutions, embeddings.

    For every layer, truncated SVDs and tensor networks over a few tensorised shapes are computed, with the
    error of each size. Then each layer gets the smallest within `max_error`, or all together get the forms
    with the least sum of squared relative errors within the parameter budget. A layer that does not get
    smaller stays dense.

    Parameters
    ----------
    model
        It is not modified: the result holds a copy.
    max_error
        Relative error of every replaced layer at most: ``||W - W'|| / ||W||``, with `calibration`
        ``||(W - W') M^(1/2)|| / ||W M^(1/2)||``, the error of its outputs about their mean; of the weight as
        it is stored, in the precision of the layer.
    max_parameters
        Of the whole model, layers that are not replaced included.
    max_ratio
        The same as a share of the parameters there are now.
    layers
        Names, or a function of name and layer; by default every ``nn.Linear``, ``nn.Conv1d`` to ``nn.Conv3d``
        and ``nn.Embedding`` of at least `min_size` entries whose weight no other module uses; the result
        names those that are left alone, and why. An ``nn.MultiheadAttention`` stands for its layers
        ``in_proj`` (queries, keys and values in one) and ``out_proj``, and becomes a `TNMultiheadAttention`.
    calibration
        Inputs of the model like those in use: a batch, batches or a DataLoader; hundreds to thousands of
        rows. Errors are then weighted by the covariance ``M`` of what comes into each layer, and biases
        compensate what is lost of its mean (a layer without a bias counts the second moment about zero).
        What comes into a convolution are patches, into an embedding tokens.
    loss
        With calibration batches that are pairs (inputs, targets): ``loss(model(inputs), targets)``. Errors
        are then weighted by what the loss feels of each output too, and a budget goes where the loss gains
        most (by Gauss and Newton's approximation), instead of treating relative errors of all layers alike.
    dims
        ``(in_dims, out_dims)`` of the tensorised shape, for all layers or by name; by default three shapes
        are tried, with digits near 4 and near 16. Those of a convolution are of its channels.
    paired
        Legs paired or separate; by default both are tried.
    min_size
        Smaller layers are left alone.
    allow_slower
        Whether a layer may become slower, or take more memory in use, than it was, by counted work for 32
        rows or tokens, or for a convolution's inputs in the calibration data (without, a map of 14 x 14).
        Otherwise it gets a form that does not, or is left alone, and the report names it. By default
        only where there is a budget of parameters to meet. Embeddings may always be slower: nothing is as
        fast as a dense lookup, and whatever comes after it takes longer.
    effort
        Of the decompositions.
    max_seconds
        For everything; by default a minute for each layer. Layers that are not searched by then, or at
        Ctrl-C, get truncated SVDs.
    random_state
        Seed or generator.
    progress
        Show a live line; by default when the terminal is interactive and rich is installed.
    callbacks
        Functions of a `LayerSearch`, or objects with ``on_start(search)``, ``on_step(search, step)``,
        ``on_end(search)``; called after every layer. A true answer ends the search as Ctrl-C does.
    checkpoint
        A file that keeps the forms of every layer searched; a layer in it is not searched again.
    measure
        Whether latencies are measured for the report.

    Returns
    -------
    CompressResult
        The new model with sizes, errors, latencies and memory before and after; ``print(result.table())``.
    """
    own = copy_model(model)
    budget = budget_of(model, max_error, max_parameters, max_ratio)
    limits = Limits(max_error, max_parameters, None, max_seconds, held_out=True)
    check_choice("effort", effort, ("fast", "balanced", "thorough"))
    own, chosen, packed = take_apart(own, layers)
    picked, left = layers_to_compress(own, chosen, min_size)
    left = {**left, **packed}
    picked, tied = merge_tied(own, picked)
    layouts = layouts_of(picked, dims, paired)
    pairs: list[tuple[Any, Any]] = []
    if loss is not None:
        if calibration is None or not callable(loss):
            raise OptionError("loss must be a function of outputs and targets, and needs calibration data")
        pairs = calibration = calibration_pairs(calibration)
    batches = None if calibration is None else calibration_batches(calibration)
    shared = [layer for found in tied.values() for layer in found.values()]
    others = parameters_that_stay(own, [*picked.values(), *shared])
    room = None if budget is None else budget - others
    if room is not None and room < 0:
        raise OptionError(
            f"the budget of {budget:,} parameters is below the {others:,} that are not to be compressed, or "
            "that other modules use too; raise it, or choose more layers"
        )
    if max_seconds is None:
        limits = replace(limits, max_seconds=60.0 * len(picked))
    with live_line(progress) as tell:
        inputs = {} if batches is None else input_moments(own, picked, batches, tell)
        if loss is not None:
            moments = output_moments(own, picked, pairs, loss)
            inputs = {n: replace(i, outputs=moments[n]) for n, i in inputs.items()}
        problem = CompressProblem(
            layers=picked,
            inputs=inputs,
            layouts=layouts,
            max_error=max_error,
            room=room,
            effort=effort,
            tell=tell,
            allow_slower=budget is not None if allow_slower is None else allow_slower,
        )
        generator = as_generator(random_state)
        task = CompressTask(problem, limits, generator, model, own, batches, budget, measure, left, tied)
        return run_task(task, Audience(False, callbacks, checkpoint))


@dataclass(frozen=True)
class CompressProblem:
    """What a `CompressSearch` works on; layers, inputs and layouts are by name of the layer."""

    layers: Mapping[str, nn.Module]
    inputs: Mapping[str, Inputs]
    layouts: Mapping[str, Sequence[Layout]]  # tensorised shapes to try
    max_error: float | None
    room: int | None  # parameters that the layers may have together; None: any number
    effort: Effort
    tell: Callable[[str], None]  # shows a line of text
    allow_slower: bool  # whether forms may be slower, or take more memory, than the layer


@dataclass
class CompressState(SearchState):
    """What a `CompressSearch` keeps; `choices` and `seconds` are by name of the layer."""

    steps: list[LayerSearch] = field(default_factory=list)
    choices: dict[str, list[Choice]] = field(default_factory=dict)  # forms that no other one beats
    seconds: dict[str, float] = field(default_factory=dict)  # that the search took


class CompressSearch(Search[CompressProblem, CompressState]):
    """Forms for one layer after the other; see `Search`.

    When time is up, or a listener stops the run, the remaining layers get truncated SVDs.
    """

    def __init__(self, problem: CompressProblem, limits: Limits, generator: torch.Generator) -> None:
        super().__init__(problem, limits, CompressState(), Context(generator))
        self.seed = int(torch.randint(2**31, (), generator=generator))
        self._reason = StopReason.INTERRUPTED

    @property
    def has_answer(self) -> bool:
        return len(self.state.choices) == len(self.problem.layers)

    @property
    def is_cut_short(self) -> bool:
        return self.context.deadline == -math.inf

    def wind_down(self) -> bool:
        self._reason = StopReason.CALLBACK
        self.context.deadline = -math.inf
        return False

    def pack(self) -> tuple[dict[str, Json], dict[str, torch.Tensor]]:
        state = self.state
        steps = [s for s in state.steps if s.is_complete]
        names = [s.name for s in steps]
        whole = replace(
            state,
            stop=None,
            elapsed=max((s.seconds for s in steps), default=0.0),
            steps=steps,
            choices={n: state.choices[n] for n in names},
            seconds={n: state.seconds[n] for n in names},
        )
        header, tensors = whole.pack()
        return header, {**tensors, "generator": self.context.generator.get_state()}

    @property
    def _phases(self) -> Mapping[str, Callable[[], None]]:
        return {"start": self._search_next}  # the only phase, and one that limits do not end

    def _search_next(self) -> None:
        state, layers = self.state, self.problem.layers
        left = [n for n in layers if n not in state.choices]
        if not left:
            self._end(self._reason if self.is_cut_short else StopReason.FINISHED)
            return
        name, begin = left[0], time.perf_counter()
        layer, has_time = layers[name], not self.context.is_out_of_time
        try:
            choices, norm = self._search(name, 1.0 / len(left))
        except KeyboardInterrupt:  # outside of a decomposition, which would have handled it
            self.context.deadline = -math.inf
            choices, norm = self._search(name, 1.0 / len(left))
        smallest, sizes = choices[0], known_kind(layer).sizes(layer)
        state.choices[name], state.seconds[name] = choices, time.perf_counter() - begin
        step = LayerSearch(
            index=list(layers).index(name),
            kind="layer",
            edge=None,
            num_parameters=smallest.num_parameters,
            loss=smallest.error * norm,
            relative_error=smallest.error,
            validation_error=None,
            seconds=self.seconds,
            count=len(layers),
            name=name,
            in_features=sizes[0],
            out_features=sizes[1],
            choices=tuple((c.kind, c.num_parameters, c.error) for c in choices),
            is_complete=has_time and not self.is_cut_short,
        )
        state.steps.append(step)

    def _search(self, name: str, share: float) -> tuple[list[Choice], float]:
        """Forms of a layer, and the norm that their errors are relative to."""
        problem, layer = self.problem, self.problem.layers[name]
        site, metric = site_of(layer, problem.inputs.get(name)), Metric.of(layer, problem.inputs.get(name))
        if not bool(torch.isfinite(metric.weight).all()):
            raise DataError(f"the weight of {name} has entries that are not finite; leave it out of `layers`")
        size = metric.weight.numel()
        number = list(problem.layers).index(name) + 1
        title = f"{name or 'model'} ({number} of {len(problem.layers)})"
        wish = Wish(
            max_error=problem.max_error,
            max_parameters=size if problem.room is None else min(problem.room, size),
            effort=problem.effort,
            seed=self.seed,
            context=self.context,
            tell=lambda text: problem.tell(f"{title}: {text}"),
            site=site,
            allow_slower=problem.allow_slower,
        )
        return find_choices(metric, problem.layouts[name], wish, share), metric.norm


@dataclass
class CompressTask(Task[CompressSearch, CompressResult]):
    """A run that compresses a model."""

    problem: CompressProblem
    limits: Limits
    generator: torch.Generator
    model: nn.Module  # the user's
    own: nn.Module  # the copy whose layers are replaced
    batches: list[Any] | None  # inputs of the model; None where there is no calibration data
    budget: int | None  # parameters that the whole model may have; None: any number
    measure: bool  # whether to measure latencies
    left: Mapping[str, str]  # layers that are left alone, and why
    tied: Mapping[str, Mapping[str, nn.Module]]  # layers that share the weight of another, by its name

    def search(self) -> CompressSearch:
        return CompressSearch(self.problem, self.limits, self.generator)

    def identity(self, search: CompressSearch) -> Mapping[str, object]:
        problem = self.problem
        moments = {n: i.outputs for n, i in problem.inputs.items() if i.outputs is not None}
        return {
            "layers": {
                n: fingerprint_tensor(known_kind(m).layer.matrix_of(m)) for n, m in problem.layers.items()
            },
            # Six digits: sums depend on the number of threads in the last ones.
            "calibration": {n: f"{float(i.moment.norm()):.6g}" for n, i in problem.inputs.items()},
            "dims": {n: [x.to_dict() for x in listed] for n, listed in problem.layouts.items()},
            "max_error": problem.max_error,
            "room for the layers": problem.room,
            "effort": problem.effort,
            "seed": search.seed,
            # A file from before there was a choice allowed all.
            **({} if problem.allow_slower else {"allow_slower": False}),
            **({"loss": {n: f"{float(m.norm()):.6g}" for n, m in moments.items()}} if moments else {}),
        }

    def finish(self, search: CompressSearch) -> CompressResult:
        problem, own = self.problem, self.own
        problem.tell("choosing forms and measuring")
        names = list(problem.layers)
        picks = self._pick([search.state.choices[n] for n in names])
        before = self._latency(own)
        reports = []
        for name, choice in zip(names, picks):
            layer, inputs = problem.layers[name], problem.inputs.get(name)
            seconds = search.state.seconds[name]
            new, report = convert(name, layer, inputs, choice, seconds=seconds, measure=self.measure)
            if new is not layer:
                move_hooks(layer, new)
            own = replace_module(own, layer, new)
            tied = self.tied.get(name, {})
            own = tie(own, tied.values(), new)
            reports.append(replace(report, note=_join(report.note, tied)) if tied else report)
        own = pack_attention(own)
        return CompressResult(
            own,
            tuple(reports),
            count_parameters(self.model),
            count_bytes(self.model),
            before,
            self._latency(own),
            describe(
                next(self.model.parameters()),
                max_error=problem.max_error,
                max_parameters=self.budget,
                effort=problem.effort,
                calibrated=self.batches is not None,
                seconds=search.seconds,
                interrupted=search.is_cut_short,
            ),
            self.left,
        )

    def _latency(self, model: nn.Module) -> float | None:
        batches = self.batches
        if batches is None or not self.measure:
            return None
        return median_seconds(lambda: apply(model, batches[0]), model)

    def _weigh(self, choices: Sequence[Sequence[Choice]]) -> Sequence[Sequence[Choice]]:
        """Errors as `allocate` adds them up: relative ones, or what the loss feels where one is given."""
        problem = self.problem
        if all(inputs.outputs is None for inputs in problem.inputs.values()):
            return choices
        norms = [Metric.of(layer, problem.inputs[n]).norm for n, layer in problem.layers.items()]
        return [weigh(listed, norm) for listed, norm in zip(choices, norms)]

    def _pick(self, choices: Sequence[Sequence[Choice]]) -> list[Choice]:
        max_error, room = self.problem.max_error, self.problem.room
        if max_error is not None:
            picks = [c[0] for c in choices]
            needed = sum(c.num_parameters for c in picks)
            if room is not None and needed > room:
                raise OptionError(
                    f"max_error={max_error} needs {needed:,} parameters in the chosen layers, but only "
                    f"{room:,} are left for them; give one of the two limits"
                )
            return picks
        assert room is not None
        at = allocate(self._weigh(choices), room)
        if at is None:
            least = sum(min(sum(x.dims) for x in listed) for listed in self.problem.layouts.values())
            raise OptionError(
                f"{room:,} parameters are left for the chosen layers, but their smallest forms need "
                f"{max(least, room + 1):,}; raise the budget"
            )
        return [c[k] for c, k in zip(choices, at)]


def _join(note: str, tied: Iterable[str]) -> str:
    """The note of a layer whose weight others share."""
    return "; ".join(part for part in (note, f"shared with {', '.join(tied)}") if part)
