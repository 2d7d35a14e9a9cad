"""A transformer of characters, its text, and how it is trained: what `transformer` and `adapters` share."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import tensorgrow as tg
from tensorgrow.experiments.harness import Row
from tensorgrow.nn.modules import count_parameters
from tensorgrow.solvers import TrainingOptions

__all__ = [
    "WINDOWS",
    "CharacterModel",
    "Text",
    "character_loss",
    "grow_and_tune",
    "linear_names",
    "make_text",
    "quality",
    "read_text",
    "train_base",
    "tune",
    "use_fast_products",
    "without_dropout",
]

Pair = tuple[torch.Tensor, torch.Tensor]

CONTEXT = 128
BATCH = 64
# Windows that an epoch draws from the training text: 250 steps.
WINDOWS = 16_000
# Share of the text that chooses epochs, and that is only measured.
HELD_OUT = 0.05
# Parameters of a growth that counts as one; smaller ones would make thousands of them.
LEAST_COST = 100


def use_fast_products(device: str) -> None:
    """Multiply matrices in TF32 on a GPU, for all ways alike: the model is trained several times as fast."""
    if device == "cuda":
        torch.set_float32_matmul_precision("high")


class Block(nn.Module):
    """Attention and a layer of hidden units, each after a normalisation and added to its input."""

    def __init__(self, width: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(seen.transpose(1, 2).reshape(batch, length, width)))
        return x + self.dropout(self.down(F.gelu(self.up(self.second(x)))))


class CharacterModel(nn.Module):
    """Four blocks of width 128 made of linear layers; 1.02 million parameters for 65 characters."""

    def __init__(
        self, characters: int, *, width: int = 128, blocks: int = 4, hidden: int = 704, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(characters, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, 4, hidden, dropout) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters)
        self.register_buffer("positions", torch.arange(CONTEXT), persistent=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.places(self.positions[: ids.shape[1]])
        out: torch.Tensor = self.head(self.norm(self.blocks(x)))
        return out


@dataclass(frozen=True)
class Text:
    """Windows of a text and the characters that follow each of theirs: for training, choosing, measuring."""

    characters: str
    training: Pair
    validation: Pair
    test: Pair


def read_text(folder: Path) -> str:
    """The plays."""
    return (folder / "tinyshakespeare.txt").read_text(encoding="utf-8")


def make_text(text: str, characters: str, seed: int, windows: int, device: str) -> Text:
    """Split a text into its beginning, to train with, and two ends of a twentieth each."""
    number = {c: k for k, c in enumerate(characters)}
    ids = torch.tensor([number[c] for c in text])
    end = round(HELD_OUT * len(ids))
    parts = ids[: -2 * end], ids[-2 * end : -end], ids[-end:]
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(parts[0]) - CONTEXT - 1, (windows,), generator=generator)
    in_order = torch.arange(0, end - CONTEXT - 1, CONTEXT)
    pairs = []
    for part, first in zip(parts, (starts, in_order, in_order)):
        rows = part[first[:, None] + torch.arange(CONTEXT + 1)].to(device)
        pairs.append((rows[:, :-1].contiguous(), rows[:, 1:].contiguous()))
    return Text(characters, *pairs)


def character_loss(out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the next characters, in nats."""
    return F.cross_entropy(out.flatten(0, 1), target.flatten())


def tune(
    model: nn.Module,
    text: Text,
    *,
    epochs: int,
    rate: float,
    seed: int,
    teacher: tg.nn.Teacher | None = None,
) -> nn.Module:
    """Train further by the call that users have; the epoch with the least held-out loss wins."""
    options = TrainingOptions(
        optimizer="adamw",
        learning_rate=rate,
        epochs=epochs,
        schedule="cosine",
        clip=1.0,
        weight_decay=0.01,
        patience=epochs,
    )
    result = tg.nn.fine_tune(
        model,
        text.training,
        text.validation,
        loss=character_loss,
        training=options,
        teacher=teacher,
        batch_size=BATCH,
        random_state=seed,
        progress=False,
    )
    return result.model


def grow_and_tune(
    model: nn.Module,
    text: Text,
    room: int,
    *,
    rounds: int,
    epochs: int,
    rate: float,
    seed: int,
    teacher: tg.nn.Teacher | None = None,
) -> nn.Module:
    """Growth by so many parameters at most, in short rounds over half of the steps; training for the rest.

    All together see as many windows as `tune` does in so many epochs.
    """
    each = epochs * len(text.training[0]) // 2 // rounds
    shapes = [m.structure for m in tg.nn.tn_layers(model).values()]
    # By the cheapest edge, as many growths at a time as use the room in all rounds; mostly in fewer.
    cost = min(s.growth_cost(*e) for s in shapes for e in combinations(range(s.num_nodes), 2))
    count = max(1, math.ceil(room / (rounds - 1) / max(cost, LEAST_COST)))
    ranks = -(-count // len(shapes))
    result = tg.nn.grow(
        model,
        tuple(part[:each] for part in text.training),
        text.validation,
        loss=character_loss,
        max_parameters=count_parameters(model) + room,
        max_steps=rounds - 1,
        candidates="gradient",
        edges_per_step=-(-count // ranks),
        training=TrainingOptions(
            optimizer="adamw", learning_rate=rate, epochs=1, clip=1.0, weight_decay=0.01, patience=1
        ),
        options=tg.GreedyOptions(edge_score="per_parameter", rank_increment=ranks, patience=rounds),
        teacher=teacher,
        batch_size=BATCH,
        random_state=seed,
        progress=False,
    )
    left = len(text.training[0]) - len(result.history) * each // epochs
    rest = replace(text, training=(text.training[0][:left], text.training[1][:left]))
    return tune(result.model, rest, epochs=epochs, rate=rate, seed=seed, teacher=teacher)


def without_dropout(model: nn.Module) -> nn.Module:
    """The model itself, whose units all take part in training: small models do not learn by heart."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def linear_names(model: nn.Module) -> list[str]:
    """Layers that are replaced or adapted: all linear ones but the head."""
    return [n for n, m in model.named_modules() if isinstance(m, nn.Linear) and n != "head"]


def train_base(text: Text, path: Path, *, epochs: int, seed: int, device: str) -> nn.Module:
    """The dense model, trained once and stored."""
    torch.manual_seed(seed)
    model: nn.Module = CharacterModel(len(text.characters)).to(device)
    if path.exists():
        model.load_state_dict(torch.load(path, map_location=device, weights_only=True))
        return model
    model = tune(model, text, epochs=epochs, rate=2e-3, seed=seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), path)
    return model


@torch.no_grad()
def quality(model: nn.Module, pair: Pair) -> Row:
    """Cross-entropy in nats and share of characters that are right, over windows in order."""
    mode = model.training
    model.eval()
    losses, right = 0.0, 0
    for ids, target in zip(pair[0].split(256), pair[1].split(256)):
        out = model(ids)
        losses += float(character_loss(out, target)) * len(ids)
        right += int((out.argmax(-1) == target).sum())
    model.train(mode)
    return {"loss": losses / len(pair[0]), "accuracy": right / pair[1].numel()}
