"""What arrays in files from elsewhere must not do: run code, read other files, take memory unasked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..errors import FileFormatError
from .devices import check_free

NUMBERS = "biufc"  # kinds of dtypes


def check_zarr(array: Any, name: str) -> None:
    """Refuse a zarr array of objects, or one whose chunks are pickles: decoding one can run any code.

    Only the metadata is looked at. zarr decodes with all codecs that it lists, whatever the dtype says.
    """
    if array.dtype.kind not in NUMBERS:
        raise FileFormatError(f"{name} holds {array.dtype} values; an array of numbers is needed")
    bad = [codec for codec in _codecs(array.metadata.to_dict()) if "pickle" in codec]
    if bad:
        raise FileFormatError(
            f"{name} is stored with the codec {bad[0]!r:.80}, which can run code when it is read; ask for a "
            "copy that is stored as plain numbers"
        )


def _codecs(metadata: Any) -> Iterator[str]:
    """Names of all codecs, those inside of others included."""
    if isinstance(metadata, dict):
        yield from (str(metadata[key]).lower() for key in ("id", "name") if key in metadata)
        metadata = list(metadata.values())
    if isinstance(metadata, list | tuple):
        for below in metadata:
            yield from _codecs(below)


def check_hdf5(dataset: Any, name: str) -> None:
    """Refuse a dataset whose numbers are in other files: it could name any file that its reader can read.

    That is for files that are opened by their name; whoever opens a dataset in Python knows what it is.
    """
    outside = [str(entry[0]) for entry in dataset.external or ()]
    if dataset.is_virtual:
        outside += [source.file_name for source in dataset.virtual_sources() if source.file_name != "."]
    if outside:
        raise FileFormatError(
            f"{name} takes its numbers from another file, {outside[0]!r:.200}, which is not read for it; "
            "copy them into one file, for example with h5repack, or open that file itself"
        )


def check_hdf5_file(h5py: Any, file: Any, name: str) -> None:
    """Refuse a file with any dataset or link that leads to another file."""
    links: list[tuple[str, Any]] = []
    file.visititems_links(lambda place, link: links.append((place, link)))
    for place, link in links:
        if isinstance(link, h5py.ExternalLink):
            raise FileFormatError(
                f"{name} has the link {place!r:.80} to another file, {link.filename!r:.200}, which is not "
                "followed; open that file itself"
            )
        if isinstance(link, h5py.HardLink) and isinstance(file[place], h5py.Dataset):
            check_hdf5(file[place], f"{place} of {name}")


def check_room(name: str, shape: Sequence[int], itemsize: int) -> None:
    """Refuse an array that memory has no room for: a small file can hold, or claim to hold, a large one."""
    needed = itemsize * math.prod(int(n) for n in shape)
    instead = "Read it block by block (tg.Blocks of a zarr, HDF5 or dask array), or a part of it"
    check_free(needed, torch.device("cpu"), f"reading {name}, of shape {tuple(shape)},", instead)
