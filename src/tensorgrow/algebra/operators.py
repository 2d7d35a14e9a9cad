"""What a network does as a number-like object: operators and methods that compute with whole tensors."""

from __future__ import annotations

import cmath
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from numbers import Complex
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import numpy as np
import torch

from ..data.arrays import as_tensor, floor_exponent, times_power
from ..errors import DataError, OptionError, StructureError, check_whole
from ..structure import Structure
from . import arithmetic, legs
from .moves import Move

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

N = TypeVar("N", bound="Operators[Any]")

Modes = int | Sequence[int] | None
Weights: TypeAlias = "Mapping[int, ArrayLike | torch.Tensor] | Sequence[ArrayLike | torch.Tensor | None]"


class Operators(Generic[N]):
    """Arithmetic of networks: exact up to rounding, differentiable, and without forming a tensor.

    `TensorNetwork` inherits it. Both networks of an operation may have different graphs, but need one
    precision and one device; real and complex go together. What is left without a mode is a number: a tensor
    without axes. The page on calculus says which graph and ranks results have.

    Examples
    --------
    >>> import tensorgrow as tg
    >>> ring = tg.TensorNetwork.random(tg.Structure.tensor_ring((4, 5, 6), 2), random_state=0)
    >>> train = tg.TensorNetwork.random(tg.Structure.tensor_train((4, 5, 6), 3), random_state=1)
    >>> total = 2 * ring - train
    >>> dict(total.structure.ranks)
    {(0, 1): 5, (0, 2): 3, (1, 2): 3}
    >>> total[1, ::2].shape
    (3, 6)
    >>> total.sum().shape, total.sum(1).shape
    (torch.Size([]), (4, 6))
    >>> ring.contract(train, [(0, 0), (1, 1)]).shape
    (6, 6)
    """

    __slots__ = ()
    # NumPy numbers and arrays leave their operators to ours.
    __array_priority__ = 1000.0

    structure: Structure
    cores: tuple[torch.Tensor, ...]

    @abstractmethod
    def _make(self, structure: Structure, cores: Sequence[torch.Tensor]) -> N:
        """A network of the same kind."""

    @property
    def _operand(self) -> arithmetic.Operand:
        return self.structure, self.cores

    # -- shape -----------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the represented tensor."""
        return self.structure.dims

    @property
    def ndim(self) -> int:
        """Number of modes of the represented tensor."""
        return self.structure.order

    # -- operators -------------------------------------------------------------------------------------

    def __add__(self, other: object) -> N:
        """The sum with a network over the same modes, or with a number added to every entry.

        The graph is the union of both; ranks add along a spanning tree of it, others are the larger of two.
        """
        if isinstance(other, Operators):
            return self._make(*arithmetic.add(*self._pair(other, "add")))
        factor = _number(other, self.cores[0])
        if factor is None:
            return NotImplemented
        if isinstance(factor, complex) and factor == 0:  # `sum` of networks begins with 0
            return self._make(*self._operand)
        ones = [self.cores[0].new_ones(d) for d in self.shape]
        return self.__add__(self._make(Structure(self.shape), ones) * factor)

    __radd__ = __add__

    def __neg__(self) -> N:
        return self * -1

    def __sub__(self, other: object) -> N:
        if isinstance(other, Operators):
            mine, theirs = self._pair(other, "subtract")
            return self._make(*arithmetic.add(mine, arithmetic.scale(*theirs, -1.0)))
        number = _number(other, self.cores[0])
        return NotImplemented if number is None else self.__add__(-number)

    def __rsub__(self, other: object) -> N:
        difference: N = -self + other
        return difference

    def __mul__(self, other: object) -> N:
        """The entrywise product with a network over the same modes, or a multiple.

        The graph of a product is the union of both and its ranks are products.
        """
        if isinstance(other, Operators):
            return self._make(*arithmetic.multiply(*self._pair(other, "multiply")))
        factor = _number(other, self.cores[0])
        return NotImplemented if factor is None else self._times(factor)

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> N:
        """The network over a number."""
        if isinstance(other, Operators):
            raise OptionError(
                "a network cannot be divided by a network: the quotient of two networks is none in general; "
                "approximate it from its entries, or divide the tensors of `to_dense`"
            )
        divisor = _number(other, self.cores[0])
        if divisor is None:
            return NotImplemented
        if divisor == 0:
            raise OptionError("a network was divided by zero; divide by another number")
        if isinstance(divisor, torch.Tensor):
            return self._times(1 / divisor)
        exponent = floor_exponent(max(abs(divisor.real), abs(divisor.imag)))
        return self._times(1 / times_power(divisor, -exponent), -exponent)

    def __rtruediv__(self, other: object) -> N:
        raise OptionError(
            "a number cannot be divided by a network: one over its entries is no network in general; "
            "approximate it from its entries, or divide by the tensor of `to_dense`"
        )

    def _times(self, factor: complex | torch.Tensor, exponent: int = 0) -> N:
        """The network times ``factor * 2**exponent``."""
        structure, cores = self._operand
        if factor.is_complex() if isinstance(factor, torch.Tensor) else factor.imag:
            cores = [c.to(c.dtype.to_complex()) for c in cores]
        elif not isinstance(factor, torch.Tensor):
            factor = factor.real
        return self._make(*arithmetic.scale(structure, cores, factor, exponent))

    def conj(self) -> N:
        """The complex conjugate; a real network stays as it is."""
        return self._make(self.structure, [c.conj_physical() for c in self.cores])

    # -- modes -----------------------------------------------------------------------------------------

    def __getitem__(self, key: object) -> N | torch.Tensor:
        """Entries of modes, as of an array: integers, slices, an ellipsis, one array of integers or bools.

        A mode with an integer disappears; where all do, the result is a number.
        """
        return self._result(legs.select(*self._operand, legs.parse_index(key, self.shape)))

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[N | torch.Tensor]:
        """Slices of the first mode."""
        return (self[k] for k in range(len(self)))

    def sum(self, modes: Modes = None) -> N | torch.Tensor:
        """Sum over some modes; over all of them, by default, it is a number."""
        ones = {k: np.ones(self.shape[k]) for k in legs.parse_modes(modes, self.ndim)}
        return self.integrate(ones)

    def mean(self, modes: Modes = None) -> N | torch.Tensor:
        """Mean over some modes; over all of them, by default, it is a number."""
        shares = {k: np.full(self.shape[k], 1 / self.shape[k]) for k in legs.parse_modes(modes, self.ndim)}
        return self.integrate(shares)

    def marginal(self, keep: int | Sequence[int]) -> N:
        """Sum over all modes but those in `keep`, which come in the order given there."""
        kept = legs.parse_modes(keep, self.ndim)
        if not kept:
            raise OptionError("a marginal keeps at least one mode; `sum` is over all of them")
        left = self.sum([k for k in range(self.ndim) if k not in kept])
        assert isinstance(left, Operators)
        where = sorted(kept)
        marginal: N = left.permute([where.index(k) for k in kept])
        return marginal

    def integrate(self, weights: Weights) -> N | torch.Tensor:
        """Weighted sum over some modes; with the weights of a quadrature it is an integral.

        Parameters
        ----------
        weights
            A vector of weights for every mode that is summed over: a dictionary by mode, or a list with one
            item per mode, None for modes that stay.

        Returns
        -------
        TensorNetwork or torch.Tensor
            Over the modes that stay; a number where none does.

        Examples
        --------
        The integral of ``exp(-x) y`` over the unit square.

        >>> points, weights = np.polynomial.legendre.leggauss(10)
        >>> points, weights = (1 + points) / 2, weights / 2
        >>> from tensorgrow import Structure, TensorNetwork
        >>> net = TensorNetwork(Structure.rank_one((10, 10)), [np.exp(-points), points])
        >>> round(float(net.integrate([weights, weights])), 9)
        0.316060279
        """
        if not isinstance(weights, Mapping):
            if len(weights) != self.ndim:
                raise OptionError(
                    f"{len(weights)} weights were given for {self.ndim} modes; give one vector per mode and "
                    "None for those that stay, or a dictionary"
                )
            weights = {k: w for k, w in enumerate(weights) if w is not None}
        vectors, operand = {}, self._operand
        for k, given in zip(legs.parse_modes(list(weights), self.ndim), weights.values()):
            vector, operand = _as_factor(given, f"the weights of mode {k}", operand)
            if tuple(vector.shape) != (self.shape[k],):
                raise DataError(
                    f"mode {k} has size {self.shape[k]} and takes as many weights, not an array of shape "
                    f"{tuple(vector.shape)}"
                )
            vectors[k] = vector
        return self._result(legs.weigh(*operand, vectors))

    def apply(self, mode: int, matrix: ArrayLike | torch.Tensor) -> N:
        """Multiply a mode by a matrix with a column for each of its entries and a row for each new one."""
        (k,) = legs.parse_modes([mode], self.ndim)
        factor, operand = _as_factor(matrix, "the matrix", self._operand)
        if factor.dim() != 2 or factor.shape[1] != self.shape[k] or len(factor) == 0:
            raise DataError(
                f"mode {k} has size {self.shape[k]} and takes a matrix with as many columns, not an array of "
                f"shape {tuple(factor.shape)}"
            )
        return self._make(*legs.apply(*operand, k, factor))

    def permute(self, order: Sequence[int]) -> N:
        """The modes in another order: mode ``k`` of the result is mode ``order[k]`` of this network."""
        places = legs.parse_modes(order, self.ndim)
        if len(places) != self.ndim:
            raise OptionError(f"order={tuple(order)} must name each of the {self.ndim} modes once")
        return self._make(*legs.permute(*self._operand, places))

    def merge_modes(self, modes: Sequence[int]) -> N:
        """Make one mode of several, at the place of the first of them; the last of them varies fastest.

        The same as a reshape of the tensor, where the modes follow each other.
        """
        merged = legs.parse_modes(modes, self.ndim)
        if not merged:
            raise OptionError("no modes to merge were given; name at least one")
        return self._make(*legs.merge(*self._operand, merged))

    def split_mode(self, mode: int, sizes: Sequence[int]) -> N:
        """Make several modes of one, in its place, the last of them the fastest: a reshape of the tensor.

        The largest of them stays with the core; each of the others gets a node of its own, an identity.
        """
        (k,) = legs.parse_modes([mode], self.ndim)
        parts = [check_whole("a size", n) for n in sizes]
        if not parts or math.prod(parts) != self.shape[k]:
            raise StructureError(
                f"mode {k} has size {self.shape[k]}, which is not the product of the sizes {tuple(parts)}"
            )
        return self._make(*legs.split(*self._operand, k, parts))

    def outer(self, other: N) -> N:
        """All products of entries: the modes of this network, then those of the other."""
        product = self.contract(other, ())
        assert not isinstance(product, torch.Tensor)
        return product

    def contract(self, other: N, pairs: Sequence[tuple[int, int]]) -> N | torch.Tensor:
        """Sum over products along modes of both networks, as ``numpy.tensordot`` does.

        Parameters
        ----------
        pairs
            For every sum a mode of this network and one of the other.

        Returns
        -------
        TensorNetwork or torch.Tensor
            Over the modes that are left, those of this network first; a number where none is. Nothing is
            conjugated.
        """
        if any(len(pair) != 2 for pair in pairs):
            raise OptionError(f"pairs={pairs!r} must be pairs of modes, for example [(0, 2), (1, 0)]")
        mine = legs.parse_modes([pair[0] for pair in pairs], self.ndim)
        theirs = legs.parse_modes([pair[1] for pair in pairs], other.ndim)
        for a, b in zip(mine, theirs):
            if self.shape[a] != other.shape[b]:
                raise StructureError(
                    f"mode {a} has size {self.shape[a]} and mode {b} of the other network {other.shape[b]}; "
                    "modes that are contracted must have the same size"
                )
        return self._result(legs.join(*self._same_kind(other, "contract"), list(zip(mine, theirs))))

    def _result(self, value: Move | torch.Tensor) -> N | torch.Tensor:
        return value if isinstance(value, torch.Tensor) else self._make(*value)

    # -- checks ----------------------------------------------------------------------------------------

    def _pair(self, other: Operators[Any], what: str) -> tuple[arithmetic.Operand, arithmetic.Operand]:
        """Both networks with one dtype, or an error where shapes, precisions or devices differ."""
        if self.shape != other.shape:
            raise StructureError(
                f"cannot {what} networks over modes of sizes {self.shape} and {other.shape}; "
                "they must have the same modes in the same order"
            )
        return self._same_kind(other, what)

    def _same_kind(self, other: Operators[Any], what: str) -> tuple[arithmetic.Operand, arithmetic.Operand]:
        mine, theirs = self.cores[0], other.cores[0]
        if mine.device != theirs.device:
            raise DataError(
                f"cannot {what} networks on {mine.device} and {theirs.device}; move one of them: "
                f"network.to({str(mine.device)!r})"
            )
        if mine.dtype.to_real() != theirs.dtype.to_real():
            raise DataError(
                f"cannot {what} networks of dtypes {mine.dtype} and {theirs.dtype}; convert one of them: "
                f"network.to(dtype={mine.dtype})"
            )
        dtype = torch.promote_types(mine.dtype, theirs.dtype)
        one, two = ((x.structure, [c.to(dtype) for c in x.cores]) for x in (self, other))
        return one, two


