"""TT-ALS and TR-ALS completion (Wang, Aggarwal, Aeron; ICCV 2017) by least squares on observed entries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Literal, Unpack

import torch

from ..data.arrays import as_dtype
from ..data.observations import Observations, as_observations
from ..errors import check_choice
from ..network import TensorNetwork, as_generator
from ..results import Result
from ..structure import Structure
from ..tasks.fit import fit
from ..tasks.task import run_task
from .common import Common, parse_request
from .formats import capped_train
from .rank_search import RankProblem, RankTask
from .svd import train_of_ranks


class EntryKeywords(Common, total=False):
    """Keywords of completions by ALS; they mean what they mean for `fit` where entries are missing."""

    weights: Any
    validation: Any
    truth: Any
    ridge: float | None
    max_sweeps: int | None
    tolerance: float | None


def tt_als(
    x: Any,
    mask: Any = None,
    *,
    ranks: Iterable[int] | None = None,
    start: Literal["spectral", "random"] = "spectral",
    **common: Unpack[EntryKeywords],
) -> Result:
    """Complete a tensor by a tensor train of uniform rank, cores updated in turn by least squares.

    Parameters
    ----------
    x, mask
        As for `complete`.
    ranks
        Ranks to try; by default 1, 2, 3, ... until the parameter budget is used up or the held-out error has
        not fallen for three ranks. The rank with the smallest held-out error is the answer.
    start
        "spectral": successive SVDs of the zero-filled tensor, as published. "random".

    Notes
    -----
    Held-out entries choose the ridge unless it is set; the published method has none.
    """
    return _raise_rank("tt_als", capped_train, x, mask, ranks, start, common)


def tr_als(
    x: Any,
    mask: Any = None,
    *,
    ranks: Iterable[int] | None = None,
    start: Literal["spectral", "random"] = "spectral",
    **common: Unpack[EntryKeywords],
) -> Result:
    """Complete a tensor by a tensor ring of uniform rank; see `tt_als`.

    A spectral start is that of a train, its ends joined by slices of small noise.
    """
    return _raise_rank("tr_als", Structure.tensor_ring, x, mask, ranks, start, common)


def _raise_rank(
    method: str,
    structure_of: Callable[[tuple[int, ...], int], Structure],
    x: Any,
    mask: Any,
    ranks: Iterable[int] | None,
    start: str,
    keywords: EntryKeywords,
) -> Result:
    check_choice("start", start, ("spectral", "random"))
    request = parse_request(method, keywords, EntryKeywords)
    seen = as_observations(x, mask, keywords.get("weights"), as_dtype(keywords.get("dtype")))
    generator = as_generator(request.random_state)
    seed = int(torch.randint(2**62, (), generator=generator))
    outer = ("max_parameters", "max_evaluations", "callbacks", "checkpoint")  # not those of a single fit
    options: dict[str, Any] = {k: v for k, v in keywords.items() if k not in outer}

    def fit_rank(rank: int, seconds: float | None) -> Result:
        structure = structure_of(seen.shape, rank)
        init = _spectral(seen, structure, seed) if start == "spectral" else None
        own = {"init": init, "max_seconds": seconds, "random_state": seed, "progress": False}
        return fit(x, structure, mask, **(options | own))

    most = request.limits.max_parameters
    problem = RankProblem(
        method,
        fit_rank,
        size=lambda rank: structure_of(seen.shape, rank).num_parameters,
        ranks=None if ranks is None else tuple(ranks),
        max_parameters=len(seen) if most is None else most,
        max_evaluations=keywords.get("max_evaluations"),
    )
    return run_task(RankTask(problem, request.limits, generator), request.audience)


def _spectral(seen: Observations, structure: Structure, seed: int) -> TensorNetwork | None:
    """SVDs of the zero-filled tensor divided by the share of observed entries; noise where they give none."""
    # Beyond half a gigabyte in double precision the zero-filled tensor is not formed.
    if structure.num_entries > 1 << 26 or not bool(seen.values.any()):
        return None
    filled = seen.values.new_zeros(math.prod(seen.shape)).reshape(seen.shape)
    filled[tuple(seen.indices.T)] = seen.values / seen.density
    train = train_of_ranks(filled, [structure.rank(k, k + 1) for k in range(structure.order - 1)])
    generator = torch.Generator().manual_seed(seed)
    noise = TensorNetwork.random(structure, random_state=generator, dtype=filled.dtype)
    cores = []
    for k, (core, pad) in enumerate(zip(train, noise.cores)):
        # Noise well below the entries of the core: it must not drown the spectral start.
        padded = (float(core.abs().mean()) * 0.1 * pad).to(core.device)
        where: list[Any] = [slice(None)] * padded.dim()
        for n, j in enumerate(structure.neighbours[k]):
            along = core.shape[0] if j == k - 1 else core.shape[2] if j == k + 1 else 1
            where[n + 1] = slice(0, along)
        padded[tuple(where)] = core.movedim(1, 0).reshape(padded[tuple(where)].shape)
        cores.append(padded)
    return TensorNetwork(structure, cores)
