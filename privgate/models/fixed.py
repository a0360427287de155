"""First steps of a pipeline that learn nothing: what they make of a record depends on the declared domain alone.

scikit-learn's ``StandardScaler`` and ``OneHotEncoder`` read means, spreads and categories off the training data, so
that leaving a person out changes everybody's features. With these two in their place only the last step is trained, and
its closed form and its theorem speak about the whole pipeline.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.models.classifier import Settings
from privgate.subject.accepted_questions import is_missing
from privgate.subject.domain import Column, list_columns, split_columns


class Fixed(Settings):
    """A transformer that knows its columns from the declared domain; ``fit`` checks, and learns nothing."""

    domain: Any

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find each column of ``X`` in the domain; ``ValueError``: it is not declared, or as something else."""
        del y
        columns, (names, _), framed = list_columns(self.domain), split_columns(X[:0]), hasattr(X, "columns")
        if not framed and len(columns) != len(names):
            raise ValueError(f"X is an array of {len(names)} columns, the domain declares {len(columns)}; pass a frame")
        declared: dict[Any, Column] = {c.name: c for c in columns} if framed else dict(enumerate(columns))
        for name in names:
            if name not in declared:
                raise ValueError(f"column {name!r} is not in the declared domain; it has {list(declared)}")
            if problem := self._refuse(declared[name]):
                raise ValueError(f"column {name!r} {problem}")
        self.columns_ = tuple(declared[name] for name in names)
        self.n_features_in_ = len(names)
        if framed:
            self.feature_names_in_ = np.array(names, dtype=object)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Float:
        """Return what ``fit`` and then ``transform`` do."""
        return self.fit(X, y).transform(X)

    def transform(self, X: Any) -> Float:
        """Return numbers between 0 and 1; ``ValueError``: other columns than those of ``fit``, or values missing."""
        names, values = split_columns(X)
        renamed = hasattr(self, "feature_names_in_") and hasattr(X, "columns") and names != [*self.feature_names_in_]
        if len(names) != self.n_features_in_ or renamed:
            raise ValueError(f"the columns are {names}, not those of fit, {[c.name for c in self.columns_]}")
        encoded = [self._encode(column, v) for column, v in zip(self.columns_, values, strict=True)]
        return np.column_stack(encoded) if encoded else np.zeros((len(X), 0))

    def __sklearn_is_fitted__(self) -> bool:
        """Whether ``fit`` was called."""
        return hasattr(self, "columns_")

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn from 1.6 asks of an estimator before it pipes it."""
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(),
            input_tags=InputTags(allow_nan=True, string=True, categorical=True),
        )

    @abstractmethod
    def _refuse(self, column: Column) -> str: ...

    @abstractmethod
    def _encode(self, column: Column, values: NDArray[Any]) -> Float: ...


@dataclass(eq=False, repr=False)
class FixedScaler(Fixed):
    """Numbers to [0, 1] by declared ranges; what lies beyond an end counts as that end.

    Parameters
    ----------
    domain : Domain, or mapping from column to (low, high)
        A range whose values may be missing, ``(low, high, None)``, gets a second column: 1 where the value is missing,
        and the value then counts as low.
    """

    __module__ = "privgate.models"  # the name that recipes keep

    domain: Any

    def _refuse(self, column: Column) -> str:
        return "" if column.ends is not None else "is declared as categories; it belongs to FixedOneHot"

    def _encode(self, column: Column, values: NDArray[Any]) -> Float:
        low, high = column.ends or (0.0, 0.0)
        if values.dtype.kind == "O":
            values = np.array([np.nan if is_missing(v) else float(v) for v in values.tolist()])
        x = values.astype(np.float64)
        gone = np.isnan(x)
        if gone.any() and not column.missing:
            raise ValueError(f"column {column.name!r} has missing values; declare them: (low, high, None)")
        inside = np.clip(np.where(gone, low, x), low, high)
        scaled = (inside - low) / (high - low) if high > low else np.zeros(len(x))
        return np.column_stack([scaled, gone]) if column.missing else scaled[:, None]


@dataclass(eq=False, repr=False)
class FixedOneHot(Fixed):
    """Categories to one column each, by declared values; at most one of a feature's columns is 1, the others are 0.

    Parameters
    ----------
    domain : Domain, or mapping from column to list of values
        A list with None in it has a column of its own for values that are missing.
    unknown : {"ignore", "error"}
        A value that is not declared becomes zeros everywhere, or is refused.
    """

    __module__ = "privgate.models"  # the name that recipes keep

    domain: Any
    unknown: Literal["ignore", "error"] = "ignore"

    def _refuse(self, column: Column) -> str:
        if self.unknown not in ("ignore", "error"):
            raise ValueError(f"unknown must be 'ignore' or 'error', not {self.unknown!r}")
        return "" if column.values is not None else "is declared as a range; it belongs to FixedScaler"

    def _encode(self, column: Column, values: NDArray[Any]) -> Float:
        place, listed = {v: k for k, v in enumerate(column.values or ())}, values.tolist()
        gone = np.array([is_missing(v) for v in listed], dtype=bool)
        if gone.any() and not column.missing:
            raise ValueError(f"column {column.name!r} has missing values; declare them: put None among its values")
        codes = np.array([len(place) if lost else place.get(v, -1) for v, lost in zip(listed, gone, strict=True)])
        if self.unknown == "error" and (codes == -1).any():
            raise ValueError(f"column {column.name!r} holds a value that is not declared")
        return np.asarray(codes[:, None] == np.arange(len(place) + column.missing), dtype=np.float64)
