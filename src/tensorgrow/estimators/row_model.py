"""Rows of a table as factors times loadings, where the loadings are a network."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from ..network import TensorNetwork
from ..structure import Structure

# Least variance of the noise, where columns have variance one: exact relations stay solvable in doubles.
LEAST_NOISE = 1e-6
# And as a share of the squared error of held-out values: without it, columns that hardly vary and that the
# network happens to fit (a pixel at the margin of digits) count as exact, and mislead all others in new rows.
NOISE_SHARE = 0.05
# Rows that the noise is estimated from: more change it by less than two per cent.
ENOUGH_ROWS = 2_000


@dataclass(frozen=True)
class RowModel:
    """A row is ``mean + w A`` plus noise: factors are standard normal, every column has noise of its own.

    Given some columns of a row, the expectation of the others is a small ridge regression: rows that were
    never seen are completed like all others.

    Attributes
    ----------
    mean, noise
        Of every column, and the variance of the noise in it.
    loadings
        ``A``, a row per factor.
    gain
        Share of a row's deviation from the mean to believe in.
    low, high
        Values beyond these, which were the extremes in `of`, count as these.
    """

    mean: torch.Tensor
    noise: torch.Tensor
    loadings: torch.Tensor
    gain: float = 1.0
    low: torch.Tensor | None = None
    high: torch.Tensor | None = None

    @classmethod
    def means(cls, columns: int) -> RowModel:
        """The model of standardised columns that say nothing about each other."""
        zero = torch.zeros(columns, dtype=torch.float64)
        return cls(zero, torch.ones_like(zero), zero.new_zeros(0, columns))

    @classmethod
    def of(
        cls, network: TensorNetwork, values: torch.Tensor, known: torch.Tensor, error: float = 0.0
    ) -> RowModel:
        """Fit the model to rows whose table a network completes.

        The factors' covariance is that of the network's row vectors. Noise and means follow by expectation
        maximisation, and the gain from how well each known value is predicted by the others in its row.

        Parameters
        ----------
        network
            Its first leg are the rows, the others the columns.
        values, known
            The rows, ``(n, columns)``, zero where they are not known.
        error
            Of the network on values that it was not fitted to, where columns have variance one.
        """
        least = max(LEAST_NOISE, NOISE_SHARE * error**2)
        factors, loadings = _factors(network.to("cpu", torch.float64))
        residuals = (values - factors @ loadings)[known]
        spread = torch.linalg.eigh(torch.cov(factors.T, correction=0).reshape(2 * (factors.shape[1],)))
        roots = spread.eigenvectors * spread.eigenvalues.clamp_min(0.0).sqrt()
        # Only as many factors as columns can matter.
        _, sizes, directions = torch.linalg.svd(roots.T @ loadings, full_matrices=False)
        model = cls(
            factors.mean(0) @ loadings,
            torch.full_like(values[0], max(float(residuals.square().mean()), least)),
            (sizes[:, None] * directions)[sizes > 1e-9 * sizes[:1]],
            low=values.amin(0),
            high=values.amax(0),
        )
        some = torch.arange(0, len(values), math.ceil(len(values) / ENOUGH_ROWS))
        values, known = values[some], known[some]
        for _ in range(20):  # the noise changes by a few per cent at most from then on
            model = model._with_noise(values, known, least)
        return replace(model, gain=model._measured_gain(values, known))

    def expect(self, values: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
        """The expectation of rows, given what is known of them."""
        if self.low is not None and self.high is not None:
            values = torch.minimum(torch.maximum(values, self.low), self.high)
        parts = [self.mean + self.gain * rest for _, rest, _ in self._posterior(values, known)]
        return torch.cat(parts) if parts else values

    def _posterior(
        self, values: torch.Tensor, known: torch.Tensor
    ) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
        """Rows in parts, the expectation of their ``w A`` and its variance in every column."""
        count, columns = self.loadings.shape
        a = self.loadings
        pairs = (a[:, None] * a).reshape(count * count, columns)
        step = max(1, (1 << 22) // max(count * columns, 1))  # numbers in memory at once
        for start in range(0, len(values), step):
            part = slice(start, start + step)
            weights = known[part] / self.noise
            gram = (weights @ pairs.T).reshape(len(weights), count, count)
            gram.diagonal(dim1=1, dim2=2).add_(1.0)
            factor = torch.linalg.cholesky(gram)
            right = (weights * (values[part] - self.mean)) @ a.T
            half = torch.linalg.solve_triangular(factor, a.expand(len(gram), -1, -1), upper=False)
            solved = torch.linalg.solve_triangular(factor, right[:, :, None], upper=False)
            yield part, (half * solved).sum(1), half.square().sum(1)

    def _with_noise(self, values: torch.Tensor, known: torch.Tensor, least: float) -> RowModel:
        """One round of expectation maximisation for the noise and the means."""
        squares, sums = torch.zeros_like(self.mean), torch.zeros_like(self.mean)
        for part, rest, variance in self._posterior(values, known):
            seen, deviation = known[part], values[part] - rest
            squares += (((deviation - self.mean) ** 2 + variance) * seen).sum(0)
            sums += (deviation * seen).sum(0)
        counts = known.sum(0).clamp_min(1)
        return replace(self, mean=sums / counts, noise=(squares / counts).clamp_min(least))

    def _measured_gain(self, values: torch.Tensor, known: torch.Tensor) -> float:
        """The factor of predictions, each from the other values of its row, that fits best; from 0 to 1."""
        product = square = 0.0
        for part, rest, variance in self._posterior(values, known):
            deviation = values[part] - self.mean
            # Without its own value, a residual is larger by what that value had to say in the fit.
            alone = deviation - (deviation - rest) / (1.0 - variance / self.noise).clamp_min(1e-12)
            product += float((alone * deviation)[known[part]].sum())
            square += float(alone[known[part]].square().sum())
        return min(max(product / square, 0.0), 1.0) if square > 0.0 else 1.0


def _factors(network: TensorNetwork) -> tuple[torch.Tensor, torch.Tensor]:
    """The vector of every row, ``(n, k)``, and everything else, ``(k, columns)``."""
    structure, (rows, *others) = network.structure, network.cores
    vectors = rows.reshape(len(rows), -1)
    count = vectors.shape[1]
    unit = torch.eye(count, dtype=rows.dtype).reshape(count, *rows.shape[1:])
    rest = Structure((count, *structure.dims[1:]), structure.ranks, num_nodes=structure.num_nodes)
    return vectors, TensorNetwork(rest, [unit, *others]).to_dense().reshape(count, -1)
