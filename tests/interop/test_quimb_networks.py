from __future__ import annotations

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import interop
from tests.interop.conftest import HARD, close
from tests.oracles import random_network


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


def described(tn):
    return [(t.inds, tuple(t.tags)) for t in tn]


def quimb_networks(qtn):
    return {
        "named": qtn.MPS_rand_state(5, 3, site_ind_id="x{}", site_tag_id="S{}", tags="PSI", seed=1),
        "product": qtn.MPS_computational_state("0101"),  # bonds of size one
        "ring": qtn.MPS_rand_state(5, 2, cyclic=True, seed=1),
        "operator": qtn.MPO_rand(3, 2, seed=1),  # two open indices per tensor
        "lattice": qtn.PEPS.rand(2, 3, 2, seed=1),
        "plain": qtn.TN_rand_reg(6, 3, 2, phys_dim=2, seed=1),
    }


@pytest.mark.parametrize("name", ["named", "product", "ring", "operator", "lattice", "plain"])
def test_names_tags_and_kind_come_back(name):
    tn = quimb_networks(pytest.importorskip("quimb.tensor"))[name]
    back = interop.to_quimb(interop.from_quimb(tn))
    assert type(back) is type(tn)
    assert described(back) == described(tn)
    legs = tn.outer_inds()
    np.testing.assert_allclose(back.contract(output_inds=legs).data, tn.contract(output_inds=legs).data)
    for known in type(tn)._EXTRA_PROPS:
        assert getattr(back, known) == getattr(tn, known)


def test_what_was_fitted_to_an_mps_returns_as_one():
    qtn = pytest.importorskip("quimb.tensor")
    mps = quimb_networks(qtn)["named"]
    network = interop.from_quimb(mps)
    assert network.structure.dims == (2,) * 5
    smaller = tg.fit(network.to_dense(), tg.Structure.tensor_train((2,) * 5, (2, 1, 2, 2)), random_state=0)
    back = interop.to_quimb(smaller.network, like=mps)
    assert isinstance(back, qtn.MatrixProductState)
    assert back.bond_sizes() == [2, 1, 2, 2] and back.site_ind_id == "x{}"
    assert [t.tags for t in back] == [t.tags for t in mps]
    back.left_canonicalize()  # what only an MPS can do
    close(back.to_dense([f"x{k}" for k in range(5)]).reshape((2,) * 5), smaller.network)
    grown = interop.to_quimb(network.grow_edge(0, 3), like=mps)  # no chain any more
    assert type(grown) is qtn.TensorNetwork
    assert set(grown.outer_inds()) == {f"x{k}" for k in range(5)} and "S3" in grown.tags
    with pytest.raises(tg.StructureError, match="5 open indices, the network 2"):
        interop.to_quimb(random_network(tg.Structure((2, 2)), 0, torch.float64), like=mps)
