"""The pool of an attack, and shadow models on balanced random subsets of it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.arrays import Bool, Compute, Float, Index, compute_here
from privgate.controls import strangers
from privgate.controls.data_checks import fingerprint_grids, fingerprint_with_label
from privgate.controls.reproduces import make_generator
from privgate.controls.strangers import Shift
from privgate.errors import MeasurementError
from privgate.evidence import Count
from privgate.run import near_questions
from privgate.run.coincidences import MOST_COPIES, Coincidences, keep_common
from privgate.run.refit import Shadows, train_on_subsets
from privgate.run.run import Run
from privgate.statistics.roc import LOOKS
from privgate.subject.containers import take
from privgate.subject.data import TrainingData
from privgate.theorems import hypotheses

# The pool of an attack: who counts as a trial, who is one person, and who had to be left out.

#: fewer people on either side than this, and no attack is run: half of them trains, half decides
LEAST = 20
#: more values than this in a numeric sensitive column, and it is cut at the quartiles of the training records
MOST_VALUES = 12


@dataclass(frozen=True, eq=False)
class AttackPool:
    """Training records, then candidates; and which of them are fit to be trials; arrays of shape (P,)."""

    #: training records
    members: Bool
    #: rows that are fit to be trained on and tried: without labels that are too rare for either side to be compared
    eligible: Bool
    #: eligible rows of trials: of all people, ties kept, or of those who were drawn. Were candidates dropped
    #: because members hold their records, the rest would be rarer: who spots rare records would seem to spot members
    trial: Bool
    #: number of the person of each row: training units first, then one for each candidate
    person: Index
    #: class position; 0 for a label that the training set does not know (never eligible)
    labels: Index
    #: reason -> people who are no trials
    removed: Mapping[str, int]
    #: how many people hold each row's record
    holders: Index
    #: share of the candidates who may be members at most, more than chance explains; 0 without an alarm
    copies: float = 0.0
    #: whether equal records of members were dropped, and those of candidates were not; few of them count as copies
    deduplicated: bool = False
    #: how far candidates are from members, computed where it is wanted; None where there are too few people
    shift: Callable[[], Shift | None] = lambda: None
    #: how many of either side at most, and of how many members and candidates, trials were drawn; None where of none
    fit: tuple[int, int, int] | None = None

    @property
    def others(self) -> Bool:
        """Members who are no trials, shape (P,): every shadow model is trained on them."""
        return self.eligible & self.members & ~self.trial

    @property
    def alone(self) -> Bool:
        """Trials whose record nobody else holds, shape (P,): for measures that a tie would blunt; or raise."""
        alone = np.asarray(self.trial & (self.holders == 1))
        if min(len(np.unique(self.person[alone & side])) for side in (self.members, ~self.members)) < LEAST:
            raise MeasurementError(f"fewer than {LEAST} people on one side are alone with their records")
        return alone

    @property
    def drawn(self) -> str:
        """Of how many people the trials were drawn, one sentence; empty where all of them are trials."""
        if self.fit is None:
            return ""
        most, inside, outside = self.fit
        some = Count(inside, len(np.unique(self.person[self.members]))), Count(outside, int((~self.members).sum()))
        return (
            f"trials are drawn at random, at most {most} of either side: of {some[0]} members and {some[1]} candidates"
        )

    @property
    def copied(self) -> str:
        """Why candidates are rather members; empty if few can be."""
        if self.copies < MOST_COPIES:
            return ""
        return (
            f"up to {self.copies:.0%} of the candidates equal or nearly equal a training record, more than chance "
            "explains: members, stored once more, are no people who were not trained on; give other candidates"
        )

    @property
    def refusal(self) -> str:
        """Why nothing that is measured on these candidates counts; empty if it does."""
        if self.deduplicated:
            return (
                "candidates repeat one another and training records do not, as if equal rows were dropped on one side: "
                "common ones tell candidates; log the training table with its doubles, or drop those of the whole "
                "table before it is split"
            )
        if self.copied:
            return self.copied
        if (shift := self.shift()) is not None and shift.clear:
            return f"candidates do not come from the same population as the training records ({shift.sentence})"
        return ""


_BUILT: "WeakKeyDictionary[TrainingData, AttackPool]" = WeakKeyDictionary()


def build_pool(data: TrainingData) -> AttackPool:
    """Return the pool of a subject's data; ``MeasurementError``: a side has too few, or would not count."""
    pool = built(data)
    if pool.refusal:
        raise MeasurementError(pool.refusal)
    n = data.n
    inside, outside = len(np.unique(pool.person[:n][pool.trial[:n]])), int(pool.trial[n:].sum())
    if min(inside, outside) < LEAST:
        removed = ", ".join(f"{Count(v)} {k}" for k, v in pool.removed.items())
        raise MeasurementError(
            f"too few for a split of {LEAST} people in the data and {LEAST} candidates: only {Count(inside, n)} and "
            f"{Count(outside, len(pool.trial) - n)} are usable (removed: {removed})"
        )
    return pool


