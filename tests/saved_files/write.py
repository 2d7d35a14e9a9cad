"""Write a small file of every kind, and what is in it: ``python tests/saved_files/write.py FOLDER``.

Run it once for every version of the file format, with the code that has that version, and keep the folder:
later versions must read it.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tensorgrow as tg


def coarse(x: torch.Tensor) -> torch.Tensor:
    """Few binary digits: the same numbers on every machine, whatever its last digits are."""
    return (x * 64).round() / 64


def ring(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    structure = tg.Structure.tensor_ring((3, 4, 3), 2)
    return coarse(tg.TensorNetwork.random(structure, random_state=0, dtype=dtype).to_dense())


def layer() -> torch.nn.Module:
    made = tg.nn.TNLinear(8, 8, in_dims=(2, 4), out_dims=(4, 2), paired=False, random_state=0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(coarse(parameter))
    return made


def dense_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


def decomposition(**more: Any) -> Any:
    return tg.decompose(ring(), max_error=1e-6, max_steps=3, effort="fast", random_state=0, **more)


def completion(**more: Any) -> Any:
    rng = np.random.default_rng(0)
    x = np.abs(ring().numpy()).round() if "loss" in more else ring().numpy()
    return tg.complete(x, rng.random(x.shape) < 0.9, max_steps=2, effort="fast", random_state=0, **more)


def learned() -> Any:
    target = ring()
    training = tg.TrainingOptions(epochs=20)
    return tg.learn(
        lambda network: (network.to_dense() - target).square().mean(),
        target.shape,
        max_steps=1,
        training=training,
        random_state=0,
    )


def density() -> Any:
    samples = np.random.default_rng(0).integers(0, 3, (60, 3))
    return tg.learn_density(samples, max_steps=1, effort="fast", random_state=0)


def grown(**more: Any) -> Any:
    x, y = coarse(torch.randn(2, 60, 8, generator=torch.Generator().manual_seed(0)))
    return tg.nn.grow(
        torch.nn.Sequential(layer()),
        (x[:40], y[:40]),
        (x[40:], y[40:]),
        loss=torch.nn.functional.mse_loss,
        training=tg.TrainingOptions(optimizer="adam", epochs=2, candidate_epochs=1),
        max_steps=1,
        random_state=0,
        **more,
    )


def compressed(**more: Any) -> Any:
    return tg.nn.compress(dense_model(), max_ratio=0.7, min_size=1, random_state=0, measure=False, **more)


def outputs(model: torch.nn.Module, width: int) -> list[float]:
    with torch.no_grad():
        return [float(v) for v in model(torch.linspace(-1, 1, width)[None]).reshape(-1)]


def describe(thing: Any) -> dict[str, Any]:
    """Some numbers that tell whether it came back as it was; the same for all versions."""
    kind = type(thing).__name__
    facts: dict[str, Any] = {"type": kind}
    if kind == "GrowResult":
        return facts | {"steps": len(thing.history), "outputs": outputs(thing.model, 8)}
    if kind == "CompressResult":
        return facts | {"outputs": outputs(thing.model, 16)}
    if kind in ("Result", "DensityResult"):
        facts |= {"stop": thing.stop.name, "steps": [s.kind for s in thing.history]}
    if kind == "Result":
        facts["path"] = [p.num_parameters for p in thing.path]
    if kind.startswith("Density"):
        model = getattr(thing, "model", thing)
        return facts | {"log_prob": [float(v) for v in model.log_prob(np.array([[0, 1, 2], [1, 1, 0]]))]}
    network = getattr(thing, "network", thing)
    values = network.to_dense()
    values = torch.view_as_real(values) if values.is_complex() else values
    return facts | {
        "structure": network.structure.to_dict(),
        "dtype": str(network.dtype),
        "entries": [float(v) for v in values.reshape(-1)[:5]],
    }


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    facts: dict[str, Any] = {}

    def save(name: str, thing: Any, **more: Any) -> None:
        thing.save(folder / f"{name}.safetensors")
        facts[name] = describe(thing) | more

    run = decomposition()
    save("network", run.network)
    save("network-complex", tg.TensorNetwork.random(run.structure, random_state=0, dtype=torch.complex64))
    save("result", run, error=run.relative_error)
    fit = completion()
    save("result-completion", fit, error=fit.relative_error, validation=fit.validation_error)
    counts = completion(loss=tg.losses.poisson)
    save("result-with-loss", counts, error=counts.relative_error, validation=counts.validation_error)
    save("result-learn", learned())
    model = density()
    save("density", model.model)
    save("result-density", model)
    save("grown-model", grown())
    save("compressed-model", compressed())
    stop = {"callbacks": lambda step: True, "progress": False}
    decomposition(checkpoint=folder / "checkpoint.safetensors", **stop)
    completion(checkpoint=folder / "checkpoint-completion.safetensors", **stop)
    grown(checkpoint=folder / "checkpoint-grown-model.safetensors", **stop)
    (folder / "facts.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # that there are few samples
    main(Path(sys.argv[1]))
