"""Linear regression on tensors as a scikit-learn estimator."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import torch

from ..callbacks.base import Callbacks
from ..data.arrays import as_dtype
from ..data.holdout import HELD_OUT
from ..errors import DataError, OptionError
from ..search import Effort, GreedyOptions
from ..structure import Edge, Structure
from ..tasks.regress import regress
from ._sklearn import (
    MultiOutputMixin,
    NetworkEstimator,
    RegressorMixin,
    as_array,
    check_array,
    check_is_fitted,
    fold_features,
)


class TNRegressor(MultiOutputMixin, RegressorMixin, NetworkEstimator):  # type: ignore[misc]
    r"""Linear regression on tensors whose coefficient tensor is a learned network.

    .. math:: y_i = b + \langle X_i, W \rangle

    Structure, ranks and ridge of ``W`` are chosen by the error on held-out samples: ``W`` grows from rank one
    until that no longer falls. The chosen network is then fitted once more to all samples.

    Parameters
    ----------
    max_parameters, max_steps, max_seconds
        Limits of the size, the number of growths and the time.
    max_error
        Stop at this error on the held-out samples, relative to the norm of their (centred) responses.
    edges
        Edges that may grow: "all", "chain", "ring" or pairs of axes. With several responses the last leg is
        theirs.
    validation
        Samples to hold out: a share, a boolean mask of length n, or False for none; then only a limit says
        when to stop, and without one the network stays at rank one.
    fit_intercept
        Whether ``b`` is fitted; otherwise it is zero.
    ridge
        Weight of the penalty on every core, relative to its Gram matrix; by default held-out samples decide.
    effort
        "fast", "balanced" or "thorough".
    structure
        Fit this structure, over the axes of a sample (and the responses where there are several), instead of
        learning one.
    dims
        Shape that the features of a 2-D `X` are folded to, such as ``(8, 8)``: for pipelines whose steps
        work on matrices. Without it a 2-D `X` means coefficients of order one, which is ridge regression.
    device, dtype
        Where and in which precision to compute: float64 unless the data is float32.
    random_state
        Seed, NumPy or torch generator. With None the same samples are held out each time.
    progress, callbacks
        As for `tensorgrow.decompose`.
    options
        Everything rarer about the search; overrides what `effort` stands for. `ridge` goes first.

    Attributes
    ----------
    network_ : TensorNetwork
        The coefficients, of shape ``(d_1, ..., d_p)``; ``(d_1, ..., d_p, q)`` with ``q`` responses.
    intercept_ : float or ndarray
        One number, or ``q``.
    result_ : Result
        Errors, history, path and why the growth stopped.
    n_features_in_ : int
        Entries of a sample.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((200, 4, 5))
    >>> y = np.einsum("nij,i,j->n", x, np.arange(4.0), np.ones(5)) + 3.0
    >>> model = TNRegressor(random_state=0).fit(x, y)
    >>> model.structure_.num_parameters, round(model.score(x, y), 6)
    (9, 1.0)
    """

    structure: Structure | None
    fit_intercept: bool
    ridge: float | None
    dims: Sequence[int] | None

    intercept_: Any

    def __init__(
        self,
        max_parameters: int | None = None,
        max_error: float | None = None,
        max_steps: int | None = None,
        max_seconds: float | None = None,
        edges: Literal["all", "chain", "ring"] | Iterable[Edge] = "all",
        validation: Any = HELD_OUT,
        fit_intercept: bool = True,
        ridge: float | None = None,
        effort: Effort = "balanced",
        structure: Structure | None = None,
        dims: Sequence[int] | None = None,
        device: torch.device | str | None = None,
        dtype: Any = None,
        random_state: Any = None,
        progress: bool | None = False,
        callbacks: Callbacks = None,
        options: GreedyOptions | None = None,
    ) -> None:
        self._store(locals())

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TNRegressor:
        """Learn the coefficients.

        Parameters
        ----------
        X
            Samples, ``(n, d_1, ..., d_p)``, or ``(n, d)`` that `dims` folds.
        y
            Responses, ``(n,)`` or ``(n, q)``.
        sample_weight
            How much each sample counts; by default all the same. A sample of weight 2 counts as much as one
            that is listed twice. Only ratios matter.
        """
        x, y = self._validate(X, y, multi_output=True, y_numeric=True, allow_nd=True)
        dtype = as_dtype(self.dtype)
        if dtype is not None and dtype.is_complex:
            raise OptionError(
                f"dtype={self.dtype!r} is complex; scikit-learn's responses are real: use float64"
            )
        self._shape = self._fold(x)
        self._outputs = y.shape[1:]
        self.n_features_in_ = math.prod(self._shape)
        model = regress(
            x.reshape(len(x), *self._shape),
            y[:, 0] if self._outputs == (1,) else y,
            fit_intercept=self.fit_intercept,
            ridge=self.ridge,
            structure=self.structure,
            weights=self._weights(sample_weight, x),
            **self._keywords(),
        )
        self.result_ = model.result
        self.network_ = model.network
        intercept = model.intercept.cpu().numpy()
        self.intercept_ = intercept if self._outputs else float(intercept[0])
        return self

    def predict(self, X: Any) -> Any:
        """Responses of new samples."""
        check_is_fitted(self)
        x = as_array(X)
        if getattr(x, "ndim", 0) <= 2:
            x = self._validate(x, reset=False)
        else:  # the number of features is not the second axis, which scikit-learn would compare
            x = check_array(x, dtype=[np.float64, np.float32], allow_nd=True)
        if math.prod(x.shape[1:]) != self.n_features_in_ or (x.ndim > 2 and x.shape[1:] != self._shape):
            raise DataError(
                f"X has samples of shape {x.shape[1:]}, but {type(self).__name__} was fitted to samples of "
                f"shape {self._shape}; give the same"
            )
        coefficients = self.coef_.reshape(self.n_features_in_, -1)
        y = x.reshape(len(x), -1).astype(coefficients.dtype, copy=False) @ coefficients + self.intercept_
        return y if self._outputs else y[:, 0]

    @property
    def coef_(self) -> Any:
        """The coefficients as an array, computed at every access."""
        return self.network_.to_dense().cpu().numpy()

    # -- input -----------------------------------------------------------------------------------------

    def _fold(self, x: Any) -> tuple[int, ...]:
        """Shape of a sample as the network sees it."""
        shape = tuple(x.shape[1:])
        return shape if self.dims is None else fold_features(self.dims, math.prod(shape))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags
