"""How it is minimised."""

from .als import ALSFit, ALSSettings, als
from .gradient import Training, TrainingOptions, grow_state, train

__all__ = ["ALSFit", "ALSSettings", "Training", "TrainingOptions", "als", "grow_state", "train"]
