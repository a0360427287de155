"""What the endpoint accepts: the columns that are declared before the data are seen, and the domain that they make.

DTP is a supremum over questions: of a declared domain, or of one that was inferred, and is marked so in every report.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privgate.subject.accepted_questions import AcceptedQuestions, is_missing

_HINT = "give (low, high), (low, high, None) where values may be missing, or a list of the values"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: a range of numbers (``ends``) or a list of ``values``, and whether a value may be ``missing``.

    ``name`` is that of a frame's column, or the position in an array. Values are text, whole numbers or booleans, in
    the order in which they are encoded. None, NaN and NA stand for what is missing.
    """

    name: str | int
    ends: tuple[float, float] | None = None
    values: tuple[Any, ...] | None = None
    missing: bool = False

    def __post_init__(self) -> None:
        values, ends = self.values, self.ends
        problems = {
            f"needs a range or a list of values; {_HINT}": (ends is None) == (values is None),
            f"needs finite low <= high, not {ends}": (
                ends is not None and not (np.isfinite(ends).all() and ends[0] <= ends[1])
            ),
            "lists no value, or one twice": values is not None
            and (not (values or self.missing) or len(set(values)) != len(values)),
        }
        if problem := next((text for text, holds in problems.items() if holds), ""):
            raise ValueError(f"domain: column {self.name!r} {problem}")

    @classmethod
    def from_short(cls, name: str | int, stated: Any) -> "Column":
        """Return the column that a short form describes: a tuple is a range, a list the values."""
        if isinstance(stated, cls):
            return stated
        if isinstance(stated, tuple) and all(isinstance(v, Real) for v in stated[:2]):
            if len(stated) == 2 or (len(stated) == 3 and stated[2] is None):
                return cls(name, (float(stated[0]), float(stated[1])), missing=len(stated) == 3)
        elif isinstance(stated, list):
            plain = [v.item() if isinstance(v, np.generic) else v for v in stated]
            held = [v for v in plain if not is_missing(v)]
            if all(isinstance(v, str | int | float) for v in held):
                return cls(name, values=tuple(held), missing=len(held) < len(plain))
        raise ValueError(f"domain: unknown key or form, {name!r}: {stated!r}; {_HINT}")


