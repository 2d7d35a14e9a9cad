"""An embedding whose table is a tensor network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, Unpack

import torch
import torch.nn.functional as F
from torch import nn

from ...errors import DataError, OptionError, check_whole
from ...network import RandomState
from ...structure import Structure
from ..modules import unfilled
from .application import Application
from .costs import Work
from .keywords import LayerOptions
from .layout import Layout, digit_count, digits, given_digits, padded_digits
from .lookups import Lookup, lookups, run_lookup
from .products import run
from .tn_layer import TNLayer


@dataclass(frozen=True)
class EmbeddingApplication(Application):
    """A lookup; a row is a token, and the columns of the weight are the tokens that there are."""

    # A dense lookup reads a row and does nothing else: all other forms are slower, and that by less than what
    # comes after it takes.
    accepted_faults = frozenset({"slower"})

    def ways(self, layout: Layout, structure: Structure, device: str, itemsize: int) -> list[Lookup]:
        return lookups(layout, structure)

    def dense_work(self, inputs: int, outputs: int) -> Work:
        # Rows that are copied take less than half of the time of a product's numbers: fitted to tables of 500
        # to 10,000 tokens; small ones were met through the cores in twice the time of the table.
        return Work(entries=(0.0, 0.4 * 2.0 * outputs))

    def input_entries(self, inputs: int, rows: int) -> int:
        return rows


class TNEmbedding(TNLayer):
    """A drop-in for ``torch.nn.Embedding`` with a tensor network as weight.

    The weight, as a matrix of shape ``(embedding_dim, num_embeddings)``, has digits of both indices. A
    vocabulary whose size is no product of digits of like sizes is written with more than it needs: columns
    beyond it are not used.

    The rows of a token are a product of a row of each of two small tables, which are built from the cores;
    or the table is rebuilt, whichever costs less by counted flops and bytes.

    Parameters
    ----------
    num_embeddings, embedding_dim
        Tokens, and the size of a row.
    padding_idx
        A token whose row is zero and gets no gradient.
    in_dims, out_dims
        Digits of the token and of the row; by default near 16. The product of `in_dims` may be larger than
        `num_embeddings`.
    structure
        Graph and ranks over the legs ``layout.dims``; by default rank one.
    paired
        Whether a digit of the row and one of the token share a leg; by default a leg each.
    input_scale
        Whether rows are multiplied by a number for each token.
    device, dtype
        Of the parameters.
    random_state
        Seed or generator of the first values; by default torch's global generator.

    Examples
    --------
    >>> table = TNEmbedding(50_257, 768)
    >>> table.layout.in_dims, table.layout.out_dims
    ((22, 16, 13, 11), (32, 24))
    >>> tuple(table(torch.tensor([[0, 50_256]])).shape)
    (1, 2, 768)
    """

    to_name = "to_embedding"
    dense_class = nn.Embedding

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        in_dims: Sequence[int] | None = None,
        out_dims: Sequence[int] | None = None,
        structure: Structure | None = None,
        paired: bool = False,
        input_scale: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        random_state: RandomState = None,
    ) -> None:
        check_whole("num_embeddings", num_embeddings)
        check_whole("embedding_dim", embedding_dim)
        layout = embedding_layout(num_embeddings, embedding_dim, in_dims, out_dims, paired=paired)
        if padding_idx is not None:
            is_whole = isinstance(padding_idx, int) and not isinstance(padding_idx, bool)
            if not is_whole or not -num_embeddings <= padding_idx < num_embeddings:
                raise OptionError(f"padding_idx={padding_idx!r} must be one of {num_embeddings:,} tokens")
            padding_idx %= num_embeddings
        vectors = (None, num_embeddings if input_scale else None)
        super().__init__(
            layout, structure, EmbeddingApplication(), vectors, {"device": device, "dtype": dtype}
        )
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx
        self.reset_parameters(random_state)

    @classmethod
    def from_embedding(cls, embedding: nn.Embedding, **how: Unpack[LayerOptions]) -> Self:
        """A layer in place of a dense one, which is not modified.

        Parameters
        ----------
        embedding
            The layer to replace.
        **how
            `max_error`, `structure` or `network`, `input_scale` and `random_state`, see `TNLayer.from_dense`;
            `in_dims`, `out_dims` and `paired`, the digits of the token and of the row.
        """
        return cls._from(embedding, how)

    @classmethod
    def matrix_of(cls, dense: nn.Module) -> torch.Tensor:
        assert isinstance(dense, nn.Embedding)
        return dense.weight.detach().T

    @classmethod
    def layout_of(cls, dense: nn.Module, *dims: Sequence[int] | None, paired: bool) -> Layout:
        assert isinstance(dense, nn.Embedding)
        return embedding_layout(dense.num_embeddings, dense.embedding_dim, *dims, paired=paired)

    @classmethod
    def arguments_of(cls, dense: nn.Module) -> tuple[tuple[Any, ...], dict[str, Any]]:
        assert isinstance(dense, nn.Embedding)
        refused = embedding_refusal(dense)
        if refused:
            raise OptionError(f"the embedding cannot have a network as its weight: {refused}")
        return (dense.num_embeddings, dense.embedding_dim, dense.padding_idx), {}

    @property
    def columns(self) -> int:
        return self.num_embeddings

    @property
    def _mean_square(self) -> float:
        return 1.0  # torch draws the rows of a table from the standard normal distribution

    @property
    def weight(self) -> torch.Tensor:
        """The table ``(num_embeddings, embedding_dim)``, differentiable."""
        table = self.matrix.T
        if self.padding_idx is None:
            return table
        rows = torch.arange(self.num_embeddings, device=table.device)
        return table.masked_fill((rows == self.padding_idx)[:, None], 0.0)

    def to_embedding(self) -> nn.Embedding:
        """A dense layer with the same function, for inference where memory does not matter."""
        sizes = self.num_embeddings, self.embedding_dim, self.padding_idx
        dense = unfilled(nn.Embedding, *sizes, **self._placement)
        self._fill(dense)
        return dense

    def to_dense(self) -> nn.Embedding:
        return self.to_embedding()

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}, {self._repr_network()}"

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The rows of tokens: ``(...)`` to ``(..., embedding_dim)``."""
        tokens = input  # named as in torch's layer, for those who pass it by name
        if tokens.dtype not in (torch.int64, torch.int32):
            raise DataError(f"tokens must be int64 or int32 numbers, not {tokens.dtype}")
        flat = tokens.reshape(-1)
        self._check(flat)
        cores = self._current()
        way = self.way_for(flat.shape[0], gradients=torch.is_grad_enabled())
        if way is None:
            out = F.embedding(flat, run(self._dense, cores).T)
        else:
            assert isinstance(way, Lookup)
            out = run_lookup(way, flat, cores)
        out = out.to(self.cores[0].dtype)  # a lookup is no product for those who ask for less precision
        if self.input_scale is not None:
            out = out * self.input_scale[flat][:, None]
        if self.padding_idx is not None:
            out = out.masked_fill((flat == self.padding_idx)[:, None], 0.0)
        return out.reshape(*tokens.shape, self.embedding_dim)

    def _check(self, tokens: torch.Tensor) -> None:
        """Refuse tokens that there are not, where looking costs next to nothing."""
        if torch.compiler.is_compiling() or tokens.device.type != "cpu" or not tokens.numel():
            return
        least, most = int(tokens.min()), int(tokens.max())
        if least < 0 or most >= self.num_embeddings:
            raise DataError(
                f"tokens from {least} to {most} came in; there are {self.num_embeddings:,}, from 0 on"
            )