def built(data: TrainingData, compute: Compute = compute_here) -> AttackPool:
    """Return the pool, whether or not it can be used; looked at once for each data set."""
    if data not in _BUILT:
        _BUILT[data] = _build(data, compute)
    return _BUILT[data]


def _build(data: TrainingData, compute: Compute) -> AttackPool:
    if data.candidates is None or len(data.candidates[1]) == 0:
        raise MeasurementError(
            "no candidates: attacks need people who were not trained on; pass TrainingData(..., candidates=(X, y))"
        )
    X, y = data.pool()
    n, size = data.n, len(y)
    classes = data.classes
    labels = np.minimum(np.searchsorted(classes, y), len(classes) - 1).astype(np.int64)
    unknown = np.zeros(size, dtype=bool) if data.predicts_numbers else classes[labels] != y  # numbers need not repeat
    name = fingerprint_with_label(X, y)
    del X
    owner = np.concatenate([data.units.owner, len(data.units) + data.candidate_people])
    held, holders = Coincidences.count(name, owner, len(data.units))
    rng, eligible = np.random.default_rng(31), ~unknown
    if unknown.any():
        every = np.unique(y, return_inverse=True)[1]
        of_people = Coincidences.count(every, owner, len(data.units))[0]  # a person's label, in however many records
        eligible &= keep_common(of_people.values, *of_people.sides)[every]
    removed = {"unknown_label": int((~eligible[n:]).sum()), "members_of_rare_labels": int((~eligible[:n]).sum())}
    # by all that they hold, and by features to a few digits: a copy may have lost some
    names = [name, *fingerprint_grids(data.pool()[0])]
    ways = (Coincidences.count(each, owner, len(data.units))[0] for each in names)
    # records of one person go together: only what is too much by either way of counting is
    copies = max(min(c.count_copies(rng, 1 / len(names)) for c in {w: 0, w.merged: 0}) for w in ways)
    own = held.merged.doubles * (held.deduplicated and held.merged.deduplicated)
    copies, doubles = (min(1.0, k / len(np.unique(data.candidate_people))) for k in (copies + own, own))
    rows = np.arange(size) < n, eligible, eligible, owner, labels
    shift = cache(partial(strangers.find_shift, data, eligible, compute))
    return AttackPool(*rows, removed, holders, copies, doubles >= MOST_COPIES, shift)


def features(data: TrainingData, rows: Index) -> NDArray[np.float64] | None:
    """Return numeric features of pool rows, shape (R, d), for adversaries who know whole records; None without any."""
    X = data.at(rows)
    if hasattr(X, "tocsr"):
        X = X.toarray() if X.shape[1] <= 2000 else None
    elif hasattr(X, "select_dtypes"):
        X = X.select_dtypes("number").to_numpy(np.float64, na_value=np.nan)
    table = hypotheses.table(X)
    if table is None or not table.shape[1]:
        return None
    return np.nan_to_num(table.astype(np.float64), posinf=0.0, neginf=0.0)


def groups(data: TrainingData, column: str | int | None) -> dict[str, NDArray[Any]]:
    """Return ``column name -> text value of every pool row`` for one sensitive column, or for all of them."""
    wanted = data.sensitive if column is None else tuple(c for c in data.sensitive if str(c) == str(column))
    if not wanted:
        what = "no sensitive column is declared" if column is None else f"{column!r} is not declared sensitive"
        raise MeasurementError(f"{what}; pass TrainingData(..., sensitive=(…))")
    X, _ = data.pool()
    return {str(c): _values(X, c, data.n) for c in wanted}


def _values(X: Any, column: str | int, n: int) -> NDArray[Any]:
    if hasattr(X, "columns"):
        if column not in X.columns:
            raise MeasurementError(f"sensitive column {column!r} is not among the features")
        raw = X[column].to_numpy()
    elif hasattr(X, "shape") and len(X.shape) == 2 and isinstance(column, int) and 0 <= column < X.shape[1]:
        raw = np.asarray(take(X.T, np.array([column])).todense() if hasattr(X, "tocsr") else X[:, column]).ravel()
    else:
        raise MeasurementError(f"sensitive column {column!r} cannot be read from a {type(X).__name__}")
    if raw.dtype.kind in "iuf" and len(np.unique(raw)) > MOST_VALUES:
        edges = np.unique(np.nanquantile(raw[:n].astype(np.float64), [0.25, 0.5, 0.75]))
        names = [f"below {edges[0]:g}", *(f"from {e:g}" for e in edges)]
        return np.asarray(np.array(names)[np.searchsorted(edges, raw, side="right")])
    return np.asarray(raw.astype(str))


def of_run(run: Run) -> AttackPool:
    """Return the pool of a run's subject, with ``Run.trials`` people of either side at most as trials.

    More people make limits hardly narrower, and cost memory a shadow model each. A ledger that lasts draws them by its
    secret: who trained the model cannot spare whom nobody asks about.
    """
    return _draw_trials(run, run.trials)


