"""A model trained epoch by epoch: the search behind `fine_tune`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...steps import StopReason
from .steps import GrowSearch


class EpochSearch(GrowSearch):
    """Epochs of one training, each a step that a checkpoint keeps; the first step is the model as it is.

    The optimiser's state and the place in the schedule go on from one epoch to the next, so that a run that
    is resumed ends as one that was never broken off.
    """

    uses = frozenset()

    @property
    def _phases(self) -> Mapping[str, Callable[[], None]]:
        return {"start": self._look, "epoch": self._train_epoch}

    def _look(self) -> None:
        self._load_model()
        score = self.problem.trainer.validate()
        self._note("start", loss=score, score=score, epochs=0)
        self.state.phase = "epoch"

    def _train_epoch(self) -> None:
        self._load_model()
        trainer, done = self.problem.trainer, len(self.state.steps) - 1
        if done >= trainer.options.epochs:
            self._end(StopReason.FINISHED)
            return
        self._train("epoch", None, None, epochs=1, options=trainer.options.after(done))
