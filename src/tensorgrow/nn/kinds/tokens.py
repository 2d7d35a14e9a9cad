"""Embeddings: a column of the matrix is the row of a token."""

from __future__ import annotations

import torch
from torch import nn

from ..layer.layout import Layout, padded_digits
from ..layer.tokens import EmbeddingApplication, TNEmbedding, embedding_layout, embedding_refusal
from .kind import ROWS, Kind, useful
from .statistics import Counts, Inputs


class EmbeddingKind(Kind[nn.Embedding]):
    """``nn.Embedding``."""

    layer = TNEmbedding

    def application(self, module: nn.Embedding) -> EmbeddingApplication:
        return EmbeddingApplication()

    def refusal(self, module: nn.Embedding) -> str:
        return super().refusal(module) or embedding_refusal(module)

    def layouts(self, module: nn.Embedding) -> list[Layout]:
        """Tokens in two digits and rows whole; digits near 16, separate and paired."""
        sizes = module.num_embeddings, module.embedding_dim
        whole = embedding_layout(
            *sizes, padded_digits(module.num_embeddings, 2), (module.embedding_dim,), paired=False
        )
        near = [embedding_layout(*sizes, paired=paired) for paired in (False, True)]
        return useful([whole, *near])

    def statistics(self, module: nn.Embedding) -> Counts:
        return Counts(module.num_embeddings)

    def example(self, module: nn.Embedding, inputs: Inputs | None) -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(module.num_embeddings, (ROWS,), generator=generator)
        return tokens.to(module.weight.device)
