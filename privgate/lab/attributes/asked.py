"""The model's answers about people with every value of a feature put in, and the people themselves."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privgate.errors import MeasurementError
from privgate.lab.attributes import imputation
from privgate.lab.attributes.adversaries import Seen, normal
from privgate.lab.attributes.values import Attribute, put_in
from privgate.run import pool as pools
from privgate.run.run import Run
from privgate.subject.containers import stack
from privgate.subject.data import TrainingData
from privgate.subject.release import Laplace
from privgate.training.fit import Fit

Float = NDArray[np.float64]
Index = NDArray[np.int64]

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
        known=imputation.known_of(subject.data, attribute.column, who.rows),
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
