"""Modes of a network: taken away, multiplied by matrices, reordered, merged and split.

What loses its leg is absorbed by its neighbours where that makes nothing larger, else it stays as an internal
node; see `absorption`. A network that is left without any mode is a number: a tensor without axes.

All functions are differentiable, leave their arguments alone and form no tensor.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import numpy as np
import torch

from ..data.arrays import as_tensor, times_power
from ..errors import OptionError, PositionError, is_whole
from ..structure import Structure
from .absorption import absorb, contract, joined_size
from .arithmetic import Operand, scale
from .assembly import Label, Labelled, assemble, label_cores
from .moves import Cores, Move

Selection = int | slice | torch.Tensor
"""What is taken of a mode: one entry, a range with a positive step, or entries by their numbers."""

ARRAYS = (list, np.ndarray, torch.Tensor)


def select(structure: Structure, cores: Cores, selections: Sequence[Selection]) -> Move | torch.Tensor:
    """Take entries of every mode; a mode of which one is taken disappears."""
    nodes = label_cores(structure, cores)
    gone = []
    for k, what in enumerate(selections):
        nodes[k].data = nodes[k].data[what]
        if isinstance(what, int):
            gone.append(k)
    return _without(nodes, structure.order, gone)


def weigh(structure: Structure, cores: Cores, weights: Mapping[int, torch.Tensor]) -> Move | torch.Tensor:
    """Sum over some modes, with a weight per entry of each."""
    nodes = label_cores(structure, cores)
    for k, vector in weights.items():
        nodes[k].data = torch.tensordot(vector.to(nodes[k].data), nodes[k].data, dims=1)
    return _without(nodes, structure.order, list(weights))


def join(first: Operand, second: Operand, pairs: Sequence[tuple[int, int]]) -> Move | torch.Tensor:
    """Contract modes of two networks in pairs; modes of the first that are left come first."""
    nodes = label_cores(*first, "first")
    others = label_cores(*second, "second")
    for mine, theirs in pairs:
        others[theirs].labels[0] = nodes[mine].labels[0]
    ends = [node for pair in pairs for node in (nodes[pair[0]], others[pair[1]])]
    taken = [set(modes) for modes in zip(*pairs)] or [set(), set()]
    legs: list[Label] = [("first", k) for k in range(first[0].order) if k not in taken[0]]
    legs += [("second", k) for k in range(second[0].order) if k not in taken[1]]
    return _finish([*nodes, *others], legs, ends)


def apply(structure: Structure, cores: Cores, mode: int, matrix: torch.Tensor) -> Move:
    """Multiply a mode by a matrix whose columns are its entries."""
    out = list(cores)
    out[mode] = torch.tensordot(matrix, out[mode], dims=1)
    dims = [matrix.shape[0] if k == mode else d for k, d in enumerate(structure.dims)]
    return structure.with_dims(dims), out


def permute(structure: Structure, cores: Cores, order: Sequence[int]) -> Move:
    """Put the modes in another order: mode ``k`` of the result is mode ``order[k]``."""
    built = assemble(label_cores(structure, cores), [("", k) for k in order])
    return built.structure, built.cores


def merge(structure: Structure, cores: Cores, modes: Sequence[int]) -> Move:
    """Make one mode of several, the last of them the fastest, at the place of the first.

    Their cores are contracted, or joined to a node of its own for the new mode, whichever is smaller.
    """
    nodes = label_cores(structure, cores)
    merged = [nodes[k] for k in modes]
    others = [n for n in nodes if n not in merged]
    parts, new = [n.labels[0] for n in merged], ("merged", modes[0])
    sizes = [structure.dims[k] for k in modes]
    entries, exponent = math.prod(sizes), 0
    if joined_size(merged) <= entries**2 + sum(n.data.numel() for n in merged):
        joined, exponent = contract(merged)
        bonds = [x for x in joined.labels if x not in parts]
        data = joined.data.permute([joined.labels.index(x) for x in (*parts, *bonds)])
        others.append(Labelled(data.reshape(entries, *data.shape[len(parts) :]), [new, *bonds]))
    else:
        like = merged[0].data
        identity = torch.eye(entries, dtype=like.dtype, device=like.device).reshape(entries, *sizes)
        others += [*merged, Labelled(identity, [new, *parts])]
    legs: list[Label] = [new if k == modes[0] else ("", k) for k in range(structure.order)]
    built = assemble(others, [x for x in legs if x not in parts])
    return scale(built.structure, built.cores, 1.0, exponent)


def split(structure: Structure, cores: Cores, mode: int, sizes: Sequence[int]) -> Move:
    """Make several modes of one, the last of them the fastest, in its place.

    Of the new modes the largest stays with the core; each of the others gets an identity of its own.
    """
    nodes = label_cores(structure, cores)
    node = nodes[mode]
    parts: list[Label] = [("part", k) for k in range(len(sizes))]
    node.data = node.data.reshape(*sizes, *node.data.shape[1:])
    node.labels = [*parts, *node.labels[1:]]
    legs: list[Label] = [("", k) for k in range(structure.order)]
    legs[mode : mode + 1] = parts
    built = assemble(nodes, legs)
    return built.structure, built.cores


# -- what users write --------------------------------------------------------------------------------------


def parse_modes(modes: int | Sequence[int] | None, order: int) -> list[int]:
    """Return numbers of modes from 0 on; negative ones count from the end, None stands for all."""
    if modes is None:
        return list(range(order))
    given: list[object] = list(modes) if isinstance(modes, Iterable) else [modes]
    out = []
    for k in given:
        if not is_whole(k):
            raise OptionError(f"a mode is a whole number, not {k!r}")
        if not -order <= int(k) < order:
            raise PositionError(f"mode {k} does not exist; modes are 0..{order - 1}")
        out.append(int(k) % order)
    if len(set(out)) < len(out):
        raise OptionError(f"modes {tuple(given)} name a mode twice; name each once")
    return out


def parse_index(key: object, dims: Sequence[int]) -> list[Selection]:
    """Return what ``network[key]`` takes of every mode.

    Integers, slices, an ellipsis and one array of integers or bools, as in NumPy.
    """
    keys = list(key) if isinstance(key, tuple) else [key]
    dots = [n for n, k in enumerate(keys) if k is Ellipsis]
    missing = len(dims) - len(keys) + len(dots)
    if len(dots) > 1 or missing < 0:
        raise PositionError(
            f"{len(keys) - len(dots)} indices and {len(dots)} ellipses were given; the network has "
            f"{len(dims)} modes and takes an index for each, or one ellipsis for those left out"
        )
    where = dots[0] if dots else len(keys)
    keys = [*keys[:where], *[slice(None)] * missing, *keys[where + 1 :]]
    out = [_parse_one(k, mode, size) for mode, (k, size) in enumerate(zip(keys, dims))]
    arrays = sum(isinstance(x, torch.Tensor) for x, k in zip(out, keys) if not isinstance(k, slice))
    if arrays > 1:
        raise OptionError(
            f"arrays index {arrays} modes; one at a time can be: index again, or list entries in `entries`"
        )
    return out


def _parse_one(key: object, mode: int, size: int) -> Selection:
    """What an index takes of one mode."""
    if isinstance(key, slice):
        try:
            found = range(*key.indices(size))
        except (TypeError, ValueError) as error:
            raise OptionError(f"{key} is no slice of mode {mode}: {error}") from error
        if not found:
            raise PositionError(
                f"{key} takes nothing of mode {mode}, which has size {size}; take at least one"
            )
        return key if found.step > 0 else torch.tensor(found)
    if not isinstance(key, bool | np.bool_):
        with suppress(TypeError):  # an array of several numbers
            number = operator.index(key)  # type: ignore[arg-type]
            if not -size <= number < size:
                raise PositionError(f"index {number} is out of range for mode {mode}, which has size {size}")
            return number % size
    numbers = as_tensor(key, f"the index of mode {mode}") if isinstance(key, ARRAYS) else None
    if numbers is not None and numbers.dim() == 1 and numbers.dtype == torch.bool and len(numbers) == size:
        numbers = numbers.nonzero()[:, 0]
    if numbers is None or numbers.dim() != 1 or not _is_whole(numbers.dtype):
        raise OptionError(
            f"mode {mode} of size {size} cannot be indexed by {key!r}; use an integer, a slice, or a list of "
            "integers or bools"
        )
    if len(numbers) == 0 or int(numbers.min()) < -size or int(numbers.max()) >= size:
        raise PositionError(
            f"the index of mode {mode} needs numbers from {-size} to {size - 1}, at least one of them"
        )
    return numbers.long() % size


def _is_whole(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def _without(nodes: list[Labelled], order: int, gone: Sequence[int]) -> Move | torch.Tensor:
    """The network of nodes some of which have no axis for their leg any more."""
    for k in gone:
        del nodes[k].labels[0]
    return _finish(nodes, [("", k) for k in range(order) if k not in gone], [nodes[k] for k in gone])


def _finish(
    nodes: Sequence[Labelled], legs: Sequence[Label], orphans: Sequence[Labelled]
) -> Move | torch.Tensor:
    """The network of labelled tensors, or a number where no leg is left."""
    if not legs:
        value, exponent = contract(nodes)
        return times_power(value.data, exponent)
    left, exponent = absorb(nodes, set(legs), set(orphans))
    built = assemble(left, legs)
    return scale(built.structure, built.cores, 1.0, exponent)
