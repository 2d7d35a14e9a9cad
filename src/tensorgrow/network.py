"""A tensor network: a structure and its cores."""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import opt_einsum
import torch

from .algebra import gauge, moves
from .algebra.operators import Operators
from .algebra.spectra import whiten_core
from .contraction import dense_plan, inner_plan
from .contraction.cache import cached
from .data.arrays import scale_out, times_power
from .data.devices import check_free
from .errors import DataError, FileFormatError, OptionError, StructureError
from .files import loads, write_file
from .structure import Structure

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

NETWORK_KIND = "network"

RandomState = int | np.random.Generator | torch.Generator | None

# Listed entries are computed in chunks, so that no intermediate has more numbers than this.
CHUNK_ENTRIES = 1 << 22
# One entry computed alone costs about as much as ten of the dense tensor; only small tensors are formed.
DENSE_SAVES = 10
SMALL_ENTRIES = 1 << 24


def as_generator(random_state: RandomState) -> torch.Generator:
    """Turn a seed, a NumPy or torch generator, or None (a fresh random seed) into a torch generator."""
    if isinstance(random_state, torch.Generator):
        return random_state
    generator = torch.Generator()
    if random_state is None:
        generator.seed()
    elif isinstance(random_state, np.random.Generator):
        generator.manual_seed(int(random_state.integers(2**63)))
    elif isinstance(random_state, Integral):
        if not -(2**63) <= random_state < 2**64:
            raise OptionError(f"random_state={random_state} is too large; 64 bits are taken")
        generator.manual_seed(int(random_state))
    else:
        raise OptionError(
            f"random_state={random_state!r} is not a seed, a NumPy Generator or a torch Generator"
        )
    return generator


def _bond_symbols(structure: Structure, first: int) -> list[str]:
    """For each node the einsum symbols of its edges, numbered from `first` on."""
    symbols = {e: opt_einsum.get_symbol(first + k) for k, e in enumerate(structure.edges)}
    return [
        "".join(symbols[min(k, j), max(k, j)] for j in structure.neighbours[k])
        for k in range(structure.num_nodes)
    ]


@cached
def _entries_path(structure: Structure) -> tuple[str, Any, int]:
    """Equation and path for listed entries, and the numbers per entry of the widest intermediate."""
    batch = opt_einsum.get_symbol(0)
    inputs = [batch + bonds for bonds in _bond_symbols(structure, 1)]
    shapes = [(1, *shape[1:]) for shape in structure.core_shapes]
    equation = ",".join(inputs) + "->" + batch
    optimize = "dp" if len(inputs) <= 16 else "auto"
    path, info = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize=optimize)
    return equation, path, max(int(info.largest_intermediate), *(math.prod(s) for s in shapes))


