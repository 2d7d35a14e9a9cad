"""Multi-head attention made of layers that can be replaced, in place of torch's packed parameters."""

from __future__ import annotations

from collections.abc import Collection

import torch
import torch.nn.functional as F
from torch import nn

from ...errors import OptionError, check_whole
from ...network import RandomState, as_generator
from ..modules import move_hooks, replace_module, unfilled
from .linear import TNLinear

# Names of the projections: one for queries, keys and values of the same size, else three.
PACKED, SEPARATE = ("in_proj",), ("q_proj", "k_proj", "v_proj")

# Where an encoder keeps what it did with nested tensors before its attentions were taken apart.
_BEFORE = "_used_nested_tensor"


class TNMultiheadAttention(nn.Module):
    """A drop-in for ``torch.nn.MultiheadAttention`` whose projections are layers of their own.

    `in_proj` maps ``embed_dim`` to queries, keys and values one after the other (its weight is torch's packed
    ``in_proj_weight``), `out_proj` maps the heads to the output. Each is any layer that acts like a linear
    one, such as a `TNLinear`. `compress` and `adapt` put this module in place of torch's where they change a
    projection; `to_attention` gives torch's back.

    Parameters
    ----------
    embed_dim, num_heads, dropout, bias, kdim, vdim, batch_first, device, dtype
        As for ``torch.nn.MultiheadAttention``. Where keys or values have a size of their own, there are
        `q_proj`, `k_proj` and `v_proj` in place of `in_proj`.
    random_state
        Seed or generator of the first values; projections are `TNLinear` layers of rank one, for `grow`.
    """

    # ``nn.TransformerEncoderLayer`` reads packed weights itself unless queries, keys and values differ.
    _qkv_same_embed_dim = False
    in_proj_bias: torch.Tensor | None = None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        *,
        bias: bool = True,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        random_state: RandomState = None,
    ) -> None:
        super().__init__()
        check_whole("embed_dim", embed_dim)
        if embed_dim % check_whole("num_heads", num_heads):
            raise OptionError(f"embed_dim={embed_dim} must be a multiple of num_heads={num_heads}")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.dropout, self.batch_first = dropout, batch_first
        sizes = embed_dim, kdim or embed_dim, vdim or embed_dim
        generator = None if random_state is None else as_generator(random_state)

        def project(inputs: int, outputs: int) -> TNLinear:
            return TNLinear(inputs, outputs, bias=bias, device=device, dtype=dtype, random_state=generator)

        if len(set(sizes)) == 1:
            self.in_proj: nn.Module = project(embed_dim, 3 * embed_dim)
        else:
            for name, size in zip(SEPARATE, sizes):
                setattr(self, name, project(size, embed_dim))
        self.out_proj: nn.Module = project(embed_dim, embed_dim)

    @classmethod
    def from_attention(cls, attention: nn.MultiheadAttention) -> TNMultiheadAttention:
        """The same function with dense projections; copies of the parameters, and what is frozen stays so."""
        reason = refusal(attention)
        if reason:
            raise OptionError(f"the attention cannot be taken apart: {reason}")
        own = cls.__new__(cls)
        nn.Module.__init__(own)
        for name in ("embed_dim", "num_heads", "head_dim", "dropout", "batch_first"):
            setattr(own, name, getattr(attention, name))
        bias = attention.in_proj_bias
        if attention._qkv_same_embed_dim:
            own.in_proj = _linear(attention.in_proj_weight, bias)
        else:
            parts = [None] * 3 if bias is None else bias.detach().chunk(3)
            for name, part in zip(SEPARATE, parts):
                setattr(own, name, _linear(getattr(attention, f"{name}_weight"), part))
        own.out_proj = _linear(attention.out_proj.weight, attention.out_proj.bias)
        return own.train(attention.training)

    def to_attention(self) -> nn.MultiheadAttention:
        """Torch's own module with the same function."""
        names = self.projections
        layers = {n: getattr(self, n) for n in (*names, "out_proj")}
        weight, bias = layers[names[0]].weight, layers[names[0]].bias
        sizes = [layers[n].weight.shape[1] for n in names]
        made = unfilled(
            nn.MultiheadAttention,
            self.embed_dim,
            self.num_heads,
            self.dropout,
            bias=bias is not None,
            kdim=None if len(names) == 1 else sizes[1],
            vdim=None if len(names) == 1 else sizes[2],
            batch_first=self.batch_first,
            device=weight.device,
            dtype=weight.dtype,
        )
        targets = ["in_proj_weight"] if len(names) == 1 else [f"{n}_weight" for n in SEPARATE]
        with torch.no_grad():
            for name, target in zip(names, targets):
                parameter = getattr(made, target)
                parameter.copy_(layers[name].weight)
                parameter.requires_grad_(any(p.requires_grad for p in layers[name].parameters()))
            if bias is not None:
                made.in_proj_bias.copy_(torch.cat([layers[n].bias for n in names]))
                made.in_proj_bias.requires_grad_(bias.requires_grad)
            made.out_proj.weight.copy_(layers["out_proj"].weight)
            free = any(p.requires_grad for n, p in layers["out_proj"].named_parameters() if n != "bias")
            made.out_proj.weight.requires_grad_(free)
            if bias is not None:
                made.out_proj.bias.copy_(layers["out_proj"].bias)
                made.out_proj.bias.requires_grad_(layers["out_proj"].bias.requires_grad)
        return made.train(self.training)

    @property
    def projections(self) -> tuple[str, ...]:
        """Names of the layers that make queries, keys and values."""
        return PACKED if "in_proj" in self._modules else SEPARATE

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        key_padding_mask: torch.Tensor | None = None,
        need_weights: bool = True,
        attn_mask: torch.Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """As ``torch.nn.MultiheadAttention``; ``is_causal`` needs no mask beside it."""
        is_batched = query.dim() == 3
        q, k, v = (
            x if is_batched else x.unsqueeze(0 if self.batch_first else 1)
            for x in self._project(query, key, value)
        )
        if not self.batch_first:
            q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        batch, length = q.shape[:2]
        heads = [x.reshape(*x.shape[:2], self.num_heads, self.head_dim).transpose(1, 2) for x in (q, k, v)]
        mask = self._mask(attn_mask, key_padding_mask, heads, is_causal)
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = heads[0] @ heads[1].mT / self.head_dim**0.5
            weights = F.dropout((scores if mask is None else scores + mask).softmax(-1), dropout)
            seen = weights @ heads[2]
            weights = weights.mean(1) if average_attn_weights else weights
            weights = weights if is_batched else weights.squeeze(0)
        else:
            seen = F.scaled_dot_product_attention(
                heads[0], heads[1], heads[2], attn_mask=mask, dropout_p=dropout
            )
        out = self.out_proj(seen.transpose(1, 2).reshape(batch, length, self.embed_dim))
        if not self.batch_first:
            out = out.transpose(0, 1)
        if not is_batched:
            out = out.squeeze(0 if self.batch_first else 1)
        return out, weights

    def _project(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if len(self.projections) == 3:
            layers = [getattr(self, n) for n in SEPARATE]
            return layers[0](query), layers[1](key), layers[2](value)
        if query is key and key is value:
            q, k, v = self.in_proj(query).chunk(3, -1)
            return q, k, v
        # Each input meets a third of the outputs; equal inputs are multiplied once.
        q = self.in_proj(query).chunk(3, -1)[0]
        of_key = self.in_proj(key).chunk(3, -1)
        of_value = of_key if key is value else self.in_proj(value).chunk(3, -1)
        return q, of_key[1], of_value[2]

    def _mask(
        self,
        mask: torch.Tensor | None,
        padding: torch.Tensor | None,
        heads: list[torch.Tensor],
        is_causal: bool,
    ) -> torch.Tensor | None:
        """What is added to the scores, ``(batch, heads, queries, keys)`` or less; None: nothing."""
        q, k = heads[0], heads[1]
        if mask is None and is_causal:
            mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1)
        total: torch.Tensor | None = None
        if mask is not None:
            total = _added(mask, q)
            if total.dim() == 3:  # one for every head of every sequence
                total = total.reshape(-1, self.num_heads, *total.shape[1:])
        if padding is not None:
            hidden = _added(padding, q).reshape(-1, 1, 1, k.shape[2])
            total = hidden if total is None else total + hidden
        return total

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, dropout={self.dropout}"


