"""The common keywords mean the same for every verb."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import tensorgrow as tg
from tensorgrow import StopReason as Stop
from tensorgrow.tasks import linear_classifier
from tests.tasks.cases import CASES, SHAPE, Case
from tests.tasks.completions import StopAfter


@pytest.fixture(scope="module", autouse=True)
def one_ridge():
    """As for single tests, for the run that they share as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear_classifier, "RIDGES", (0.1,))
        yield


@pytest.fixture(scope="module", params=CASES)
def case(request) -> Case:
    return CASES[request.param]


@pytest.fixture(scope="module")
def whole(case: Case) -> tg.Result:
    """The run that nothing interrupts."""
    return case.run()


def moves(result: tg.Result) -> list:
    return [(s.index, s.kind, s.edge, s.structure) for s in result.history]


def reported(result: tg.Result) -> list:
    """The steps that callbacks are told of; the last fit comes after them."""
    return [s for s in result.history if s.kind != "refit"]


def growths(result: tg.Result) -> list:
    return [s for s in reported(result) if s.kind != "start"]


def assert_same(a: tg.Result, b: tg.Result) -> None:
    assert moves(a) == moves(b)
    assert a.stop is b.stop
    assert a.errors == b.errors
    assert a.structure == b.structure
    assert all(map(torch.equal, a.network.cores, b.network.cores))


def needs(case: Case, *keywords: str) -> None:
    missing = case.lacks & set(keywords)
    if missing:
        pytest.skip(f"has no {', '.join(sorted(missing))}")


# -- what comes back -------------------------------------------------------------------------------------


def test_errors_say_what_they_are(case, whole):
    assert whole.errors.kind == case.kind
    assert math.isfinite(whole.errors.total)
    if case.kind == "relative":
        assert whole.relative_error == whole.errors.total
        assert 0.0 <= whole.relative_error < 1.0
    else:
        with pytest.raises(AttributeError, match=r"no relative error.*errors\.total"):
            _ = whole.relative_error
        assert not hasattr(whole, "relative_error")
    for name in ("train", "validation", "test"):
        assert getattr(whole, f"{name}_error") == getattr(whole.errors, name)


def test_steps_are_numbered_and_timed(case, whole):
    assert [s.index for s in whole.history] == list(range(len(whole.history)))
    seconds = [s.seconds for s in whole.history]
    assert seconds == sorted(seconds) and seconds[0] >= 0.0
    assert all(s.num_parameters == s.structure.num_parameters for s in whole.history)
    assert all((s.relative_error is None) == (case.kind != "relative") for s in whole.history)
    assert whole.history[0].kind == ("fit" if case.is_fit and whole.validation_error is None else "start")


def test_the_path_holds_no_pointless_networks(whole):
    sizes, errors = [p.num_parameters for p in whole.path], [p.error for p in whole.path]
    assert sizes == sorted(set(sizes))
    assert errors == sorted(set(errors), reverse=True)


COMMON_INFO = {
    "library_version",
    "torch",
    "numpy",
    "python",
    "machine",
    "device",
    "dtype",
    "effort",
    "options",
    "seconds",
    "seed",
}


def test_info_has_the_common_keys(whole):
    assert set(whole.info) >= COMMON_INFO
    assert whole.info["library_version"] == tg.__version__
    assert whole.info["seed"] == 3
    assert whole.info["dtype"] == str(whole.network.dtype)
    assert whole.info["seconds"] >= whole.history[-1].seconds * 0.99


def test_results_save_and_load(whole, tmp_path):
    whole.save(tmp_path / "run.safetensors")
    again = tg.load(tmp_path / "run.safetensors")
    assert type(again) is type(whole)
    assert_same(again, whole)
    assert again.history == whole.history
    assert dict(again.info) == dict(whole.info)
    assert [(p.error, p.num_parameters) for p in again.path] == [
        (p.error, p.num_parameters) for p in whole.path
    ]
    assert repr(again) == repr(whole)


# -- limits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 2])
def test_max_steps(case, steps):
    needs(case, "max_steps")
    result = case.run(max_steps=steps)
    assert len(growths(result)) == steps
    assert result.stop is Stop.MAX_STEPS


def test_max_parameters(case, whole):
    needs(case, "max_parameters")
    sizes = sorted({s.num_parameters for s in reported(whole)})
    most = sizes[-1] - 1
    result = case.run(max_parameters=most)
    assert result.num_parameters <= most
    assert all(s.num_parameters <= most for s in result.history)
    assert all(p.num_parameters <= most for p in result.path)


def test_max_seconds_still_gives_a_network(case):
    result = case.run(max_seconds=0)
    # The fit of entries does not tell the end of its time from that of its sweeps.
    assert result.stop in ((Stop.MAX_SECONDS, Stop.CONVERGED) if case.is_fit else (Stop.MAX_SECONDS,))
    assert not growths(result) or case.is_fit
    assert all(bool(torch.isfinite(c).all()) for c in result.network.cores)
    assert math.isfinite(result.errors.total)


