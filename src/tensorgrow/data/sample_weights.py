"""Weights of samples: a repeated sample is one of a larger weight, and one of weight zero is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..errors import DataError
from .arrays import as_tensor
from .fingerprint import position_codes


@dataclass(frozen=True)
class SampleWeights:
    """Which samples count, and how much.

    Attributes
    ----------
    rows
        Number of each sample that counts.
    weights
        Of these, with mean one; None where all count the same.
    """

    rows: torch.Tensor
    weights: torch.Tensor | None

    @classmethod
    def of(cls, parts: Sequence[Any], weights: Any = None, *, merge: bool = True) -> SampleWeights:
        """Weigh samples whose features, responses, ... are the rows of `parts`.

        Repeated samples become one, so that copies of a sample never lie on both sides of a split, and a
        weight of two says the same as listing a sample twice. Without weights and repetitions all samples
        stay in their order; otherwise the order depends on their numbers alone.

        Parameters
        ----------
        weights
            Not negative, one per sample; None: all are one.
        merge
            Whether repeated samples become one.
        """
        count = len(parts[0])
        given = np.ones(count) if weights is None else _check(weights, count)
        rows = np.flatnonzero(given > 0.0)
        if merge:
            codes = _codes(parts)[rows]
            _, first, group = np.unique(codes, return_index=True, return_inverse=True)
            if len(first) < len(rows) or len(np.unique(given[rows])) > 1:
                given, rows = np.bincount(group, given[rows]), rows[first]
            else:
                given = given[rows]
        else:
            given = given[rows]
        is_even = bool((given == given[0]).all())
        return cls(torch.from_numpy(rows), None if is_even else torch.from_numpy(given / given.mean()))


def weighted_mean(values: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    """Mean over samples."""
    return values.mean() if weights is None else (weights * values).sum() / weights.sum()


def _codes(parts: Sequence[Any]) -> Any:
    """A number of every sample, equal where the samples are."""
    columns = []
    for part in parts:
        array = as_tensor(part, copy=True).cpu().resolve_conj().numpy()
        array = np.ascontiguousarray(array.reshape(len(array), -1)) + 0  # minus zero becomes zero
        words = array.view(f"u{min(array.itemsize, 8)}")
        columns.append(position_codes(words, 1))
    return position_codes(np.stack(columns, 1), 2)


def _check(weights: Any, count: int) -> Any:
    values = as_tensor(weights, "the weights", copy=True).cpu().double().numpy()
    if values.shape != (count,):
        raise DataError(f"the weights have shape {values.shape}; one for each of {count} samples is needed")
    if not np.isfinite(values).all() or (values < 0.0).any() or not values.any():
        raise DataError("the weights of samples must be finite, not negative, and not all zero")
    return values
