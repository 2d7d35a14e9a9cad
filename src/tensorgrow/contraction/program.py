"""Contractions compiled to a flat list of matrix products over numbered slots.

An einsum call spends more time in Python than in arithmetic on small cores. Here the legs, permutations and
shapes of every product are worked out once per structure; running a program is then a plain loop over
``permute, reshape, matmul``. On small CPU problems the loop runs on NumPy, whose dispatch is about twice as
fast as torch's; everywhere else it runs on torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np

from ..structure import Structure
from .arrangement import Arrangement, arrange_product, arrange_square, keep_result
from .execution import CONJ, MATMUL, PERMUTE, PLAIN, SELF, SLABS, SOLVE, THIN, WIDE, execute
from .grams import Array, Update
from .paths import find_path
from .strided import LARGE, Runs, runs_of
from .thin import is_thin
from .wide import is_wide

# One instruction costs about as much as this many flops on one core (dispatch of about 1-2 microseconds).
INSTRUCTION_FLOPS = 2.0e4
# Entries of an operand from which other orders of a contraction are looked for: a millisecond's copies. A
# fifth of it is what looking for orders of results takes.
MANY_COPIES = 1.0e6
# Entries of operands and result up to which one product keeps its orders then: a copy takes microseconds.
FEW_COPIES = 2_000


class Legs:
    """Numbers for the legs of a structure: dangling legs, then edges (ket), then conjugate twins (bra)."""

    def __init__(self, structure: Structure) -> None:
        n, edges = structure.num_nodes, structure.edges
        self.num_nodes = n
        self.shift = len(edges)
        self.edge = {e: n + k for k, e in enumerate(edges)}
        bond_sizes = [structure.ranks[e] for e in edges]
        self.sizes = [*structure.leg_dims, *bond_sizes, *bond_sizes]
        self.bonds = [tuple(self.edge[e] for e in structure.edges_of(k)) for k in range(n)]

    def ket(self, node: int) -> tuple[int, ...]:
        return (node, *self.bonds[node])

    def bra(self, legs: Iterable[int]) -> tuple[int, ...]:
        """Conjugate twins of `legs`; dangling legs are their own."""
        n, shift = self.num_nodes, self.shift
        return tuple(x if x < n else x + shift for x in legs)

    def open_bonds(self, nodes: Sequence[int]) -> tuple[int, ...]:
        """Edges from `nodes` to the rest, ket numbers."""
        seen: dict[int, int] = {}
        for k in nodes:
            for b in self.bonds[k]:
                seen[b] = seen.get(b, 0) + 1
        return tuple(b for b, count in seen.items() if count == 1)


@dataclass(frozen=True)
class Layout:
    """An input as one product wants it: axes in another order, then as a matrix."""

    order: tuple[int, ...]
    shape: tuple[int, int]

    def of(self, array: Array) -> Array:
        """The array laid out like that: a copy."""
        moved = array.transpose(self.order) if isinstance(array, np.ndarray) else array.permute(self.order)
        return moved.reshape(self.shape)


class Program:
    """Builder and runner of a compiled contraction.

    A *register* is a slot together with an order of legs. Two registers may share a slot: the conjugate of a
    real tensor is the tensor itself under other leg names.
    """

    def __init__(self, sizes: Sequence[int], *, is_complex: bool) -> None:
        self.sizes = sizes
        self.is_complex = is_complex
        self._has_short = 1 in sizes
        self.instructions: list[tuple[Any, ...]] = []
        self.legs: list[tuple[int, ...]] = []
        self.slot: list[int] = []
        self.num_slots = 0
        self.flops = 0.0
        self.copies = 0.0
        self._registers: list[tuple[int, ...]] = []  # of every instruction: its result and its operands
        self._inputs: set[int] = set()
        self._slot_entries: list[int] = []
        # Products by their operands, until one of these changes.
        self._known: dict[tuple[int, int], int] = {}

    # -- building --------------------------------------------------------------------------------------

    def input(self, legs: Sequence[int]) -> int:
        """A register the caller fills before each run."""
        register = self._register(tuple(legs))
        self._inputs.add(self.slot[register])
        return register

    def matmul(self, a: int, b: int, wanted: tuple[int, ...] | None = None) -> int:
        """Contract two registers over every leg they share; legs in the order `wanted` where that is free."""
        if wanted is not None:
            return self._matmul(a, b, wanted)
        out = self._known.get((a, b))
        if out is None:
            out = self._matmul(a, b, None)
            if 10 * self._slot_entries[self.slot[out]] <= MANY_COPIES:  # larger ones would fill the memory
                self._known[a, b] = out
        return out

    def _matmul(self, a: int, b: int, wanted: tuple[int, ...] | None) -> int:
        la, lb = self.legs[a], self.legs[b]
        if self.slot[a] == self.slot[b] and _are_aligned(la, lb):
            return self._self_product(a, b)
        free_a, free_b = tuple([x for x in la if x not in lb]), tuple([x for x in lb if x not in la])
        size, entries = self.sizes, self._slot_entries
        m, n = math.prod([size[x] for x in free_a]), math.prod([size[x] for x in free_b])
        k = entries[self.slot[a]] // m
        swap = m > n  # the small operand on the left: a large right operand is then read in storage order
        if wanted is not None and wanted in (free_a + free_b, free_b + free_a):
            swap = wanted != free_a + free_b
        if swap:
            a, b, la, lb, free_a, free_b = b, a, lb, la, free_b, free_a
        shared = tuple([x for x in lb if x in la])
        out = self._register(free_a + free_b, entries=m * n)
        self.flops += (8.0 if self.is_complex else 2.0) * m * n * k
        self._emit(self._product(out, a, b, free_a, shared, free_b), out, a, b)
        return out

    def _product(
        self,
        out: int,
        a: int,
        b: int,
        left: tuple[int, ...],
        shared: tuple[int, ...],
        right: tuple[int, ...],
    ) -> tuple[Any, ...]:
        """Instruction for ``(left, shared) x (shared, right)``, each with its legs in these orders."""
        size, la, lb = self.sizes, self.legs[a], self.legs[b]
        want_a, want_b = left + shared, shared + right
        rows, columns = [size[x] for x in left], [size[x] for x in right]
        m, n, k = math.prod(rows), math.prod(columns), math.prod([size[x] for x in shared])
        perm_a = None if want_a == la else tuple(map(la.index, want_a))
        perm_b = None if want_b == lb else tuple(map(lb.index, want_b))
        runs: Runs | None = None
        if perm_a is not None and not self._is_view(a, perm_a, len(left)):
            self.copies += m * k
        if perm_b is not None and not self._is_view(b, perm_b, len(shared)):
            self.copies += k * n
            if k * n >= LARGE:
                runs = runs_of([(x in shared, size[x]) for x in lb])
        kind = THIN if is_thin(m, k, n) else WIDE if is_wide(m, k, n) else PLAIN
        return (
            MATMUL, self.slot[out], self.slot[a], self.slot[b],
            perm_a, (m, k), perm_b, (k, n), (*rows, *columns), runs, kind
        )  # fmt: skip

    def _slabs(self, out: int, a: int, b: int, how: Arrangement) -> tuple[Any, ...]:
        """Instruction for a product with every slab of the second operand, which is stored that way."""
        size, la, want = self.sizes, self.legs[a], (*how.left, *how.shared)
        f, m, k, n = (
            math.prod([size[x] for x in legs]) for legs in (how.batch, how.left, how.shared, how.right)
        )
        perm = tuple(la.index(x) for x in want)
        if not self._is_view(a, perm, len(how.left)):
            self.copies += m * k
        shape = tuple([size[x] for x in how.result])
        return (SLABS, self.slot[out], self.slot[a], self.slot[b], perm, (m, k), (f, k, n), shape)

    def _is_view(self, register: int, perm: tuple[int, ...], left: int) -> bool:
        """Whether grouping the permuted axes into a matrix needs no copy: both groups are runs of axes.

        Axes of size 1 do not count.
        """
        if self._has_short:
            kept = [k for k, leg in enumerate(self.legs[register]) if self.sizes[leg] > 1]
            place = dict(zip(kept, range(len(kept))))
            left = sum(k in place for k in perm[:left])
            perm = tuple([place[k] for k in perm if k in place])
        before = -1
        for position, axis in enumerate(perm):
            if position and position != left and axis != before + 1:
                return False
            before = axis
        return True

    def _emit(self, instruction: tuple[Any, ...], *registers: int) -> None:
        """Add an instruction; `registers` are its result and what it reads."""
        self.instructions.append(instruction)
        self._registers.append(registers)

    def _self_product(self, a: int, b: int) -> int:
        """A real tensor times itself under other leg names: ``x x^T``, half the arithmetic in BLAS."""
        la, lb = self.legs[a], self.legs[b]
        size = self.sizes
        shared = tuple(x for x, y in zip(la, lb) if x == y)
        free = tuple(x for x, y in zip(la, lb) if x != y)
        out = self._register((*free, *(y for x, y in zip(la, lb) if x != y)))
        m, n = math.prod([size[x] for x in free]), math.prod([size[x] for x in shared])
        self.flops += 1.0 * m * m * n
        self._emit(self._square(out, a, free, shared), out, a, b)
        return out

    def _square(self, out: int, a: int, free: tuple[int, ...], shared: tuple[int, ...]) -> tuple[Any, ...]:
        """Instruction for a self-product with the legs in these orders."""
        size, la = self.sizes, self.legs[a]
        perm = tuple(map(la.index, (*free, *shared)))
        m, n = math.prod([size[x] for x in free]), math.prod([size[x] for x in shared])
        if not self._is_view(a, perm, len(free)):
            self.copies += m * n
        order = None if perm == tuple(range(len(la))) else perm
        ket = tuple([size[x] for x in free])
        return (SELF, self.slot[out], self.slot[a], order, (m, n), ket + ket)

    def contract(self, registers: Sequence[int], keep: Sequence[int], *, in_order: bool = False) -> int:
        """Contract several registers in the best order; `keep` names the legs that stay.

        With `in_order` the last product writes them in this order where it can.
        """
        if len(registers) > 2 and max(self._slot_entries[self.slot[r]] for r in registers) >= MANY_COPIES:
            # Paths that cost the same sum over other legs of the large operand first: the finder takes one by
            # the order of the operands, and some copy it. A fit of 40^4 with Tucker ranks 5: 40, not 53 ms.
            mark = self.mark()
            turns = [(*registers[k:], *registers[:k]) for k in range(len(registers))]
            costs = []
            for turn in turns:
                self._contract(turn, keep, in_order)
                costs.append(self.cost)
                self.rollback(mark)
            registers = turns[costs.index(min(costs))]
            out = self._contract_last(registers, keep, in_order)
            if self.cost <= min(costs) + max(self._slot_entries[self.slot[r]] for r in registers):
                return out
            self.rollback(mark)
        return self._contract(registers, keep, in_order)

    def _contract_last(self, registers: Sequence[int], keep: Sequence[int], in_order: bool) -> int:
        """`contract`, the largest operand with the product of all others.

        It is then read once, and no large result is written: 64,000x40 by five columns takes 0.9 ms, and 1.7
        to 2.0 one leg after the other. So it may cost a flop per entry more.
        """
        last = max(registers, key=lambda r: self._slot_entries[self.slot[r]])
        others = [r for r in registers if r != last]
        wanted = {*keep, *self.legs[last]}
        legs = dict.fromkeys(x for r in others for x in self.legs[r] if x in wanted)
        joint = self._contract(others, tuple(legs), False)
        return self._contract([last, joint], keep, in_order)

    def _contract(self, registers: Sequence[int], keep: Sequence[int], in_order: bool) -> int:
        """`contract`, the path searched with the operands in this order."""
        pool = list(registers)
        path = find_path([self.legs[r] for r in registers], keep, self.sizes.__getitem__)
        for k, (a, b) in enumerate(path, 1):
            wanted = tuple(keep) if in_order and k == len(path) else None
            pool.append(self.matmul(pool[a], pool[b], wanted))
        return pool[-1]

    def conj(self, register: int, legs: Sequence[int]) -> int:
        """Complex conjugate under the leg names `legs`; free for real data."""
        if not self.is_complex:
            return self._register(tuple(legs), slot=self.slot[register])
        out = self._register(tuple(legs))
        self._emit((CONJ, self.slot[out], self.slot[register]), out, register)
        self.copies += self._slot_entries[self.slot[out]]
        return out

    def arrange(self, register: int, legs: Sequence[int]) -> int:
        """The same tensor with its axes in the order `legs`."""
        have, want = self.legs[register], tuple(legs)
        if have == want:
            return register
        out = self._register(want)
        self._emit(self._permutation(out, register), out, register)
        return out

    def _permutation(self, out: int, register: int) -> tuple[Any, ...]:
        have, want = self.legs[register], self.legs[out]
        return (PERMUTE, self.slot[out], self.slot[register], tuple(have.index(x) for x in want))

    def solve(
        self, node: int, grams: Sequence[int], rhs: int, core: int, bonds: Sequence[tuple[int, ...]] = ()
    ) -> None:
        """Have the caller compute a new `core` of `node` from its Gram matrix and right-hand side.

        The matrix may come in parts, then with the `bonds` of each; see `GramParts`.
        """
        slots = tuple(self.slot[g] for g in grams)
        instruction = (SOLVE, self.slot[core], node, slots, self.slot[rhs], tuple(bonds))
        self._emit(instruction, core, *grams, rhs)
        slot, changed = self.slot, self.slot[core]
        self._known = {
            (a, b): out for (a, b), out in self._known.items() if slot[a] != changed and slot[b] != changed
        }

    @property
    def cost(self) -> float:
        """Estimated time in flops: arithmetic, copies (about 24 per entry out of order) and dispatch."""
        return self.flops + 24.0 * self.copies + INSTRUCTION_FLOPS * len(self.instructions)

    def mark(self) -> tuple[Any, ...]:
        """A point to `rollback` to."""
        return len(self.instructions), len(self.legs), self.num_slots, self.flops, self.copies

    def rollback(self, mark: tuple[Any, ...]) -> None:
        """Forget everything emitted since `mark`."""
        instructions, registers, self.num_slots, self.flops, self.copies = mark
        del self.instructions[instructions:]
        del self._registers[instructions:]
        del self.legs[registers:]
        del self.slot[registers:]
        del self._slot_entries[self.num_slots :]
        self._known = {operands: out for operands, out in self._known.items() if out < registers}

    def lay_out(self, register: int) -> dict[int, Layout]:
        """Let the caller keep copies of an input that products would make in every run.

        Returns
        -------
        dict
            Registers to fill besides the input itself, and with what. `cost` and `copies` stay those of a
            single run. To be called after `finish`, as that may store what products meet in other orders.
        """
        slot, added = self.slot[register], dict[Layout, int]()
        for position, instruction in enumerate(self.instructions):
            if instruction[0] != MATMUL:
                continue
            _, _, a, b, perm_a, shape_a, perm_b, shape_b, *_ = instruction
            changed = list(instruction)
            # Places in the instruction: the slot of an operand and its order; see `_product`.
            for where, operand, perm, shape in ((2, a, perm_a, shape_a), (3, b, perm_b, shape_b)):
                if operand != slot or perm is None:
                    continue
                if self._is_view(register, perm, self._split(register, perm, shape)):
                    continue
                how = Layout(perm, shape)
                if how not in added:
                    added[how] = self.input([self.legs[register][k] for k in perm])
                changed[where], changed[4 if where == 2 else 6] = self.slot[added[how]], None
            self.instructions[position] = tuple(changed)
        return {new: how for how, new in added.items()}

    def _split(self, register: int, perm: tuple[int, ...], shape: tuple[int, int]) -> int:
        """How many of the permuted axes are rows of a matrix of this shape."""
        rows = accumulate((self.sizes[self.legs[register][k]] for k in perm), mul, initial=1)
        return list(rows).index(shape[0])

    def finish(self, keep: Iterable[int] = ()) -> Program:
        """Note after which instruction each intermediate can be freed, and the peak memory."""
        lasting = {self.slot[r] for r in keep} | self._inputs
        is_large = max(self._slot_entries, default=0) >= 0.5 * MANY_COPIES  # sweeps take long beside that
        if self.copies >= (0.02 if is_large else 0.2) * MANY_COPIES:
            self._spare_copies(lasting)
        last: dict[int, int] = {}
        for position, instruction in enumerate(self.instructions):
            for slot in _reads(instruction):
                last[slot] = position
            if instruction[0] != SOLVE:
                last.setdefault(instruction[1], position)
        drops: list[list[int]] = [[] for _ in self.instructions]
        for slot, position in last.items():
            if slot not in lasting:
                drops[position].append(slot)
        self.peak_entries = self._peak(drops)
        self.instructions = [(*i, tuple(d)) for i, d in zip(self.instructions, drops)]
        return self

    def _spare_copies(self, lasting: set[int]) -> None:
        """Store intermediate results as later products want them; those in `lasting` keep their order."""
        fixed = set(lasting)
        twins: dict[int, list[int]] = {}  # registers of a slot
        readers: dict[int, list[list[int]]] = {}  # axes of a slot that each product sums over
        for register, slot in enumerate(self.slot):
            twins.setdefault(slot, []).append(register)
        for instruction, (_, *read) in zip(self.instructions, self._registers):
            if instruction[0] == SOLVE:
                fixed |= {self.slot[r] for r in read}
            elif instruction[0] in (MATMUL, SELF):
                for mine, other in zip(read, reversed(read)):
                    summed = [k for k, x in enumerate(self.legs[mine]) if x in self.legs[other]]
                    readers.setdefault(self.slot[mine], []).append(summed)

        def store(slot: int, order: Sequence[int]) -> None:
            for r in twins[slot]:
                self.legs[r] = tuple(self.legs[r][k] for k in order)

        orders: dict[int, list[int]] = {}  # new order of the axes of a slot
        self.copies = 0.0
        for position, (out, *read) in enumerate(self._registers):
            op, slot = self.instructions[position][:2]
            legs = self.legs[out]
            if op == CONJ:  # as what it is the conjugate of
                self.copies += self._slot_entries[slot]
                if self.slot[read[0]] in orders:
                    store(slot, orders[self.slot[read[0]]])
            elif op == PERMUTE:
                self.instructions[position] = self._permutation(out, read[0])
            elif op in (MATMUL, SELF):
                a, b = read
                la, lb = self.legs[a], self.legs[b]
                near = (slot, self.slot[a], self.slot[b])
                if max(self._slot_entries[s] for s in near) <= FEW_COPIES and orders.keys().isdisjoint(near):
                    continue
                if slot in fixed:
                    best = keep_result(la, lb, legs)
                else:
                    later = [frozenset(legs[k] for k in summed) for summed in readers.get(slot, ())]
                    best = (arrange_product if op == MATMUL else arrange_square)(la, lb, later, self.sizes)
                    orders[slot] = [legs.index(x) for x in best.result]
                    store(slot, orders[slot])
                if op == SELF:
                    self.instructions[position] = self._square(out, a, best.left, best.shared)
                else:
                    a, b = (b, a) if best.swaps else (a, b)
                    if best.batch:
                        self.instructions[position] = self._slabs(out, a, b, best)
                        continue
                    self.instructions[position] = self._product(out, a, b, best.left, best.shared, best.right)

    def _peak(self, drops: Sequence[Sequence[int]]) -> int:
        """Most entries that intermediates and results take at a time."""
        live = peak = 0
        entries = self._slot_entries
        # A product may copy both operands into matrix order first; inputs are not ours.
        copied = [0 if slot in self._inputs else size for slot, size in enumerate(entries)]
        owner = [-1] * self.num_slots  # of a slot's memory: itself, or the slot that it is a permuted view of
        users = [0] * self.num_slots  # slots that hold the memory of an owner
        for instruction, dropped in zip(self.instructions, drops):
            op, out, read = instruction[:3]
            if op == PERMUTE:
                owner[out] = owner[read]
            elif op != SOLVE:
                live += entries[out]
                more = copied[instruction[3]] if op in (MATMUL, SLABS) else 0
                peak = max(peak, live + copied[read] + more)
                owner[out] = out
            if op != SOLVE and owner[out] >= 0:
                users[owner[out]] += 1
            for slot in dropped:
                memory, owner[slot] = owner[slot], -1
                if memory >= 0:
                    users[memory] -= 1
                    live -= 0 if users[memory] else entries[memory]
        return peak

    def _register(self, legs: tuple[int, ...], slot: int | None = None, entries: int | None = None) -> int:
        if slot is None:
            slot = self.num_slots
            self.num_slots += 1
            if entries is None:
                entries = math.prod([self.sizes[x] for x in legs])
            self._slot_entries.append(entries)
        self.legs.append(legs)
        self.slot.append(slot)
        return len(self.legs) - 1

    # -- running ---------------------------------------------------------------------------------------

    def run(self, values: dict[int, Array], update: Update | None = None) -> list[Array]:
        """Run on the arrays in `values` (register -> array); returns all slots that were kept."""
        slots: list[Array] = [None] * self.num_slots
        on_numpy = True
        for register, value in values.items():
            slots[self.slot[register]] = value
            on_numpy = on_numpy and isinstance(value, np.ndarray)
        execute(self.instructions, slots, update, on_numpy=on_numpy)
        return slots

    def value(self, slots: list[Array], register: int) -> Array:
        """The array of a register after a run."""
        return slots[self.slot[register]]


@dataclass(frozen=True)
class ResultPlan:
    """A program with one result."""

    program: Program
    inputs: tuple[int, ...]  # registers to fill, in the order of the arrays that `run` takes
    result: int
    shape: tuple[int, ...] | None = None  # of the result; None: one axis per leg

    def run(self, arrays: Iterable[Array]) -> Array:
        value = self.program.value(self.program.run(dict(zip(self.inputs, arrays))), self.result)
        return value if self.shape is None else value.reshape(self.shape)


def _reads(instruction: tuple[Any, ...]) -> tuple[int, ...]:
    op = instruction[0]
    if op in (MATMUL, SLABS):
        return (instruction[2], instruction[3])
    if op == SOLVE:
        return (*instruction[3], instruction[4])
    return (instruction[2],)


def _are_aligned(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether legs that two orders share stand at the same places."""
    return all(x == y or (x not in b and y not in a) for x, y in zip(a, b))
