from __future__ import annotations

import dataclasses
import json
import math
import re

import numpy as np
import pytest

import tensorgrow as tg
from tensorgrow import GreedyOptions
from tensorgrow.search import GradientSearch, GreedySearch, HeldOutSearch, run
from tensorgrow.search.options import EffortOptions, FitOptions, GrowthOptions, ReductionOptions, ScoreOptions
from tests.search.factories import SMALL, make_gradient, make_held_out, make_search, noisy


@pytest.mark.parametrize("name", ["edge_score", "scoring", "slice_init"])
@pytest.mark.parametrize("value", ["bogus", "", None, 3])
def test_choices(name, value):
    with pytest.raises(tg.OptionError) as caught:
        GreedyOptions(**{name: value})
    assert name in str(caught.value)
    assert repr(value) in str(caught.value)
    assert "choose one of" in str(caught.value)


LEAST = {
    "slice_noise": 0,
    "slice_sweeps": 1,
    "lookahead": 1,
    "lookahead_sweeps": 1,
    "second_looks": 0,
    "tune_every": 1,
    "sweeps": 1,
    "tolerance": 0,
    "least_sweeps": 1,
    "absolute_tolerance": 0,
    "final_sweeps": 1,
    "final_tolerance": 0,
    "ridge": 0,
    "rounding_ridge": 0,
    "patience": 1,
    "balance_every": 1,
    "rank_increment": 1,
    "max_degree": 1,
    "split_threshold": 0,
    "split_below": 0,
    "max_internal_nodes": 0,
    "prune_candidates": 1,
    "starts": 1,
    "score_noise": 0,
    "overshoot": 0,
    "regrow_cycles": 0,
    "regrow_depth": 1,
    "exact_below": 0,
    "after_target": 0,
    "least_growth": 0,
}


@pytest.mark.parametrize("name", LEAST)
def test_numbers_have_a_least_value(name):
    assert getattr(GreedyOptions(**{name: LEAST[name]}), name) == LEAST[name]
    for bad in (LEAST[name] - 1, -math.inf, math.nan, math.inf):
        with pytest.raises(tg.OptionError, match=name):
            GreedyOptions(**{name: bad})


@pytest.mark.parametrize("name", ["sweeps", "tolerance", "max_degree"])
def test_numbers_are_numbers(name):
    with pytest.raises(tg.OptionError, match=name):
        GreedyOptions(**{name: "3"})


def test_every_number_is_checked():
    numbers = {
        f.name
        for f in dataclasses.fields(GreedyOptions)
        if isinstance(f.default, (int, float)) and not isinstance(f.default, bool)
    }
    assert numbers <= set(LEAST)


@pytest.mark.parametrize("name", ["sweeps", "slice_sweeps", "lookahead", "rank_increment", "starts"])
def test_counts_are_whole(name):
    with pytest.raises(tg.OptionError, match=name):
        GreedyOptions(**{name: 2.5})


@pytest.mark.parametrize("name", ["lookahead", "max_degree", "regrow_cycles"])
def test_none_where_it_has_a_meaning(name):
    assert getattr(GreedyOptions(**{name: None}), name) is None


@pytest.mark.parametrize("name", ["sweeps", "tolerance", "starts"])
def test_none_where_it_has_none(name):
    with pytest.raises(tg.OptionError, match=name):
        GreedyOptions(**{name: None})


def test_options_are_frozen_and_replaced():
    options = GreedyOptions()
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.sweeps = 3
    changed = options.replace(sweeps=3, edge_score="drop")
    assert (changed.sweeps, changed.edge_score) == (3, "drop")
    assert options == GreedyOptions()
    assert changed.replace(sweeps=options.sweeps, edge_score=options.edge_score) == options
    assert hash(changed) != hash(options)
    with pytest.raises(tg.OptionError, match="sweeps"):
        options.replace(sweeps=0)
    with pytest.raises(TypeError, match="bogus"):
        options.replace(bogus=1)


