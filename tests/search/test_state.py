from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorgrow.errors import FileFormatError
from tensorgrow.files import read_file, write_file
from tensorgrow.network import TensorNetwork
from tensorgrow.results import PathPoint
from tensorgrow.search import Fitted, NetworkState, SearchState
from tensorgrow.search.gradient import GradientState
from tensorgrow.search.greedy import GreedyState
from tensorgrow.search.tuned_search import HeldOutState
from tensorgrow.steps import Step, StopReason
from tensorgrow.structure import Structure
from tests.oracles import random_array
from tests.strategies import networks, seeds

ONE = Structure.rank_one((2, 3))

numbers = st.floats(allow_nan=False)
counts = st.integers(0, 10**12)
edges = st.tuples(st.integers(0, 9), st.integers(0, 9))
dtypes = st.sampled_from([torch.float32, torch.float64, torch.complex64, torch.complex128])


@st.composite
def fitted(draw, network: TensorNetwork | None = None) -> Fitted:
    network = network or draw(networks(draw(dtypes), max_order=3))
    return Fitted(network, draw(numbers), draw(st.none() | numbers), draw(st.none() | counts))


@st.composite
def steps(draw) -> Step:
    network = draw(networks(torch.float64, max_order=3))
    return Step(
        index=draw(counts),
        kind=draw(st.sampled_from(["start", "grow", "shrink"])),
        edge=draw(st.none() | edges),
        num_parameters=draw(counts),
        loss=draw(numbers),
        relative_error=draw(st.none() | numbers),
        validation_error=draw(st.none() | numbers),
        seconds=draw(numbers),
        structure=network.structure,
        start=draw(counts),
    )


@st.composite
def moments(draw) -> list[dict[str, torch.Tensor]]:
    """What an optimiser remembers: tensors of all shapes, numbers among them."""
    rng = np.random.default_rng(draw(seeds))
    shapes = draw(st.lists(st.sampled_from([(), (1,), (3, 2), (0, 2)]), max_size=4))
    return [{"exp_avg": random_array(rng, s, draw(dtypes)), "step": torch.tensor(3.0)} for s in shapes]


@st.composite
def states(draw) -> NetworkState:
    """Any state of a search for a network; some of its parts are the same objects."""
    kind = draw(st.sampled_from([GreedyState, HeldOutState, GradientState]))
    shared = draw(fitted())
    others = draw(st.lists(fitted(), max_size=2))
    state = kind(
        phase=draw(st.sampled_from(["start", "grow"])),
        start=draw(counts),
        elapsed=draw(numbers),
        stop=draw(st.none() | st.sampled_from(StopReason)),
        steps=draw(st.lists(steps(), max_size=3)),
        current=shared,
        best=draw(st.none() | st.just(shared) | fitted() | fitted(shared.network)),
        path=[PathPoint(f.network, f.loss, f.counted) for f in (shared, *others)],
    )
    gains = st.dictionaries(edges, st.tuples(numbers, counts), max_size=4)
    if kind is HeldOutState:
        state.gains, state.ridge, state.earlier = draw(gains), draw(st.none() | numbers), draw(fitted())
        state.outcome = draw(st.none() | st.sampled_from(StopReason))
    if kind is GradientState:
        state.gains, state.moments = draw(gains), draw(moments())
    return state


def assert_equal(a: object, b: object) -> None:
    """The same values and types, to the bit."""
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
    elif isinstance(a, TensorNetwork):
        assert a.structure == b.structure
        assert_equal(list(a.cores), list(b.cores))
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            assert_equal(x, y)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        assert_equal(list(a.values()), list(b.values()))
    elif is_dataclass(a):
        for f in fields(a):
            assert_equal(getattr(a, f.name), getattr(b, f.name))
    else:
        assert a == b
        assert math.copysign(1, a) == math.copysign(1, b) if isinstance(a, float) else True


@pytest.fixture(scope="session")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("states") / "state"


