"""Layers with a tensor network as weight, grown while training or found by compression."""

from ..solvers import TrainingOptions
from .compression.compress import compress
from .compression.result import CompressResult, LayerReport, LayerSearch, load_compressed
from .growth.grow import grow
from .growth.result import GrowResult, GrowStep
from .layer.conv import TNConv1d, TNConv2d, TNConv3d
from .layer.layout import Layout
from .layer.linear import TNLinear
from .layer.tn_layer import TNLayer, tn_layers
from .layer.tokens import TNEmbedding

__all__ = [
    "CompressResult",
    "GrowResult",
    "GrowStep",
    "LayerReport",
    "LayerSearch",
    "Layout",
    "TNConv1d",
    "TNConv2d",
    "TNConv3d",
    "TNEmbedding",
    "TNLayer",
    "TNLinear",
    "TrainingOptions",
    "compress",
    "grow",
    "load_compressed",
    "tn_layers",
]