def test_efforts():
    fast, balanced, thorough = (GreedyOptions.for_effort(e) for e in ("fast", "balanced", "thorough"))
    assert balanced == GreedyOptions()
    assert fast.lookahead == 1
    assert fast.starts == 1
    assert fast.sweeps < balanced.sweeps
    assert thorough.regrow_cycles is None
    for effort in ("Fast", "", None, "best"):
        with pytest.raises(tg.OptionError, match=r"effort.*fast.*balanced.*thorough"):
            GreedyOptions.for_effort(effort)


# The sentences of the paper's section "Experiments" that give numbers, as they stand there.
SENTENCES = r"""
The number of iterations/epochs for the best edge identification is set to $2$ for tensor decomposition,
$5$ for image compression and $10$ for image completion and compressing neural networks.
The singular values threshold for the internal node search is set to $\varepsilon=10^{-5}$.
"""


def test_the_numbers_of_the_preset_stand_in_the_paper():
    def number(of: str) -> int:
        return int(re.search(rf"\$(\d+)\$ for\s+{of}", SENTENCES)[1])

    paper = {name: GreedyOptions.paper(name) for name in ("decomposition", "images", "completion", "layers")}
    assert paper["decomposition"].slice_sweeps == number("tensor decomposition") == 2
    assert paper["images"].slice_sweeps == number("image compression") == 5
    both = number("image completion and compressing neural networks")
    assert paper["completion"].slice_sweeps == paper["layers"].slice_sweeps == both == 10
    exponent = int(re.search(r"varepsilon=10\^\{(-\d+)\}", SENTENCES)[1])
    assert paper["decomposition"].split_below == 10.0**exponent
    assert GreedyOptions.paper() == paper["decomposition"]
    paper["completion"].check_for(HeldOutSearch, "complete")
    with pytest.raises(tg.OptionError, match="experiment='mnist'"):
        GreedyOptions.paper("mnist")


def test_paper_preset_is_the_paper():
    paper = GreedyOptions.paper()
    assert paper.edge_score == "drop"
    assert (paper.slice_init, paper.slice_noise) == ("random", 1e-2)
    assert paper.absolute_tolerance == 1e-7
    assert paper.tolerance == 0
    assert paper.lookahead == 1
    assert paper.starts == 1
    assert paper.rank_increment == 1
    assert paper.transfer
    assert not paper.prune
    assert paper.regrow_cycles == 0
    assert not paper.certify
    assert not paper.accelerate


@pytest.mark.parametrize(
    "options",
    [
        GreedyOptions(),
        GreedyOptions.paper(),
        GreedyOptions.for_effort("thorough"),
        GreedyOptions(edge_score=lambda before, after, added: 0.0),
        GreedyOptions(edge_score=max),
    ],
)
def test_to_dict_is_json(options):
    values = options.to_dict()
    assert json.loads(json.dumps(values)) == values
    assert set(values) == {f.name for f in dataclasses.fields(GreedyOptions)}
    if not callable(options.edge_score):
        assert GreedyOptions(**values) == options
    else:
        assert options.edge_score.__name__ in values["edge_score"]


def test_options_win_over_effort():
    x = np.random.default_rng(0).standard_normal((3, 4, 3))
    result = tg.decompose(
        x, max_error=0.4, effort="thorough", options=GreedyOptions(prune=False, starts=1), random_state=0
    )
    assert result.info["effort"] == "custom"
    assert result.info["options"]["prune"] is False
    assert "shrink" not in {s.kind for s in result.history}


# -- groups ------------------------------------------------------------------------------------------------


def test_every_option_is_in_one_group_and_documented():
    groups = (ScoreOptions, FitOptions, GrowthOptions, ReductionOptions, EffortOptions)
    names = [name for group in groups for name in group.names()]
    assert sorted(names) == sorted(GreedyOptions.names())
    documented = {
        n for line in re.findall(r"^(\w[\w, ]*)$", GreedyOptions.__doc__, re.M) for n in line.split(", ")
    }
    assert GreedyOptions.names() <= documented
    assert FitOptions(sweeps=3).sweeps == GreedyOptions(sweeps=3).sweeps
    assert isinstance(GreedyOptions(), groups)


