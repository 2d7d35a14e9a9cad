"""The inner fit of a structure search: ALS, or Adam as the rivals published it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch

from ..data.devices import one_thread
from ..errors import OptionError, check_choice
from ..network import TensorNetwork
from ..objectives import DenseLeastSquares
from ..solvers import ALSSettings, TrainingOptions, als
from ..solvers.gradient import train
from ..structure import Structure

# A relative error below which a fit is exact and further sweeps or restarts are pointless.
EXACT = 1e-9


@dataclass(frozen=True)
class FitOptions:
    """How each structure is fitted.

    Attributes
    ----------
    method
        "als": our alternating least squares. "adam": as TNGA, TNLS and TnALE were published.
    restarts
        Random starts; the best is kept.
    sweeps, tolerance
        Of ALS: sweeps at most, and the relative decrease per sweep below which it has converged.
    steps, learning_rate
        Of Adam. Published: 10,000 to 40,000 steps at 1e-3 or 1e-2.
    """

    method: Literal["als", "adam"] = "als"
    restarts: int = 1
    sweeps: int = 100
    tolerance: float = 1e-4
    steps: int = 10_000
    learning_rate: float = 1e-2

    def __post_init__(self) -> None:
        check_choice("fit", self.method, ("als", "adam"))
        if min(self.restarts, self.sweeps, self.steps) < 1 or min(self.tolerance, self.learning_rate) < 0:
            raise OptionError(f"restarts, sweeps and steps must be at least 1 and no rate negative: {self}")


Fit = Literal["als", "adam"] | FitOptions


@dataclass(frozen=True)
class FitTask:
    """A structure to fit: plain data and arrays, so that it can travel to another process.

    The fit starts from `cores`, or from random ones, and may take `seconds`.
    """

    structure: Structure
    seed: int
    cores: Sequence[Any] | None = None
    seconds: float = math.inf


class InnerFit:
    """Fits structures to one tensor; can be sent to other processes.

    Calling it with a `FitTask` gives the cores as NumPy arrays (tensors on a GPU), the loss, and the number
    of sweeps or steps over all restarts.
    """

    def __init__(self, target: torch.Tensor, options: FitOptions) -> None:
        self.target = target
        self.options = options

    def __reduce__(self) -> tuple[Any, ...]:
        # Torch would send tensors through shared memory and run out of file descriptors.
        return _rebuild, (self.target.cpu().numpy(), str(self.target.device), self.options)

    @cached_property
    def objective(self) -> DenseLeastSquares:
        return DenseLeastSquares(self.target)

    def __call__(self, task: FitTask) -> tuple[list[Any], float, int]:
        deadline = time.perf_counter() + task.seconds
        generator = torch.Generator().manual_seed(task.seed)
        lean = drop_surplus(task.structure) if task.cores is None else task.structure
        best: tuple[TensorNetwork, float] | None = None
        rounds = 0
        with one_thread() if self.objective.use_numpy else nullcontext():
            for _ in range(1 if task.cores is not None else self.options.restarts):
                start = self._start(replace(task, structure=lean), generator)
                network, loss, more = self._fit_from(start, deadline)
                rounds += more
                if best is None or loss < best[1]:
                    best = network, loss
                if best[1] <= EXACT * self.objective.norm or time.perf_counter() > deadline:
                    break
        assert best is not None
        whole = pad_cores(lean, task.structure, best[0].cores)
        return [c.numpy() if c.device.type == "cpu" else c for c in whole], best[1], rounds

    def _start(self, task: FitTask, generator: torch.Generator) -> TensorNetwork:
        like = self.target
        if task.cores is not None:
            cores = [torch.as_tensor(c).to(like.device, like.dtype) for c in task.cores]
            return TensorNetwork(task.structure, cores)
        network = TensorNetwork.random(
            task.structure, random_state=generator, dtype=like.dtype, device=like.device
        )
        share = (self.objective.norm / (network.norm() or 1.0)) ** (1.0 / len(network.cores))
        return TensorNetwork(network.structure, [c * share for c in network.cores])

    def _fit_from(self, start: TensorNetwork, deadline: float) -> tuple[TensorNetwork, float, int]:
        o = self.options
        if o.method == "adam":
            return self._adam(start, deadline)
        settings = ALSSettings(max_sweeps=o.sweeps, tolerance=o.tolerance)
        fitted = als(self.objective, start, settings, target=EXACT * self.objective.norm, deadline=deadline)
        return fitted.network, fitted.loss, fitted.num_sweeps

    def _adam(self, start: TensorNetwork, deadline: float) -> tuple[TensorNetwork, float, int]:
        """All cores at once by Adam on the squared relative error, without any stopping rule."""
        leaves = [c.detach().clone().requires_grad_() for c in start.cores]
        square = self.objective.norm**2
        steps = self.options.steps

        def loss(_: Any) -> torch.Tensor:
            rest = self.target - TensorNetwork(start.structure, leaves).to_dense()
            return (rest * rest.conj()).real.sum() / square

        options = TrainingOptions(
            optimizer="adam",
            learning_rate=self.options.learning_rate,
            epochs=steps,
            patience=steps,
            keep_state=False,
        )
        done = train(leaves, lambda: (None,), loss, options, measure=None, whole=True, deadline=deadline)
        network = TensorNetwork(start.structure, [c.detach() for c in leaves])
        arrays = self.objective.to_arrays(network)
        return network, self.objective.loss(network.structure, arrays), done.epochs


def drop_surplus(structure: Structure) -> Structure:
    """Ranks lowered to what their ends can use: the same tensors, and fewer numbers to fit.

    Searches with one rank for all edges put, say, rank 6 on a leaf of dimension 4; the normal equations of
    its neighbour are singular then, and slow to solve.
    """
    while surplus := [(e, u) for e, r in structure.ranks.items() if r > (u := structure.useful_rank(*e))]:
        edge, useful = surplus[0]
        structure = structure.with_rank(*edge, useful)
    return structure


def pad_cores(lean: Structure, structure: Structure, cores: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Cores of a structure of larger ranks for the same tensor: zeros beyond the lean ones."""
    for node, core in enumerate(cores):
        # Every core has an axis for its leg, of size 1 where the node is internal.
        shape = [lean.leg_dim(node), *(lean.rank(node, k) for k in structure.neighbours[node])]
        whole = core.new_zeros(structure.core_shape(node))
        whole[tuple(slice(n) for n in shape)] = core.reshape(shape)
        yield whole


def _rebuild(target: np.ndarray, device: str, options: FitOptions) -> InnerFit:
    return InnerFit(torch.from_numpy(target).to(device), options)
