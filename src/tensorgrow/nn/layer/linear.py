"""A linear layer whose weight is a tensor network."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ...algebra import moves
from ...errors import DataError, OptionError, StructureError
from ...network import RandomState, TensorNetwork, as_generator
from ...structure import Structure
from ...tasks.fit import fit
from .layout import Layout, check_cores, decode, encode
from .plans import dense_plan
from .products import Plan, run, run_rows
from .schedules import Schedule, pick, schedule
from .script import ScriptLinear

_NO_WEIGHT = (
    "the weight of a TNLinear cannot be {}: it is computed from the cores, and is no parameter of its own. "
    "Use the dense layer.to_linear(), or the cores: (layer.cores, '0') in place of (layer, 'weight')"
)


class TNLinear(nn.Module):
    r"""``y = x W^T + b`` with `W` a tensor network: a drop-in for ``torch.nn.Linear``.

    The digits of the output and input index are the legs of the network (see `Layout`). With paired legs

    .. math:: W_{(o_1 \dots o_p), (i_1 \dots i_p)} =
        \sum_{\text{edges}} \prod_k G^{(k)}_{o_k d_k + i_k, \dots}

    where ``d_k = in_dims[k]``. Cores are parameters ``cores.0``, ``cores.1``, ... of shape
    ``structure.core_shape(k)``: the leg first, then one axis per edge of rank above 1, neighbours ascending.

    For every number of rows the layer either contracts the input through the cores or rebuilds `W`, whichever
    costs less by counted flops and bytes; it goes through the cores only for a clear gain.

    Parameters
    ----------
    in_features, out_features
        Size of an input and of an output row.
    in_dims, out_dims
        Digits, products the features; by default near 4, the largest first.
    structure
        Graph and ranks over the legs ``Layout.dims``; by default rank one.
    paired
        One leg per pair of digits, as in the paper; False: one leg per digit, the output's first.
    bias
        Whether to add a vector.
    input_scale
        Whether inputs are first multiplied, entry by entry, with a vector of their own, which counts as
        parameters. `compress` uses it to weigh columns by what comes in.
    device, dtype
        Of the parameters.
    random_state
        Seed or generator of the first values; by default torch's global generator.

    Examples
    --------
    >>> layer = TNLinear(1024, 1024, in_dims=(4,) * 5, out_dims=(4,) * 5)
    >>> layer.num_parameters  # five vectors of 16 and the bias
    1104
    >>> tuple(layer(torch.zeros(7, 1024)).shape)
    (7, 1024)
    """

    in_features: int
    out_features: int
    bias: nn.Parameter | None
    input_scale: nn.Parameter | None
    _structure: Structure
    _schedules: tuple[Schedule, Schedule]  # without gradients, and with them
    _dense: Plan

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        in_dims: Sequence[int] | None = None,
        out_dims: Sequence[int] | None = None,
        structure: Structure | None = None,
        paired: bool = True,
        bias: bool = True,
        input_scale: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        random_state: RandomState = None,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.layout = Layout.choose(in_features, out_features, in_dims, out_dims, paired=paired)
        if structure is None:
            structure = Structure.rank_one(self.layout.dims)
        if structure.dims != self.layout.dims:
            raise StructureError(
                f"the structure is for legs {structure.dims}, the layer has {self.layout.dims}: digit sizes "
                + ("multiplied in pairs (out, in)" if paired else "of the output, then of the input")
            )
        kind: dict[str, Any] = {"device": device, "dtype": dtype}
        self.cores = nn.ParameterList([torch.empty(s, **kind) for s in structure.core_shapes])
        self.register_parameter("bias", nn.Parameter(torch.empty(out_features, **kind)) if bias else None)
        self.register_parameter(
            "input_scale", nn.Parameter(torch.ones(in_features, **kind)) if input_scale else None
        )
        # No parameter: an empty place of this name, so that tools of torch which would change the weight in
        # place ask for it and are told why not.
        self._buffers["weight"] = None
        self._trial: tuple[int, int, torch.Tensor, torch.Tensor] | None = None
        self._adopt(structure)
        self.reset_parameters(random_state)

    @classmethod
    def from_linear(
        cls,
        linear: nn.Linear,
        *,
        in_dims: Sequence[int] | None = None,
        out_dims: Sequence[int] | None = None,
        paired: bool = True,
        network: TensorNetwork | None = None,
        structure: Structure | None = None,
        input_scale: torch.Tensor | None = None,
        random_state: RandomState = None,
    ) -> TNLinear:
        """A layer in place of a dense one.

        Parameters
        ----------
        linear
            The layer to replace; it is not modified. The bias is copied, and what was frozen stays so.
        network
            The weight as a network over the legs of the layout (of ``weight / input_scale`` where that is
            given). Without one, `structure` (by default rank one) is fitted to the weight.
        """
        weight = linear.weight.detach()
        out_features, in_features = weight.shape
        layout = Layout.choose(in_features, out_features, in_dims, out_dims, paired=paired)
        if network is None:
            target = weight if input_scale is None else weight / input_scale.to(weight)
            shape = Structure.rank_one(layout.dims) if structure is None else structure
            network = fit(layout.to_tensor(target), shape, random_state=random_state).network
        elif structure is not None and structure != network.structure:
            raise OptionError("give network or structure, not both: they differ")
        layer = cls.untrained(linear, layout, network.structure, input_scale=input_scale is not None)
        with torch.no_grad():
            for core, value in zip(layer.cores, network.cores):
                core.copy_(value)
            if layer.bias is not None and linear.bias is not None:
                layer.bias.copy_(linear.bias)
            if layer.input_scale is not None and input_scale is not None:
                layer.input_scale.copy_(input_scale)
        return layer

    @classmethod
    def untrained(
        cls,
        linear: nn.Linear,
        layout: Layout,
        structure: Structure,
        *,
        input_scale: bool,
        random_state: RandomState = None,
    ) -> TNLinear:
        """A layer with random weights and otherwise like a dense one: bias, device, mode, what is frozen."""
        layer = cls(
            layout.in_features,
            layout.out_features,
            in_dims=layout.in_dims,
            out_dims=layout.out_dims,
            structure=structure,
            paired=layout.paired,
            bias=linear.bias is not None,
            input_scale=input_scale,
            device=linear.weight.device,
            dtype=linear.weight.dtype,
            random_state=random_state,
        )
        layer.train(linear.training)
        named = linear.named_parameters()
        layer.cores.requires_grad_(any(p.requires_grad for name, p in named if name != "bias"))
        if layer.bias is not None:
            layer.bias.requires_grad_(linear.bias.requires_grad)
        return layer

    @torch.no_grad()
    def reset_parameters(self, random_state: RandomState = None) -> None:
        """Draw new values: the weight's mean square is that of a new ``nn.Linear``, ``1 / (3 in_features)``.

        An entry sums ``prod(ranks)`` products of one entry per core, so independent cores of variance ``v``
        give ``prod(ranks) v^n``. The product of a few draws scatters widely; the cores are therefore scaled
        so that this very weight has the right norm.
        """
        if any(c.is_meta for c in self.cores):
            return
        generator = None if random_state is None else as_generator(random_state)
        kind: dict[str, Any] = {"dtype": torch.float64, "device": generator.device if generator else "cpu"}
        structure = self._structure
        count = math.prod(structure.ranks.values()) * 3.0 * self.in_features
        std = count ** (-0.5 / structure.num_nodes)
        for core in self.cores:
            core.copy_(torch.randn(core.shape, generator=generator, **kind).to(core) * std)
        norm = self.network.norm()
        if norm > 0:
            factor = math.sqrt(self.out_features / 3.0) / norm
            for core in self.cores:
                core.mul_(factor ** (1.0 / structure.num_nodes))
        if self.bias is not None:
            uniform = torch.rand(self.bias.shape, generator=generator, **kind)
            self.bias.copy_((2 * uniform - 1) / math.sqrt(self.in_features))
        if self.input_scale is not None:
            self.input_scale.fill_(1.0)

    # -- reading it ------------------------------------------------------------------------------------

    @property
    def structure(self) -> Structure:
        """Graph and ranks."""
        return self._structure

    @property
    def network(self) -> TensorNetwork:
        """The cores as a network, detached; of the weight divided by `input_scale` where there is one."""
        return TensorNetwork(self._structure, [c.detach() for c in self.cores])

    @network.setter
    def network(self, network: TensorNetwork) -> None:
        if network.structure.dims != self.layout.dims:
            raise StructureError(f"the network is over {network.structure.dims}, not {self.layout.dims}")
        like = self.cores[0]
        flags = [c.requires_grad for c in self.cores]
        values = [c.detach().to(like).clone() for c in network.cores]
        self.cores = nn.ParameterList(
            [nn.Parameter(v, requires_grad=flags[min(k, len(flags) - 1)]) for k, v in enumerate(values)]
        )
        self._adopt(network.structure)

    @property
    def weight(self) -> torch.Tensor:
        """The dense weight ``(out_features, in_features)``, differentiable."""
        weight = run(self._dense, self._current())
        return weight if self.input_scale is None else weight * self.input_scale

    @property
    def num_parameters(self) -> int:
        """Numbers stored: cores, bias and input scale."""
        return sum(p.numel() for p in self.parameters())

    def uses_cores(self, rows: int, *, gradients: bool = False) -> bool:
        """Whether that many rows go through the cores; otherwise the dense weight is rebuilt."""
        return self.plan_for(rows, gradients=gradients) is not None

    def plan_for(self, rows: int, *, gradients: bool = False) -> Plan | None:
        """How that many rows go through the cores; None where the dense weight is rebuilt."""
        return pick(self._schedules[gradients], rows)

    def to_linear(self) -> nn.Linear:
        """A dense layer with the same function, for inference where memory does not matter."""
        weight = self.weight.detach()
        linear = nn.Linear(
            self.in_features,
            self.out_features,
            bias=self.bias is not None,
            device=weight.device,
            dtype=weight.dtype,
        )
        linear.train(self.training)
        with torch.no_grad():
            linear.weight.copy_(weight)
            if self.bias is not None:
                linear.bias.copy_(self.bias)
        return linear

    def extra_repr(self) -> str:
        ranks = ", ".join(f"{i}-{j}: {r}" for (i, j), r in self._structure.ranks.items()) or "one"
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, in_dims={self.layout.in_dims}, out_dims={self.layout.out_dims}, "
            f"paired={self.layout.paired}, ranks=({ranks}), parameters={self.num_parameters:,}"
        )

    # -- applying it -----------------------------------------------------------------------------------

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply to rows: ``(..., in_features)`` to ``(..., out_features)``."""
        if x.dim() == 0 or x.shape[-1] != self.in_features:
            raise DataError(
                f"the input has shape {tuple(x.shape)}; its last axis must have {self.in_features} features"
            )
        cores = self._current()
        flat = x if x.dim() == 2 else x.reshape(-1, self.in_features)
        if self.input_scale is not None:
            flat = flat * self.input_scale
        plan = self.plan_for(flat.shape[0], gradients=torch.is_grad_enabled())
        if plan is None:
            out = F.linear(flat, run(self._dense, cores), self.bias)
        else:
            out = run_rows(plan, flat, cores, self.bias)
        return out if x.dim() == 2 else out.reshape(*x.shape[:-1], self.out_features)

    def _current(self) -> list[torch.Tensor]:
        """Cores to compute with: the layer's own, or those of the growth on trial."""
        for hook in self.cores._forward_pre_hooks.values():  # a list is never called: masks of pruned cores
            hook(self.cores, ())
        if self._trial is None:
            return list(self.cores)
        return moves.grow(self._structure, [c.detach() for c in self.cores], *self._trial)[1]

    # -- changing its structure ------------------------------------------------------------------------

    def grow_edge(
        self,
        i: int,
        j: int,
        *,
        slices: tuple[torch.Tensor, torch.Tensor] | None = None,
        noise: float = 1e-2,
        random_state: RandomState = None,
    ) -> None:
        """Raise the rank of edge ``(i, j)`` by one, in place, keeping all weights.

        The two cores become new parameters: give them to the optimiser. ``noise=0`` leaves the layer's
        function exactly as it is. Arguments as for `TensorNetwork.grow_edge`.
        """
        grown = self.network.grow_edge(i, j, slices=slices, noise=noise, random_state=random_state)
        for node in (i, j):
            self.cores[node] = nn.Parameter(
                grown.cores[node].detach().to(self.cores[node]).clone(),
                requires_grad=self.cores[node].requires_grad,
            )
        self._adopt(grown.structure)

    @contextmanager
    def trial(self, i: int, j: int, slices: tuple[torch.Tensor, torch.Tensor]) -> Iterator[None]:
        """Within the block the layer acts as if grown by `slices`; its own cores get no gradients."""
        grown = self._structure.with_rank(i, j, self._structure.rank(i, j) + 1)
        own = self._schedules, self._dense
        self._trial = (i, j, *slices)
        self._plan(grown)
        try:
            yield
        finally:
            self._trial = None
            self._schedules, self._dense = own

    def _adopt(self, structure: Structure) -> None:
        self._structure = structure
        self._plan(structure)

    def _plan(self, structure: Structure) -> None:
        # Worked out here and not in `forward`, so that a compiler finds plain tuples.
        like = self.cores[0]
        known = (self.layout, structure, like.device.type, like.element_size())
        self._schedules = schedule(*known), schedule(*known, gradients=True)
        self._dense = dense_plan(self.layout, structure)

    def _apply(self, fn: Any, recurse: bool = True) -> TNLinear:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._plan(self._structure)  # another device or precision has other costs
        return self

    # -- tools of torch --------------------------------------------------------------------------------

    def __prepare_scriptable__(self) -> ScriptLinear:
        """What ``torch.jit.script`` compiles: a layer that rebuilds its weight from the same parameters."""
        return ScriptLinear(self.cores, self.bias, self.input_scale, self._dense)

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """As for every module; ``torch.nn.utils.prune`` of the weight ends here."""
        if name == "weight_orig":
            raise OptionError(_NO_WEIGHT.format("pruned"))
        super().register_parameter(name, param)

    def __delattr__(self, name: str) -> None:
        if name == "weight":  # ``torch.nn.utils.parametrize`` would put another tensor in its place
            raise OptionError(_NO_WEIGHT.format("parametrised"))
        super().__delattr__(name)

    # -- saving and loading ----------------------------------------------------------------------------

    def get_extra_state(self) -> torch.Tensor:
        """Layout and structure as a tensor."""
        return encode(self.layout, self._structure)

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Do nothing: the structure is adopted before the cores are loaded."""

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Adopt the saved structure first, so that a layer of any rank loads one of any other."""
        state = state_dict.get(f"{prefix}_extra_state")
        if state is not None:
            layout, structure = decode(state, prefix.rstrip(".") or "the layer")
            if layout != self.layout:
                raise StructureError(
                    f"{prefix.rstrip('.') or 'the layer'} has the digits {self.layout.to_dict()}, the saved "
                    f"one {layout.to_dict()}; make the layer with these dims"
                )
            check_cores(state_dict, prefix, layout, structure)
            if structure != self._structure:
                like = self.cores[0]
                self.cores = nn.ParameterList(
                    [
                        nn.Parameter(like.detach().new_empty(s), requires_grad=like.requires_grad)
                        for s in structure.core_shapes
                    ]
                )
                self._adopt(structure)
        super()._load_from_state_dict(state_dict, prefix, *args)


def tn_layers(model: nn.Module) -> dict[str, TNLinear]:
    """The `TNLinear` layers of a model by name."""
    return {name: m for name, m in model.named_modules() if isinstance(m, TNLinear)}
