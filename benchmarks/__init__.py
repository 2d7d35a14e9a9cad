"""Benchmarks: ``python -m benchmarks NAME``, and ``python -m benchmarks --list`` for what there is."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

__all__ = ["ROOT"]

ROOT = Path(__file__).resolve().parent.parent
if importlib.util.find_spec("tensorgrow") is None:  # not installed: use the source beside this folder
    sys.path.insert(0, str(ROOT / "src"))
# Torch's profiler is talkative; it reads this when torch is loaded.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
