"""Ways to store one weight: low rank, tensor networks of several tensorised shapes, dense."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch

from ...errors import MemoryLimitError
from ...network import TensorNetwork
from ...results import PathPoint, Result
from ...search import Context, Effort, packable
from ...steps import StopReason
from ...structure import Structure
from ...tasks.decompose import decompose
from ..layer.application import Application
from ..layer.layout import Layout
from ..layer.schedules import estimate, estimate_dense
from ..layer.tn_layer import column_scale
from .calibration import Metric

# Points of a path that are looked at, evenly spread over the logarithm of the size: each is contracted to a
# dense weight to measure its error.
POINTS = 24

packable(Layout)


@packable
@dataclass(frozen=True)
class Choice:
    """One way to store a weight: a network of it, or of it divided by an input scale."""

    kind: str  # "dense", "low rank" or "network"
    num_parameters: int  # without the bias, an input scale included
    error: float  # relative, in the layer's `Metric`
    layout: Layout | None = None  # None for dense
    rank: int = 0  # of a truncated SVD, which is computed again when it is used
    network: TensorNetwork | None = field(default=None, compare=False)
    scale: torch.Tensor | None = field(default=None, compare=False)
    note: str = ""  # why it is dense although there is something smaller

    @property
    def structure(self) -> Structure:
        """Of the network, which a truncated SVD is too."""
        assert self.layout is not None
        return self.network.structure if self.network else Structure(self.layout.dims, {(0, 1): self.rank})

    def make(self, metric: Metric) -> tuple[TensorNetwork, torch.Tensor | None]:
        """The network, and the input scale where it needs one."""
        assert self.layout is not None
        if self.network is None:
            return _truncate(self.layout, self.rank, metric), None
        return self.network, self.scale


@dataclass(frozen=True)
class Site:
    """Where a weight is used: by how much, on which device, and in which precision."""

    application: Application
    rows: int
    like: torch.Tensor


@dataclass(frozen=True)
class Wish:
    """What forms of a weight are looked for."""

    max_error: float | None  # None: everything on the way counts; otherwise only choices within it do
    max_parameters: int  # larger ones are of no use
    effort: Effort
    seed: int
    context: Context  # for all weights; Ctrl-C within a decomposition moves its deadline to minus infinity
    tell: Callable[[str], None]  # shows a line of text
    site: Site
    allow_slower: bool  # whether a form may be slower, or take more memory, than the dense weight


def find_choices(metric: Metric, layouts: Sequence[Layout], wish: Wish, share: float) -> list[Choice]:
    """Choices that no other beats in size and error, by size; the dense weight is the last.

    Networks may take a `share` of the time that is left; truncated SVDs are always computed.
    """
    weight, context, max_error = metric.weight, wish.context, wish.max_error
    now = time.perf_counter()
    end = now + share * (context.deadline - now)
    wish.tell(f"{weight.shape[1]} to {weight.shape[0]}, truncated SVDs")
    most = min(wish.max_parameters, weight.numel() - 1)
    rows, columns = weight.shape
    alone = "" if layouts else f"sizes {columns} and {rows} have no digits to make a network of"
    choices = [Choice("dense", weight.numel(), 0.0, note=alone), *_low_rank(metric, most)]
    searches = [(layout, scaling) for layout in layouts for scaling in _scalings(metric, layout)]
    for n, (layout, scaling) in enumerate(searches):
        left = min(end, context.deadline) - time.perf_counter()
        if left <= 0:
            break
        room = most
        if max_error is not None:  # only what is smaller than the best so far is of interest
            room = min([room, *(c.num_parameters - 1 for c in choices if c.error <= max_error)])
        own = replace(wish, max_parameters=room)
        choices += _networks(metric, layout, scaling, own, left / (len(searches) - n))
    within = [c for c in choices if max_error is None or c.error <= max_error]
    return pareto(within if wish.allow_slower else _no_worse(within, metric.weight, wish.site))


def _no_worse(choices: Sequence[Choice], weight: torch.Tensor, site: Site) -> list[Choice]:
    """All that is neither slower nor takes more memory, and the dense weight; its note names what is not."""
    dense, *others = sorted(choices, key=lambda c: (c.layout is not None, c.num_parameters))
    faults: list[str] = []
    good: list[Choice] = []
    seen: set[str] = set()
    for choice in others:
        # A truncated SVD of a larger rank is larger and slower.
        if choice.kind == "low rank" and choice.kind in seen:
            continue
        seen.add(choice.kind)
        fault = fault_of(choice, weight, site, site.application.accepted_faults)
        if fault:
            faults.append(f"a {choice.kind} form of {choice.num_parameters:,} parameters would be {fault}")
        else:
            good.append(choice)
    return [*good, replace(dense, note=faults[0]) if faults and not good else dense]


def fault_of(choice: Choice, weight: torch.Tensor, site: Site, accepted: frozenset[str] = frozenset()) -> str:
    """What is worse than the dense weight, by counted work: "slower", "larger in use", or nothing: ""."""
    if choice.layout is None:
        return ""
    how, rows, like = site.application, site.rows, site.like
    ours = estimate(how, choice.layout, choice.structure, rows, like)
    outputs, inputs = weight.shape
    dense = estimate_dense(how, (inputs, outputs), rows, like)
    faults = [f for f, a, b in zip(("slower", "larger in use"), ours, dense) if a > b and f not in accepted]
    return faults[0] if faults else ""


def pareto(choices: Iterable[Choice]) -> list[Choice]:
    """Choices that no other one beats, by size."""
    out: list[Choice] = []
    for c in sorted(choices, key=lambda c: (c.num_parameters, c.error)):
        if not out or c.error < out[-1].error:
            out.append(c)
    return out


def _low_rank(metric: Metric, max_parameters: int) -> list[Choice]:
    """Truncated SVDs, optimal in the metric: two nodes, one edge."""
    weight = metric.weight
    rows, columns = weight.shape
    s = torch.linalg.svdvals(metric.whiten(weight))
    tails = [*s.square().flip(0).cumsum(0).flip(0).sqrt().tolist(), 0.0]
    layout = Layout((columns,), (rows,), paired=False)
    return [
        Choice("low rank", rank * (rows + columns), tails[rank] / (metric.norm or 1.0), layout, rank)
        for rank in range(1, min(len(s), max_parameters // (rows + columns)) + 1)
    ]


def _truncate(layout: Layout, rank: int, metric: Metric) -> TensorNetwork:
    """The best weight of a rank, both cores of the same size."""
    left, right = metric.project(rank)
    tiny = torch.finfo(right.dtype).tiny
    root = (right.norm(dim=1) / left.norm(dim=0).clamp_min(tiny)).clamp_min(tiny).sqrt()
    structure = Structure(layout.dims, {(0, 1): rank})
    cores = zip((left * root, (right / root[:, None]).T), structure.core_shapes)
    return TensorNetwork(structure, [c.reshape(shape).contiguous() for c, shape in cores])


@dataclass(frozen=True)
class _Scaling:
    """Columns multiplied by a vector before a decomposition, and how that is undone.

    A vector that is the outer product of `factors`, one per input digit, is undone in the cores, at no cost.
    Any other vector is that of an input `scale`, by which the layer undoes it.
    """

    vector: torch.Tensor | None = None
    factors: tuple[torch.Tensor, ...] = ()
    scale: torch.Tensor | None = None

    @property
    def extra(self) -> int:
        """Parameters that it adds."""
        return 0 if self.scale is None else self.scale.numel()

    def undo(self, layout: Layout, network: TensorNetwork) -> tuple[TensorNetwork, torch.Tensor | None]:
        """The network of the weight, or that of the scaled weight with the input scale."""
        if self.scale is not None:
            return network, 1.0 / self.scale
        cores = list(network.cores)
        for k, factor in enumerate(self.factors):
            node = k if layout.paired else len(layout.out_dims) + k
            core, digit = cores[node], layout.in_dims[k]
            rows = core.reshape(layout.dims[node] // digit, digit, -1) / factor.to(core)[:, None]
            cores[node] = rows.reshape(core.shape)
        return TensorNetwork(network.structure, cores), None


def _scalings(metric: Metric, layout: Layout) -> list[_Scaling]:
    """Ways to weigh columns by the size of their input while keeping the tensor format.

    The root mean square of each input, which needs a vector of its own in the layer; and the nearest outer
    product over the digits, which cores absorb and which keeps every structure the weight has.
    """
    if metric.deviation is None or metric.scale is None:
        return [_Scaling()]
    logs = metric.deviation.log()
    logs = logs - logs.mean()
    logs = torch.nn.functional.pad(logs, (0, layout.in_features - len(logs))).reshape(layout.in_dims)
    axes = range(logs.dim())
    parts = [logs.mean([a for a in axes if a != k]) if logs.dim() > 1 else logs for k in axes]
    product = torch.zeros((), dtype=logs.dtype, device=logs.device)
    for part in parts:
        product = product[..., None] + part
    columns = len(metric.deviation)
    separable = _Scaling(product.exp().reshape(-1)[:columns], tuple(p.exp() for p in parts))
    return [separable, _Scaling(column_scale(metric.scale, columns), scale=metric.scale)]


def _networks(
    metric: Metric, layout: Layout, scaling: _Scaling, wish: Wish, max_seconds: float
) -> list[Choice]:
    """Networks on the path of a decomposition.

    The error counts all of the second moment, the search only what its scaling stands for: where it ends
    short of the target, it continues once.
    """
    max_error, vector = wish.max_error, scaling.vector
    tensor = layout.to_tensor(metric.weight if vector is None else metric.weight * vector)
    if tensor.numel() > 1 << 16 and (max_error is None or max_error > 1e-4):
        tensor = tensor.float()  # large, and single precision is exact enough
    room = wish.max_parameters - scaling.extra
    if room < sum(layout.dims) or not bool(tensor.any()):
        return []
    begin = time.perf_counter()
    goal, init = max_error, None
    choices: list[Choice] = []
    for _ in range(1 if vector is None or max_error is None else 2):
        left = max_seconds - (time.perf_counter() - begin)
        if left <= 0:
            break
        try:
            result = decompose(
                tensor,
                max_error=goal,
                max_parameters=room,
                max_seconds=left,
                effort=wish.effort,
                init=init,
                random_state=wish.seed,
                progress=False,
                callbacks=lambda step: wish.tell(
                    f"{layout}, {step.num_parameters:,} parameters, error {step.error:.3g}"
                ),
            )
        except MemoryLimitError:
            break  # truncated SVDs need less
        networks = [_measure(metric, layout, scaling, p.network) for p in _thin_out(result)]
        choices += networks
        if result.stop is StopReason.INTERRUPTED:
            wish.context.deadline = -math.inf  # whatever is left gets truncated SVDs only
            break
        least = min(c.error for c in networks)
        if max_error is None or goal is None or least <= max_error:
            break
        goal, init = 0.95 * goal * max_error / least, result.network  # a little lower, so as not to just miss
    return choices


def _thin_out(result: Result) -> list[PathPoint]:
    """Some points of a path, the final network among them."""
    path = [*result.path, PathPoint(result.network, result.relative_error)]
    if len(path) <= POINTS:
        return path
    low, high = (math.log(p.num_parameters) for p in (path[0], path[-1]))
    some = {round((math.log(p.num_parameters) - low) / max(high - low, 1e-9) * POINTS): p for p in path}
    return [*some.values(), path[-1]]


def _measure(metric: Metric, layout: Layout, scaling: _Scaling, network: TensorNetwork) -> Choice:
    own, scale = scaling.undo(layout, network)
    columns = metric.weight.shape[1]
    dense = layout.to_matrix(own.to_dense())[:, :columns].to(metric.weight)
    error = metric.error(dense if scale is None else dense * column_scale(scale, columns))
    return Choice("network", own.num_parameters + scaling.extra, error, layout, network=own, scale=scale)


def weigh(choices: Sequence[Choice], weight: float) -> list[Choice]:
    """Choices whose errors count so many times, for `allocate`."""
    return [replace(c, error=weight * c.error) for c in choices]


def allocate(choices: Sequence[Sequence[Choice]], budget: int) -> list[int] | None:
    """Which choice of each layer, so that the sum of squared errors is small within a parameter budget.

    Choices of each layer are by size and each smaller error. Growing the layer with the largest drop of
    squared error per parameter, along the convex hull of its choices, is optimal up to the last step; what is
    left is spent on choices off the hull. None: not even the smallest fit.
    """
    at = [0] * len(choices)
    left = budget - sum(c[0].num_parameters for c in choices)
    if left < 0:
        return None
    open_layers = set(range(len(choices)))
    while open_layers:
        steepest = {n: _steepest(choices[n], at[n]) for n in open_layers}
        n = max(steepest, key=lambda k: steepest[k][1])
        target = steepest[n][0]
        cost = choices[n][target].num_parameters - choices[n][at[n]].num_parameters
        if target == at[n] or cost > left:
            open_layers.discard(n)
            continue
        at[n], left = target, left - cost
    while True:
        best, gain = None, 0.0
        for n, points in enumerate(choices):
            here = points[at[n]]
            for k in range(at[n] + 1, len(points)):
                if points[k].num_parameters - here.num_parameters > left:
                    break
                if here.error**2 - points[k].error ** 2 > gain:
                    best, gain = (n, k), here.error**2 - points[k].error ** 2
        if best is None:
            return at
        n, k = best
        left -= choices[n][k].num_parameters - choices[n][at[n]].num_parameters
        at[n] = k


def _steepest(points: Sequence[Choice], at: int) -> tuple[int, float]:
    """The next point on the convex hull and the drop of squared error per parameter towards it."""
    here = points[at]
    best, slope = at, 0.0
    for k in range(at + 1, len(points)):
        drop = here.error**2 - points[k].error ** 2
        rate = drop / (points[k].num_parameters - here.num_parameters)
        if rate > slope:
            best, slope = k, rate
    return best, slope
