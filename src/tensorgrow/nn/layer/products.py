"""Contractions as lists of matrix products, and how they are carried out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from .costs import Machine, Work

# More rows than any input has: a plan that takes all of them at once.
NO_LIMIT = 1 << 62


class Product(NamedTuple):
    """A product of two operands; the result is appended to the operands.

    Without `batched` it is a matrix product of the operands in the orders and shapes below. With it the left
    operand, a matrix, multiplies a stack of matrices: what is summed over lies between legs that stay, and
    nothing is copied.
    """

    left: int
    right: int
    left_order: tuple[int, ...] | None
    left_shape: tuple[int, ...]
    right_order: tuple[int, ...] | None
    right_shape: tuple[int, ...]
    shape: tuple[int, ...]
    batched: bool = False

    @property
    def has_rows(self) -> bool:
        return -1 in self.shape

    def apply(self, pool: list[torch.Tensor | None]) -> torch.Tensor:
        """Multiply two operands of the pool, which are used once and let go."""
        a, b = pool[self.left], pool[self.right]
        assert a is not None and b is not None
        pool[self.left] = pool[self.right] = None
        if self.left_order is not None:
            a = a.permute(self.left_order)
        if self.right_order is not None:
            b = b.permute(self.right_order)
        a, b = a.reshape(self.left_shape), b.reshape(self.right_shape)
        if not self.batched:
            product = a @ b
        elif torch.is_grad_enabled() and (a.requires_grad or b.requires_grad):
            product = StackProduct.apply(a, b)  # type: ignore[no-untyped-call]
        else:
            product = multiply_stack(a, b)
        return product.reshape(self.shape)


def multiply_stack(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A matrix times every matrix of a stack."""
    return torch.bmm(a.expand(b.shape[0], -1, -1), b)


class StackProduct(torch.autograd.Function):
    """`multiply_stack` with a cheap gradient with respect to the one matrix.

    `torch.bmm` computes one gradient per matrix of the stack and adds them up. Where these are larger than
    the matrices of the stack, that takes most of the time and memory of a backward pass; one product of
    copies is cheaper.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return multiply_stack(a, b)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, torch.Tensor], output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        # Under autocast the product was less precise than what it was made of.
        a, b = (t.to(grad.dtype) for t in ctx.saved_tensors)
        for_a = for_b = None
        if ctx.needs_input_grad[0]:
            if a.numel() < sum(a.shape) * b.shape[2]:
                for_a = torch.bmm(grad, b.mH).sum(0)
            else:
                flat = grad.transpose(0, 1).reshape(a.shape[0], -1)
                for_a = flat @ b.transpose(0, 1).reshape(a.shape[1], -1).mH
        if ctx.needs_input_grad[1]:
            for_b = multiply_stack(a.mH, grad)
        return for_a, for_b


class Plan(NamedTuple):
    """A contraction: the shapes that operands get first, products of two, and the axes of the result."""

    inputs: tuple[tuple[int, ...], ...]
    products: tuple[Product, ...]
    order: tuple[int, ...] | None
    shape: tuple[int, ...]
    work: tuple[Work, ...]  # of every product, and of the last permutation where there is one
    # Rows that go through at once; more are taken in parts, so that what lies between products stays in the
    # cache.
    part: int = NO_LIMIT

    def seconds(self, rows: int, itemsize: int, machine: Machine) -> float:
        result = float(abs(self.shape[-1]))
        once = sum(w.seconds(rows, itemsize, machine) for w in self.work if not w.has_rows)
        each = [w for w in self.work if w.has_rows]
        if each:
            each.append(Work(entries=(0.0, 2 * result)))  # the bias
        whole, rest = divmod(rows, self.part)
        time = whole * sum(w.seconds(self.part, itemsize, machine) for w in each)
        if rest:
            time += sum(w.seconds(rest, itemsize, machine) for w in each)
        if rows > self.part:  # the parts are put together
            time += Work(copied=(0.0, result)).seconds(rows, itemsize, machine)
        return once + time

    def entries(self, rows: int) -> int:
        """Most numbers that lie in memory beside cores and input; counted."""
        together = min(rows, self.part)
        pool = [0] * len(self.inputs)
        live = peak = 0
        for product, work in zip(self.products, self.work):
            entries = abs(math.prod(product.shape)) * (together if product.has_rows else 1)
            live += entries
            copied = work.copied[0] + work.copied[1] * together
            peak = max(peak, live + round(copied))
            live -= pool[product.left] + pool[product.right]
            pool.append(entries)
        if not any(p.has_rows for p in self.products):  # the weight, and a copy of it in order
            return max(peak, 2 * math.prod(self.shape))
        result = rows * self.shape[-1]
        if rows > together:  # the results of all parts, and then all in one
            return result + max(peak, result)
        return max(peak, live + result)


def run(plan: Plan, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    return _finish(plan, _prepare(plan, operands))


def run_rows(
    plan: Plan, rows: torch.Tensor, cores: Sequence[torch.Tensor], bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Contract a matrix of rows with cores, part by part where there are many rows, and add a vector to each.

    Compilers see one part: they fuse what they want, and the number of parts would be one more thing that a
    compiled graph depends on.
    """
    if torch.compiler.is_compiling() or rows.shape[0] <= plan.part:
        return _add_bias(run(plan, [rows, *cores]), bias)
    pool = _prepare(plan, [rows[:0], *cores])
    shape = plan.inputs[0]
    parts = torch.split(rows, plan.part)
    return torch.cat([_add_bias(_finish(plan, [part.reshape(shape), *pool[1:]]), bias) for part in parts])


def _add_bias(product: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    if bias is None:
        return product
    bias = bias.to(product.dtype)  # under autocast products are less precise than parameters
    return product + bias if torch.is_grad_enabled() else product.add_(bias)


def _prepare(plan: Plan, operands: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """Operands and results, with what does not depend on the rows."""
    pool: list[torch.Tensor | None] = [t.reshape(s) for t, s in zip(operands, plan.inputs)]
    for product in plan.products:
        pool.append(None if product.has_rows else product.apply(pool))
    return pool


def _finish(plan: Plan, pool: list[torch.Tensor | None]) -> torch.Tensor:
    """The result, from what `_prepare` returned."""
    first = len(plan.inputs)
    for n, product in enumerate(plan.products):
        if product.has_rows:
            pool[first + n] = product.apply(pool)
    out = pool[-1]
    assert out is not None
    if plan.order is not None:
        out = out.permute(plan.order)
    return out.reshape(plan.shape)
