"""The feature domain: which questions the deployed model accepts.

DTP is a supremum over questions, so it is meaningless without saying over which. A domain is declared with the data,
or inferred from it, and then marked as inferred in every report.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privgate.models.columns import Column, is_missing, split
from privgate.subject.accepted_questions import AcceptedQuestions

#: what a proposal says of itself wherever it is shown
PROPOSED = (
    "read off data and confirmed by nobody: ranges and categories of private data are themselves private. Widen them "
    "to what you would have said without looking, then .confirm()"
)


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
    columns : tuple of Column, optional
        Ranges and categories of a frame's columns by name, in the frame's order; ``box`` follows where all are numbers.
    blocks : tuple of tuples of int
        Columns of the box, each from 0 to 1, of which at most one is 1 and the others are 0: one-hot encodings.
    proposed : bool
        True if ``Domain.read`` read this off data and nobody has confirmed it; nothing accepts it.
    queries : table of numbers, optional
        Every question that the endpoint answers, row by row; what is not listed is refused there. The box is theirs
        unless one is declared. DTP over a list is found by asking, whatever the model.
    """

    categories: tuple[int, ...] | None = None
    box: tuple[tuple[float, float], ...] | None = None
    max_length: float | None = None
    norm: float | None = None
    inferred: bool = False
    columns: tuple[Column, ...] | None = None
    blocks: tuple[tuple[int, ...], ...] = ()
    proposed: bool = False
    queries: tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
        if self.queries is not None:
            self._check_queries(self.queries)
        if self.columns is not None:
            if not all(isinstance(c, Column) for c in self.columns):
                raise ValueError("domain: for a frame's columns pass TrainingData(…, domain={'age': (0, 120), …})")
            if len({c.name for c in self.columns}) != len(self.columns) or not self.columns:
                raise ValueError("domain: every column needs a name of its own, and there must be one")
            object.__setattr__(self, "box", _hull(self.columns))
        stated = [v for v in (self.categories, self.box, self.max_length, self.norm, self.columns) if v is not None]
        if not stated:
            raise ValueError("a domain needs categories, box, columns, max_length or norm")
        if self.categories is not None and not (len(self.categories) and all(int(v) >= 1 for v in self.categories)):
            raise ValueError("domain: every feature needs at least one category")
        if self.box is not None and any(not (np.isfinite(a) and np.isfinite(b) and a <= b) for a, b in self.box):
            raise ValueError("domain: every box side needs finite low <= high")
        for name, v in (("max_length", self.max_length), ("norm", self.norm)):
            if v is not None and not (np.isfinite(v) and v > 0):
                raise ValueError(f"domain: {name} must be a finite number above 0, not {v!r}")
        if self.box is not None:  # read back, ends are floats
            object.__setattr__(self, "box", tuple((float(a), float(b)) for a, b in self.box))
        inside, sides = [j for block in self.blocks for j in block], self.box or ()
        if len(set(inside)) != len(inside) or any(not 0 <= j < len(sides) or sides[j] != (0.0, 1.0) for j in inside):
            raise ValueError("domain: a block names columns of the box that go from 0 to 1, each column once")
        asked = () if self.queries is None else np.array(self.queries)
        good = AcceptedQuestions({**self.payload(), "queries": None}).holds(asked)
        if not good.all():  # theorems over the ranges would say less than what is answered
            raise ValueError(
                f"domain: question {int(good.argmin()) + 1} of the list lies outside the ranges that are declared "
                "beside it"
            )

    def __repr__(self) -> str:
        """Return the domain; a proposal says that it is one."""
        shown = {k: v for k, v in self.payload().items() if v and k != "columns"}
        if self.columns is not None:
            shown.pop("box", None)
            shown["columns"] = {c.name: c.form() for c in self.columns}
        text = f"Domain({', '.join(f'{k}={v!r}' for k, v in shown.items())})"
        return f"{text}\n  PROPOSED, {PROPOSED}" if self.proposed else text

    def _check_queries(self, given: Any) -> None:
        try:
            rows = [list(q) for q in given]
            text = any(isinstance(v, str | bytes) for row in rows for v in row)  # numpy reads numbers off it
            table = np.zeros(0) if text else np.array(rows, dtype=np.float64)
        except (TypeError, ValueError):
            table = np.zeros(0)
        if table.ndim != 2 or not table.size or not np.isfinite(table).all():
            raise ValueError("domain: queries must be a table of finite numbers, one row a question")
        object.__setattr__(self, "queries", tuple(tuple(q) for q in table.tolist()))
        if self.box is None and self.categories is None:
            ends = zip(table.min(axis=0).tolist(), table.max(axis=0).tolist(), strict=True)
            object.__setattr__(self, "box", tuple(ends))

    @classmethod
    def read(cls, stated: "Domain | Mapping[Any, Any] | Sequence[Any] | Any") -> "Domain":
        """Return a domain from the short forms that people write, or one proposed from data.

        A mapping holds this class's own keywords, or the columns of a frame. A tuple is a range, ``(17, 90)``, a list
        the categories, ``["no", "yes"]``. None at the end of either says that values may be missing. A sequence has one
        item a feature. A whole number is a count of categories, a list or range the codes. A tuple of two numbers is
        the ends of an interval.

        A DataFrame, or a table of numbers, is read: ranges are rounded outward, categories listed. The result is a
        proposal for a person to look at, because ends and rare values are somebody's; nothing accepts it before
        ``confirm``. ``ValueError``: no such form, or a proposal that nobody has confirmed.

        Examples
        --------
        >>> Domain.read([3, range(2)]).categories
        (3, 2)
        >>> Domain.read([(0.0, 1.0), (-1, 1)]).box
        ((0.0, 1.0), (-1.0, 1.0))
        >>> Domain.read({"age": (17, 90), "work": ["private", "state", None]}).columns[1].values
        ('private', 'state')
        """
        if isinstance(stated, Domain):
            if stated.proposed:
                raise ValueError(f"it was {PROPOSED}")
            return stated
        if isinstance(stated, Mapping):
            own = ("categories", "box", "max_length", "norm", "queries")
            if stated and not set(own) & set(stated):
                return cls(columns=tuple(Column.from_short(name, form) for name, form in stated.items()))
            if unknown := set(stated) - set(own):
                raise ValueError(f"domain: unknown key {min(map(str, unknown))!r}; known: {', '.join(own)}")
            return cls.from_payload({k: stated.get(k) for k in own})
        if len(getattr(stated, "shape", ())) == 2:
            return cls._proposal(stated)
        items = list(stated)
        if not items:
            raise ValueError("domain: it names no feature")
        if all(isinstance(v, tuple) and len(v) == 2 for v in items):
            return cls(box=tuple((float(a), float(b)) for a, b in items))
        return cls(categories=tuple(_count(v) for v in items))

    #: the name of 0.1
    of = read

    @classmethod
    def infer(cls, X: NDArray[Any]) -> Self:
        """Guess a domain of numbers (n, d): categories for small non-negative integers, otherwise the box of ranges."""
        a = np.asarray(X, dtype=np.float64)
        lo, hi = a.min(axis=0), a.max(axis=0)
        if np.all(a == np.floor(a)) and lo.min() >= 0 and hi.max() < 1000:
            return cls(categories=tuple(int(v) + 1 for v in hi), inferred=True)
        return cls(box=tuple((float(p), float(q)) for p, q in zip(lo, hi, strict=True)), inferred=True)

    @classmethod
    def _proposal(cls, table: Any) -> "Domain":
        """Return what a person may confirm: ranges rounded outward and categories, of each column of a table."""
        names, values = split(table)
        if not len(values) or not len(values[0]):
            raise ValueError("domain: there are no records to propose a domain from; write it down")
        proposed = tuple(_proposed(name, column) for name, column in zip(names, values, strict=True))
        if hasattr(table, "columns"):
            return cls(columns=proposed, proposed=True)
        if any(c.ends is None or c.missing for c in proposed):
            raise ValueError("domain: an array of numbers without missing values is needed, or a DataFrame")
        return cls(box=tuple(c.ends for c in proposed if c.ends is not None), proposed=True)

    def confirm(self) -> "Domain":
        """Return the same domain as declared: a person has looked at it, and it gives nobody away."""
        return replace(self, proposed=False)

    @property
    def is_table(self) -> bool:
        """Whether it speaks about tables of numbers: a query can then be made up without knowing the first steps."""
        return any(v is not None for v in (self.categories, self.box, self.max_length, self.norm))

    @property
    def numeric(self) -> list[str | int]:
        """Names of the columns that are ranges."""
        return [c.name for c in self.columns or () if c.ends is not None]

    @property
    def categorical(self) -> list[str | int]:
        """Names of the columns that are lists of values."""
        return [c.name for c in self.columns or () if c.values is not None]

    def misfit(self, X: Any) -> str:
        """Return how named columns differ from those of the data; empty where they are the same in the same order."""
        if self.columns is None:
            return ""
        if not hasattr(X, "columns"):
            return "the domain declares columns by name but X is no DataFrame"
        declared, held = [c.name for c in self.columns], list(X.columns)
        if declared == held:
            return ""
        odd = [n for n in (*held, *declared) if (n in held) != (n in declared)]
        how = f"{odd[0]!r} is in one of them only" if odd else "their order differs"
        return f"the domain's columns are not those of X: {how}"

    def holds(self, X: Any) -> NDArray[np.bool_]:
        """Return which records are accepted, shape (n,); what cannot be read is not."""
        return np.asarray(AcceptedQuestions(self.payload()).holds(X))

    def payload(self) -> dict[str, Any]:
        """Return JSON values; ``from_payload`` is the inverse."""
        named = {} if self.columns is None else {"columns": [c.payload() for c in self.columns]}
        blocks = {"blocks": [list(b) for b in self.blocks]} if self.blocks else {}
        queries = {} if self.queries is None else {"queries": [list(q) for q in self.queries]}
        return {
            **named,
            **blocks,
            "categories": [int(v) for v in self.categories] if self.categories is not None else None,
            "box": [list(side) for side in self.box] if self.box is not None else None,
            **{k: getattr(self, k) for k in ("max_length", "norm", "inferred")},
            **queries,
        }

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> Self:
        """Return the domain that ``payload`` describes."""
        kinds: dict[str, Callable[[Any], Any]] = {
            "columns": Column.from_payload,
            "categories": int,
            "box": lambda side: (float(side[0]), float(side[1])),
            "queries": tuple,
        }
        stated: dict[str, Any] = {
            k: tuple(map(kind, payload[k])) for k, kind in kinds.items() if payload.get(k) is not None
        }
        blocks = tuple(tuple(int(j) for j in block) for block in payload.get("blocks", ()))
        stated |= {k: payload.get(k) for k in ("max_length", "norm")}
        return cls(
            **stated, blocks=blocks, inferred=bool(payload.get("inferred")), proposed=bool(payload.get("proposed"))
        )


