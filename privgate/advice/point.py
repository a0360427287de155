"""Candidates as they were measured: what a model is good for, its risk, and which candidate nobody beats in both."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, model_validator

from privgate.advice.change import Change
from privgate.arrays import Float, Index
from privgate.errors import MeasurementError, UsageError
from privgate.evidence import Number
from privgate.subject.subject import Subject
from privgate.training.fit import Fit
from privgate.training.fleet import Fleet
from privgate.version import __version__

# What a model is good for: cross-validation by people, through the same fleet as every other training.

FOLDS = 5  # of cross-validation
#: number of the division into folds that no search has looked at
AGAIN = 1
#: standard errors, of what is gained over the folds, by which a model must beat whoever ignores the features
MARGIN = 2.0
#: a released 0 for the right label costs this much log loss at most: one answer must not decide
_LEAST = 1e-15


def accuracy(p: Float, truth: Index) -> float:
    """Return the share of right labels; larger is better."""
    return float((p.argmax(axis=1) == truth).mean())


def log_loss(p: Float, truth: Index) -> float:
    """Return minus the mean log loss, nats; larger is better."""
    total = np.maximum(p.sum(axis=1), _LEAST)
    right = p[np.arange(len(p)), truth] / total
    return float(np.log(np.maximum(right, _LEAST)).mean())


def auc(p: Float, truth: Index) -> float:
    """Return the area under the ROC curve, of one label against the others on average; larger is better."""
    from sklearn.metrics import roc_auc_score

    if len(np.unique(truth)) < 2:
        return float("nan")
    present = np.flatnonzero(np.bincount(truth, minlength=p.shape[1]))
    one = [roc_auc_score(truth == k, p[:, k]) for k in (present if p.shape[1] > 2 else present[1:])]
    return float(np.mean(one))


def rmse(answers: Float, truth: Float) -> float:
    """Return minus the root of the mean squared error; larger is better."""
    return -float(np.sqrt(np.mean((answers - truth) ** 2)))


#: name -> measure of usefulness; larger is better for each
MEASURES: Mapping[str, Callable[[Float, Index], float]] = {"accuracy": accuracy, "log_loss": log_loss, "auc": auc}
#: the same of regressors, whose answers are numbers
OF_NUMBERS: Mapping[str, Callable[[Float, Float], float]] = {"rmse": rmse}


def chosen(subject: Subject, measure: str) -> str:
    """Return the measure asked for, or the usual one where none is.

    Raises
    ------
    UsageError
        No measure has that name, or it means nothing for this model.
    """
    fitting: Mapping[str, object] = MEASURES if subject.task == "classification" else OF_NUMBERS
    if measure and measure not in fitting:
        what = "classes" if subject.task == "classification" else "numbers"
        raise UsageError(f"no measure {measure!r} of a model that answers with {what}; it is {' or '.join(fitting)}")
    return measure or next(iter(fitting))


def folds(subject: Subject, number: int = 0) -> list[Index]:
    """Return the rows of each fold: a person's records are in one, labels spread evenly, the same for every change.

    ``number`` names the division; a search uses the first, and ``AGAIN`` for the candidate that it has chosen.
    """
    units = subject.data.units
    draw = np.random.default_rng(number)
    labels = subject.data.label_codes[[int(rows[0]) for rows in units]]
    order = np.lexsort((draw.random(len(units)), labels))
    return [np.sort(np.concatenate([units[int(u)] for u in order[f::FOLDS]])) for f in range(min(FOLDS, len(units)))]


class Use(NamedTuple):
    """What a model is good for, and what it must be better than.

    Parameters
    ----------
    mean, error : float
        Over the folds, of what is released; larger is better.
    floor : float
        What an answer that ignores the features reaches on the same folds, and ``MARGIN`` standard errors of the
        difference; infinite where everybody gets the same label or number.
    """

    mean: float = math.nan
    error: float = math.nan
    floor: float = math.nan

    def useless(self, measure: str) -> str:
        """Return why the model is no advice, whatever its risk; empty if it answers well enough."""
        if self.mean > self.floor:
            return ""
        if math.isinf(self.floor):
            return "it answers everybody the same"
        if not math.isfinite(self.mean) or math.isnan(self.floor):
            return "what it is good for is not known"
        return (
            f"{measure} {self.mean:.4f}; advice wants more than {self.floor:.4f}, which is {MARGIN:g} standard errors "
            "above an answer that ignores the features"
        )

    def told(self) -> dict[str, float]:
        """Return the fields of a candidate."""
        return {"useful": self.mean, "useful_error": self.error, "floor": self.floor}


def cross_validated(subject: Subject, fleet: Fleet, measure: str, *, draw: int = 0) -> Use:
    """Return what a subject is good for by cross-validation.

    Raises
    ------
    MeasurementError
        A training failed.
    UsageError
        No measure has that name.
    """
    name = chosen(subject, measure)
    rows = folds(subject, draw)
    fits = [Fit(subject.recipe.payload["seed"], held, left_out=held) for held in rows]
    found, ignoring, same = [], [], True
    for held, answer in zip(rows, fleet.fits(subject, fits, label="cross-validation"), strict=True):
        if answer.problem:
            raise MeasurementError(f"cross-validation: {answer.problem}")
        useful, least, varies = _useful(subject, name, answer.log_p, held)
        found.append(useful)
        ignoring.append(least)
        same &= not varies
    share = np.sqrt(len(found))
    gained = MARGIN * np.std(np.subtract(found, ignoring), ddof=1) / share
    floor = math.inf if same else float(np.mean(ignoring) + gained)
    return Use(float(np.mean(found)), float(np.std(found, ddof=1) / share), floor)


def _useful(subject: Subject, name: str, answered: Float, held: Index) -> tuple[float, float, bool]:
    """Return what one fold shows of the model and of whoever ignores the features, and whether its answers differ."""
    kept = np.setdiff1d(np.arange(subject.data.n), held)
    if subject.task == "classification":
        measure, truth = MEASURES[name], subject.label_codes
        shown = subject.release.shown(np.exp(answered))
        shares = np.bincount(truth[kept], minlength=shown.shape[1]) / len(kept)
        # by accuracy labels alone count; what ranks rare cases well may give everybody the same label
        answers = shown.argmax(axis=1) if name == "accuracy" else shown
        alike = measure(np.tile(shares, (len(held), 1)), truth[held])
        return measure(shown, truth[held]), alike, bool((answers != answers[0]).any())
    mean, deviation = subject.scale
    y, numbers = subject.data.y, mean + deviation * answered.ravel()
    wrong, alike = (OF_NUMBERS[name](v, y[held]) for v in (numbers, np.full(len(held), np.mean(y[kept]))))
    noise = subject.release.noise
    # fresh noise has mean 0 and is independent of the error: squares add up, and nothing is drawn
    useful = wrong if noise is None else -float(np.hypot(wrong, noise.deviation))
    return useful, alike, bool(np.ptp(numbers) > 1e-9 * deviation)


class Point(BaseModel):
    """One candidate.

    Parameters
    ----------
    number : int
        What ``privgate apply`` calls it; 0 is the model as it stands.
    change : Change
    outcome : str
        Of the search; says nothing final.
    rule, value, limit, unit, of_limit, why, chance
        See ``probe.Risk``.
    useful, useful_error : float
        Cross-validated measure and its standard error; larger is better; NaN where it was not needed or failed.
    floor : float
        Usefulness that it must exceed to be advised, on all folds that were looked at: see ``Use``.
    trainings : int
        What it took.
    seconds : float
        Wall time.
    recipe, data : str
        Digests of what was measured; empty where nothing could be made.
    confirmed : str
        Outcome of a whole check with other randomness; empty where none was made.
    confirmed_value : float
        The same rule's number there: what searching flattered is the difference.
    confirmed_useful : float
        Usefulness on other folds than those that the candidate was chosen by; -inf where they could not say.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    change: Change
    outcome: Literal["passed", "warned", "inconclusive", "failed"]
    rule: str = ""
    value: Number = math.nan
    limit: Number = math.nan
    unit: str = ""
    of_limit: Number = math.nan
    why: str = ""
    chance: Number = math.nan
    useful: Number = math.nan
    useful_error: Number = math.nan
    floor: Number = math.nan
    trainings: int = 0
    seconds: float = 0.0
    recipe: str = ""
    data: str = ""
    confirmed: str = ""
    confirmed_value: Number = math.nan
    confirmed_useful: Number = math.nan

    @property
    def worth(self) -> bool:
        """Whether it could be trained, and answers better than whoever ignores the features."""
        return self.useful > self.floor

    def useless(self, measure: str) -> str:
        """Return why it is no advice, whatever its risk, on all folds that were looked at; empty if it is."""
        again = () if math.isnan(self.confirmed_useful) else (self.confirmed_useful,)
        said = (Use(useful, floor=self.floor).useless(measure) for useful in (self.useful, *again))
        return next(filter(None, said), "")

    @property
    def passes(self) -> bool:
        """Whether the search found every rule kept by a model that answers well; the model as it stands may not."""
        return self.outcome in ("passed", "warned") and (self.worth or self.number == 0)

    @property
    def stands(self) -> bool:
        """Whether a whole check with other randomness agreed, and other folds where they were asked."""
        doubtful = self.confirmed_useful <= self.floor
        return self.passes and not doubtful and self.confirmed in ("passed", "warned")


