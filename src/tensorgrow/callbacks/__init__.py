"""Who listens to a run: progress, checkpoints, trackers, signals."""

from .signals import StopOnSignal

__all__ = ["StopOnSignal"]