def embedding_refusal(dense: nn.Embedding) -> str:
    """Why an embedding cannot have a network as its weight; empty where it can."""
    if dense.max_norm is not None:
        return "max_norm changes rows of its table in place"
    if dense.sparse or dense.scale_grad_by_freq:
        return "sparse and scale_grad_by_freq are about gradients of rows, which a network does not have"
    if dense.padding_idx is not None and bool(dense.weight.detach()[dense.padding_idx].any()):
        return f"the row of padding_idx={dense.padding_idx} is not zero"
    return ""


def embedding_layout(
    tokens: int,
    size: int,
    in_dims: Sequence[int] | None = None,
    out_dims: Sequence[int] | None = None,
    *,
    paired: bool,
    base: int = 16,
) -> Layout:
    """Digits of tokens and rows, by default near `base`; there may be fewer tokens than digits can write."""
    in_dims, out_dims = given_digits(in_dims, out_dims)
    known = in_dims if in_dims is not None else out_dims
    count = digit_count(tokens, base)
    if paired and known is not None:
        count = len(known)
    ins = padded_digits(tokens, count) if in_dims is None else in_dims
    outs = out_dims
    if out_dims is None:
        outs = digits(size, count if paired else digit_count(size, base))
    width = Layout((*ins,), (1,), paired=False).in_features
    if width < tokens:
        raise OptionError(f"in_dims={ins} write {width:,} tokens; there are {tokens:,}")
    return Layout.choose(width, size, ins, outs, paired=paired)
