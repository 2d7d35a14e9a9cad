"""Contractions as lists of matrix products, and how they are carried out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from .costs import Machine, Work

__all__ = ["NO_LIMIT", "Plan", "Step", "run", "run_rows"]

NO_LIMIT = 1 << 62


class Step(NamedTuple):
    """A product of two operands; the result is appended to the operands.

    Without `batched` a matrix product of the operands in the given orders and shapes. With it the right
    operand is a stack of matrices that the left one, a matrix, multiplies: what is summed over lies between
    legs that stay, and nothing is copied.
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
        """Whether an operand holds the rows."""
        return -1 in self.shape

    def apply(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """The product."""
        if self.left_order is not None:
            a = a.permute(self.left_order)
        if self.right_order is not None:
            b = b.permute(self.right_order)
        a, b = a.reshape(self.left_shape), b.reshape(self.right_shape)
        if not self.batched:
            product = a @ b
        elif torch.is_grad_enabled() and (a.requires_grad or b.requires_grad):
            product = _Stacked.apply(a, b)  # type: ignore[no-untyped-call]
        else:
            product = _stacked(a, b)
        return product.reshape(self.shape)


def _stacked(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A matrix times every matrix of a stack."""
    return torch.bmm(a.expand(b.shape[0], -1, -1), b)


class _Stacked(torch.autograd.Function):
    """`_stacked` with a cheap gradient with respect to the one matrix.

    That of `torch.bmm` is a matrix for every one of the stack, which are then added up: most of the time and
    memory of a backward pass where these matrices are larger than those of the stack. It is one product of
    copies then.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return _stacked(a, b)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, torch.Tensor], output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        a, b = ctx.saved_tensors
        for_a = for_b = None
        if ctx.needs_input_grad[0]:
            if a.numel() < sum(a.shape) * b.shape[2]:
                for_a = torch.bmm(grad, b.mH).sum(0)
            else:
                flat = grad.transpose(0, 1).reshape(a.shape[0], -1)
                for_a = flat @ b.transpose(0, 1).reshape(a.shape[1], -1).mH
        if ctx.needs_input_grad[1]:
            for_b = _stacked(a.mH, grad)
        return for_a, for_b


class Plan(NamedTuple):
    """A contraction: the shapes operands get first, products, and the axes of the result.

    Attributes
    ----------
    work
        Of every step, and of the last permutation where there is one.
    part
        Rows that go through at once; more are taken in parts, so that what lies between products stays in
        the cache.
    """

    inputs: tuple[tuple[int, ...], ...]
    steps: tuple[Step, ...]
    order: tuple[int, ...] | None
    shape: tuple[int, ...]
    work: tuple[Work, ...]
    part: int = NO_LIMIT

    def seconds(self, rows: int, itemsize: int, machine: Machine) -> float:
        """Estimated time."""
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


def run(plan: Plan, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """Contract."""
    return _finish(plan, _prepare(plan, operands))


def run_rows(
    plan: Plan, rows: torch.Tensor, cores: Sequence[torch.Tensor], bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Contract a matrix of rows with cores, part by part where there are many rows, and add a vector to each.

    Compilers see one part: they fuse what they want, and the number of parts would be one more thing that a
    compiled graph depends on.
    """
    if torch.compiler.is_compiling() or rows.shape[0] <= plan.part:
        return _plus(run(plan, [rows, *cores]), bias)
    pool = _prepare(plan, [rows[:0], *cores])
    shape = plan.inputs[0]
    parts = torch.split(rows, plan.part)
    return torch.cat([_plus(_finish(plan, [part.reshape(shape), *pool[1:]]), bias) for part in parts])


def _plus(product: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    if bias is None:
        return product
    return product + bias if torch.is_grad_enabled() else product.add_(bias)


def _prepare(plan: Plan, operands: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """Operands and results, with what does not depend on the rows."""
    pool: list[torch.Tensor | None] = [t.reshape(s) for t, s in zip(operands, plan.inputs)]
    for step in plan.steps:
        pool.append(None if step.has_rows else _applied(step, pool))
    return pool


def _finish(plan: Plan, pool: list[torch.Tensor | None]) -> torch.Tensor:
    """The result, from what `_prepare` gave."""
    first = len(plan.inputs)
    for n, step in enumerate(plan.steps):
        if step.has_rows:
            pool[first + n] = _applied(step, pool)
    out = pool[-1]
    assert out is not None
    if plan.order is not None:
        out = out.permute(plan.order)
    return out.reshape(plan.shape)


def _applied(step: Step, pool: list[torch.Tensor | None]) -> torch.Tensor:
    """The result of a step; its operands are used once and let go."""
    a, b = pool[step.left], pool[step.right]
    assert a is not None and b is not None
    pool[step.left] = pool[step.right] = None
    return step.apply(a, b)
