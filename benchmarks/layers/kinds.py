"""Convolutions and embeddings at the sizes of real models, beside dense ones and TensorLy-Torch's."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch

import tensorgrow as tg
from tensorgrow.experiments.harness import Case, Row
from tensorgrow.nn.layer.layout import digits
from tensorgrow.nn.layer.tn_layer import TNLayer

from ..benchmark import BenchmarkSettings

__all__ = ["cases", "contenders", "describe", "example", "is_shown"]

CHANNELS, TOKENS, WIDTH = 256, 50_000, 768
# Side of the feature map and images; form of the network and its rank.
CONVS = tuple((side, images) for side in (14, 56) for images in (1, 8))
CONV_FORMS = (("tucker", 32), ("tucker", 64), ("low rank", 64), ("train", 8), ("paired", 8))
LOOKUPS = (32, 1024, 8192)
EMBEDDING_FORMS = (("low rank", 64), ("two digits", 16), ("train", 16), ("paired", 16))
VOCABULARY_DIGITS = (25, 20, 10, 10)


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Every form at every size."""
    found = []
    for side, images in CONVS:
        for form, rank in CONV_FORMS:
            params = {"layer": "conv", "size": side, "batch": images, "form": form, "rank": rank}
            found.append(params)
    for tokens in LOOKUPS:
        for form, rank in EMBEDDING_FORMS:
            params = {"layer": "embedding", "size": TOKENS, "batch": tokens, "form": form, "rank": rank}
            found.append(params)
    if settings.quick:
        found = [p for p in found if p["batch"] in (1, 32) and p["size"] != 56]
    device = settings["device"]
    out = []
    for p in found:
        name = f"kinds/{device}/{p['layer']}{p['size']}/{p['form'].replace(' ', '-')}{p['rank']}/{p['batch']}"
        out.append(Case(name, {**p, "device": device, "budget": settings["budget"]}))
    return out


def example(params: Row) -> torch.Tensor:
    """An input."""
    if params["layer"] == "embedding":
        return torch.randint(TOKENS, (params["batch"],), device=params["device"])
    return torch.randn(params["batch"], CHANNELS, params["size"], params["size"], device=params["device"])


def own_layer(params: Row) -> TNLayer:
    """Ours."""
    form, rank, device = params["form"], params["rank"], params["device"]
    if params["layer"] == "conv":
        whole = form in ("tucker", "low rank")
        ins: tuple[int, ...] = (CHANNELS,) if whole else (16, 16)
        if form == "low rank":
            ins = (9 * CHANNELS,)
        options: dict[str, Any] = {"in_dims": ins, "out_dims": (CHANNELS,) if whole else (16, 16)}
        options |= {"paired": form == "paired", "padding": 1, "random_state": 0, "device": device}
        dims = tg.nn.TNConv2d(CHANNELS, CHANNELS, 3, **options).layout.dims
        return tg.nn.TNConv2d(CHANNELS, CHANNELS, 3, structure=_graph(form, dims, rank), **options)
    ins = {"low rank": (TOKENS,), "two digits": (250, 200)}.get(form, VOCABULARY_DIGITS)
    outs = (WIDTH,) if form in ("low rank", "two digits") else digits(WIDTH, len(VOCABULARY_DIGITS))
    options = {"in_dims": ins, "out_dims": outs, "paired": form == "paired"}
    options |= {"random_state": 0, "device": device}
    dims = tg.nn.TNEmbedding(TOKENS, WIDTH, **options).layout.dims
    return tg.nn.TNEmbedding(TOKENS, WIDTH, structure=_graph(form, dims, rank), **options)


def _graph(form: str, dims: tuple[int, ...], rank: int) -> tg.Structure:
    if form == "tucker":  # out - kernel - in
        return tg.Structure(dims, {(0, 2): rank, (1, 2): rank})
    if form == "two digits":  # first digit - second digit - row
        return tg.Structure(dims, {(0, 2): 4 * rank, (1, 2): rank})
    if form == "train" and dims[-1] == 9:  # the kernel between digits of the output and of the input
        return tg.Structure(dims, {(0, 1): rank, (1, 4): rank, (2, 4): rank, (2, 3): rank})
    return tg.Structure.tensor_train(dims, rank)


def contenders(params: Row) -> tuple[dict[str, torch.nn.Module], TNLayer, int]:
    """Rivals by name, our layer, and the rows it is applied to."""
    device, form, rank = params["device"], params["form"], params["rank"]
    ours = own_layer(params)
    dense = ours.to_dense()
    found: dict[str, torch.nn.Module] = {"linear": dense}
    if importlib.util.find_spec("tltorch") is not None:
        import tltorch

        if params["layer"] == "conv" and form == "tucker":
            for name, way in (("tensorly", "factorized"), ("tensorly_rebuilt", "reconstructed")):
                found[name] = tltorch.FactorizedConv(
                    CHANNELS,
                    CHANNELS,
                    3,
                    order=2,
                    padding=1,
                    bias=True,
                    factorization="tucker",
                    rank=(rank, rank, 3, 3),
                    implementation=way,
                ).to(device)
        if params["layer"] == "embedding" and form == "paired" and device == "cpu":  # it fails on a GPU
            found["tensorly"] = tltorch.FactorizedEmbedding(
                TOKENS,
                WIDTH,
                auto_tensorize=False,
                tensorized_num_embeddings=VOCABULARY_DIGITS,
                tensorized_embedding_dim=digits(WIDTH, len(VOCABULARY_DIGITS)),
                factorization="blocktt",
                rank=rank,
            ).to(device)
    return found, ours, rows_of(params)


def rows_of(params: Row) -> int:
    """Rows as the layer counts them."""
    return params["batch"] * (1 if params["layer"] == "embedding" else params["size"] ** 2)


def is_shown(params: Row) -> bool:
    """Whether pages show a case: batches of eight images, and up to a thousand tokens, few forms each."""
    if params["layer"] == "embedding":
        return bool(params["batch"] in LOOKUPS[:2])
    return bool(params["batch"] == 8 and (params["form"], params["rank"]) != ("tucker", 64))


def describe(params: Row) -> str:
    """A case in words."""
    if params["layer"] == "embedding":
        return f"{TOKENS:,}x{WIDTH}, {params['batch']:,} tokens"
    return f"{CHANNELS} to {CHANNELS}, 3x3, {params['batch']} x {params['size']}x{params['size']}"
