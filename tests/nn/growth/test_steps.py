"""The search behind `grow`: listeners, pauses, checkpoints and what a broken move leaves."""

from __future__ import annotations

import sys
from collections.abc import Callable
from io import StringIO

import numpy as np
import pytest
import torch
from torch import nn

import tensorgrow as tg
from tensorgrow.nn.growth.batches import as_batches
from tensorgrow.nn.growth.candidates import GrowProblem
from tensorgrow.nn.growth.steps import GrowSearch
from tensorgrow.nn.growth.trainer import Trainer
from tensorgrow.nn.layer.tn_layer import tn_layers
from tensorgrow.search import EdgePolicy, Limits
from tests.callbacks.test_trackers import Recorder
from tests.nn.growth.models import OPTIONS, model, regression, run, same


def search(**limits) -> GrowSearch:
    net = model(nn.Dropout(0.2))
    kind = {"batch_size": 50, "device": torch.device("cpu"), "dtype": torch.float32}
    batches = [as_batches(pair, "data", **kind) for pair in regression()]
    trainer = Trainer(net, *batches, nn.functional.mse_loss, None, OPTIONS)
    options = tg.GreedyOptions(edge_score="drop")
    problem = GrowProblem(trainer, tn_layers(net), {"0": EdgePolicy(None)}, options, 5)
    return GrowSearch(problem, Limits(**limits), torch.Generator().manual_seed(1))


def scores(found: GrowSearch) -> list[float]:
    return [s.validation_error for s in found.state.steps]


def interrupt_at(call: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let a training be interrupted after its parameters have changed; returns what undoes that."""
    fit, calls = Trainer.fit, []

    def broken(self, *args, **more):
        done = fit(self, *args, **more)
        calls.append(args)
        if len(calls) == call:
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(Trainer, "fit", broken)
    return lambda: monkeypatch.setattr(Trainer, "fit", fit)


def test_a_pause_changes_nothing():
    whole, paused = search(max_steps=2), search(max_steps=2)
    list(whole)
    next(iter(paused))
    assert len(paused.state.steps) == 1
    list(paused)
    assert scores(paused) == scores(whole)
    assert paused.state.stop is tg.StopReason.MAX_STEPS
    assert paused.describe().startswith("0: Structure(")
    assert paused.best_size == paused.best_step.num_parameters


@pytest.mark.parametrize("call", [1, 4, 8])  # the first training, a candidate, a training after a growth
def test_a_move_that_is_broken_off_can_be_made_again(call, monkeypatch):
    whole, broken = search(max_steps=1), search(max_steps=1)
    list(whole)
    undo = interrupt_at(call, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        list(broken)
    undo()
    assert broken.has_answer == (call > 1)
    list(broken)
    assert scores(broken) == scores(whole)
    for one, two in zip(whole.model.state_dict().values(), broken.model.state_dict().values()):
        assert torch.equal(one, two)


def test_a_checkpoint_of_an_interrupted_run_is_resumed_to_the_same_result(tmp_path, monkeypatch):
    net, file = model(nn.Dropout(0.2)), tmp_path / "run.safetensors"
    whole = run(net)
    undo = interrupt_at(8, monkeypatch)
    broken = run(net, checkpoint=file)
    undo()
    assert broken.stop is tg.StopReason.INTERRUPTED
    assert len(broken.history) == 1
    assert same(run(net, checkpoint=file), whole)


def test_other_limits_continue_a_run_that_had_reached_its_own(tmp_path):
    file = tmp_path / "run.safetensors"
    reached = run(max_error=1e9, checkpoint=file)
    assert reached.stop is tg.StopReason.TARGET_REACHED
    assert len(reached.history) == 1
    assert same(run(checkpoint=file), run())
    with pytest.raises(tg.FileFormatError, match="holds a checkpoint"):
        tg.load(file)


def test_time_that_ends_while_candidates_are_tried_costs_no_random_numbers():
    growth = search(max_steps=1, max_seconds=3600)
    steps = iter(growth)
    next(steps)
    before = growth.context.generator.get_state()
    growth.context.deadline = 0.0
    assert list(steps) == []
    assert growth.state.stop is tg.StopReason.MAX_SECONDS
    assert growth.hit_limit
    assert torch.equal(growth.context.generator.get_state(), before)


def test_tensorboard_has_every_step(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = run(callbacks=tg.tracking.TensorBoard(tmp_path))
    events = EventAccumulator(str(tmp_path)).Reload()
    for name in ("loss", "validation_error", "num_parameters"):
        curve = events.Scalars(f"tensorgrow/{name}")
        assert [e.step for e in curve] == [0, 1, 2]
        assert np.allclose([e.value for e in curve], [getattr(s, name) for s in result.history])
    (text,) = events.Tensors("tensorgrow/structure/text_summary")
    assert text.tensor_proto.string_val[0].startswith(b"0: Structure(")


def test_mlflow_has_every_step(monkeypatch):
    recorder = Recorder(active=True)
    monkeypatch.setitem(sys.modules, "mlflow", recorder)
    result = run(callbacks=tg.tracking.MLflow())
    metrics = [(values, step) for name, values, step in recorder.calls if name == "log_metrics"]
    assert [step for _, step in metrics] == [0, 1, 2]
    assert [v["validation_error"] for v, _ in metrics] == [s.validation_error for s in result.history]
    assert ("log_params", {"max_steps": 2}, None) in recorder.calls


def test_the_live_line_shows_size_score_and_growth(monkeypatch):
    pytest.importorskip("rich")
    stream = StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    said = []
    monkeypatch.setattr(
        "tensorgrow.callbacks.progress.ProgressBar.say", lambda self, *text: said.append(text[0])
    )
    result = run(progress=True)
    assert len(said) == 3
    last = result.history[-1]
    assert said[-1].startswith(f"step 2: {last.num_parameters:,} parameters, best ")
    assert said[-1].endswith(f"held-out error {last.validation_error:.4g}, grow 0-2 of 0")


def test_nodes_are_split_where_that_saves_parameters():
    """A node that joins its neighbours by less than its ranks allow becomes two; growth goes on with them."""
    dims = {"in_dims": (2, 2, 2, 2), "out_dims": (2, 2, 2, 2)}
    layer = tg.nn.TNLinear(16, 16, random_state=0, **dims)
    structure = tg.Structure(layer.layout.dims, {(0, 3): 6, (1, 3): 6, (2, 3): 6})
    layer.network = tg.TensorNetwork.random(structure, random_state=0)
    with torch.no_grad():  # the fourth core: of rank two between two of its edges and the rest
        core = layer.cores[3]
        core.copy_((torch.randn(24, 2) @ torch.randn(2, 36)).reshape(core.shape))
    data = (torch.randn(40, 16), torch.randint(16, (40,)))
    options = tg.GreedyOptions(split_while_growing=True, split_threshold=0.01)
    training = tg.TrainingOptions(epochs=1, candidate_epochs=1, learning_rate=1e-5)
    result = tg.nn.grow(
        nn.Sequential(layer), data, data, max_steps=1, training=training, options=options, random_state=0
    )
    first, second = (step.structures["0"] for step in result.history)
    assert first.num_nodes == 4 and second.num_nodes == 5
    assert result.history[1].num_parameters < result.history[0].num_parameters
    again = tg.nn.grow(nn.Sequential(layer), data, data, max_steps=1, training=training, random_state=0)
    assert again.history[1].structures["0"].num_nodes == 4
