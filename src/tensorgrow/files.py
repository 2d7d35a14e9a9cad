"""Files: safetensors for numbers, one JSON header for everything else. Reading a file never runs code."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ._version import __version__
from .errors import FileFormatError

# Version 1 has results without the kind of their errors, and checkpoints field by field; it is still read.
FORMAT_VERSION = 2
HEADER_KEY = "tensorgrow"

Loader = Callable[[Mapping[str, Any], Mapping[str, torch.Tensor], Any], Any]
"""Builds what a file holds from its header, its tensors, and the model that `load` was called with."""

_LOADERS: dict[str, Loader] = {}


def loads(kind: str, loader: Loader) -> None:
    """Let `load` read files of a kind."""
    _LOADERS[kind] = loader


def load(path: str | Path, model: Any = None) -> Any:
    """Read a file that any `save` of this library wrote.

    Parameters
    ----------
    model
        For grown and compressed models: a model of the same architecture, which is not modified.

    Returns
    -------
    TensorNetwork, Result, DensityModel, DensityResult, GrowResult or CompressResult
    """
    header, tensors = read_file(path, tuple(_LOADERS))
    return _LOADERS[header["kind"]](header, tensors, model)


def write_file(
    path: str | Path, kind: str, header: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]
) -> None:
    """Write atomically: a process killed at any moment leaves the previous file or the new one."""
    path = Path(path)
    complex_names = [name for name, t in tensors.items() if t.is_complex()]
    stored = {
        # safetensors refuses complex128, so complex numbers are stored as pairs of real ones.
        name: (torch.view_as_real(t.resolve_conj()) if t.is_complex() else t)
        .detach()
        .cpu()
        .clone()
        .contiguous()
        for name, t in tensors.items()
    }
    document = {
        "format_version": FORMAT_VERSION,
        "library_version": __version__,
        "kind": kind,
        "complex": complex_names,
        **header,
    }
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} does not exist")
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    try:
        save_file(stored, temporary, metadata={HEADER_KEY: json.dumps(document)})
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        mask = os.umask(0)  # it can only be read by setting it
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def read_file(path: str | Path, kinds: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return header and tensors of a file of one of `kinds`; raise `FileFormatError` for anything else."""
    path = Path(path)
    if path.is_dir():
        raise FileFormatError(f"{path} is a folder; a file is needed")
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            names = list(file.keys())
            if HEADER_KEY not in metadata:
                raise FileFormatError(f"{path} is a safetensors file, but not one written by tensorgrow")
            header = json.loads(metadata[HEADER_KEY])
            version = header["format_version"]
            if version > FORMAT_VERSION:
                raise FileFormatError(
                    f"{path} has format version {version}, written by tensorgrow "
                    f"{header.get('library_version')}; this is {__version__}, which reads up to version "
                    f"{FORMAT_VERSION}. Upgrade tensorgrow to read it"
                )
            if header["kind"] not in kinds:
                age = "" if version == FORMAT_VERSION else f" of format version {version}"
                raise FileFormatError(f"{path} holds a {header['kind']}{age}; {' or '.join(kinds)} is needed")
            # Copies: a file need not be aligned for complex128, and torch would crash on it.
            tensors = {name: file.get_tensor(name).clone() for name in names}
        for name in header["complex"]:
            tensors[name] = torch.view_as_complex(tensors[name])
    except FileFormatError:
        raise
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise FileFormatError(
            f"{path} is not a tensorgrow file or is damaged (truncated download, other format): {error}"
        ) from error
    return header, tensors
