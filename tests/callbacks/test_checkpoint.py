from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TextIO

import numpy as np
import pytest
import torch

import tensorgrow as tg
from tensorgrow import GreedyOptions, Structure
from tensorgrow import StopReason as Stop
from tensorgrow.files import read_file
from tests.oracles import random_network
from tests.storage import file_size_limit
from tests.warm import start

RING = Structure.tensor_ring((5,) * 4, 2)


def ring(dtype: torch.dtype = torch.float64, noise: float = 0.0) -> np.ndarray:
    x = random_network(RING, 1, dtype).to_dense().numpy()
    rest = np.random.default_rng(0).standard_normal(x.shape)
    return x / np.linalg.norm(x) + noise * rest / np.linalg.norm(rest)


# Each covers other phases of a run: growth, pruning, trees, later starts, regrowth, budgets.
RUNS = {
    "exact": (ring(), {"max_error": 1e-6}),
    "complex": (ring(torch.complex128), {"max_error": 1e-6}),
    "noisy": (ring(noise=0.3), {"max_error": 0.25, "max_steps": 25}),
    "fast": (ring(noise=0.3), {"max_error": 0.22, "effort": "fast"}),
    "budget": (ring(noise=0.3), {"max_parameters": 90}),
    "random slices": (
        ring(noise=0.3),
        {"max_error": 0.3, "options": GreedyOptions.paper().replace(split_while_growing=False)},
    ),
    "regrow": (ring(noise=0.3), {"max_error": 0.28, "options": GreedyOptions(regrow_cycles=4, starts=1)}),
    "regrow budget": (ring(noise=0.3), {"max_parameters": 70, "options": GreedyOptions(regrow_cycles=4)}),
    "single": (ring(noise=0.3).astype(np.float32), {"max_error": 0.3, "effort": "fast"}),
}


@pytest.fixture(scope="module", params=RUNS)
def run(request):
    x, options = RUNS[request.param]
    options = {"random_state": 3, **options}
    return x, options, tg.decompose(x, **options)


def assert_same(a: tg.Result, b: tg.Result) -> None:
    assert a.structure == b.structure
    assert a.relative_error == pytest.approx(b.relative_error, rel=1e-9, abs=1e-12)
    assert a.stop is b.stop
    moves = [[(s.index, s.kind, s.edge, s.start, s.structure) for s in r.history] for r in (a, b)]
    assert moves[0] == moves[1]
    assert [p.network.structure for p in a.path] == [p.network.structure for p in b.path]


class StopAfter:
    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self, step: tg.Step) -> bool:
        self.left -= 1
        return self.left <= 0


