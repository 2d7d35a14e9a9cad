"""Decomposition: a small network for a tensor that is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..callbacks.base import Callbacks
from ..data.axes import one_variable
from ..data.blocks import Blocks, as_source, is_lazy
from ..data.tensorization import Shape, Tensorization
from ..errors import DataError, OptionError
from ..network import RandomState, TensorNetwork, as_generator
from ..priors import Priors
from ..results import Errors, Result
from ..search import Context, Edges, Effort, GreedyOptions, GreedySearch, HeldOutSearch, Problem
from ..solvers import SweepGraphs
from .block_tensor import BlockTensor, fits_in_memory
from .complete import as_observation_task
from .entry_task import EntryTask
from .network_data import NetworkTensor, as_network
from .observation_task import Observed
from .request import Bounds, Keywords, Request, pick
from .shapes import as_members
from .task import N, NetworkTask, run_task
from .tensor_data import DenseTensor, TensorData

# Numbers of a network per entry of its tensor from which the tensor is formed: products of sums get there.
# One with 110 asked for 90 GB where its tensor takes 32 KB.
WASTEFUL = 10


def decompose(
    x: Any,
    *,
    priors: Priors | None = None,
    max_error: float | None = None,
    max_parameters: int | None = None,
    max_steps: int | None = None,
    max_seconds: float | None = None,
    edges: Edges = "all",
    split_nodes: bool | None = None,
    effort: Effort = "balanced",
    init: TensorNetwork | None = None,
    random_state: RandomState = None,
    device: torch.device | str | None = None,
    dtype: Any = None,
    names: Sequence[str] | None = None,
    bounds: Bounds | None = None,
    tensorize: Shape | Tensorization | None = None,
    memory_limit: float | None = None,
    progress: bool | None = None,
    callbacks: Callbacks = None,
    checkpoint: str | Path | None = None,
    options: GreedyOptions | None = None,
) -> Result:
    """Find a small tensor network for a tensor.

    Parameters
    ----------
    x
        The tensor: NumPy, torch, xarray, a pandas frame (as a matrix) or anything with ``__array__``, real or
        complex. It is not modified, and `Result.to_array` answers in its kind. Arrays that are not in memory
        (zarr, dask, h5py, lazy xarray, `numpy.memmap`) are read block by block where they do not fit;
        `Blocks` says how. Or a network, for a smaller one with the same or another graph: a `TensorNetwork`,
        the `Result` of a run, a network of quimb, or a train, ring, Tucker or CP tensor of TensorLy. Its
        tensor is never formed.
    priors
        What is known of the axes, as for `complete`: "nonnegative" for parts that add up, for example. All
        entries are fitted as those of a completion, in memory, and nothing is held out: strengths that are
        left open are 0.1. Networks grow without the bounds and the ways back of other decompositions, so
        that they are larger. To have strengths chosen, use `complete` or `fit`.
    max_error
        Smallest network with ``||x - x_hat|| <= max_error * ||x||``.
    max_parameters
        Best network with at most so many parameters.
    max_steps, max_seconds
        Stop after so many steps, or so long.
    edges
        Pairs of modes that may be joined: "all", "chain", "ring", or a list of pairs. A `Structure` stands
        for its graph, internal nodes included: ``edges=network.structure`` only lowers the ranks.
    split_nodes
        Whether internal nodes may be added; by default when `edges` is "all".
    effort
        "fast": one growth. "balanced": lookahead, pruning, splits, more starts while the target looks exactly
        representable. "thorough": keeps improving until `max_seconds` (a minute by default).
    init
        A network to start from instead of rank one.
    random_state
        Seed or generator; one seed reproduces a run on the same machine.
    device
        Where to compute: None (where the data is), "auto", "cpu", "cuda". The result stays there, except that
        "auto" brings it back to the data. "auto" takes a GPU where sweeps are costly, from the start or once
        they have become so. What does not fit on a GPU is computed on the CPU, with a warning.
    dtype
        Precision to compute in; by default that of the data (whole numbers become float64).
    names
        Names of the axes, such as ``("x", "y", "z", "t")``, for tables, pictures and pages; by default those
        of an xarray array, or of the rows and columns of a frame.
    bounds
        Least and largest value, either None: ``(0, None)`` for counts. What `Result.predict`, `fill` and
        `to_array` give is moved to the nearest bound, also where `complete` reports the error on hidden
        entries; the network itself, and its other errors, are not.
    tensorize
        Cut long axes into digits first: "auto" chooses how, anything else is as for `tensorgrow.tensorize`.
        `Result.to_array`, `fill` and `predict` answer in the shape of `x`. Where axes have to be padded, the
        error is that of the padded array.
    memory_limit
        Bytes that may be taken beyond the data; by default what is free. What would take more is worked on in
        smaller pieces, left out, or refused. The process may grow by 1.2 times this and 64 MB, which the
        allocator and libraries keep.
    progress
        Show a live line; by default when the terminal is interactive and rich is installed.
    callbacks
        Functions of a `Step`, or objects with ``on_start``, ``on_step``, ``on_end``; a true answer stops.
    checkpoint
        A file that stores the state. When it exists the run resumes from it.
    options
        Everything rarer; overrides what `effort` stands for.

    Returns
    -------
    Result
        Network, error, history and the reason the run stopped. Ctrl-C returns the best so far.

    Examples
    --------
    >>> import numpy as np
    >>> u, v, w = np.eye(3)[0], np.arange(4.0), np.ones(5)
    >>> x = np.einsum("i,j,k->ijk", u, v, w)
    >>> decompose(x, max_error=1e-8, random_state=0).num_parameters
    12
    """
    if priors is not None:
        return _decompose_entries(x, pick(locals()))
    request = Request.parse("decompose", GreedySearch, GreedyOptions.for_effort, **pick(locals()))
    return run_task(DecomposeTask(as_tensor_data(x, request)), request.audience)


def _decompose_entries(x: Any, keywords: Keywords) -> Result:
    """Decompose by the search that knows priors: all entries are observed, and none is held out."""
    request = Request.parse("decompose", HeldOutSearch, GreedyOptions.for_completion, **keywords)
    if isinstance(request.tensorize, str):
        raise OptionError(
            'tensorize="auto" goes by the error alone, not by priors; say how to cut the axes, or leave one '
            "of them out"
        )
    if request.options.ridge is None:  # the error on x itself counts, and nothing could choose a ridge
        request = replace(request, options=request.options.replace(ridge=0.0))
    task = as_observation_task(Observed(one_variable(x), validation=False), request)
    if not isinstance(task, EntryTask) or task.num_observations < math.prod(task.shape):
        raise DataError("decompose needs every entry of x; for some of them there is tensorgrow.complete")
    return run_task(as_members(task, 1)[0], request.audience)


def as_tensor_data(x: Any, request: Request, norm: float | None = None) -> TensorData:
    """Take a tensor into memory, or block by block where it does not fit or the user says so.

    One that is given by a network stays one, unless that is far larger than the tensor itself. `norm` is that
    of an array in memory, where it is known.
    """
    network = as_network(x)
    if network is not None and network.num_parameters > WASTEFUL * network.structure.num_entries:
        x = network.to_dense().detach()
    elif network is not None:
        known = NetworkTensor(network, request)
        known.note_axes(x)
        return known
    x = one_variable(x)
    by_blocks = isinstance(x, Blocks) or (is_lazy(x) and not fits_in_memory(x, request))
    if by_blocks and request.tensorize is not None:
        raise DataError(
            "tensorize needs an array in memory; this one is read block by block. Store it in the shape of "
            "the tensor, or leave tensorize out"
        )
    data: TensorData = (
        BlockTensor(x, request)
        if by_blocks
        else DenseTensor(as_source(x).load() if is_lazy(x) else x, request, norm)
    )
    data.note_axes(x.x if isinstance(x, Blocks) else x)
    return data


class TensorTask(NetworkTask[N]):
    """A run on a tensor that is known."""

    def __init__(self, data: TensorData) -> None:
        self.data = data
        self.request = data.request
        self.shape = data.shape
        self.home = data.home
        self.axes, self.container, self.how = data.axes, data.container, data.how
        self.generator = as_generator(data.request.random_state)

    @property
    def probe(self) -> torch.Tensor:
        return self.data.probe

    @property
    def exponent(self) -> int:
        return self.data.exponent

    @property
    def is_zero(self) -> bool:
        return self.data.is_zero

    def fingerprint(self) -> Mapping[str, object]:
        return self.data.fingerprint()

    def about(self) -> Mapping[str, object]:
        return self.data.about()

    def threads(self) -> AbstractContextManager[None]:
        return self.data.threads(searches=self.structure is None)

    def finish(self, search: N) -> Result:
        answer = search.answer
        assert answer is not None
        network = answer.network.to(self.data.probe.device)
        moved = isinstance(search.problem, Problem) and torch.device(search.problem.objective.device).type
        device = "cuda" if moved == "cuda" else str(self.probe.device)
        return self.result(search, network, Errors(self.data.error(network)), device=device)


class DecomposeTask(TensorTask[GreedySearch]):
    """The search for a network."""

    def search(self) -> GreedySearch:
        request, policy = self.request, self.policy
        objective, bounds = self.data.prepare(self.first)
        memory = self.data.memory_limit
        problem = Problem(
            objective,
            request.options,
            policy,
            Context(self.generator, graphs=SweepGraphs(memory)),
            target=(request.limits.max_error or 0.0) * self.data.share * objective.norm,
            max_parameters=request.limits.max_parameters,
            memory_limit=memory,
            split_nodes=request.splits_nodes(policy),
            bounds=bounds,
            elsewhere=request.elsewhere(torch.device(objective.device)),
        )
        proposals = () if request.init is not None else self.data.proposals()
        # A small core is computed on the CPU.
        start = replace(self.start(), device=objective.device, proposals=proposals)
        return GreedySearch(problem, request.limits, start)
