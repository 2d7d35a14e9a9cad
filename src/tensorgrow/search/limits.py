"""When to stop, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

from ..errors import OptionError
from ..steps import StopReason

_LIMITS = ("max_error", "max_parameters", "max_steps", "max_seconds")


@dataclass(frozen=True)
class Limits:
    """Limits of a run; there must be at least one, unless held-out data says when to stop.

    Attributes
    ----------
    held_out
        Whether held-out data says when to stop.
    signed
        Whether `max_error` is the value of a loss, which may be negative.
    """

    max_error: float | None = None
    max_parameters: int | None = None
    max_steps: int | None = None
    max_seconds: float | None = None
    held_out: bool = False
    signed: bool = False

    def __post_init__(self) -> None:
        if not (self.held_out or self.has_any):
            raise OptionError(
                "nothing says when to stop: give max_error, max_parameters, max_steps or max_seconds"
            )
        for name in _LIMITS:
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value):
                raise OptionError(f"{name} must be a number, not {value!r}")
            number = float(value)
            if self.signed and name == "max_error":
                continue
            if number < 0 or (name == "max_parameters" and number < 1):
                raise OptionError(f"{name}={value!r} must not be negative" + (" or 0" if number == 0 else ""))
            if name in ("max_parameters", "max_steps"):
                if not number.is_integer():
                    raise OptionError(f"{name} must be a whole number, not {value!r}")
                number = int(number)
            object.__setattr__(self, name, number)

    @property
    def has_any(self) -> bool:
        return any(getattr(self, name) is not None for name in _LIMITS)

    def check_size(self, smallest: int) -> None:
        """Refuse a budget that not even the first network fits in."""
        if self.max_parameters is not None and self.max_parameters < smallest:
            raise OptionError(
                f"max_parameters={self.max_parameters}, but the smallest network here already has {smallest} "
                "parameters (one vector per mode). Give at least that many"
            )

    def settle(self, reason: StopReason, error: float) -> StopReason:
        """Decide why a run ended, given what its search says and the error that was recomputed in the end.

        An error within `max_error` is a target that was reached, whichever limit ended the search; where the
        error is above it, a search that took the target for reached was misled by rounding. Whoever stopped
        the run by hand is told so.
        """
        if self.max_error is None or reason in (StopReason.INTERRUPTED, StopReason.CALLBACK):
            return reason
        if error <= self.max_error:
            return StopReason.TARGET_REACHED
        return StopReason.NO_PROGRESS if reason is StopReason.TARGET_REACHED else reason

    def stop_reason(self, steps: int, seconds: float) -> StopReason | None:
        """Why a run must stop after so many steps and so long; None where it may continue."""
        if self.max_steps is not None and steps >= self.max_steps:
            return StopReason.MAX_STEPS
        if self.max_seconds is not None and seconds >= self.max_seconds:
            return StopReason.MAX_SECONDS
        return None
