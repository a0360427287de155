"""A sensitive feature of members, guessed oftener than the same feature of people outside.

The adversary knows everything else about somebody and asks the model with every value put in (Yeom et al., 2020,
Adversaries 4, 6 and 7; Mehnaz et al., 2022). What is guessed without the model stands beside it.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.arrays import Bool, Float, Index
from privgate.errors import MeasurementError
from privgate.evidence import (
    AttributeGuesses,
    AttributeResult,
    AttributesPart,
    BehindMembership,
    Count,
    Estimate,
    Measurement,
    Request,
)
from privgate.evidence.telling import SMALL_CELL, Range, part_of
from privgate.kernel.sample import difference
from privgate.run import pool as pools
from privgate.run.run import Run
from privgate.subject.containers import stack, take
from privgate.subject.data import TrainingData
from privgate.subject.release import Laplace
from privgate.training.fit import Fit

#: more values than this in a column of numbers, and it is cut at the quartiles of the people outside
MOST_VALUES = 12
#: people of either side that are asked about
MOST_PEOPLE = 2_000
#: a published error is at least this, in deviations of the targets, or a published loss in nats
LEAST = 1e-9
#: log-likelihoods are taken to be at least FLOOR, so that priors tell equally impossible values apart; losses at most
FLOOR, MOST_LOSS = -1e6, 700.0

#: (right, all) of members, then of people outside
Counts = tuple[int, int, int, int]


@dataclass(frozen=True, eq=False)
class Attribute:
    """One sensitive feature of m values."""

    column: str | int
    #: what is put in for each; numbers that were cut stand for the middle of their quarter
    values: tuple[Any, ...]
    names: tuple[str, ...]
    #: which of them each pool record has, shape (P,); -1 where it is missing, or nobody outside has it
    codes: Index
    #: how frequent each is among the people outside, who stand for what is public, shape (m,)
    prior: Float


def column_of(X: Any, column: str | int) -> NDArray[Any]:
    """Return one column of a frame or of a two-dimensional array."""
    if hasattr(X, "iloc"):
        if column not in X.columns:
            raise MeasurementError(f"sensitive column {column!r} is not among the features")
        return np.asarray(X[column])
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if hasattr(X, "tocsr") or len(shape) != 2 or not isinstance(column, int) or not 0 <= column < shape[1]:
        raise MeasurementError(f"sensitive column {column!r} cannot be put into a {type(X).__name__}; pass a DataFrame")
    return np.asarray(X[:, column])


def read(data: TrainingData, column: str | int) -> Attribute:
    """Return the values of a sensitive feature, as the people outside have them.

    Raises
    ------
    MeasurementError
        It cannot be read, or everybody outside has the same value.
    """
    if data.candidates is None:
        raise MeasurementError("no candidates: nobody outside shows how frequent each value is")
    raw, n = column_of(data.pool()[0], column), data.n
    present = ~_missing(raw)
    outside = raw[n:][present[n:]]
    if raw.dtype.kind in "iuf" and len(np.unique(outside)) > MOST_VALUES:
        return _cut(raw.astype(np.float64), present, n, column)
    shown = raw.astype(str)
    names, first, counts = np.unique(shown[n:][present[n:]], return_index=True, return_counts=True)
    if len(names) < 2:
        raise MeasurementError(f"everybody outside has the same {column!r}: there is nothing to infer")
    place = np.minimum(np.searchsorted(names, shown), len(names) - 1)
    codes = np.where(present & (names[place] == shown), place, -1).astype(np.int64)
    return Attribute(column, tuple(outside[first]), tuple(names.tolist()), codes, counts / counts.sum())


def _cut(raw: Float, present: Bool, n: int, column: str | int) -> Attribute:
    """Return a number as its quarter among the people outside."""
    outside = raw[n:][present[n:]]
    edges = np.unique(np.quantile(outside, [0.25, 0.5, 0.75]))
    codes = np.where(present, np.searchsorted(edges, raw, side="right"), -1).astype(np.int64)
    own = codes[n:][present[n:]]
    kept = np.unique(own)
    middles = tuple(float(np.quantile(outside[own == k], 0.5, method="inverted_cdf")) for k in kept)
    ends = [f"below {edges[0]:g}", *(f"from {e:g}" for e in edges)]
    place = np.full(len(ends), -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    counts = np.bincount(own, minlength=len(ends))[kept]
    codes = np.where(codes >= 0, place[codes], -1)
    return Attribute(column, middles, tuple(ends[k] for k in kept), codes, counts / counts.sum())


def _missing(raw: NDArray[Any]) -> Bool:
    if raw.dtype.kind == "f":
        return np.asarray(np.isnan(raw))
    if raw.dtype.kind == "O":
        return np.array([v is None or v != v or str(v) in ("<NA>", "NaT") for v in raw], dtype=bool)  # noqa: PLR0124  NaN
    return np.zeros(len(raw), dtype=bool)


def put_in(X: Any, rows: Index, column: str | int, value: Any) -> Any:
    """Return some records with one value of a feature for all; of the same kind and types."""
    made = take(X, rows)
    if hasattr(made, "iloc"):
        import pandas as pd

        made = made.copy()
        kind = made[column].dtype
        if kind.kind in "iu" and float(value) != int(value):
            raise MeasurementError(f"{value!r} cannot be put into column {column!r} of whole numbers")
        made[column] = pd.Series([value] * len(made), index=made.index, dtype=kind)
        return made
    made = np.array(made)
    made[:, int(column)] = value
    return made


@dataclass(frozen=True, eq=False)
class Seen:
    """What an adversary sees of the model about P people and m values, arrays of shape (P, m)."""

    #: log-likelihood of the known target with each value: of a regressor a normal density of the residual with the
    #: published training error, of a classifier the probability of the label
    likelihood: Float
    prior: Float
    #: log-likelihood at which a membership oracle says "member": that of the published training error or mean loss
    usual: float
    #: of a regressor: targets less answers, in deviations of the training targets
    residual: Float | None = None
    #: of a classifier: whether the label that it names is the known one, and that label's log-probability
    right: Bool | None = None
    confidence: Float | None = None
    #: every other feature and the target as numbers, shape (P, q)
    known: Float | None = None


class Adversary(ABC):
    """Guesses one feature of each person; -1 for no guess, which is never right."""

    name: str
    title: str
    source: str

    @abstractmethod
    def guess(self, seen: Seen, rng: Generator) -> Index:
        """Return the position of the guessed value, shape (P,)."""


class Inversion(Adversary):
    """Adversary 4: the likeliest value, by prior times density of the error; model inversion of a classifier."""

    name = "inversion"
    title = "Model inversion (prior and likelihood)"
    source = "Yeom et al. (2020), Adversary 4; Fredrikson et al. (2014, 2015)"

    def guess(self, seen: Seen, rng: Generator) -> Index:
        """Return the first of the likeliest values."""
        del rng
        return _best(np.log(seen.prior) + np.maximum(seen.likelihood, FLOOR))


class UniformOracle(Adversary):
    """Adversary 6: a random value, said if a membership oracle (Adversary 2) calls the record with it a member."""

    name = "uniform_oracle"
    title = "Membership oracle, one random value"
    source = "Yeom et al. (2020), Adversary 6"

    def guess(self, seen: Seen, rng: Generator) -> Index:
        """Return the random value or nothing."""
        tried = rng.integers(0, len(seen.prior), len(seen.likelihood))
        member = seen.likelihood[np.arange(len(tried)), tried] >= seen.usual
        return np.where(member, tried, -1).astype(np.int64)


class QueryingOracle(Adversary):
    """Adversary 7: every value in the order of its prior, until a membership oracle (Adversary 2) says "member"."""

    name = "querying_oracle"
    title = "Membership oracle, every value"
    source = "Yeom et al. (2020), Adversary 7"

    def guess(self, seen: Seen, rng: Generator) -> Index:
        """Return the most frequent of the values that the oracle accepts; nothing if it accepts none."""
        del rng
        accepted = seen.likelihood >= seen.usual
        return np.where(accepted.any(axis=1), _best(np.where(accepted, seen.prior, -1.0)), -1).astype(np.int64)


class Confidence(Adversary):
    """Of the values with which the model names the known label, the most confident; where none does, the least.

    A model is sure of its members: where only one value gives the known label it was the member's own, and where none
    does, the answer that it is least sure of is nearest to what it learned.
    """

    name = "confidence"
    title = "Confidence of the label named"
    source = "Mehnaz et al. (2022), CSMIA"

    def guess(self, seen: Seen, rng: Generator) -> Index:
        """Return the value; of a regressor nothing."""
        del rng
        if seen.right is None or seen.confidence is None:
            return np.full(len(seen.likelihood), -1, dtype=np.int64)
        confidence = np.maximum(seen.confidence, FLOOR)
        some = seen.right.any(axis=1, keepdims=True)
        return _best(np.where(some, np.where(seen.right, confidence, -np.inf), -confidence))


class LabelOnly(Adversary):
    """From labels alone: people for whom only one value gives the known label teach a tree, which guesses others."""

    name = "label_only"
    title = "Labels alone, taught by clear cases"
    source = "Mehnaz et al. (2022), LOMIA"

    def guess(self, seen: Seen, rng: Generator) -> Index:
        """Return the value; the most frequent one where no case is clear, of a regressor nothing."""
        if seen.right is None or seen.known is None:
            return np.full(len(seen.likelihood), -1, dtype=np.int64)
        clear = seen.right.sum(axis=1) == 1
        own = _best(seen.right.astype(np.float64))
        if not clear.any():
            return np.full(len(own), int(seen.prior.argmax()), dtype=np.int64)
        from sklearn.tree import DecisionTreeClassifier

        tree = DecisionTreeClassifier(min_samples_leaf=5, random_state=int(rng.integers(2**31)))
        taught = tree.fit(seen.known[clear], own[clear]).predict(seen.known)
        return np.asarray(np.where(clear, own, taught), dtype=np.int64)


#: every adversary that a regressor's answers are enough for, strongest first
ALL: tuple[Adversary, ...] = (Inversion(), QueryingOracle(), UniformOracle())
#: those that read the labels which a classifier names
OF_LABELS: tuple[Adversary, ...] = (Confidence(), LabelOnly())


def normal(residual: Float, deviation: float) -> Float:
    """Return the log-density of normal residuals less its constant, which is the same for every value."""
    return np.asarray(-0.5 * (residual / deviation) ** 2)


def _best(score: Float) -> Index:
    return np.asarray(score.argmax(axis=1), dtype=np.int64)


def guesses(run: Run, attribute: Attribute, rows: Index, learn: Bool) -> Index:
    """Return the guessed value of each pool row, learned from those of ``rows`` that ``learn`` marks; all shape (U,).

    A forest on every other column, categories as codes, and the target. It sees no answer of the model.
    """
    from sklearn.ensemble import RandomForestClassifier

    table = known_of(run.subject.data, attribute.column, rows)
    known = learn & (attribute.codes[rows] >= 0)
    if len(np.unique(attribute.codes[rows][known])) < 2:
        return np.full(len(rows), int(np.argmax(attribute.prior)), dtype=np.int64)
    forest = RandomForestClassifier(100, min_samples_leaf=5, random_state=0, n_jobs=1)
    forest.fit(table[known], attribute.codes[rows][known])
    return np.asarray(forest.predict(table), dtype=np.int64)


def known_of(data: TrainingData, column: str | int, rows: Index) -> Float:
    """Return every feature but one, categories as codes, and the target of some pool rows."""
    X, y = data.pool()
    if hasattr(X, "iloc"):
        others = [np.asarray(X[c])[rows] for c in X.columns if c != column]
    else:
        others = [np.asarray(X)[rows, j] for j in range(X.shape[1]) if j != column]
    return np.column_stack([_codes(values) for values in (*others, np.asarray(y)[rows])])


def _codes(values: NDArray[Any]) -> Float:
    if values.dtype.kind in "biuf":
        return np.nan_to_num(values.astype(np.float64), nan=-1e9)
    return np.unique(values.astype(str), return_inverse=True)[1].astype(np.float64)


def theorem_5(influence: float, inside: float, outside: float) -> float:
    """Return the advantage of Adversary 4 on a feature of two equally frequent values, for normal errors.

    ``influence`` is tau, by how much the feature moves the answer; ``inside`` and ``outside`` are standard errors on
    members and on other people in the same unit, above 0.

    Examples
    --------
    >>> round(theorem_5(2.0, 1.0, 2.0), 4)
    0.1499
    >>> theorem_5(2.0, 1.0, 1.0), theorem_5(0.0, 1.0, 2.0)
    (0.0, 0.0)
    """
    inner, outer = (math.erf(influence / (2 * math.sqrt(2) * error)) for error in (inside, outside))
    return 0.5 * (inner - outer)


# The model's answers about people with every value put in.


def people(run: Run) -> tuple[Index, Bool]:
    """Return one pool row of each person who can be a trial, members first, and whether each is a member.

    At most ``MOST_PEOPLE`` of either side, at random.
    """
    pool = run.once(pools.of_run)
    rows = np.flatnonzero(pool.trial)
    rows = rows[np.unique(pool.unit[rows], return_index=True)[1]]
    rng = run.generator("people whose features are inferred")
    sides = [rng.permutation(rows[pool.members[rows] == side])[:MOST_PEOPLE] for side in (True, False)]
    chosen = np.concatenate([np.sort(s) for s in sides]).astype(np.int64)
    return chosen, pool.members[chosen]


def seen(run: Run, attribute: Attribute) -> Seen:
    """Return what adversaries see of the model: likelihoods of known targets with every value put in.

    Raises
    ------
    MeasurementError
        The model gave no answer.
    """
    (rows, members), subject = run.once(people), run.subject
    answers = _answers(run, attribute, rows)
    own = _ask(run, subject.data, rows[members], "asking the model under attack")
    if subject.task == "regression":
        mean, deviation = subject.scale
        truth = (subject.data.pool_labels[rows].astype(np.float64) - mean) / deviation
        residual = truth[:, None] - answers[..., 0] - _noise(run, answers[..., 0].size).reshape(len(rows), -1)
        error = max(float(np.sqrt(((truth[members] - own[:, 0]) ** 2).mean())), LEAST)
        return Seen(normal(residual, error), attribute.prior, float(normal(np.array(error), error)), residual)
    labels = run.once(pools.of_run).labels[rows]
    loss = -np.maximum(own[np.arange(len(own)), labels[members]], -MOST_LOSS).mean()
    return Seen(
        np.take_along_axis(answers, labels[:, None, None], axis=2)[..., 0],
        attribute.prior,
        -max(float(loss), LEAST),
        right=answers.argmax(axis=2) == labels[:, None],
        confidence=answers.max(axis=2),
        known=known_of(subject.data, attribute.column, rows),
    )


def _noise(run: Run, size: int) -> Float:
    """Return the noise on so many answers, in deviations of the targets; 0 where the endpoint adds none."""
    noise = run.subject.release.noise
    if noise is None:
        return np.zeros(size)
    draw = run.generator("noise on answers about features")
    kind = draw.laplace if isinstance(noise, Laplace) else draw.normal
    return np.asarray(kind(0.0, noise.scale / run.subject.scale[1], size))


def _answers(run: Run, attribute: Attribute, rows: Index) -> Float:
    """Return answers about pool rows with every value put in, shape (U, m, width)."""
    X, y = run.subject.data.pool()
    m = len(attribute.prior)
    made = reduce(stack, (put_in(X, rows, attribute.column, v) for v in attribute.values))  # noqa: PD011  no frame
    data = replace(run.subject.data, candidates=(made, np.tile(y[rows], m)))
    asked = data.n + np.arange(len(rows) * m, dtype=np.int64)
    got = _ask(run, data, asked, f"asking about {attribute.column}")
    return got.reshape(m, len(rows), -1).transpose(1, 0, 2)


def _ask(run: Run, data: TrainingData, rows: Index, label: str) -> Float:
    subject = replace(run.subject, data=data)
    if subject.model is not None:
        answer = run.fleet.registered(subject, rows)
    else:
        fit = Fit(run.seeds[0], rows, left_out=np.zeros(0, dtype=np.int64))
        (answer,) = run.fleet.fits(subject, [fit], label=label)
    if answer.problem:
        raise MeasurementError(f"the model under attack gave no answer: {answer.problem}")
    return answer.log_p


# The metric ``attribute_advantage``: how much oftener a feature of members is guessed than one of people outside.

WITHOUT_MODEL = {"name": "imputation", "title": "Guessed without the model", "source": "a forest on all other columns"}
ASSUMPTIONS = (
    "candidates come from the same population as the training records",
    "the adversary knows every other feature, the target, the published training error and how frequent each value is",
    "what the model tells of everybody, candidates included, is not counted: only what it tells of members beyond",
)
#: what was found about one feature, and the counts of each adversary
Found = tuple[AttributeResult, dict[str, Counts]]


def noted(run: Run) -> dict[str, Found]:
    """Return where a run's features are noted, by name; each is asked about once."""
    del run
    return {}


