r"""The likelihood as a function of one core, or of the new slice of one core, everything else contracted.

At a sample ``s`` whose leg has the value ``x`` the network is linear in ``c``, and the sum over all values is
quadratic for a Born density, linear for a non-negative one:

.. math:: f_s = b_s + v_s^T c_x, \qquad Z = Z_0 + 2 \Re \langle L, c \rangle + \sum_x c_x^* K c_x
    \quad\text{or}\quad Z = Z_0 + \sum_x z^T c_x

``b``, ``Z_0`` and ``L`` are zero for a whole core; for a new slice they are what the network was. The rows
``v``, the Gram matrix ``K`` and the vector ``z`` are environments of the node. No step raises the negative
log-likelihood: training needs no learning rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..algebra.linalg import solve_normal

# Lengths of a Newton step that are compared. Steps beyond one pay where the likelihood is flatter than its
# quadratic model, short ones where a sample comes near a zero of the network. Taking the first of 1, 0.4, 0.1
# that lowers the loss instead is cheaper per step, and a run on nltcs took longer and ended worse.
LENGTHS = (0.0, 0.03, 0.25, 0.5, 1.0, 2.0)
# Added to the unit diagonal of scaled Newton matrices. Gauge freedoms have eigenvalue zero there.
DAMPING = 1e-9
# Multiplicative updates per visit of a core: with its rows at hand, they are cheap beside forming these.
MULTIPLICATIVE_UPDATES = 8


@dataclass(frozen=True)
class Share:
    """What one node contributes: rows at samples that are sorted by the value of the node's leg.

    Attributes
    ----------
    rows
        ``(n, w)``: environments at the samples.
    weights
        Shares of the samples, of sum one.
    counts
        How many samples have each value of the leg.
    base
        ``b``, or None for a whole core.
    gram
        ``K``, ``(w, w)``, with the index of the network first, or ``z``, ``(w,)``.
    linear
        ``L``, or None.
    constant
        ``Z_0``.
    """

    rows: torch.Tensor
    weights: torch.Tensor
    counts: Sequence[int]
    gram: torch.Tensor
    base: torch.Tensor | None = None
    linear: torch.Tensor | None = None
    constant: float = 0.0

    def values(self, core: torch.Tensor) -> torch.Tensor:
        """The network at the samples."""
        new = self._apply(core)
        return new if self.base is None else self.base + new

    def total(self, core: torch.Tensor) -> torch.Tensor:
        """``Z``."""
        if self.gram.dim() == 1:
            return self.constant + (core @ self.gram).sum()
        whole = self.constant + (core @ self.gram * core.conj()).sum()
        if self.linear is not None:
            whole = whole + 2.0 * (self.linear * core.conj()).sum()
        return whole.real if whole.is_complex() else whole

    def loss(self, core: torch.Tensor) -> float:
        """Mean negative log-likelihood."""
        sizes = self.values(core).abs().clamp_min(1e-300)
        power = 1.0 if self.gram.dim() == 1 else 2.0
        return float(torch.log(self.total(core)) - power * (self.weights * torch.log(sizes)).sum())

    def improve(self, core: torch.Tensor) -> torch.Tensor:
        """A core ``(values, w)`` that is no less likely, from this one."""
        if self.gram.dim() == 1:
            return self._multiply(core)
        if core.is_complex():
            return self._in_real_numbers(core)
        return self._newton(core)

    def _newton(self, core: torch.Tensor) -> torch.Tensor:
        """One damped Newton step on a convex majorant: only the concave part of ``log Z`` is left out.

        The leg's values share nothing but ``Z``, so that there is one small system for each of them.
        """
        values, whole = self.values(core), self.total(core)
        size = values.abs()
        # A sample on a zero of the network pulls with all its weight, but not with infinite force.
        least = 1e-8 * size.mean().clamp_min(torch.finfo(size.dtype).tiny)
        slopes = self.weights / torch.where(size < least, torch.where(values < 0, -least, least), values)
        scaled = self.rows * (slopes / self.weights.sqrt().clamp_min(1e-150))[:, None]
        pull = core @ self.gram if self.linear is None else core @ self.gram + self.linear
        step = torch.zeros_like(core)
        pieces = zip(self._split(scaled), self._split(self.rows))
        for x, ((mine, rows), slope) in enumerate(zip(pieces, self._split(slopes))):
            matrix = torch.addmm(self.gram / whole, mine.T, mine)
            downhill = rows.T @ slope - pull[x] / whole
            step[x] = solve_normal(matrix, downhill[None], DAMPING)[0][0]
        return core + self._best_length(core, step, values) * step

    def _best_length(self, core: torch.Tensor, step: torch.Tensor, values: torch.Tensor) -> float:
        change = self._apply(step)

        def loss(t: float) -> float:
            sizes = (values + t * change).abs().clamp_min(1e-300)
            return float(torch.log(self.total(core + t * step)) - 2.0 * (self.weights @ torch.log(sizes)))

        return min(LENGTHS, key=loss)

    def _multiply(self, core: torch.Tensor) -> torch.Tensor:
        """Expectation maximisation: the hidden states of the edges are what is not observed."""
        tiny = torch.finfo(core.dtype).tiny
        for _ in range(MULTIPLICATIVE_UPDATES):
            slopes = self.weights / self.values(core).clamp_min(tiny)
            pieces = zip(self._split(self.rows), self._split(slopes))
            seen = torch.stack([rows.T @ slope for rows, slope in pieces])
            core = core * seen * (self.total(core) / self.gram.clamp_min(tiny))
        return core

    def _in_real_numbers(self, core: torch.Tensor) -> torch.Tensor:
        """A step for complex numbers: ``|f|`` is at least the part of ``f`` in the phase that it has now."""
        values = self.values(core)
        turned = torch.polar(torch.ones_like(values.real), -values.angle())
        rows, gram = self.rows * turned[:, None], self.gram
        real = Share(
            torch.cat([rows.real, -rows.imag], 1),
            self.weights,
            self.counts,
            torch.cat([torch.cat([gram.real, gram.imag], 1), torch.cat([-gram.imag, gram.real], 1)]),
            None if self.base is None else (self.base * turned).real,
            None if self.linear is None else torch.cat([self.linear.real, self.linear.imag], 1),
            self.constant,
        )
        found = real._newton(torch.cat([core.real, core.imag], 1))
        width = core.shape[1]
        return torch.complex(found[:, :width].contiguous(), found[:, width:].contiguous())

    def _split(self, values: torch.Tensor) -> Sequence[torch.Tensor]:
        """The samples of each value of the leg."""
        return torch.split(values, list(self.counts))

    def _apply(self, core: torch.Tensor) -> torch.Tensor:
        """The part of the network that is linear in the core, at the samples."""
        return torch.cat([rows @ c for rows, c in zip(self._split(self.rows), core)])