class Tried(BaseModel):
    """What was tried for one subject under one policy.

    Parameters
    ----------
    uri : str
        The model version; empty for a local subject.
    policy, policy_digest : str
    recipe, data : str
        Digests of what the search started from.
    measure : str
        Of usefulness.
    points : tuple of Point
        The first is the model as it stands.
    left : tuple of str
        What was not tried, and why.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_: Literal["privgate/advice/v1"] = "privgate/advice/v1"
    version: str = __version__
    uri: str
    policy: str
    policy_digest: str
    recipe: str
    data: str
    measure: str
    points: tuple[Point, ...]
    left: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _numbered(self) -> Self:
        if [p.number for p in self.points] != list(range(len(self.points))) or not self.points:
            raise ValueError("changes are numbered from 0, the model as it stands, and each once")
        return self

    @property
    def best(self) -> tuple[Point, ...]:
        """Candidates that pass, a whole check agreeing, the most useful first, and no gaming among them."""
        good = [p for p in self.points[1:] if p.stands and not p.change.games]
        return tuple(sorted(good, key=lambda p: (-p.useful, p.of_limit)))


def front(points: Sequence[Point]) -> list[Point]:
    """Return the points that no other beats in risk and usefulness at once, the least risky first."""
    known = [p for p in points if not math.isnan(p.of_limit) and not math.isnan(p.useful)]
    found: list[Point] = []
    for p in sorted(known, key=lambda p: (p.of_limit, -p.useful)):
        if not found or p.useful > found[-1].useful:
            found.append(p)
    return found
