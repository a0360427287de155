"""The model's answers about people with every value of a feature put in, and the people themselves."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Bool, Float, Index
from privgate.check.questions import Question
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
from privgate.evidence.telling import SMALL_CELL, at_least
from privgate.kernel.sample import difference
from privgate.lab.attributes import feature_adversaries, sensitive_values
from privgate.lab.attributes.feature_adversaries import Seen, normal, theorem_5
from privgate.lab.attributes.sensitive_values import Attribute, put_in
from privgate.run import pool as pools
from privgate.run.run import Run
from privgate.subject.containers import stack
from privgate.subject.data import TrainingData
from privgate.subject.release import Laplace
from privgate.training.fit import Fit

#: people of either side that are asked about
MOST_PEOPLE = 2_000
#: a published error is at least this, in deviations of the targets, or a published loss in nats
LEAST = 1e-9


#: (right, all) of members, then of people outside
Counts = tuple[int, int, int, int]
Range = tuple[int, int]


@dataclass(frozen=True, eq=False)
class People:
    """Who is asked about: one record a person.

    Parameters
    ----------
    rows : int64 array of shape (U,)
        Pool rows.
    members : bool array of shape (U,)
    """

    rows: Index
    members: NDArray[np.bool_]

    @property
    def asked(self) -> tuple[int, int]:
        """How many members, and how many others."""
        return int(self.members.sum()), int((~self.members).sum())


def people(run: Run) -> People:
    """Return one record of each person who can be a trial, members then others; a random ``MOST_PEOPLE`` of each."""
    pool = run.once(pools.of_run)
    rows = np.flatnonzero(pool.trial)
    rows = rows[np.unique(pool.unit[rows], return_index=True)[1]]
    rng = run.generator("people whose features are inferred")
    sides = [rng.permutation(rows[pool.members[rows] == side])[:MOST_PEOPLE] for side in (True, False)]
    chosen = np.concatenate([np.sort(s) for s in sides]).astype(np.int64)
    return People(chosen, pool.members[chosen])


def seen(run: Run, attribute: Attribute) -> Seen:
    """Return what adversaries see of the model: likelihoods of known targets with every value put in.

    Raises
    ------
    MeasurementError
        The model gave no answer.
    """
    who, m = run.once(people), len(attribute.values)
    answers = _answers(run, attribute, who.rows)
    subject, y = run.subject, run.subject.data.pool_labels
    trained = np.arange(len(who.rows)) < int(who.members.sum())
    own = _answers_as_they_are(run, who.rows[trained])
    if subject.task == "regression":
        mean, deviation = subject.scale
        truth = (y[who.rows].astype(np.float64) - mean) / deviation
        noise = _noise(run, answers[..., 0].size).reshape(len(who.rows), m)
        residual = truth[:, None] - answers[..., 0] - noise
        error = max(float(np.sqrt(((truth[trained] - own[:, 0]) ** 2).mean())), LEAST)
        return Seen(normal(residual, error), attribute.prior, float(normal(np.array(error), error)), residual)
    labels = run.once(pools.of_run).labels[who.rows]
    likelihood = np.take_along_axis(answers, labels[:, None, None], axis=2)[..., 0]
    loss = -np.maximum(own[np.arange(len(own)), labels[trained]], -700.0).mean()
    return Seen(
        likelihood,
        attribute.prior,
        -max(float(loss), LEAST),
        right=answers.argmax(axis=2) == labels[:, None],
        confidence=answers.max(axis=2),
        known=feature_adversaries.known_of(subject.data, attribute.column, who.rows),
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
    made = None
    for value in attribute.values:
        one = put_in(X, rows, attribute.column, value)
        made = one if made is None else stack(made, one)
    count = len(rows) * len(attribute.values)
    data = replace(run.subject.data, candidates=(made, np.tile(y[rows], len(attribute.values))))
    asked = run.subject.data.n + np.arange(count, dtype=np.int64)
    got = _ask(run, data, asked, f"asking about {attribute.name}")
    return got.reshape(len(attribute.values), len(rows), -1).transpose(1, 0, 2)


def _answers_as_they_are(run: Run, rows: Index) -> Float:
    return _ask(run, run.subject.data, rows, "asking the model under attack")


def _ask(run: Run, data: TrainingData, rows: Index, label: str) -> Float:
    subject = replace(run.subject, data=data)
    if subject.model is not None:
        answer = run.fleet.registered(subject, rows)
    else:
        answer = run.fleet.fits(subject, [Fit(run.seeds[0], rows, left_out=np.zeros(0, dtype=np.int64))], label=label)[
            0
        ]
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


@dataclass
class Noted:
    """What was found about each sensitive feature of one run; each is asked about once."""

    results: dict[str, AttributeResult] = field(default_factory=dict)
    counts: dict[str, dict[str, Counts]] = field(default_factory=dict)


def noted(run: Run) -> Noted:
    """Return where a run's features are noted."""
    del run
    return Noted()