def part(run: Run) -> AttributesPart | None:
    """Return what was found about sensitive features; None where no rule asked."""
    found = tuple(result for result, _ in run.once(noted).values()) if run.made(noted) else ()
    return AttributesPart(attributes=found) if found else None


def advantage(run: Run, request: Request) -> Measurement:
    """Return the largest advantage over features and adversaries, with limits.

    Advantage is Definition 5 of Yeom et al. (2020): the share of members whose feature is guessed, less that of people
    outside. Clopper-Pearson limits on both sides; ``low`` holds over everything that was searched, ``high`` is an
    intersection-union test.

    Raises
    ------
    MeasurementError
        No feature is declared sensitive, there are no candidates, or the model gave no answer.
    """
    one = request.option("attribute")
    wanted = [c for c in run.subject.data.sensitive if one is None or str(c) == str(one)]
    if not wanted:
        what = "no feature is declared sensitive" if one is None else f"{one!r} is not declared sensitive"
        raise MeasurementError(f"{what}; pass TrainingData(..., sensitive=(column, …))")
    alpha, kept = 1 - float(request.option("confidence", 0.95)), run.once(noted)
    for column in wanted:
        if str(column) not in kept:
            kept[str(column)] = _found(run, column, alpha)
    tries = [(name, who, c) for name in map(str, wanted) for who, c in kept[name][1].items()]
    found = [difference(c, low_alpha=alpha / len(tries), high_alpha=alpha) for _, _, c in tries]
    worst = int(np.argmax([value for value, _, _ in found]))
    asked = _sides(run.once(people)[1])
    sides = [_ranges(c, asked) for _, _, c in tries]
    told = [_limits(ranges, alpha / len(tries), alpha) for ranges in sides]
    return Measurement(
        request,
        value=found[worst][0],
        low=max(low for _, low, _ in found),
        high=max(high for _, _, high in found),
        unit="fraction",
        kind="confidence",
        confidence=1 - alpha,
        n=sum(asked),
        population=len(run.once(pools.of_run).trial),
        where=f"{tries[worst][0]}, by {tries[worst][1]}",
        assumptions=ASSUMPTIONS,
        behind=BehindMembership(searched=len(tries), members=asked[0], candidates=asked[1]),
        told_as=None if all(map(_exact, sides)) else (max(low for low, _ in told), max(high for _, high in told)),
    )


