"""Which entries, samples or rows are held out, and what observations cannot determine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import torch

from ..errors import DataError, OptionError, counted, warn
from .fingerprint import position_codes
from .gaps import Gaps
from .observations import Observations, position_groups

# Share of the data held out by default.
HELD_OUT = 0.1
# Of entries: that share, in groups such as those that are missing.
AUTO = "auto"
# Where 1 % of the values hold this share of the squared deviations, they look like outliers.
OUTLIER_SHARE = 0.8


@dataclass(frozen=True)
class Split:
    """What a user wants to hold out, as `parse` reads it: "auto", a share, a mask, or nothing.

    Each method returns a mask with True for what is held out, or None for nothing. It takes numbers from the
    generator only where something is drawn.
    """

    share: float | None  # None with a mask
    mask: Any = None  # the user's, as it came
    alike: bool = False  # hold out entries in groups such as those that are missing
    least: int = 20  # hold out at least this many, though no more than a fifth
    fewest: int = 10  # hold out nothing where there are fewer than this

    @classmethod
    def parse(cls, validation: Any) -> Split:
        """Read a user's `validation`: a share, a mask, or None or False for nothing."""
        if validation is None or (isinstance(validation, Real) and validation == 0):
            return cls(0.0)
        if not isinstance(validation, Real) or isinstance(validation, bool):
            return cls(None, validation)
        if not 0.0 <= float(validation) < 1.0:
            raise OptionError(
                f"validation={validation!r} must be a share from 0 to below 1, a mask, or False"
            )
        return cls(float(validation))

    @classmethod
    def of_entries(cls, validation: Any) -> Split:
        """Read a user's `validation` of entries, which may also be "auto"."""
        if isinstance(validation, str) and validation == AUTO:
            return cls(HELD_OUT, alike=True)
        return cls.parse(validation)

    @property
    def holds_out(self) -> bool:
        """Whether anything should be held out."""
        return self.share != 0.0

    def of_rows(self, rows: torch.Tensor, count: int) -> Split:
        """The same for some of `count` samples: a mask of all becomes one of these."""
        return self if self.share is not None else replace(self, mask=self._sample_mask(count)[rows])

    def gaps(self, seen: Observations, filled: tuple[int, ...] = ()) -> Gaps | None:
        """Find how entries are missing, where others are to be held out alike; `Gaps.find`."""
        return Gaps.find(seen, filled) if self.alike else None

    def entries(
        self, seen: Observations, x: Any, generator: torch.Generator, gaps: Gaps | None = None
    ) -> torch.Tensor | None:
        """Hold out some of `seen`, which has each position once, in order; every slice keeps one to fit.

        `x` is what the user passed: a mask may go with its entries. `gaps` says which entries go together,
        and which slices need none.
        """
        if self.share is None:
            return self._read_mask(seen, x)
        if self.share == 0.0:
            return None
        if len(seen) >= self.fewest:
            number = self._number(len(seen))
            if gaps is None or gaps.are_random:
                held = _draw(len(seen), number, generator)
            else:
                held = gaps.draw(seen, number, generator)
            held = held.to(seen.values.device)
            _keep_slices(seen, held, () if gaps is None else gaps.filled)
            if bool(held.any()):
                return held
        self.warn_of_none(len(seen))
        return None

    def entries_of(
        self, seen: Observations, beside: Observations, x: Any, generator: torch.Generator
    ) -> torch.Tensor | None:
        """Hold out some of `seen` at random, where others are fitted `beside` them in any case."""
        if self.share is None:
            return self._read_mask(seen, x)
        if self.share == 0.0 or len(seen) < self.fewest:
            return None
        both = Observations(
            torch.cat([seen.indices, beside.indices]), torch.cat([seen.values, beside.values]), seen.shape
        )
        held = torch.zeros(len(both), dtype=torch.bool, device=seen.values.device)
        held[: len(seen)] = _draw(len(seen), self._number(len(seen)), generator)
        _keep_slices(both, held)
        return held[: len(seen)] if bool(held.any()) else None

    def samples(self, count: int, generator: torch.Generator) -> torch.Tensor | None:
        """Hold out some of `count` samples."""
        if self.share is None:
            held = self._sample_mask(count)
            return held if bool(held.any()) else None
        if self.share == 0.0:
            return None
        if count < self.fewest:
            warn(
                f"only {counted(count, 'sample')}: none is held out, and the network stays at rank one "
                "unless a limit is given"
            )
            return None
        return _draw(count, min(self._number(count), count - 1), generator)

    def enough_samples(self, count: int, generator: torch.Generator) -> torch.Tensor | None:
        """Hold out some of `count` samples for a likelihood; raise `DataError` where they are too few.

        At least ten are held out, of at least twenty.
        """
        if self.share is None:
            held = self._sample_mask(count)
            if not bool(held.any()):
                raise OptionError("the validation mask must hold out some samples and leave some to fit")
            return held
        if self.share == 0.0:
            return None
        if count < 20:
            raise DataError(
                f"{count} samples are too few to hold some out; 20 are needed. Pass a mask, "
                "or validation=False and max_parameters or max_steps"
            )
        return _draw(count, min(max(round(self.share * count), 10), count - 1), generator)

    def classes(self, labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor | None:
        """Hold out samples, the same share of every class; each class keeps one to fit."""
        count = len(labels)
        if self.share is None or self.share == 0.0:
            return self.samples(count, generator)
        if count < self.fewest:
            warn(
                f"only {counted(count, 'sample')}: none is held out, and the network does not grow unless a "
                "limit says"
            )
            return None
        share = max(self.share, min(self.least / count, 0.2))
        held = torch.zeros(count, dtype=torch.bool)
        for number in range(int(labels.max()) + 1):
            mine = (labels == number).nonzero()[:, 0]
            most = min(max(1, round(share * len(mine))), len(mine) - 1)
            held[mine] = _draw(len(mine), most, generator)
        return held if bool(held.any()) else None

    def share_of(self, total: int) -> float:
        """Share to draw from `total` entries, where positions are drawn one by one; 0 where too few."""
        if not self.share or total < self.fewest:
            return 0.0
        return max(self.share, min(self.least, total // 5) / total)

    def warn_of_none(self, count: int) -> None:
        """Warn that none of `count` observations is held out, although some should be."""
        few = count < self.fewest
        what = f"only {counted(count, 'observation')}" if few else "every slice needs its only observation"
        warn(f"{what}: none is held out, and the network stays at rank one unless a limit is given")

    def _number(self, count: int) -> int:
        assert self.share is not None
        return max(round(self.share * count), min(self.least, count // 5))

    def _sample_mask(self, count: int) -> torch.Tensor:
        try:
            held = torch.as_tensor(self.mask)
        except (TypeError, ValueError, RuntimeError) as error:
            raise OptionError(f"validation={self.mask!r:.60} must be a share, a mask, or False") from error
        if held.dtype != torch.bool or tuple(held.shape) != (count,):
            raise OptionError(
                f"validation must be a share, False, or a boolean mask of shape ({count},); "
                f"{held.dtype} of shape {tuple(held.shape)} was given"
            )
        if bool(held.all()):
            raise OptionError("the validation mask holds out every sample; leave some to fit")
        return held

    def _read_mask(self, seen: Observations, x: Any) -> torch.Tensor:
        """Find what a mask holds out; it has the shape of the tensor, or one value per entry of `x`."""
        mask = self.mask if isinstance(self.mask, torch.Tensor) else np.asarray(self.mask)
        if mask.dtype not in (torch.bool, np.dtype(bool)):
            raise OptionError(f"validation must be a share, a boolean mask, or False, not {self.mask!r:.80}")
        mask = torch.as_tensor(np.array(mask) if isinstance(mask, np.ndarray) else mask)
        mask = mask.to(seen.values.device)
        if tuple(mask.shape) == seen.shape:
            held = mask[tuple(seen.indices.T)]
        elif isinstance(x, Observations) and tuple(mask.shape) == (len(x),):
            where = Observations(x.indices[mask.to(x.indices.device)], torch.ones(int(mask.sum())), x.shape)
            held = positions_in(seen, where)
        else:
            raise OptionError(
                f"the validation mask has shape {tuple(mask.shape)}; {seen.shape} is needed, or one value "
                "for each listed entry"
            )
        if not bool(held.any()) or bool(held.all()):
            raise OptionError(
                f"the validation mask holds out {int(held.sum())} of {len(seen)} observations; some must be "
                "held out and some be left to fit"
            )
        return held


def _draw(count: int, number: int, generator: torch.Generator) -> torch.Tensor:
    held = torch.zeros(count, dtype=torch.bool)
    held[torch.randperm(count, generator=generator)[:number]] = True
    return held


def _keep_slices(seen: Observations, held: torch.Tensor, filled: tuple[int, ...] = ()) -> None:
    """Clear the first held-out entry of every slice that has no others, but of the modes `filled`."""
    for k, d in enumerate(seen.shape):
        if k in filled:
            continue
        column = seen.indices[:, k]
        left = torch.bincount(column[~held], minlength=d)
        bare = held & (left[column] == 0)
        if bool(bare.any()):
            entries = bare.nonzero()[:, 0]
            first = entries.new_full((d,), len(held)).scatter_reduce_(0, column[entries], entries, "amin")
            held[first[first < len(held)]] = False


def draw_by_position(indices: Any, share: float, seed: int) -> Any:
    """Draw about a share of the positions, a NumPy array ``(n, order)``; return a mask.

    Whether a position is drawn depends on it alone: partitions need not know of each other, and what is
    listed twice is never split.
    """
    return position_codes(indices, seed) < np.uint64(min(share, 1.0) * (2.0**64 - 2.0**11))


def positions_in(seen: Observations, other: Observations) -> torch.Tensor:
    """Return a mask of the observations `seen` that are also listed in `other`."""
    both = torch.cat([other.indices.to(seen.indices.device), seen.indices])
    _, group = position_groups(both, seen.shape)
    listed = torch.zeros(int(group.max()) + 1, dtype=torch.bool, device=group.device)
    listed[group[: len(other)]] = True
    return listed[group[len(other) :]]


# -- warnings ------------------------------------------------------------------------------------------


def warn_of_gaps(seen: Observations) -> None:
    """Warn of what observations cannot determine, and of values that look like outliers."""
    warn_of_empty_slices([torch.bincount(c, minlength=d).cpu() for c, d in zip(seen.indices.T, seen.shape)])
    size = (seen.values - seen.values.real.median()).abs().double()
    share = float((size.topk(max(1, len(size) // 100)).values ** 2).sum() / (size**2).sum().clamp_min(1e-300))
    if len(size) >= 100 and share > OUTLIER_SHARE:
        warn(
            f"the largest 1 % of the values hold {share:.0%} of the squared deviation from the median; if "
            "they are outliers, leave them out or give them small weights: least squares follows them"
        )
    warn_of_few(len(seen), seen.shape)


def warn_of_empty_slices(counts: Sequence[Any]) -> None:
    """Warn of slices without an observation, from the number of observations by mode and slice."""
    empty = [int((slices == 0).sum()) for slices in counts]
    gaps = [f"{n} of {len(slices)} along mode {k}" for k, (n, slices) in enumerate(zip(empty, counts)) if n]
    if gaps:
        warn(f"slices without any observation ({', '.join(gaps)}) are predicted as the mean of the others")


def warn_of_few(count: int, shape: tuple[int, ...]) -> None:
    """Warn where `count` observations do not even determine a network of rank one."""
    least = sum(shape) - len(shape) + 1
    if count < least:
        warn(
            f"{counted(count, 'observation')} of a tensor of shape {shape}: even a network of rank one has "
            f"{least} degrees of freedom, so that the result is mostly the ridge's choice"
        )
