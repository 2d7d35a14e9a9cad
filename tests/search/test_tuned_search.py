"""A ridge and weights that held-out entries choose while a network grows."""

from __future__ import annotations

import math

import pytest
import torch

from tensorgrow import GreedyOptions, Structure, TensorNetwork
from tensorgrow.search import knobs
from tensorgrow.search.pace import Pace
from tests.search.factories import make_held_out, noisy

FAST = GreedyOptions.for_completion("fast")


@pytest.fixture
def search():
    return make_held_out(noisy(), FAST, max_steps=6)


def test_the_ridge_of_the_answer_is_the_one_it_was_fitted_with(search):
    assert search.ridge == search.problem.objective.ridge  # before it is chosen
    for _ in search:
        pass
    assert search.state.ridge is not None
    assert search.ridge == search.tuned.ridge == search.state.ridge


def test_a_ridge_that_is_given_stays():
    search = make_held_out(noisy(), FAST.replace(ridge=3e-3), max_steps=6)
    for _ in search:
        pass
    assert search.ridge == 3e-3 and search.state.ridge is None


def test_it_is_chosen_again_where_the_network_has_outgrown_the_last_choice():
    """With a large factor the first choice is the only one before the end."""
    seldom = make_held_out(noisy(), FAST.replace(tune_every=1e6), max_steps=6)
    ridges = {seldom.state.ridge for _ in seldom if seldom.state.stop is None}
    assert len(ridges) == 1
    assert seldom.state.tuned_size == Structure.rank_one((4, 4, 4, 3)).num_parameters


@pytest.mark.parametrize("wide", [True, False])
def test_values_are_given_up_early_where_cuts_are_wide(wide, search, monkeypatch):
    refit, bounds = knobs.refit, []

    def noting(problem, network, **how):
        bounds.append(how.get("most", math.inf))
        return refit(problem, network, **how)

    monkeypatch.setattr(knobs, "refit", noting)
    monkeypatch.setattr(Pace, "has_wide_cuts", lambda pace, structure: wide)
    for _ in search:
        pass
    assert bounds and any(map(math.isfinite, bounds)) == wide


def test_data_has_the_weights_that_were_chosen(search):
    data, pilot = (
        search.problem.objective,
        TensorNetwork.random(Structure.rank_one((4, 4, 4, 3)), random_state=0),
    )
    assert search.weighed(data) is data
    search.state.pilot, search.state.power = pilot, 0.5
    arrays = data.to_arrays(pilot)
    expected = data.weighed(pilot, 0.5).loss(pilot.structure, arrays)
    assert expected != data.loss(pilot.structure, arrays)
    assert search.tuned.loss(pilot.structure, arrays) == pytest.approx(expected)
    search.state.power = 0.0
    assert search.weighed(data) is data


def test_a_resumed_search_fits_with_the_numbers_of_before(search):
    for _ in search:
        pass
    other = make_held_out(noisy(), FAST, max_steps=6)
    header, tensors = search.pack()
    other.resume(header, {name: torch.clone(t) for name, t in tensors.items()})
    assert other.ridge == search.ridge and other.tuned.penalties == search.tuned.penalties
