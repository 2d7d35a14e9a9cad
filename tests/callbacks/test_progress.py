from __future__ import annotations

import sys

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow import GreedyOptions
from tensorgrow.callbacks.progress import ProgressBar, progress_callbacks

X = np.random.default_rng(0).standard_normal((4, 4, 4))
OPTIONS = {"max_error": 0.5, "random_state": 0, "options": GreedyOptions(starts=1, certify=False)}


def test_silent_by_default(capfd):
    tg.decompose(X, **OPTIONS)
    tg.fit(X, tg.Structure.rank_one(X.shape), random_state=0)
    out, err = capfd.readouterr()
    assert out == ""
    assert err == ""


def test_progress_callbacks():
    assert progress_callbacks(False) == []
    assert progress_callbacks(None) == []  # nobody watches a test


def test_progress_bar_without_a_terminal(capfd):
    pytest.importorskip("rich")
    plain = tg.decompose(X, **OPTIONS)
    shown = tg.decompose(X, progress=True, **OPTIONS)
    assert shown.structure == plain.structure
    assert shown.relative_error == plain.relative_error
    out, _ = capfd.readouterr()
    assert out == ""  # standard output belongs to the user


def test_progress_on_a_terminal(monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    (bar,) = progress_callbacks(None)
    assert isinstance(bar, ProgressBar)
    assert len(progress_callbacks(True)) == 1


def test_progress_line(monkeypatch):
    rich = pytest.importorskip("rich.progress")
    lines = []
    update = rich.Progress.update

    def note(self, task, **fields):
        lines.append(fields["description"])
        return update(self, task, **fields)

    monkeypatch.setattr(rich.Progress, "update", note)
    result = tg.decompose(X, progress=True, **OPTIONS)
    assert len(lines) == len(result.history)
    is_met = False
    for line, step in zip(lines, result.history):
        is_met = is_met or step.relative_error <= 0.5
        assert (line.startswith("target met, making it smaller; Ctrl-C keeps it (")) == is_met
        if is_met:
            continue
        assert f"{step.num_parameters:,} parameters" in line
        assert f"{step.relative_error:.4g}" in line
        assert "goal 0.5" in line
        if step.edge is not None:
            assert f"{step.edge[0]}-{step.edge[1]}" in line
    assert is_met and lines[-1].endswith(f"({result.num_parameters:,} parameters)")


def test_progress_stops_when_something_fails(monkeypatch):
    rich = pytest.importorskip("rich.progress")
    stopped = []
    stop = rich.Progress.stop
    monkeypatch.setattr(rich.Progress, "stop", lambda self: (stopped.append(self), stop(self))[1])

    def fail(step):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        tg.decompose(X, progress=True, callbacks=fail, **OPTIONS)
    assert stopped


def test_progress_needs_rich(monkeypatch):
    for name in ("rich", "rich.console", "rich.progress"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(tg.OptionError, match=r"rich.*pip install"):
        tg.decompose(X, progress=True, **OPTIONS)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert progress_callbacks(None) == []  # only shown where it can be
