from __future__ import annotations

import dataclasses
import itertools

import numpy as np

import tensorgrow as tg
from tests.plotting.conftest import RIVALS


def test_error_curve_of_a_decomposition(grown):
    ax = tg.plotting.plot_errors(grown, rivals=RIVALS)
    labels = ["growth", "result", "TT-SVD", "Tucker"]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == labels
    lines = {line.get_label(): line for line in ax.lines}
    assert list(ax.lines[0].get_xdata()) == [s.num_parameters for s in grown.history]
    assert list(ax.lines[0].get_ydata()) == [s.relative_error for s in grown.history]
    assert lines["result"].get_xydata().tolist() == [[grown.num_parameters, grown.relative_error]]
    assert lines["TT-SVD"].get_xydata().tolist() == [[60, 0.2], [90, 0.1]]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("parameters", "relative error")


def test_the_line_never_turns_back(grown):
    """A run that prunes and grows again: the steps go back and forth, the line does not."""
    turns = (*grown.history, *reversed(grown.history), *grown.history[2:])
    worse = [
        dataclasses.replace(s, relative_error=s.relative_error * (1 + 0.1 * (k % 3)))
        for k, s in enumerate(turns)
    ]
    ax = tg.plotting.plot_errors(dataclasses.replace(grown, history=tuple(worse)))
    dots, line = ax.lines[:2]
    assert len(dots.get_xdata()) == len(turns)
    assert dots.get_linestyle() == "None"
    assert all(np.diff(line.get_xdata()) > 0)
    assert all(np.diff(line.get_ydata()) < 0)


def test_other_methods_by_their_results(grown):
    ax = tg.plotting.plot_errors(grown, rivals={"again": grown})
    assert ax.lines[-1].get_xydata().tolist() == [[grown.num_parameters, grown.relative_error]]


def test_error_curve_of_a_completion(completed):
    ax = tg.plotting.plot_errors(completed)
    names = [t.get_text() for t in ax.get_legend().get_texts()]
    assert names[:2] == ["fitted data", "held-out data"]
    assert names[-1] == "test data"
    held_out = [s for s in completed.history if s.validation_error is not None]
    assert list(ax.lines[2].get_ydata()) == [s.validation_error for s in held_out]


def test_losses_below_zero_get_a_linear_axis(grown):
    steps = tuple(dataclasses.replace(s, relative_error=s.relative_error - 1) for s in grown.history)
    lower = dataclasses.replace(grown, history=steps, errors=tg.Errors(-0.9, "loss"))
    ax = tg.plotting.plot_errors(lower)
    assert (ax.get_yscale(), ax.get_ylabel()) == ("linear", "loss")


def test_rank_map(grown):
    ax = tg.plotting.plot_ranks(grown)
    shown = ax.images[0].get_array()
    assert shown.shape == (grown.structure.num_nodes,) * 2
    for i, j in itertools.combinations(range(grown.structure.num_nodes), 2):
        rank = grown.structure.rank(i, j)
        assert (np.ma.is_masked(shown[i, j]) or np.isnan(shown[i, j])) if rank == 1 else shown[i, j] == rank
    assert sorted(t.get_text() for t in ax.texts) == sorted(
        2 * [str(r) for r in grown.structure.ranks.values()]
    )
