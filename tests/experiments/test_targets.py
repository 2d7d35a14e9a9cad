"""Targets with a planted structure."""

from __future__ import annotations

import pytest

from tensorgrow.experiments import ablation
from tensorgrow.experiments.high_order import target
from tensorgrow.experiments.targets import TARGETS, planted_tensor


def test_the_targets_are_those_of_the_paper():
    assert {k: s.num_parameters for k, s in TARGETS.items()} == {
        "tt": 427,
        "tr": 511,
        "tucker": 242,
        "triangle": 378,
    }
    assert ablation.TRAIN.num_parameters == 539
    assert float(planted_tensor(TARGETS["tt"], 3).norm()) == pytest.approx(1.0)
    for seed in range(4):
        structure = target(6, seed)
        assert set(structure.ranks.values()) <= {2, 3}
        assert 6 <= len(structure.edges) <= 10
        assert all(structure.neighbours)