def part(run: Run) -> AttributesPart | None:
    """Return what the fourth question found out; None where no rule asked it."""
    found = tuple(run.once(noted).results.values()) if run.made(noted) else ()
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
    declared = run.subject.data.sensitive
    one = request.option("attribute")
    wanted = [c for c in declared if one is None or str(c) == str(one)]
    if not wanted:
        what = "no feature is declared sensitive" if one is None else f"{one!r} is not declared sensitive"
        raise MeasurementError(f"{what}; pass TrainingData(..., sensitive=(column, …))")
    alpha = 1 - float(request.option("confidence", 0.95))
    kept = run.once(noted)
    for column in wanted:
        if str(column) not in kept.results:
            _note(run, column, alpha)
    tries = [(name, who, c) for name in map(str, wanted) for who, c in kept.counts[name].items()]
    found = [difference(c, low_alpha=alpha / len(tries), high_alpha=alpha) for _, _, c in tries]
    worst = int(np.argmax([value for value, _, _ in found]))
    who = run.once(people)
    ranges = [_ranges(c, who.asked) for _, _, c in tries]
    ends = [_limits(r, alpha / len(tries), alpha) for r, _ in ranges]
    told_as = None if all(alike for _, alike in ranges) else (max(e[0] for e in ends), max(e[1] for e in ends))
    return Measurement(
        request,
        value=found[worst][0],
        low=max(low for _, low, _ in found),
        high=max(high for _, _, high in found),
        unit="fraction",
        kind="confidence",
        confidence=1 - alpha,
        n=len(who.rows),
        population=len(run.once(pools.of_run).trial),
        where=f"{tries[worst][0]}, by {tries[worst][1]}",
        assumptions=ASSUMPTIONS,
        behind=BehindMembership(searched=len(tries), members=who.asked[0], candidates=who.asked[1]),
        told_as=told_as,
    )


