"""How it is minimised."""

from .als import ALSFit, ALSSettings, als
from .core_sweeps import improve
from .gradient import Training, TrainingOptions, grow_state, train
from .sweep_graphs import SweepGraphs

__all__ = [
    "ALSFit",
    "ALSSettings",
    "SweepGraphs",
    "Training",
    "TrainingOptions",
    "als",
    "grow_state",
    "improve",
    "train",
]
