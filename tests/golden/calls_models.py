"""Runs that learn models: losses, densities, estimators, layers, baselines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import tensorgrow as tg

from .reading import read_compressed, read_grown, read_network, read_numbers, read_result, read_structure
from .registry import SMALL, golden, noisy, planted, seen, simple

# -- learn ---------------------------------------------------------------------------------------------


def _training() -> Any:
    return tg.TrainingOptions(optimizer="adam", learning_rate=0.02, epochs=20, candidate_epochs=3)


def _squared(x: torch.Tensor) -> Callable[[tg.TensorNetwork], torch.Tensor]:
    return lambda network: ((network.to_dense() - x) ** 2).mean()


simple(
    "learn/plain",
    lambda: tg.learn(
        _squared(torch.from_numpy(noisy(SMALL))),
        SMALL.dims,
        max_steps=2,
        effort="fast",
        dtype="float64",
        random_state=0,
    ),
)


def _learn_batches() -> Any:
    x, mask = torch.from_numpy(noisy(SMALL)), seen(SMALL.dims)
    held = torch.from_numpy(np.argwhere(~mask))
    rows = torch.from_numpy(np.argwhere(mask))
    batches = [rows[k::3] for k in range(3)]

    def loss(network: tg.TensorNetwork, where: torch.Tensor) -> torch.Tensor:
        return ((network.entries(where) - x[tuple(where.T)]) ** 2).mean()

    return tg.learn(
        loss,
        SMALL.dims,
        batches=batches,
        validation=lambda network: float(loss(network, held)),
        max_steps=2,
        dtype="float64",
        training=_training(),
        random_state=0,
    )


simple("learn/batches-validation", _learn_batches)
simple(
    "learn/budget-chain",
    lambda: tg.learn(
        _squared(torch.from_numpy(noisy(SMALL)).float()),
        SMALL.dims,
        max_parameters=40,
        edges="chain",
        training=_training(),
        random_state=0,
    ),
)


@golden("learn/checkpoint")
def _learn_checkpoint(folder: Path) -> dict[str, Any]:
    def run(steps: int) -> Any:
        return tg.learn(
            _squared(torch.from_numpy(noisy(SMALL))),
            SMALL.dims,
            max_steps=steps,
            dtype="float64",
            training=_training(),
            random_state=0,
            checkpoint=folder / "run.ckpt",
        )

    return {"first": read_result(run(1)), "second": read_result(run(2))}


# -- densities -----------------------------------------------------------------------------------------


def _samples() -> np.ndarray:
    rng = np.random.default_rng(4)
    a = rng.integers(0, 3, 200)
    b = np.where(rng.random(200) < 0.8, a, rng.integers(0, 3, 200))
    c = np.where(rng.random(200) < 0.7, (a + b) % 2, rng.integers(0, 2, 200))
    return np.stack([a, b, c, rng.integers(0, 2, 200)], 1)


for _kind in ("born", "nonnegative"):

    @golden(f"density/{_kind}")
    def _density(folder: Path, kind: str = _kind) -> dict[str, Any]:
        result = tg.learn_density(_samples(), kind=kind, max_steps=2, effort="fast", random_state=0)
        result.save(folder / "run.safetensors")
        result.model.save(folder / "model.safetensors")
        loaded: Any = tg.load(folder / "run.safetensors")
        model: Any = tg.load(folder / "model.safetensors")
        return {
            **read_result(result),
            "nll": [result.train_nll, result.validation_nll],
            "log_partition": result.model.log_partition(),
            "marginal": read_numbers(result.model.marginal((0, 1))),
            "conditional": read_numbers(result.model.conditional({0: 1}, 1)),
            "sample": read_numbers(result.model.sample(4, random_state=0)),
            "loaded": [type(loaded).__name__, type(model).__name__, model.nll(_samples())],
        }


simple(
    "density/weights-no-validation",
    lambda: tg.learn_density(
        _samples(),
        weights=np.linspace(0.5, 1.5, 200),
        validation=False,
        max_steps=1,
        edges="chain",
        training=_training(),
        random_state=0,
    ),
)


# -- estimators ----------------------------------------------------------------------------------------


def _regression(responses: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(6)
    x = rng.standard_normal((150, 4, 5))
    w = rng.standard_normal((4, 2)) @ rng.standard_normal((2, 5 * responses))
    y = np.einsum("nij,ijq->nq", x, w.reshape(4, 5, responses)) + 1.0
    y = y + 0.1 * rng.standard_normal(y.shape)
    return x, y[:, 0] if responses == 1 else y


def _fitted(model: Any, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    model.fit(x, y)
    return {
        **read_result(model.result_),
        "structure_": read_structure(model.structure_),
        "score": float(model.score(x, y)),
        "predicted": [v.item() for v in np.ravel(model.predict(x[:3]))],
    }


@golden("estimators/regressor")
def _regressor(folder: Path) -> dict[str, Any]:
    return _fitted(tg.TNRegressor(random_state=0), *_regression())


@golden("estimators/regressor-many-responses")
def _regressor_many(folder: Path) -> dict[str, Any]:
    x, y = _regression(2)
    model = tg.TNRegressor(random_state=0, dims=(4, 5), effort="fast", max_parameters=40)
    return _fitted(model, x.reshape(150, 20), y)


@golden("estimators/regressor-structure")
def _regressor_structure(folder: Path) -> dict[str, Any]:
    model = tg.TNRegressor(random_state=0, structure=tg.Structure((4, 5), {(0, 1): 2}), ridge=1e-3)
    return _fitted(model, *_regression())


def _classes() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(8).uniform(-1, 1, (160, 3))
    return x, np.where(x[:, 0] * x[:, 1] > 0, "same", "opposite")


@golden("estimators/classifier")
def _classifier(folder: Path) -> dict[str, Any]:
    x, y = _classes()
    model = tg.TNClassifier(random_state=0, effort="fast", max_steps=2)
    found = _fitted(model, x, y)
    return {**found, "probabilities": read_numbers(model.predict_proba(x[:3]))}


@golden("estimators/classifier-structure")
def _classifier_structure(folder: Path) -> dict[str, Any]:
    x, y = _classes()
    shape = tg.Structure((2, 2, 2, 2), {(0, 1): 2, (1, 3): 2, (2, 3): 2})
    model = tg.TNClassifier(random_state=0, structure=shape, feature_map="cosine", training=_training())
    return _fitted(model, x, y)


# -- layers --------------------------------------------------------------------------------------------


def _layers() -> nn.Module:
    first = tg.nn.TNLinear(16, 16, in_dims=(4, 4), out_dims=(4, 4), random_state=0)
    last = tg.nn.TNLinear(16, 4, in_dims=(4, 4), out_dims=(2, 2), paired=False, random_state=1)
    return nn.Sequential(first, nn.ReLU(), last)


def _vectors(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 16)).astype(np.float32)
    labels = 2 * (x[:, 0] * x[:, 5] > 0) + (x[:, 1] + x[:, 2] > 0)
    return torch.from_numpy(x), torch.from_numpy(labels.astype(np.int64))


def _grow(**options: Any) -> Any:
    training = tg.TrainingOptions(optimizer="adam", learning_rate=0.01, epochs=8, candidate_epochs=1)
    settings: dict[str, Any] = {"training": training, "max_steps": 2, "batch_size": 64, "random_state": 0}
    return tg.nn.grow(_layers(), _vectors(192, 0), _vectors(96, 1), **(settings | options))


def _accuracy(model: nn.Module) -> float:
    x, y = _vectors(200, 2)
    with torch.no_grad():
        return float((model(x).argmax(1) == y).double().mean())


@golden("nn/grow")
def _nn_grow(folder: Path) -> dict[str, Any]:
    result = _grow()
    result.save(folder / "model.safetensors")
    loaded = tg.nn.GrowResult.load(folder / "model.safetensors", _layers())
    return {**read_grown(result), "accuracy": _accuracy(result.model), "loaded": read_grown(loaded)}


@golden("nn/grow-score-layers-final")
def _nn_grow_score(folder: Path) -> dict[str, Any]:
    result = _grow(
        score="accuracy", layers=["0"], edge_score="per_parameter", final_epochs=2, max_steps=1, edges="chain"
    )
    return {**read_grown(result), "accuracy": _accuracy(result.model)}


@golden("nn/grow-checkpoint")
def _nn_grow_checkpoint(folder: Path) -> dict[str, Any]:
    first = _grow(checkpoint=folder / "run.ckpt", max_steps=1, layers=["0"])
    second = _grow(checkpoint=folder / "run.ckpt", max_steps=2, layers=["0"])
    return {"first": read_grown(first), "second": read_grown(second)}


def _trained() -> nn.Module:
    rng = np.random.default_rng(9)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 5))
    with torch.no_grad():
        for layer in model[::2]:
            rows, columns = layer.weight.shape
            weight = rng.standard_normal((rows, 6)) @ rng.standard_normal((6, columns))
            weight += 0.2 * rng.standard_normal((rows, columns))
            layer.weight.copy_(torch.from_numpy(weight / np.linalg.norm(weight) * 6))
            layer.bias.copy_(torch.from_numpy(0.1 * rng.standard_normal(rows)))
        pairs = [np.kron(rng.standard_normal((8, 8)), rng.standard_normal((8, 8))) for _ in range(2)]
        model[0].weight.copy_(torch.from_numpy(sum(pairs) / 16 + 0.01 * rng.standard_normal((64, 64))))
    return model


COMPRESS: dict[str, Any] = {
    "min_size": 1000,
    "measure": False,
    "effort": "fast",
    "allow_slower": True,
    "dims": {"0": ((8, 8), (8, 8)), "2": ((64,), (8, 6))},
    "paired": False,
    "random_state": 0,
}


def _outputs(model: nn.Module) -> list[float]:
    rows = torch.from_numpy(np.random.default_rng(1).standard_normal((2, 64)).astype(np.float32))
    return read_numbers(model(rows))


@golden("nn/compress")
def _nn_compress(folder: Path) -> dict[str, Any]:
    model = _trained()
    result = tg.nn.compress(model, max_error=0.2, **COMPRESS)
    result.save(folder / "model.safetensors")
    loaded = tg.nn.load_compressed(folder / "model.safetensors", model)
    return {**read_compressed(result), "outputs": _outputs(result.model), "loaded": _outputs(loaded.model)}


@golden("nn/compress-calibration")
def _nn_compress_calibration(folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    rows = (rng.standard_normal((120, 64)) * np.linspace(0.1, 2, 64)).astype(np.float32)
    result = tg.nn.compress(_trained(), max_ratio=0.4, calibration=torch.from_numpy(rows), **COMPRESS)
    return {**read_compressed(result), "outputs": _outputs(result.model)}


@golden("nn/compress-budget-checkpoint")
def _nn_compress_budget(folder: Path) -> dict[str, Any]:
    runs = [
        tg.nn.compress(_trained(), max_parameters=3000, checkpoint=folder / "run.ckpt", **COMPRESS)
        for _ in "ab"
    ]
    return {"first": read_compressed(runs[0]), "second": read_compressed(runs[1])}


@golden("nn/from-linear")
def _nn_from_linear(folder: Path) -> dict[str, Any]:
    linear = _trained()[0]
    structure = tg.Structure.tensor_train((16, 16, 16), 4)
    layer = tg.nn.TNLinear.from_linear(
        linear, in_dims=(4, 4, 4), out_dims=(4, 4, 4), structure=structure, random_state=0
    )
    found = {"layer": read_network(layer.network), "outputs": _outputs(layer), "size": layer.num_parameters}
    layer.grow_edge(0, 2, noise=0.1, random_state=0)
    return {**found, "grown": read_network(layer.network), "dense": read_numbers(layer.to_linear().weight[0])}


# -- baselines -----------------------------------------------------------------------------------------

BASELINES: dict[str, dict[str, Any]] = {
    "cp": {"max_error": 0.2},
    "tucker": {"max_error": 0.2},
    "tt": {"max_error": 0.2},
    "tt_svd": {"max_error": 0.2, "order": "best"},
    "hosvd": {"max_error": 0.2},
    "greedy": {"max_error": 0.2},
    "random_walk": {"max_error": 0.2, "max_evaluations": 8},
    "genetic": {"rank": 2, "population": 6, "generations": 2, "max_evaluations": 10},
    "tnls": {"max_rank": 2, "samples": 4, "iterations": 2},
    "tnale": {"max_rank": 2, "rounds": 1},
    "svd_ins_tn": {"max_rank": 2, "sparsity": 1e-2, "iterations": 20},
}
RIVALS = tg.Structure.tensor_ring((4, 4, 3, 3), 2)

for _name in BASELINES:
    simple(
        f"baselines/{_name}",
        lambda name=_name: tg.baselines.run(name, noisy(RIVALS, 0.02), random_state=0, **BASELINES[name]),
    )
COMPLETIONS: dict[str, dict[str, Any]] = {
    "cp": {"rank": 2},
    "tucker": {"rank": 2},
    "tt_als": {"ranks": (1, 2)},
    "tr_als": {"ranks": (1, 2)},
}
for _name in COMPLETIONS:
    simple(
        f"baselines/complete-{_name}",
        lambda name=_name: tg.baselines.run(
            name,
            noisy(SMALL),
            seen(SMALL.dims, 0.8),
            truth=planted(SMALL),
            random_state=0,
            **COMPLETIONS[name],
        ),
    )


@golden("baselines/names")
def _baseline_names(folder: Path) -> dict[str, Any]:
    return {
        "decomposition": sorted(tg.baselines.DECOMPOSITION),
        "completion": sorted(tg.baselines.COMPLETION),
    }
