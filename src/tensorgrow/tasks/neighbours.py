"""What the known neighbours of gaps say, beside the networks of a committee: a thin plate through them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from ..algebra.uncertainty import ErrorModel, Uncertainty
from ..data.arrays import times_power
from ..data.tensorization import Tensorization
from ..data.thin_plate import thin_plate
from ..network import TensorNetwork
from ..results import INTERPOLATION, Result
from ..structure import Structure
from .entry_task import EntryTask

# Entries of an array up to which a plate is tried: 256x256x3 from a tenth takes two seconds.
MOST_ENTRIES = 1 << 20

Judged = tuple[EntryTask, Result, torch.Tensor, torch.Tensor]
"""A run, its result, all entries as predicted from those not held out, and the errors to expect of these."""


def interpolate_known(task: EntryTask, like: Result) -> Judged | None:
    """Interpolate along the axes that are cut, as a member of a committee: a dense vector in place of cores.

    Parameters
    ----------
    task
        What a network was fitted to.
    like
        Its result, which knows the axes, bounds and options of the run.

    Returns
    -------
    tuple or None
        None where nothing is cut or held out, where it would take long, and where a size was asked for.
    """
    how, held = task.how, task.held_out
    if how is None or held is None or how.flattened is not None or task.values.is_complex():
        return None
    axes, count = how.cut_axes, math.prod(how.shape)
    if count > MOST_ENTRIES or not axes:
        return None
    if task.request.limits.max_parameters is not None or bool(held.all()):
        return None
    numbers = torch.from_numpy(how.apply(np.arange(count).reshape(how.shape)))
    places = numbers[tuple(task.indices.cpu().T)]
    flat = _on_one_axis(how.shape)
    other = task.in_shape(None)
    other.how, other.shape, other.indices = flat, flat.dims, places[:, None].to(task.indices)
    if task.test is not None:
        tested = numbers[tuple(task.test[0].cpu().T)]
        other.test = tested[:, None].to(task.test[0]), task.test[1]
    values = np.zeros(count)
    values[places.numpy()] = task.values.double().cpu().numpy()

    def plate(listed: torch.Tensor) -> torch.Tensor:
        known = np.zeros(count, dtype=bool)
        known[listed.numpy()] = True
        filled = thin_plate(values.reshape(how.shape), known.reshape(how.shape), axes)
        return torch.from_numpy(filled.reshape(-1)).to(task.values)

    judged = plate(places[~held.cpu()])[places.to(task.values.device)]
    final = plate(places)
    off = (judged - task.values).abs().double()[held]
    noise = float(off.square().mean().sqrt()) or 1e-300
    model = ErrorModel(
        noise=times_power(noise, task.exponent),
        exponent=task.exponent,
        factors=(torch.ones(count),),
        precisions=(torch.full((count,), math.inf),),  # nothing was fitted
    )
    network = other.bring_home(TensorNetwork(Structure.rank_one(flat.dims), [final]))
    errors = other.errors_at(judged, final[places.to(final.device)])
    result = replace(
        like,
        network=network,
        errors=replace(errors, test=other.test_error(network)),
        history=(),
        path=(),
        # A plate is known where the entries are that it goes through.
        info={**like.info, "method": INTERPOLATION, "num_parameters": task.num_observations},
        tensorization=flat,
        uncertainty=Uncertainty.measured(off / noise, model),
    )
    return other, result, judged, torch.full_like(off[:1], noise).expand(len(judged))


def _on_one_axis(shape: tuple[int, ...]) -> Tensorization:
    """Arrays as vectors."""
    return Tensorization(shape, tuple((n,) for n in shape), (tuple((a, 0) for a in range(len(shape))),), "C")
