"""The metric ``attribute_advantage``: how much oftener a feature of members is guessed than one of people outside."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

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
from privgate.kernel.sample import difference
from privgate.lab.attributes import adversaries, imputation, values
from privgate.lab.attributes.asked import LEAST, People, people, seen
from privgate.lab.attributes.theorem import theorem_5
from privgate.run import pool as pools
from privgate.run.run import Run

Float = NDArray[np.float64]
Index = NDArray[np.int64]
Bool = NDArray[np.bool_]

#: fewer people with a value on either side, and nothing is shown about it
SMALL_CELL = 10
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
    attribute, who, kept = values.read(run.subject.data, column), run.once(people), run.once(noted)
    told = seen(run, attribute)
    truth = attribute.codes[who.rows]
    asked = truth >= 0
    if min((asked & who.members).sum(), (asked & ~who.members).sum()) < SMALL_CELL:
        raise MeasurementError(f"too few people on one side have a known {column!r}")
    learn = _half_outside(run, who)
    found, counts = [], {}
    for a in adversaries.of(told):
        right = a.guess(told, run.generator(f"{a.name} {attribute.name}")) == truth
        counts[a.name] = _counted(right, asked, who.members)
        found.append(_told(a.name, a.title, a.source, counts[a.name], alpha))
    without = imputation.guesses(run, attribute, who.rows, learn) == truth
    base = _counted(without, asked & ~learn, who.members)
    best = next(a for a in adversaries.ALL if a.name == "inversion")
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


def _own(told: adversaries.Seen, truth: Index) -> Float:
    """Return residuals, or log-likelihoods, with everybody's own value, shape (U,)."""
    table = told.likelihood if told.residual is None else told.residual
    return np.asarray(table[np.arange(len(truth)), np.maximum(truth, 0)])


def _influence(told: adversaries.Seen, own: Float) -> float:
    """Return how far the feature alone moves an answer, mean over people: residual deviations, or nats of the label."""
    if told.residual is None:
        return float(np.mean(np.ptp(np.maximum(told.likelihood, -700.0), axis=1)))
    outside = float(np.sqrt(np.mean(own**2)))
    return float(np.mean(np.ptp(told.residual, axis=1))) / max(outside, LEAST)


def _theorem(told: adversaries.Seen, truth: Index, members: Bool) -> float | None:
    """Return Theorem 5's advantage of a feature of two values, for normal errors of the sizes seen; None for others."""
    if told.residual is None or told.residual.shape[1] != 2:
        return None
    own = _own(told, truth)
    sides = [np.sqrt(np.mean(own[(truth >= 0) & s] ** 2)) for s in (members, ~members)]
    apart = float(np.mean(np.abs(told.residual[:, 0] - told.residual[:, 1])))
    return theorem_5(apart, *(max(float(s), LEAST) for s in sides))


QUESTION = Question(advantage, part, told_in="attributes")