# -- options that a search ignores -------------------------------------------------------------------------


IGNORED = {
    GreedySearch: {"ridge": 0.1, "patience": 3, "overshoot": 0.2, "second_looks": 0, "tune_every": 2.0},
    HeldOutSearch: {"after_target": 1.0},
    GradientSearch: {"sweeps": 3, "ridge": 0.1, "regrow_cycles": None, "starts": 2, "lookahead": 4},
}


@pytest.mark.parametrize("search", IGNORED)
def test_ignored_options_are_refused(search):
    for name, value in IGNORED[search].items():
        with pytest.raises(tg.OptionError) as caught:
            GreedyOptions(**{name: value}).check_for(search, "the task")
        text = str(caught.value)
        assert text.startswith(f"the task ignores {name}={value!r}: its search uses ")
        assert all(used in text for used in search.uses)
        assert "for_learning" in text
    with pytest.raises(tg.OptionError) as caught:
        GreedyOptions(**IGNORED[search]).check_for(search, "it")
    assert all(name in str(caught.value).split(":")[0] for name in IGNORED[search])


@pytest.mark.parametrize("effort", ["fast", "balanced", "thorough"])
def test_presets_pass(effort):
    GreedyOptions.for_effort(effort).check_for(GreedySearch, "decompose")
    GreedyOptions.for_completion(effort).check_for(HeldOutSearch, "complete")
    GreedyOptions.for_completion(effort).replace(ridge=0.1, starts=1).check_for(HeldOutSearch, "regress")
    GreedyOptions.for_learning(effort).replace(slice_noise=0.1).check_for(GradientSearch, "learn_density")


def test_what_is_switched_off_anyway_may_be_switched_off():
    GreedyOptions.paper().check_for(GreedySearch, "decompose")
    off = GreedyOptions(
        certify=False, terms=False, prune=False, starts=1, lookahead=1, accelerate=False, max_internal_nodes=0
    )
    for search in IGNORED:
        off.check_for(search, "any")
        GreedyOptions().check_for(search, "any")


READ: set[str] = set()


class Recording(GreedyOptions):
    """Notes which options are read."""

    def __getattribute__(self, name: str) -> object:
        if name in type(self).__dataclass_fields__:
            READ.add(name)
        return super().__getattribute__(name)


# What tasks read, not searches.
BY_TASKS = {
    GreedySearch: {"max_degree", "certify", "compress"},
    HeldOutSearch: {"max_degree", "ridge", "final_sweeps", "final_tolerance"},
    GradientSearch: {"max_degree"},
}
RUNS = {
    GreedySearch: [
        lambda o: make_search(SMALL, o.replace(regrow_cycles=2), max_error=0.1),
        lambda o: make_search(SMALL, o.replace(terms=True), max_parameters=30),
        lambda o: make_search(SMALL, o.replace(split_while_growing=True, slice_init="random"), max_error=0.3),
    ],
    HeldOutSearch: [
        lambda o: make_held_out(
            noisy((5, 5, 5, 3), level=0.1),  # enough entries to learn from
            o.replace(regrow_cycles=1, overshoot=0.1, patience=2),
            max_parameters=70,
        ),
        lambda o: make_held_out(
            SMALL,
            o.replace(slice_init="random", split_while_growing=True),
            is_patient=True,
            max_steps=1,
            max_error=0.1,
        ),
    ],
    GradientSearch: [lambda o: make_gradient(SMALL, o.replace(rank_increment=2), max_parameters=30)],
}


@pytest.mark.parametrize("search", RUNS)
def test_searches_name_the_options_they_use(search):
    used: set[str] = set()
    for make in RUNS[search]:
        made = make(Recording(starts=2, sweeps=5))
        assert isinstance(made, search)
        READ.clear()
        run(made, [])
        used |= READ
    assert used - BY_TASKS[search] == search.uses - BY_TASKS[search]
