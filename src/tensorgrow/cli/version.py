"""``tensorgrow version``: versions, for bug reports."""

from __future__ import annotations

import platform

from .._version import __version__
from . import options as opt
from .console import emit_json, out

NAME = "version"
PACKAGES = ("torch", "numpy", "opt_einsum", "safetensors", "scipy", "typer", "rich", "tensorly")


def run(as_json: opt.JsonOutput = False) -> None:
    """Show the versions of tensorgrow and of the packages it builds on."""
    import torch

    from ..experiments.provenance import package_version

    versions = {"tensorgrow": __version__, "python": platform.python_version()}
    versions |= {name: package_version(name) or "not installed" for name in PACKAGES}
    gpus = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
    if as_json:
        emit_json({"schema": "tensorgrow.version/1", **versions, "gpus": gpus})
        return
    for name, version in versions.items():
        out.print(f"{name} {version}")
    out.print(f"GPUs: {', '.join(gpus) or 'none'}")
