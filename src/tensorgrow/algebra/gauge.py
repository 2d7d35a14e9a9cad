"""Gauge control: the freedom to insert ``G G^-1`` on every edge.

Left alone, ALS lets cores drift apart until normal equations mean nothing. Balancing gives both ends of an
edge the square root of the same spectrum, and all cores the same norm.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from functools import lru_cache

import numpy as np
import torch

from ..contraction import Array
from ..data.devices import one_thread
from ..structure import Edge, Structure
from .linalg import on_host, small_svd, thin_qr


def balance(
    structure: Structure, cores: Sequence[torch.Tensor], nonnegative: Collection[int] = ()
) -> list[torch.Tensor]:
    """Cores of the same tensor with every edge balanced and all norms equal.

    Parameters
    ----------
    nonnegative
        Nodes whose cores keep their signs: components of their edges are scaled and sorted, and not mixed.
    """
    out, where = on_host(cores), cores[0].device
    # Many threads on matrices this small take twenty times as long.
    with one_thread() if out[0].device != where else nullcontext():
        if out[0].device.type == "cpu" and not nonnegative:
            arrays = balance_arrays(structure, [c.resolve_conj().numpy() for c in out])
            return [torch.from_numpy(a).to(where) for a in arrays]
        for i, j in structure.edges:
            if i in nonnegative or j in nonnegative:
                out[i], out[j] = scale_edge(structure, out, (i, j))
                continue
            pair = balance_edge(structure, out, (i, j))
            if pair is not None:
                out[i], out[j], _ = pair
        return [c.to(where) for c in equalise_norms(out)]


def balance_arrays(structure: Structure, cores: Sequence[Array]) -> list[Array]:
    """`balance` for NumPy arrays: small ones take a third of the time."""
    out = list(cores)
    for i, j in structure.edges:
        one, two = out[i], out[j]
        last_i, last_j = _last(structure.axis(i, j), one.ndim), _last(structure.axis(j, i), two.ndim)
        ends = one.transpose(last_i[0]), two.transpose(last_j[0])
        shared = _share_arrays(*(e.reshape(-1, e.shape[-1]) for e in ends))
        if shared is not None:
            out[i] = np.ascontiguousarray(shared[0].reshape(ends[0].shape).transpose(last_i[1]))
            out[j] = np.ascontiguousarray(shared[1].reshape(ends[1].shape).transpose(last_j[1]))
    norms = [math.sqrt(float(np.vdot(c, c).real)) for c in out]
    if not min(norms) > 0.0:
        return out
    mean = math.exp(sum(math.log(x) for x in norms) / len(norms))
    return [c * c.real.dtype.type(mean / x) for c, x in zip(out, norms)]


def scale_edge(
    structure: Structure, cores: Sequence[torch.Tensor], edge: Edge
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both cores of an edge with every component of the same norm in both, the largest component first."""
    i, j = edge
    axes = structure.axis(i, j), structure.axis(j, i)
    ends = [cores[k].movedim(axis, -1) for k, axis in zip(edge, axes)]
    one, two = (torch.linalg.vector_norm(c.reshape(-1, c.shape[-1]), dim=0) for c in ends)
    # A component that is zero at one end stays: there is nothing to share.
    ratio = torch.where((one > 0) & (two > 0), (two / one.clamp_min(1e-300)).sqrt(), 1.0).to(one.dtype)
    order = torch.argsort(one * two, descending=True, stable=True)
    scaled = [(c * r)[..., order] for c, r in zip(ends, (ratio, 1.0 / ratio))]
    left, right = (c.movedim(-1, axis).contiguous() for c, axis in zip(scaled, axes))
    return left, right


def edge_spectra(structure: Structure, cores: Sequence[torch.Tensor]) -> dict[Edge, torch.Tensor]:
    """Singular values of every edge's two cores joined, in the gauge the cores come in.

    After `balance` these are the honest weights of the rank components of an edge.
    """
    spectra = {}
    for i, j in structure.edges:
        a, b = (_matricize(structure, cores, k, o)[0] for k, o in ((i, j), (j, i)))
        ra, rb = torch.linalg.qr(a, mode="r")[1], torch.linalg.qr(b, mode="r")[1]
        spectra[i, j] = torch.linalg.svdvals(ra @ rb.T)[: structure.rank(i, j)]
    return spectra


def balance_edge(
    structure: Structure, cores: Sequence[torch.Tensor], edge: Edge
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """Both cores of an edge with the root of its spectrum each, and the spectrum; None where that fails."""
    i, j = edge
    a, shape_a, axis_a = _matricize(structure, cores, i, j)
    b, shape_b, axis_b = _matricize(structure, cores, j, i)
    rank = a.shape[1]
    if a.shape[0] < rank or b.shape[0] < rank:
        return None  # more rank than an end can carry: there is no square gauge to insert
    qa, ra = torch.linalg.qr(a)
    qb, rb = torch.linalg.qr(b)
    u, s, vh = torch.linalg.svd(ra @ rb.T)
    if not bool(torch.isfinite(u.sum() + s.sum() + vh.sum())):
        return None  # the SVD of a GPU can fail without saying so
    root = s.clamp_min(float(s[0]) * 1e-14).sqrt().to(u.dtype)
    left = (qa @ (u * root)).reshape(shape_a).movedim(-1, axis_a).contiguous()
    right = (qb @ (vh.T * root)).reshape(shape_b).movedim(-1, axis_b).contiguous()
    return left, right, s


@lru_cache(maxsize=256)
def _last(axis: int, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Orders of axes that put one of them last, and back."""
    there = (*range(axis), *range(axis + 1, count), axis)
    back = (*range(axis), count - 1, *range(axis, count - 1))
    return there, back


def _share_arrays(a: Array, b: Array) -> tuple[Array, Array] | None:
    """Two matrices with the same ``a b^T`` and the root of its spectrum each; None where there are none."""
    rank = a.shape[1]
    if len(a) < rank or len(b) < rank:
        return None
    (qa, ra), (qb, rb) = thin_qr(a), thin_qr(b)
    middle = ra @ rb.T
    # A sum that is finite has finite terms, and tells so in half the time.
    if not np.isfinite(middle.sum()) and not np.isfinite(middle).all():
        return None
    u, s, vh = small_svd(middle)
    root = np.sqrt(np.maximum(s, s[0] * s.dtype.type(1e-14)))
    return qa @ (u * root), qb @ (vh.T * root)


def _matricize(
    structure: Structure, cores: Sequence[torch.Tensor], node: int, neighbour: int
) -> tuple[torch.Tensor, tuple[int, ...], int]:
    axis = structure.axis(node, neighbour)
    moved = cores[node].movedim(axis, -1)
    return moved.reshape(-1, moved.shape[-1]), tuple(moved.shape), axis


def equalise_norms(cores: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Scale cores to their common geometric mean norm; the represented tensor keeps its scale."""
    norms = [float(torch.linalg.vector_norm(c)) for c in cores]
    if min(norms) == 0.0:
        return list(cores)
    mean = math.exp(sum(math.log(x) for x in norms) / len(norms))
    return [c * (mean / x) for c, x in zip(cores, norms)]