def _count(values: Any) -> int:
    """Return how many categories a feature has; codes must be 0 .. V - 1, as encoders give them."""
    if isinstance(values, int | np.integer):
        return int(values)
    codes = sorted(int(v) for v in values)
    if codes != list(range(len(codes))):
        raise ValueError(f"domain: category codes must be 0 .. V-1 without gaps, not {codes[:6]}")
    return len(codes)


def _hull(columns: tuple[Column, ...]) -> tuple[tuple[float, float], ...] | None:
    """Return the box of columns that are all ranges; None where one lists categories or may be missing."""
    sides = [c.ends for c in columns if c.ends is not None and not c.missing]
    return tuple(sides) if len(sides) == len(columns) else None


def _proposed(name: Any, values: NDArray[Any]) -> Column:
    """Return what a column's values suggest: a range rounded outward to a tenth of its width, or the values."""
    held = [v for v in values.tolist() if not is_missing(v)]
    missing = len(held) < len(values)
    if values.dtype.kind in "iuf":
        if not held:
            raise ValueError(f"domain: column {name!r} holds nothing; write it down")
        low, high = min(held), max(held)
        width = float(high) - float(low) or abs(high) or 1.0
        if not (np.isfinite(width) and width > 1e-300):
            raise ValueError(f"domain: no range of sensible size holds column {name!r}; write it down")
        digits = int(np.floor(np.log10(width) - 0.3))
        step = 10.0**digits
        ends = float(np.floor(low / step) * step), float(np.ceil(high / step) * step)
        short = round(ends[0], -digits), round(ends[1], -digits)  # 0.7, not 0.7000000000000001
        ends = short if short[0] <= low and high <= short[1] else ends
        if not (np.isfinite(ends).all() and ends[0] <= low and high <= ends[1]):
            raise ValueError(f"domain: no finite range holds column {name!r}; write it down")
        return Column(name, ends, missing=missing)
    if not all(isinstance(v, str | int | float) for v in held):
        raise ValueError(f"domain: column {name!r} holds neither numbers nor text; write it down")
    return Column(name, values=tuple(sorted(set(held), key=lambda v: (str(type(v)), v))), missing=missing)
