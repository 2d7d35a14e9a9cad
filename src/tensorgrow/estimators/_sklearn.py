"""What the estimators share: scikit-learn, its kinds of input and of random states."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch

from ..callbacks.base import Callbacks
from ..errors import MissingPackageError, OptionError, needs
from ..network import TensorNetwork
from ..results import Result
from ..search import Effort, GreedyOptions
from ..steps import Step
from ..structure import Edge, Structure

try:
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        MultiOutputMixin,
        RegressorMixin,
        TransformerMixin,
    )
    from sklearn.impute import MissingIndicator
    from sklearn.utils import check_array
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_feature_names_in as feature_names_in
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise MissingPackageError(
        needs("tensorgrow's estimators need scikit-learn 1.6 or later", "learn")
    ) from error

__all__ = [
    "ClassifierMixin",
    "MissingIndicator",
    "MultiOutputMixin",
    "NetworkEstimator",
    "RegressorMixin",
    "TransformerMixin",
    "as_array",
    "check_array",
    "check_classification_targets",
    "check_is_fitted",
    "feature_names_in",
    "fold_features",
]


def as_array(data: Any) -> Any:
    """Tensors and nested lists as arrays; everything else is for scikit-learn to judge."""
    if isinstance(data, torch.Tensor):
        return data.detach().cpu().numpy()
    return np.asarray(data) if isinstance(data, list | tuple) else data


def fold_features(dims: Sequence[int] | int, count: int) -> tuple[int, ...]:
    """Check a shape that `count` features are folded to."""
    sizes = tuple(dims) if isinstance(dims, Iterable) else (dims,)
    if not all(isinstance(d, Integral) and d > 0 for d in sizes):
        raise OptionError(f"dims={dims!r} must be positive whole numbers, such as (8, 8)")
    if math.prod(sizes) != count:
        raise OptionError(
            f"dims={sizes} has {math.prod(sizes)} entries, but a sample has {count} features; give dims with "
            "that product"
        )
    return tuple(int(d) for d in sizes)


class NetworkEstimator(BaseEstimator):  # type: ignore[misc]
    """What estimators with a learned network share.

    scikit-learn reads the parameters of an estimator from the signature of its own ``__init__``, so that each
    class lists them all.
    """

    max_parameters: int | None
    max_error: float | None
    max_steps: int | None
    max_seconds: float | None
    edges: str | Iterable[Edge]
    validation: Any
    effort: Effort
    device: torch.device | str | None
    dtype: Any
    random_state: Any
    progress: bool | None
    callbacks: Callbacks
    options: GreedyOptions | None

    network_: TensorNetwork
    result_: Result
    n_features_in_: int

    @property
    def structure_(self) -> Structure:
        """Structure of the learned network."""
        return self.network_.structure

    @property
    def history_(self) -> tuple[Step, ...]:
        """One `Step` per move of the search."""
        return self.result_.history

    def _store(self, arguments: Mapping[str, Any]) -> None:
        """Keep the arguments of ``__init__`` unchanged, as scikit-learn wants: ``self._store(locals())``."""
        for name, value in arguments.items():
            if name != "self":
                setattr(self, name, value)

    def _keywords(self) -> dict[str, Any]:
        """What all tasks behind estimators take: the parameters that are declared above."""
        shared = [name for name in NetworkEstimator.__annotations__ if not name.endswith("_")]
        keywords = {name: getattr(self, name) for name in shared}
        seed = self.random_state
        if isinstance(seed, np.random.RandomState):  # others are for tensorgrow to judge
            keywords["random_state"] = int(seed.randint(np.iinfo(np.int32).max))
        return keywords

    def _weights(self, sample_weight: Any, X: Any) -> Any:
        """Weights that scikit-learn accepts; None stays None."""
        if sample_weight is None:
            return None
        return _check_sample_weight(as_array(sample_weight), X, dtype=np.float64, ensure_non_negative=True)

    def _validate(self, X: Any, *y: Any, **how: Any) -> Any:
        """Arrays that scikit-learn accepts, of single or double precision."""
        data = [as_array(part) for part in (X, *y)]
        return validate_data(self, *data, dtype=[np.float64, np.float32], **how)