def _as_factor(
    array: ArrayLike | torch.Tensor, name: str, operand: arithmetic.Operand
) -> tuple[torch.Tensor, arithmetic.Operand]:
    """An array in the precision and on the device of a network, and the network, complex if the array is."""
    structure, cores = operand
    factor = as_tensor(array, name)
    if factor.is_complex():
        cores = [c.to(c.dtype.to_complex()) for c in cores]
    return factor.to(cores[0]), (structure, cores)


def _number(value: object, like: torch.Tensor) -> complex | torch.Tensor | None:
    """A number as a complex one, with a gradient as a tensor like a core; None for other objects."""
    if isinstance(value, np.ndarray | torch.Tensor):
        if value.ndim > 0:
            raise DataError(
                f"a network cannot be combined with an array of shape {tuple(value.shape)}; make a network "
                "of it (`tensorgrow.decompose`), or compute with the tensor of `to_dense`"
            )
        if isinstance(value, torch.Tensor) and value.requires_grad:
            dtype = like.dtype.to_complex() if value.is_complex() else like.dtype.to_real()
            return value.to(like.device, dtype)
        value = value.item()
    if not isinstance(value, Complex):
        return None
    number = complex(value)
    if not cmath.isfinite(number):
        raise DataError(f"a network cannot be combined with {value}; the number must be finite")
    return number
