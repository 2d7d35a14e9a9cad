"""One step of an optimiser on a batch: plain, or recorded once as a CUDA graph and replayed.

A step of a small network is dozens of kernels of a few microseconds each, and on a GPU most of its time goes
into launching them one by one. A CUDA graph launches all of them at once.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..errors import DataError


class PlainStep:
    """Moves parameters by the gradient of the loss of a batch, and sums up the losses.

    Parameters
    ----------
    clip
        Largest norm of the gradient; None: any.
    buffers
        What the loss changes as it is computed, such as running statistics.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        leaves: list[torch.Tensor],
        loss: Callable[[Any], torch.Tensor],
        clip: float | None = None,
        buffers: Sequence[torch.Tensor] = (),
    ) -> None:
        self.optimizer, self.leaves, self.loss, self.clip = optimizer, leaves, loss, clip
        self.buffers = buffers
        self._factor = None if isinstance(optimizer, torch.optim.LBFGS) else 1.0
        self._total = torch.zeros((), dtype=torch.float64, device=leaves[0].device)
        self._count = 0

    def __call__(self, batch: Any) -> None:
        self._step(batch)
        self._count += 1

    @property
    def count(self) -> int:
        """Steps since the last mean was taken."""
        return self._count

    def take_mean(self) -> tuple[float, int]:
        """Mean loss over the steps since the last call, each before its own move; and their number."""
        mean, count = float(self._total) / max(self._count, 1), self._count
        self._total.zero_()
        self._count = 0
        return mean, count

    def close(self) -> None:
        """Free what lies on the device."""

    def _step(self, batch: Any) -> torch.Tensor:
        def closure() -> torch.Tensor:
            self.optimizer.zero_grad()
            value = self.loss(batch)
            if not value.requires_grad:
                raise DataError(
                    "the loss does not depend on what is trained, so that it has no gradient: compute it in "
                    "torch, without `detach`, `item`, `numpy` or `no_grad` on the way"
                )
            value.backward()  # type: ignore[no-untyped-call]
            if self.clip is not None:
                torch.nn.utils.clip_grad_norm_(self.leaves, self.clip)
            return self._scale(value)

        value = torch.as_tensor(self.optimizer.step(closure)).detach()  # type: ignore[arg-type]
        value = value / (self._factor or 1.0)
        self._total += value
        return value

    def _scale(self, value: torch.Tensor) -> torch.Tensor:
        """Loss and gradients in units that suit the optimiser."""
        gradients = [leaf.grad for leaf in self.leaves if leaf.grad is not None]
        if self._factor is None:
            largest = max((float(g.abs().max()) for g in gradients), default=0.0)
            # L-BFGS stops, and forgets curvatures, below absolute sizes: a loss whose first gradient is not
            # between these is scaled, so that units of the data do not decide on the result.
            wanted = min(max(largest, 1e-1), 1e3)
            self._factor = wanted / largest if 0.0 < largest < math.inf else 1.0
        if self._factor == 1.0:
            return value
        for g in gradients:
            g.mul_(self._factor)
        return value * self._factor


class CapturedStep(PlainStep):
    """Replays a CUDA graph of the step for batches of the first frequent shape; others are plain steps.

    A graph repeats what it recorded: this fails for a loss that reads values on the host, draws numbers there
    or changes from call to call. So the first replay of every epoch is compared with the plain loss; where
    they differ, or where recording fails, all steps are plain from then on.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.works = True
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[torch.Tensor] = []
        self._value = self._total
        self._seen: dict[Any, int] = {}
        self._shape: Any = None
        self._is_checked = False

    def take_mean(self) -> tuple[float, int]:
        self._is_checked = False
        return super().take_mean()

    def close(self) -> None:
        self._graph = None
        self._inputs = []
        for leaf in self.leaves:
            leaf.grad = None

    def _step(self, batch: Any) -> torch.Tensor:
        tensors = _tensors(batch)
        if not self.works or tensors is None:
            return super()._step(batch)
        shape = [(t.shape, t.dtype, t.device) for t in tensors]
        if self._graph is None:
            count = self._seen[str(shape)] = self._seen.get(str(shape), 0) + 1
            if count <= 3:  # libraries and the optimiser set themselves up first
                return super()._step(batch)
            self._capture(batch, tensors)
            self._shape = shape
        if self._graph is None or shape != self._shape:
            return super()._step(batch)
        for static, tensor in zip(self._inputs, tensors):
            static.copy_(tensor, non_blocking=True)
        return self._replay() if self._is_checked else self._check_replay(batch)

    def _replay(self) -> torch.Tensor:
        assert self._graph is not None
        self._graph.replay()
        return self._value

    def _capture(self, batch: Any, tensors: list[torch.Tensor]) -> None:
        """Record a step; nothing is computed."""
        self._inputs = [t.clone() for t in tensors]
        graph = torch.cuda.CUDAGraph()
        try:
            # A failed recording leaves torch's generators unusable: so first see that nothing waits.
            with self._undo(), waiting_is_an_error():
                self.loss(batch).backward()  # type: ignore[no-untyped-call]
            self.optimizer.zero_grad(set_to_none=True)
            with self._undo(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._value = super()._step(_like(batch, self._inputs))
        except RuntimeError:
            self.works = False
        else:
            self._graph = graph

    def _check_replay(self, batch: Any) -> torch.Tensor:
        """Replay, and undo it where the plain loss differs."""
        with self._undo(), torch.no_grad():
            plain = float(self.loss(batch))
        moments = [v for leaf in self.leaves for v in self.optimizer.state[leaf].values()]
        changed = [v for v in moments if isinstance(v, torch.Tensor)]
        changed += [*self.leaves, *self.buffers, self._total]
        copies = [v.detach().clone() for v in changed]
        state = torch.cuda.get_rng_state(self.leaves[0].device)
        value = self._replay()
        # Sums may be taken in another order.
        if math.isclose(float(value), plain, rel_tol=1e-3, abs_tol=1e-12) or math.isnan(plain):
            self._is_checked = True
            return value
        with torch.no_grad():
            for v, copy in zip(changed, copies):
                v.copy_(copy)
        torch.cuda.set_rng_state(state, self.leaves[0].device)
        self.works = False
        self.close()
        return super()._step(batch)

    @contextmanager
    def _undo(self) -> Iterator[None]:
        """Random numbers drawn within the block are drawn again after it, and buffers are as before."""
        device = self.leaves[0].device
        state = torch.cuda.get_rng_state(device)
        copies = [b.clone() for b in self.buffers]
        try:
            yield
        finally:
            torch.cuda.set_rng_state(state, device)
            with torch.no_grad():
                for buffer, copy in zip(self.buffers, copies):
                    buffer.copy_(copy)


@contextmanager
def waiting_is_an_error() -> Iterator[None]:
    """Within the block, what makes the host wait for the device raises a RuntimeError."""
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls this mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


def _tensors(batch: Any) -> list[torch.Tensor] | None:
    """The tensors of a batch; None where it holds anything else, or is not on the GPU."""
    parts = [] if batch is None else list(batch) if isinstance(batch, tuple | list) else [batch]
    fit = all(isinstance(p, torch.Tensor) and p.is_cuda for p in parts)
    return parts if fit else None


def _like(batch: Any, tensors: list[torch.Tensor]) -> Any:
    if batch is None:
        return None
    return tuple(tensors) if isinstance(batch, tuple | list) else tensors[0]
