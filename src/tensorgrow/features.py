"""Local feature maps: every input number becomes a short vector, one per leg of a network."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from .errors import DataError, OptionError, check_choice

__all__ = ["FeatureMap", "FeatureMapName"]

FeatureMapName = Literal["cosine", "linear"]
MAPS = ("cosine", "linear")

# Directions of a map that vary less than this share of the one that varies most are not stretched to unit
# size: a pixel that is set in one picture of a thousand would outweigh everything else there.
LEAST_VARIANCE = 0.05


@dataclass(frozen=True)
class FeatureMap:
    r"""A map from ``d`` numbers to ``d`` vectors of length ``m``, fitted to training samples.

    "cosine": with :math:`u` the feature scaled to [0, 1] by its training range (and clipped to it),
    :math:`\sqrt{\binom{m-1}{s}} \cos^{m-1-s}(\pi u/2) \sin^s(\pi u/2)`; for ``m = 2`` the usual
    :math:`(\cos, \sin)`. "linear": ``(1, z)`` with ``z`` standardised, clipped to the training range.

    The vectors are then turned, leg by leg, so that over the training samples the first component is as near
    to the constant 1 as the map allows and the others are uncorrelated with it and of about unit size. The
    models that can be expressed stay the same; products of hundreds of features stay of order one, and
    gradients are well scaled.

    Attributes
    ----------
    low, high
        Training range of each feature.
    turn
        Change of basis of each leg, ``(d, m, m)``.
    """

    kind: FeatureMapName | Callable[[Any], Any]
    size: int
    low: torch.Tensor
    high: torch.Tensor
    mean: torch.Tensor
    deviation: torch.Tensor
    turn: torch.Tensor

    @classmethod
    def fit(cls, x: Any, kind: FeatureMapName | Callable[[Any], Any] = "cosine", size: int = 2) -> FeatureMap:
        """The map for training samples of shape ``(n, d)``."""
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 2:
            raise OptionError(f"map_size={size!r} must be a whole number of at least 2")
        if not callable(kind):
            check_choice("feature_map", kind, MAPS)
        if kind == "linear" and size != 2:
            raise OptionError(
                f"feature_map='linear' is (1, z): map_size={size} does not fit; use 2 or 'cosine'"
            )
        samples = _doubles(x)
        deviation = samples.std(0, correction=0)
        plain = torch.ones(samples.shape[1], int(size), int(size), dtype=torch.float64)
        raw = cls(
            kind,
            int(size),
            samples.amin(0),
            samples.amax(0),
            samples.mean(0),
            torch.where(deviation > 0, deviation, 1.0),
            plain,
        )
        turn = _turn(raw._raw(samples))
        return cls(raw.kind, raw.size, raw.low, raw.high, raw.mean, raw.deviation, turn)

    def __call__(self, x: Any, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """Vectors of samples ``(n, d)``, of shape ``(n, d, m)``."""
        return torch.einsum("nda,dab->ndb", self._raw(_doubles(x)), self.turn).to(dtype)

    def _raw(self, x: torch.Tensor) -> torch.Tensor:
        if callable(self.kind):
            found = torch.as_tensor(np.asarray(self.kind(x.numpy()), dtype=np.float64))
            wanted = (*x.shape, self.size)
            if tuple(found.shape) != wanted:
                raise OptionError(
                    f"feature_map returned shape {tuple(found.shape)} for samples of shape {tuple(x.shape)}; "
                    f"{wanted} is needed: one vector of length map_size={self.size} per feature"
                )
            if not bool(torch.isfinite(found).all()):
                raise DataError("feature_map returned numbers that are not finite")
            return found
        inside = torch.minimum(torch.maximum(x, self.low), self.high)
        if self.kind == "linear":
            z = (inside - self.mean) / self.deviation
            return torch.stack([torch.ones_like(z), z], -1)
        width = self.high - self.low
        angle = 0.5 * math.pi * (inside - self.low) / torch.where(width > 0, width, 1.0)
        cos, sin, top = angle.cos(), angle.sin(), self.size - 1
        return torch.stack(
            [math.sqrt(math.comb(top, s)) * cos ** (top - s) * sin**s for s in range(self.size)], -1
        )


def _doubles(x: Any) -> torch.Tensor:
    return torch.as_tensor(np.ascontiguousarray(x, dtype=np.float64))


def _turn(raw: torch.Tensor) -> torch.Tensor:
    """Basis in which the first component is nearly 1 and the others are uncorrelated with it."""
    count, size = len(raw), raw.shape[-1]
    gram = torch.einsum("nda,ndb->dab", raw, raw) / count
    mean = raw.mean(0)
    constant = torch.einsum("dab,db->da", torch.linalg.pinv(gram, hermitian=True, rtol=1e-9), mean)
    first = torch.einsum("nda,da->nd", raw, constant)
    power = (first**2).mean(0).clamp_min(1e-300)
    share = torch.einsum("nda,nd->da", raw, first) / count / power[:, None]
    away = torch.eye(size, dtype=raw.dtype) - constant[:, :, None] * share[:, None, :]
    spread = away.mT @ gram @ away
    values, vectors = torch.linalg.eigh(0.5 * (spread + spread.mT))
    values, vectors = values[:, 1:].clamp_min(0.0), vectors[:, :, 1:]
    least = LEAST_VARIANCE * float(values.max())
    scale = 1.0 / values.clamp_min(least).sqrt() if least > 0 else torch.zeros_like(values)
    return torch.cat([constant[:, :, None], (away @ vectors) * scale[:, None, :]], -1)
