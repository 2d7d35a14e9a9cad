"""What a network does as a number-like object: operators and methods that compute with whole tensors."""

from __future__ import annotations

import cmath
from abc import abstractmethod
from collections.abc import Sequence
from numbers import Complex
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from ..data.arrays import floor_exponent, times_power
from ..errors import DataError, OptionError, StructureError
from ..structure import Structure
from . import arithmetic

N = TypeVar("N", bound="Operators[Any]")


class Operators(Generic[N]):
    """Arithmetic of networks: exact up to rounding, differentiable, and without forming a tensor.

    Whoever inherits says how to make a network from a structure and its cores.
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
        factor = _number(other)
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
            return self.__add__(other * -1)
        number = _number(other)
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
        factor = _number(other)
        return NotImplemented if factor is None else self._times(factor)

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> N:
        """The network over a number."""
        if isinstance(other, Operators):
            raise OptionError(
                "a network cannot be divided by a network: the quotient of two networks is none in general; "
                "approximate it from its entries, or divide the tensors of `to_dense`"
            )
        divisor = _number(other)
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


def _number(value: object) -> complex | torch.Tensor | None:
    """A number as a complex one, a tensor without axes as it is; None for what is no array either."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, np.ndarray | torch.Tensor) and value.ndim > 0:
        raise DataError(
            f"a network cannot be combined with an array of shape {tuple(value.shape)}; make a network of it "
            "(`tensorgrow.decompose`), or compute with the tensor of `to_dense`"
        )
    if not isinstance(value, Complex | torch.Tensor):
        return None
    if not cmath.isfinite(complex(value)):
        raise DataError(f"a network cannot be combined with {value}; the number must be finite")
    return value if isinstance(value, torch.Tensor) else complex(value)
