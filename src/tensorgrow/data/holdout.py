"""Which data to hold out, and what observations cannot tell."""

from __future__ import annotations

import warnings
from numbers import Real
from typing import Any

import numpy as np
import torch

from ..errors import DataWarning, OptionError
from .observations import Observations

__all__ = [
    "FEWEST_HELD_OUT",
    "FEWEST_TO_SPLIT",
    "as_share",
    "drawn",
    "drawn_by_position",
    "hold_out",
    "is_asked",
    "position_codes",
    "positions_in",
    "sample_mask",
    "warn_about_gaps",
]

# The fewest entries that are worth holding out; with fewer observations than the second nothing is held out.
FEWEST_HELD_OUT = 20
FEWEST_TO_SPLIT = 10
# Part of the squared deviations in 1 % of the values from which they are taken for outliers.
OUTLIER_SHARE = 0.8


def is_asked(validation: Any) -> bool:
    """Whether entries should be held out."""
    return not (validation is None or (isinstance(validation, Real) and validation == 0))


def as_share(validation: Any) -> float | None:
    """The share to hold out; None where `validation` is something else, a mask."""
    if not isinstance(validation, Real) or isinstance(validation, bool):
        return None
    share = float(validation)
    if not 0.0 <= share < 1.0:
        raise OptionError(f"validation={validation!r} must be a share from 0 to below 1, a mask, or False")
    return share


def drawn(count: int, number: int, generator: torch.Generator) -> torch.Tensor:
    """A mask with so many of `count` chosen at random."""
    held = torch.zeros(count, dtype=torch.bool)
    held[torch.randperm(count, generator=generator)[:number]] = True
    return held


def drawn_by_position(indices: Any, share: float, seed: int) -> Any:
    """A mask with about a share of the positions chosen, each by itself.

    A position is chosen or not whatever else is listed, in whatever order: partitions need not know of each
    other, and what is listed twice is never split.

    Parameters
    ----------
    indices
        NumPy array of shape ``(n, order)``.
    """
    return position_codes(indices, seed) < np.uint64(min(share, 1.0) * (2.0**64 - 2.0**11))


def position_codes(indices: Any, seed: int) -> Any:
    """A number of 64 bits for every position, as good as random (the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        code = np.full(len(indices), seed & 0xFFFFFFFFFFFFFFFF, dtype=np.uint64)
        for column in indices.T:
            code += column.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
            code = (code ^ (code >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            code = (code ^ (code >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            code ^= code >> np.uint64(31)
    return code


def sample_mask(count: int, validation: Any) -> torch.Tensor:
    """A user's mask of samples, checked."""
    try:
        held = torch.as_tensor(validation)
    except (TypeError, ValueError, RuntimeError) as error:
        raise OptionError(f"validation={validation!r:.60} must be a share, a mask, or False") from error
    if held.dtype != torch.bool or tuple(held.shape) != (count,):
        raise OptionError(
            f"validation must be a share, False, or a boolean mask of shape ({count},); "
            f"{held.dtype} of shape {tuple(held.shape)} was given"
        )
    if bool(held.all()):
        raise OptionError("the validation mask holds out every sample; leave some to fit")
    return held


def hold_out(seen: Observations, x: Any, validation: Any, generator: torch.Generator) -> torch.Tensor | None:
    """Which observations are held out; None for none."""
    if not is_asked(validation):
        return None
    n, share = len(seen), as_share(validation)
    if share is not None:
        if n >= FEWEST_TO_SPLIT:
            count = max(round(share * n), min(FEWEST_HELD_OUT, n // 5))
            held = _keep_slices(seen, drawn(n, count, generator).to(seen.values.device))
            if bool(held.any()):
                return held
        what = f"only {n} observations" if n < FEWEST_TO_SPLIT else "every slice needs its only observation"
        warnings.warn(
            f"{what}: none is held out, and the network stays at rank one unless a limit is given",
            DataWarning,
            stacklevel=5,
        )
        return None
    return _given(seen, x, validation)


def _given(seen: Observations, x: Any, validation: Any) -> torch.Tensor:
    """Held-out observations from a mask of the tensor's shape, or of the listed entries."""
    given = validation if isinstance(validation, torch.Tensor) else np.asarray(validation)
    if given.dtype not in (torch.bool, np.dtype(bool)):
        raise OptionError(f"validation must be a share, a boolean mask, or False, not {validation!r:.80}")
    chosen = torch.as_tensor(np.array(given) if isinstance(given, np.ndarray) else given)
    chosen = chosen.to(seen.values.device)
    if tuple(chosen.shape) == seen.shape:
        held = chosen[tuple(seen.indices.T)]
    elif isinstance(x, Observations) and tuple(chosen.shape) == (len(x),):
        where = Observations(x.indices[chosen.to(x.indices.device)], torch.ones(int(chosen.sum())), x.shape)
        held = positions_in(seen, where)
    else:
        raise OptionError(
            f"the validation mask has shape {tuple(chosen.shape)}; {seen.shape} is needed, or one value for "
            "each listed entry"
        )
    if not bool(held.any()) or bool(held.all()):
        raise OptionError(
            f"the validation mask holds out {int(held.sum())} of {len(seen)} observations; some must be held "
            "out and some be left to fit"
        )
    return held


def positions_in(seen: Observations, other: Observations) -> torch.Tensor:
    """Which of the observations `seen` are also listed in `other`."""
    both = torch.cat([other.indices.to(seen.indices.device), seen.indices])
    _, group = torch.unique(both, dim=0, return_inverse=True)
    listed = torch.zeros(int(group.max()) + 1, dtype=torch.bool, device=group.device)
    listed[group[: len(other)]] = True
    return listed[group[len(other) :]]


def _keep_slices(seen: Observations, held: torch.Tensor) -> torch.Tensor:
    """Give back held-out entries that a slice cannot do without."""
    for k, d in enumerate(seen.shape):
        column = seen.indices[:, k]
        left = torch.bincount(column[~held], minlength=d)
        bare = held & (left[column] == 0)
        if bool(bare.any()):
            chosen = bare.nonzero()[:, 0]
            first = chosen.new_full((d,), len(held)).scatter_reduce_(0, column[chosen], chosen, "amin")
            held[first[first < len(held)]] = False
    return held


def warn_about_gaps(seen: Observations) -> None:
    """Tell what the observations cannot determine."""
    gaps = []
    for k, d in enumerate(seen.shape):
        empty = d - int(torch.unique(seen.indices[:, k]).numel())
        if empty:
            gaps.append(f"{empty} of {d} along mode {k}")
    if gaps:
        warnings.warn(
            f"slices without any observation ({', '.join(gaps)}) are predicted as the mean of the others",
            DataWarning,
            stacklevel=5,
        )
    size = (seen.values - seen.values.real.median()).abs().double()
    share = float((size.topk(max(1, len(size) // 100)).values ** 2).sum() / (size**2).sum().clamp_min(1e-300))
    if len(size) >= 100 and share > OUTLIER_SHARE:
        warnings.warn(
            f"the largest 1 % of the values hold {share:.0%} of the squared deviation from the median; if "
            "they are outliers, leave them out or give them small weights: least squares follows them",
            DataWarning,
            stacklevel=5,
        )
    least = sum(seen.shape) - len(seen.shape) + 1
    if len(seen) < least:
        warnings.warn(
            f"{len(seen)} observations of a tensor of shape {seen.shape}: even a network of rank one has "
            f"{least} degrees of freedom, so that the result is mostly the ridge's choice",
            DataWarning,
            stacklevel=5,
        )
