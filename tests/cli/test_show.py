from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tests.cli.conftest import HIDDEN, call, document

pytest.importorskip("typer")


def test_show(capsys, tensor):
    call(capsys, "decompose", "x.npy", "-e", "1e-6")
    text = call(capsys, "show", "x.safetensors")
    assert "0-1:2" in text and "TARGET_REACHED" in text and "x.npy" in text
    assert document(capsys, "show", "x.safetensors")["num_parameters"] == HIDDEN.num_parameters


def test_show_tells_modes_of_size_one_from_internal_nodes(capsys, folder):
    tg.TensorNetwork.random(tg.Structure.tucker((3, 1, 2), 2), random_state=0).save(folder / "n.safetensors")
    rows = re.findall(r"^\W+(\d) \W+(\w+) ", call(capsys, "show", "n.safetensors"), re.M)
    assert rows == [("0", "3"), ("1", "1"), ("2", "2"), ("3", "internal")]


def test_names_in_a_file_cannot_act_on_the_terminal(capsys, folder):
    """Escapes would clear the screen, set its title, or hide what comes after them."""
    hostile = "\x1b[2Jx\x1b]0;title\x07\x9b31m\u202e.npy"
    info = {"source": {"name": hostile, "kind": "array", "levels": None, "key": hostile}}
    result = replace(tg.decompose(np.eye(3), max_steps=0, random_state=0), info=info)
    result.save(folder / "n.safetensors")
    text = call(capsys, "show", "n.safetensors")
    assert "[2Jx" in text
    assert not set(text) & set("\x1b\x07\x9b\u202e")


def test_show_lists_the_members_of_a_committee(capsys, folder):
    x = np.add.outer(np.sin(np.arange(30)), np.cos(np.arange(32)))
    known = np.random.default_rng(0).random(x.shape) < 0.6
    shape = [(5, 6), (4, 8)]
    options = {"tensorize": shape, "members": 2, "max_steps": 1, "effort": "fast", "random_state": 0}
    result = tg.complete(x, known, **options)
    result.save(folder / "c.safetensors")
    text = call(capsys, "show", "c.safetensors")
    assert "members" in text and len(re.findall(r"\d, best", text)) == 1 and "moved by" in text
    listed = document(capsys, "show", "c.safetensors")["members"]
    assert [m["num_parameters"] for m in listed] == [m.num_parameters for m in result.members]
    assert [m["dims"] for m in listed] == [list(m.structure.dims) for m in result.members]


def test_show_calls_a_loss_a_loss(capsys, folder):
    y = torch.ones(3, 4, dtype=torch.float64)
    result = tg.learn(lambda net: (net.to_dense() - y).abs().mean(), (3, 4), max_steps=0, random_state=0)
    result.save(folder / "learned.safetensors")
    output = call(capsys, "show", "learned.safetensors")
    assert "loss" in output and "relative error" not in output
    x, mask = np.ones((3, 4, 5)), np.ones((3, 4, 5), dtype=bool)
    mask[0, 0, 0] = False
    tg.complete(x, mask, loss="huber", max_steps=0, random_state=0).save(folder / "robust.safetensors")
    assert "relative deviance" in call(capsys, "show", "robust.safetensors")
