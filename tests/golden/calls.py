"""Small runs of every task through public names, each with a fixed seed.

Every call takes a folder of its own, which is the working folder too, and returns plain JSON. None has a
limit of time: what comes out must not depend on how busy the machine is.
"""

from __future__ import annotations

from . import calls_cli, calls_entries, calls_models, calls_tensors
from .registry import CALLS

__all__ = ["CALLS", "calls_cli", "calls_entries", "calls_models", "calls_tensors"]
