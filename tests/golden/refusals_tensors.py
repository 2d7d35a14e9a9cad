"""Bad input to every task: what is raised, and what it says."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tensorgrow as tg

from .registry import seen, start

__all__ = ["REFUSALS"]

REFUSALS: dict[str, Callable[[Path], dict[str, Any]]] = {}

SHAPE = (4, 5, 6)
X = np.random.default_rng(0).standard_normal(SHAPE)
MASK = seen(SHAPE, 0.8)
ONE = tg.Structure.rank_one(SHAPE)
NAN, INF = math.nan, math.inf


def refuse(name: str, run: Callable[[Path], Any]) -> None:
    """Add a call that must be refused; that it is not is recorded too."""

    def call(folder: Path) -> dict[str, Any]:
        found = run(folder)
        return found if isinstance(found, dict) else {}

    if f"bad/{name}" in REFUSALS:
        raise ValueError(f"the name {name} is taken")
    REFUSALS[f"bad/{name}"] = call


def _table(task: str, function: Callable[..., Any], cases: dict[str, dict[str, Any]]) -> None:
    for name, options in cases.items():
        refuse(f"{task}/{name}", lambda _, options=options: function(**options))


def _with(where: tuple[int, ...], value: complex, dtype: Any = np.float64) -> np.ndarray:
    x = X.astype(dtype)
    x[where] = value
    return x


# -- decompose -----------------------------------------------------------------------------------------


def decompose(x: Any = X, **options: Any) -> Any:
    """`tg.decompose` of a small tensor, with an error to reach."""
    return tg.decompose(x, **({"max_error": 0.5, "random_state": 0} | options))


_table(
    "decompose",
    decompose,
    {
        "nan": {"x": _with((1, 2, 3), NAN)},
        "infinite": {"x": _with((0, 1, 5), INF, np.float32)},
        "complex-nan": {"x": _with((0, 1, 0), complex(0, NAN), complex)},
        "empty": {"x": np.zeros((3, 0, 4))},
        "number": {"x": 3.0},
        "none": {"x": None},
        "objects": {"x": np.array([[1, None], [2, 3]])},
        "text": {"x": "hello"},
        "dates": {"x": np.zeros((2, 2), "datetime64[s]")},
        "ragged": {"x": [[1, 2], [3]]},
        "masked": {"x": np.ma.masked_array(X, X > 1)},
        "meta": {"x": torch.empty(3, 4, device="meta")},
        "sparse": {"x": torch.eye(4).to_sparse()},
        "nothing-to-stop": {"max_error": None},
        "negative-error": {"max_error": -0.1},
        "nan-error": {"max_error": NAN},
        "text-error": {"max_error": "0.1"},
        "bool-error": {"max_error": True},
        "no-budget": {"max_parameters": 0},
        "broken-budget": {"max_parameters": 20.5},
        "below-rank-one": {"max_parameters": 14},
        "below-init": {"max_parameters": 20, "init": start(tg.Structure(SHAPE, {(0, 1): 2}))},
        "negative-steps": {"max_steps": -1},
        "negative-time": {"max_seconds": -2},
        "effort": {"effort": "heroic"},
        "edges-unknown": {"edges": "star"},
        "edges-none": {"edges": None},
        "edges-empty": {"edges": []},
        "edges-of-three": {"edges": [(0, 1, 2)]},
        "edges-outside": {"edges": [(0, 3)]},
        "edges-loop": {"edges": [(1, 1)]},
        "device": {"device": "tpu"},
        "dtype-unknown": {"dtype": "float12"},
        "dtype-whole": {"dtype": "int32"},
        "dtype-drops-a-part": {"x": X + 1j, "dtype": "float64"},
        "memory-negative": {"memory_limit": -1},
        "memory-text": {"memory_limit": "1GB"},
        "memory-too-small": {"memory_limit": 1000},
        "init-no-network": {"init": [1, 2]},
        "init-other-shape": {"init": start(tg.Structure.rank_one((4, 6, 5)))},
        "init-nan": {"init": tg.TensorNetwork(ONE, [c * NAN for c in start(ONE).cores])},
        "callback": {"callbacks": 5},
        "options-dict": {"options": {"sweeps": 3}},
        "random-state": {"random_state": "abc"},
        "unknown-keyword": {"bogus": 1},
        "checkpoint-nowhere": {"checkpoint": "no/such/file"},
    },
)


def _foreign(folder: Path) -> Any:
    (folder / "run.ckpt").write_bytes(b"not a checkpoint")
    return decompose(checkpoint=folder / "run.ckpt")


def _network_as_checkpoint(folder: Path) -> Any:
    start(ONE).save(folder / "net.safetensors")
    return decompose(checkpoint=folder / "net.safetensors")


def _cut(folder: Path) -> Any:
    file = folder / "run.ckpt"
    decompose(checkpoint=file)
    file.write_bytes(file.read_bytes()[:-1])
    return decompose(checkpoint=file)


def _other_run(**change: Any) -> Callable[[Path], Any]:
    def run(folder: Path) -> Any:
        decompose(checkpoint=folder / "run.ckpt")
        return decompose(**({"checkpoint": folder / "run.ckpt"} | change))

    return run


refuse("checkpoint/foreign", _foreign)
refuse("checkpoint/network", _network_as_checkpoint)
refuse("checkpoint/cut", _cut)
refuse("checkpoint/other-data", _other_run(x=-X))
refuse("checkpoint/other-error", _other_run(max_error=0.4))
refuse("checkpoint/other-edges", _other_run(edges="chain"))
refuse("checkpoint/other-effort", _other_run(effort="fast"))
refuse("load/missing", lambda folder: tg.load(folder / "nothing.safetensors"))
refuse("load/folder", lambda folder: tg.load(folder))
refuse("result/at-nothing", lambda _: decompose().at())
refuse("result/at-impossible", lambda _: decompose(effort="fast").at(max_parameters=2))
refuse("result/fill-shape", lambda _: decompose(effort="fast").fill(np.zeros((2, 2))))
refuse("options/edge-score", lambda _: tg.GreedyOptions(edge_score="best"))
refuse("options/sweeps", lambda _: tg.GreedyOptions(sweeps=0))
refuse("options/starts", lambda _: tg.GreedyOptions(starts=1.5))
refuse("options/training", lambda _: tg.TrainingOptions(epochs=-1))
refuse("options/optimizer", lambda _: tg.TrainingOptions(optimizer="newton"))


# -- structures and networks ---------------------------------------------------------------------------

refuse("structure/empty", lambda _: tg.Structure(()))
refuse("structure/rank-zero", lambda _: tg.Structure((2, 3), {(0, 1): 0}))
refuse("structure/loop", lambda _: tg.Structure((2, 3), {(1, 1): 2}))
refuse("structure/nodes", lambda _: tg.Structure((2, 3), {(0, 5): 2}, num_nodes=3))
refuse("structure/ring-of-two", lambda _: tg.Structure.tensor_ring((2, 3), 2))
refuse("structure/too-many-ranks", lambda _: tg.Structure.tensor_train((2, 3, 4), (2, 3, 4)))
refuse("structure/no-dict", lambda _: tg.Structure.from_dict({"dims": [2]}))
refuse("network/core-shape", lambda _: tg.TensorNetwork(ONE, [torch.ones(3), torch.ones(5), torch.ones(6)]))
refuse("network/core-count", lambda _: tg.TensorNetwork(ONE, [torch.ones(4)]))
refuse("network/entries", lambda _: start(ONE).entries([[0, 0, 9]]))
refuse("tensorize/shape", lambda _: tg.tensorize(X, (3, 3)))


# -- fit -----------------------------------------------------------------------------------------------


def fit(x: Any = X, structure: Any = ONE, **options: Any) -> Any:
    """`tg.fit` of a small tensor."""
    return tg.fit(x, structure, **({"random_state": 0} | options))


_table(
    "fit",
    fit,
    {
        "no-structure": {"structure": "tt"},
        "other-shape": {"structure": tg.Structure.rank_one((4, 5))},
        "no-sweeps": {"max_sweeps": 0},
        "tolerance": {"tolerance": -1},
        "error": {"max_error": -1},
        "init-structure": {"init": start(tg.Structure(SHAPE, {(0, 1): 2}))},
        "memory": {"memory_limit": 100},
        "ridge-without-mask": {"ridge": 1.0},
        "weights-without-mask": {"weights": np.ones(SHAPE)},
        "ridge": {"mask": MASK, "ridge": -1.0},
        "mask-shape": {"mask": np.ones((5, 6), bool)},
        "validation": {"mask": MASK, "validation": 2.0},
        "truth-shape": {"mask": MASK, "truth": np.ones((5, 6))},
    },
)


# -- complete ------------------------------------------------------------------------------------------


def complete(x: Any = X, mask: Any = MASK, **options: Any) -> Any:
    """`tg.complete` of a small tensor."""
    return tg.complete(x, mask, **({"random_state": 0, "effort": "fast", "max_steps": 1} | options))


_table(
    "complete",
    complete,
    {
        "mask-shape": {"mask": np.ones((2, 2), bool)},
        "mask-empty": {"mask": np.zeros(SHAPE, bool)},
        "mask-text": {"mask": np.full(SHAPE, "a")},
        "nan-observed": {"x": _with((0, 0, 0), NAN), "mask": np.ones(SHAPE, bool)},
        "all-nan": {"x": np.full(SHAPE, NAN), "mask": None},
        "loss-unknown": {"loss": "cubic"},
        "poisson-negative": {"loss": "poisson"},
        "logistic-values": {"loss": "logistic"},
        "weights-shape": {"weights": np.ones((2, 2))},
        "weights-negative": {"weights": -np.ones(SHAPE)},
        "validation-share": {"validation": 1.5},
        "validation-all": {"validation": MASK},
        "validation-shape": {"validation": np.ones((2, 2), bool)},
        "validation-off-no-limit": {"validation": False, "max_steps": None},
        "truth-shape": {"truth": np.zeros((5, 6))},
        "truth-nothing-to-test": {"truth": np.where(MASK, 1.0, NAN)},
        "options-dict": {"options": {"ridge": 1.0}},
        "effort": {"effort": "heroic"},
        "memory": {"memory_limit": 1000},
        "budget": {"max_parameters": 3},
        "init": {"init": [1]},
        "path-nowhere": {"x": "no/such/folder", "mask": None},
        "mask-of-listed": {"x": tg.Observations([[0, 0], [1, 1]], [1.0, 2.0]), "mask": np.ones((2, 2), bool)},
    },
)
refuse("observations/length", lambda _: tg.Observations([[0, 0], [1, 2]], [1.0]))
refuse("observations/outside", lambda _: tg.Observations([[0, 5]], [1.0], (2, 3)))
refuse("observations/negative", lambda _: tg.Observations([[0, -1]], [1.0]))
refuse("observations/broken", lambda _: tg.Observations([[0, 0.5]], [1.0]))
refuse("observations/nan", lambda _: tg.complete(tg.Observations([[0, 0], [1, 1]], [1.0, NAN]), max_steps=1))
refuse("observations/weights", lambda _: tg.Observations([[0, 0]], [1.0], weights=[-1.0]))


# -- blocks and partitions -----------------------------------------------------------------------------


def _dask_frame(**columns: Any) -> Any:
    import dask.dataframe
    import pandas

    where = np.argwhere(MASK)
    frame = pandas.DataFrame({**{n: where[:, k] for k, n in enumerate("abc")}, **columns, "value": X[MASK]})
    return dask.dataframe.from_pandas(frame, npartitions=2)


def _partitions(**options: Any) -> Any:
    return tg.distributed.PartitionedObservations.from_frame(_dask_frame(), **options)


def _broken_zarr(folder: Path) -> Any:
    import zarr

    array = zarr.open(str(folder / "x.zarr"), mode="w", shape=(8, 8, 8), chunks=(4, 4, 4), dtype="f8")
    array[...] = 1.0
    array[5, 5, 5] = NAN
    return tg.decompose(array, max_error=0.1, memory_limit=15_000, random_state=0)


refuse("blocks/nan", _broken_zarr)
refuse("partitions/value", lambda _: complete(_partitions(value="e"), None))
refuse("partitions/shape", lambda _: complete(_partitions(shape=(9, 8)), None))
refuse("partitions/outside", lambda _: complete(_partitions(shape=(3, 5, 6)), None))
refuse("partitions/threads", lambda _: _partitions(threads=0))
refuse("partitions/mask", lambda _: complete(_dask_frame()))
refuse("partitions/weights", lambda _: complete(_dask_frame(), None, weights=np.ones(3)))
refuse("partitions/loss", lambda _: complete(_dask_frame(), None, loss="poisson"))
refuse("partitions/held-out-none", lambda _: complete(_dask_frame(h=False), None, validation="h"))
refuse("partitions/no-dask-frame", lambda _: tg.distributed.PartitionedObservations.from_frame(X))
refuse(
    "partitions/no-files",
    lambda folder: tg.distributed.PartitionedObservations.from_parquet(folder / "nothing"),
)
refuse("map-runs/map", lambda _: tg.distributed.map_runs(pow, [{"base": 2, "exp": 3}], map="many"))
