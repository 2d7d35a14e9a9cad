"""Classification on products of local features as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np
import torch

from ..callbacks.base import Callbacks
from ..data.features import FeatureMap, FeatureMapName
from ..errors import DataError
from ..objectives import logits
from ..search import Effort, GreedyOptions
from ..solvers import TrainingOptions
from ..structure import Edge, Structure
from ..tasks.classify import HELD_OUT, classify
from ._sklearn import ClassifierMixin, NetworkEstimator, check_classification_targets, check_is_fitted


class TNClassifier(ClassifierMixin, NetworkEstimator):  # type: ignore[misc]
    r"""A classifier whose weights over products of local features are a learned network.

    .. math:: f_c(x) = \sum_{i_1 \dots i_d} W_{i_1 \dots i_d c} \prod_j \phi_j(x_j)_{i_j}

    Every feature goes through a map to a short vector; the network ``W`` has a leg for each of them and one
    for the classes, whose probabilities are the softmax of ``f``. It starts as the linear classifier, ridge
    included, that cross-validation chooses, and grows along the gradient of the cross-entropy until that of
    held-out samples no longer falls. Where products do not help there, it stays linear. In the end it is
    fitted to all samples.

    Parameters
    ----------
    max_parameters, max_steps, max_seconds
        Limits of the size, the number of growths and the time.
    max_error
        Stop at this mean cross-entropy of the held-out samples.
    edges
        Edges that may grow: "all", "chain", "ring" or pairs of nodes; the classes have the last node. "auto"
        is all pairs for up to 16 features; beyond, the chain of the features with the classes in its middle.
    feature_map
        "polynomial": orthonormal polynomials of the standardised feature, the constant first; "linear":
        ``(1, z)``, the same of degree 1; "cosine": ``(cos(pi u / 2), sin(pi u / 2))`` with ``u`` the feature
        scaled to [0, 1] by its training range; or a function of samples ``(n, d)`` that returns ``(n, d,
        map_size)``. See `tensorgrow.data.features.FeatureMap`.
    map_size
        Length of the vectors. None: for "polynomial" 4 with up to 4 features, 3 with up to 8, else 2; for the
        other maps 2.
    validation
        Samples to hold out: a share (of every class, at least 20 samples or a fifth), a boolean mask of
        length n, or False for none; then only a limit says when to stop, and without one the first network
        is trained and does not grow.
    effort
        "fast", "balanced" or "thorough": how long networks are trained.
    structure
        Train this structure, over one leg per feature and one for the classes, instead of learning one.
    training
        Optimiser, learning rate, epochs; overrides what `effort` stands for.
    device, dtype
        Where and in which precision to compute; by default in float32.
    random_state
        Seed, NumPy or torch generator. With None the same samples are held out each time.
    progress, callbacks
        As for `tensorgrow.decompose`.
    options
        Everything rarer about the search; overrides what `effort` stands for.

    Attributes
    ----------
    classes_ : ndarray
        The labels.
    network_ : TensorNetwork
        The weights, over ``features_(X)``.
    features_ : FeatureMap
        The fitted local map: samples ``(n, d)`` to vectors ``(n, d, map_size)``.
    result_ : Result
        Cross-entropies, history, path and why the growth stopped.
    n_features_in_ : int
        Features of a sample.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    >>> y = np.where(x[:, 0] * x[:, 1] > 0, "same", "opposite")  # no linear classifier can tell
    >>> model = TNClassifier(random_state=0, effort="fast").fit(x, y)
    >>> model.score(x, y) > 0.9
    True
    """

    feature_map: FeatureMapName | Callable[[Any], Any]
    map_size: int | None
    structure: Structure | None
    training: TrainingOptions | None

    classes_: Any
    features_: FeatureMap

    def __init__(
        self,
        max_parameters: int | None = None,
        max_error: float | None = None,
        max_steps: int | None = None,
        max_seconds: float | None = None,
        edges: Literal["auto", "all", "chain", "ring"] | Iterable[Edge] = "auto",
        feature_map: FeatureMapName | Callable[[Any], Any] = "polynomial",
        map_size: int | None = None,
        validation: Any = HELD_OUT,
        effort: Effort = "balanced",
        structure: Structure | None = None,
        training: TrainingOptions | None = None,
        device: torch.device | str | None = None,
        dtype: Any = None,
        random_state: Any = None,
        progress: bool | None = False,
        callbacks: Callbacks = None,
        options: GreedyOptions | None = None,
    ) -> None:
        self._store(locals())

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TNClassifier:
        """Learn the weights from samples ``(n, d)`` and labels ``(n,)``, which may be numbers or strings.

        A sample of `sample_weight` 2 counts as much as one that is listed twice; by default all count the
        same. Only ratios matter.
        """
        x, y = self._validate(X, y)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            only = self.classes_.tolist()[0]  # not a scalar of NumPy, which says so
            raise DataError(f"y has one class, {only!r}; a classifier needs at least 2 classes")
        model = classify(
            x,
            labels.reshape(-1),
            len(self.classes_),
            feature_map=self.feature_map,
            map_size=self.map_size,
            training=self.training,
            structure=self.structure,
            weights=self._weights(sample_weight, x),
            **self._keywords(),
        )
        self.result_ = model.result
        self.network_ = model.network
        self.features_ = model.features
        return self

    def predict(self, X: Any) -> Any:
        """The most probable labels."""
        best = self._logits(X).argmax(1).cpu().numpy()
        return self.classes_[best]

    def predict_proba(self, X: Any) -> Any:
        """Probabilities of the classes, ``(n, classes)``, in the order of `classes_`."""
        return self._logits(X).softmax(1).cpu().numpy()

    def predict_log_proba(self, X: Any) -> Any:
        """Their logarithms."""
        return self._logits(X).log_softmax(1).cpu().numpy()

    def decision_function(self, X: Any) -> Any:
        """Values ``f_c(x)``; for two classes the difference of the second and the first."""
        values = self._logits(X).cpu().numpy()
        return values[:, 1] - values[:, 0] if len(self.classes_) == 2 else values

    def _logits(self, X: Any) -> torch.Tensor:
        check_is_fitted(self)
        x = self._validate(X, reset=False)
        # In double precision, whatever the cores were trained in: softmax sums to one to the last digit, and
        # the answer for a sample does not depend on those beside it.
        network = self.network_.to(dtype=torch.float64)
        return logits(network, self.features_(x).to(network.device))
