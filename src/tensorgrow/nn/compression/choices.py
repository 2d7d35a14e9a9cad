"""Ways to store one weight: low rank, tensor networks of several tensorised shapes, dense."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch

from ...errors import MemoryLimitError
from ...network import TensorNetwork
from ...results import PathPoint, Result, StopReason
from ...search import Effort
from ...structure import Structure
from ...tasks.api import decompose
from ..layer.layout import Layout, digits
from .calibration import Metric

__all__ = ["Choice", "Clock", "allocate", "choices_for", "default_layouts", "pareto"]

# Points of a path that are looked at; evenly spread over the logarithm of the size.
POINTS = 24
# A second search aims this much lower than needed, so that it does not just miss.
AIM = 0.95
# Larger weights are decomposed in single precision, unless the error asked for is very small.
SINGLE_ENTRIES = 1 << 16
SINGLE_ERROR = 1e-4


class Clock:
    """Time that is left; it can be ended early."""

    def __init__(self, seconds: float) -> None:
        self._end = time.perf_counter() + seconds

    @property
    def is_ended(self) -> bool:
        """Whether it was ended, not just over."""
        return self._end == -math.inf

    @property
    def left(self) -> float:
        """Seconds, negative when over."""
        return self._end - time.perf_counter()

    def end(self) -> None:
        """No time is left."""
        self._end = -math.inf


@dataclass(frozen=True)
class Choice:
    """One way to store a weight.

    Attributes
    ----------
    kind
        "dense", "low rank" or "network".
    num_parameters
        Without the bias, an input scale included.
    error
        Relative, in the layer's `Metric`.
    layout
        None for dense.
    rank
        Of a truncated SVD, which is not kept: it is made again from the layer's metric.
    network, scale
        The weight, or the weight divided by an input scale.
    """

    kind: str
    num_parameters: int
    error: float
    layout: Layout | None = None
    rank: int = 0
    network: TensorNetwork | None = field(default=None, compare=False)
    scale: torch.Tensor | None = field(default=None, compare=False)

    def make(self, metric: Metric) -> tuple[TensorNetwork, torch.Tensor | None]:
        """The network, and the input scale where one is needed."""
        assert self.layout is not None
        if self.network is None:
            return _truncated(self.layout, self.rank, metric), None
        return self.network, self.scale


def default_layouts(in_features: int, out_features: int) -> list[Layout]:
    """Digits near 4 and near 16, paired; digits near 16, separate."""
    found = []
    size = max(in_features, out_features, 2)
    for base, paired in ((4, True), (16, True), (16, False)):
        count = max(2, round(math.log(size, base)))
        found.append(Layout(digits(in_features, count), digits(out_features, count), paired))
    return list(dict.fromkeys(found))


def choices_for(
    metric: Metric,
    layouts: Sequence[Layout],
    *,
    max_error: float | None,
    max_parameters: int,
    effort: Effort,
    clock: Clock,
    share: float,
    seed: int,
    tell: Callable[[str], None],
) -> list[Choice]:
    """Choices that no other beats in size and error, by size; the dense weight is the last.

    Parameters
    ----------
    max_error
        None: everything on the way counts. Otherwise only choices within it do.
    max_parameters
        Larger ones are of no use.
    clock, share
        Part of the time left that networks may take; truncated SVDs are always made.
    tell
        Gets a line of text now and then.
    """
    mine = Clock(share * clock.left)
    weight = metric.weight
    found = [Choice("dense", weight.numel(), 0.0)]
    tell(f"{weight.shape[1]} to {weight.shape[0]}, truncated SVDs")
    found += _low_rank(metric, min(max_parameters, weight.numel() - 1))
    searches = [(layout, scaling) for layout in layouts for scaling in _scalings(metric, layout)]
    for n, (layout, scaling) in enumerate(searches):
        left = min(mine.left, clock.left)
        if left <= 0:
            break
        room = min(max_parameters, weight.numel() - 1)
        if max_error is not None:  # only what is smaller than the best so far is of interest
            room = min([room, *(c.num_parameters - 1 for c in found if c.error <= max_error)])
        found += _networks(
            metric, layout, scaling, max_error, room, effort, left / (len(searches) - n), seed, clock, tell
        )
    return pareto(c for c in found if max_error is None or c.error <= max_error)


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
    s = torch.linalg.svdvals(weight if metric.root is None else weight @ metric.root)
    tails = [*s.square().flip(0).cumsum(0).flip(0).sqrt().tolist(), 0.0]
    layout = Layout((columns,), (rows,), paired=False)
    return [
        Choice(
            "low rank",
            rank * (rows + columns),
            tails[rank] / (metric.norm or 1.0),
            layout,
            rank,
        )
        for rank in range(1, min(len(s), max_parameters // (rows + columns)) + 1)
    ]


def _truncated(layout: Layout, rank: int, metric: Metric) -> TensorNetwork:
    """The weight projected onto the leading directions of the outputs.

    Of all optima this one needs no inverse of the moment, and treats inputs unlike those seen as before.
    """
    target = metric.weight if metric.root is None else metric.weight @ metric.root
    u = torch.linalg.svd(target, full_matrices=False)[0][:, :rank]
    right = u.T @ metric.weight
    root = right.norm(dim=1).clamp_min(torch.finfo(right.dtype).tiny).sqrt()
    structure = Structure(layout.dims, {(0, 1): rank})
    cores = [u * root, (right / root[:, None]).T]
    shaped = [c.reshape(shape).contiguous() for c, shape in zip(cores, structure.core_shapes)]
    return TensorNetwork(structure, shaped)


@dataclass(frozen=True)
class _Scaling:
    """Columns multiplied by a vector before a decomposition, and how that is undone.

    Attributes
    ----------
    factors
        One vector per input digit whose outer product is the scale: undone in the cores, at no cost. None:
        any vector, undone by an input scale of the layer.
    """

    vector: torch.Tensor | None = None
    factors: tuple[torch.Tensor, ...] | None = None

    @property
    def extra(self) -> int:
        """Parameters it adds."""
        return 0 if self.vector is None or self.factors is not None else self.vector.numel()

    def undo(self, layout: Layout, network: TensorNetwork) -> tuple[TensorNetwork, torch.Tensor | None]:
        """The network of the weight, or that of the scaled weight with the input scale."""
        if self.vector is None:
            return network, None
        if self.factors is None:
            return network, 1.0 / self.vector
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
    if metric.scale is None:
        return [_Scaling()]
    logs = metric.scale.log().reshape(layout.in_dims)
    logs = logs - logs.mean()
    axes = range(logs.dim())
    parts = [logs.mean([a for a in axes if a != k]) if logs.dim() > 1 else logs for k in axes]
    product = torch.zeros((), dtype=logs.dtype, device=logs.device)
    for part in parts:
        product = product[..., None] + part
    separable = _Scaling(product.exp().reshape(-1), tuple(p.exp() for p in parts))
    return [separable, _Scaling(metric.scale)]


def _networks(
    metric: Metric,
    layout: Layout,
    scaling: _Scaling,
    max_error: float | None,
    max_parameters: int,
    effort: Effort,
    max_seconds: float,
    seed: int,
    clock: Clock,
    tell: Callable[[str], None],
) -> list[Choice]:
    """Networks on the path of a decomposition.

    The error counts all of the second moment, the search only what its scaling stands for: where it ends
    short of the target it goes on once.
    """
    weight, scale = metric.weight, scaling.vector
    extra = scaling.extra
    tensor = layout.to_tensor(weight if scale is None else weight * scale)
    if tensor.numel() > SINGLE_ENTRIES and (max_error is None or max_error > SINGLE_ERROR):
        tensor = tensor.float()
    room = max_parameters - extra
    if room < sum(layout.dims) or not bool(tensor.any()):
        return []
    begin = time.perf_counter()
    goal, init, out = max_error, None, []
    for _ in range(1 if scale is None or max_error is None else 2):
        left = max_seconds - (time.perf_counter() - begin)
        if left <= 0:
            break
        try:
            result = decompose(
                tensor,
                max_error=goal,
                max_parameters=room,
                max_seconds=left,
                effort=effort,
                init=init,
                random_state=seed,
                progress=False,
                callbacks=lambda step: tell(
                    f"{layout}, {step.num_parameters:,} parameters, error {step.relative_error:.3g}"
                ),
            )
        except MemoryLimitError:
            break  # truncated SVDs need less
        made = [_choice(metric, layout, scaling, p.network) for p in _thinned(result)]
        out += made
        if result.stop is StopReason.INTERRUPTED:
            clock.end()  # whatever is left gets truncated SVDs only
            break
        last = min(made, key=lambda c: c.error)
        if max_error is None or goal is None or last.error <= max_error:
            break
        goal, init = AIM * goal * max_error / last.error, result.network
    return out


def _thinned(result: Result) -> list[PathPoint]:
    """Some points of a path, the final network among them."""
    path = [*result.path, PathPoint(result.network, result.relative_error)]
    if len(path) <= POINTS:
        return path
    low, high = (math.log(p.num_parameters) for p in (path[0], path[-1]))
    kept = {round((math.log(p.num_parameters) - low) / max(high - low, 1e-9) * POINTS): p for p in path}
    return [*kept.values(), path[-1]]


def _choice(metric: Metric, layout: Layout, scaling: _Scaling, network: TensorNetwork) -> Choice:
    own, scale = scaling.undo(layout, network)
    dense = layout.to_matrix(own.to_dense()).to(metric.weight)
    error = metric.error(dense if scale is None else dense * scale)
    return Choice("network", own.num_parameters + scaling.extra, error, layout, network=own, scale=scale)


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
