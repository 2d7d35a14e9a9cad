"""Live lines for people who wait."""

from __future__ import annotations

from typing import Any

from ..callbacks.base import ProgressBar

__all__ = ["GrowLine", "StatusLine"]


class StatusLine(ProgressBar):
    """One live line of text."""

    def start(self) -> None:
        """Show it."""
        self._bar.start()

    def say(self, text: str) -> None:
        """Replace the text."""
        self._bar.update(self._task, description=text)

    def stop(self) -> None:
        """Remove it."""
        self._bar.stop()


class GrowLine(StatusLine):
    """Step, size, score and the last growth."""

    def on_step(self, search: Any, step: Any) -> bool | None:
        """Update it."""
        move = "" if step.edge is None else f", {step.layer} {step.edge[0]}-{step.edge[1]}"
        self.say(
            f"step {step.index}: {step.num_parameters:,} parameters, validation {step.validation:.4g} "
            f"(best {search.best_step.validation:.4g}){move}"
        )
        return None
