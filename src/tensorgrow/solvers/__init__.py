"""How it is minimised."""

from .als import ALSFit, ALSSettings, als
from .gradient import Training, TrainingOptions, grown_state, train

__all__ = ["ALSFit", "ALSSettings", "Training", "TrainingOptions", "als", "grown_state", "train"]
