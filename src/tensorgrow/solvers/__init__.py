"""How it is minimised."""

from .als import ALSFit, ALSSettings, als
from .core_sweeps import improve
from .gradient import Training, TrainingOptions, grow_state, train

__all__ = ["ALSFit", "ALSSettings", "Training", "TrainingOptions", "als", "grow_state", "improve", "train"]
