"""Graphs of networkx."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..algebra.assembly import Label
from ..errors import DataError, StructureError
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .assembly import assemble, import_optional


def to_networkx(network: TensorNetwork | Structure) -> Any:
    """Return an undirected ``networkx.Graph``: to draw, to measure, to compare up to isomorphism.

    Nodes are numbered as in the structure and have the attribute ``dim``, the size of the leg, None for
    internal nodes; those of a network also ``core``, a tensor with the leg's axis first (of size 1 for
    internal nodes), then one per neighbour in the order of the graph's nodes. Edges have ``rank``.
    """
    nx = import_optional("networkx")
    structure = network if isinstance(network, Structure) else network.structure
    graph = nx.Graph()
    for k in range(structure.num_nodes):
        graph.add_node(k, dim=None if structure.is_internal(k) else structure.dims[k])
        if isinstance(network, TensorNetwork):
            graph.nodes[k]["core"] = network.cores[k]
    for (i, j), rank in structure.ranks.items():
        graph.add_edge(i, j, rank=rank)
    return graph


def from_networkx(graph: Any) -> TensorNetwork:
    """Build the network of a graph whose nodes have cores, as `to_networkx` writes them.

    Nodes may have any names. Those whose ``dim`` is not None are the modes, in the graph's order.
    """
    _check(graph)
    position = {node: k for k, node in enumerate(graph)}
    tensors: list[tuple[Any, list[Label]]] = []
    legs: list[Label] = []
    for node, data in graph.nodes(data=True):
        if data.get("core") is None:
            raise DataError(
                f"node {node!r} has no 'core'; structure_from_networkx reads a graph without tensors"
            )
        dim, size = data.get("dim"), tuple(data["core"].shape)[:1]
        if size != (1 if dim is None else dim,):
            raise DataError(f"node {node!r} has dim={dim}, but the first axis of its core has size {size}")
        edges = [frozenset((node, other)) for other in sorted(graph[node], key=position.__getitem__)]
        tensors.append((data["core"], [("leg", node), *edges]))
        if dim is not None:
            legs.append(("leg", node))
    return assemble(tensors, legs)


def structure_from_networkx(
    graph: Any, dims: Sequence[int] | int | None = None, rank: int | None = None
) -> Structure:
    """Return the structure of a graph.

    Parameters
    ----------
    graph
        Any undirected graph, such as ``networkx.grid_2d_graph(3, 3)``.
    dims
        Size of the leg of every node in the graph's order, or one for all; by default the attribute ``dim``
        of the nodes, where None makes a node internal.
    rank
        Rank of all edges; by default the attribute ``rank`` of each.

    Examples
    --------
    >>> import networkx as nx
    >>> structure_from_networkx(nx.cycle_graph(3), dims=4, rank=2)
    Structure((4, 4, 4), {(0, 1): 2, (0, 2): 2, (1, 2): 2})
    """
    _check(graph)
    nodes = list(graph)
    if dims is None:
        sizes = [_attribute(graph.nodes[n], "dim", f"node {n!r}", "dims=") for n in nodes]
    else:
        sizes = [dims] * len(nodes) if isinstance(dims, int) else list(dims)
    if len(sizes) != len(nodes):
        raise StructureError(f"{len(sizes)} dims were given for a graph of {len(nodes)} nodes")
    legs = [n for n, size in zip(nodes, sizes) if size is not None]
    number = {n: k for k, n in enumerate([*legs, *(n for n in nodes if n not in set(legs))])}
    ranks: dict[Edge, int] = {}
    for a, b, data in graph.edges(data=True):
        i, j = sorted((number[a], number[b]))
        ranks[i, j] = _attribute(data, "rank", f"edge {a!r}-{b!r}", "rank=") if rank is None else rank
    return Structure([s for s in sizes if s is not None], ranks, num_nodes=len(nodes))


def _attribute(data: dict[str, Any], name: str, whose: str, instead: str) -> Any:
    if name not in data:
        raise StructureError(f"{whose} has no attribute {name!r}; set it, or give {instead}")
    return data[name]


def _check(graph: Any) -> None:
    nx = import_optional("networkx")
    if not isinstance(graph, nx.Graph):
        raise DataError(f"a networkx.Graph is needed, not {type(graph).__name__}")
    if graph.is_directed() or graph.is_multigraph():
        raise DataError(
            f"edges have no direction and occur once: convert the {type(graph).__name__} with nx.Graph(graph)"
        )
    loops = list(nx.selfloop_edges(graph))
    if loops:
        raise StructureError(f"node {loops[0][0]!r} is joined to itself; an edge joins two different nodes")
