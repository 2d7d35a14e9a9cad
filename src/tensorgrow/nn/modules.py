"""Modules of PyTorch: their size, their tensors, their mode."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import torch
from torch import nn
from torch.nn.utils import skip_init

from ..errors import DataError, OptionError, StructureError, check_kind

M = TypeVar("M", bound=nn.Module)


def copy_architecture(model: nn.Module | None) -> nn.Module:
    """A copy of the model that a file is loaded into; refuses None."""
    if not isinstance(model, nn.Module):
        raise OptionError(
            "the file holds the tensors of a model; give a model of the same architecture: load(path, model)"
        )
    check_model(model)
    return _copy(model)


def copy_model(model: nn.Module) -> nn.Module:
    """A copy to change, so that the user's model is not; refuses what cannot be copied."""
    check_model(model)
    if torch.is_inference_mode_enabled():
        raise OptionError(
            "within torch.inference_mode() tensors cannot be trained any more; call this outside of it"
        )
    return _copy(model)


def check_model(model: nn.Module) -> None:
    """Refuse what is no module, and parameters that have no values yet."""
    check_kind("model", model, nn.Module)
    for name, p in model.named_parameters():
        if isinstance(p, nn.parameter.UninitializedParameter):
            raise OptionError(f"the parameter {name!r} has no size yet; call the model once")
        if p.is_meta:
            raise OptionError(f"the parameter {name!r} is on the meta device; give it values on another one")


def _copy(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except RuntimeError as error:  # torch copies no tensor that gradients flow through
        said = " ".join(str(error).split())
        raise OptionError(
            "the model has a tensor that is computed from its parameters and cannot be copied, such as a "
            "weight that is normalised or pruned by a hook; make it permanent first "
            f"(torch.nn.utils.remove_weight_norm, torch.nn.utils.prune.remove), or detach it ({said:.120})"
        ) from error


def load_tensors(model: nn.Module, tensors: Mapping[str, torch.Tensor]) -> nn.Module:
    """Put the tensors of a file into a model; refuse those of another architecture."""
    try:
        model.load_state_dict(tensors)
    except (RuntimeError, StructureError) as error:
        said = " ".join(str(error).split())
        raise OptionError(
            f"the tensors of the file do not fit the model; give one of the same architecture ({said:.300})"
        ) from error
    return model


def unfilled(make: Callable[..., M], *sizes: object, **options: object) -> M:
    """A module whose parameters have no values yet; none are drawn from torch's own random numbers."""
    made: M = skip_init(make, *sizes, **options)  # type: ignore[no-untyped-call]
    return made


def count_parameters(model: nn.Module) -> int:
    """Numbers that a model stores; a parameter used in several places counts once."""
    return sum(p.numel() for p in model.parameters())


def count_bytes(model: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters())


def model_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """The state of a model, which must be made of tensors."""
    state = model.state_dict()
    other = [name for name, value in state.items() if not isinstance(value, torch.Tensor)]
    if other:
        raise DataError(f"the model's state has entries that are not tensors and cannot be saved: {other}")
    return state


class Call(NamedTuple):
    """One call of a layer: its name, its input, and its output, of which gradients can be taken."""

    name: str
    input: torch.Tensor
    output: torch.Tensor


Given = tuple[torch.Tensor, ...]
Named = Mapping[str, torch.Tensor]


def input_of(given: Given, named: Named) -> torch.Tensor:
    """The input of a layer that was called with it, by position or by name."""
    return given[0] if given else named["input"]


@contextmanager
def recorded_calls(layers: Mapping[str, nn.Module]) -> Iterator[list[Call]]:
    """Within the block every call of the layers is noted, in order; empty the list when they are used."""
    calls: list[Call] = []

    def listen(name: str) -> Callable[[nn.Module, Given, Named, torch.Tensor], torch.Tensor]:
        def hook(_: nn.Module, given: Given, named: Named, output: torch.Tensor) -> torch.Tensor:
            output = output if output.requires_grad else output.requires_grad_()
            calls.append(Call(name, input_of(given, named).detach(), output))
            return output.clone()  # what follows may change it in place

        return hook

    handles = [layer.register_forward_hook(listen(name), with_kwargs=True) for name, layer in layers.items()]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def gradients_of_calls(loss: torch.Tensor, calls: Sequence[Call]) -> list[tuple[Call, torch.Tensor]]:
    """Calls whose output the loss depends on, with the gradient of it."""
    if not calls:
        return []
    grads = torch.autograd.grad(loss, [c.output for c in calls], allow_unused=True)
    return [(call, grad) for call, grad in zip(calls, grads) if grad is not None]


@contextmanager
def switch_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Within the block the model is in training or evaluation mode; afterwards every part is as it was.

    Parts may differ: a batch norm that is frozen stays in evaluation mode while the model is trained.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


_PRE_HOOKS = ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs")
_HOOKS = (
    *("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    *("_backward_hooks", "_backward_pre_hooks"),
)


def move_hooks(old: nn.Module, new: nn.Module) -> None:
    """Let what listens to the calls of a module listen to the one in its place."""
    # A weight that is no parameter comes from a hook before the call, which is of no use elsewhere.
    names = _HOOKS if "weight" in vars(old) else (*_PRE_HOOKS, *_HOOKS)
    for name in names:  # the dicts themselves, so that handles which were given out still remove the hooks
        hooks, own = vars(old)[name], vars(new)[name]
        hooks.update(own)
        vars(new)[name], vars(old)[name] = hooks, type(own)()
    new._is_full_backward_hook = old._is_full_backward_hook


@contextmanager
def all_or_nothing(model: nn.Module) -> Iterator[None]:
    """Where the block fails, every module and what is frozen of it is as before; values are not looked at."""
    modules = [(module, dict(vars(module))) for module in model.modules()]
    contents = [(d, d.copy()) for _, named in modules for d in named.values() if isinstance(d, dict)]
    flags = [(p, p.requires_grad) for p in model.parameters()]
    try:
        yield
    except BaseException:
        for module, named in modules:
            vars(module).clear()
            vars(module).update(named)
        for own, content in contents:
            own.clear()
            own.update(content)
        for p, flag in flags:
            p.requires_grad_(flag)
        raise


def replace_module(model: nn.Module, old: nn.Module, new: nn.Module) -> nn.Module:
    """Put `new` wherever the model has `old` (it may have several names); returns the model."""
    if model is old:
        return new
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child is old:
                parent._modules[name] = new
    return model
