"""What the estimators share: scikit-learn, its kinds of input and of random states."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..errors import MissingPackageError

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
    from sklearn.utils import check_array
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingPackageError(
        "tensorgrow's estimators need scikit-learn 1.6 or later: pip install 'tensorgrow[learn]'"
    ) from error

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "MultiOutputMixin",
    "RegressorMixin",
    "as_array",
    "as_seed",
    "check_array",
    "check_classification_targets",
    "check_is_fitted",
    "validate_data",
]


def as_array(data: Any) -> Any:
    """Tensors and nested lists as arrays; everything else is for scikit-learn to judge."""
    if isinstance(data, torch.Tensor):
        return data.detach().cpu().numpy()
    return np.asarray(data) if isinstance(data, list | tuple) else data


def as_seed(random_state: Any) -> Any:
    """A seed from the kinds of random state scikit-learn knows; others are for tensorgrow to judge."""
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(np.iinfo(np.int32).max))
    return random_state
