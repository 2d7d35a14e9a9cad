"""Layers: linear layers with a tensor network as weight, grown while training or found by compression."""

from .growing import GrowRun, grow
from .grown import GrowResult, GrowStep
from .layout import Layout
from .linear import TNLinear, tn_layers

__all__ = ["GrowResult", "GrowRun", "GrowStep", "Layout", "TNLinear", "grow", "tn_layers"]
