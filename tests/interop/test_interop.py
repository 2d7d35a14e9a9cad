from __future__ import annotations

import sys

import numpy as np
import opt_einsum
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tensorgrow as tg
from tensorgrow import interop
from tensorgrow.interop.names import describe
from tests.oracles import random_network
from tests.strategies import networks

HARD = [
    tg.Structure((5,)),
    tg.Structure((3, 4)),  # nothing joined: cores without bonds
    tg.Structure((1, 3, 1), {(0, 1): 2}),  # modes of size one keep their leg
    tg.Structure((2, 3), num_nodes=4),  # internal nodes that are only a number
    tg.Structure((2, 3, 4), {(0, 3): 2, (1, 3): 3, (3, 4): 2, (2, 4): 2}),
    tg.Structure((2, 2, 2, 2), {(0, 1): 2, (2, 3): 2}),  # two parts
    tg.Structure.hierarchical_tucker((2, 3, 2, 3), 2),
    tg.Structure.complete((2, 3, 2, 3), 2),
]


def same(a: tg.TensorNetwork, b: tg.TensorNetwork) -> None:
    """Same structure, dtype and numbers, to the last bit."""
    assert a.structure == b.structure
    assert a.dtype == b.dtype
    for x, y in zip(a.cores, b.cores):
        assert torch.equal(x, y)


def close(dense: object, network: tg.TensorNetwork, tolerance: float = 1e-12) -> None:
    expected = network.to_dense().numpy()
    assert np.shape(dense) == expected.shape
    scale = np.linalg.norm(expected) or 1.0
    assert np.linalg.norm(np.asarray(dense) - expected) <= tolerance * scale


def exports():
    return {
        "quimb": (interop.to_quimb, interop.from_quimb, "quimb"),
        "networkx": (interop.to_networkx, interop.from_networkx, "networkx"),
        "einsum": (interop.to_einsum, lambda pair: interop.from_einsum(pair[0], *pair[1]), "opt_einsum"),
    }


@pytest.mark.parametrize("name", ["quimb", "networkx", "einsum"])
@pytest.mark.parametrize("structure", HARD, ids=repr)
def test_export_and_import_give_the_same_network(name, structure, dtype):
    there, back, package = exports()[name]
    pytest.importorskip(package)
    network = random_network(structure, 0, dtype)
    same(back(there(network)), network)


@pytest.mark.parametrize("name", ["quimb", "networkx", "einsum"])
@given(data=st.data())
def test_any_network_comes_back(name, data):
    there, back, package = exports()[name]
    pytest.importorskip(package)
    network = data.draw(networks(torch.complex128, max_internal=3))
    same(back(there(network)), network)


# -- quimb ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", HARD, ids=repr)
def test_quimb_contracts_to_the_same_tensor(structure, double):
    pytest.importorskip("quimb")
    network = random_network(structure, 1, double)
    legs = [f"k{k}" for k in range(structure.order)]
    tn = interop.to_quimb(network)
    close(tn.contract(output_inds=legs).data, network)
    assert set(tn.outer_inds()) == set(legs)
    assert sum("INTERNAL" in t.tags for t in tn) == structure.num_nodes - structure.order


def test_quimb_on_torch_keeps_the_cores_and_their_gradients():
    pytest.importorskip("quimb")
    network = random_network(tg.Structure.tensor_ring((2, 3, 4), 2), 0, torch.float64)
    for core in network.cores:
        core.requires_grad_()
    tn = interop.to_quimb(network, backend="torch")
    tn.contract(output_inds=["k0", "k1", "k2"]).data.sum().backward()
    assert all(c.grad is not None for c in network.cores)
    with pytest.raises(tg.OptionError, match="backend"):
        interop.to_quimb(network, backend="jax")


def test_modes_keep_their_order_after_work_in_quimb():
    pytest.importorskip("quimb")
    network = random_network(tg.Structure.tensor_train((2, 3, 4, 5), 2), 0, torch.float64)
    tn = interop.to_quimb(network)
    tn.contract_between("I2", "I1")  # quimb now lists the open indices in another order
    back = interop.from_quimb(tn)
    assert back.structure.dims == (2, 3, 4, 5)
    close(back.to_dense().numpy(), network)


def test_states_operators_and_lattices_of_quimb(double):
    qtn = pytest.importorskip("quimb.tensor")
    name = str(double).removeprefix("torch.")
    mps = qtn.MPS_rand_state(6, 3, dtype=name, seed=1)
    close(mps.to_dense([f"k{k}" for k in range(6)]).reshape((2,) * 6), interop.from_quimb(mps))
    assert interop.from_quimb(mps).structure == tg.Structure.tensor_train((2,) * 6, mps.bond_sizes())
    ring = qtn.MPS_rand_state(5, 2, cyclic=True, dtype=name, seed=1)
    assert interop.from_quimb(ring).structure == tg.Structure.tensor_ring((2,) * 5, 2)
    mpo = qtn.MPO_rand(3, 2, dtype=name, seed=1)  # two open indices per tensor
    legs = ["k0", "b0", "k1", "b1", "k2", "b2"]
    operator = interop.from_quimb(mpo, output_inds=legs)
    close(mpo.contract(output_inds=legs).data, operator)
    peps = qtn.PEPS.rand(2, 3, 2, dtype=name, seed=1)
    lattice = interop.from_quimb(peps)
    close(peps.contract(output_inds=peps.outer_inds()).data, lattice)
    assert len(lattice.structure.edges) == 7


