"""How it is minimised."""

from .als import ALSFit, ALSSettings, als

__all__ = ["ALSFit", "ALSSettings", "als"]
