from __future__ import annotations

import numpy as np
import opt_einsum
import pytest
import torch

import tensorgrow as tg
from tensorgrow import interop
from tests.interop.conftest import close, same
from tests.oracles import random_network


def test_more_symbols_than_letters():
    structure = tg.Structure.tensor_ring((2,) * 30, 2)  # 60 indices
    network = random_network(structure, 0, torch.float64)
    equation, operands = interop.to_einsum(network)
    assert len(set(equation)) > 54
    same(interop.from_einsum(equation, *operands), network)
    where = [(0,) * 30, tuple(k % 2 for k in range(30))]
    sliced = [opt_einsum.contract(equation.split("->")[0] + "->", *_fixed(operands, w)) for w in where]
    assert np.allclose(sliced, network.entries(where), rtol=1e-12)


def _fixed(operands, where):
    """Operands with every leg cut to one value, which then is summed over."""
    return [core[i : i + 1] for core, i in zip(operands, where)]


@pytest.mark.parametrize(
    "equation, shapes",
    [
        ("ij,jk", [(2, 3), (3, 4)]),  # implicit output
        ("ij,jk->ki", [(2, 3), (3, 4)]),
        ("iij,jk->ki", [(2, 2, 3), (3, 4)]),  # a diagonal
        ("ijj,ik->k", [(2, 3, 3), (2, 4)]),  # a trace
        ("ij,jk,l->ik", [(2, 3), (3, 4), (5,)]),  # a sum
        ("ia,ja,ka,la->ijkl", [(2, 3), (3, 3), (4, 3), (2, 3)]),  # one index in four operands
        ("ia,ja->ija", [(2, 3), (4, 3)]),  # a shared index that is open
        ("ia,ia->i", [(2, 3), (2, 3)]),  # elementwise in an open index
        ("ijkl->lkji", [(2, 3, 4, 5)]),  # four legs on one tensor
        ("ijab,bakl->ijkl", [(2, 3, 2, 2), (2, 2, 3, 2)]),  # two bonds between two tensors
        (",ij->ij", [(), (2, 3)]),  # a number
        ("i,j->ij", [(2,), (3,)]),
        ("ija,ak->jik", [(1, 3, 1), (1, 4)]),  # axes of size one
        ("...i,ij->...j", [(2, 3, 4), (4, 5)]),
        ("i,i,i,i,i->i", [(3,)] * 5),
        ("aab,b,bc->c", [(2, 2, 3), (3,), (3, 4)]),
    ],
)
@pytest.mark.parametrize("kind", ["float64", "complex128"])
def test_equations_of_all_kinds(equation, shapes, kind):
    rng = np.random.default_rng(0)
    operands = [rng.standard_normal(s).astype(kind) for s in shapes]
    if kind == "complex128":
        operands = [x + 1j * rng.standard_normal(x.shape) for x in operands]
    network = interop.from_einsum(equation, *operands)
    close(np.einsum(equation, *operands), network)


def test_dtypes_of_operands_are_joined():
    network = interop.from_einsum("ij,jk->ik", np.ones((2, 3), np.float32), np.ones((3, 4), np.complex64))
    assert network.dtype == torch.complex64
    assert interop.from_einsum("ij->ij", np.ones((2, 3), int)).dtype == torch.float64
    big = np.ones((2, 3), ">f8")[::-1]
    assert interop.from_einsum("ij->ij", big).dtype == torch.float64


@pytest.mark.parametrize(
    "equation, shapes, text",
    [
        ("ij,jk->il", [(2, 3), (3, 4)], "no einsum equation"),
        ("ij->ij", [(2, 3), (3, 4)], "no einsum equation of 2 operands"),
        ("ijk->ij", [(2, 3)], "axes|no einsum"),
        ("ij,jk->ik", [(2, 3), (4, 4)], "size 3 in one tensor and 4"),
        ("ij,ij->", [(2, 3), (2, 3)], "the result is a number"),
        ("ij->ij", [(0, 3)], "size 0"),
    ],
)
def test_equations_that_are_no_networks(equation, shapes, text):
    with pytest.raises(tg.StructureError, match=text):
        interop.from_einsum(equation, *(np.ones(s) for s in shapes))


def test_operands_must_be_numbers():
    with pytest.raises(tg.DataError, match="numbers are needed"):
        interop.from_einsum("i->i", np.array(["a", "b"]))
