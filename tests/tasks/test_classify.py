"""Classification: options, structures, checkpoints; what it learns is tested with its estimator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow.tasks.classify import classify
from tests.tasks.cases import LABELS, POINTS

pytestmark = pytest.mark.usefixtures("one_ridge")
SHORT = {"random_state": 0, "max_steps": 1, "training": tg.TrainingOptions(epochs=10), "dtype": torch.float64}


def test_options_are_used_and_reported():
    options = tg.GreedyOptions.for_learning("fast").replace(patience=3, max_degree=2)
    result = classify(POINTS, LABELS, 3, options=options, **(SHORT | {"max_steps": 4})).result
    assert result.info["options"] == options.to_dict()
    assert result.info["training"]["epochs"] == 10
    assert result.info["effort"] == "custom"
    degrees = [max(map(len, s.structure.neighbours)) for s in result.history]
    assert max(degrees[1:]) <= max(degrees[0], 2)


def test_errors_are_cross_entropies():
    found = classify(POINTS, LABELS, 3, validation=False, **SHORT)
    values = found.features(POINTS, torch.float64)
    weights = torch.einsum("abcy,na,nb,nc->ny", found.network.to_dense(), *values.unbind(1))
    loss = torch.nn.functional.cross_entropy(weights, torch.tensor(LABELS))
    assert found.result.errors.kind == "loss"
    assert found.result.validation_error is None
    assert found.result.errors.total == pytest.approx(float(loss), rel=1e-2)


def test_a_given_structure_resumes_from_a_checkpoint(tmp_path):
    structure = tg.Structure.tensor_train((4, 4, 4, 3), 2)
    keywords = {"structure": structure, "random_state": 0, "training": SHORT["training"]}
    whole = classify(POINTS, LABELS, 3, **keywords)
    file = tmp_path / "run.ckpt"
    stopped = classify(POINTS, LABELS, 3, checkpoint=file, callbacks=lambda step: True, **keywords)
    assert stopped.result.stop is tg.StopReason.CALLBACK
    again = classify(POINTS, LABELS, 3, checkpoint=file, **keywords)
    assert again.network.structure == structure
    assert all(map(torch.equal, again.network.cores, whole.network.cores))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("run") / "run.ckpt"
    classify(POINTS, LABELS, 3, **(SHORT | {"max_steps": 0, "checkpoint": file}))
    return file


@pytest.mark.parametrize(
    "change",
    [
        {"labels": np.roll(LABELS, 1)},
        {"validation": 0.3},
        {"structure": tg.Structure.tensor_train((4, 4, 4, 3), 2)},
        {"max_parameters": 60},
        {"edges": "chain"},
        {"training": tg.TrainingOptions(epochs=11)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_checkpoints_of_another_run_are_refused(change, checkpoint):
    content = checkpoint.read_bytes()
    with pytest.raises(tg.OptionError, match="another run"):
        classify(POINTS, num_classes=3, **({"labels": LABELS} | SHORT | {"checkpoint": checkpoint} | change))
    assert checkpoint.read_bytes() == content
