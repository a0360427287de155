"""The model's answers about people with every value of a feature put in, and the people themselves."""

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
    Estimate,
    Measurement,
    Request,
)
from privgate.evidence.json_values import SMALL_CELL
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
    subject, y = run.subject, run.subject.data.pool()[1]
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

ASSUMPTIONS = (
    "candidates come from the same population as the training records",
    "the adversary knows every other feature, the target, the published training error and how frequent each value is",
    "what the model tells of everybody, people outside included, is not counted: only what it tells of members beyond",
)


@dataclass
class Noted:
    """What was found about each sensitive feature of one run; each is asked about once."""

    results: dict[str, AttributeResult] = field(default_factory=dict)
    counts: dict[str, dict[str, tuple[int, int, int, int]]] = field(default_factory=dict)


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
        behind=BehindMembership(
            searched=len(tries), members=int(who.members.sum()), candidates=int((~who.members).sum())
        ),
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
        found.append(_told(a.name, a.title, a.source, counts[a.name], alpha))
    without = feature_adversaries.guesses(run, attribute, who.rows, learn) == truth
    base = _counted(without, asked & ~learn, who.members)
    best = next(a for a in feature_adversaries.ALL if a.name == "inversion")
    guessed = best.guess(told, run.generator("by value")) == truth
    kept.counts[attribute.name] = counts
    kept.results[attribute.name] = AttributeResult(
        name=attribute.name,
        values=len(attribute.values),
        adversaries=tuple(found),
        without_model=_told("imputation", "Guessed without the model", "a forest on all other columns", base, alpha),
        prior_guess=float(attribute.prior.max()),
        influence=_influence(told, _own(told, truth)[asked & ~who.members]),
        influence_in="nats" if told.residual is None else "residual deviations",
        theorem=_theorem(told, truth, who.members),
        by_value=tuple(
            _told(name, name, "", _counted(guessed, asked & (truth == k), who.members), alpha)
            for k, name in enumerate(attribute.names)
            if min((truth[who.members] == k).sum(), (truth[~who.members] == k).sum()) >= SMALL_CELL
        ),
    )


def _half_outside(run: Run, who: People) -> Bool:
    """Return a random half of the people outside, from whom a guess without the model is learned."""
    outside = np.flatnonzero(~who.members)
    learn = np.zeros(len(who.rows), dtype=bool)
    learn[run.generator("learned without the model").permutation(outside)[: len(outside) // 2]] = True
    return learn


def _counted(right: Bool, among: Bool, members: Bool) -> tuple[int, int, int, int]:
    """Return (right, all) of members, then of people outside."""
    sides = [among & members, among & ~members]
    return tuple(int(n) for s in sides for n in ((right & s).sum(), s.sum()))  # type: ignore[return-value]  # four


def _told(name: str, title: str, source: str, counts: tuple[int, int, int, int], alpha: float) -> AttributeGuesses:
    a, n, b, k = counts
    value, low, high = difference(counts, low_alpha=alpha, high_alpha=alpha)
    return AttributeGuesses(
        name=name,
        title=title,
        source=source,
        inside=a / n if n else float("nan"),
        outside=b / k if k else float("nan"),
        members=n,
        others=k,
        advantage=Estimate(value=value, low=low, high=high),
    )


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
