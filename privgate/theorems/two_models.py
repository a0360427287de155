"""What models with and without a person show: sums over columns limit every answer."""

from functools import lru_cache
from typing import Any

import numpy as np

from privgate.arrays import Float, Index
from privgate.cases import Kept
from privgate.kernel import Case, Refused
from privgate.kernel.linear import RELEASES
from privgate.subject.subject import Subject
from privgate.theorems import affine_scores, hypotheses
from privgate.theorems.affine_scores import HEAD
from privgate.theorems.theorem import Certified, Theorem, Units

TABLES = "affine_scores"  # of ``Retrained.changes``: the tables of the models without each person
#: people who are trained without for their tables alone, and numbers of one table, at most
MOST, LARGEST = 1_000, 1 << 20
#: why limits are infinite whose models were read
NO_DIGITS = (
    "within the domain one model refuses what the other answers, or a probability is so near 0 or 1 that 1 - p has no "
    "digits; Release(floor=0.01) answers 0.01 there"
)


@lru_cache(maxsize=4)
def refusal(subject: Subject) -> str:
    """Return why nothing is read off models of a recipe over its domain; empty if it is."""
    estimator, domain, X = subject.recipe.estimator_of("sklearn."), subject.accepted, subject.data.X
    if estimator is None or subject.recipe.payload["predict"] is not None:
        return "the recipe is not scikit-learn's, released as it answers"
    if why := affine_scores.refuse_model(estimator, 0 if subject.task == "regression" else len(subject.classes)):
        return why
    if subject.detail.get("answers_single"):
        return "the model answers numbers of single precision, in which its steps compute otherwise; log it once more"
    if why := hypotheses.single_precision(X):
        return why
    if domain is None:
        return "no domain is declared: pass TrainingData(…, domain=Domain(…)); over all questions DTP is infinite"
    if len(getattr(X, "shape", ())) != 2:
        return "records are no table"
    return "" if _count_numbers(subject) <= LARGEST else "the domain has too many values"


def list_columns(subject: Subject) -> affine_scores.Columns:
    """Return the choices of each column of the accepted domain."""
    domain = subject.accepted
    return affine_scores.list_columns({} if domain is None else domain.payload())


def _count_numbers(subject: Subject) -> int:
    """Return how many numbers a table has, where there is one score for each label."""
    return HEAD + 3 * (sum(len(c[0]) for c in list_columns(subject)) + 1) * subject.width


def reads(subject: Subject) -> tuple[str, int]:
    """Return what a worker is asked beside answers, and how many rows that takes; nothing of other recipes."""
    if refusal(subject):
        return "", 0
    return "privgate.theorems.affine_scores:table", -(-_count_numbers(subject) // subject.width)


class Linear(Theorem):
    """Two fitted models: a linear function of both models' scores is largest at a choice of each column.

    The models are read, so that it holds for every solver, whether it converged or not, and for learnt first steps.
    """

    name = "linear"
    source = "privgate/kernel/linear.py; docs/mathematics.md, section 6.1"
    needs_retrained = True

    def unfit(self, subject: Subject) -> str:
        """Return why the theorem does not apply to a subject; empty if it does."""
        if subject.release.floor and not subject.release.alone:
            return "exact numbers count beside the floor, unless the operator states that the file is not downloadable"
        if not (subject.release.exact or subject.release.alone):
            return f"the release is {subject.release.form}; answers are compared exactly"
        return refusal(subject)

    def canonical(self, subject: Subject, units: Index, case: Case) -> Case:
        """Return the case with all made again but what was trained, and what was read of that."""
        return pose(subject, (case.arrays["with"], case.arrays["without"]), case.settings)

    def certify(self, about: Units) -> Certified:
        """Return the kernel's limits of each of the units, nats; infinite for whom no model is read."""
        subject, units, retrained, fleet = about.subject, about.units, about.retrained, about.fleet
        if fleet is None or retrained is None or len(retrained.seeds) > 1 or not len(units):
            return Certified.nothing(units, why="models are read under one seed")
        tables, task = retrained.changes.get(TABLES), reads(subject)
        members = [np.zeros(0, dtype=np.int64)]  # nobody, and then each of them
        if tables is None:
            if len(units) > MOST:
                return Certified.nothing(units, why=f"more than {MOST} people would be trained without for it alone")
            members += [subject.data.units[int(u)] for u in units]
        lost = np.full((1 + task[1], subject.width), -np.inf)
        answers = fleet.read_models(subject, retrained.seeds[0], members, task)
        full, *others = (lost if a.problem else a.log_p for a in answers)
        with_ = full[1:].ravel()
        without = (np.array(others)[:, 1:] if tables is None else tables[0]).reshape(len(units), -1)
        same = (without[:, :3] == with_[:3]).all(axis=1)  # fewer features where a category went with somebody
        if with_[0] != 1 or not same.any():  # whoever has a model that is not read is not limited
            texts = (t[1:][np.isfinite(t[1:])] for t in (with_, *without) if t[0] == 0)
            reasons = ("".join(map(chr, text.astype(np.int64))) for text in texts)
            return Certified.nothing(units, why=next((why for why in reasons if why), "no model is trained"))
        shape = (3, (_count_numbers(subject) - HEAD) // 3 // subject.width, int(with_[2]))
        body = slice(HEAD, HEAD + int(np.prod(shape)))
        settings = {"release": RELEASES[int(with_[1])], "features": int(max(with_[3], *without[same, 3]))}
        case = pose(subject, (with_[body].reshape(shape), without[same, body].reshape(-1, *shape)), settings)
        try:
            kept = Kept.judge_case(case, units[same])
        except Refused as exc:
            return Certified.nothing(units, why=str(exc))
        upper, lower = np.full(len(units), np.inf), np.zeros(len(units))
        upper[same], lower[same] = kept.high, kept.low
        words = ("the fitted steps were asked at every choice of every column, and the endpoint refuses all else",)
        return Certified(upper, lower, words, NO_DIGITS if np.isinf(upper).all() else "", cases=(kept,))


def pose(subject: Subject, tables: tuple[Float, Float], stated: Any) -> Case:
    """Return the case of models whose tables (3, C + 1, S) and (U, 3, C + 1, S) were read."""
    domain, columns = subject.accepted, list_columns(subject)
    assert domain is not None  # noqa: S101  refusal() said so
    settings = {"release": stated["release"], "features": stated["features"], "single": False}
    settings |= {"product": False} if domain.blocks else {}
    settings |= {"deviation": float(subject.scale[1])} if subject.task == "regression" else {}
    column = np.repeat(np.arange(len(columns)), [len(c[0]) for c in columns]).astype(np.int64)
    ranges = np.array([c[1] for c in columns], dtype=np.int64)
    arrays = {"column": column, "ranges": ranges, "with": tables[0], "without": tables[1]}
    arrays |= {"floor": np.array(subject.release.floor)} if subject.release.floor else {}
    return Case("linear", "any", settings, arrays)


LINEAR = Linear()
