"""Bad input of every task: what is refused, and with which words."""

from __future__ import annotations

from . import refusals_models, refusals_tensors
from .refusals_tensors import REFUSALS

__all__ = ["REFUSALS", "refusals_models", "refusals_tensors"]
