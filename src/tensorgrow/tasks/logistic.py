"""Multinomial logistic regression with a ridge: a convex model to start others from."""

from __future__ import annotations

import torch

__all__ = ["choose_ridge", "fit_logistic"]

# Ridges that are tried, times the number of samples, the strongest first.
RIDGES = (10.0, 1.0, 0.1, 0.01, 0.001)
FOLDS = 5
# Samples from which on one fold is enough to tell ridges apart.
MANY = 3_000
ITERATIONS = 200
MEMORY = 10


def fit_logistic(
    x: torch.Tensor,
    labels: torch.Tensor,
    num_classes: int,
    ridge: float,
    init: torch.Tensor | None = None,
) -> torch.Tensor:
    r"""Weights ``w`` of shape ``(classes, 1 + p)``, the constants first.

    They minimise the mean cross-entropy of ``w[:, 1:] x + w[:, 0]`` plus `ridge` times the sum of squares.

    Parameters
    ----------
    x
        Samples ``(n, p)``.
    init
        Weights to start from.
    """
    start = x.new_zeros(num_classes, 1 + x.shape[1]) if init is None else init.clone()
    weights = start.requires_grad_()
    optimizer = torch.optim.LBFGS(
        [weights],
        max_iter=ITERATIONS,
        history_size=MEMORY,
        tolerance_grad=1e-6,
        tolerance_change=1e-9,
        line_search_fn="strong_wolfe",
    )

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = _cross_entropy(x, labels, weights) + ridge * (weights**2).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return weights.detach()


def choose_ridge(
    x: torch.Tensor, labels: torch.Tensor, num_classes: int, generator: torch.Generator
) -> float:
    """The ridge, times the number of samples, with the smallest cross-validated cross-entropy."""
    fold = _folds(labels, num_classes, generator)
    totals = [0.0] * len(RIDGES)
    for k in range(FOLDS if len(labels) < MANY else 1):
        test = fold == k
        if not bool(test.any()) or bool(test.all()):
            continue
        weights = None
        for number, ridge in enumerate(RIDGES):
            weights = fit_logistic(x[~test], labels[~test], num_classes, ridge / int((~test).sum()), weights)
            totals[number] += float(_cross_entropy(x[test], labels[test], weights)) * int(test.sum())
    return min(zip(totals, RIDGES))[1]


def _cross_entropy(x: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(x @ weights[:, 1:].T + weights[:, 0], labels)


def _folds(labels: torch.Tensor, num_classes: int, generator: torch.Generator) -> torch.Tensor:
    """Number of the fold of each sample; the classes are spread evenly."""
    order = torch.randperm(len(labels), generator=generator).to(labels.device)
    by_class = order[torch.argsort(labels[order], stable=True)]
    fold = torch.empty_like(labels)
    fold[by_class] = torch.arange(len(labels), device=labels.device) % FOLDS
    return fold
