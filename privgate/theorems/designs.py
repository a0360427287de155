"""Designs that limit everybody whatever the data are: members that are strangers, and votes of neighbors."""

from functools import partial
from typing import Any

import numpy as np

from privgate.arrays import Index
from privgate.errors import SubjectError
from privgate.kernel import Case
from privgate.models import Sharded
from privgate.subject import estimators, sources
from privgate.subject.estimators import is_class_of
from privgate.subject.subject import Subject
from privgate.theorems.hypotheses import U, estimator_of, refusal
from privgate.theorems.theorem import DataTheorem, make_design

#: whose learners read their records and nothing else
KNOWN = ("sklearn.", "lightgbm.", "xgboost.", "catboost.", "privgate.")
#: fewer members than this is clipping, which lowers DTP and leaves attacks as they were
FEW = 4


def read_sharded(subject: Subject) -> Sharded | None:
    """Return the recipe's ``Sharded`` without its learner, which may be anybody's and is not imported; else None."""
    own = subject.recipe.own_model
    if own is None or own["class"] != "Sharded" or own.get("public") is not None:
        return None
    model = Sharded(**{k: estimators.decode(v, _refuse_name) for k, v in own.items() if k not in ("class", "base")})
    model.shards = int(model.shards)  # 7.0 is accepted by the model, and is no length here
    return model


def _refuse_name(name: str) -> Any:
    raise SubjectError(f"a setting of Sharded names {name!r}; they are numbers, words and lists of labels")


def _knows_learner(subject: Subject) -> bool:
    """Whether the members' learner, with all its parts, is of libraries that share nothing between two of them."""
    base = (subject.recipe.own_model or {}).get("base")
    if subject.recipe.snapshot or estimators.names_files(base):
        return False
    own = list(estimators.references(base))
    try:
        return all(n.startswith(KNOWN) for n in own) and all(is_class_of(KNOWN, sources.resolve(n, None)) for n in own)
    except SubjectError:
        return False


def _refuse_sharded(subject: Subject) -> str:
    if (model := read_sharded(subject)) is None:
        return "the recipe is not privgate.models.Sharded released by predict_proba"
    if subject.declared_classes is None:
        return "classes= does not declare every label of the training data"
    if not subject.release.exact:
        return f"the release is {subject.release.form}; the bound is about probabilities"
    if model.shards < FEW:
        return f"{model.shards} shards are clipping, which leaves attacks as they were; take {FEW} or more"
    if _knows_learner(subject):
        return ""
    return "its learner is code of its own: a member may read what only another shard holds, so people are refitted"


def _pose_sharded(subject: Subject, units: Index) -> tuple[Case, tuple[str, ...]]:
    """Return in how many shards each person is."""
    model, data = read_sharded(subject), subject.data
    assert model is not None  # noqa: S101  _refuse_sharded() said so
    shard = model.shard_of(data.X)
    held = np.array([len(np.unique(shard[data.units[int(u)]])) for u in units], dtype=np.int64)
    words = (
        "any query is allowed; a record's shard is a keyed hash of its own id, and a member reads no other shard",
        f"forgetting somebody trains {int(held.max(initial=0))} of {model.shards} members again",
    )
    if model.combine != "log_pool":
        return make_design(held, design="shares", alpha=model.alpha), words
    labels = len(np.unique(np.asarray(model.classes)))
    return make_design(held, design="log_pool", clip=model.clip, members=model.shards, labels=labels), words


def _pose_neighbors(subject: Subject, units: Index) -> tuple[Case, tuple[str, ...]]:
    """Return the votes of each person: a record is among the k nearest of a question, or nothing changes.

    Then its vote passes to the next neighbor, or is lost: with e of r lost votes replaced, a label's share grows by at
    most ``(e + alpha) / alpha x (V + C alpha) / (V - r + e + C alpha)``, largest where e = r.
    """
    neighbors, held = estimator_of(subject, "SmoothedNeighbors"), np.diff(subject.data.units.bounds)[units]
    alpha, most, K = float(neighbors.alpha), int(neighbors.n_neighbors), len(subject.classes)
    off = float(8 * (K + 21) * U * (1 + np.log(subject.data.n / alpha + K)))  # by rounding, of both models
    case = make_design(held, design="shares", alpha=alpha, most=most, off=off)
    order = "neighbors are ordered by distance and, where equal, by their own features and label"
    return case, (f"any query is allowed; {order}",)


_SECTION, _NEIGHBORS = "docs/mathematics.md, section", "SmoothedNeighbors"
_ONE_VOTE = "without smoothing one vote can make a label impossible: DTP is infinite"
NEIGHBORS = DataTheorem(
    "smoothed_neighbors", f"{_SECTION} 5: order by (distance, record); section 12.3",
    partial(refusal, name=_NEIGHBORS, unsmoothed=_ONE_VOTE), _pose_neighbors,
)  # fmt: skip
#: for a learner of a known library, which reads its records alone
SHARDED = DataTheorem("sharded", f"{_SECTION} 12, Theorems 12.1 and 12.2", _refuse_sharded, _pose_sharded)
