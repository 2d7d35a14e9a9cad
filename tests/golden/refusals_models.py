"""Bad input of models, layers, baselines and commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import tensorgrow as tg

from .calls_cli import cli
from .refusals_tensors import INF, MASK, NAN, ONE, X, _table, refuse
from .registry import start

# -- learn, densities, estimators ----------------------------------------------------------------------


def learn(**options: Any) -> Any:
    """`tg.learn` of a loss without meaning."""
    given: dict[str, Any] = {"loss": lambda n, *b: n.to_dense().sum() ** 2, "dims": (2, 2), "max_steps": 1}
    given |= {"random_state": 0, **options}
    return tg.learn(given.pop("loss"), given.pop("dims"), **given)


_table(
    "learn",
    learn,
    {
        "loss": {"loss": 3},
        "dims": {"dims": (3, 0)},
        "validation": {"validation": 0.1},
        "nothing-to-stop": {"max_steps": None},
        "training": {"training": {"epochs": 3}},
        "options": {"options": 1},
        "loss-of-many-numbers": {"loss": lambda n: n.to_dense()},
        "loss-without-gradient": {"loss": lambda n: torch.ones(())},
        "score": {"validation": lambda n: None},
        "batches-empty": {"batches": []},
        "batches": {"batches": 5},
        "init": {"init": start(ONE)},
    },
)
SAMPLES = np.random.default_rng(0).integers(0, 2, (30, 3))


def density(samples: Any = SAMPLES, **options: Any) -> Any:
    """`tg.learn_density` of a few bits."""
    return tg.learn_density(samples, **({"validation": False, "max_steps": 1, "random_state": 0} | options))


_table(
    "density",
    density,
    {
        "negative": {"samples": [[0, -1], [1, 0]]},
        "broken": {"samples": [[0.0, 0.5], [1, 0]]},
        "text": {"samples": [["a", "b"], ["c", "d"]]},
        "one-axis": {"samples": [0, 1, 1]},
        "one-sample": {"samples": [[0, 1]]},
        "dims": {"dims": (2, 2)},
        "dims-too-small": {"dims": (2, 2, 1)},
        "kind": {"kind": "cubed"},
        "validation": {"validation": 1.5},
        "weights": {"weights": [1.0]},
        "nothing-to-stop": {"max_steps": None},
        "complex": {"kind": "nonnegative", "dtype": "complex128"},
    },
)
SIDES = np.random.default_rng(1).uniform(-1, 1, (60, 2))
LABELS = np.where(SIDES[:, 0] * SIDES[:, 1] > 0, 1, 0)


def _classify(x: Any = SIDES, y: Any = LABELS, **options: Any) -> Any:
    return tg.TNClassifier(**({"random_state": 0, "effort": "fast", "max_steps": 0} | options)).fit(x, y)


def _regress(x: Any = SIDES, y: Any = SIDES[:, 0], **options: Any) -> Any:
    return tg.TNRegressor(**({"random_state": 0, "max_steps": 0} | options)).fit(x, y)


_table(
    "classifier",
    _classify,
    {
        "one-class": {"y": np.zeros(60)},
        "continuous": {"y": SIDES[:, 0]},
        "feature-map": {"feature_map": "sine"},
        "map-size": {"feature_map": "linear", "map_size": 3},
        "structure": {"structure": tg.Structure((2, 2), {})},
        "validation": {"validation": 1.5},
        "edges": {"edges": "star"},
        "dtype": {"dtype": "complex64"},
        "training": {"training": {"epochs": 3}},
    },
)
_table(
    "regressor",
    _regress,
    {
        "nan": {"x": np.where(SIDES > 0.5, NAN, SIDES)},
        "lengths": {"y": np.ones(3)},
        "dims": {"dims": (3, 3)},
        "edges": {"edges": "star"},
        "dtype": {"dtype": "complex64"},
        "structure": {"structure": tg.Structure((3,), {})},
        "random-state": {"random_state": "a"},
    },
)
refuse("regressor/other-features", lambda _: _regress().predict(np.ones((3, 3))))
refuse("regressor/not-fitted", lambda _: tg.TNRegressor().predict(SIDES))


# -- layers --------------------------------------------------------------------------------------------


def _model() -> nn.Module:
    return nn.Sequential(tg.nn.TNLinear(16, 16, in_dims=(4, 4), out_dims=(4, 4), random_state=0))


def _grow(model: Any = None, rows: Any = None, **options: Any) -> Any:
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((40, 16)).astype(np.float32))
    given = (x, x) if rows is None else rows
    training = tg.TrainingOptions(optimizer="adam", epochs=1, candidate_epochs=1)
    settings = {"loss": nn.functional.mse_loss, "training": training, "max_steps": 1, "random_state": 0}
    return tg.nn.grow(_model() if model is None else model, given, (x, x), **(settings | options))


def _compress(**options: Any) -> Any:
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    return tg.nn.compress(model, **({"min_size": 16, "measure": False, "effort": "fast"} | options))


_table(
    "grow",
    _grow,
    {
        "no-layer": {"model": nn.Linear(16, 16)},
        "layers": {"layers": ["1"]},
        "rows": {"rows": (torch.ones(5, 16), torch.ones(4, 16))},
        "not-finite": {"rows": (torch.full((5, 16), INF), torch.ones(5, 16))},
        "score": {"score": "best"},
        "patience": {"patience": 0},
        "budget": {"max_parameters": 3},
        "loss": {"loss": "mse"},
        "training": {"training": {"epochs": 3}},
        "noise": {"noise": 0},
        "final-epochs": {"final_epochs": -1},
    },
)
_table(
    "compress",
    _compress,
    {
        "nothing-to-stop": {},
        "layers": {"max_error": 0.1, "layers": ["9"]},
        "no-layer": {"max_error": 0.1, "min_size": 10**6},
        "ratio": {"max_ratio": 2.0},
        "budget": {"max_parameters": 10},
        "dims": {"max_error": 0.1, "dims": {"nine": ((4, 4), (4, 4))}},
        "calibration": {"max_error": 0.1, "calibration": torch.ones(5, 3)},
        "effort": {"max_error": 0.1, "effort": "huge"},
    },
)
refuse("layer/digits", lambda _: tg.nn.TNLinear(16, 16, in_dims=(3, 5), out_dims=(4, 4)))
refuse("layer/structure", lambda _: tg.nn.TNLinear(16, 16, structure=tg.Structure.rank_one((4, 4))))
refuse("layer/input", lambda _: _model()(torch.ones(2, 15)))


# -- baselines -----------------------------------------------------------------------------------------

refuse("baselines/name", lambda _: tg.baselines.run("best", X))
refuse("baselines/completion-name", lambda _: tg.baselines.run("best", X, MASK))
refuse("baselines/nothing-to-stop", lambda _: tg.baselines.tt_svd(X))
refuse("baselines/order", lambda _: tg.baselines.tt_svd(X, max_error=0.1, order=(0, 0, 1)))
refuse("baselines/sparsity", lambda _: tg.baselines.svd_ins_tn(X, sparsity=-1.0))
refuse("baselines/start", lambda _: tg.baselines.tt_als(X, MASK, start="warm"))
refuse("baselines/unknown", lambda _: tg.baselines.tt_als(X, MASK, bogus=1))
refuse("baselines/fit-options", lambda _: tg.baselines.tnls(X, fit="newton"))


# -- command line --------------------------------------------------------------------------------------


def _files(folder: Path) -> None:
    np.save(folder / "x.npy", X)
    np.savez(folder / "two.npz", a=np.ones((3, 3)), b=np.ones((4, 4)))
    np.save(folder / "nan.npy", np.where(X < 0, NAN, X))
    np.save(folder / "words.npy", np.array(["a", "b"]))
    np.save(folder / "mask.npy", np.ones((3, 3), bool))
    (folder / "text.npy").write_text("these are words\n")
    (folder / "notes.txt").write_text("these are words\n")
    (folder / "folder.npy").mkdir()
    tg.TensorNetwork(tg.Structure.rank_one((3, 3)), [torch.ones(3), torch.ones(3)]).save(
        folder / "network.safetensors"
    )
    data = (folder / "network.safetensors").read_bytes()
    (folder / "cut.safetensors").write_bytes(data[:-20])


LINES = (
    "decompose missing.npy",
    "decompose two.npz",
    "decompose two.npz --key c",
    "decompose notes.txt",
    "decompose text.npy",
    "decompose folder.npy",
    "decompose nan.npy",
    "decompose words.npy",
    "decompose x.npy -t 3x3",
    "decompose x.npy -t big",
    "decompose x.npy --device tpu",
    "decompose x.npy --edges star",
    "decompose x.npy --max-error -1",
    "decompose x.npy --max-error much",
    "decompose x.npy --max-parameters 2",
    "decompose x.npy --effort huge",
    "decompose x.npy -o nowhere/x.safetensors",
    "decompose x.npy -o x.doc",
    "decompose x.npy --report x.pdf",
    "decompose x.npy -e 0.1 --checkpoint network.safetensors",
    "decompose",
    "decompose x.npy --bogus",
    "complete x.npy",
    "complete x.npy --observed 3",
    "complete x.npy --mask mask.npy",
    "complete nan.npy --loss cubic",
    "fit x.npy -s train",
    "fit x.npy -s star --rank 2",
    "fit x.npy -s network.safetensors",
    "fit x.npy",
    "reconstruct cut.safetensors -o x.npy",
    "reconstruct network.safetensors -o y.npy -e 0.1",
    "show missing.safetensors",
    "show cut.safetensors",
    "report network.safetensors",
    "compare x.npy -e 7",
    "reproduce nothing",
    "grow x.npy",
)


def _line(line: str) -> Callable[[Path], dict[str, Any]]:
    def run(folder: Path) -> dict[str, Any]:
        _files(folder)
        before = sorted(p.name for p in folder.iterdir())
        code, out, err = cli(*line.split())
        written = [p.name for p in folder.iterdir() if p.name not in before]
        return {"exit_code": code, "output": out, "message": err, "written": sorted(written)}

    return run


for _text in LINES:
    refuse(f"cli/{_text}", _line(_text))