def test_edges(case):
    needs(case, "edges")
    result = case.run(edges="chain")
    order = result.structure.order
    chain = {(k, k + 1) for k in range(order - 1)}
    assert all(set(s.structure.edges) <= chain for s in result.history)


BAD = {
    "max_error": ({"max_error": math.nan}, "max_error"),
    "max_steps": ({"max_steps": -1}, "max_steps"),
    "max_parameters": ({"max_parameters": 2}, "max_parameters"),
    "max_seconds": ({"max_seconds": -1}, "max_seconds"),
    "effort": ({"effort": "heroic"}, "effort"),
    "edges": ({"edges": "star"}, "star"),
    "options": ({"options": {"sweeps": 3}}, "GreedyOptions"),
    "random_state": ({"random_state": "abc"}, "random_state"),
    "device": ({"device": "meta"}, "meta"),
    "dtype": ({"dtype": "int8"}, "int8"),
    "callbacks": ({"callbacks": 5}, "callback"),
}


@pytest.mark.parametrize("keyword", BAD)
def test_bad_keywords_are_refused_alike(case, keyword):
    needs(case, keyword)
    keywords, word = BAD[keyword]
    if keyword == "max_error" and case.kind == "nats":
        pytest.skip("has no max_error")
    with pytest.raises(tg.OptionError, match=word):
        case.run(**keywords)


def test_options_that_the_search_ignores_are_refused(case):
    needs(case, "options")
    unused = {"relative": {"after_target": 7.0}, "loss": {"sweeps": 7}, "nats": {"sweeps": 7}}[case.kind]
    if case.verb in (tg.decompose, tg.approximate, CASES["decompose blocks"].verb):
        unused = {"patience": 7}
    name, value = next(iter(unused.items()))
    with pytest.raises(tg.OptionError, match=f"ignores {name}={value}.*its search uses"):
        case.run(options=tg.GreedyOptions(**unused))


# -- who is told -----------------------------------------------------------------------------------------


class Recorder:
    def __init__(self) -> None:
        self.events: list = []

    def on_start(self, search) -> None:
        self.events.append("start")

    def on_step(self, search, step) -> None:
        self.events.append(step)

    def on_end(self, search) -> None:
        self.events.append("end")


def test_callbacks_are_told_of_every_step(case, whole):
    recorder, seen = Recorder(), []
    result = case.run(callbacks=[recorder, seen.append])
    assert_same(result, whole)
    assert recorder.events[0] == "start" and recorder.events[-1] == "end"
    assert recorder.events[1:-1] == seen
    assert [(s.index, s.kind, s.edge) for s in seen] == [(s.index, s.kind, s.edge) for s in reported(whole)]


def test_a_callback_stops_the_run(case):
    steps = 1 if case.is_fit else 2
    result = case.run(callbacks=StopAfter(steps))
    assert result.stop is Stop.CALLBACK
    assert len(reported(result)) == steps


def test_errors_of_callbacks_come_through(case):
    with pytest.raises(RuntimeError, match="mine"):
        case.run(callbacks=StopAfter(1, RuntimeError("mine")))


def test_progress_without_a_terminal(case, whole):
    pytest.importorskip("rich")
    assert_same(case.run(progress=True), whole)


# -- seeds, checkpoints, interruption --------------------------------------------------------------------


def test_a_seed_reproduces_a_run(case, whole):
    assert_same(case.run(), whole)
    other = case.run(random_state=4)
    assert not all(map(torch.equal, other.network.cores, whole.network.cores))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run.ckpt"


@pytest.mark.parametrize("error", [None, KeyboardInterrupt()], ids=["callback", "Ctrl-C"])
def test_an_interrupted_run_ends_like_an_uninterrupted_one(case, whole, error, file):
    steps = 1 if case.is_fit else 2
    part = case.run(checkpoint=file, callbacks=StopAfter(steps, error))
    assert part.stop is (Stop.CALLBACK if error is None else Stop.INTERRUPTED)
    assert len(reported(part)) == steps
    assert all(bool(torch.isfinite(c).all()) for c in part.network.cores)
    assert math.isfinite(part.errors.total)
    assert_same(case.run(checkpoint=file), whole)
    assert_same(case.run(checkpoint=file), whole)  # nothing is left to do


def test_more_steps_go_on_from_a_checkpoint(case, whole, file):
    needs(case, "max_steps")
    assert case.run(checkpoint=file, max_steps=1).stop is Stop.MAX_STEPS
    assert_same(case.run(checkpoint=file), whole)


def test_a_checkpoint_of_other_data_is_refused(case, file):
    short = {} if case.is_fit else {"max_steps": 0}
    case.run(checkpoint=file, **short)
    content = file.read_bytes()
    with pytest.raises(tg.OptionError, match="belongs to another run"):
        case.run_other(checkpoint=file, **short)
    assert file.read_bytes() == content


def test_ctrl_c_before_there_is_a_network_comes_through(case):
    class Impatient(Recorder):
        def on_start(self, search) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        case.run(callbacks=Impatient())


def test_dims(whole, case):
    if case.kind == "relative":
        assert whole.structure.dims == SHAPE
