"""Layers: linear layers with a tensor network as weight, grown while training or found by compression."""

from .linear import TNLinear, tn_layers

__all__ = ["TNLinear", "tn_layers"]
