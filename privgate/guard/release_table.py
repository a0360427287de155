"""The table of releases: which models, of which task, are released by which policy, and what still counts."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from privgate.errors import PolicyError
from privgate.guard.lookalikes import fold, is_plain

#: said where a model that holds no training data may be meant
WITHOUT = "; prompts, and models without training data, pass by a pattern under 'except' in the guard's 'protected'"
#: (name, digest, files) of a policy by what a table calls it
Named = tuple[str, str, tuple[Path, ...]]
Text = Annotated[str, Field(min_length=1)]
_OneOrMany = Annotated[list[Text], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)]


class Written(BaseModel):
    """What an operator writes: nothing unknown, nothing of another type."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ReleaseRow(Written):
    """One row as it is written: models, where to, task and policy."""

    models: _OneOrMany = Field(min_length=1)
    aliases: _OneOrMany = Field(default_factory=list)
    task: Literal["classification", "regression", "not applicable"]
    policy: Text
    file: Literal["downloadable", "not downloadable"] = "downloadable"


class AcceptedRow(Written):
    """A policy whose older statements still count: those signed before a day, until another."""

    models: _OneOrMany = Field(min_length=1)
    policy: Text
    signed_before: Annotated[date, Field(strict=False)]
    until: Annotated[date, Field(strict=False)]


@dataclass(frozen=True, slots=True)
class Row:
    """A row in force."""

    #: patterns of names, and aliases and stages, all folded; no target is every one that is protected
    models: tuple[str, ...]
    targets: tuple[str, ...]
    #: what its models answer with, by the operator's word
    task: str
    policy: str
    digest: str
    #: the operator states that nobody who may ask these models can get their files
    withheld: bool
    #: as the table writes its models, for sentences
    written: str

    @property
    def asks(self) -> tuple[str, str, bool]:
        """What it demands."""
        return self.digest, self.task, self.withheld

    def is_for(self, model: str, target: str | None) -> bool:
        """Whether it is about a model and a target, both folded; None is any target."""
        here = target is None or not self.targets or target in self.targets
        return here and any(fnmatchcase(model, pattern) for pattern in self.models)


@dataclass(frozen=True, slots=True)
class Earlier:
    """A policy by which some models were released, and which was changed since."""

    models: tuple[str, ...]
    policy: str
    digest: str
    signed_before: date
    until: date

    def is_for(self, model: str) -> bool:
        """Whether it is about a model, folded."""
        return any(fnmatchcase(model, pattern) for pattern in self.models)

    def counts(self, digest: str, signed: datetime, now: datetime) -> bool:
        """Whether a statement under this policy still counts."""
        begin = datetime.combine(self.signed_before, time.min, UTC)
        end = datetime.combine(self.until, time.max, UTC)
        return digest == self.digest and signed < begin and now <= end


@dataclass(frozen=True, slots=True)
class Table:
    """Every row, and the earlier policies that still count."""

    rows: tuple[Row, ...]
    earlier: tuple[Earlier, ...]
    files: tuple[Path, ...]

    def row(self, model: str, target: str | None) -> Row:
        """Return the row of a model and a target; ``PolicyError``: there is none, or several that differ."""
        # a name of other letters may look like one of another row, and a row for all others would release it
        if not model.isascii():
            raise PolicyError(f"the guard's table releases no model like {model!r}: names are of ASCII letters there")
        mine = [r for r in self.rows if r.is_for(fold(model), None if target is None else fold(target))]
        if not mine:
            where = f" as {target!r}" if target is not None else ""
            raise PolicyError(
                f"the guard's table names no policy for {model!r}{where}; add a row to 'releases'{WITHOUT}"
            )
        if len({r.asks for r in mine}) > 1:
            raise PolicyError(f"the guard's table demands different things of {model!r} by target; name the target")
        return mine[0]


