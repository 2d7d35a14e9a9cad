"""How it is minimised."""

from .als import ALSFit, ALSSettings, als
from .gradient import Training, TrainingOptions, train

__all__ = ["ALSFit", "ALSSettings", "Training", "TrainingOptions", "als", "train"]
