"""Members that are strangers to one another: leaving somebody out trains one of them again, and a theorem bounds it."""

from dataclasses import replace
from typing import Any

import numpy as np

from privgate.arrays import Float, Index
from privgate.errors import SubjectError
from privgate.families import own_code, refit
from privgate.families.certificate import Certificate, Certified, Units, designed
from privgate.families.engine import Asked, Cost, Engine
from privgate.families.retrained import Retrained, Seeds, Status
from privgate.models import Sharded
from privgate.subject import estimators, sources
from privgate.subject.libraries import is_class_of
from privgate.subject.subject import Subject
from privgate.training.fit import Fit

_LIBRARIES = ("sklearn.", "lightgbm.", "xgboost.", "catboost.")
#: whose learners read their records and nothing else
KNOWN = (*_LIBRARIES, "privgate.")
#: whose learners answer about every record by itself as well, which networks of our own do not
ALONE = (*_LIBRARIES, "privgate.models", "numpy:")
#: what networks are made of: classes and functions of a record's numbers
PARTS = ("torch.nn.", "torch.optim.")
#: nats; by so much a network's answer about a record may depend on who else is asked about: sums in single precision
SINGLE = 1e-4
#: fewer members than this is clipping, which lowers DTP and leaves attacks as they were
FEW = 4


def declared(subject: Subject) -> Sharded | None:
    """Return the recipe's ``Sharded`` without its learner, which may be anybody's and is not imported; else None."""
    own = subject.recipe.own_model
    if own is None or own["class"] != "Sharded":
        return None
    made = Sharded(**{k: estimators.decode(v, _nothing) for k, v in own.items() if k not in ("class", "base")})
    made.shards = int(made.shards)  # 7.0 is accepted by the model, and is no length here
    return made


def _nothing(name: str) -> Any:
    raise SubjectError(f"a setting of Sharded names {name!r}; they are numbers, words and lists of labels")


def held(made: Sharded, subject: Subject, units: Index) -> Index:
    """Return in how many shards each of some units is: all of them for whose record is among the public ones too."""
    shard, everywhere = shards(made, subject), made.published(subject.data.X, subject.data.y)
    members = (subject.data.units[int(u)] for u in units)
    counts = (made.shards if everywhere[rows].any() else len(np.unique(shard[rows])) for rows in members)
    return np.fromiter(counts, dtype=np.int64, count=len(units))


def learner(subject: Subject) -> str:
    """Return that the learner of the members is code that nobody has read; empty for those of known libraries."""
    base = (subject.recipe.own_model or {}).get("base")
    own = subject.recipe.snapshot or estimators.keeps_state(base) or estimators.names_files(base)
    if not own and all(_known(name) for name in estimators.references(base)):
        return ""
    return "its learner is code of its own, and that a member reads no other shard was seen of some people, not proved"


def _known(name: str) -> bool:
    """Whether a reference is to a learner, or a part of one, of libraries that share nothing between two of them."""
    if not name.startswith((*KNOWN, *PARTS, "numpy:")):
        return False
    try:
        thing = sources.resolve(name, None)
    except SubjectError:
        return False
    return is_class_of(KNOWN, thing) or isinstance(thing, np.ufunc) or str(thing.__module__).startswith(PARTS)


def in_batches(subject: Subject) -> bool:
    """Return whether the learner's answer about a record may depend on the batch: networks', or nobody knows."""
    own = subject.recipe.own_model
    return own is not None and not all(name.startswith(ALONE) for name in estimators.references(own["base"]))


def shards(made: Sharded, subject: Subject) -> Index:
    """Return the shard of every pool record, shape (P,)."""
    X, _ = subject.data.pool()
    return made.shard_of(X)