def _note(run: Run, column: str | int, alpha: float) -> None:
    attribute, who, kept = sensitive_values.read(run.subject.data, column), run.once(people), run.once(noted)
    told = seen(run, attribute)
    truth = attribute.codes[who.rows]
    asked = truth >= 0
    if min((asked & who.members).sum(), (asked & ~who.members).sum()) < SMALL_CELL:
        raise MeasurementError(f"too few people on one side have a known {column!r}")
    learn = _half_outside(run, who)
    found, counts = [], {}
    for a in feature_adversaries.of(told):
        right = a.guess(told, run.generator(f"{a.name} {attribute.name}")) == truth
        counts[a.name] = _counted(right, asked, who.members)
        found.append(_told({"name": a.name, "title": a.title, "source": a.source}, counts[a.name], who.asked, alpha))
    without = feature_adversaries.guesses(run, attribute, who.rows, learn) == truth
    base = _counted(without, asked & ~learn, who.members)
    best = next(a for a in feature_adversaries.ALL if a.name == "inversion")
    guessed = best.guess(told, run.generator("by value")) == truth
    everybody, prior = who.asked[1], float(attribute.prior.max())
    taught = (who.asked[0], everybody - everybody // 2)  # half of those outside taught the guess
    by_value = [
        _told({"name": name, "title": name}, _counted(guessed, asked & (truth == k), who.members), None, alpha)
        for k, name in enumerate(attribute.names)
        if min((truth[who.members] == k).sum(), (truth[~who.members] == k).sum()) >= SMALL_CELL
    ]
    kept.counts[attribute.name] = counts
    kept.results[attribute.name] = AttributeResult(
        name=attribute.name,
        values=len(attribute.values),
        adversaries=tuple(found),
        without_model=_told(WITHOUT_MODEL, base, taught, alpha),
        prior_guess=None if Count(round(prior * everybody), everybody).hidden else prior,
        influence=_influence(told, _own(told, truth)[asked & ~who.members]),
        influence_in="nats" if told.residual is None else "residual deviations",
        theorem=_theorem(told, truth, who.members),
        by_value=_without_rest(by_value, who.asked),
    )


def _half_outside(run: Run, who: People) -> Bool:
    """Return a random half of the people outside, from whom a guess without the model is learned."""
    outside = np.flatnonzero(~who.members)
    learn = np.zeros(len(who.rows), dtype=bool)
    learn[run.generator("learned without the model").permutation(outside)[: len(outside) // 2]] = True
    return learn


def _counted(right: Bool, among: Bool, members: Bool) -> Counts:
    """Return (right, all) of members, then of people outside."""
    sides = [among & members, among & ~members]
    return tuple(int(n) for s in sides for n in ((right & s).sum(), s.sum()))  # type: ignore[return-value]  # four


# What may be told of guesses. A share of a known number of people is a count, and so are its confidence limits: whoever
# knows how many were asked finds the one count that gives them. Where a count is hidden its share is hidden too, and
# the limits are those that hold for every count hidden with it.


def _told(named: Mapping[str, str], counts: Counts, asked: Range | None, alpha: float) -> AttributeGuesses:
    """Return one adversary's guesses, of which no small count of right or wrong ones follows.

    Parameters
    ----------
    counts : (right, all) of members, then of others
    asked : (members, others)
        How many of each are known to have been asked about; those of ``counts`` if absent.
    """
    ranges, alike = _ranges(counts, asked or counts[1::2])
    shares = [
        None if right[0] < right[1] or all_[0] < all_[1] else right[0] / all_[0] if all_[0] else float("nan")
        for right, all_ in ranges
    ]
    value, low, high = difference(counts, low_alpha=alpha, high_alpha=alpha)
    low, high = (low, high) if alike else _limits(ranges, alpha, alpha)
    return AttributeGuesses(
        **named,
        inside=shares[0],
        outside=shares[1],
        members=ranges[0][1][0],
        others=ranges[1][1][0],
        advantage=Estimate(value=value if alike else None, low=low, high=high),
    )


def _ranges(counts: Counts, asked: Range) -> tuple[list[tuple[Range, Range]], bool]:
    """Return, of members and of others, where right guesses and all guesses are said to lie; and whether exactly."""
    made: list[tuple[Range, Range]] = []
    for right, n, total in zip(counts[::2], counts[1::2], asked, strict=True):
        most = total - 1 if Count(total - n).hidden else n  # of a few of them nobody knows the value
        made.append((Count(right, n).ends, (at_least(n, [total]), most)))
    return made, all(low == high for pair in made for low, high in pair)


def _limits(ranges: list[tuple[Range, Range]], low_alpha: float, high_alpha: float) -> tuple[float, float]:
    """Return limits that hold whichever counts in their ranges are the true ones."""
    (inside, members), (outside, others) = ranges
    counts = (inside[0], members[1], min(outside[1], others[0]), others[0])
    _, low, _ = difference(counts, low_alpha=low_alpha, high_alpha=high_alpha)
    counts = (min(inside[1], members[0]), members[0], outside[0], others[1])
    _, _, high = difference(counts, low_alpha=low_alpha, high_alpha=high_alpha)
    return low, high


def _without_rest(by_value: list[AttributeGuesses], asked: Range) -> tuple[AttributeGuesses, ...]:
    """Hide the smallest value where who has none of the values shown follows from how many have each."""
    for side, share, total in (("members", "inside", asked[0]), ("others", "outside", asked[1])):
        given = [getattr(g, side) or 0 for g in by_value]
        if given and Count(total - sum(given)).hidden:
            i, nothing = given.index(min(given)), Estimate(value=None)
            by_value[i] = by_value[i].model_copy(update={side: None, share: None, "advantage": nothing})
    return tuple(by_value)


def _own(told: feature_adversaries.Seen, truth: Index) -> Float:
    """Return residuals, or log-likelihoods, with everybody's own value, shape (U,)."""
    table = told.likelihood if told.residual is None else told.residual
    return np.asarray(table[np.arange(len(truth)), np.maximum(truth, 0)])


def _influence(told: feature_adversaries.Seen, own: Float) -> float:
    """Return how far the feature alone moves an answer, mean over people: residual deviations, or nats of the label."""
    if told.residual is None:
        return float(np.mean(np.ptp(np.maximum(told.likelihood, -700.0), axis=1)))
    outside = float(np.sqrt(np.mean(own**2)))
    return float(np.mean(np.ptp(told.residual, axis=1))) / max(outside, LEAST)


def _theorem(told: feature_adversaries.Seen, truth: Index, members: Bool) -> float | None:
    """Return Theorem 5's advantage of a feature of two values, for normal errors of the sizes seen; None for others."""
    if told.residual is None or told.residual.shape[1] != 2:
        return None
    own = _own(told, truth)
    sides = [np.sqrt(np.mean(own[(truth >= 0) & s] ** 2)) for s in (members, ~members)]
    apart = float(np.mean(np.abs(told.residual[:, 0] - told.residual[:, 1])))
    return theorem_5(apart, *(max(float(s), LEAST) for s in sides))


QUESTION = Question(advantage, part, told_in="attributes")
