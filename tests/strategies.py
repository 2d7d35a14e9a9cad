from __future__ import annotations

from itertools import combinations

from hypothesis import strategies as st

from tensorgrow.network import TensorNetwork
from tensorgrow.structure import Structure
from tests.oracles import random_network

seeds = st.integers(0, 2**32 - 1)


@st.composite
def structures(
    draw,
    *,
    min_order: int = 1,
    max_order: int = 5,
    min_nodes: int = 1,
    min_dim: int = 1,
    max_dim: int = 4,
    max_rank: int = 3,
    max_internal: int = 2,
) -> Structure:
    dims = draw(st.lists(st.integers(min_dim, max_dim), min_size=min_order, max_size=max_order))
    n = max(min_nodes, len(dims) + draw(st.integers(0, max_internal)))
    pairs = list(combinations(range(n), 2))
    ranks = {}
    if pairs:
        # At most two edges more than a tree: Grams of denser graphs are slow and teach nothing new.
        ranks = draw(st.dictionaries(st.sampled_from(pairs), st.integers(1, max_rank), max_size=n + 1))
    return Structure(dims, ranks, num_nodes=n)


@st.composite
def trees(
    draw,
    *,
    min_order: int = 2,
    max_order: int = 5,
    min_dim: int = 1,
    max_dim: int = 4,
    max_rank: int = 3,
    max_internal: int = 2,
) -> Structure:
    dims = draw(st.lists(st.integers(min_dim, max_dim), min_size=min_order, max_size=max_order))
    n = len(dims) + draw(st.integers(0, max_internal))
    ranks = {(draw(st.integers(0, k - 1)), k): draw(st.integers(2, max_rank)) for k in range(1, n)}
    return Structure(dims, ranks, num_nodes=n)


@st.composite
def networks(draw, dtype, kind=structures, **limits) -> TensorNetwork:
    return random_network(draw(kind(**limits)), draw(seeds), dtype)