def _found(run: Run, column: str | int, alpha: float) -> Found:
    attribute, (rows, members) = read(run.subject.data, column), run.once(people)
    shown, truth, sides = seen(run, attribute), attribute.codes[rows], _sides(members)
    asked = truth >= 0
    if min(_sides(members[asked])) < SMALL_CELL:
        raise MeasurementError(f"too few people on one side have a known {column!r}")
    outside, learn = np.flatnonzero(~members), np.zeros(len(members), dtype=bool)  # half of them teach the guess
    learn[run.generator("learned without the model").permutation(outside)[: len(outside) // 2]] = True
    guessed, counts = [], {}
    for a in ALL if shown.right is None else (*ALL, *OF_LABELS):
        right = a.guess(shown, run.generator(f"{a.name} {column}")) == truth
        counts[a.name] = _counted(right, asked, members)
        guessed.append(_told({"name": a.name, "title": a.title, "source": a.source}, counts[a.name], sides, alpha))
    without = _counted(guesses(run, attribute, rows, learn) == truth, asked & ~learn, members)
    taught = (sides[0], sides[1] - sides[1] // 2)
    inverted = Inversion().guess(shown, run.generator("by value")) == truth
    by_value = [
        _told({"name": name, "title": name}, _counted(inverted, asked & (truth == k), members), None, alpha)
        for k, name in enumerate(attribute.names)
        if min(_sides(members[truth == k])) >= SMALL_CELL
    ]
    prior = float(attribute.prior.max())
    result = AttributeResult(
        name=str(column),
        values=len(attribute.values),
        adversaries=tuple(guessed),
        without_model=_told(WITHOUT_MODEL, without, taught, alpha),
        prior_guess=None if Count(round(prior * sides[1]), sides[1]).hidden else prior,
        influence=_influence(shown, _own(shown, truth)[asked & ~members]),
        influence_in="nats" if shown.residual is None else "residual deviations",
        theorem=_theorem(shown, truth, members),
        by_value=_without_rest(by_value, sides),
    )
    return result, counts


def _sides(members: Bool) -> Range:
    return int(members.sum()), int((~members).sum())


def _counted(right: Bool, among: Bool, members: Bool) -> Counts:
    (inside, outside), (n, others) = _sides(members[right & among]), _sides(members[among])
    return inside, n, outside, others


# A share of a known number of people is a count, and so are its confidence limits. Where a count is hidden its share is
# hidden too, and the limits are those that hold for every count hidden with it.


def _told(named: dict[str, str], counts: Counts, asked: Range | None, alpha: float) -> AttributeGuesses:
    """Return one adversary's guesses, of which no small count of right or wrong ones follows.

    Of ``asked`` members and others, those of ``counts`` if absent, every reader knows that they were asked about.
    """
    sides = _ranges(counts, asked or counts[1::2])
    shares = [right[0] / (n[0] or math.nan) if _exact([(right, n)]) else None for right, n in sides]
    value, _, _ = difference(counts, low_alpha=alpha, high_alpha=alpha)
    low, high = _limits(sides, alpha, alpha)
    return AttributeGuesses(
        **named,
        inside=shares[0],
        outside=shares[1],
        members=sides[0][1][0],
        others=sides[1][1][0],
        advantage=Estimate(value=None if None in shares else value, low=low, high=high),
    )


def _ranges(counts: Counts, asked: Range) -> list[tuple[Range, Range]]:
    """Return, of members and of others, where right guesses and all guesses are said to lie."""
    return [part_of(*c) for c in zip(counts[::2], counts[1::2], asked, strict=True)]


def _exact(sides: list[tuple[Range, Range]]) -> bool:
    return all(low == high for side in sides for low, high in side)


def _limits(sides: list[tuple[Range, Range]], low_alpha: float, high_alpha: float) -> tuple[float, float]:
    """Return limits that hold whichever of the counts hidden together are the true ones."""
    (inside, members), (outside, others) = sides
    least = (inside[0], members[1], min(outside[1], others[0]), others[0])
    most = (min(inside[1], members[0]), members[0], outside[0], others[1])
    limits = [difference(c, low_alpha=low_alpha, high_alpha=high_alpha) for c in (least, most)]
    return limits[0][1], limits[1][2]


def _without_rest(by_value: list[AttributeGuesses], asked: Range) -> tuple[AttributeGuesses, ...]:
    """Hide the smallest value where who has none of the values shown follows from how many have each."""
    for side, share, total in (("members", "inside", asked[0]), ("others", "outside", asked[1])):
        given = [getattr(g, side) or 0 for g in by_value]
        if given and Count(total - sum(given)).hidden:
            i, nothing = given.index(min(given)), Estimate(value=None)
            by_value[i] = by_value[i].model_copy(update={side: None, share: None, "advantage": nothing})
    return tuple(by_value)


def _own(shown: Seen, truth: Index) -> Float:
    """Return residuals, or log-likelihoods, with everybody's own value, shape (U,)."""
    table = shown.likelihood if shown.residual is None else shown.residual
    return np.asarray(table[np.arange(len(truth)), np.maximum(truth, 0)])


def _influence(shown: Seen, own: Float) -> float:
    """Return how far the feature alone moves an answer, mean over people: residual deviations, or nats of the label."""
    if shown.residual is None:
        return float(np.mean(np.ptp(np.maximum(shown.likelihood, -MOST_LOSS), axis=1)))
    outside = float(np.sqrt(np.mean(own**2)))
    return float(np.mean(np.ptp(shown.residual, axis=1))) / max(outside, LEAST)


def _theorem(shown: Seen, truth: Index, members: Bool) -> float | None:
    """Return Theorem 5's advantage of a feature of two values, for normal errors of the sizes seen; None for others."""
    if shown.residual is None or shown.residual.shape[1] != 2:
        return None
    own = _own(shown, truth)
    sides = [np.sqrt(np.mean(own[(truth >= 0) & s] ** 2)) for s in (members, ~members)]
    apart = float(np.mean(np.abs(shown.residual[:, 0] - shown.residual[:, 1])))
    return theorem_5(apart, *(max(float(s), LEAST) for s in sides))
