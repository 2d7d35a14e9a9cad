"""Missing values of a table, filled in by a scikit-learn transformer."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import torch

from ..callbacks.base import Callbacks
from ..data.holdout import AUTO
from ..errors import DataError, DataWarning
from ..search import Effort, GreedyOptions
from ..structure import Edge
from ..tasks.complete import complete
from ._sklearn import (
    MissingIndicator,
    NetworkEstimator,
    TransformerMixin,
    check_is_fitted,
    feature_names_in,
    fold_features,
)
from .row_model import RowModel

# Columns per rank that a step of growth adds.
COLUMNS_PER_RANK = 16


class TNImputer(TransformerMixin, NetworkEstimator):  # type: ignore[misc]
    r"""Fills in missing values by what a learned network says of the rows and columns.

    The table, its columns standardised, is completed by a network with a leg for the rows and one for the
    columns, or several (`dims`), whose structure, ranks and ridge are chosen by the error on held-out values.
    Without the node of the rows, that network is the loadings of a factor model,

    .. math:: x_{ij} = m_j + s_j \Bigl(\sum_a w_{ia} A_{aj} + \varepsilon_{ij}\Bigr),

    and missing values are their expectation given the known values of the same row. Rows that were not seen
    in `fit` are filled in like all others; a row of which nothing is known gets the means of the columns.
    Where held-out values are predicted no better than by these means, they are used everywhere.

    Parameters
    ----------
    missing_values
        What stands for a missing value: NaN, or a number.
    dims
        Shape that the columns are folded to, such as ``(24, 7)`` for hours and days of a week. By default
        they are one axis, and the network is a matrix of low rank.
    add_indicator
        Whether to append columns that say where values were missing, as ``MissingIndicator`` does.
    keep_empty_features
        Whether columns without any value in `fit` are kept, as zeros; otherwise they are left out.
    max_parameters, max_steps, max_seconds
        Limits of the size, the number of growths and the time.
    max_error
        Stop at this error on the held-out values, relative to that of the means.
    edges
        Edges that may grow: "all", "chain", "ring" or pairs of axes; the rows are axis 0.
    validation
        Known values to hold out: "auto" or a share, as for `tensorgrow.complete`, or False for none; then
        only a limit says when to stop.
    effort
        "fast", "balanced" or "thorough".
    device, dtype
        Where and in which precision the network is fitted.
    random_state
        Seed, NumPy or torch generator. With None the same values are held out each time.
    progress, callbacks
        As for `tensorgrow.decompose`.
    options
        Everything rarer about the search; overrides what `effort` stands for.

    Attributes
    ----------
    statistics_ : ndarray
        Means of the columns; NaN where there is no value.
    network_ : TensorNetwork
        The completed, standardised table: ``(rows, columns)`` or ``(rows, *dims)``.
    result_ : Result
        Errors, history, path and why the growth stopped.
    indicator_ : MissingIndicator or None
        What `add_indicator` uses.
    n_features_in_ : int
        Columns.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.outer(np.arange(1.0, 31.0), [1.0, 2.0, -1.0, 0.5])
    >>> x[np.random.default_rng(0).random(x.shape) < 0.2] = np.nan
    >>> model = TNImputer().fit(x)
    >>> np.round(model.transform([[np.nan, 20.0, -10.0, np.nan]]), 1)
    array([[ 10.,  20., -10.,   5.]])
    """

    missing_values: Any
    dims: Sequence[int] | None
    add_indicator: bool
    keep_empty_features: bool

    statistics_: Any
    indicator_: Any

    def __init__(
        self,
        missing_values: Any = np.nan,
        dims: Sequence[int] | None = None,
        add_indicator: bool = False,
        keep_empty_features: bool = False,
        max_parameters: int | None = None,
        max_error: float | None = None,
        max_steps: int | None = None,
        max_seconds: float | None = None,
        edges: Literal["all", "chain", "ring"] | Iterable[Edge] = "all",
        validation: Any = AUTO,
        effort: Effort = "fast",
        device: torch.device | str | None = None,
        dtype: Any = None,
        random_state: Any = None,
        progress: bool | None = False,
        callbacks: Callbacks = None,
        options: GreedyOptions | None = None,
    ) -> None:
        self._store(locals())

    def fit(self, X: Any, y: Any = None) -> TNImputer:
        """Learn the network from a table ``(n, d)`` with missing values; `y` is ignored."""
        x = self._table(X, reset=True)
        known = self._known(x)
        shape = (x.shape[1],) if self.dims is None else fold_features(self.dims, x.shape[1])
        self._has_values = known.any(0)
        if not known.any():
            raise DataError(f"all {x.size} values of X are missing; at least one is needed")
        self.indicator_ = None
        if self.add_indicator:
            self.indicator_ = MissingIndicator(missing_values=self.missing_values, error_on_new=False).fit(x)
        self._standardise(x.astype(np.float64), known)
        if self.dims is None:  # a column without values has nothing to do with the others
            shape = (int(self._has_values.sum()),)
        self._fit_rows(*self._rows(x, known), shape)
        return self

    def transform(self, X: Any) -> Any:
        """Fill in what is missing; known values stay as they are."""
        check_is_fitted(self)
        x = self._table(X, reset=False)
        known = self._known(x)
        expected = np.zeros(x.shape)
        values, seen = self._rows(x, known)
        rows = self._model.expect(values, seen).numpy()
        if self.dims is None:
            expected[:, self._has_values] = rows
        else:
            expected[:] = rows
        expected = self._means + self._deviations * expected
        filled = np.where(known, x, expected.astype(x.dtype))
        empty = ~self._has_values
        filled[:, empty] = 0.0
        filled = filled if self.keep_empty_features else filled[:, ~empty]
        if self.indicator_ is None:
            return filled
        return np.hstack([filled, self.indicator_.transform(x).astype(x.dtype)])

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Names of the columns of the output, those of the indicator last."""
        check_is_fitted(self)
        names = feature_names_in(self, input_features)
        kept = names if self.keep_empty_features else names[self._has_values]
        if self.indicator_ is None:
            return kept
        return np.concatenate([kept, self.indicator_.get_feature_names_out(names)])

    # -- input -----------------------------------------------------------------------------------------

    @property
    def _marks_nan(self) -> bool:
        return isinstance(self.missing_values, float | np.floating) and math.isnan(self.missing_values)

    def _table(self, X: Any, *, reset: bool) -> Any:
        return self._validate(X, reset=reset, ensure_all_finite="allow-nan" if self._marks_nan else True)

    def _known(self, x: Any) -> Any:
        return ~np.isnan(x) if self._marks_nan else x != self.missing_values

    def _standardise(self, x: Any, known: Any) -> None:
        """Means and standard deviations of the known values; in units that neither overflow nor vanish."""
        largest = np.where(known, np.abs(x), 0.0).max(0)
        unit = np.ldexp(1.0, np.frexp(largest)[1])
        values, counts = np.where(known, x / unit, 0.0), np.maximum(known.sum(0), 1)
        mean = values.sum(0) / counts
        deviation = np.sqrt((np.where(known, values - mean, 0.0) ** 2).sum(0) / counts)
        # What is left of a constant column is rounding.
        self._deviations = unit * np.where(deviation <= 1e-12, 1.0, deviation)
        self._means = unit * mean
        self.statistics_ = np.where(self._has_values, self._means, np.nan)

    def _rows(self, x: Any, known: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Standardised rows, zero where nothing is known, and what is; folded columns may be empty ones."""
        seen = known & self._has_values
        values = np.where(seen, (x.astype(np.float64) - self._means) / self._deviations, 0.0)
        if self.dims is None:
            values, seen = values[:, self._has_values], seen[:, self._has_values]
        return torch.from_numpy(values), torch.from_numpy(seen)

    def _fit_rows(self, values: torch.Tensor, known: torch.Tensor, shape: tuple[int, ...]) -> None:
        used = known.any(1)
        values, known = values[used], known[used]
        keywords = self._keywords()
        if self.options is None and len(shape) == 1:
            # One edge: there is nothing to look ahead for. And the model of the rows shrinks what a rank too
            # many adds: coarse steps, and nothing is pruned.
            keywords["options"] = GreedyOptions.for_completion(self.effort).replace(
                rank_increment=max(1, shape[0] // COLUMNS_PER_RANK), lookahead=1, prune=False
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # gaps are what this is for
            self.result_ = complete(values.reshape(-1, *shape), known.reshape(-1, *shape), **keywords)
        self.network_ = self.result_.network
        self._model = RowModel.means(values.shape[1])
        if self._beats_the_means:
            error = self.result_.validation_error or 0.0
            self._model = RowModel.of(self.network_, values, known, error)

    @property
    def _beats_the_means(self) -> bool:
        """Whether held-out values are predicted better than by zero, by a standard error."""
        error, held_out = self.result_.validation_error, self.result_.info.get("num_held_out", 0)
        if error is None:
            return not self.validation
        return error < 1.0 - 1.0 / math.sqrt(2.0 * max(held_out, 1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._marks_nan
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
