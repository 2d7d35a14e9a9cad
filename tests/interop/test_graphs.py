from __future__ import annotations

import pytest
import torch

import tensorgrow as tg
from tensorgrow import interop
from tests.interop.conftest import HARD, same
from tests.oracles import random_network


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