class TensorNetwork(Operators["TensorNetwork"]):
    r"""Cores joined along the edges of a `Structure`.

    .. math:: \hat x_{i_1 \dots i_p} = \sum_{\text{edges}} \prod_k G^{(k)}_{i_k, \dots}

    Core ``k`` has shape ``structure.core_shape(k)``: the dangling leg first, then one axis per edge of rank
    above 1, neighbours ascending. Networks are values: every method returns a new one.

    Examples
    --------
    >>> net = TensorNetwork.random(Structure.tensor_ring((4, 5, 6), 2), random_state=0)
    >>> tuple(net.to_dense().shape)
    (4, 5, 6)
    """

    __slots__ = ("cores", "structure")

    structure: Structure
    cores: tuple[torch.Tensor, ...]

    def __init__(self, structure: Structure, cores: Iterable[Any]) -> None:
        self.structure = structure
        self.cores = tuple(c if isinstance(c, torch.Tensor) else torch.as_tensor(c) for c in cores)
        kinds = {(c.dtype, c.device) for c in self.cores}
        if len(kinds) > 1:
            raise StructureError(f"the cores must share one dtype and device, not {kinds}")
        shapes = tuple(tuple(c.shape) for c in self.cores)
        if shapes != structure.core_shapes:
            raise StructureError(
                f"the cores have shapes {shapes}, but the structure needs {structure.core_shapes}"
            )

    def _make(self, structure: Structure, cores: Iterable[torch.Tensor]) -> TensorNetwork:
        return TensorNetwork(structure, cores)

    @classmethod
    def random(
        cls,
        structure: Structure,
        *,
        random_state: RandomState = None,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> TensorNetwork:
        """Draw independent standard normal entries."""
        generator = as_generator(random_state)
        item = dtype.itemsize
        what = f"a network with {structure.num_parameters:,} parameters"
        check_free(item * structure.num_parameters, generator.device, what, "Take smaller ranks or modes")
        cores = [
            torch.randn(shape, generator=generator, dtype=dtype, device=generator.device)
            for shape in structure.core_shapes
        ]
        return cls(structure, cores).to(device)

    # -- properties ------------------------------------------------------------------------------------

    @property
    def dtype(self) -> torch.dtype:
        """Common dtype of the cores."""
        return self.cores[0].dtype

    @property
    def device(self) -> torch.device:
        """Where the cores are."""
        return self.cores[0].device

    @property
    def is_complex(self) -> bool:
        """Whether the cores are complex."""
        return self.cores[0].is_complex()

    @property
    def num_parameters(self) -> int:
        """Total entries over all cores."""
        return self.structure.num_parameters

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> TensorNetwork:
        """The same network on another device or in another precision."""
        if isinstance(device, torch.dtype):
            device, dtype = None, device
        core = self.cores[0]
        if device in (None, core.device) and dtype in (None, core.dtype):
            return self
        return TensorNetwork(self.structure, [c.to(device=device, dtype=dtype) for c in self.cores])

    # -- contraction -----------------------------------------------------------------------------------

    def to_dense(self) -> torch.Tensor:
        """The represented tensor, of shape ``structure.dims``.

        Raises `MemoryLimitError` where it would not fit in the memory that is free.
        """
        self.check_dense()  # before planning: a file of a few bytes may stand for a huge tensor
        plan = dense_plan(self.structure, self.is_complex)
        self.check_dense(plan.program.peak_entries)
        dense: torch.Tensor = plan.run(self.cores)
        # A single core is its own dense tensor; the caller gets a copy all the same.
        return dense.clone() if len(self.cores) == 1 else dense.contiguous()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """The represented tensor, for ``numpy.asarray``; see `to_dense`."""
        if copy is False:
            raise ValueError("the tensor of a network is computed: it cannot be had without a copy")
        dense = self.to_dense().detach().cpu().resolve_conj().resolve_neg().numpy()
        return dense if dtype is None else dense.astype(dtype, copy=False)

    def check_dense(self, entries: int | None = None) -> None:
        """Raise `MemoryLimitError` where the dense tensor, or so many `entries` on the way to it, do not fit.

        Whoever computes with the dense tensor and holds copies of it asks for all of them first.
        """
        size = self.structure.num_entries
        check_free(
            max(entries or 0, size) * self.dtype.itemsize,
            self.device,
            f"forming the tensor of {size:,} entries",
            "`entries` of the network (`predict` of a result) gives any of them without forming it",
        )

    def entries(self, indices: ArrayLike | torch.Tensor) -> torch.Tensor:
        """Values at listed positions.

        Parameters
        ----------
        indices
            Integers of shape ``(n, order)``.

        Returns
        -------
        torch.Tensor
            The ``n`` values. The dense tensor is only formed when it has no more than ``n`` entries, or is
            small and a good part of it is listed.
        """
        return self.entries_at(self.check_indices(indices))

    def entries_at(self, where: torch.Tensor) -> torch.Tensor:
        """`entries` without checks, at valid positions: 64-bit integers on the network's device."""
        n = where.shape[0]
        size = self.structure.num_entries
        if n >= size or (size <= SMALL_ENTRIES and n * DENSE_SAVES >= size):
            return self.to_dense()[tuple(where.T)]
        equation, path, widest = _entries_path(self.structure)
        step = max(1, CHUNK_ENTRIES // widest)
        values = []
        for first in range(0, n, step):
            rows = where[first : first + step]
            operands = [
                self.cores[k][rows[:, k]]
                if k < self.structure.order
                else self.cores[k].expand(len(rows), *self.cores[k].shape[1:])
                for k in range(self.structure.num_nodes)
            ]
            values.append(opt_einsum.contract(equation, *operands, optimize=path))
        return torch.cat(values) if values else self.cores[0].new_empty(0)

    def inner(self, other: TensorNetwork) -> complex | float:
        """``<self, other>``, conjugate-linear in `self`, without forming either tensor."""
        if self.structure.dims != other.structure.dims:
            raise StructureError(
                f"inner product of networks over {self.structure.dims} and {other.structure.dims}"
            )
        value, exponent = self._inner(other)
        value = times_power(complex(value), exponent)
        return value if self.is_complex or other.is_complex else value.real

    def norm(self) -> float:
        """Frobenius norm of the represented tensor, without forming it."""
        value, exponent = self._inner(self)  # twice the same exponent: it is even
        return times_power(math.sqrt(max(value.real, 0.0)), exponent // 2)

    def _inner(self, other: TensorNetwork) -> tuple[complex | float, int]:
        """The inner product over a power of two, and its exponent: squares overflow before their roots."""
        dtype = torch.promote_types(self.dtype, other.dtype)
        plan = inner_plan(self.structure, other.structure, dtype.is_complex)
        (left, first), (right, second) = self._near_one(), other._near_one()
        exponent = first + second
        # Products of many cores near one may still overflow or vanish, by some bits per core.
        for _ in range(4 + len(left.cores) // 100):
            bra = [c.conj().resolve_conj().to(dtype) for c in left.cores]
            value = plan.run([*bra, *(c.to(dtype) for c in right.cores)]).item()
            if value != 0 and cmath.isfinite(value):
                break
            step = 500 if value == 0 else -500
            left, right, exponent = left.times_power(step), right.times_power(step), exponent - 2 * step
        return value, exponent

    def _near_one(self) -> tuple[TensorNetwork, int]:
        """Every core divided by a power of two near it, and the exponent of the product of these."""
        cores, exponents = zip(*(scale_out(c) for c in self.cores))
        return TensorNetwork(self.structure, cores), sum(exponents)

    def times_power(self, exponent: int) -> TensorNetwork:
        """The tensor times ``2**exponent``, spread over the cores: exact within the range of the dtype."""
        if exponent == 0:
            return self
        share, more = divmod(exponent, len(self.cores))
        return TensorNetwork(
            self.structure, [times_power(c, share + (k < more)) for k, c in enumerate(self.cores)]
        )

    def einsum(self) -> tuple[str, tuple[torch.Tensor, ...]]:
        """Equation and operands: for ``e, cores = net.einsum()``, ``einsum(e, *cores)`` is the dense tensor.

        Dangling legs get the first symbols, in order; an internal node's axis of size 1 is summed over.
        """
        legs = [opt_einsum.get_symbol(k) for k in range(self.structure.num_nodes)]
        inputs = [leg + bonds for leg, bonds in zip(legs, _bond_symbols(self.structure, len(legs)))]
        return ",".join(inputs) + "->" + "".join(legs[: self.structure.order]), self.cores

    # -- moves -----------------------------------------------------------------------------------------

    def grow_edge(
        self,
        i: int,
        j: int,
        *,
        slices: tuple[torch.Tensor, torch.Tensor] | None = None,
        noise: float = 1e-2,
        random_state: RandomState = None,
    ) -> TensorNetwork:
        """Raise the rank of edge ``(i, j)`` by one, keeping all weights.

        The new slices are `slices`, or normal entries of size `noise`; ``noise=0`` leaves the represented
        tensor exactly as it is (Proposition 1 of the paper).
        """
        self.structure.check_nodes(i, j)
        if slices is None:
            generator = as_generator(random_state)

            def draw(node: int, other: int) -> torch.Tensor:
                count = self.structure.leg_dim(node) * self.structure.bond_product(node, without=other)
                return noise * torch.randn(
                    count, generator=generator, dtype=self.dtype, device=generator.device
                )

            slices = draw(i, j), draw(j, i)
        return TensorNetwork(*moves.grow(self.structure, self.cores, i, j, *slices))

    def shrink_edge(self, i: int, j: int, *, by: int = 1) -> TensorNetwork:
        """Lower the rank of edge ``(i, j)``, dropping its weakest components in the balanced gauge."""
        rank = self.structure.rank(i, j)
        if not 1 <= by < rank:
            raise StructureError(f"edge ({i}, {j}) has rank {rank} and cannot shrink by {by}")
        cores = gauge.balance(self.structure, self.cores)
        return TensorNetwork(*moves.shrink(self.structure, cores, i, j, range(rank - by)))

    def split_node(
        self, node: int, axes: Sequence[int], *, rank: int | None = None, threshold: float = 1e-12
    ) -> TensorNetwork:
        """Split `node` by a truncated SVD; the part without the dangling leg becomes an internal node.

        Parameters
        ----------
        axes
            Axes of the core that stay together (0 is the dangling leg).
        rank, threshold
            Rank of the new edge, by default the smallest that drops at most `threshold`, relative, of the
            core's norm in the gauge of its environment.
        """
        self.structure.check_nodes(node)
        whitened, inverses = whiten_core(self.structure, self.cores, node)
        structure, cores, _ = moves.split(
            self.structure,
            self.cores,
            node,
            axes,
            rank=rank,
            threshold=threshold,
            inverse_roots=inverses,
            whitened=whitened,
        )
        return TensorNetwork(structure, cores)

    def merge_nodes(self, target: int, absorbed: int) -> TensorNetwork:
        """Contract internal node `absorbed` into `target`; the represented tensor is unchanged."""
        self.structure.check_nodes(target, absorbed)
        return TensorNetwork(*moves.merge(self.structure, self.cores, target, absorbed))

    def take(self, leg: int, slices: Sequence[int]) -> TensorNetwork:
        """Slices of a leg by their numbers, as of an array; -1 stands for a new one, the mean of the old.

        Examples
        --------
        >>> net = TensorNetwork.random(Structure.tensor_ring((4, 5, 6), 2), random_state=0)
        >>> net.take(1, [1, 2, 3, 4, -1]).structure.dims  # without the first slice, and with a new one
        (4, 5, 6)
        """
        if not 0 <= leg < self.structure.order:
            raise StructureError(f"leg {leg} does not exist; there are {self.structure.order}")
        return TensorNetwork(*moves.take(self.structure, self.cores, leg, slices))

    def balanced(self) -> TensorNetwork:
        """The same tensor with every edge in the balanced gauge."""
        return TensorNetwork(self.structure, gauge.balance(self.structure, self.cores))

    # -- files -----------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write a safetensors file that `tensorgrow.load` reads."""
        header, tensors = self.pack("core")
        write_file(path, NETWORK_KIND, {"network": header}, tensors)

    def pack(self, prefix: str) -> tuple[dict[str, object], dict[str, torch.Tensor]]:
        """Header and named tensors for a file; `unpack` is its inverse."""
        return self.structure.to_dict(), {f"{prefix}.{k}": c for k, c in enumerate(self.cores)}

    @classmethod
    def unpack(
        cls, header: Mapping[str, object], tensors: Mapping[str, torch.Tensor], prefix: str
    ) -> TensorNetwork:
        """Rebuild a network from what `pack` returned."""
        structure = Structure.from_dict(header)
        try:
            return cls(structure, [tensors[f"{prefix}.{k}"] for k in range(structure.num_nodes)])
        except KeyError as error:
            raise FileFormatError(f"the file lacks the tensor {error}; it is damaged") from error

    def __repr__(self) -> str:
        return f"TensorNetwork({self.structure!r}, dtype={self.dtype}, device={str(self.device)!r})"

    def _repr_html_(self) -> str:
        """Numbers and a drawing, for notebooks."""
        from .report import network_html

        return network_html(self)

    def check_indices(self, indices: ArrayLike | torch.Tensor) -> torch.Tensor:
        """Return positions as 64-bit integers on the network's device, or raise `DataError`."""
        where = torch.as_tensor(indices if isinstance(indices, torch.Tensor) else np.array(indices))
        order = self.structure.order
        if where.dim() != 2 or where.shape[1] != order:
            raise DataError(f"indices must have shape (n, {order}), not {tuple(where.shape)}")
        if where.is_floating_point() or where.is_complex() or where.dtype == torch.bool:
            raise DataError(f"indices must be integers, not {where.dtype}")
        where = where.to(device=self.device, dtype=torch.int64)
        dims = torch.tensor(self.structure.dims, device=self.device)
        bad = ((where < 0) | (where >= dims)).any(1)
        if bool(bad.any()):
            first = int(bad.nonzero()[0, 0])
            raise DataError(
                f"{int(bad.sum())} of {len(where)} index rows lie outside {self.structure.dims}; "
                f"the first is row {first}: {where[first].tolist()}"
            )
        return where


loads(NETWORK_KIND, lambda header, tensors, _: TensorNetwork.unpack(header["network"], tensors, "core"))
