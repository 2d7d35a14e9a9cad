"""How far entries of a network that was fitted to some entries may be off.

The error of an entry is taken to have the variance ``noise^2 * f_1[i_1] * ... * f_n[i_n] * (1 + leverage)``:
factors for the slices it lies in, and the posterior variance of the cores. Given the others, a core has the
covariance ``noise^2 * Gram^-1``; of the Gram matrix only the diagonal is kept, one number per parameter: with
the whole of it intervals are hardly narrower. Whatever this model misses on average, the scores mend: errors
on held-out entries over what the model says of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch

from ..contraction import Entries, RowSource, RowTree
from ..errors import FileFormatError, OptionError
from ..structure import Edge, Structure

# Numbers of environment rows that are held at a time, and entries whose rows are formed together.
ROW_NUMBERS, ENTRIES = 1 << 22, 1 << 16
# Slices begin with the common variance, as if these many entries had shown it: 10 to 50 are equally good.
COMMON_ENTRIES = 30.0
# Rounds over the modes in which the factors of slices are found: they settle in about two.
ROUNDS = 4
# Scores kept at most: quantiles between them are interpolated.
MOST_SCORES = 1000


@dataclass(frozen=True)
class ErrorModel:
    """What errors of a network should be, apart from a common factor.

    Attributes
    ----------
    noise
        Root mean square of the errors of entries that a network knows all of, in the units of the data.
    exponent
        `precisions` belong to the tensor over this power of two.
    factors
        By mode, the variance of every slice over the common one.
    precisions
        By core, of its shape: the diagonals of its Gram matrices.
    """

    noise: float
    exponent: int
    factors: tuple[torch.Tensor, ...]
    precisions: tuple[torch.Tensor, ...]

    def std(self, structure: Structure, cores: Sequence[torch.Tensor], where: torch.Tensor) -> torch.Tensor:
        """Standard deviations at positions, ``(n, order)`` on the device of the cores."""
        parts = [torch.zeros(0, dtype=torch.float64, device=where.device)]
        for first in range(0, len(where), ENTRIES):
            some = where[first : first + ENTRIES]
            tree = RowTree(Entries(some, structure.dims), structure, cores)
            found = torch.zeros(len(some), dtype=torch.float64, device=where.device)
            for node in tree.order:
                source, edges = tree.environment(node), structure.edges_of(node)
                precision = as_columns(self.precisions[node].to(where.device), edges, source)
                add_leverage(found, source, precision, tree.entries.columns, node)
            parts.append((1.0 + found) * slice_factors(self.factors, tree.entries.columns))
        return self.noise * torch.cat(parts).sqrt()


@dataclass(frozen=True)
class Uncertainty:
    """Errors to expect of a network or of a committee.

    Attributes
    ----------
    size
        Root mean square of errors on held-out entries over what the model said of them.
    scores
        Sorted: errors on held-out entries, before the last fit, over their standard deviations; of many,
        quantiles at equal distances.
    count
        Number of held-out entries.
    model
        None for a committee, of which every member has one.
    spreads
        Of a committee: whether what members differ by is part of the variance.
    """

    size: float
    scores: torch.Tensor
    count: int
    model: ErrorModel | None = None
    spreads: bool = False

    @classmethod
    def measured(
        cls,
        scores: torch.Tensor,
        model: ErrorModel | None = None,
        *,
        spreads: bool = False,
        share: float = 1.0,
    ) -> Uncertainty:
        """Sum up errors on held-out entries over what the model said of them.

        `share` is by how much smaller errors are than these ones.
        """
        size = float(scores.double().square().mean().sqrt()) or 1.0
        return cls(share * size, summarise(scores / size), len(scores), model, spreads)

    def halfwidth(self, level: float) -> float:
        """Half of the width of intervals that hold a share `level` of values, in standard deviations."""
        level = check_level(level)
        rank = math.ceil(level * (self.count + 1))
        if rank > self.count:
            raise OptionError(
                f"interval={level} needs {math.ceil(level / (1.0 - level))} held-out entries or more, and "
                f"there were {self.count}. Hold out more (validation=), or ask for at most "
                f"{self.count / (self.count + 1):.2g}"
            )
        ranks = np.linspace(1.0, self.count, len(self.scores))
        return float(np.interp(rank, ranks, self.scores.numpy()))

    # -- files -----------------------------------------------------------------------------------------

    def pack(self, prefix: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """Header and named tensors for a file; `unpack` is its inverse."""
        header: dict[str, Any] = {"size": self.size, "count": self.count, "spreads": self.spreads}
        tensors = {f"{prefix}uncertainty.scores": self.scores}
        if self.model is not None:
            header["model"] = {"noise": self.model.noise, "exponent": self.model.exponent}
            for name in ("factors", "precisions"):
                parts = enumerate(getattr(self.model, name))
                tensors |= {f"{prefix}uncertainty.{name}.{k}": t for k, t in parts}
        return header, tensors

    @classmethod
    def unpack(
        cls, header: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], structure: Structure, prefix: str
    ) -> Uncertainty:
        """Rebuild what `pack` returned, for a network of a structure."""
        where, model, known = f"{prefix}uncertainty", None, header.get("model")
        try:
            scores = tensors[f"{where}.scores"]
            if known is not None:
                model = ErrorModel(
                    known["noise"],
                    known["exponent"],
                    tuple(tensors[f"{where}.factors.{k}"] for k in range(structure.order)),
                    tuple(tensors[f"{where}.precisions.{k}"] for k in range(structure.num_nodes)),
                )
        except KeyError as error:
            raise FileFormatError(f"the file lacks the tensor {error}; it is damaged") from error
        if model is not None:
            shapes = [tuple(t.shape) for t in (*model.factors, *model.precisions)]
            if shapes != [*((d,) for d in structure.dims), *structure.core_shapes]:
                raise FileFormatError("the file is damaged: its uncertainty does not fit its network")
        return cls(header["size"], scores, header["count"], model, header["spreads"])


def combine(
    weights: Sequence[float], deviations: Sequence[torch.Tensor], values: Sequence[torch.Tensor] | None
) -> torch.Tensor:
    """Standard deviations of a weighted mean: those of its parts, and what their `values` differ by."""
    shares = torch.as_tensor(weights, dtype=torch.float64, device=deviations[0].device)
    variance = (shares * torch.stack(list(deviations), -1).square()).sum(-1)
    if values is not None:
        each = torch.stack(list(values), -1)
        mean = (shares.to(each.dtype) * each).sum(-1, keepdim=True)
        variance = variance + (shares * (each - mean).abs().double().square()).sum(-1)
    return variance.sqrt()


def check_level(level: object) -> float:
    """Return the share of values that intervals should hold, or raise `OptionError`."""
    number = math.nan if isinstance(level, bool) or not isinstance(level, Real) else float(level)
    if not 0.0 < number < 1.0:
        raise OptionError(
            f"interval={level!r} must lie between 0 and 1: it is the share of values that intervals should "
            "hold, such as 0.9"
        )
    return number


def summarise(scores: torch.Tensor) -> torch.Tensor:
    """Sort scores; of many, keep quantiles at equal distances."""
    ordered = scores.double().cpu().sort().values
    if len(ordered) <= MOST_SCORES:
        return ordered
    ranks = np.linspace(0.0, len(ordered) - 1.0, MOST_SCORES)
    return torch.from_numpy(np.interp(ranks, np.arange(len(ordered)), ordered.numpy()))


# -- variances of slices -----------------------------------------------------------------------------------


def slice_factors(factors: Sequence[torch.Tensor], columns: Sequence[torch.Tensor]) -> torch.Tensor:
    """Product of the factors of the slices that entries lie in; `columns` are their positions by mode."""
    total = torch.ones((), dtype=torch.float64)
    for factor, column in zip(factors, columns):
        total = total * factor.to(column.device)[column]
    return total


def fit_factors(
    squares: torch.Tensor, columns: Sequence[torch.Tensor], dims: Sequence[int]
) -> tuple[torch.Tensor, ...]:
    """Fit factors by mode to squared errors whose mean is one: in turn, each the mean over its slice."""
    factors = [squares.new_ones(d) for d in dims]
    for _ in range(ROUNDS):
        for k, (d, column) in enumerate(zip(dims, columns)):
            others = slice_factors([*factors[:k], *factors[k + 1 :]], [*columns[:k], *columns[k + 1 :]])
            total = squares.new_zeros(d).index_add_(0, column, squares / others)
            counts = torch.bincount(column, minlength=d)
            factors[k] = (total + COMMON_ENTRIES) / (counts + COMMON_ENTRIES)
    return tuple(factors)


# -- leverage ----------------------------------------------------------------------------------------------


def as_columns(core: torch.Tensor, edges: Sequence[Edge], source: RowSource) -> torch.Tensor:
    """Return a core as a matrix: its slices by the columns of its environment."""
    return core.permute(0, *(1 + edges.index(e) for e in source.edges)).reshape(core.shape[0], -1)


def add_leverage(
    total: torch.Tensor,
    source: RowSource,
    precision: torch.Tensor,
    columns: Sequence[torch.Tensor],
    node: int,
) -> None:
    """Add to every entry the variance that one core lends it, over that of the noise."""
    variance = precision.double().reciprocal()
    everyone = torch.arange(len(total), device=total.device)
    step = max(1, ROW_NUMBERS // max(1, source.row_entries))
    for first in range(0, len(total), step):
        some = everyone[first : first + step]
        mine = variance if node >= len(columns) else variance[columns[node][some]]
        total[some] += (source.rows(some).abs().double().square() * mine).sum(1)