def read(
    releases: Sequence[ReleaseRow],
    accepted: Sequence[AcceptedRow],
    protected: Iterable[str],
    named: Callable[[str], Named],
    *,
    today: date,
) -> Table:
    """Return the table in force; ``named`` gives name, digest and files of a policy, ``protected`` are targets.

    ``PolicyError``: a row can match nothing, two rows demand different things of one release, or what still counts
    lies ahead.
    """
    guarded, rows, files = {fold(t) for t in protected}, list[Row](), list[Path]()
    for r in releases:
        name, digest, used = named(r.policy)
        files += used
        for target in r.aliases:
            if fold(target) not in guarded or not is_plain(target):
                raise PolicyError(f"releases: the row of {r.models[0]!r} names {target!r}, which is not protected")
        _refuse_odd(r.models, "releases")
        targets = tuple(fold(t) for t in r.aliases)
        withheld, models = r.file == "not downloadable", tuple(fold(m) for m in r.models)
        rows.append(Row(models, targets, r.task, name, digest, withheld, ", ".join(r.models)))
    for one, other in ((rows[j], rows[k]) for k in range(len(rows)) for j in range(k)):
        both = not one.targets or not other.targets or set(one.targets) & set(other.targets)
        meet = any(intersect(p, q) for p in one.models for q in other.models)
        if both and meet and one.asks != other.asks:
            raise PolicyError(
                f"releases: the rows of {one.written!r} and {other.written!r} are about one model and demand "
                "different things; tell their names or aliases apart"
            )
    earlier = []
    for a in accepted:
        _, digest, used = named(a.policy)
        files += used
        _refuse_odd(a.models, "still_accepted")
        if a.signed_before > today or a.signed_before > a.until:
            raise PolicyError(f"still_accepted: {a.policy!r} is for what is signed already; signed_before lies ahead")
        models = tuple(fold(m) for m in a.models)
        earlier.append(Earlier(models, a.policy, digest, a.signed_before, a.until))  # after its end it counts no more
    return Table(tuple(rows), tuple(earlier), tuple(files))


def _refuse_odd(patterns: Iterable[str], where: str) -> None:
    """Refuse patterns that match no name, or more than an eye sees."""
    for pattern in patterns:
        plain = pattern.isascii() and pattern.isprintable() and pattern == pattern.strip()
        if not plain or {"/", ":"} & {*pattern}:
            raise PolicyError(f"{where}: {pattern!r} can match no model; write names in ASCII, without '/' and ':'")


def intersect(one: str, other: str) -> bool:
    """Whether some name fits both patterns of ``fnmatch``; two sets of characters are taken to share one.

    Examples
    --------
    >>> intersect("credit-*", "*-eu"), intersect("credit-*", "fraud-*"), intersect("a?", "a")
    (True, False, False)
    """
    p, q = _parts(one), _parts(other)

    @cache
    def meet(i: int, j: int) -> bool:
        if i == len(p) or j == len(q):
            return all(t == "*" for t in (*p[i:], *q[j:]))
        if "*" in (p[i], q[j]):
            return meet(i + 1, j) or meet(i, j + 1)
        return _share(p[i], q[j]) and meet(i + 1, j + 1)

    return meet(0, 0)


def _parts(pattern: str) -> tuple[str, ...]:
    """Return the parts of a pattern: characters, ``?``, ``*`` and sets in brackets."""
    made, k = list[str](), 0
    while k < len(pattern):
        first = k + (3 if pattern[k : k + 2] == "[!" else 2)  # a bracket right behind the opening one is a character
        end = pattern.find("]", first) if pattern[k] == "[" else -1
        size = end + 1 - k if end > 0 else 1
        part = pattern[k : k + size]
        if part != "*" or made[-1:] != ["*"]:
            made.append("[[]" if part == "[" else part)
        k += size
    return tuple(made)


def _share(one: str, other: str) -> bool:
    wide = [t for t in (one, other) if len(t) > 1 or t == "?"]
    if len(wide) == 2:
        return True
    return fnmatchcase(other, one) if wide == [one] else fnmatchcase(one, other)
