"""Plain NumPy answers, computed without the library's contraction code, and comparison with them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from tensorgrow.network import TensorNetwork
from tensorgrow.structure import Structure

TOLERANCE = {
    torch.float32: 2e-4,
    torch.complex64: 2e-4,
    torch.float64: 1e-11,
    torch.complex128: 1e-11,
}


def random_array(rng: np.random.Generator, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    values = rng.standard_normal(tuple(shape))
    if dtype.is_complex:
        values = values + 1j * rng.standard_normal(tuple(shape))
    return torch.tensor(values, dtype=dtype)


def random_network(structure: Structure, seed: int, dtype: torch.dtype = torch.float64) -> TensorNetwork:
    rng = np.random.default_rng(seed)
    return TensorNetwork(structure, [random_array(rng, s, dtype) for s in structure.core_shapes])


def perturbed(network: TensorNetwork, size: float, seed: int) -> TensorNetwork:
    rng = np.random.default_rng(seed)
    cores = [c + size * random_array(rng, c.shape, c.dtype) for c in network.cores]
    return TensorNetwork(network.structure, cores)


def to_numpy(array) -> np.ndarray:
    """A double precision copy of anything."""
    if isinstance(array, torch.Tensor):
        array = array.detach().resolve_conj().cpu().numpy()
    array = np.asarray(array)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def as_arrays(network: TensorNetwork, use_numpy: bool) -> list:
    return [c.numpy() if use_numpy else c for c in network.cores]


def assert_close(actual, expected, tolerance: float, scale: float | None = None) -> None:
    actual, expected = to_numpy(actual), to_numpy(expected)
    assert actual.shape == expected.shape
    assert np.isfinite(actual).all()
    error = float(np.linalg.norm((actual - expected).ravel()))
    size = float(np.linalg.norm(expected.ravel())) if scale is None else scale
    assert error <= tolerance * size + 1e-290, f"error {error:.3g} against size {size:.3g}"


# -- contractions ------------------------------------------------------------------------------------------


def _labels(structure: Structure) -> list[list[int]]:
    """Einsum labels of every core: the leg of node k is k, edges follow."""
    n = structure.num_nodes
    edge = {e: n + k for k, e in enumerate(structure.ranks)}
    return [
        [k] + [edge[min(k, j), max(k, j)] for j in range(n) if (min(k, j), max(k, j)) in edge]
        for k in range(n)
    ]


def _einsum(structure: Structure, cores: Sequence, nodes: Sequence[int], output: Sequence[int]) -> np.ndarray:
    labels = _labels(structure)
    arguments = []
    for k in nodes:
        arguments += [to_numpy(cores[k]), labels[k]]
    return np.einsum(*arguments, list(output), optimize="greedy")


def dense(structure: Structure, cores: Sequence) -> np.ndarray:
    nodes = range(structure.num_nodes)
    return _einsum(structure, cores, nodes, nodes).reshape(structure.dims)


def bonds_of(structure: Structure, node: int, without: int | None = None) -> list[int]:
    labels = _labels(structure)[node][1:]
    if without is None:
        return labels
    return [x for x in labels if x not in _labels(structure)[without]]


def environment(structure: Structure, cores: Sequence, node: int) -> np.ndarray:
    """Matrix ``E`` with ``T_(node) = X E``: bonds of the node by the legs of all others."""
    others = [k for k in range(structure.num_nodes) if k != node]
    if not others:
        return np.ones((1, 1))
    bonds = bonds_of(structure, node)
    env = _einsum(structure, cores, others, [*bonds, *others])
    return env.reshape(math.prod(structure.core_shape(node)[1:]), -1)


def pair_environment(structure: Structure, cores: Sequence, i: int, j: int) -> np.ndarray:
    """Everything but two cores and their edge: bonds of i, bonds of j, legs of the others."""
    others = [k for k in range(structure.num_nodes) if k not in (i, j)]
    n_i = math.prod(structure.rank(i, k) for k in range(structure.num_nodes) if k not in (i, j))
    n_j = math.prod(structure.rank(j, k) for k in range(structure.num_nodes) if k not in (i, j))
    if not others:
        return np.ones((1, 1, 1))
    output = [*bonds_of(structure, i, without=j), *bonds_of(structure, j, without=i), *others]
    return _einsum(structure, cores, others, output).reshape(n_i, n_j, -1)


def matricize(structure: Structure, target, node: int) -> np.ndarray:
    legs = [structure.leg_dim(k) for k in range(structure.num_nodes)]
    return np.moveaxis(to_numpy(target).reshape(legs), node, 0).reshape(legs[node], -1)


def pair_matricize(structure: Structure, target, i: int, j: int) -> np.ndarray:
    """Leg i, leg j, all other legs."""
    legs = [structure.leg_dim(k) for k in range(structure.num_nodes)]
    return np.moveaxis(to_numpy(target).reshape(legs), (i, j), (0, 1)).reshape(legs[i], legs[j], -1)


def best_core(structure: Structure, cores: Sequence, node: int, target) -> np.ndarray:
    """Least-squares core by NumPy's SVD-based solver on the explicit environment."""
    env = environment(structure, cores, node)
    solution = np.linalg.lstsq(env.T, matricize(structure, target, node).T, rcond=1e-12)[0]
    return solution.T.reshape(structure.core_shape(node))


def added_by_slices(structure: Structure, cores: Sequence, edge, left, right) -> np.ndarray:
    """The tensor that new slices of an edge add."""
    i, j = edge
    without = structure.with_rank(i, j, 1)
    changed = [to_numpy(c) for c in cores]
    changed[i] = to_numpy(left).reshape(without.core_shape(i))
    changed[j] = to_numpy(right).reshape(without.core_shape(j))
    return dense(without, changed)


# -- what objectives compute on the way --------------------------------------------------------------------


def node_equations(objective, network: TensorNetwork) -> dict[int, tuple]:
    """Gram matrix and right-hand side of every node, from a visit that changes nothing."""
    arrays = objective.to_arrays(network)
    equations = {}

    def note(node, gram, rhs):
        equations[node] = gram, rhs
        return arrays[node]

    objective.visit(network.structure, arrays, note)
    return equations


def pair_gradient(objective, network: TensorNetwork, edge):
    """What the network leaves of the data, contracted with all its cores but two."""
    [problem] = objective.pair_problems(network.structure, objective.to_arrays(network), [edge])
    return problem.gradient


# -- rounding ----------------------------------------------------------------------------------------------


def magnitude(network: TensorNetwork) -> float:
    """Norm of the tensor of absolute values: what the rounding errors of the entries are proportional to."""
    return float(np.linalg.norm(dense(network.structure, [c.abs() for c in network.cores])))
