"""A layer whose weight is a tensor network: its cores, their growth, their state."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import torch
from torch import nn

from ...algebra import moves
from ...errors import OptionError, StructureError
from ...network import RandomState, TensorNetwork, as_generator
from ...structure import Structure
from ...tasks.fit import fit
from .application import Application, Way
from .keywords import LayerOptions, Placement
from .layout import Layout, check_cores, decode, encode
from .plans import dense_plan
from .precision import network_within
from .products import Plan, run
from .schedules import Schedule, pick, schedule

# Torch has it from version 2.7 on; before, programs are exported for the size of their example.
_is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", lambda: False)

_NO_WEIGHT = (
    "the weight of a {} cannot be {}: it is computed from the cores, and is no parameter of its own. "
    "Use the dense layer.{}(), or the cores: (layer.cores, '0') in place of (layer, 'weight')"
)


class TNLayer(nn.Module):
    """What all layers with a network as weight have in common.

    The weight is a matrix of shape ``(out_features, in_features)`` of the layout; a kind of layer says what
    its rows and columns are. Cores are parameters ``cores.0``, ``cores.1``, ... of shape
    ``structure.core_shape(k)``: the leg first, then one axis per edge of rank above 1, neighbours ascending.

    Parameters
    ----------
    layout
        Digits of the two indices of the weight.
    structure
        Graph and ranks over the legs ``layout.dims``; None: rank one.
    application
        How the weight meets the input.
    vectors
        Sizes of `bias` and `input_scale`; None: there is none.
    placement
        Of the parameters.
    """

    bias: nn.Parameter | None
    input_scale: nn.Parameter | None
    _structure: Structure
    _schedules: tuple[Schedule, Schedule]  # without gradients, and with them
    _dense: Plan

    # The method that gives the dense layer, for messages.
    to_name = "to_dense"
    # The layers of torch that this kind takes the place of.
    dense_class: ClassVar[type[nn.Module]]

    def __init__(
        self,
        layout: Layout,
        structure: Structure | None,
        application: Application,
        vectors: tuple[int | None, int | None],
        placement: Placement,
    ) -> None:
        super().__init__()
        self.layout, self.application = layout, application
        if structure is None:
            structure = Structure.rank_one(layout.dims)
        if structure.dims != layout.dims:
            raise StructureError(
                f"the structure is for legs {structure.dims}, the layer has {layout.dims}: digit sizes "
                + ("multiplied in pairs (out, in)" if layout.paired else "of the output, then of the input")
            )
        self.cores = nn.ParameterList([torch.empty(s, **placement) for s in structure.core_shapes])
        for name, size in zip(("bias", "input_scale"), vectors):
            vector = None if size is None else nn.Parameter(torch.ones(size, **placement))
            self.register_parameter(name, vector)
        # No parameter: an empty place of this name, so that tools of torch which would change the weight in
        # place ask for it and are told why not.
        self._buffers["weight"] = None
        self._trial: tuple[int, int, torch.Tensor, torch.Tensor] | None = None
        self._adopt(structure)
        self.register_load_state_dict_post_hook(_plan_again)  # type: ignore[no-untyped-call]

    # -- from dense layers and back --------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def matrix_of(cls, dense: nn.Module) -> torch.Tensor:
        """The weight of a dense layer as a matrix, detached; columns that a layout adds are missing."""

    @classmethod
    @abstractmethod
    def layout_of(cls, dense: nn.Module, *dims: Sequence[int] | None, paired: bool) -> Layout:
        """The digits of a dense layer's weight: those (in, out) that are named; else those of a new one."""

    @classmethod
    @abstractmethod
    def arguments_of(cls, dense: nn.Module) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Sizes and options for a layer like a dense one: what its constructor has beyond the others'."""

    @classmethod
    def untrained(
        cls,
        dense: nn.Module,
        layout: Layout,
        structure: Structure,
        *,
        input_scale: bool,
        random_state: RandomState = None,
    ) -> Self:
        """A layer with random weights and otherwise like a dense one: bias, device, mode, what is frozen."""
        sizes, options = cls.arguments_of(dense)
        weight = dense.weight
        assert isinstance(weight, torch.Tensor)
        make: Callable[..., Self] = cls  # every kind takes these after its sizes
        return make(
            *sizes,
            in_dims=layout.in_dims,
            out_dims=layout.out_dims,
            structure=structure,
            paired=layout.paired,
            input_scale=input_scale,
            device=weight.device,
            dtype=weight.dtype,
            random_state=random_state,
            **options,
        )._like(dense)

    @abstractmethod
    def to_dense(self) -> nn.Module:
        """A dense layer with the same function, for inference where memory does not matter."""

    @classmethod
    def from_dense(
        cls,
        dense: nn.Module,
        layout: Layout,
        *,
        network: TensorNetwork | None = None,
        structure: Structure | None = None,
        max_error: float | None = None,
        input_scale: torch.Tensor | None = None,
        random_state: RandomState = None,
    ) -> Self:
        """A layer in place of a dense one, which is not modified. What was frozen stays so.

        Parameters
        ----------
        dense, layout
            The layer to replace, and the digits of its weight.
        network
            The weight as a network over the legs of the layout (of ``weight / input_scale`` where that is
            given). Without one, `structure` (by default rank one) is fitted to the weight.
        max_error
            In place of both: graph and ranks are searched for until the relative error of the weight is this,
            in the precision of the layer; refused where that is out of reach.
        """
        if network is not None and structure is not None and structure != network.structure:
            raise OptionError("give network or structure, not both: they differ")
        if max_error is not None and (network is not None or structure is not None):
            raise OptionError("max_error searches for a structure: give it without network and structure")
        if network is None:
            matrix = cls.matrix_of(dense)
            if input_scale is not None:
                matrix = matrix / column_scale(input_scale, matrix.shape[1]).to(matrix)
            tensor = layout.to_tensor(matrix)
            if max_error is not None:
                network = network_within(tensor, max_error, random_state)
            else:
                shape = Structure.rank_one(layout.dims) if structure is None else structure
                network = fit(tensor, shape, random_state=random_state).network
        scaled = input_scale is not None
        # Values that are about to be replaced: drawn from a seed, they leave torch's own numbers alone.
        layer = cls.untrained(dense, layout, network.structure, input_scale=scaled, random_state=0)
        own_bias, bias = layer.bias, getattr(dense, "bias", None)
        with torch.no_grad():
            for core, value in zip(layer.cores, network.cores):
                core.copy_(value)
            if own_bias is not None and bias is not None:
                own_bias.copy_(bias)
            if layer.input_scale is not None and input_scale is not None:
                layer.input_scale.copy_(input_scale)
        return layer

    @classmethod
    def _from(cls, dense: nn.Module, how: LayerOptions) -> Self:
        """`from_dense` with the digits that the options name, or those of a new layer.

        Checked are layers that users name; `compress` and `adapt` have refused others before.
        """
        if not isinstance(dense, cls.dense_class) or "quantiz" in type(dense).__module__:
            raise OptionError(
                f"{cls.__name__} takes the place of a torch.nn.{cls.dense_class.__name__}, not of a "
                f"{type(dense).__module__}.{type(dense).__name__}"
            )
        refused = weight_refusal(dense)
        if refused:
            raise OptionError(f"the layer cannot have a network as its weight: {refused}")
        rest: dict[str, Any] = dict(how)
        digits = [rest.pop(name, None) for name in ("in_dims", "out_dims")]
        layout = cls.layout_of(dense, *digits, paired=rest.pop("paired", False))
        return cls.from_dense(dense, layout, **rest)

    @torch.no_grad()
    def _fill(self, dense: nn.Module) -> None:
        """Give a new dense layer the weight, the bias and the mode of this one, and freeze what is frozen."""
        dense.train(self.training)
        weight, bias = dense.weight, getattr(dense, "bias", None)
        assert isinstance(weight, torch.Tensor)
        weight.copy_(self.weight)
        weight.requires_grad_(any(core.requires_grad for core in self.cores))
        if self.bias is not None and bias is not None:
            bias.copy_(self.bias)
            bias.requires_grad_(self.bias.requires_grad)

    @property
    def _placement(self) -> Placement:
        like = self.cores[0]
        return {"device": like.device, "dtype": like.dtype}

    @property
    @abstractmethod
    def weight(self) -> torch.Tensor:
        """The weight as the dense layer has it, differentiable."""

    def _like(self, dense: nn.Module) -> Self:
        """Take over the mode of a dense layer and what of it is frozen."""
        self.train(dense.training)
        named = list(dense.named_parameters())
        self.cores.requires_grad_(any(p.requires_grad for name, p in named if name != "bias"))
        if self.bias is not None:
            self.bias.requires_grad_(dict(named)["bias"].requires_grad)
        return self

    @torch.no_grad()
    def reset_parameters(self, random_state: RandomState = None) -> None:
        """Draw new values: the weight's mean square is that of a new dense layer.

        An entry sums ``prod(ranks)`` products of one entry per core, so independent cores of variance ``v``
        give ``prod(ranks) v^n``. The product of a few draws scatters widely; the cores are therefore scaled
        so that this very weight has the right norm.
        """
        if any(c.is_meta for c in self.cores):
            return
        generator = None if random_state is None else as_generator(random_state)
        kind: dict[str, Any] = {"dtype": torch.float64, "device": generator.device if generator else "cpu"}
        structure, square = self._structure, self._mean_square
        std = (math.prod(structure.ranks.values()) / square) ** (-0.5 / structure.num_nodes)
        for core in self.cores:
            core.copy_(torch.randn(core.shape, generator=generator, **kind).to(core) * std)
        norm = self.network.norm()
        if norm > 0:
            factor = math.sqrt(square * math.prod(self.layout.dims)) / norm
            for core in self.cores:
                core.mul_(factor ** (1.0 / structure.num_nodes))
        if self.bias is not None:
            uniform = torch.rand(self.bias.shape, generator=generator, **kind)
            self.bias.copy_((2 * uniform - 1) / math.sqrt(self.layout.in_features))
        if self.input_scale is not None:
            self.input_scale.fill_(1.0)

    @property
    def _mean_square(self) -> float:
        """Of the entries of a new weight; torch draws them uniformly within ``1 / sqrt(in_features)``."""
        return 1.0 / (3.0 * self.layout.in_features)

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
    def matrix(self) -> torch.Tensor:
        """The weight as the matrix that the layout is of, without columns that it adds; differentiable."""
        matrix = run(self._dense, self._current())
        if self.columns < self.layout.in_features:
            matrix = matrix[:, : self.columns]
        return matrix if self.input_scale is None else matrix * column_scale(self.input_scale, self.columns)

    @property
    def columns(self) -> int:
        """Columns of the weight that are used."""
        return self.layout.in_features

    @property
    def num_parameters(self) -> int:
        """Numbers stored: cores, bias and input scale."""
        return sum(p.numel() for p in self.parameters())

    def uses_cores(self, rows: int, *, gradients: bool = False) -> bool:
        """Whether that many rows go through the cores; otherwise the dense weight is rebuilt."""
        return self.way_for(rows, gradients=gradients) is not None

    def way_for(self, rows: int, *, gradients: bool = False) -> Way | None:
        """How that many rows go through the cores; None where the dense weight is rebuilt."""
        # An exported program goes one way for inputs of all sizes: that for a few hundred rows.
        return pick(self._schedules[gradients], 256 if _is_exporting() else rows)

    def _repr_network(self) -> str:
        ranks = ", ".join(f"{i}-{j}: {r}" for (i, j), r in self._structure.ranks.items()) or "one"
        return (
            f"bias={self.bias is not None}, in_dims={self.layout.in_dims}, out_dims={self.layout.out_dims}, "
            f"paired={self.layout.paired}, ranks=({ranks}), parameters={self.num_parameters:,}"
        )

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
        known = (self.application, self.layout, structure, like.device.type, like.element_size())
        self._schedules = schedule(*known), schedule(*known, gradients=True)
        self._dense = dense_plan(self.layout, structure)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        def move(tensor: torch.Tensor) -> Any:
            # A memory format for images says nothing about a core, and torch refuses some of its shapes.
            return fn(tensor) if tensor.dim() < 4 else fn(tensor.flatten()).reshape(tensor.shape)

        super()._apply(move, recurse)  # type: ignore[no-untyped-call]
        self._plan(self._structure)  # another device or precision has other costs
        return self

    # -- tools of torch --------------------------------------------------------------------------------

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """As for every module; ``torch.nn.utils.prune`` of the weight ends here."""
        if name == "weight_orig":
            raise OptionError(_NO_WEIGHT.format(type(self).__name__, "pruned", self.to_name))
        super().register_parameter(name, param)

    def __delattr__(self, name: str) -> None:
        if name == "weight":  # ``torch.nn.utils.parametrize`` would put another tensor in its place
            raise OptionError(_NO_WEIGHT.format(type(self).__name__, "parametrised", self.to_name))
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
            layout, structure = decode(state, prefix.rstrip(".") or "the layer", type(self).__name__)
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


