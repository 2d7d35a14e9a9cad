from __future__ import annotations

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow import priors
from tensorgrow.cli.prior_texts import parse_priors
from tensorgrow.data.axes import Axes

pytest.importorskip("typer")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["smooth"], {0: [priors.smooth()], 1: [priors.smooth()]}),
        (["day=smooth:2"], {"day": [priors.smooth(order=2)]}),
        (["1=periodic", "1=nonnegative"], {1: [priors.periodic(), priors.nonnegative()]}),
        (["day=periodic:7"], {"day": [priors.periodic(7)]}),
        (["day=autoregressive:1:7"], {"day": [priors.autoregressive((1, 7))]}),
        (["none"], {}),
        (None, None),
    ],
)
def test_texts_are_priors(texts, expected):
    assert parse_priors(texts, None, range(2)) == expected


@pytest.mark.parametrize(
    "text", ["rough", "day=", "smooth:x", "periodic:1:2", "autoregressive", "graph", "day=none"]
)
def test_other_texts_are_refused(text):
    with pytest.raises(tg.OptionError, match="is not known; give one of smooth"):
        parse_priors([text], None, range(2))


def test_axes_of_times_are_smooth_unless_the_user_says_otherwise():
    days = np.arange("2024-01", "2024-02", dtype="datetime64[D]")
    axes = Axes.of_columns({"place": None, "day": days})
    assert parse_priors(None, axes, range(2)) == {1: [priors.smooth()]}
    assert parse_priors(["none"], axes, range(2)) == {}
