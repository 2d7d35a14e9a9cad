"""Tensor-network models as scikit-learn estimators. Needs the extra ``tensorgrow[learn]``."""

from .classifier import TNClassifier
from .regressor import TNRegressor

__all__ = ["TNClassifier", "TNRegressor"]
