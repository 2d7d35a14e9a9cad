from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import tensorgrow as tg

X = np.random.default_rng(0).standard_normal((4, 4, 4))


def run(callback, **limits):
    return tg.decompose(X, random_state=0, effort="fast", callbacks=callback, **limits)


def test_tensorboard_has_every_step(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = run(tg.tracking.TensorBoard(tmp_path), max_error=0.5)
    events = EventAccumulator(str(tmp_path)).Reload()
    errors = events.Scalars("tensorgrow/relative_error")
    assert [e.step for e in errors] == [s.index for s in result.history]
    assert np.allclose([e.value for e in errors], [s.relative_error for s in result.history])
    sizes = events.Scalars("tensorgrow/num_parameters")
    assert [e.value for e in sizes] == [s.num_parameters for s in result.history]
    assert "tensorgrow/validation_error" not in events.Tags()["scalars"]
    (text,) = events.Tensors("tensorgrow/stop/text_summary")
    assert text.tensor_proto.string_val == [b"TARGET_REACHED"]


def test_held_out_errors_are_tracked_too(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    rng = np.random.default_rng(0)
    x = np.einsum("i,j,k->ijk", *(rng.random(8) + 1 for _ in range(3)))
    mask, tracker = rng.random(x.shape) < 0.5, tg.tracking.TensorBoard(tmp_path)
    result = tg.complete(x, mask, callbacks=tracker, max_steps=2)
    events = EventAccumulator(str(tmp_path)).Reload()
    tracked = [e.value for e in events.Scalars("tensorgrow/validation_error")]
    assert np.allclose(tracked, [s.validation_error for s in result.history if s.kind != "refit"])


class Recorder(ModuleType):
    """The part of MLflow we call, writing down what it is told."""

    def __init__(self, active: bool) -> None:
        super().__init__("mlflow")
        self.active = active
        self.calls: list[tuple] = []
        for name in ("log_params", "log_metrics", "set_tags"):
            setattr(self, name, lambda values, step=None, name=name: self.calls.append((name, values, step)))

    def active_run(self):
        return SimpleNamespace() if self.active else None

    def start_run(self, run_name=None):
        self.calls.append(("start_run", run_name, None))

    def end_run(self):
        self.calls.append(("end_run", None, None))


def test_mlflow_gets_a_run_of_its_own(monkeypatch):
    mlflow = Recorder(active=False)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    result = run(tg.tracking.MLflow("first"), max_steps=2)
    names = [name for name, *_ in mlflow.calls]
    assert names == ["start_run", "log_params", *["log_metrics"] * len(result.history), "set_tags", "end_run"]
    assert mlflow.calls[0][1] == "first"
    assert mlflow.calls[1][1] == {"max_steps": 2}
    steps = [(values["num_parameters"], step) for name, values, step in mlflow.calls if name == "log_metrics"]
    assert steps == [(s.num_parameters, s.index) for s in result.history]
    tags = mlflow.calls[-2][1]
    assert tags["tensorgrow.stop"] == "LIMIT"
    assert tags["tensorgrow.structure"] == repr(result.structure)


def test_mlflow_uses_the_run_there_is(monkeypatch):
    mlflow = Recorder(active=True)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    run(tg.tracking.MLflow(), max_error=0.5)
    assert {"start_run", "end_run"}.isdisjoint(name for name, *_ in mlflow.calls)


@pytest.mark.filterwarnings("ignore")  # those of its store are not ours
def test_the_real_mlflow(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")  # mlflow-skinny comes without the store of this test
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    result = run(tg.tracking.MLflow("first"), max_error=0.5)
    assert mlflow.active_run() is None
    (logged,) = mlflow.search_runs(output_format="list")
    assert logged.data.tags["tensorgrow.stop"] == result.stop.name
    assert logged.data.params == {"max_error": "0.5"}
    history = mlflow.MlflowClient().get_metric_history(logged.info.run_id, "relative_error")
    assert [m.value for m in history] == [s.relative_error for s in result.history]


@pytest.mark.parametrize(
    "package, make",
    [
        ("torch.utils.tensorboard", lambda: tg.tracking.TensorBoard("somewhere")),
        ("mlflow", tg.tracking.MLflow),
    ],
)
def test_a_missing_tracker_names_the_extra(package, make, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(tg.MissingPackageError, match=rf"pip install .*\[{package.split('.')[-1]}\]"):
        make()
