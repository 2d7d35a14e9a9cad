"""There and back again through every library."""

from __future__ import annotations

import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tensorgrow as tg
from tensorgrow import interop
from tests.interop.conftest import HARD, same
from tests.oracles import random_network
from tests.strategies import networks


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
    with pytest.raises(tg.MissingPackageError, match=r"pip install .*\[interop\]"):
        call(network)
