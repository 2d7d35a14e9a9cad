"""All kinds of layers that are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from ..layer.conv import TNConv1d, TNConv2d, TNConv3d
from .conv import ConvKind
from .kind import Kind
from .linear import LinearKind
from .tokens import EmbeddingKind

# The only place that says which layers can be compressed: a new kind is a class and a line here.
_ALL: tuple[Kind[Any], ...] = (
    LinearKind(),
    *(ConvKind(layer) for layer in (TNConv1d, TNConv2d, TNConv3d)),
    EmbeddingKind(),
)

KINDS: Mapping[type[nn.Module], Kind[Any]] = {kind.dense: kind for kind in _ALL}


def kind_of(module: nn.Module) -> Kind[Any] | None:
    """The kind of a dense layer, or of a class derived from one; None: it cannot be compressed."""
    return next((kind for dense, kind in KINDS.items() if isinstance(module, dense)), None)


def known_kind(module: nn.Module) -> Kind[Any]:
    """The kind of a module that has one."""
    kind = kind_of(module)
    assert kind is not None
    return kind


def dense_names() -> str:
    """The classes of dense layers, for messages."""
    return ", ".join(dense.__name__ for dense in KINDS)
