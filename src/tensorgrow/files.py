"""Files: safetensors for numbers, one JSON header for everything else. Reading a file never runs code."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ._version import __version__
from .data.atomic_file import replacing
from .errors import DataError, FileFormatError, MissingPackageError, OptionError

# Version 1 has results without the kind of their errors, and checkpoints field by field; it is still read.
FORMAT_VERSION = 2
HEADER_KEY, CHECKSUM_KEY = "tensorgrow", "checksum"
# The name of the list of entries of a header that are stored compressed.
PACKED = "packed"

T = TypeVar("T")

# What wrong types, missing keys and impossible sizes lead to. RecursionError, of JSON that is nested deeply,
# is a RuntimeError; sizes that no machine has are an OverflowError.
_STUMBLES = (
    SafetensorError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    StopIteration,
    TypeError,
    ValueError,
)

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
    with reading(path):
        return _LOADERS[header["kind"]](header, tensors, model)


def write_file(
    path: str | Path,
    kind: str,
    header: Mapping[str, Any],
    tensors: Mapping[str, torch.Tensor],
    packed: tuple[str, ...] = (),
) -> None:
    """Write header and tensors, with a checksum of both; a file is replaced as `replacing` says.

    The entries of the header that are named in `packed` are stored compressed.
    """
    squeezed = {name: zlib.compress(json.dumps(header[name]).encode(), 9) for name in packed}
    tensors = {
        **tensors,
        **{f"{PACKED}.{n}": torch.frombuffer(bytearray(b), dtype=torch.uint8) for n, b in squeezed.items()},
    }
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
        **{name: value for name, value in header.items() if name not in packed},
        **({PACKED: list(packed)} if packed else {}),
    }
    text = json.dumps(document)
    metadata = {HEADER_KEY: text, CHECKSUM_KEY: _checksum(text, stored)}
    with replacing(path, SafetensorError) as temporary:
        save_file(stored, temporary, metadata=metadata)


def _checksum(header: str, tensors: Mapping[str, torch.Tensor]) -> str:
    """Hash of all that a file holds. It tells damage, not forgery: whoever writes a file can write it too."""
    digest = hashlib.blake2b(header.encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Say in one line which file is damaged, whatever its contents make the block stumble over.

    Errors about what the user gave (`OptionError`, `DataError`) and about memory stay as they are.
    """
    try:
        yield
    except FileFormatError as error:
        if str(path) in str(error):
            raise
        raise FileFormatError(f"{path}: {error}") from error
    except (OptionError, DataError, MemoryError, MissingPackageError):
        raise
    except _STUMBLES as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise FileFormatError(
            f"{path} is not a tensorgrow file or is damaged (truncated download, other format): {said:.300}"
        ) from error


def read_file(path: str | Path, kinds: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return header and tensors of a file of one of `kinds`; raise `FileFormatError` for anything else.

    Whoever goes on to use them does so within `reading`.
    """
    path = Path(path)
    if path.is_dir():
        raise FileFormatError(f"{path} is a folder; a file is needed")
    if not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    with reading(path):
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
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
            tensors = {name: file.get_tensor(name).clone() for name in list(file.keys())}
        checksum = metadata.get(CHECKSUM_KEY)  # files of earlier versions have none
        if checksum not in (None, _checksum(metadata[HEADER_KEY], tensors)):
            raise FileFormatError(
                f"{path} is damaged: its contents do not match their checksum. Copy or download it again"
            )
        for name in header["complex"]:
            tensors[name] = torch.view_as_complex(tensors[name])
        for name in header.pop(PACKED, []):
            header[name] = json.loads(_expand(tensors.pop(f"{PACKED}.{name}")))
    return header, tensors


def _expand(squeezed: torch.Tensor) -> bytes:
    """Decompress; zlib packs a thousandfold, so that what is larger than any history is refused."""
    expander = zlib.decompressobj()
    try:
        text = expander.decompress(squeezed.numpy().tobytes(), 1 << 26)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not expander.eof:
        raise ValueError("an entry of its header is cut, or too large")
    return text


def check_fields(thing: T) -> T:
    """Return an instance of a dataclass that was made from a file, if each field is of its declared type."""
    assert is_dataclass(thing)
    hints = get_type_hints(type(thing))
    for field in fields(thing):
        check_value(
            f"{field.name} of a {type(thing).__name__}", getattr(thing, field.name), hints[field.name]
        )
    return thing


def check_value(name: str, value: object, hint: Any) -> None:
    """Refuse a value from a file that is not of the type it should have."""
    if not _fits(value, hint):
        raise FileFormatError(f"the file is damaged: {name} is {value!r:.80}")


def _fits(value: object, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin is Literal:
        return value in inner
    if origin in (Union, UnionType):
        return any(_fits(value, h) for h in inner)
    if hint in (int, float):
        return isinstance(value, int if hint is int else (int, float)) and not isinstance(value, bool)
    if not isinstance(value, origin or hint):
        return False
    if origin is tuple and inner[-1] is not ...:
        return len(value) == len(inner) and all(map(_fits, value, inner))
    if isinstance(value, Mapping) and inner:
        return all(_fits(k, inner[0]) and _fits(v, inner[1]) for k, v in value.items())
    return all(_fits(v, inner[0]) for v in value) if inner else True