def through(file, state: SearchState) -> SearchState:
    """A state after a stay in a file."""
    header, tensors = state.pack()
    write_file(file, "state", {"state": header}, tensors)
    header, tensors = read_file(file, ("state",))
    return type(state).unpack(header["state"], tensors)


@settings(max_examples=60)
@given(states())
def test_states_come_back_to_the_bit(file, state):
    again = through(file, state)
    assert_equal(again, state)
    header, tensors = again.pack()
    before, known = state.pack()
    assert header == before
    assert tensors.keys() == known.keys()


@given(fitted())
def test_what_occurs_twice_is_kept_once(file, shared):
    state = NetworkState(current=shared, best=shared, path=[PathPoint(shared.network, 0.5)])
    _, tensors = state.pack()
    assert len(tensors) == len({id(c) for c in shared.network.cores})
    again = through(file, state)
    for a, b, c in zip(again.current.network.cores, again.best.network.cores, again.path[0].network.cores):
        assert a is b
        assert b is c


@pytest.mark.parametrize("value", [math.inf, -math.inf, -0.0, 5e-324, 1e308])
def test_extreme_numbers(file, value):
    assert_equal(through(file, SearchState(elapsed=value)), SearchState(elapsed=value))


def test_a_class_that_is_not_marked_is_refused(file):
    @dataclass
    class Stranger:
        size: int = 3

    with pytest.raises(TypeError, match="Stranger cannot be part of a state"):
        SearchState(steps=[Stranger()]).pack()
    header, tensors = SearchState().pack()
    header["steps"] = [{"object": "Stranger", "fields": {"size": 3}}]
    with pytest.raises(FileFormatError, match="Stranger"):
        SearchState.unpack(header, tensors)


@pytest.mark.parametrize(
    "bad",
    [
        {"object": "Fitted", "fields": {"loss": 1.0}},
        {"object": "Fitted", "fields": 3},
        {"object": ["Fitted"], "fields": {}},
        {"pickle": "anything"},
        {"tensor": "not there"},
        {"stop": "NEVER"},
        {"structure": {"dims": "text"}},
        {"network": 5},
        {},
    ],
)
def test_damaged_states_are_refused(bad):
    header, tensors = NetworkState().pack()
    header["current"] = bad
    with pytest.raises(FileFormatError):
        NetworkState.unpack(header, tensors)


def test_states_of_another_kind_are_refused():
    with pytest.raises(FileFormatError, match=r"another kind or version.*stale"):
        GreedyState.unpack(*HeldOutState().pack())
    with pytest.raises(FileFormatError, match="another kind or version"):
        NetworkState.unpack({}, {})


# -- transactions ------------------------------------------------------------------------------------------


def test_a_broken_move_is_undone():
    generator = torch.Generator().manual_seed(0)
    first = Fitted(TensorNetwork.random(ONE, random_state=0), 1.0)
    state = GradientState(current=first, gains={(0, 1): (1.0, 2)})
    random = generator.get_state()
    with pytest.raises(KeyboardInterrupt), state.transaction(generator):
        state.phase, state.stale, state.current = "grow", 5, None
        state.gains[0, 2] = (3.0, 4)
        state.steps.append("step")
        torch.rand(3, generator=generator)
        raise KeyboardInterrupt
    assert (state.phase, state.stale, state.current) == ("start", 0, first)
    assert state.gains == {(0, 1): (1.0, 2)}
    assert state.steps == []
    assert torch.equal(generator.get_state(), random)


def test_a_first_result_is_kept():
    state, first = NetworkState(), Fitted(TensorNetwork.random(ONE, random_state=0), 1.0)
    with pytest.raises(KeyboardInterrupt), state.transaction(torch.Generator()):
        state.current, state.phase = first, "grow"
        raise KeyboardInterrupt
    assert state.current is first
    assert state.phase == "start"


def test_a_whole_move_stays():
    state = NetworkState()
    with state.transaction(torch.Generator()):
        state.phase = "grow"
    assert state.phase == "grow"
