from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tensorgrow as tg
from tensorgrow import interop
from tensorgrow.interop.tensorly_formats import describe
from tests.interop.conftest import close, same
from tests.oracles import random_network

FORMATS = [
    (tg.Structure((4,)), "TTTensor"),
    (tg.Structure((2, 3, 4)), "TTTensor"),
    (tg.Structure((3, 4), {(0, 1): 2}), "TTTensor"),
    (tg.Structure.tensor_train((2, 3, 4, 5), (2, 1, 3)), "TTTensor"),
    (tg.Structure.tensor_ring((2, 3, 4), 2), "TRTensor"),
    (tg.Structure.tensor_ring((2, 3, 4, 5), (2, 1, 3, 2)), "TRTensor"),
    (tg.Structure.tensor_ring((2, 3, 4), (1, 1, 2)), "TRTensor"),
    (tg.Structure.tucker((3, 4, 5), (2, 3, 2)), "TuckerTensor"),
    (tg.Structure.tucker((3, 4, 5), (2, 1, 2)), "TuckerTensor"),
]


@pytest.mark.parametrize(
    "structure, name", FORMATS, ids=lambda x: repr(x) if isinstance(x, tg.Structure) else x
)
def test_tensorly_formats_come_back(structure, name, dtype):
    pytest.importorskip("tensorly")
    network = random_network(structure, 3, dtype)
    exported = interop.to_tensorly(network)
    assert type(exported).__name__ == name
    assert exported.shape == structure.dims
    close(exported.to_tensor(), network, 1e-12 if dtype.to_real() == torch.float64 else 1e-5)
    same(interop.from_tensorly(exported), network)


@st.composite
def exportable(draw):
    """Structures that TensorLy has names for: any sizes and ranks, ones and lonely nodes among them."""
    dims = draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))
    p, rank = len(dims), st.integers(1, 3)
    kind = draw(st.sampled_from(["chain", "ring", "star"][: 3 if p > 1 else 1]))  # no Tucker of one mode
    edges = [(k, k + 1) for k in range(p - 1)] + ([(0, p - 1)] if kind == "ring" and p > 2 else [])
    lonely = draw(st.integers(0, 2))  # internal nodes before the centre of a star, or after everything
    nodes = p + lonely + draw(st.integers(0, 2))
    if kind == "star":
        edges, nodes = [(k, p + lonely) for k in range(p)], nodes + 1
    ranks = {e: r for e in edges if (r := draw(rank)) > 1}
    return tg.Structure(dims, ranks, num_nodes=nodes)


@given(structure=exportable())
def test_structures_with_ones_and_lonely_nodes_come_back(structure):
    pytest.importorskip("tensorly")
    network = random_network(structure, 0, torch.float64)
    exported = interop.to_tensorly(network)
    close(exported.to_tensor(), network)
    back = interop.from_tensorly(exported)
    assert back.structure == structure
    close(back.to_dense().numpy(), network)


def test_tensorly_backend_is_respected():
    tl = pytest.importorskip("tensorly")
    network = random_network(tg.Structure.tensor_train((2, 3, 4), 2), 0, torch.float64)
    with tl.backend_context("pytorch"):
        factors = interop.to_tensorly(network).factors
    assert all(isinstance(f, torch.Tensor) for f in factors)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 6])
def test_cp_becomes_a_network_with_copy_tensors(order, double):
    pytest.importorskip("tensorly")
    from tensorly.cp_tensor import CPTensor

    rng = np.random.default_rng(order)
    factors = [rng.standard_normal((2 + k, 3)).astype(str(double)[6:]) for k in range(order)]
    if double == torch.complex128:
        factors = [f + 1j * rng.standard_normal(f.shape) for f in factors]
    cp = CPTensor((rng.random(3), factors))
    network = interop.from_tensorly(cp)
    close(cp.to_tensor(), network)
    copies = max(0, order - 2)
    assert network.structure.num_nodes == order + copies
    one = interop.from_tensorly(CPTensor((np.ones(1), [f[:, :1] for f in factors])))
    assert one.structure == tg.Structure.rank_one(cp.shape)
    if order > 1:
        assert network.num_parameters == sum(f.size for f in factors) + 27 * copies


@pytest.mark.parametrize(
    "structure, name",
    [
        (
            tg.Structure((2,) * 4, {(0, 2): 2, (1, 2): 2, (1, 3): 2}),
            "a chain of the modes in the order 0, 2, 1, 3",
        ),
        (
            tg.Structure((2,) * 4, {(0, 2): 2, (1, 2): 2, (1, 3): 2, (0, 3): 2}),
            "a ring of the modes in the order 0, 2, 1, 3",
        ),
        (tg.Structure((2,) * 4, {(0, 1): 2, (0, 2): 2, (0, 3): 2}), "a tree;"),
        (tg.Structure.hierarchical_tucker((2,) * 4, 2), "a tree with 3 internal nodes"),
        (tg.Structure((2,) * 4, {(0, 1): 2, (1, 2): 2, (0, 2): 2}), "a graph with 1 cycle;"),
        (tg.Structure((2,) * 3, {(0, 2): 2, (0, 3): 2, (1, 3): 2}), "a tree with 1 internal node;"),
        (tg.Structure((2,) * 3, {(0, 3): 2, (1, 4): 2}), "3 separate trees with 2 internal nodes"),
        (
            tg.Structure((2,) * 3, {(0, 1): 2, (0, 3): 2, (1, 3): 2, (2, 3): 2}),
            "a graph with 1 cycle and 1 internal node",
        ),
    ],
)
def test_other_structures_are_refused_by_name(structure, name):
    pytest.importorskip("tensorly")
    network = tg.TensorNetwork.random(structure, random_state=0)
    with pytest.raises(tg.StructureError) as caught:
        interop.to_tensorly(network)
    assert name in str(caught.value)
    assert describe(structure) in str(caught.value)


def test_a_ring_of_two_cores_has_two_bonds_between_them():
    pytest.importorskip("tensorly")
    from tensorly.tr_tensor import TRTensor

    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 4, 3)), rng.standard_normal((3, 5, 2))
    close(np.einsum("aib,bja->ij", a, b), interop.from_tensorly(TRTensor([a, b])))


def test_what_tensorly_import_refuses():
    pytest.importorskip("tensorly")
    with pytest.raises(tg.DataError, match="not ndarray"):
        interop.from_tensorly(np.zeros((2, 3)))
