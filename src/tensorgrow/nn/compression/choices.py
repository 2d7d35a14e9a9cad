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
from .calibration import Metric
from .polish import polish

# Points of a path that are looked at, evenly spread over the logarithm of the size: each is contracted to a
# dense weight to measure its error.
POINTS = 24

packable(Layout)


@packable
@dataclass(frozen=True)
class Choice:
    """One way to store a weight."""

    kind: str  # "dense", "low rank" or "network"
    num_parameters: int  # without the bias
    error: float  # relative, in the layer's `Metric`
    layout: Layout | None = None  # None for dense
    rank: int = 0  # of a truncated SVD, which is computed again when it is used
    network: TensorNetwork | None = field(default=None, compare=False)
    note: str = ""  # why it is dense although there is something smaller

    @property
    def structure(self) -> Structure:
        """Of the network, which a truncated SVD is too."""
        assert self.layout is not None
        return self.network.structure if self.network else Structure(self.layout.dims, {(0, 1): self.rank})

    def make(self, metric: Metric) -> TensorNetwork:
        """The network."""
        assert self.layout is not None
        return _truncate(self.layout, self.rank, metric) if self.network is None else self.network


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
    for n, layout in enumerate(layouts):
        left = min(end, context.deadline) - time.perf_counter()
        if left <= 0:
            break
        room = most
        if max_error is not None:  # only what is smaller than the best so far is of interest
            room = min([room, *(c.num_parameters - 1 for c in choices if c.error <= max_error)])
        own = replace(wish, max_parameters=room)
        choices += _networks(metric, layout, own, left / (len(layouts) - n))
    within = [c for c in choices if max_error is None or c.error <= max_error]
    found = pareto(within if wish.allow_slower else _no_worse(within, metric.weight, wish.site))
    return found if max_error is None else _from_first_held(found, metric, wish.site, max_error)


def _from_first_held(choices: list[Choice], metric: Metric, site: Site, max_error: float) -> list[Choice]:
    """Choices from the smallest on that is within the error as it is stored: in the layer's own precision."""
    for k, choice in enumerate(choices):
        if choice.layout is None:
            return choices[k:]
        # About what rounding adds; errors of the cores are independent.
        rounding = choice.structure.num_nodes * torch.finfo(site.like.dtype).eps
        if math.hypot(choice.error, rounding) <= max_error:
            return choices[k:]
        stored = choice.make(metric).to(dtype=site.like.dtype)
        if _measure(metric, choice.layout, stored).error <= max_error:
            return choices[k:]
        if choice.error < max_error / 2:  # it is rounding that is too much, and will be for all others
            break
    return [replace(choices[-1], note=f"no smaller form is within the error as {site.like.dtype}")]


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
    """Columns multiplied by the outer product of `factors`, one per input digit, before a decomposition."""

    factors: tuple[torch.Tensor, ...] = ()

    def apply(self, weight: torch.Tensor) -> torch.Tensor:
        """The weight with its columns multiplied."""
        if not self.factors:
            return weight
        product = torch.ones((), dtype=weight.dtype, device=weight.device)
        for factor in self.factors:
            product = product[..., None] * factor
        return weight * product.reshape(-1)[: weight.shape[1]]

    def undo(self, layout: Layout, network: TensorNetwork) -> TensorNetwork:
        """The network of the weight: cores absorb the factors."""
        cores = list(network.cores)
        for k, factor in enumerate(self.factors):
            node = k if layout.paired else len(layout.out_dims) + k
            core, digit = cores[node], layout.in_dims[k]
            rows = core.reshape(layout.dims[node] // digit, digit, -1) / factor.to(core)[:, None]
            cores[node] = rows.reshape(core.shape)
        return TensorNetwork(network.structure, cores)


def _scaling(metric: Metric, layout: Layout) -> _Scaling:
    """Columns by the size of their input: of all that keep the tensor format, the nearest."""
    if metric.deviation is None:
        return _Scaling()
    logs = metric.deviation.log()
    logs = logs - logs.mean()
    logs = torch.nn.functional.pad(logs, (0, layout.in_features - len(logs))).reshape(layout.in_dims)
    axes = range(logs.dim())
    parts = [logs.mean([a for a in axes if a != k]) if logs.dim() > 1 else logs for k in axes]
    return _Scaling(tuple(p.exp() for p in parts))


def _networks(metric: Metric, layout: Layout, wish: Wish, max_seconds: float) -> list[Choice]:
    """Networks on the path of a decomposition, fitted to the metric where it is not the plain norm.

    The search knows of the metric only what its scaling stands for: where it ends short of the target, it
    continues once.
    """
    max_error, scaling = wish.max_error, _scaling(metric, layout)
    tensor = layout.to_tensor(scaling.apply(metric.weight))
    if tensor.numel() > 1 << 16 and (max_error is None or max_error > 1e-4):
        tensor = tensor.float()  # large, and single precision is exact enough
    room = wish.max_parameters
    if room < sum(layout.dims) or not bool(tensor.any()):
        return []
    begin = time.perf_counter()
    goal, init = max_error, None
    choices: list[Choice] = []
    for _ in range(2):
        left = max_seconds - (time.perf_counter() - begin)
        if left <= 0:
            break
        try:
            result = decompose(
                tensor,
                max_error=goal,
                max_parameters=room,
                max_seconds=left if metric.is_plain else left / 2,  # the rest is for fits
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
        networks = [scaling.undo(layout, p.network) for p in _thin_out(result, metric)]
        if not metric.is_plain:
            wish.tell(f"{layout}, fitted to the outputs")
            networks = _polish_all(metric, layout, networks, begin + max_seconds)
        found = [_measure(metric, layout, n) for n in networks]
        choices += found
        if result.stop is StopReason.INTERRUPTED:
            wish.context.deadline = -math.inf  # whatever is left gets truncated SVDs only
            break
        least = min(c.error for c in found)
        if max_error is None or goal is None or least <= max_error:
            break
        init = result.network
        if not metric.is_plain:
            goal = 0.95 * goal * max_error / least  # a little lower, so as not to just miss
        elif result.stop is not StopReason.NO_PROGRESS:
            break  # a limit ended it
    return choices


def _thin_out(result: Result, metric: Metric) -> list[PathPoint]:
    """Some points of a path, the final network among them."""
    path = [*result.path, PathPoint(result.network, result.relative_error)]
    points = POINTS if metric.is_plain else POINTS // 2  # a fit of each takes a tenth of a second and more
    if len(path) <= points:
        return path
    low, high = (math.log(p.num_parameters) for p in (path[0], path[-1]))
    some = {round((math.log(p.num_parameters) - low) / max(high - low, 1e-9) * points): p for p in path}
    return [*some.values(), path[-1]]


def _polish_all(
    metric: Metric, layout: Layout, networks: Sequence[TensorNetwork], deadline: float
) -> list[TensorNetwork]:
    """Each network fitted to the metric, as long as there is time: every other one first, then the rest."""
    out = list(networks)
    for k in [*range(len(out) - 1, -1, -2), *range(len(out) - 2, -1, -2)]:
        out[k] = polish(metric, layout, out[k], deadline)
    return out


def _measure(metric: Metric, layout: Layout, network: TensorNetwork) -> Choice:
    dense = layout.to_matrix(network.to_dense())[:, : metric.weight.shape[1]].to(metric.weight)
    return Choice("network", network.num_parameters, metric.error(dense), layout, network=network)


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