class ShardedMembers(Certificate):
    """Whatever the learner does, a person changes the answers of the members that hold them, and those are clipped.

    Holds for every data set with these labels, for a learner that reads nothing but the records it is given: every run
    compares members with trainings of the whole.
    """

    name = "sharded"
    source = "docs/mathematics.md, section 12, Theorems 12.1 and 12.2"

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        if declared(subject) is None:
            return "the recipe is not privgate.models.Sharded released by predict_proba"
        if subject.declared_classes is None:
            return "classes= does not declare every label of the training data"
        if not subject.release.exact:
            return f"the release is {subject.release.form}; the bound is about probabilities"
        if why := own_code.shared(subject.recipe):
            return f"members could share what only one of them was given: {why}"
        return ""

    def alone(self, subject: Subject) -> str:
        """Return that few members are clipping; empty for others."""
        made = declared(subject)
        if made is None or made.shards >= FEW:
            return ""
        return (
            f"{made.shards} shards are clipping, which leaves attacks as they were: fewer than {FEW} count only beside "
            "an attack rule"
        )

    def every_data_set(self, subject: Subject) -> float:
        """Return the bound for somebody in one shard: who is one record, or all of whose records have one id."""
        made = declared(subject)
        if made is None or (subject.data.groups is not None and made.ids is None) or learner(subject):
            return np.inf
        if subject.data.groups is not None:
            named = made.names_of(subject.data.X)
            if any(len({named[row] for row in rows}) > 1 for rows in subject.data.units):
                return np.inf  # the column of ids does not name the people
        if made.published(subject.data.X, subject.data.y).any():
            return np.inf
        return float(made.bound(np.array([1]))[0])

    def certify(self, about: Units) -> Certified:
        """Return the bound of each of the units by the number of shards that its records are in."""
        subject, units = about.subject, about.units
        made = declared(subject)
        assert made is not None  # noqa: S101  applies() said so
        inside = held(made, subject, units)
        words = [
            "any query is allowed; a record's shard is a keyed hash of its own id, and a member reads no other shard"
        ]
        words.append(
            f"forgetting somebody trains {int(inside.max(initial=0))} of {made.shards} members again: privgate forget"
        )
        if why := learner(subject):
            words.append(why)
        if made.public is not None:
            both = int(made.published(subject.data.X, subject.data.y).sum())
            words.append(
                f"public= is declared to hold nobody's records; {both} training records are among them, too, and count "
                "as being in every shard"
            )
        if self.alone(subject):
            words.append(f"{made.shards} shards are clipping: attacks stay as they were; the attack rule judges them")
        if made.combine == "log_pool":
            labels = len(np.unique(np.asarray(made.classes)))
            told = {"design": "log_pool", "clip": made.clip, "members": made.shards, "labels": labels}
        else:
            told = {"design": "shares", "alpha": made.alpha}
        detail = {"shards": made.shards, "limit": made.dtp, "combine": made.combine}
        detail |= {"most_shards": int(inside.max(initial=0))}
        return replace(Certified.without_data(designed(units, inside, **told), units, tuple(words)), detail=detail)