def _plan_again(layer: nn.Module, _: object) -> None:
    """Once cores are loaded: those that were assigned may be elsewhere, or of another precision."""
    assert isinstance(layer, TNLayer)
    layer._plan(layer.structure)


def weight_refusal(dense: nn.Module) -> str:
    """Why no network can take the place of a dense layer's weight; empty where one can."""
    weight = getattr(dense, "weight", None)
    if not isinstance(weight, torch.Tensor) or "quantiz" in type(dense).__module__:
        return "it is quantised; compress the model before that"
    if hasattr(dense, "weight_fake_quant"):  # a network would not have its rounding
        return "it is trained to be quantised; compress the model before that"
    if isinstance(weight, nn.parameter.UninitializedParameter):
        return "its weight has no size yet; call the model once"
    if weight.is_meta:
        return "its weight is on the meta device; give it values on another one"
    if not weight.is_floating_point():
        return f"its weight holds {weight.dtype}, and must hold real floating-point numbers"
    return ""


def column_scale(scale: torch.Tensor, columns: int) -> torch.Tensor:
    """The factor of every column, of an input scale; each is that of as many neighbours."""
    return scale if scale.numel() == columns else scale.repeat_interleave(columns // scale.numel())


def tn_layers(model: nn.Module) -> dict[str, TNLayer]:
    """The layers of a model that have a network as weight, by name."""
    return {name: m for name, m in model.named_modules() if isinstance(m, TNLayer)}
