"""The metric ``robust_advantage``: membership guessed from how far the model's nearest wrong answer is."""

from dataclasses import dataclass, field

import numpy as np

from privgate.arrays import Bool, Float, Index
from privgate.check.questions import Question
from privgate.errors import MeasurementError
from privgate.evidence import BehindMembership, Estimate, Measurement, Request, RobustAdversary, RobustPart
from privgate.kernel.sample import difference
from privgate.lab.robust import distances
from privgate.run import pool as pools
from privgate.run.run import Run

#: people of either side who are trials, or train and try the shadow model
MOST = 400
#: fewer on either side, and nothing is shown
LEAST = 20
ASSUMPTIONS = (
    "candidates come from the same population as the training records",
    "the adversary has the model itself, knows people's records and labels, and trains one model as it was trained",
)


@dataclass(frozen=True, eq=False)
class Seen:
    """Distances of the target's and the shadow model's people, and who is a member."""

    how: str
    target: Float
    members: Bool
    shadow: Float
    shadow_members: Bool


@dataclass(frozen=True)
class Guesses:
    """How many members, and how many others, one adversary calls members."""

    name: str
    title: str
    members: int = 0
    of_members: int = 0
    others: int = 0
    of_others: int = 0
    radius: float | None = None

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Members called members, all members, others called members, all others."""
        return self.members, self.of_members, self.others, self.of_others


@dataclass
class Noted:
    """What was found in one run."""

    how: str = ""
    guesses: list[Guesses] = field(default_factory=list)
    alpha: float = 0.05


def noted(run: Run) -> Noted:
    """Return where a run's adversaries are noted."""
    del run
    return Noted()


def part(run: Run) -> RobustPart | None:
    """Return what was found beside the number; None where no rule asked for it."""
    found = run.once(noted) if run.made(noted) else None
    if found is None or not found.guesses:
        return None
    return RobustPart(how=found.how, adversaries=tuple(_told(g, found.alpha) for g in found.guesses))


def advantage(run: Run, request: Request) -> Measurement:
    """Return the largest advantage of Adversaries 8 and 9 of Yeom et al. (2020), with limits.

    Adversary 8 calls a person a member about whom the model stays right within a radius: its advantage is the robust
    generalization error where descent finds every wrong answer (Theorem 8). Adversary 9 weighs the three distances by a
    logistic regression that was fitted to one shadow model's. Adversary 1, right or wrong, is shown beside them.
    ``low`` holds over both that were tried, ``high`` is an intersection-union test.

    Raises
    ------
    MeasurementError
        There are too few candidates for a shadow model, or the model has no boundary that could be looked for.
    """
    alpha = 1 - float(request.option("confidence", 0.95))
    radius = request.option("radius")
    kept = run.once(noted)
    seen = run.once(looked)
    kept.how, kept.alpha = seen.how, alpha
    kept.guesses = guesses(seen, None if radius is None else float(radius))
    tried = kept.guesses[1:]
    limits = [difference(g.counts, low_alpha=alpha / len(tried), high_alpha=alpha) for g in tried]
    worst = int(np.argmax([value for value, _, _ in limits]))
    return Measurement(
        request,
        value=limits[worst][0],
        low=max(low for _, low, _ in limits),
        high=max(high for _, _, high in limits),
        unit="fraction",
        kind="confidence",
        confidence=1 - alpha,
        n=len(seen.members),
        population=len(run.once(pools.of_run).trial),
        where=f"{tried[worst].title}, distances {seen.how}",
        assumptions=ASSUMPTIONS,
        behind=BehindMembership(
            searched=len(tried), members=int(seen.members.sum()), candidates=int((~seen.members).sum()), shadow_models=1
        ),
    )


def looked(run: Run) -> Seen:
    """Measure the distances of both models."""
    if run.subject.task == "regression":
        raise MeasurementError("a regressor has no boundary between answers")
    target, members, shadow, tried, inside = split(run)
    found = distances.measured(run.subject, run.fleet, target, shadow, tried)
    if problem := found.get("problem"):
        raise MeasurementError(str(problem))
    far, beside = (np.array(found[k], dtype=np.float64) for k in ("target", "shadow"))
    if np.isnan(far).any() or np.isnan(beside).any():
        raise MeasurementError("some distances are no numbers")
    if not str(found["how"]).startswith("exactly") and not all(_crossed(d) for d in (far, beside)):
        raise MeasurementError("no wrong answer was found near any record, so that no distance was measured")
    return Seen(str(found["how"]), far, members, beside, inside)


