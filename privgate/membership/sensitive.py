"""A sensitive feature of members, guessed oftener than the same feature of people outside.

The adversary knows everything else about somebody and asks the model with every value put in (Yeom et al., 2020,
Adversaries 4, 6 and 7; Mehnaz et al., 2022). What is guessed without the model stands beside it.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple

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
from privgate.evidence.telling import SMALL_CELL, Range, at_least
from privgate.kernel.sample import difference
from privgate.membership.board import ask_model, residuals
from privgate.membership.limits import Interval, find_worst
from privgate.run import pool as pools
from privgate.run.run import Run
from privgate.subject.containers import stack, take
from privgate.subject.data import TrainingData

#: more values than this in a column of numbers, and it is cut at the quartiles of the people outside
MOST_VALUES = 12
#: people of either side that are asked about
MOST_PEOPLE = 2_000
#: a published error is at least this, in deviations of the targets, or a published loss in nats
LEAST = 1e-9
#: log-likelihoods are taken to be at least FLOOR, so that priors tell equally impossible values apart; losses at most
FLOOR, MOST_LOSS = -1e6, 700.0
WITHOUT_MODEL = {"name": "imputation", "title": "Guessed without the model", "source": "a forest on all other columns"}
ASSUMPTIONS = (
    "candidates come from the same population as the training records",
    "the adversary knows every other feature, the target, the published training error and how frequent each value is",
    "what the model tells of everybody, candidates included, is not counted: only what it tells of members beyond",
)

#: (right, all) of members, then of people outside
Counts = tuple[int, int, int, int]


class Attribute(NamedTuple):
    """One sensitive feature of m values."""

    column: str | int
    values: tuple[Any, ...]  # what is put in for each; numbers that were cut stand for the middle of their quarter
    codes: Index  # which of them each pool record has, shape (P,); -1 where it is missing, or nobody outside has it
    prior: Float  # how frequent each is among the people outside, who stand for what is public, shape (m,)


def read_attribute(data: TrainingData, column: str | int) -> Attribute:
    """Return the values of a sensitive feature, as the people outside have them, who must have two at least."""
    import pandas as pd

    X = data.pool()[0]
    columns = X.columns if hasattr(X, "iloc") else range(X.shape[1] if isinstance(X, np.ndarray) and X.ndim == 2 else 0)
    if data.candidates is None:
        raise MeasurementError("no candidates: nobody outside shows how frequent each value is")
    if column not in columns:
        kind = type(X).__name__
        raise MeasurementError(f"sensitive column {column!r} is not among the features of a {kind}; pass a DataFrame")
    raw = np.asarray(X[column] if hasattr(X, "iloc") else X[:, column])
    present = ~pd.isna(raw)
    outside = present & (np.arange(len(raw)) >= data.n)
    public, kinds = raw[outside], raw.astype(str)
    many = raw.dtype.kind in "iuf" and len(np.unique(public)) > MOST_VALUES
    if many:
        edges = np.unique(np.quantile(public.astype(np.float64), [0.25, 0.5, 0.75]))
        kinds = np.searchsorted(edges, raw, side="right")
    kept, first, counts = np.unique(kinds[outside], return_index=True, return_counts=True)
    if len(kept) < 2:
        raise MeasurementError(f"everybody outside has the same {column!r}: there is nothing to infer")
    values = tuple(public[first])
    if many:
        quarters = (public[kinds[outside] == k] for k in kept)
        values = tuple(float(np.quantile(own, 0.5, method="inverted_cdf")) for own in quarters)
    place = np.minimum(np.searchsorted(kept, kinds), len(kept) - 1)
    codes = np.where(present & (kept[place] == kinds), place, -1).astype(np.int64)
    return Attribute(column, values, codes, counts / counts.sum())


def put_in(X: Any, rows: Index, column: str | int, value: Any) -> Any:
    """Return some records with one value of a feature for all; of the same kind and types."""
    records = take(X, rows)
    if not hasattr(records, "iloc"):
        records = np.array(records)
        records[:, int(column)] = value
        return records
    import pandas as pd

    records = records.copy()
    records[column] = pd.Series([value] * len(records), index=records.index, dtype=records[column].dtype)
    return records


class Seen(NamedTuple):
    """What an adversary sees of the model about P people and m values, arrays of shape (P, m)."""

    #: log-likelihood of the known target with each value: of a regressor a normal density of the residual with the
    #: published training error, of a classifier the probability of the label
    likelihood: Float
    prior: Float
    #: log-likelihood at which a membership oracle says "member": that of the published training error or mean loss
    usual: float
    #: of a classifier: whether the label that it names is the known one, and that label's log-probability
    right: Any = None
    confidence: Any = None
    known: Any = None  # every other feature and the target as numbers, shape (P, q)


# Adversaries: of what is seen of P people, the position of the guessed value of each, (P,); -1, never right, for none.


def invert(seen: Seen, _: Generator) -> Index:
    """Adversary 4: the likeliest value, by prior times density of the error; model inversion of a classifier."""
    return np.asarray((np.log(seen.prior) + np.maximum(seen.likelihood, FLOOR)).argmax(axis=1))


def ask_once(seen: Seen, rng: Generator) -> Index:
    """Adversary 6: a random value, said if a membership oracle (Adversary 2) calls the record with it a member."""
    tried = rng.integers(0, len(seen.prior), len(seen.likelihood))
    return np.where(seen.likelihood[np.arange(len(tried)), tried] >= seen.usual, tried, -1).astype(np.int64)


def ask_of_every_value(seen: Seen, _: Generator) -> Index:
    """Adversary 7: every value in the order of its prior, until a membership oracle (Adversary 2) says "member"."""
    accepted = seen.likelihood >= seen.usual
    return np.where(accepted.any(axis=1), np.where(accepted, seen.prior, -1.0).argmax(axis=1), -1)


def read_confidence(seen: Seen, _: Generator) -> Index:
    """Of the values with which the model names the known label, the most confident; where none does, the least.

    A model is sure of its members, and where it names nothing, its least sure answer is nearest to what it learned.
    """
    confidence, some = np.maximum(seen.confidence, FLOOR), seen.right.any(axis=1, keepdims=True)
    return np.asarray(np.where(some, np.where(seen.right, confidence, -np.inf), -confidence).argmax(axis=1))


def read_labels(seen: Seen, rng: Generator) -> Index:
    """From labels alone: people for whom only one value gives the known label teach a tree, which guesses others."""
    clear, own = seen.right.sum(axis=1) == 1, seen.right.argmax(axis=1)
    if not clear.any():
        return np.full(len(own), int(seen.prior.argmax()), dtype=np.int64)
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(min_samples_leaf=5, random_state=int(rng.integers(2**31)))
    taught = tree.fit(seen.known[clear], own[clear]).predict(seen.known)
    return np.asarray(np.where(clear, own, taught), dtype=np.int64)


class Adversary(NamedTuple):
    """Guesses one feature of each person."""

    guess: Callable[[Seen, Generator], Index]
    name: str
    title: str
    source: str


_YEOM = "Yeom et al. (2020), Adversary"
_INVERTED = f"{_YEOM} 4; Fredrikson et al. (2014, 2015)"
#: every adversary that a regressor's answers are enough for, strongest first
ALL = (
    Adversary(invert, "inversion", "Model inversion (prior and likelihood)", _INVERTED),
    Adversary(ask_of_every_value, "querying_oracle", "Membership oracle, every value", f"{_YEOM} 7"),
    Adversary(ask_once, "uniform_oracle", "Membership oracle, one random value", f"{_YEOM} 6"),
)
#: those that read the labels which a classifier names
OF_LABELS = (
    Adversary(read_confidence, "confidence", "Confidence of the label named", "Mehnaz et al. (2022), CSMIA"),
    Adversary(read_labels, "label_only", "Labels alone, taught by clear cases", "Mehnaz et al. (2022), LOMIA"),
)


def normal(residual: Float, deviation: float) -> Float:
    """Return the log-density of normal residuals less its constant, which is the same for every value."""
    return np.asarray(-0.5 * (residual / deviation) ** 2)


def guess_without_model(known: Float, codes: Index, prior: Float, learn: Bool) -> Index:
    """Return the guessed value of each person, by a forest on all else; those teach it whom ``learn`` marks."""
    from sklearn.ensemble import RandomForestClassifier

    taught = learn & (codes >= 0)
    if len(np.unique(codes[taught])) < 2:
        return np.full(len(codes), int(np.argmax(prior)), dtype=np.int64)
    forest = RandomForestClassifier(100, min_samples_leaf=5, random_state=0, n_jobs=1).fit(known[taught], codes[taught])
    return np.asarray(forest.predict(known), dtype=np.int64)


def _as_numbers(values: NDArray[Any]) -> Float:
    if values.dtype.kind in "biuf":
        return np.nan_to_num(values.astype(np.float64), nan=-1e9)
    return np.unique(values.astype(str), return_inverse=True)[1].astype(np.float64)


# The model's answers about people with every value put in.


def draw_people(run: Run) -> tuple[Index, Bool]:
    """Return one pool row of at most ``MOST_PEOPLE`` possible trials a side, members first; and who is a member."""
    pool, rng = run.compute(pools.of_run), run.generator("people whose features are inferred")
    rows = np.flatnonzero(pool.alone)
    rows = rows[np.unique(pool.person[rows], return_index=True)[1]]
    sides = [np.sort(rng.permutation(rows[pool.members[rows] == side])[:MOST_PEOPLE]) for side in (True, False)]
    chosen = np.concatenate(sides).astype(np.int64)
    return chosen, pool.members[chosen]


def look_at(run: Run, attribute: Attribute) -> Seen:
    """Return what adversaries see of the model: likelihoods of known targets with every value put in; or raise."""
    import pandas as pd

    (rows, members), subject, m = run.compute(draw_people), run.subject, len(attribute.prior)
    X, y = subject.data.pool()
    table = reduce(stack, (put_in(X, rows, attribute.column, v) for v in attribute.values))  # noqa: PD011  no frame
    changed = replace(subject, data=replace(subject.data, candidates=(table, np.tile(y[rows], m))))
    answers = ask_model(run, changed, subject.data.n + np.arange(len(rows) * m, dtype=np.int64))
    answers = answers.reshape(m, len(rows), -1).transpose(1, 0, 2)
    own = ask_model(run, subject, rows[members])
    frame = pd.DataFrame(X, copy=False).drop(columns=[attribute.column])
    others = [frame.iloc[:, j] for j in range(frame.shape[1])]
    known = np.column_stack([_as_numbers(np.asarray(values)[rows]) for values in (*others, y)])
    if subject.task == "regression":
        residual, exact = residuals(run, rows, answers[..., 0]), residuals(run, rows[members], own[:, :1], noisy=False)
        error = max(float(np.sqrt((exact**2).mean())), LEAST)
        return Seen(normal(residual, error), attribute.prior, -0.5, known=known)
    labels = run.compute(pools.of_run).labels[rows]
    loss = -np.maximum(own[np.arange(len(own)), labels[members]], -MOST_LOSS).mean()
    return Seen(
        np.take_along_axis(answers, labels[:, None, None], axis=2)[..., 0], attribute.prior, -max(float(loss), LEAST),
        right=answers.argmax(axis=2) == labels[:, None], confidence=answers.max(axis=2),
        known=known,
    )  # fmt: skip


def list_inferred(run: Run) -> dict[str, tuple[AttributeResult, dict[str, Counts]]]:
    """Return where a run keeps its features, by name, with the counts of each adversary."""
    del run
    return {}


def advantage(run: Run, request: Request) -> Measurement:
    """Return the largest advantage over features and adversaries, with limits.

    Advantage is Definition 5 of Yeom et al. (2020): the share of members whose feature is guessed, less that of people
    outside. Clopper-Pearson limits on both sides; ``low`` holds over everything that was searched, ``high`` is an
    intersection-union test. ``MeasurementError`` where no feature is declared sensitive, or the model gave no answer.
    """
    one = request.option("attribute")
    wanted = [c for c in run.subject.data.sensitive if one is None or str(c) == str(one)]
    if not wanted:
        what = "no feature is declared sensitive" if one is None else f"{one!r} is not declared sensitive"
        raise MeasurementError(f"{what}; pass TrainingData(..., sensitive=(column, …))")
    alpha, kept = 1 - float(request.option("confidence", 0.95)), run.compute(list_inferred)
    for column in wanted:
        if str(column) not in kept:
            kept[str(column)] = _infer(run, column, alpha)
            run.notes["attributes"] = AttributesPart(attributes=tuple(result for result, _ in kept.values()))
    tries = {(str(name), who): c for name in wanted for who, c in kept[str(name)][1].items()}
    alphas, people = {"low_alpha": alpha / len(tries), "high_alpha": alpha}, _count_sides(run.compute(draw_people)[1])
    (name, who), worst = find_worst({k: Interval(*difference(c, **alphas)) for k, c in tries.items()})
    ranges = [_tell_counts(c, people) for c in tries.values()]
    limits = [_tell_limits(sides, **alphas) for sides in ranges]
    exact = all(low == high for sides in ranges for side in sides for low, high in side)
    # with members among the candidates no upper limit exists
    high, most = (1.0 if run.compute(pools.of_run).copies else h for h in (worst.high, max(h for _, h in limits)))
    return Measurement(
        request, worst.value, worst.low, high, "fraction", "confidence", 1 - alpha, n=sum(people),
        population=len(run.compute(pools.of_run).trial), where=f"{name}, by {who}", assumptions=ASSUMPTIONS,
        behind=BehindMembership(searched=len(tries), members=people[0], candidates=people[1]),
        told_as=None if exact else (max(low for low, _ in limits), most),
    )  # fmt: skip


def _infer(run: Run, column: str | int, alpha: float) -> tuple[AttributeResult, dict[str, Counts]]:
    """Return what each adversary guesses of one feature, and without the model."""
    attribute, (rows, members) = read_attribute(run.subject.data, column), run.compute(draw_people)
    seen, truth, sides = look_at(run, attribute), attribute.codes[rows], _count_sides(members)
    known = truth >= 0
    if min(_count_sides(members[known])) < SMALL_CELL:
        raise MeasurementError(f"too few people on one side have a known {column!r}")
    outside, learn = np.flatnonzero(~members), np.zeros(len(members), dtype=bool)  # half of them teach the guess
    learn[run.generator("learned without the model").permutation(outside)[: len(outside) // 2]] = True
    guessed, counts = [], {}
    for a in ALL if seen.right is None else (*ALL, *OF_LABELS):
        right = a.guess(seen, run.generator(f"{a.name} {column}")) == truth
        counts[a.name] = _count(right, known, members)
        guessed.append(_show({"name": a.name, "title": a.title, "source": a.source}, counts[a.name], sides, alpha))
    without = _count(guess_without_model(seen.known, truth, attribute.prior, learn) == truth, known & ~learn, members)
    prior = float(attribute.prior.max())
    result = AttributeResult(
        name=str(column), values=len(attribute.values), adversaries=tuple(guessed),
        without_model=_show(WITHOUT_MODEL, without, (sides[0], sides[1] - sides[1] // 2), alpha),
        prior_guess=None if Count(round(prior * sides[1]), sides[1]).hidden else prior,
    )  # fmt: skip
    return result, counts


def _count_sides(members: Bool) -> Range:
    return int(members.sum()), int((~members).sum())


def _count(right: Bool, among: Bool, members: Bool) -> Counts:
    (inside, outside), (n, others) = _count_sides(members[right & among]), _count_sides(members[among])
    return inside, n, outside, others


def _show(named: dict[str, str], counts: Counts, totals: Range, alpha: float) -> AttributeGuesses:
    """Return one adversary's guesses, of which no small count follows for who knows ``totals``."""
    sides = _tell_counts(counts, totals)
    shares = [right[0] / (n[0] or np.nan) if right[0] == right[1] and n[0] == n[1] else None for right, n in sides]
    value = None if None in shares else difference(counts, low_alpha=alpha, high_alpha=alpha)[0]
    low, high = _tell_limits(sides, low_alpha=alpha, high_alpha=alpha)
    return AttributeGuesses(
        **named, inside=shares[0], outside=shares[1], members=sides[0][1][0], others=sides[1][1][0],
        advantage=Estimate(value=value, low=low, high=high),
    )  # fmt: skip


def _tell_counts(counts: Counts, totals: Range) -> list[tuple[Range, Range]]:
    """Return, of members and of others, where right guesses and all guesses are said to lie: readers know ``totals``.

    >>> _tell_counts((40, 100, 4, 98), (100, 100))
    [((40, 40), (100, 100)), ((1, 9), (91, 99))]
    """
    sides = zip(counts[::2], counts[1::2], totals, strict=True)
    return [
        (Count(k, n).ends, (at_least(n, [people]), people - 1 if Count(people - n).hidden else n))
        for k, n, people in sides
    ]


def _tell_limits(sides: list[tuple[Range, Range]], *, low_alpha: float, high_alpha: float) -> tuple[float, float]:
    """Return limits that hold whichever of the counts hidden together are the true ones: a share is a count, too."""
    (inside, members), (outside, others) = sides
    least = (inside[0], members[1], min(outside[1], others[0]), others[0])
    most = (min(inside[1], members[0]), members[0], outside[0], others[1])
    limits = [difference(c, low_alpha=low_alpha, high_alpha=high_alpha) for c in (least, most)]
    return limits[0][1], limits[1][2]
