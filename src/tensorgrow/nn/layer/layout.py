"""How a weight matrix is seen as a tensor: digits of the input and output index, paired or separate."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from ...errors import FileFormatError, StructureError, is_whole
from ...structure import Structure


@dataclass(frozen=True)
class Layout:
    """Digits of the two indices of a weight of shape ``(out_features, in_features)``.

    Indices are written in mixed radix, most significant digit first (the order of ``reshape``).

    Attributes
    ----------
    in_dims, out_dims
        Sizes of the digits; their products are the features.
    paired
        True: leg ``k`` of the tensor is the pair (output digit ``k``, input digit ``k``) with index
        ``out * in_dims[k] + in``, as in the paper. False: one leg per digit, the output's first.
    """

    in_dims: tuple[int, ...]
    out_dims: tuple[int, ...]
    paired: bool = True

    def __post_init__(self) -> None:
        for name in ("in_dims", "out_dims"):
            object.__setattr__(self, name, check_digits(name, getattr(self, name)))
        if self.paired and len(self.in_dims) != len(self.out_dims):
            raise StructureError(
                f"paired legs need as many input as output digits; there are {len(self.in_dims)} and "
                f"{len(self.out_dims)}. Pad the shorter with 1s, or give paired=False"
            )

    @classmethod
    def choose(
        cls,
        in_features: int,
        out_features: int,
        in_dims: Sequence[int] | None = None,
        out_dims: Sequence[int] | None = None,
        *,
        paired: bool = True,
    ) -> Layout:
        """Check sizes and digits; by default digits are near 4."""
        for name, size in (("in_features", in_features), ("out_features", out_features)):
            if not is_whole(size, 1):
                raise StructureError(f"{name}={size!r} must be a whole number of at least 1")
        count = max(1, round(math.log(max(in_features, out_features, 2), 4)))
        in_dims, out_dims = given_digits(in_dims, out_dims)
        if paired:
            known = in_dims if in_dims is not None else out_dims
            count = count if known is None else len(known)
        layout = cls(
            digits(in_features, count) if in_dims is None else in_dims,
            digits(out_features, count) if out_dims is None else out_dims,
            paired,
        )
        for name, features in (("in", in_features), ("out", out_features)):
            dims = getattr(layout, f"{name}_dims")
            if math.prod(dims) != features:
                raise StructureError(
                    f"{name}_dims={dims} have the product {math.prod(dims)}, but {name}_features={features}"
                )
        return layout

    @property
    def in_features(self) -> int:
        """Columns of the weight."""
        return math.prod(self.in_dims)

    @property
    def out_features(self) -> int:
        """Rows of the weight."""
        return math.prod(self.out_dims)

    @cached_property
    def dims(self) -> tuple[int, ...]:
        """Legs of the tensor."""
        if self.paired:
            return tuple(o * i for o, i in zip(self.out_dims, self.in_dims))
        return (*self.out_dims, *self.in_dims)

    @cached_property
    def split_dims(self) -> tuple[int, ...]:
        """The tensor's shape with one axis per digit."""
        if self.paired:
            return tuple(d for pair in zip(self.out_dims, self.in_dims) for d in pair)
        return self.dims

    @cached_property
    def matrix_order(self) -> tuple[int, ...]:
        """Axes of `split_dims` in the order output digits, input digits."""
        n = len(self.out_dims)
        if self.paired:
            return (*range(0, 2 * n, 2), *range(1, 2 * n, 2))
        return tuple(range(len(self.dims)))

    def __str__(self) -> str:
        sign = "x" if self.paired else " | "
        return f"{'.'.join(map(str, self.out_dims))}{sign}{'.'.join(map(str, self.in_dims))}"

    def to_matrix(self, tensor: torch.Tensor) -> torch.Tensor:
        """The weight ``(out_features, in_features)`` of a tensor of shape `dims`."""
        split = tensor.reshape(self.split_dims).permute(self.matrix_order)
        return split.reshape(self.out_features, self.in_features)

    def to_tensor(self, weight: torch.Tensor) -> torch.Tensor:
        """Inverse of `to_matrix`; columns that are missing are zero."""
        missing = self.in_features - weight.shape[1]
        if missing:
            weight = torch.nn.functional.pad(weight, (0, missing))
        back = sorted(range(len(self.matrix_order)), key=self.matrix_order.__getitem__)
        return weight.reshape(*self.out_dims, *self.in_dims).permute(back).reshape(self.dims)

    def to_dict(self) -> dict[str, Any]:
        """JSON-friendly form."""
        return {"in_dims": list(self.in_dims), "out_dims": list(self.out_dims), "paired": self.paired}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Layout:
        """Inverse of `to_dict`."""
        return cls(tuple(data["in_dims"]), tuple(data["out_dims"]), bool(data["paired"]))


