"""Methods by name, and curves of their runs."""

from __future__ import annotations

import numpy as np

import tensorgrow as tg
from tensorgrow.experiments.methods import (
    best_error,
    front,
    gains,
    mean_and_deviation,
    random_mask,
    run_method,
    run_rival,
)
from tensorgrow.experiments.targets import planted_tensor

SMALL = tg.Structure.tensor_train((4,) * 4, 2)


def test_fronts_and_errors_at_a_size():
    row = {"curve": front([(30, 0.5), (10, 0.9), (20, 0.95), (40, 0.1), (40, 0.3)])}
    assert row["curve"] == [[10, 0.9], [30, 0.5], [40, 0.1]]
    assert best_error(row, 9) is None
    assert best_error(row, 35) == 0.5
    assert mean_and_deviation([1.0, None, 3.0]) == (2.0, 1.0)
    assert mean_and_deviation([None]) is None


def test_gains_are_what_a_run_had_met_by_then():
    steps = [(30, 0.5, 1.0), (40, 0.5, 2.0), (50, 0.1, 3.0), (20, 0.4, 4.0), (20, 0.4, 5.0)]
    assert gains(reversed(steps)) == [[30, 0.5, 1.0], [50, 0.1, 3.0], [20, 0.4, 4.0]]


def test_methods_with_implied_options():
    x = planted_tensor(SMALL, 0)
    result, row = run_method("tt_svd_interleaved", x, max_error=1e-6)
    assert row["size"] == result.num_parameters
    assert set(result.structure.edges) == {(0, 2), (1, 2), (1, 3)}
    assert row["reached"]
    assert not run_method("greedy", x, max_error=0.1, random_state=0)[0].structure.internal_nodes


def test_rivals_complete_at_one_rank():
    x = planted_tensor(SMALL, 0).numpy()
    mask = random_mask(x.shape, 0.7, 0)
    assert mask.sum() == round(0.7 * x.size)
    result = run_rival("tr_als", x, mask, 2, random_state=0)
    assert result.structure == tg.Structure.tensor_ring(x.shape, 2)
    assert np.isfinite(result.fill(x, mask)).all()