class ShardedEngine(Engine):
    """Trains the members again that held the unit, each by a call of the training function on its shard alone.

    A member's clipped answer is read off a model all of whose other members had nothing to learn from and answer
    nothing. Exact up to rounding, that of single precision where networks are the learners; 1/k of a training a person
    and shard.
    """

    name = "sharded"
    version = 2

    def supports(self, subject: Subject) -> str:
        """Return why this engine does not cover the recipe; empty if it does."""
        made = declared(subject)
        if made is None:
            return "the recipe is not privgate.models.Sharded released by predict_proba"
        if subject.declared_classes is None:
            return "classes= does not declare every label"
        if made.public is not None:
            return "members that share public records answer without records of their own too"
        return ""

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the number of calls, each of one member."""
        plain = refit.ENGINE.cost(subject, units, seeds)
        made = declared(subject)
        return Cost(plain.fits + len(seeds) * (made.shards if made else 0), plain.cpu_seconds, plain.memory_bytes)

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return models with and without each unit; a unit whose training failed is handed on to refits."""
        subject, units, seeds = asked.subject, asked.units, asked.seeds
        made = declared(subject)
        assert made is not None  # noqa: S101  supports() said so
        members, K = subject.data.units, len(subject.classes)
        shard = shards(made, subject)[: subject.data.n]
        row_unit, row_query = asked.rows
        bounds = np.searchsorted(row_unit, np.arange(len(units) + 1))
        every, place = np.unique(row_query, return_inverse=True)
        held = [np.flatnonzero(shard == m) for m in range(made.shards)]
        work = [(u, int(m)) for u in range(len(units)) for m in np.unique(shard[members[units[u]]])]
        whole = [Fit(seed, every, members=rows) for seed in seeds for rows in held]
        less = [
            Fit(seed, row_query[bounds[u] : bounds[u + 1]], members=np.setdiff1d(held[m], members[units[u]]))
            for seed in seeds
            for u, m in work
        ]
        answers = asked.fleet.fits(subject, whole + less, label="training single members")
        bad = {work[i % len(work)][0] for i, a in enumerate(answers[len(whole) :]) if a.problem}
        if any(a.problem for a in answers[: len(whole)]):
            bad = set(range(len(units)))  # then refits say what is wrong with it
        each = [np.zeros((0, K)) if a.problem else read(made, a.log_p, K) for a in answers]
        log_with = np.zeros((len(seeds), len(row_query), K))
        log_without = np.zeros_like(log_with)
        for s in range(len(seeds) if len(bad) < len(units) else 0):
            full = np.stack(each[s * made.shards : (s + 1) * made.shards])[:, place]
            log_with[s] = pooled(made, full)
            changed = full.copy()
            for (u, m), mine in zip(work, each[len(whole) + s * len(work) :], strict=False):
                if u not in bad:
                    changed[m, bounds[u] : bounds[u + 1]] = mine
            log_without[s] = pooled(made, changed)
        covered = np.array([u not in bad for u in range(len(units))], dtype=bool)
        found = Retrained(
            units=np.asarray(units, dtype=np.int64),
            seeds=seeds,
            row_unit=row_unit,
            row_query=row_query,
            log_with=log_with,
            log_without=log_without,
            error=np.full(len(units), rounding(made, K) + SINGLE * in_batches(subject)),
            status=np.full(len(units), Status.EXACT, dtype=object),
            engine=np.full(len(units), self.name, dtype=object),
        )
        return found.select(covered), np.asarray(units, dtype=np.int64)[~covered]


def read(made: Sharded, log_p: Float, K: int) -> Float:
    """Return one member's part of the answer, shape (n, K), from a model whose other members answer nothing."""
    if made.combine == "log_pool":
        return np.asarray(made.shards * (log_p - log_p.max(axis=1, keepdims=True)))
    alone = np.exp(log_p) * (made.shards + K * made.alpha) - made.alpha
    return np.asarray(alone - (made.shards - 1) / K)


def pooled(made: Sharded, parts: Float) -> Float:
    """Return log-probabilities of all members together; ``parts`` has shape (members, n, K)."""
    K = parts.shape[-1]
    if made.combine == "log_pool":
        z = parts.mean(axis=0)
        return np.asarray(z - np.logaddexp.reduce(z, axis=1, keepdims=True))
    return np.asarray(np.log((parts.sum(axis=0) + made.alpha) / (made.shards + K * made.alpha)))


def rounding(made: Sharded, K: int) -> float:
    """Return how far a log-probability put together here may be from the library's, nats."""
    unit = np.finfo(np.float64).eps
    if made.combine == "log_pool":
        return float(16 * (K + made.shards + 8) * unit)
    # a member's share comes out of a difference with numbers up to M + K alpha; the answer is at least alpha
    whole = made.shards + K * made.alpha
    return float(16 * (K + made.shards + 8) * unit * made.shards * whole / made.alpha)


ENGINE = ShardedEngine()
