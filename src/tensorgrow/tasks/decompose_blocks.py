"""Decompositions of tensors that are read block by block."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch

from ..data.arrays import as_dtype, compute_dtype
from ..data.blocks import as_source
from ..data.devices import check_memory, free_memory, one_thread, parse_memory_limit
from ..errors import OptionError, check_choice
from ..network import RandomState, TensorNetwork
from ..results import Result
from ..search import CutBounds, Effort, GreedyOptions
from ..structure import Edge, Structure
from .block_target import SmallCore, open_blocks, probe_of
from .fit import FitRequest
from .request import Request
from .task import all_zero, check_init

__all__ = ["decompose", "decompose_blocks", "fit_blocks", "fits_in_memory"]

Method = Literal["auto", "compress", "stream"]

# Copies of the tensor that a decomposition in memory takes: the data, another order, the residual, products.
COPIES_IN_MEMORY = 5


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
        Threads without a client; by default one per core, two at least. For a GPU, threads that read ahead
        and fill the memory it copies from: by default one per core, two to eight.
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
        memory_limit=parse_memory_limit(memory_limit),
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
    source = as_source(x)
    probe = probe_of(source, dtype)
    request.policy(len(source.shape))
    check_init(request.init, source.shape, probe)
    first = Structure.rank_one(source.shape) if request.init is None else request.init.structure
    request.limits.check_size(first.num_parameters)
    with one_thread():  # blocks are worked on by threads of ours
        data = open_blocks(
            source,
            probe,
            device=device,
            memory_limit=memory_limit,
            client=client,
            threads=threads,
            sketch=method != "stream",
        )
        if data.is_zero:
            return all_zero(first, data.about.probe, data.about.home)
        small = data.compressed(request.limits.max_error)
        if small is not None:
            result = request.solve(small.objective, small.about, data.limit, _bounds(request, small))
            return _noted(result, data.info("compress") | small.info)
        if method == "compress":
            raise OptionError(
                "method='compress', but the modes do not compress: the core would not fit in the memory "
                "limit or leave out too much. Use method='stream', or a larger max_error or memory_limit"
            )
        objective = data.whole()
        what = f"streaming a tensor of shape {source.shape}"
        check_memory(objective.memory_needed(first), data.limit, what)
        return _noted(request.solve(objective, data.about, data.limit, None), data.info("stream"))


def _bounds(request: Request, small: SmallCore) -> CutBounds | None:
    """Lower bounds from the spectra of the core."""
    if not (request.wants_bounds and request.limits.max_error):
        return None
    allowed = (request.limits.max_error * small.objective.norm) ** 2 - small.rest**2
    inside = float(torch.linalg.vector_norm(small.core))
    return CutBounds(small.core, math.sqrt(allowed) / inside, bases=small.bases)


def fit_blocks(
    x: Any,
    request: FitRequest,
    *,
    device: torch.device | str | None,
    dtype: torch.dtype | None,
    memory_limit: float | None,
) -> Result:
    """Fit a given structure block by block.

    First on the core, where the modes compress; then, where what that leaves out matters, on the blocks.
    """
    source = as_source(x)
    probe = probe_of(source, dtype)
    request.check(source.shape)
    check_init(request.init, source.shape, probe)
    structure = request.structure
    with one_thread():
        data = open_blocks(
            source,
            probe,
            device=device,
            memory_limit=memory_limit,
            client=None,
            threads=None,
            sketch=True,
        )
        if data.is_zero:
            return all_zero(structure, data.about.probe, data.about.home)
        small, whole = data.compressed(request.max_error), data.whole()
        needed = whole.memory_needed(structure, pairs=False)
        if small is None:
            check_memory(needed, data.limit, f"streaming {structure.num_parameters:,} parameters")
            return _noted(request.solve([whole], data.about), data.info("stream"))
        objectives = [small.objective, *([whole] if needed <= data.limit else [])]
        result = request.solve(objectives, small.about)
        return _noted(result, data.info("compress") | small.info)


def _noted(result: Result, more: dict[str, Any]) -> Result:
    """The result with what was read for it."""
    return replace(result, info={**result.info, **more})
