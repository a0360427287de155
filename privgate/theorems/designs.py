"""Designs that limit everybody whatever the data are: members that are strangers, votes of neighbors, a ball."""

from dataclasses import replace
from typing import Any

import numpy as np

from privgate.arrays import Index
from privgate.errors import SubjectError
from privgate.kernel import Case
from privgate.models import Sharded
from privgate.models.ball_logistic import FLAT
from privgate.subject import estimators, sources
from privgate.subject.libraries import is_class_of
from privgate.subject.subject import Subject
from privgate.theorems import hypotheses
from privgate.theorems.certificate import ByDesign, Certified, Units, designed, smoothed
from privgate.theorems.hypotheses import vanishing

_LIBRARIES = ("sklearn.", "lightgbm.", "xgboost.", "catboost.")
#: whose learners read their records and nothing else
KNOWN = (*_LIBRARIES, "privgate.")
#: what networks are made of: classes and functions of a record's numbers
PARTS = ("torch.nn.", "torch.optim.")
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
    return "its learner is code of its own: a member may read what only another shard holds, so people are refitted"


def _known(name: str) -> bool:
    """Whether a reference is to a learner, or a part of one, of libraries that share nothing between two of them."""
    if not name.startswith((*KNOWN, *PARTS, "numpy:")):
        return False
    try:
        thing = sources.resolve(name, None)
    except SubjectError:
        return False
    return is_class_of(KNOWN, thing) or isinstance(thing, np.ufunc) or str(thing.__module__).startswith(PARTS)


def shards(made: Sharded, subject: Subject) -> Index:
    """Return the shard of every pool record, shape (P,)."""
    X, _ = subject.data.pool()
    return made.shard_of(X)


class ShardedMembers(ByDesign):
    """Whatever the learner does, a person changes the answers of the members that hold them, and those are clipped.

    Holds for every data set with these labels, for a learner of a known library, which reads its records and nothing
    else.
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
        return learner(subject)

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
        if made is None or (subject.data.groups is not None and made.ids is None):
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
            "any query is allowed; a record's shard is a keyed hash of its own id, and a member reads no other shard",
            f"forgetting somebody trains {int(inside.max(initial=0))} of {made.shards} members again",
        ]
        if made.public is not None:
            both = "some" if made.published(subject.data.X, subject.data.y).any() else "no"
            words.append(
                f"public= is declared to hold nobody's records; {both} training records are among them, "
                "too, and count as being in every shard"
            )
        if self.alone(subject):
            words.append(f"{made.shards} shards are clipping: attacks stay as they were; the attack rule judges them")
        detail = {"shards": made.shards, "limit": made.dtp, "combine": made.combine}
        detail |= {"most_shards": int(inside.max(initial=0))}
        found = Certified.without_data(self.judged(about), units, tuple(words))
        found.detail.update(detail)
        return found

    def design(self, subject: Subject, units: Index) -> Case:
        """Return the shards that each unit is in."""
        made = declared(subject)
        assert made is not None  # noqa: S101  unfit() said so
        inside = held(made, subject, units)
        if made.combine == "log_pool":
            labels = len(np.unique(np.asarray(made.classes)))
            return designed(inside, design="log_pool", clip=made.clip, members=made.shards, labels=labels)
        return designed(inside, design="shares", alpha=made.alpha)


class BallLogisticCertificate(ByDesign):
    """A record moves the minimiser by at most ``C radius``, and an answer by ``radius`` times that; g records, g times.

    The objective is strongly convex with constant 1 in every direction, the intercept's included, and a record's
    gradient is at most as long as the record. What the solver leaves over counts on both sides.
    """

    name = "ball_logistic"
    source = "docs/mathematics.md, section 12.3, Theorem 12.4"

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        if problem := hypotheses.own_refusal(subject, "BallLogistic"):
            return problem
        return "" if subject.declared_classes is not None else "classes= does not declare every label"

    def every_data_set(self, subject: Subject) -> float:
        """Return the bound for one record a person; how many another one has is declared nowhere."""
        if subject.data.groups is not None:
            return np.inf
        return float(hypotheses.own_estimator(subject, "BallLogistic").bound)

    def certify(self, about: Units) -> Certified:
        """Return the bound of each of the units by the number of its records."""
        estimator = hypotheses.own_estimator(about.subject, "BallLogistic")
        words = (
            f"any query is allowed: records and queries are pulled into a ball of radius {estimator.radius:g}; "
            "nothing of the data is looked at"
        )
        if estimator.towards is not None:
            words += (
                "; the head that it is pulled towards is declared public: one made from these people would not show"
            )
        return Certified.without_data(self.judged(about), about.units, (words,))

    def design(self, subject: Subject, units: Index) -> Case:
        """Return the records of each unit."""
        estimator = hypotheses.own_estimator(subject, "BallLogistic")
        held = np.array([len(subject.data.units[int(u)]) for u in units])
        told = {"C": float(estimator.C), "radius": float(estimator.radius), "stop": FLAT}
        return designed(held, design="ball", **told)


class NeighborsCertificate(ByDesign):
    """At any query a record is among the k nearest, or nothing changes; then one vote passes to the next neighbor.

    Or is lost, where nobody is left to vote: with e of r lost votes replaced, a label's share grows by at most
    ``(e + alpha) / alpha x (V + C alpha) / (V - r + e + C alpha)``, which is largest where e = r.
    """

    name = "smoothed_neighbors"
    source = "docs/mathematics.md, section 5: order by (distance, record); section 12.3"

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        if problem := hypotheses.own_refusal(subject, "SmoothedNeighbors"):
            return problem
        if not hypotheses.own_estimator(subject, "SmoothedNeighbors").alpha > 0:
            return "without smoothing one vote can make a label impossible: DTP is infinite"
        return ""

    def every_data_set(self, subject: Subject) -> float:
        """Return ``ln(1 + 1/alpha)`` for declared labels and one record a person."""
        alpha = float(hypotheses.own_estimator(subject, "SmoothedNeighbors").alpha)
        return smoothed(subject, alpha) + (hypotheses.own_error(subject, alpha, 1) if alpha > 0 else 0.0)

    def certify(self, about: Units) -> Certified:
        """Return ``ln(1 + g / alpha)`` for each of ``units``, g the votes that it can hold."""
        kept, gone = self.judged(about), vanishing(about.subject, about.units)
        words = (
            "any query is allowed; neighbors are ordered by distance and, where equal, by their own features and label"
        )
        made = Certified.without_data(kept and kept.about(~gone), about.units, (words,))
        return replace(made, lower=np.where(gone, np.inf, 0.0))

    def design(self, subject: Subject, units: Index) -> Case:
        """Return the votes of each unit."""
        estimator = hypotheses.own_estimator(subject, "SmoothedNeighbors")
        size = np.array([len(subject.data.units[int(u)]) for u in units], dtype=np.int64)
        alpha, most = float(estimator.alpha), int(estimator.n_neighbors)
        off = hypotheses.own_error(subject, alpha, 1)
        return designed(size, design="shares", alpha=alpha, most=most, off=off)
