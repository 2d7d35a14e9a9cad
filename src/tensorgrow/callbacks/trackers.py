"""Callbacks that send every step to an experiment tracker: TensorBoard or MLflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import import_package
from ..search import AnySearch
from ..steps import Record

__all__ = ["MLflow", "TensorBoard"]


def _ending(search: AnySearch) -> dict[str, str]:
    """The stop reason and the structure, once a run is over."""
    stop = search.state.stop
    # A run that can be resumed has no stop reason yet: it ran out of steps or time, or was interrupted.
    unfinished = "LIMIT" if search.hit_limit else "INTERRUPTED"
    return {"stop": unfinished if stop is None else stop.name, "structure": search.describe()}


class TensorBoard:
    """Curves of error, size and time in TensorBoard.

    Parameters
    ----------
    log_dir
        Folder of the run; ``tensorboard --logdir`` on its parent shows several runs side by side.

    Examples
    --------
    ``tg.decompose(x, max_error=0.1, callbacks=tg.tracking.TensorBoard("runs/first"))``
    """

    def __init__(self, log_dir: str | Path) -> None:
        what = "tracking.TensorBoard needs tensorboard"
        self._class = import_package("torch.utils.tensorboard", what, "tensorboard").SummaryWriter
        self._log_dir = str(log_dir)
        self._writer: Any = None

    def on_start(self, search: AnySearch) -> None:
        self._writer = self._class(self._log_dir)

    def on_step(self, search: AnySearch, step: Record) -> bool | None:
        for name, value in step.metrics().items():
            self._writer.add_scalar(f"tensorgrow/{name}", value, step.index)
        return None

    def on_end(self, search: AnySearch) -> None:
        for name, text in _ending(search).items():
            self._writer.add_text(f"tensorgrow/{name}", text)
        self._writer.close()


class MLflow:
    """Metrics, limits and the outcome as a run of MLflow.

    Inside ``with mlflow.start_run():`` it logs to that run; otherwise it makes one and ends it.

    Parameters
    ----------
    run_name
        Name of the run it makes.
    """

    def __init__(self, run_name: str | None = None) -> None:
        self._mlflow = import_package("mlflow", "tracking.MLflow needs mlflow", "mlflow")
        self._run_name = run_name
        self._owns_run = False

    def on_start(self, search: AnySearch) -> None:
        self._owns_run = self._mlflow.active_run() is None
        if self._owns_run:
            self._mlflow.start_run(run_name=self._run_name)
        limits = vars(search.limits).items()
        self._mlflow.log_params({k: v for k, v in limits if k.startswith("max_") and v is not None})

    def on_step(self, search: AnySearch, step: Record) -> bool | None:
        self._mlflow.log_metrics(step.metrics(), step=step.index)
        return None

    def on_end(self, search: AnySearch) -> None:
        self._mlflow.set_tags({f"tensorgrow.{name}": text for name, text in _ending(search).items()})
        if self._owns_run:
            self._mlflow.end_run()