def _as_tuple(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Column(**{name: _as_tuple(value[name]) for name in ("name", "ends", "values", "missing")})
    return tuple(map(_as_tuple, value)) if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class Domain:
    """What the endpoint accepts; everything outside it must be refused there.

    Parameters
    ----------
    categories : tuple of int, optional
        Number of values V_j of each feature; feature j takes the codes 0 .. V_j - 1.
    box : tuple of (low, high) pairs, optional
        Closed interval of each numeric feature.
    inferred : bool
        True if undeclared, and read off the training data.
    columns : tuple of Column, optional
        Ranges and categories of a frame's columns by name, in the frame's order; ``box`` follows where all are numbers.
    blocks : tuple of tuples of int
        Columns of the box, each from 0 to 1, of which at most one is 1 and the others are 0: one-hot encodings.
    """

    categories: tuple[int, ...] | None = None
    box: tuple[tuple[float, float], ...] | None = None
    inferred: bool = False
    columns: tuple[Column, ...] | None = None
    blocks: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.columns is not None:
            if not all(isinstance(c, Column) for c in self.columns):
                raise ValueError("domain: for a frame's columns pass TrainingData(…, domain={'age': (0, 120), …})")
            if len({c.name for c in self.columns}) != len(self.columns) or not self.columns:
                raise ValueError("domain: every column needs a name of its own, and there must be one")
            ranges = tuple(c.ends for c in self.columns if c.ends is not None and not c.missing)
            object.__setattr__(self, "box", ranges if len(ranges) == len(self.columns) else None)
        if self.columns is None and not self.is_table:
            raise ValueError("a domain needs categories, box or columns")
        if self.categories is not None:
            if not (len(self.categories) and all(int(v) >= 1 for v in self.categories)):
                raise ValueError("domain: every feature needs at least one category")
            object.__setattr__(self, "categories", tuple(map(int, self.categories)))
        if self.box is not None:  # read back, ends are floats
            if any(not (np.isfinite(a) and np.isfinite(b) and a <= b) for a, b in self.box):
                raise ValueError("domain: every box side needs finite low <= high")
            object.__setattr__(self, "box", tuple((float(a), float(b)) for a, b in self.box))
        inside, sides = [j for block in self.blocks for j in block], self.box or ()
        if len(set(inside)) != len(inside) or any(not 0 <= j < len(sides) or sides[j] != (0.0, 1.0) for j in inside):
            raise ValueError("domain: a block names columns of the box that go from 0 to 1, each column once")

    @classmethod
    def read(cls, stated: "Domain | Mapping[Any, Any] | Sequence[Any] | Any") -> "Domain":
        """Return a domain from a short form; ``ValueError``: there is no such form.

        A mapping names a frame's columns: ``(17, 90)`` is a range, ``["no", "yes"]`` the values; None at the end of
        either says that values may be missing. A list of ranges is the box of an array. Nothing is read off data.
        """
        if isinstance(stated, Domain):
            return stated
        if isinstance(stated, Mapping):
            return cls(columns=tuple(Column.from_short(name, form) for name, form in stated.items()))
        if hasattr(stated, "shape") or not stated or not all(isinstance(v, tuple) and len(v) == 2 for v in stated):
            raise ValueError("domain: give a Domain, the ends of each column as [(0, 1), …], or {'age': (0, 120), …}")
        return cls(box=tuple(stated))

    @classmethod
    def infer(cls, X: NDArray[Any]) -> Self:
        """Guess a domain of numbers (n, d): categories for small non-negative integers, otherwise the box of ranges."""
        a = np.asarray(X, dtype=np.float64)
        lo, hi = a.min(axis=0), a.max(axis=0)
        if np.all(a == np.floor(a)) and lo.min() >= 0 and hi.max() < 1000:
            return cls(categories=tuple(int(v) + 1 for v in hi), inferred=True)
        return cls(box=tuple((float(p), float(q)) for p, q in zip(lo, hi, strict=True)), inferred=True)

    @property
    def is_table(self) -> bool:
        """Whether it speaks about tables of numbers: a query can then be made up without knowing the first steps."""
        return self.categories is not None or self.box is not None

    def list_columns(self) -> tuple[Column, ...]:
        """Return the declared columns; of tables of numbers, by position."""
        if self.columns is not None:
            return self.columns
        if self.box is not None:
            return tuple(Column(k, ends) for k, ends in enumerate(self.box))
        return tuple(Column(k, values=tuple(range(count))) for k, count in enumerate(self.categories or ()))

    def misfit(self, X: Any) -> str:
        """Return how what is declared differs from the columns of the data; empty where it is about the same ones."""
        shape: tuple[int, ...] = getattr(X, "shape", ())
        if self.columns is not None:
            if not hasattr(X, "columns"):
                return "the domain declares columns by name but X is no DataFrame"
            declared, held = [c.name for c in self.columns], list(X.columns)
            if declared != held:
                odd = [n for n in (*held, *declared) if (n in held) != (n in declared)]
                how = f"{odd[0]!r} is in one of them only" if odd else "their order differs"
                return f"the domain's columns are not those of X: {how}"
        for name, sides in (("categories", self.categories), ("box", self.box)):
            if sides is not None and len(shape) == 2 and len(sides) != shape[1]:
                return f"the domain declares {len(sides)} features ({name}) but X has {shape[1]} columns"
        return ""

    def holds(self, X: Any) -> NDArray[np.bool_]:
        """Return which records are accepted, shape (n,); what cannot be read is not."""
        return np.asarray(AcceptedQuestions(self.payload()).holds(X))

    def payload(self) -> dict[str, Any]:
        """Return JSON values; ``from_payload`` is the inverse."""
        limits = {"max_length": None, "norm": None}  # of earlier versions: digests of data are of these too
        stated = limits | json.loads(json.dumps(asdict(self)))  # lists for tuples
        return {k: v for k, v in stated.items() if v or k not in ("columns", "blocks")}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Self:
        """Return the domain that ``payload`` describes; ``ValueError``: an earlier version's, which counts no more."""
        if payload.get("proposed"):
            raise ValueError("the domain was read off data and nobody has confirmed it; write its ends down")
        if any(payload.get(name) is not None for name in ("max_length", "norm", "queries")):
            raise ValueError("the domain limits length or norm, or lists questions; declare the range of each column")
        return cls(**{f.name: _as_tuple(payload[f.name]) for f in fields(cls) if payload.get(f.name) is not None})