def test_interrupted_runs_end_like_uninterrupted_ones(run, tmp_path):
    x, options, whole = run
    steps = len(whole.history)
    for k in sorted({1, 2, steps // 2, steps - 1} - {0}):
        file = tmp_path / f"{k}.ckpt"
        part = tg.decompose(x, checkpoint=file, callbacks=StopAfter(k), **options)
        assert part.stop is Stop.CALLBACK
        assert len(part.history) == k
        # Another seed: the one in the file counts.
        rest = tg.decompose(x, checkpoint=file, **(options | {"random_state": 99}))
        assert_same(rest, whole)


def test_stopping_after_every_step(run, tmp_path):
    x, options, whole = run
    file = tmp_path / "run.ckpt"
    for k in range(1, len(whole.history) + 1):
        part = tg.decompose(x, checkpoint=file, callbacks=lambda step: True, **options)
        assert part.stop is Stop.CALLBACK
        assert len(part.history) == k
    assert_same(tg.decompose(x, checkpoint=file, **options), whole)
    assert [f.name for f in tmp_path.iterdir()] == ["run.ckpt"]  # nothing temporary is left behind


def test_finished_runs_return_at_once(run, tmp_path):
    x, options, whole = run
    file = tmp_path / "run.ckpt"
    tg.decompose(x, checkpoint=file, **options)
    seen = []
    again = tg.decompose(x, checkpoint=file, callbacks=seen.append, **options)
    assert seen == []
    assert_same(again, whole)
    assert all(torch.equal(a, b) for a, b in zip(again.network.cores, whole.network.cores))


def test_runs_that_met_max_steps_go_on(tmp_path):
    x = ring(noise=0.3)
    whole = tg.decompose(x, max_error=0.28, random_state=3)
    file = tmp_path / "run.ckpt"
    for steps in (0, 2, 3):
        part = tg.decompose(x, max_error=0.28, random_state=3, checkpoint=file, max_steps=steps)
        assert part.stop is Stop.MAX_STEPS
        assert len(part.history) == 1 + steps
    assert_same(tg.decompose(x, max_error=0.28, random_state=3, checkpoint=file), whole)


def test_runs_that_met_max_seconds_go_on(tmp_path):
    x = ring(noise=0.3)
    file = tmp_path / "run.ckpt"
    part = tg.decompose(x, max_error=0.28, random_state=3, checkpoint=file, max_seconds=0)
    assert part.stop is Stop.MAX_SECONDS
    rest = tg.decompose(x, max_error=0.28, random_state=3, checkpoint=file)
    assert rest.history[0] == part.history[0]
    assert rest.stop is Stop.TARGET_REACHED
    assert rest.relative_error <= 0.28


@pytest.mark.parametrize("when", [1, 4])
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_errors_between_steps_leave_a_good_checkpoint(tmp_path, error, when):
    x = ring(noise=0.3)
    whole = tg.decompose(x, max_error=0.28, random_state=3)
    file = tmp_path / "run.ckpt"

    def fail(step):
        if step.index == when:
            raise error("now")

    if error is KeyboardInterrupt:
        part = tg.decompose(x, max_error=0.28, random_state=3, checkpoint=file, callbacks=fail)
        assert part.stop is Stop.INTERRUPTED
        assert part.relative_error == pytest.approx(part.history[when].relative_error)
    else:
        with pytest.raises(RuntimeError, match="now"):
            tg.decompose(x, max_error=0.28, random_state=3, checkpoint=file, callbacks=fail)
    assert_same(tg.decompose(x, max_error=0.28, random_state=3, checkpoint=file), whole)


@pytest.mark.parametrize("when", [8, 20, 33])
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_errors_in_the_middle_of_a_step_leave_a_good_checkpoint(tmp_path, error, when):
    """The random numbers of the broken step must not be lost."""
    x = ring(noise=0.3)
    calls = 0
    fail_at = None

    def score(before, after, added):
        nonlocal calls
        calls += 1
        if calls == fail_at:
            raise error("now")
        return (before - after) / added

    options = {
        "options": GreedyOptions(edge_score=score, slice_init="random", starts=1),
        "max_error": 0.26,
        "random_state": 3,
    }
    whole = tg.decompose(x, **options)
    assert calls > when
    calls, fail_at = 0, when
    file = tmp_path / "run.ckpt"
    if error is KeyboardInterrupt:
        assert tg.decompose(x, checkpoint=file, **options).stop is Stop.INTERRUPTED
    else:
        with pytest.raises(RuntimeError, match="now"):
            tg.decompose(x, checkpoint=file, **options)
    fail_at = None
    assert_same(tg.decompose(x, checkpoint=file, **options), whole)


def test_time_goes_on_where_it_was(tmp_path):
    x = ring(noise=0.3)
    file = tmp_path / "run.ckpt"
    part = tg.decompose(x, max_error=0.28, random_state=3, checkpoint=file, callbacks=StopAfter(3))
    time.sleep(0.3)
    rest = tg.decompose(x, max_error=0.28, random_state=3, checkpoint=file)
    seconds = [s.seconds for s in rest.history]
    assert seconds == sorted(seconds)
    assert seconds[:3] == [s.seconds for s in part.history]
    assert seconds[3] >= seconds[2]


def test_init_with_checkpoint(tmp_path):
    x = ring(noise=0.3)
    init = random_network(Structure.tensor_train(x.shape, 2), 0)
    options = {"max_error": 0.3, "init": init, "random_state": 1}
    whole = tg.decompose(x, **options)
    file = tmp_path / "run.ckpt"
    tg.decompose(x, checkpoint=file, callbacks=StopAfter(1), **options)
    assert_same(tg.decompose(x, checkpoint=file, **options), whole)


def test_a_file_of_a_run_with_other_options_names_those_that_differ(tmp_path):
    x, file = ring(noise=0.3), tmp_path / "run.ckpt"
    tg.decompose(x, max_error=0.3, checkpoint=file, callbacks=StopAfter(1))
    expected = r"its options is {'sweeps': 30, 'prune': True}, here it is {'sweeps': 7, 'prune': False}\. Use"
    with pytest.raises(tg.OptionError, match=expected):
        tg.decompose(x, max_error=0.3, checkpoint=file, options=GreedyOptions(sweeps=7, prune=False))


# -- other processes ---------------------------------------------------------------------------------------


def decompose_and_tell(data: str, options: dict) -> None:
    """Say when it has made the step `say`, and at the end what came out."""
    torch.set_num_threads(1)
    say = options.pop("say", None)

    def tell(step):
        if step.index == say:
            print("ready", flush=True)

    x = np.load(data)
    r = tg.decompose(x, callbacks=tell, progress=False, **options)
    error = float(np.linalg.norm(x - r.network.to_dense().numpy()) / np.linalg.norm(x))
    kinds = [s.kind for s in r.history]
    found = {"error": r.relative_error, "true": error, "stop": r.stop.name, "kinds": kinds}
    print(json.dumps({"structure": r.structure.to_dict(), **found}))


@contextmanager
def child(data: Path, **options) -> Iterator[tuple[BaseProcess, TextIO]]:
    """A process of its own, and what it prints."""
    reader, writer = os.pipe()
    process = start(decompose_and_tell, str(data), options, folder=data.parent, out=writer)
    os.close(writer)
    with open(reader) as printed:
        try:
            yield process, printed
        finally:
            process.kill()
            process.join()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_killed_runs_end_like_uninterrupted_ones(tmp_path):
    x = ring(noise=0.3)
    data, file = tmp_path / "x.npy", tmp_path / "run.ckpt"
    np.save(data, x)
    options = {"max_error": 0.2, "random_state": 3}
    whole = tg.decompose(x, **options)

    kills, steps = 0, []
    for delay in (0.0, 0.05, 0.02, 0.4):
        before = file.stat().st_mtime_ns if file.exists() else None
        with child(data, checkpoint=str(file), **options) as (process, _):
            # Killed a little after it has written a checkpoint of its own.
            while process.is_alive():
                if file.exists() and file.stat().st_mtime_ns != before:
                    time.sleep(delay)
                    break
                time.sleep(0.002)
        kills += process.exitcode == -signal.SIGKILL
        # Whatever the moment, the file is a whole checkpoint.
        header, _ = read_file(file, ("checkpoint",))
        steps.append(len(header["state"]["steps"]))
        if process.exitcode == 0:
            break
    assert kills >= 2
    assert steps == sorted(steps)
    assert 0 < steps[0] < len(whole.history)

    with child(data, checkpoint=str(file), **options) as (process, printed):
        out = printed.read()
        process.join()
    assert sorted(os.listdir(tmp_path)) == ["run.ckpt", "x.npy"]  # no temporary file of any of them
    assert process.exitcode == 0, out
    report = json.loads(out.splitlines()[-1])
    assert Structure.from_dict(report["structure"]) == whole.structure
    assert report["error"] == pytest.approx(whole.relative_error, rel=1e-9, abs=1e-12)
    assert report["true"] == pytest.approx(report["error"], rel=1e-9)
    assert report["kinds"] == [s.kind for s in whole.history]
    assert report["stop"] == whole.stop.name


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_returns_the_best_so_far(tmp_path):
    x = np.random.default_rng(0).standard_normal((5,) * 5)
    data, file = tmp_path / "x.npy", tmp_path / "run.ckpt"
    np.save(data, x)
    options = {"max_error": 1e-3, "random_state": 0, "checkpoint": str(file), "say": 3}
    with child(data, **options) as (process, printed):
        assert printed.readline().strip() == "ready"
        os.kill(process.pid, signal.SIGINT)
        out = printed.read()
        process.join()
    assert process.exitcode == 0, out
    report = json.loads(out.splitlines()[-1])
    assert report["stop"] == "INTERRUPTED"
    assert report["true"] == pytest.approx(report["error"], rel=1e-9)
    assert 1e-3 < report["error"] < 1
    assert len(report["kinds"]) >= 4
    header, _ = read_file(file, ("checkpoint",))
    assert header["state"]["stop"] is None  # the run can go on
    assert len(header["state"]["steps"]) == len(report["kinds"])


def test_more_time_goes_on_from_a_checkpoint_that_had_reached_its_target(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 4, 4, 4)).cumsum(0).cumsum(1)
    file = tmp_path / "run.safetensors"
    run = {"max_error": 0.1, "options": tg.GreedyOptions.for_effort("thorough"), "random_state": 0}
    # Enough to reach the target on a busy machine, too.
    seconds = 1 + 3 * tg.decompose(x, max_error=0.1, random_state=0).info["seconds"]
    first = tg.decompose(x, **run, max_seconds=seconds, checkpoint=file)
    again = tg.decompose(x, **run, max_seconds=2 * seconds, checkpoint=file)
    assert first.stop is again.stop is tg.StopReason.TARGET_REACHED
    assert again.info["seconds"] > first.info["seconds"]
    assert again.num_parameters <= first.num_parameters


# -- files that cannot be written --------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="limits of files")
@pytest.mark.parametrize("written_before", [True, False])
def test_a_full_disk_does_not_end_a_run(tmp_path, written_before):
    x, file, options = ring(noise=0.3), tmp_path / "run.ckpt", {"max_error": 0.28, "random_state": 3}
    whole = tg.decompose(x, **options)
    before = b""
    if written_before:
        tg.decompose(x, checkpoint=file, callbacks=StopAfter(1), **options)
        before = file.read_bytes()
    with file_size_limit(1000), pytest.warns(tg.DataWarning) as caught:
        result = tg.decompose(x, checkpoint=file, **options)
    assert_same(result, whole)
    said = [str(w.message) for w in caught if "checkpoint" in str(w.message)]
    assert len(said) == 2
    assert f"cannot write {file}: " in said[0]
    assert said[0].endswith("the run goes on, and tries to write it again")
    assert "cannot be resumed from where it ended; its result is not affected" in said[1]
    assert os.listdir(tmp_path) == (["run.ckpt"] if written_before else [])
    if written_before:
        assert file.read_bytes() == before  # the last good one, from which the run can still be resumed
    assert_same(tg.decompose(x, checkpoint=file, **options), whole)


@pytest.mark.skipif(sys.platform == "win32", reason="limits of files")
def test_a_checkpoint_is_written_again_when_there_is_room(tmp_path):
    x, file = ring(noise=0.3), tmp_path / "run.ckpt"
    limit = file_size_limit(1000)
    limit.__enter__()

    def make_room(step):
        if step.index == 3:
            limit.__exit__(None, None, None)

    with pytest.warns(tg.DataWarning, match="tries to write it again") as caught:
        whole = tg.decompose(x, max_error=0.28, random_state=3, checkpoint=file, callbacks=make_room)
    assert len(caught) == 1
    assert_same(tg.decompose(x, max_error=0.28, random_state=3, checkpoint=file), whole)


def test_a_checkpoint_in_a_folder_that_does_not_exist_is_refused_at_once(tmp_path):
    steps = []
    with pytest.raises(FileNotFoundError, match=r"folder .*nowhere does not exist"):
        tg.decompose(ring(), max_error=0.1, checkpoint=tmp_path / "nowhere" / "run", callbacks=steps.append)
    assert steps == []