def test_what_else_quimb_allows():
    qtn = pytest.importorskip("quimb.tensor")
    rng = np.random.default_rng(0)
    parts = [qtn.Tensor(rng.standard_normal((3, 4)), ("h", f"x{k}")) for k in range(4)]
    hyper = qtn.TensorNetwork(parts)  # one index in four tensors
    legs = [f"x{k}" for k in range(4)]
    close(hyper.contract(output_inds=legs).data, interop.from_quimb(hyper, output_inds=legs))
    open_too = ["x0", "h", "x1", "x2", "x3"]
    close(hyper.contract(output_inds=open_too).data, interop.from_quimb(hyper, output_inds=open_too))
    tn = qtn.TensorNetwork([parts[0], parts[1]])
    tn.exponent = 2.0
    expected = 100 * np.einsum("ha,hb->ab", parts[0].data, parts[1].data)
    close(expected, interop.from_quimb(tn))
    single = interop.from_quimb(parts[0])
    close(parts[0].data, single)
    with pytest.raises(tg.DataError, match="not ndarray"):
        interop.from_quimb(np.zeros(3))
    with pytest.raises(tg.StructureError, match="'nowhere' is in no tensor"):
        interop.from_quimb(tn, output_inds=["x0", "nowhere"])
    with pytest.raises(tg.StructureError, match="the result is a number"):
        interop.from_quimb(tn.conj() & tn)


# -- TensorLy ------------------------------------------------------------------------------------------


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


def test_numbers_alone_go_into_the_first_core():
    pytest.importorskip("tensorly")
    network = random_network(tg.Structure((2, 3), {(0, 1): 2}, num_nodes=4), 0, torch.float64)
    close(interop.to_tensorly(network).to_tensor(), network)


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


# -- networkx ------------------------------------------------------------------------------------------


def test_graphs_survive_new_names_and_orders():
    nx = pytest.importorskip("networkx")
    network = random_network(HARD[4], 0, torch.float64)
    graph = interop.to_networkx(network)
    named = nx.relabel_nodes(graph, {k: f"node {9 - k}" for k in graph})
    same(interop.from_networkx(named), network)
    assert interop.structure_from_networkx(named) == network.structure
    assert interop.structure_from_networkx(interop.to_networkx(network.structure)) == network.structure
    assert nx.is_isomorphic(graph, named)


def test_internal_nodes_may_come_first():
    nx = pytest.importorskip("networkx")
    graph = nx.Graph()
    graph.add_node("centre", dim=None)
    for k, name in enumerate("abc"):
        graph.add_node(name, dim=k + 2)
        graph.add_edge("centre", name, rank=2)
    found = interop.structure_from_networkx(graph)
    assert found == tg.Structure.tucker((2, 3, 4), 2)
    network = tg.TensorNetwork.random(found, random_state=0)
    order = ["a", "b", "c", "centre"]
    for name, core in zip(order, network.cores):
        graph.nodes[name]["core"] = core
    same(interop.from_networkx(graph), network)


def test_any_graph_is_a_structure():
    nx = pytest.importorskip("networkx")
    grid = interop.structure_from_networkx(nx.grid_2d_graph(3, 3), dims=2, rank=3)
    assert grid.order == 9
    assert set(grid.ranks.values()) == {3}
    assert len(grid.edges) == 12


@pytest.mark.parametrize(
    "change, error, text",
    [
        (lambda nx, g: nx.DiGraph(g), tg.DataError, "no direction"),
        (lambda nx, g: nx.MultiGraph(g), tg.DataError, "occur once"),
        (lambda nx, g: {0: [1]}, tg.DataError, "networkx.Graph"),
        (lambda nx, g: g.add_edge(1, 1) or g, tg.StructureError, "joined to itself"),
        (lambda nx, g: g.nodes[1].pop("core") is None or g, tg.DataError, "has no 'core'"),
        (lambda nx, g: g.nodes[1].update(dim=7) or g, tg.DataError, "dim=7"),
    ],
)
def test_graphs_that_are_no_networks(change, error, text):
    nx = pytest.importorskip("networkx")
    graph = interop.to_networkx(random_network(HARD[2], 0, torch.float64))
    with pytest.raises(error, match=text):
        interop.from_networkx(change(nx, graph))


def test_graphs_without_sizes_are_refused():
    nx = pytest.importorskip("networkx")
    with pytest.raises(tg.StructureError, match="give dims="):
        interop.structure_from_networkx(nx.path_graph(3))
    with pytest.raises(tg.StructureError, match="give rank="):
        interop.structure_from_networkx(nx.path_graph(3), dims=2)
    with pytest.raises(tg.StructureError, match="2 dims were given for a graph of 3"):
        interop.structure_from_networkx(nx.path_graph(3), dims=(2, 2), rank=2)


# -- einsum --------------------------------------------------------------------------------------------


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


# -- without the libraries -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "package, call",
    [
        ("quimb.tensor", interop.to_quimb),
        ("quimb.tensor", interop.from_quimb),
        ("tensorly.tt_tensor", interop.to_tensorly),
        ("tensorly", interop.from_tensorly),
        ("networkx", interop.to_networkx),
        ("networkx", interop.from_networkx),
        ("networkx", interop.structure_from_networkx),
    ],
)
def test_a_missing_library_names_the_extra(package, call, monkeypatch):
    network = tg.TensorNetwork.random(tg.Structure.tensor_train((2, 2), 2), random_state=0)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(tg.MissingPackageError, match=r"tensorgrow\[interop\]"):
        call(network)
