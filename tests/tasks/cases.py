"""Every verb on small data: what the contract of all tasks is checked on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.results import ErrorKind
from tensorgrow.tasks.classify import classify
from tensorgrow.tasks.regress import regress
from tests.oracles import dense, random_network

SHAPE = (5, 4, 5)
RING = tg.Structure.tensor_ring(SHAPE, 3)
TRAIN = tg.Structure.tensor_train(SHAPE, 2)
RNG = np.random.default_rng(0)
NETWORK = random_network(RING, 1)
X = dense(RING, random_network(RING, 1).cores)
X = X / X.std() + 0.02 * RNG.standard_normal(SHAPE)
MASK = RNG.random(SHAPE) < 0.9
HIDDEN = np.where(MASK, X, np.nan)
SAMPLES = RNG.standard_normal((150, *SHAPE))
RESPONSES = np.tensordot(SAMPLES, X, 3)
POINTS = RNG.uniform(-1, 1, (120, 3))
LABELS = (POINTS[:, 0] * POINTS[:, 1] > 0).astype(int) + (POINTS[:, 2] > 0.3)
ROWS = RNG.integers(0, 2, (300, 4))
ROWS[:, 2], ROWS[:, 3] = ROWS[:, 0] ^ ROWS[:, 1], ROWS[:, 0]


def partitions(x: np.ndarray) -> Any:
    """The known entries of a tensor in two partitions."""
    pandas = pytest.importorskip("pandas")
    frames = pytest.importorskip("dask.dataframe")
    where = np.argwhere(~np.isnan(x))
    columns = {name: where[:, k] for k, name in enumerate("abc")}
    frame = pandas.DataFrame(columns | {"value": x[tuple(where.T)]})
    return tg.distributed.PartitionedObservations.from_frame(
        frames.from_pandas(frame, npartitions=2), shape=x.shape, threads=1
    )


def squared_error(x: np.ndarray) -> Callable[[tg.TensorNetwork], torch.Tensor]:
    target = torch.tensor(x)
    return lambda network: ((network.to_dense() - target) ** 2).mean()


@dataclass(frozen=True)
class Case:
    """A verb with its data.

    Attributes
    ----------
    verb
        Of the data and the keywords.
    data, other
        What it is called with, and data of the same form that is not the same.
    usual
        Keywords of a short run.
    lacks
        Common keywords that the verb does not have.
    """

    verb: Callable[..., tg.Result]
    data: Callable[[], tuple[Any, ...]]
    other: Callable[[], tuple[Any, ...]]
    kind: ErrorKind = "relative"
    usual: Mapping[str, Any] = field(default_factory=dict)
    lacks: frozenset[str] = frozenset()

    def run(self, **keywords: Any) -> tg.Result:
        """A run on the data."""
        return self.verb(*self.data(), **{"random_state": 3, **self.usual, **keywords})

    def run_other(self, **keywords: Any) -> tg.Result:
        """A run on other data."""
        return self.verb(*self.other(), **{"random_state": 3, **self.usual, **keywords})

    @property
    def is_fit(self) -> bool:
        """Whether the whole run is one step."""
        return "max_steps" in self.lacks


GROWTH = {"effort": "fast", "max_steps": 4}
TRAINING = {"training": tg.TrainingOptions(epochs=15), "max_steps": 3}
FIT_LACKS = frozenset({"max_steps", "max_parameters", "edges", "effort", "options"})


def entries_of(x: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return lambda index: x[tuple(index.T)]


def _regress(*data: Any, **keywords: Any) -> tg.Result:
    return regress(*data, **keywords).result


def _classify(*data: Any, **keywords: Any) -> tg.Result:
    return classify(*data, **keywords).result


CASES = {
    "decompose": Case(tg.decompose, lambda: (X,), lambda: (-X,), usual=GROWTH),
    "decompose blocks": Case(
        lambda x, **keywords: tg.decompose(tg.Blocks(x, threads=1), **keywords),
        lambda: (X,),
        lambda: (2.5 * X,),
        usual=GROWTH,
    ),
    "decompose a network": Case(
        tg.decompose, lambda: (NETWORK,), lambda: (-1.0 * NETWORK,), usual={**GROWTH, "effort": "fast"}
    ),
    "complete": Case(tg.complete, lambda: (HIDDEN,), lambda: (-HIDDEN,), usual=GROWTH),
    "complete partitions": Case(
        tg.complete, lambda: (partitions(HIDDEN),), lambda: (partitions(2.5 * HIDDEN),), usual=GROWTH
    ),
    "approximate": Case(
        tg.approximate,
        lambda: (entries_of(X), SHAPE),
        lambda: (entries_of(-X), SHAPE),
        usual={"validation": 10, "max_error": 1e-6},
        lacks=frozenset({"edges"}),
    ),
    "fit": Case(tg.fit, lambda: (X, TRAIN), lambda: (-X, TRAIN), lacks=FIT_LACKS),
    "fit blocks": Case(
        lambda x, structure, **keywords: tg.fit(tg.Blocks(x, threads=1), structure, **keywords),
        lambda: (X, TRAIN),
        lambda: (2.5 * X, TRAIN),
        lacks=FIT_LACKS,
    ),
    "fit a network": Case(tg.fit, lambda: (NETWORK, TRAIN), lambda: (-1.0 * NETWORK, TRAIN), lacks=FIT_LACKS),
    "fit entries": Case(tg.fit, lambda: (HIDDEN, TRAIN), lambda: (-HIDDEN, TRAIN), lacks=FIT_LACKS),
    "learn": Case(
        tg.learn,
        lambda: (squared_error(X), SHAPE),
        lambda: (squared_error(X[:4]), (4, 4, 5)),  # functions cannot be told apart, but shapes can
        kind="loss",
        usual={**TRAINING, "dtype": torch.float64},
    ),
    "learn_density": Case(
        tg.learn_density, lambda: (ROWS,), lambda: (1 - ROWS,), kind="nats", usual=TRAINING
    ),
    "regress": Case(
        _regress,
        lambda: (SAMPLES, RESPONSES),
        lambda: (SAMPLES, -RESPONSES),
        usual={**GROWTH, "max_steps": 3},
    ),
    "classify": Case(
        _classify,
        lambda: (POINTS, LABELS, 3),
        lambda: (-POINTS, LABELS, 3),
        kind="loss",
        usual={
            **TRAINING,
            "options": tg.GreedyOptions.for_learning("fast").replace(patience=5),
            "dtype": torch.float64,
        },
    ),
}
