"""Local feature maps: every input number becomes a short vector, one per leg of a network."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from ..errors import DataError, OptionError, check_choice, check_whole

FeatureMapName = Literal["polynomial", "cosine", "linear"]


@dataclass(frozen=True)
class FeatureMap:
    r"""A map from ``d`` numbers to ``d`` vectors of length ``m``, fitted to training samples.

    "polynomial": polynomials of degree 0 to ``m - 1`` that are orthonormal over the training samples;
    "linear": the same of degree 1, ``(1, z)`` with ``z`` standardised. "cosine": with :math:`u` the feature
    scaled to [0, 1] by its training range, :math:`\sqrt{\binom{m-1}{s}} \cos^{m-1-s}(\pi u/2)
    \sin^s(\pi u/2)`; for ``m = 2`` the usual :math:`(\cos, \sin)`. Features are clipped to their training
    range, and in "polynomial" and "linear" to 4 standard deviations.

    Other maps than polynomials are turned, leg by leg, so that over the training samples the first component
    is as near to the constant 1 as the map allows and the others are uncorrelated with it. The models that
    can be expressed stay the same; products of hundreds of features stay of order one. The components after
    the first are then made small, ``2 / sqrt(d)`` and less.

    Attributes
    ----------
    low, high
        Range that each feature is clipped to.
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
    def fit(
        cls,
        x: Any,
        kind: FeatureMapName | Callable[[Any], Any] = "polynomial",
        size: int | None = None,
        *,
        weights: torch.Tensor | None = None,
    ) -> FeatureMap:
        """Fit the map to training samples of shape ``(n, d)``, with weights of mean one or all alike.

        By default, `size` depends on the number of features: polynomials of degree 3 for up to 4 features,
        2 for up to 8 and 1 for more.
        """
        if not callable(kind):
            check_choice("feature_map", kind, ("polynomial", "cosine", "linear"))
        samples = _doubles(x)
        length = _size(kind, size, samples.shape[1])
        # In units near the largest number of each feature, squares neither overflow nor vanish; powers of two
        # round nothing.
        unit = torch.ldexp(torch.ones_like(samples[0]), torch.frexp(samples.abs().amax(0)).exponent - 1)
        share = torch.ones(len(samples), 1, dtype=samples.dtype) if weights is None else weights[:, None]
        scaled = samples / unit
        middle = (share * scaled).mean(0)
        mean, deviation = unit * middle, (share * (scaled - middle) ** 2).mean(0).sqrt()
        # What is left of a constant column is rounding.
        deviation = unit * torch.where(deviation <= 1e-12, 1.0, deviation)
        low, high = samples.amin(0), samples.amax(0)
        if kind in ("polynomial", "linear"):
            low = torch.maximum(low, mean - 4.0 * deviation)
            high = torch.minimum(high, mean + 4.0 * deviation)
        plain = torch.eye(length, dtype=torch.float64).expand(samples.shape[1], -1, -1)
        unturned = cls(kind, length, low, high, mean, deviation, plain)
        raw = unturned._raw(samples)
        make_turn = _orthonormal if kind in ("polynomial", "linear") else _turn
        turn = make_turn(raw, share[:, :, None])
        # The second component has size 2 / sqrt(d), each later one half of the one before: the same ridge
        # then suits all products, since those of many features are very many, but small.
        reach = min(1.0, 2.0 / math.sqrt(samples.shape[1]))
        sizes = [1.0, *(reach * 0.5**s for s in range(length - 1))]
        return replace(unturned, turn=turn * torch.tensor(sizes, dtype=torch.float64))

    def __call__(self, x: Any, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """Map samples ``(n, d)`` to vectors ``(n, d, m)``."""
        return torch.einsum("nda,dab->ndb", self._raw(_doubles(x)), self.turn).to(dtype)

    def _raw(self, x: torch.Tensor) -> torch.Tensor:
        if callable(self.kind):
            vectors = _doubles(self.kind(x.numpy()))
            wanted = (*x.shape, self.size)
            if tuple(vectors.shape) != wanted:
                raise OptionError(
                    f"feature_map returned shape {tuple(vectors.shape)} for samples of shape "
                    f"{tuple(x.shape)}; {wanted} is needed: one vector of length map_size={self.size} per "
                    "feature"
                )
            if not bool(torch.isfinite(vectors).all()):
                raise DataError("feature_map returned numbers that are not finite")
            return vectors
        inside = torch.minimum(torch.maximum(x, self.low), self.high)
        if self.kind in ("polynomial", "linear"):
            z = (inside - self.mean) / self.deviation
            return torch.stack([z**s for s in range(self.size)], -1)
        width = self.high - self.low
        angle = 0.5 * math.pi * (inside - self.low) / torch.where(width > 0, width, 1.0)
        cos, sin, top = angle.cos(), angle.sin(), self.size - 1
        return torch.stack(
            [math.sqrt(math.comb(top, s)) * cos ** (top - s) * sin**s for s in range(self.size)], -1
        )


def _doubles(x: Any) -> torch.Tensor:
    return torch.as_tensor(np.ascontiguousarray(x, dtype=np.float64))


def _size(kind: FeatureMapName | Callable[[Any], Any], size: int | None, features: int) -> int:
    """Check the length of the vectors, or choose it."""
    if size is None:
        return 2 if kind != "polynomial" else 2 + (features <= 8) + (features <= 4)
    size = check_whole("map_size", size, 2, more=", or None")
    if kind == "linear" and size != 2:
        raise OptionError(
            f"feature_map='linear' is (1, z): map_size={size} does not fit; use 2 or 'polynomial'"
        )
    return size


def _orthonormal(raw: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """Find the basis that makes powers orthonormal polynomials; zero for degrees that samples cannot tell."""
    count, size = len(raw), raw.shape[-1]
    # Rows of zeros change nothing, but give a square factor where samples are fewer than powers.
    rows = torch.cat([share.sqrt() * raw, raw.new_zeros(max(0, size - count), *raw.shape[1:])])
    _, r = torch.linalg.qr(rows.movedim(0, 1))
    heights = r.diagonal(dim1=1, dim2=2)
    # The mean size of what a power adds to the lower ones: below 1e-6, samples cannot tell it from them.
    distinct = (heights.abs() > 1e-6 * math.sqrt(count)).cumprod(1).bool()
    both = distinct[:, None, :] & distinct[:, :, None]
    safe = torch.where(both, r, torch.eye(size, dtype=r.dtype))
    basis = torch.linalg.inv(safe) * heights.sign()[:, None, :] * math.sqrt(count)
    return torch.where(both, basis, 0.0)


def _turn(raw: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """Find the basis in which the first component is nearly 1 and the others are uncorrelated with it."""
    count, size = len(raw), raw.shape[-1]
    weighted = share * raw
    gram = torch.einsum("nda,ndb->dab", weighted, raw) / count
    mean = weighted.mean(0)
    constant = torch.einsum("dab,db->da", torch.linalg.pinv(gram, hermitian=True, rtol=1e-9), mean)
    first = torch.einsum("nda,da->nd", raw, constant)
    power = (share[:, :, 0] * first**2).mean(0).clamp_min(1e-300)
    part = torch.einsum("nda,nd->da", weighted, first) / count / power[:, None]
    away = torch.eye(size, dtype=raw.dtype) - constant[:, :, None] * part[:, None, :]
    spread = away.mT @ gram @ away
    values, vectors = torch.linalg.eigh(0.5 * (spread + spread.mT))
    values, vectors = values[:, 1:].flip(1).clamp_min(0.0), vectors[:, :, 1:].flip(2)  # largest first
    # Directions that vary less than 5 % of the one that varies most are not stretched to unit size: a pixel
    # that is set in one picture of a thousand would outweigh everything else there.
    least = 0.05 * float(values.max())
    scale = 1.0 / values.clamp_min(least).sqrt() if least > 0 else torch.zeros_like(values)
    return torch.cat([constant[:, :, None], (away @ vectors) * scale[:, None, :]], -1)
