"""Tensor-network models as scikit-learn estimators. Needs the extra ``tensorgrow[learn]``."""

from .classifier import TNClassifier
from .imputer import TNImputer
from .regressor import TNRegressor

__all__ = ["TNClassifier", "TNImputer", "TNRegressor"]
