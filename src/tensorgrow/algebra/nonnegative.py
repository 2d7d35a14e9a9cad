"""Normal equations whose solution must not be negative: ``min <x, A x> / 2 - <b, x>`` over ``x >= 0``.

Newton's method with projection (Bertsekas, SIAM J. Control Optim. 1982). Entries that are zero and would
become negative are held; the others go to their minimum, or a share of the way, and what turns negative
becomes zero. Every round lowers the value, and once the right entries are zero the next round is exact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch

from .coupled import Coupling, solve_coupled
from .linalg import solve_slices

# Rounds at most: random systems of 4 to 40 unknowns took 2 to 8, ill-conditioned ones of 100 up to 18. A core
# that is not there yet is better than before all the same, and the next sweep continues.
ROUNDS = 20
# How often a step is halved at most. Where even the last does not lower the value, rounding is all that is
# left.
HALVINGS = 12
# Gradient relative to the right-hand side, both for unknowns of unit diagonals, at which a solution is exact.
TOLERANCE = 1e-10


class Equations(ABC):
    """Independent problems, ``(p, n)`` unknowns in ``p`` of them."""

    rhs: torch.Tensor  # ``b``
    diagonal: torch.Tensor  # of ``A``

    @abstractmethod
    def times(self, x: torch.Tensor) -> torch.Tensor:
        """``A x``."""

    @abstractmethod
    def minimum(self, free: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """The minimum among those ``x`` that are zero where they are not `free`."""

    @abstractmethod
    def only(self, which: torch.Tensor) -> Equations:
        """Some of the problems, by number."""


class SliceEquations(Equations):
    """A matrix for every slice.

    Parameters
    ----------
    gram, rhs
        ``(d, m, m)``, symmetric and positive definite, and ``(d, m)``.
    """

    def __init__(self, gram: torch.Tensor, rhs: torch.Tensor) -> None:
        self.gram, self.rhs = gram, rhs
        self.diagonal = gram.diagonal(dim1=1, dim2=2)

    def times(self, x: torch.Tensor) -> torch.Tensor:
        return (self.gram @ x[:, :, None])[:, :, 0]

    def minimum(self, free: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        mask = free.to(self.gram.dtype)
        gram = self.gram * mask[:, :, None] * mask[:, None, :]
        gram.diagonal(dim1=1, dim2=2).copy_(self.diagonal)  # those that are held solve ``a x = 0``
        return solve_slices(gram, self.rhs * mask, 0.0)

    def only(self, which: torch.Tensor) -> SliceEquations:
        return SliceEquations(self.gram[which], self.rhs[which])


class TiedEquations(Equations):
    """All slices together, which a coupling ties: one problem.

    Parameters
    ----------
    gram, rhs, coupling, weight
        As for `solve_coupled`.
    """

    def __init__(self, gram: torch.Tensor, rhs: torch.Tensor, coupling: Coupling, weight: float) -> None:
        self.gram, self.coupling, self.weight = gram, coupling, weight
        self.shape = rhs.shape
        self.rhs = rhs.reshape(1, -1)
        own = gram.diagonal(dim1=1, dim2=2) + weight * coupling.diagonal(gram)[:, None]
        self.diagonal = own.reshape(1, -1)

    def times(self, x: torch.Tensor) -> torch.Tensor:
        slices = x.reshape(self.shape)
        own = (self.gram @ slices[:, :, None])[:, :, 0]
        return (own + self.weight * self.coupling.times(slices)).reshape(1, -1)

    def minimum(self, free: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        rhs, first, mask = (t.reshape(self.shape) for t in (self.rhs, start, free))
        return solve_coupled(self.gram, rhs, self.coupling, self.weight, first, mask).reshape(1, -1)

    def only(self, which: torch.Tensor) -> TiedEquations:
        return self


def solve_nonnegative(equations: Equations, start: torch.Tensor) -> torch.Tensor:
    """The minimum of every problem over ``x >= 0``, from a start of the shape ``(p, n)``.

    The value is never above that of the start with its negative entries set to zero.
    """
    out = start.clamp_min(0.0)
    open_ = torch.arange(len(out), device=out.device)
    now, x = equations, out
    for _ in range(ROUNDS):
        gradient = now.times(x) - now.rhs
        held = (x <= 0.0) & (gradient > 0.0)
        root = now.diagonal.clamp_min(1e-300).rsqrt()
        slope = torch.where(held, 0.0, gradient * root)
        size = torch.linalg.vector_norm(now.rhs * root, dim=1)
        moving = torch.linalg.vector_norm(slope, dim=1) > TOLERANCE * size
        if not bool(moving.all()):
            which = moving.nonzero()[:, 0]
            open_, x, gradient, held = open_[which], x[which], gradient[which], held[which]
            now = now.only(which)
            if not len(open_):
                break
        step = now.minimum(~held, x) - x
        moved, is_lower = _step(now, x, step, gradient)
        x = torch.where(is_lower[:, None], moved, x)
        out[open_] = x
        which = is_lower.nonzero()[:, 0]
        if len(which) < len(open_):
            open_, x, now = open_[which], x[which], now.only(which)
            if not len(open_):
                break
    return out


def _step(
    equations: Equations, x: torch.Tensor, step: torch.Tensor, gradient: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """As much of a step as lowers the value once negative entries are zero, and whether any does."""
    best, is_lower = x, torch.zeros(len(x), dtype=torch.bool, device=x.device)
    share = torch.ones(len(x), 1, dtype=x.dtype, device=x.device)
    for _ in range(HALVINGS):
        trial = (x + share * step).clamp_min(0.0)
        change = trial - x
        # The value changes by this; the difference of two values would round.
        value = ((gradient + 0.5 * equations.times(change)) * change).sum(1)
        good = ~is_lower & (value < 0.0)
        best = torch.where(good[:, None], trial, best)
        is_lower |= good
        if bool(is_lower.all()):
            break
        share = share * 0.5
    return best, is_lower


def least_on_simplex(gram: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Minimise ``w @ gram @ w`` over shares, none negative and one in all.

    Those that would be negative are left out one by one.
    """
    active = np.ones(len(gram), dtype=bool)
    while True:
        shares = np.zeros(len(gram))
        solved = np.linalg.solve(gram[np.ix_(active, active)], np.ones(active.sum()))
        shares[active] = solved / solved.sum()
        if (shares >= 0.0).all():
            return shares
        active[np.argmin(shares)] = False