def _crossed(away: Float) -> bool:
    """Whether some record about which the model is right has a wrong answer at a distance."""
    return bool((np.isfinite(away) & (away > 0)).any())


def split(run: Run) -> tuple[Index, Bool, Index, Index, Bool]:
    """Return (target's trials, whether members, shadow's records, shadow's trials, whether it was trained on them).

    Candidates are cut in three: people outside of the target, people whom the shadow model is trained on, and people
    outside of both; a label that the shadow would miss goes to it first.
    """
    pool = run.once(pools.of_run)
    rng = run.generator("robust trials")
    rows = np.flatnonzero(pool.trial)
    inside = rng.permutation(rows[pool.members[rows]])[:MOST]
    outside = rng.permutation(rows[~pool.members[rows]])
    third = len(outside) // 3
    if len(inside) < LEAST:
        raise MeasurementError(f"{len(inside)} people of the training data are too few for a test of {LEAST}")
    if third < LEAST:
        raise MeasurementError(
            f"{len(outside)} candidates are too few for a shadow model and two tests of {LEAST}; give more of them"
        )
    shadow, tests = outside[:third], outside[third:]
    labels = run.subject.data.pool_labels
    missing = np.setdiff1d(np.unique(run.subject.data.y), np.unique(labels[shadow]))
    more = [int(tests[labels[tests] == label][0]) for label in missing if (labels[tests] == label).any()]
    shadow, tests = np.concatenate([shadow, more]).astype(np.int64), np.setdiff1d(tests, more, assume_unique=True)
    others, beside = tests[: len(tests) // 2][:MOST], tests[len(tests) // 2 :][:MOST]
    tried = np.concatenate([shadow[:MOST], beside]).astype(np.int64)
    trials = np.concatenate([inside, others]).astype(np.int64)
    return trials, np.arange(len(trials)) < len(inside), shadow, tried, np.arange(len(tried)) < len(shadow[:MOST])


def guesses(seen: Seen, radius: float | None) -> list[Guesses]:
    """Return what Adversaries 1, 8 and 9 guess of the target's people."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    told = seen.target[:, -1] > 0
    chosen = best_radius(seen.shadow[:, -1], seen.shadow_members) if radius is None else radius
    steady = seen.target[:, -1] > chosen
    # infinite: nothing is wrong anywhere; farther than anything finite
    ends = np.array([_largest(seen.shadow[:, i], seen.target[:, i]) for i in range(len(distances.NORMS))])
    learned = make_pipeline(StandardScaler(), LogisticRegression()).fit(
        np.minimum(seen.shadow, ends), seen.shadow_members
    )
    guessed = learned.predict(np.minimum(seen.target, ends)).astype(bool)
    return [
        _counted("bounded_loss", "Adversary 1 (right or wrong)", told, seen.members),
        _counted("robust_classification", "Adversary 8 (right within a radius)", steady, seen.members, chosen),
        _counted("robust_threshold", "Adversary 9 (distance to the boundary)", guessed, seen.members),
    ]


def _largest(*columns: Float) -> float:
    finite = np.concatenate(columns)
    finite = finite[np.isfinite(finite)]
    return float(2 * finite.max()) if len(finite) and finite.max() > 0 else 1.0


def best_radius(away: Float, members: Bool) -> float:
    """Return the radius at which the shadow model's members are told best from others."""
    tries = np.unique(np.concatenate([[0.0], away[np.isfinite(away)]]))
    gains = [(away[members] > r).mean() - (away[~members] > r).mean() for r in tries]
    return float(tries[int(np.argmax(gains))])


def _counted(name: str, title: str, guessed: Bool, members: Bool, radius: float | None = None) -> Guesses:
    inside, outside = guessed & members, guessed & ~members
    return Guesses(
        name, title, int(inside.sum()), int(members.sum()), int(outside.sum()), int((~members).sum()), radius
    )


def _told(g: Guesses, alpha: float) -> RobustAdversary:
    value, low, high = difference(g.counts, low_alpha=alpha, high_alpha=alpha)
    return RobustAdversary(
        name=g.name,
        title=g.title,
        inside=g.members / g.of_members,
        outside=g.others / g.of_others,
        members=g.of_members,
        others=g.of_others,
        radius=g.radius,
        advantage=Estimate(value=value, low=low, high=high),
    )


QUESTION = Question(advantage, part, told_in="robust")
