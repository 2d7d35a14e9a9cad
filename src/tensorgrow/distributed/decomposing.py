"""Decompositions of tensors that are read block by block."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ..blocks import ArraySource, BlockSource, Form, Partial, Reducer, ThreadReducer, as_source
from ..data import GPU_ENTRIES, as_dtype, check_memory, choose_device, compute_dtype, free_memory, scale_for
from ..decomposing import Request, Target
from ..errors import DataError, OptionError, check_choice
from ..linalg import one_thread
from ..network import RandomState, TensorNetwork
from ..objectives import BlockedLeastSquares, CompressedLeastSquares, Model, SquaredResidual, Survey
from ..objectives.blocked import COPIES_OF_A_BLOCK
from ..results import Result
from ..running import DOUBLE_ENTRIES, all_zero, check_init, positive_limit
from ..search import CutBounds, Effort, GreedyOptions
from ..structure import Edge, Structure
from .cluster import ClientReducer, active_client, checked, least_memory, most_threads
from .sketching import SECOND_SKETCH, SKETCH, Compression, Ranges, find_core, find_ranges

__all__ = ["decompose", "decompose_blocks", "fits_in_memory"]

Method = Literal["auto", "compress", "stream"]

# Copies of the tensor that a decomposition in memory takes: the data, another order, the residual, products.
COPIES_IN_MEMORY = 5
# Half of the memory is for blocks. Where chunks allow it they have at most so many entries: what is read stays
# in the cache until it is computed with.
BLOCK_SHARE = 0.5
BLOCK_ENTRIES = 1 << 21
# On a GPU, starting kernels takes longer than small blocks are read.
DEVICE_BLOCK_ENTRIES = 1 << 28
# Numbers of double precision per entry of the core while it is cut and searched.
CORE_COPIES = 8
# Share of the error target that compressing the modes may take: errors add up as squares, so the search on
# the core is left with 0.87 of it. Without a target, what it may leave out.
COMPRESSION_SHARE = 0.5
COMPRESSION_ERROR = 1e-3


def decompose(
    x: Any,
    *,
    method: Method = "auto",
    client: Any = None,
    threads: int | None = None,
    max_error: float | None = None,
    max_parameters: int | None = None,
    max_steps: int | None = None,
    max_seconds: float | None = None,
    edges: Literal["all", "chain", "ring"] | Iterable[Edge] = "all",
    split_nodes: bool | None = None,
    effort: Effort = "balanced",
    init: TensorNetwork | None = None,
    random_state: RandomState = None,
    device: torch.device | str | None = None,
    dtype: Any = None,
    memory_limit: float | None = None,
    progress: bool | None = None,
    callbacks: Any = None,
    checkpoint: str | Path | None = None,
    options: GreedyOptions | None = None,
) -> Result:
    """Decompose a tensor block by block, whether it fits in memory or not.

    `tensorgrow.decompose` does the same for arrays that are not in memory and do not fit; here the way it is
    done can be chosen. Further arguments are those of `tensorgrow.decompose`.

    Parameters
    ----------
    x
        A zarr, dask, h5py or xarray array, a `numpy.memmap`, a NumPy array or a torch tensor.
    method
        "compress": two passes find orthonormal bases of the modes and the tensor in them, the search runs on
        that small core, one pass verifies the error. "stream": every sweep makes two passes over the data.
        "auto": the first where the core is small enough, else the second.
    client
        A ``dask.distributed.Client``; by default the active one. Without any, threads of this process.
    threads
        Threads without a client; by default one per core, two at least.
    memory_limit
        Bytes that this process and every worker may take, beyond a tensor that is in memory already.

    Returns
    -------
    Result
        As from `tensorgrow.decompose`; `info` has the method, the passes and the bytes per pass.
    """
    request = Request.parse(
        max_error=max_error,
        max_parameters=max_parameters,
        max_steps=max_steps,
        max_seconds=max_seconds,
        effort=effort,
        options=options,
        edges=edges,
        split_nodes=split_nodes,
        init=init,
        random_state=random_state,
        progress=progress,
        callbacks=callbacks,
        checkpoint=checkpoint,
    )
    return decompose_blocks(
        x,
        request,
        device=device,
        dtype=as_dtype(dtype),
        memory_limit=None if memory_limit is None else positive_limit(memory_limit),
        method=method,
        client=client,
        threads=threads,
    )


def fits_in_memory(x: Any, dtype: torch.dtype | None, memory_limit: float | None) -> bool:
    """Whether a lazy array can be decomposed in memory."""
    source = as_source(x)
    limit = free_memory(torch.device("cpu")) if memory_limit is None else memory_limit
    item = torch.empty((), dtype=compute_dtype(source.dtype, dtype)).element_size()
    return COPIES_IN_MEMORY * item * math.prod(source.shape) <= limit


def decompose_blocks(
    x: Any,
    request: Request,
    *,
    device: torch.device | str | None,
    dtype: torch.dtype | None,
    memory_limit: float | None,
    method: Method = "auto",
    client: Any = None,
    threads: int | None = None,
) -> Result:
    """As `decompose`, for arguments that are parsed already."""
    check_choice("method", method, ("auto", "compress", "stream"))
    with one_thread():  # blocks are worked on by threads of ours
        return _decomposed(x, request, device, dtype, memory_limit, method, client, threads)


def _decomposed(
    x: Any,
    request: Request,
    device: torch.device | str | None,
    dtype: torch.dtype | None,
    memory_limit: float | None,
    method: Method,
    client: Any,
    threads: int | None,
) -> Result:
    source = as_source(x)
    computed = compute_dtype(source.dtype, dtype)
    shape = source.shape
    if not shape or math.prod(shape) == 0:
        raise DataError(f"the tensor is empty or a single number: its shape is {shape}")
    request.policy(len(shape))
    probe = torch.empty((), dtype=computed, device=_device_of(source))
    check_init(request.init, shape, probe)
    first = Structure.rank_one(shape) if request.init is None else request.init.structure
    request.limits.check_size(first.num_parameters)
    where = choose_device(device, probe.expand(shape))
    limit = free_memory(where) if memory_limit is None else memory_limit
    form = Form(str(computed).removeprefix("torch."), None if where.type == "cpu" else str(where))
    reducer = _reducer(source, form, limit, client, threads)

    reducer, survey, ranges = _survey(reducer, sketch=method != "stream")
    norm = math.sqrt(sum(v for k, v in survey.sums.items() if _is_squares(k)))
    if norm == 0.0:
        return all_zero(first, probe.to(where), where)
    numbers = _fingerprint(survey, computed, where)
    about = Target(numbers, where, reducer.form.scale, lambda network: _verified(reducer, network, norm))
    if ranges is not None:
        small = _compressed(reducer, ranges, request, norm, limit)
        if small is not None:
            return _on_core(request, small, about, computed, where, limit, reducer)
        if method == "compress":
            raise OptionError(
                "method='compress', but the modes do not compress: the core would not fit in the memory "
                "limit or leave out too much. Use method='stream', or a larger max_error or memory_limit"
            )
    objective = BlockedLeastSquares(reducer, norm)
    check_memory(objective.memory_needed(first), limit, f"streaming a tensor of shape {shape}")
    return _finished(request.solve(objective, about, limit, None), reducer, "stream")


def _on_core(
    request: Request,
    small: Compression,
    about: Target,
    dtype: torch.dtype,
    device: torch.device,
    limit: float,
    reducer: Reducer,
) -> Result:
    """The search on the core of a compression."""
    if small.core.numel() < GPU_ENTRIES:
        device = torch.device("cpu")
        about = replace(about, probe=about.probe.cpu())
    core = small.core.to(device=device, dtype=dtype)
    bases = [None if u is None else u.to(device=device, dtype=dtype) for u in small.bases]
    objective = CompressedLeastSquares(core, bases, small.rest)
    bounds = None
    if request.wants_bounds and request.limits.max_error:
        allowed = (request.limits.max_error * objective.norm) ** 2 - small.rest**2
        inside = float(torch.linalg.vector_norm(small.core))
        bounds = CutBounds(core, math.sqrt(allowed) / inside, bases=bases)
    result = request.solve(objective, about, limit, bounds)
    ranks = [int(n) for n in core.shape]
    return _finished(
        result, reducer, "compress", multilinear_ranks=ranks, left_out=small.rest / objective.norm
    )


def _finished(result: Result, reducer: Reducer, method: str, **more: Any) -> Result:
    """The result with what was read for it."""
    info = {
        **result.info,
        "method": method,
        "passes": reducer.passes,
        "bytes_per_pass": math.prod(reducer.source.shape) * reducer.source.itemsize,
        "blocks": len(reducer.boxes),
        **more,
    }
    return replace(result, info=info)


# -- before the search ---------------------------------------------------------------------------------


def _device_of(source: BlockSource) -> torch.device:
    array = source.array if isinstance(source, ArraySource) else None
    return array.device if isinstance(array, torch.Tensor) else torch.device("cpu")


def _reducer(source: BlockSource, form: Form, limit: float, client: Any, threads: int | None) -> Reducer:
    """Who sums over the blocks, and how large they are."""
    if client is None and threads is None and type(source) is not ArraySource:
        client = active_client()
    item = max(source.itemsize, np.dtype(form.dtype).itemsize)
    if client is not None:
        limit = min(limit, checked(client, lambda: least_memory(client)))
        boxes = source.boxes(*_block_entries(limit, checked(client, lambda: most_threads(client)), item, form))
        return ClientReducer(source, boxes, form, client)
    if threads is None:
        here = form.device is not None and _device_of(source).type != "cpu"
        threads = 1 if here else max(2, os.cpu_count() or 1) if form.device is None else 2
    if threads < 1:
        raise OptionError(f"threads={threads} must be at least 1")
    return ThreadReducer(source, source.boxes(*_block_entries(limit, threads, item, form)), form, threads)


def _block_entries(limit: float, at_once: int, item: int, form: Form) -> tuple[int, int]:
    """Entries that a block may have, and should have."""
    allowed = BLOCK_SHARE * limit / (at_once * (COPIES_OF_A_BLOCK + 1) * item)
    return int(max(1.0, allowed)), BLOCK_ENTRIES if form.device is None else DEVICE_BLOCK_ENTRIES


def _compressed(
    reducer: Reducer, ranges: Ranges, request: Request, norm: float, limit: float
) -> Compression | None:
    """The tensor in bases of its modes; from a larger sketch where the first leaves out too much."""
    allowed = COMPRESSION_SHARE * (request.limits.max_error or 0.0) or COMPRESSION_ERROR
    entries = limit / (8 * CORE_COPIES)
    small = find_core(reducer, ranges, norm, allowed, entries)
    if small is not None or max(reducer.source.shape) <= SKETCH:
        return small
    return find_core(reducer, find_ranges(reducer, SECOND_SKETCH), norm, allowed, entries)


def _survey(reducer: Reducer, sketch: bool) -> tuple[Reducer, Partial, Ranges | None]:
    """First pass: norm, largest entry, what is not finite, and the ranges of the modes where asked for.

    Made again with scaled data in the rare case that squares would overflow or vanish.
    """
    while True:
        ranges = find_ranges(reducer) if sketch else None
        found = reducer.reduce(Survey()) if ranges is None else ranges.survey
        if not math.isfinite(found.largest):
            bad = [k[1] for k, v in found.sums.items() if _is_squares(k) and not math.isfinite(v)]
            name = reducer.source.name(bad[0]) if bad else "a block"
            raise DataError(
                f"{len(bad)} blocks of {reducer.source.label} have entries that are not finite; the first is "
                f"{name}. Remove or fill them first"
            )
        scale = scale_for(found.largest)
        if scale == 1.0:
            return reducer, found, ranges
        reducer = reducer.with_form(replace(reducer.form, scale=scale * reducer.form.scale))


def _is_squares(key: Any) -> bool:
    return isinstance(key, tuple) and key[0] == "squares"


def _fingerprint(found: Partial, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Numbers that tell one tensor from another: the norms of its blocks."""
    norms = [math.sqrt(v) for k, v in found.sums.items() if _is_squares(k)]
    return torch.tensor(norms, dtype=dtype, device=device)


def _verified(reducer: Reducer, network: TensorNetwork, norm: float) -> float:
    """Relative error from the residual, in one pass that also checks that the data is still the same."""
    objective = BlockedLeastSquares(reducer, norm)
    double = {"float32": "float64", "complex64": "complex128"}
    if math.prod(reducer.source.shape) <= DOUBLE_ENTRIES and reducer.form.dtype in double:
        form = replace(reducer.form, dtype=double[reducer.form.dtype])
        objective = BlockedLeastSquares(reducer.with_form(form), norm)
    model = Model(network.structure, tuple(objective.to_arrays(network)))
    sums = objective.reducer.reduce(SquaredResidual((model,))).sums
    if abs(sums["data"] - norm**2) > 1e-5 * norm**2:
        raise DataError(
            f"{reducer.source.label} changed while it was read: its norm was {norm:.6g} and is now "
            f"{math.sqrt(sums['data']):.6g}. Run again on data that nobody writes to"
        )
    return math.sqrt(sums["residual"] / sums["data"])
