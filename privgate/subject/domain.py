"""The feature domain: which questions the deployed model accepts.

DTP is a supremum over questions, so it is meaningless without saying over which. A domain is declared with the data,
or inferred from it, and then marked as inferred in every report.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Domain:
    """What the endpoint accepts; everything outside it must be refused there.

    Parameters
    ----------
    categories : tuple of int, optional
        Number of values V_j of each feature; feature j takes the codes 0 .. V_j - 1.
    box : tuple of (low, high) pairs, optional
        Closed interval of each numeric feature.
    max_length : float, optional
        Largest sum of token counts of one document (features are counts >= 0).
    norm : float, optional
        Largest Euclidean norm of one (non-negative) document vector.
    inferred : bool
        True if nobody declared this and it was read off the training data.
    queries : table of numbers, optional
        Every question that the endpoint answers, row by row; what is not listed is refused there. The box is theirs
        unless one is declared. DTP over a list is found by asking, whatever the model.
    """

    categories: tuple[int, ...] | None = None
    box: tuple[tuple[float, float], ...] | None = None
    max_length: float | None = None
    norm: float | None = None
    inferred: bool = False
    queries: tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
        if self.queries is not None:
            self._check_queries(self.queries)
        stated = [v for v in (self.categories, self.box, self.max_length, self.norm) if v is not None]
        if not stated:
            raise ValueError("a domain needs categories, box, max_length or norm")
        if self.categories is not None and any(int(v) < 1 for v in self.categories):
            raise ValueError("domain: every feature needs at least one category")
        if self.box is not None and any(not (np.isfinite(a) and np.isfinite(b) and a <= b) for a, b in self.box):
            raise ValueError("domain: every box side needs finite low <= high")
        for name, v in (("max_length", self.max_length), ("norm", self.norm)):
            if v is not None and not (np.isfinite(v) and v > 0):
                raise ValueError(f"domain: {name} must be a finite number above 0, not {v!r}")

    def _check_queries(self, given: Any) -> None:
        try:
            table = np.array([list(q) for q in given], dtype=np.float64)
        except (TypeError, ValueError):
            table = np.zeros(0)
        if table.ndim != 2 or not table.size or not np.isfinite(table).all():
            raise ValueError("domain: queries must be a table of finite numbers, one row a question")
        object.__setattr__(self, "queries", tuple(tuple(q) for q in table.tolist()))
        if self.box is None and self.categories is None:
            object.__setattr__(
                self, "box", tuple(zip(table.min(axis=0).tolist(), table.max(axis=0).tolist(), strict=True))
            )

    @classmethod
    def of(cls, stated: "Domain | Mapping[str, Any] | Sequence[Any]") -> "Domain":
        """Return a domain from the short forms that people write.

        Parameters
        ----------
        stated : Domain, mapping, or sequence
            A mapping holds this class's own keywords. A sequence has one item a feature: a whole number is a count of
            categories, a list or range the category codes themselves, a tuple of two numbers the ends of an interval.

        Examples
        --------
        >>> Domain.of([3, range(2)]).categories
        (3, 2)
        >>> Domain.of([(0.0, 1.0), (-1, 1)]).box
        ((0.0, 1.0), (-1.0, 1.0))
        """
        if isinstance(stated, Domain):
            return stated
        if isinstance(stated, Mapping):
            known = ("categories", "box", "max_length", "norm", "queries")
            if unknown := set(stated) - set(known):
                raise ValueError(f"domain: unknown key {min(unknown)!r}; known: {', '.join(known)}")
            return cls.from_payload({k: stated.get(k) for k in known})
        items = list(stated)
        if not items:
            raise ValueError("domain: it names no feature")
        if all(isinstance(v, tuple) and len(v) == 2 for v in items):
            return cls(box=tuple((float(a), float(b)) for a, b in items))
        return cls(categories=tuple(_count(v) for v in items))

    @classmethod
    def infer(cls, X: NDArray[Any]) -> Self:
        """Read a domain off the data: categories for small non-negative integers, otherwise the box of ranges.

        Parameters
        ----------
        X : array of shape (n, d), numeric
            Training data. An inferred domain is a guess and the report says so.
        """
        a = np.asarray(X, dtype=np.float64)
        lo, hi = a.min(axis=0), a.max(axis=0)
        if np.all(a == np.floor(a)) and lo.min() >= 0 and hi.max() < 1000:
            return cls(categories=tuple(int(v) + 1 for v in hi), inferred=True)
        return cls(box=tuple((float(p), float(q)) for p, q in zip(lo, hi, strict=True)), inferred=True)

    def payload(self) -> dict[str, Any]:
        """Return JSON values; ``from_payload`` is the inverse."""
        return {
            "categories": [int(v) for v in self.categories] if self.categories is not None else None,
            "box": [list(side) for side in self.box] if self.box is not None else None,
            "max_length": self.max_length,
            "norm": self.norm,
            "inferred": self.inferred,
            **({} if self.queries is None else {"queries": [list(q) for q in self.queries]}),
        }

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> Self:
        """Return the domain that ``payload`` describes."""
        box = payload.get("box")
        cats = payload.get("categories")
        return cls(
            categories=None if cats is None else tuple(int(v) for v in cats),
            box=None if box is None else tuple((float(a), float(b)) for a, b in box),
            max_length=payload.get("max_length"),
            norm=payload.get("norm"),
            inferred=bool(payload.get("inferred", False)),
            queries=None if payload.get("queries") is None else tuple(tuple(q) for q in payload["queries"]),
        )


def _count(values: Any) -> int:
    """Return how many categories a feature has; codes must be 0 .. V - 1, as encoders give them."""
    if isinstance(values, int | np.integer):
        return int(values)
    codes = sorted(int(v) for v in values)
    if codes != list(range(len(codes))):
        raise ValueError(f"domain: category codes must be 0 .. V-1 without gaps, not {codes[:6]}")
    return len(codes)