def refusal(attention: nn.MultiheadAttention) -> str:
    """Why an attention cannot be taken apart into layers; empty where it can."""
    if type(attention) is not nn.MultiheadAttention:
        return f"a {type(attention).__name__} may read its parameters in ways of its own"
    if attention.bias_k is not None or attention.add_zero_attn:
        return "it adds keys and values of its own (add_bias_kv, add_zero_attn)"
    return ""


def unpack_attention(model: nn.Module, only: Collection[str] | None = None) -> nn.Module:
    """Put modules with layers of their own wherever a model has torch's attention; the model is changed.

    Attentions that cannot be taken apart stay; `only` names those that are meant.
    """
    for name, module in list(model.named_modules()):
        wanted = isinstance(module, nn.MultiheadAttention) and (only is None or name in only)
        if wanted and isinstance(module, nn.MultiheadAttention) and not refusal(module):
            own = TNMultiheadAttention.from_attention(module)
            move_hooks(module, own)
            model = replace_module(model, module, own)
    _choose_nested(model)
    return model


def pack_attention(model: nn.Module) -> nn.Module:
    """The way back for those whose projections are all dense; the model is changed."""
    for module in list(model.modules()):
        if isinstance(module, TNMultiheadAttention):
            layers = [getattr(module, n) for n in (*module.projections, "out_proj")]
            if all(isinstance(layer, nn.Linear) for layer in layers):
                packed = module.to_attention()
                move_hooks(module, packed)
                model = replace_module(model, module, packed)
    _choose_nested(model)
    return model


def _choose_nested(model: nn.Module) -> None:
    """Let encoders skip what a padding mask hides only where all their attentions are torch's own.

    ``nn.TransformerEncoder`` then makes nested tensors, which nothing takes but the fast way of torch's
    layers, and reads the packed weights of the first attention to decide on it. It asked whether layers
    allow that when it was made, and keeps the answer in `use_nested_tensor`.
    """
    for encoder in model.modules():
        if isinstance(encoder, nn.TransformerEncoder):
            own = vars(encoder)
            if any(isinstance(m, TNMultiheadAttention) for m in encoder.modules()):
                own.setdefault(_BEFORE, own.get("use_nested_tensor", False))
                encoder.use_nested_tensor = False
            elif _BEFORE in own:
                encoder.use_nested_tensor = own.pop(_BEFORE)


def _linear(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    rows, columns = weight.shape
    layer = nn.Linear(columns, rows, bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight.detach().clone(), requires_grad=weight.requires_grad)
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone(), requires_grad=bias.requires_grad)
    return layer


def _added(mask: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A mask as numbers to add: true entries are hidden."""
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill(mask, float("-inf"))
