"""Cross-entropy of a network on products of features with a ridge, and which edges are worth growing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch

from ..algebra import moves
from ..contraction import inner_plan, product_plan
from ..data.sample_weights import weighted_mean
from ..losses import cross_entropy
from ..network import TensorNetwork
from ..structure import Edge, Structure
from .base import Screening

Slices = tuple[torch.Tensor, torch.Tensor]

# Size of the slices that pair gradients are read off at.
PROBE = 1e-2
# Multiplications per sample that a network may take, and that one screening of several edges may take.
MOST_COST = 2.0**18


class Classification(Screening):
    """Mean cross-entropy of ``f_c(x) = <W[..., c], phi_1(x_1) x ... x phi_d(x_d)>``, plus a ridge on ``W``.

    The ridge is on the norm of the whole tensor ``W``, which the network gives exactly, not on its cores:
    every product of features pays for its own weight, as in a kernel machine.

    Parameters
    ----------
    features
        Local features, ``(n, d, m)``.
    labels
        Class numbers.
    num_classes
        Size of the last leg.
    weights
        How much every sample counts, with mean one; None: all the same.
    held_out
        True for samples that only `validate` sees; None for none.
    generator
        Shuffles the batches.
    ridge
        Factor of the squared norm of ``W`` in the loss; `total` and `validate` are without.
    batch_size
        Samples per batch; None: 128, or 64 of up to 1,000.
    share
        Of the edges that may grow, how many do so at once.
    """

    def __init__(
        self,
        features: torch.Tensor,
        labels: torch.Tensor,
        num_classes: int,
        *,
        weights: torch.Tensor | None = None,
        held_out: torch.Tensor | None = None,
        generator: torch.Generator,
        ridge: float = 0.0,
        batch_size: int | None = None,
        share: float = 0.1,
    ) -> None:
        self.dims = (*[features.shape[2]] * features.shape[1], num_classes)
        fitted = torch.ones_like(labels, dtype=torch.bool) if held_out is None else ~held_out
        self.features, self.labels = features[fitted], labels[fitted]
        self._held = None if held_out is None else (features[held_out], labels[held_out])
        self._weights = None if weights is None else weights[fitted]
        self._held_weights = None if weights is None or held_out is None else weights[held_out]
        self._generator = generator
        self._ridge = ridge
        self._batch_size = batch_size or (64 if len(self.labels) <= 1_000 else 128)
        self._share = share

    @property
    def holds_out(self) -> bool:
        return self._held is not None

    @property
    def num_batches(self) -> int:
        return -(-len(self.labels) // self._batch_size)

    def batches(self) -> Iterable[torch.Tensor]:
        order = torch.randperm(len(self.labels), generator=self._generator).to(self.labels.device)
        return order.tensor_split(self.num_batches)

    def loss(self, network: TensorNetwork, batch: torch.Tensor) -> torch.Tensor:
        loss = self._loss(network, batch)
        if not self._ridge:
            return loss
        cores = list(network.cores)
        square: torch.Tensor = inner_plan(network.structure, network.structure, False).run(cores + cores)
        return loss + self._ridge * square

    def _loss(self, network: TensorNetwork, batch: torch.Tensor) -> torch.Tensor:
        values = product_plan(network.structure).run(network.cores, self.features[batch])
        if self._weights is None:
            return cross_entropy(values, self.labels[batch])
        # Not over the weights of the batch: a batch of small weights says little.
        return (self._weights[batch] * cross_entropy.each(values, self.labels[batch])).mean()

    def total(self, network: TensorNetwork) -> float:
        return float(cross_entropy(logits(network, self.features), self.labels, self._weights))

    def validate(self, network: TensorNetwork) -> float | None:
        if self._held is None:
            return None
        return float(weighted_mean(self.held_out_losses(network), self._held_weights))

    def held_out_losses(self, network: TensorNetwork) -> torch.Tensor:
        """Cross-entropy of every held-out sample."""
        assert self._held is not None
        features, labels = self._held
        chances = logits(network, features).double().log_softmax(1)
        return -chances.gather(1, labels[:, None])[:, 0]

    # -- which edges to grow ---------------------------------------------------------------------------

    def screen(
        self,
        network: TensorNetwork,
        edges: Sequence[Edge],
        max_parameters: int | None,
        generator: torch.Generator,
    ) -> tuple[list[Edge], TensorNetwork]:
        r"""The edges with the largest first-order gain per parameter, and the network with these grown.

        The loss with new slices ``a`` and ``b`` at an edge changes by ``a^T M b`` to lowest order; the
        largest singular value of ``M`` is the steepest descent there is. Slices of size ``delta`` at many
        edges at once disturb each other only by ``delta^4``: one backward pass gives ``M b`` and ``M^T a``
        for all of them, and a few passes their leading singular vectors, without any ``M`` being formed.
        """
        batch = torch.randperm(len(self.labels), generator=generator)[:512].to(self.labels.device)
        candidates: dict[Edge, tuple[float, Slices]] = {}
        for group in self._groups(network.structure, list(edges)):
            candidates |= self.leading_slices(network, group, batch, generator)
        structure = network.structure
        growing: dict[Edge, Slices] = {}
        count = math.ceil(self._share * len(edges))
        while candidates and len(growing) < count:
            # Costs are those after the growths before: a node that many edges meet at soon gets expensive.
            best = max(candidates, key=lambda e: candidates[e][0] ** 2 / structure.growth_cost(*e))
            slices = candidates.pop(best)[1]
            grown = structure.with_rank(*best, structure.rank(*best) + 1)
            if max_parameters is not None and grown.num_parameters > max_parameters:
                continue
            if is_affordable(grown):
                structure, growing[best] = grown, slices
        return list(growing), self._grow(network, growing) if growing else network

    def _groups(self, structure: Structure, edges: list[Edge]) -> Iterator[list[Edge]]:
        """Edges that can be screened together, because the network with all of them grown is affordable."""
        if len(edges) <= 1 or product_plan(moves.raise_ranks(structure, edges)).cost <= MOST_COST:
            yield edges
            return
        half = len(edges) // 2
        yield from self._groups(structure, edges[:half])
        yield from self._groups(structure, edges[half:])

    def leading_slices(
        self, network: TensorNetwork, edges: list[Edge], batch: torch.Tensor, generator: torch.Generator
    ) -> dict[Edge, tuple[float, Slices]]:
        """Largest singular value of every edge's pair gradient, with the slices that lower the loss."""
        structure = network.structure
        frozen = [c.detach() for c in network.cores]
        leaves = []
        for edge in edges:
            for node, other in (edge, edge[::-1]):
                size = structure.leg_dim(node) * structure.bond_product(node, without=other)
                leaves.append(torch.randn(size, generator=generator, dtype=torch.float64).to(frozen[0]))
        leaves = [PROBE * v / v.norm().clamp_min(1e-30) for v in leaves]
        for _ in range(4):  # rounds of power iteration
            leaves = [v.requires_grad_() for v in leaves]
            slices = {e: (leaves[2 * k], leaves[2 * k + 1]) for k, e in enumerate(edges)}
            grown = TensorNetwork(*moves.grow_many(structure, frozen, slices))
            gradients = torch.autograd.grad(self._loss(grown, batch), leaves)
            norms = [g.norm() for g in gradients]
            before = [v.detach() for v in leaves]
            leaves = [PROBE * g / s.clamp_min(1e-30) for g, s in zip(gradients, norms)]
        # `before` of one end and the gradient it gave at the other belong together.
        return {
            e: (float(norms[2 * k]) / PROBE, (-leaves[2 * k] / PROBE, before[2 * k + 1] / PROBE))
            for k, e in enumerate(edges)
        }

    @torch.no_grad()
    def _grow(self, network: TensorNetwork, slices: dict[Edge, Slices]) -> TensorNetwork:
        """The network with slices of the size that lowers the loss most.

        Where grown edges meet at a feature, the new rank passes through: a feature can then be heard at a
        class leg that is many edges away, which no single growth brings about.
        """
        structure = network.structure
        features = range(structure.order - 1)

        def grow(size: float) -> TensorNetwork:
            scaled = {e: (a * size, b * size) for e, (a, b) in slices.items()}
            return TensorNetwork(*moves.grow_many(structure, network.cores, scaled, passing=features))

        return min(map(grow, (0.003, 0.01, 0.03, 0.1, 0.3)), key=self.total)


def is_affordable(structure: Structure) -> bool:
    """Whether samples and the norm can be contracted in reasonable time."""
    if product_plan(structure).cost > MOST_COST:
        return False
    return inner_plan(structure, structure, False).program.flops <= 2.0**25


@torch.no_grad()
def logits(network: TensorNetwork, features: torch.Tensor) -> torch.Tensor:
    """Values of the classes for many samples, 4,096 at a time."""
    plan = product_plan(network.structure)
    if not len(features):
        return network.cores[0].new_empty(0, network.structure.dims[-1])
    return torch.cat([plan.run(network.cores, part) for part in torch.split(features, 4_096)])