Digits = tuple[int, ...]


def check_digits(name: str, dims: object) -> Digits:
    """Sizes of digits, of which there is at least one."""
    known = tuple(dims) if isinstance(dims, Iterable) else ()
    if not known or not all(is_whole(d, 1) for d in known):
        raise StructureError(f"{name}={dims!r} must be whole numbers of at least 1")
    return tuple(int(d) for d in known)


def given_digits(in_dims: object, out_dims: object) -> tuple[Digits | None, Digits | None]:
    """The digits that users name, checked; None where they do not."""
    named = {"in_dims": in_dims, "out_dims": out_dims}
    ins, outs = (None if dims is None else check_digits(name, dims) for name, dims in named.items())
    return ins, outs


def digits(size: int, count: int) -> tuple[int, ...]:
    """`count` factors of `size`, as equal as its primes allow, largest first."""
    if size < 1 or count < 1:
        raise StructureError(f"cannot write an index of size {size} with {count} digits")
    factors, rest, prime = [], size, 2
    while rest > 1:
        if prime * prime > rest:
            prime = rest
        while rest % prime == 0:
            factors.append(prime)
            rest //= prime
        prime += 1
    out = [1] * count
    for factor in reversed(factors):
        out[out.index(min(out))] *= factor
    return tuple(sorted(out, reverse=True))


def digit_count(size: int, base: int) -> int:
    """How many digits near `base` write an index of that size; at least two."""
    return max(2, round(math.log(max(size, 2), base)))


def padded_digits(size: int, count: int) -> tuple[int, ...]:
    """Digits that write at least `size` numbers, as few as digits alike within a factor of two can.

    Sizes of vocabularies are seldom products of small primes: 50,257 is 29 * 1,733.
    """
    width = size
    while True:
        found = digits(width, count)
        if found[0] <= 2 * found[-1]:
            return found
        width += 1


def encode(layout: Layout, structure: Structure) -> torch.Tensor:
    """JSON in a tensor of bytes: safe to load, and fit for safetensors."""
    document = {"layout": layout.to_dict(), "structure": structure.to_dict()}
    return torch.tensor(list(json.dumps(document).encode()), dtype=torch.uint8)


def decode(state: Any, name: str, kind: str) -> tuple[Layout, Structure]:
    """Inverse of `encode`; `name` and `kind` are those of the layer, for the message."""
    try:
        document = json.loads(bytes(state.tolist()).decode())
        return Layout.from_dict(document["layout"]), Structure.from_dict(document["structure"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"the saved state of {name} is not that of a {kind}: {error!r}") from error


def check_cores(state: Mapping[str, torch.Tensor], prefix: str, layout: Layout, structure: Structure) -> None:
    """Refuse a saved structure that is not that of the saved cores, before memory is taken for it."""
    count = sum(name.startswith(f"{prefix}cores.") for name in state)
    names = [f"{prefix}cores.{k}" for k in range(count)]
    shapes = tuple(tuple(state[name].shape) if name in state else None for name in names)
    if (structure.num_nodes, structure.dims) != (count, layout.dims) or structure.core_shapes != shapes:
        raise FileFormatError(
            f"the saved state of {prefix.rstrip('.') or 'the layer'} has {count} cores of shapes "
            f"{shapes!r:.200}; they are not those of its structure, {structure!r:.200}"
        )
