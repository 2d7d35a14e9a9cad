"""Layers: linear layers with a tensor network as weight, grown while training or found by compression."""

from ..solvers import TrainingOptions
from .compressing import compress
from .growing import GrowRun, grow
from .grown import GrowResult, GrowStep
from .layout import Layout
from .linear import TNLinear, tn_layers
from .searching import CompressRun, LayerSearch
from .shrunk import CompressResult, LayerReport, load_compressed

__all__ = [
    "CompressResult",
    "CompressRun",
    "GrowResult",
    "GrowRun",
    "GrowStep",
    "LayerReport",
    "LayerSearch",
    "Layout",
    "TNLinear",
    "TrainingOptions",
    "compress",
    "grow",
    "load_compressed",
    "tn_layers",
]
