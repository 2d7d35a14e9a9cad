"""Modules written as ONNX files and run by ONNX Runtime, where both are installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn


def through_onnx(
    module: nn.Module, example: torch.Tensor, folder: Path
) -> Callable[[torch.Tensor], torch.Tensor]:
    """A module exported for any number of rows of its one input; skips the test without the packages."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    path = folder / "module.onnx"
    shapes = ({0: torch.export.Dim("batch", min=2)},)
    torch.onnx.export(module, (example,), path, dynamo=True, dynamic_shapes=shapes, verbose=False)
    session = runtime.InferenceSession(path)
    name = session.get_inputs()[0].name

    def run(x: torch.Tensor) -> torch.Tensor:
        (out,) = session.run(None, {name: x.numpy()})
        return torch.from_numpy(out)

    return run
