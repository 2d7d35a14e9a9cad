"""Layers with a tensor network as weight, grown while training or found by compression."""

from ..solvers import TrainingOptions
from .adapters.adapt import adapt, merge_adapters
from .adapters.adapter import Adapter, adapter_layers
from .compression.compress import compress
from .compression.result import CompressResult, LayerReport, LayerSearch, load_compressed
from .growth.fine_tune import fine_tune
from .growth.grow import grow
from .growth.result import GrowResult, GrowStep
from .growth.trainer import Teacher
from .layer.attention import TNMultiheadAttention
from .layer.conv import TNConv1d, TNConv2d, TNConv3d
from .layer.layout import Layout
from .layer.linear import TNLinear
from .layer.tn_layer import TNLayer, tn_layers
from .layer.tokens import TNEmbedding

__all__ = [
    "Adapter",
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
    "TNMultiheadAttention",
    "Teacher",
    "TrainingOptions",
    "adapt",
    "adapter_layers",
    "compress",
    "fine_tune",
    "grow",
    "load_compressed",
    "merge_adapters",
    "tn_layers",
]
