"""Part `density`: likelihoods of binary data within a time on one core."""

from __future__ import annotations

import numpy as np

import tensorgrow as tg
from tensorgrow.experiments.harness import Case, Results, Row, stopwatch

from ..benchmark import BenchmarkSettings
from ..completion.runs import claim

__all__ = ["cases", "claims", "run", "table"]

# Data set: seconds, and nats per variable on the test set.
SETS = {"nltcs": (60.0, 0.3768), "plants": (300.0, 0.215)}
SIZE = 5_000


def cases(settings: BenchmarkSettings) -> list[Case]:
    """Each data set once."""
    return [
        Case(
            f"density/{settings['label']}/cpu/{name}",
            {"item": name, "max_seconds": min(seconds, settings["max_seconds"])},
            alone=True,
            threads=1,
        )
        for name, (seconds, _) in SETS.items()
    ]


def run(params: Row, settings: BenchmarkSettings) -> Row:
    """Learn from the training set, held out by the validation set, judged on the test set."""
    data = np.load(settings.folder("density") / f"{params['item']}.npz")
    train, valid, test = (data[k].astype(int) for k in ("train", "valid", "test"))
    held = np.arange(len(train) + len(valid)) >= len(train)
    with stopwatch() as watch:
        result = tg.learn_density(
            np.concatenate([train, valid]),
            dims=2,
            validation=held,
            max_seconds=params["max_seconds"],
            random_state=0,
            progress=False,
        )
    nats = [result.model.nll(x) / x.shape[1] for x in (valid, test)]
    return {
        "size": result.num_parameters,
        "valid": nats[0],
        "nats": nats[1],
        "seconds": watch.wall,
        "cpu_seconds": watch.cpu,
        "stop": result.stop.name,
        "steps": len(result.history),
    }


def table(results: Results) -> list[Row]:
    """One line per data set and source."""
    columns = ("valid", "nats", "size", "seconds", "steps", "stop")
    return [
        {"set": key.split("/")[3], "source": key.split("/")[1], **{c: row[c] for c in columns}}
        for key, row in results.finished("density/").items()
    ]


def claims(results: Results) -> list[Row]:
    """Nats per variable and sizes."""
    found = []
    for name, (_, most) in SETS.items():
        for row in results.rows(f"density/after/cpu/{name}"):
            nats, size = row["nats"], row["size"]
            found.append(claim(f"density {name}: nats per variable", most, nats, nats <= most, 1))
            found.append(claim(f"density {name}: parameters below", SIZE, size, size < SIZE, 1))
    return found
