"""Files that earlier versions wrote are read for ever; see `saved_files/write.py`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

import tensorgrow as tg
from tensorgrow.files import FORMAT_VERSION, read_file
from tests.saved_files import write

FOLDER = Path(__file__).parent / "saved_files"
VERSIONS = sorted(FOLDER.glob("v*"), key=lambda path: int(path.name[1:]))
FACTS = {version: json.loads((version / "facts.json").read_text(encoding="utf-8")) for version in VERSIONS}
SAVED = [pytest.param(v, name, id=f"{v.name}-{name}") for v in VERSIONS for name in FACTS[v]]

# What models are loaded into: of the same architecture, with other weights.
MODELS = {"grown-model": lambda: torch.nn.Sequential(write.layer()), "compressed-model": write.dense_model}
KINDS = {"result": "relative", "result-completion": "relative", "result-with-loss": "deviance"}
CHECKPOINTS = {
    "checkpoint": write.decomposition,
    "checkpoint-completion": write.completion,
    "checkpoint-grown-model": write.grown,
}


def test_there_is_a_file_of_every_kind_and_version():
    assert [v.name for v in VERSIONS] == [f"v{k + 1}" for k in range(FORMAT_VERSION)]
    for version in VERSIONS:
        files = {path.stem for path in version.glob("*.safetensors")}
        assert files == {*FACTS[version], *CHECKPOINTS}
        assert FACTS[version].keys() == FACTS[VERSIONS[-1]].keys()


@pytest.mark.parametrize("version, name", SAVED)
def test_it_is_read(version, name):
    expected = FACTS[version][name]
    make = MODELS.get(name)
    thing = tg.load(version / f"{name}.safetensors", make and make())
    facts = write.describe(thing)
    numbers = {k: facts.pop(k) for k in ("entries", "log_prob", "outputs") if k in facts}
    assert {k: expected[k] for k in facts} == facts
    for key, values in numbers.items():
        assert values == pytest.approx(expected[key], rel=1e-5, abs=1e-6)
    if name in KINDS:
        assert thing.errors.kind == KINDS[name]
        assert thing.relative_error == expected["error"]
        assert thing.validation_error == expected.get("validation")
    if name == "result-learn":
        assert thing.errors.kind == "loss"
        with pytest.raises(AttributeError, match="no relative error"):
            _ = thing.relative_error


@pytest.mark.parametrize("version, name", SAVED)
def test_it_can_be_written_again(version, name, tmp_path):
    make = MODELS.get(name)
    model = make and make()
    thing = tg.load(version / f"{name}.safetensors", model)
    thing.save(tmp_path / "again")
    again = tg.load(tmp_path / "again", model)
    assert write.describe(again) == write.describe(thing)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoints_of_this_version_are_resumed(name, tmp_path):
    file = tmp_path / "run"
    shutil.copy(VERSIONS[-1] / f"{name}.safetensors", file)
    header, _ = read_file(file, ("checkpoint",))
    resumed, whole = CHECKPOINTS[name](checkpoint=file), CHECKPOINTS[name]()
    assert len(resumed.history) > len(header["state"]["steps"])
    first = header["state"]["steps"][0]["fields"]["seconds"]
    assert resumed.history[0].seconds == first  # it was not made again
    assert [(s.kind, s.edge) for s in resumed.history] == [(s.kind, s.edge) for s in whole.history]
    assert resumed.history[-1].loss == pytest.approx(whole.history[-1].loss, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoints_of_version_1_are_refused(name, tmp_path):
    file = tmp_path / "run"
    shutil.copy(VERSIONS[0] / f"{name}.safetensors", file)
    with pytest.raises(tg.FileFormatError, match=r"older tensorgrow \(0\.1.*Delete|format version 1; "):
        CHECKPOINTS[name](checkpoint=file)