def of_attacks(run: Run) -> AttackPool:
    """Return the same with as many members as candidates at most.

    Shadow models are trained on all other members and on a random half of the trials. So they have as many people as
    the model under attack: smaller ones lean more on each record, and tell less of it.
    """
    pool = run.compute(of_run)
    outside = len(np.unique(pool.person[pool.trial & ~pool.members]))
    return _draw_trials(run, min(run.trials, outside))


def _draw_trials(run: Run, most: int) -> AttackPool:
    pool = build_pool(run.subject.data)
    people, first = np.unique(pool.person[pool.trial], return_index=True)
    member = pool.members[pool.trial][first]
    sides = [people[member], people[~member]]
    if max(map(len, sides)) <= most:
        return pool
    rng = make_generator(run.subject, "trials of attacks", run.fleet, recorded=True)
    drawn = np.concatenate([rng.permutation(side)[:most] for side in sides])
    return replace(pool, trial=pool.trial & np.isin(pool.person, drawn), fit=(most, len(sides[0]), len(sides[1])))


# Shadow models: balanced random subsets of the pool, one training of which serves every record and every attack.

#: at least this share of the shadow models must have been trained, or nothing is said
LEAST_TRAINED = 0.5
#: numbers that all shadow models together answer beside records, 8 bytes each
MOST_ANSWERS = 2**25


def draw_halves(pool: AttackPool, count: int, rng: Generator) -> Bool:
    """Return ``count`` random halves of the trials, drawn independently of each other, shape (count, P)."""
    people = np.unique(pool.person[pool.trial])
    place = np.minimum(np.searchsorted(people, pool.person), len(people) - 1)
    halves = np.stack([rng.permutation(len(people)) < len(people) // 2 for _ in range(count)])
    return np.asarray(halves[:, place] & pool.trial)


def train(run: Run) -> Shadows:
    """Return shadow models on halves of the trials and all other members; ``MeasurementError``: most failed."""
    return trained(run, _draw_subsets(run))


def _draw_subsets(run: Run) -> Bool:
    """Return who is in which subset, shape (count, P): complementary pairs of random halves of the trials.

    Models 2j and 2j + 1 share no trial and cover all: every trial is in exactly half of the models, and a pair is one
    independent unit. All records of a person go together. Members who are no trials are in each.
    """
    pool, pairs = run.compute(of_attacks), max(2, run.limits.shadow_models // 2)
    halves = draw_halves(pool, pairs, run.generator("shadow subsets"))
    return np.stack([halves | pool.others, (pool.trial & ~halves) | pool.others], axis=1).reshape(2 * pairs, -1)


def growing(run: Run) -> Iterator[Shadows]:
    """Yield the shadow models of each look, those of the looks before first; all at once where no training makes them.

    Whom they are trained on is drawn before the first is trained. All at once and too few for the last look, they are
    looked at in parts first: only what the last doubling added lets so few approve.
    """
    masks = _draw_subsets(run)
    looks = [count for count in LOOKS if count <= len(masks)]
    most = len(masks) if run.at_once else looks[-1]
    first = most if run.at_once else looks[0]
    shadows = trained(run, masks[:first])
    if looks[0] < len(shadows.masks) < max(LOOKS):
        for count in looks[:-1]:
            yield shadows.first(count)
    yield shadows
    for before, count in pairwise(looks):
        if len(shadows.masks) == before:
            shadows = shadows.joined(trained(run, masks[before:count]))
            yield shadows


def trained(run: Run, masks: Bool) -> Shadows:
    """Return models on the given subsets; what is asked of one beside records is asked in one call with the pool.

    All are trained at the recipe's own seed, which code may treat unlike all others.
    """
    more, own_seed = run.compute(ask_near_trials)[0], (run.subject.recipe.seed,)
    rows = np.concatenate([more.rows, more.places.ravel()])  # about the trials, and beside each of them
    wider = np.pad(masks, ((0, 0), (0, more.places.size)))  # nobody trains on a question
    shadows = train_on_subsets(more.extended, wider, own_seed, run.fleet, rows=rows)
    own, near = np.split(shadows.log_p, [len(more.rows)], axis=1)
    apart = near.reshape(len(masks), *more.places.shape, -1) if more.kinds else None
    shadows = replace(shadows, masks=masks[:, more.rows], log_p=own, near=apart)  # of all would be as large as data
    if len(masks) - (failed := len(shadows.reason)) < LEAST_TRAINED * len(masks):
        first = next(iter(shadows.reason.values()))
        raise MeasurementError(f"{failed} of {len(masks)} shadow models could not be trained: {first}")
    return shadows


def ask_near_trials(run: Run) -> tuple[near_questions.NearQuestions, Float, Float]:
    """Return the questions beside each trial that the model under attack answers, and what it says; see ``answered``.

    Every shadow model is asked them as well, so that their answers together stay within ``MOST_ANSWERS``.
    """
    rows = np.flatnonzero(run.compute(of_attacks).trial)
    each = max(1, run.limits.shadow_models * len(rows) * run.subject.width)
    return near_questions.keep_answered(
        run, near_questions.make_questions(run, rows, near=False, most=max(1, MOST_ANSWERS // each))
    )
