from __future__ import annotations

import inspect
from pathlib import Path

import pytest

pytest.importorskip("typer")
from tensorgrow.cli import options as opt


def test_groups_of_options_become_single_ones():
    seen = []

    def run(data: opt.KnownOptions, output: opt.OutputOptions, count: int = 3) -> None:
        """What it does."""
        seen.append((data, output, count))

    flat = opt.spread(run)
    assert flat.__doc__ == "What it does."
    parameters = inspect.signature(flat).parameters
    assert list(parameters)[:7] == ["file", "key", "tensorize", "order", "names", "mask", "observed"]
    assert parameters["file"].default is inspect.Parameter.empty
    values = {name: p.default for name, p in parameters.items()}
    flat(**{**values, "file": Path("x.npy"), "quiet": True, "count": 4})
    assert seen == [(opt.KnownOptions(Path("x.npy")), opt.OutputOptions(quiet=True), 4)]


def test_edges():
    assert opt.parse_edges("ring") == "ring"
    assert opt.parse_edges("0-1,2-3") == [(0, 1), (2, 3)]
