"""Members that are strangers to one another: leaving somebody out trains one of them again."""

import numpy as np

from privgate.arrays import Float, Index
from privgate.families import refit
from privgate.families.engine import Asked, Cost, Engine
from privgate.families.retrained import Retrained, Seeds, Status
from privgate.families.sharded_members import ALONE, SINGLE, declared, learner, shards
from privgate.models import Sharded
from privgate.subject import estimators
from privgate.subject.subject import Subject
from privgate.training.fit import Fit


def in_batches(subject: Subject) -> bool:
    """Return whether the learner's answer about a record may depend on the batch: networks', or nobody knows."""
    own = subject.recipe.own_model
    return own is not None and not all(name.startswith(ALONE) for name in estimators.references(own["base"]))


class ShardedEngine(Engine):
    """Trains the members again that held the unit, each by a call of the training function on its shard alone.

    A member's clipped answer is read off a model all of whose other members had nothing to learn from and answer
    nothing. Exact up to rounding, that of single precision where networks are the learners; 1/k of a training a person
    and shard.
    """

    name = "sharded"
    version = 2
    certain = True

    def supports(self, subject: Subject) -> str:
        """Return why this engine does not cover the recipe; empty if it does."""
        made = declared(subject)
        if made is None:
            return "the recipe is not privgate.models.Sharded released by predict_proba"
        if subject.declared_classes is None:
            return "classes= does not declare every label"
        if made.public is not None:
            return "members that share public records answer without records of their own too"
        return learner(subject)

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the number of calls, each of one member."""
        plain = refit.ENGINE.cost(subject, units, seeds)
        made = declared(subject)
        return Cost(plain.fits + len(seeds) * (made.shards if made else 0), plain.cpu_seconds, plain.memory_bytes)

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return models with and without each unit; a unit whose training failed is handed on to refits."""
        subject, units, seeds = asked.subject, asked.units, asked.seeds
        made = declared(subject)
        assert made is not None  # noqa: S101  supports() said so
        members, K = subject.data.units, len(subject.classes)
        shard = shards(made, subject)[: subject.data.n]
        row_unit, row_query = asked.rows
        bounds = np.searchsorted(row_unit, np.arange(len(units) + 1))
        every, place = np.unique(row_query, return_inverse=True)
        held = [np.flatnonzero(shard == m) for m in range(made.shards)]
        work = [(u, int(m)) for u in range(len(units)) for m in np.unique(shard[members[units[u]]])]
        whole = [Fit(seed, every, members=rows) for seed in seeds for rows in held]
        less = [
            Fit(seed, row_query[bounds[u] : bounds[u + 1]], members=np.setdiff1d(held[m], members[units[u]]))
            for seed in seeds
            for u, m in work
        ]
        answers = asked.fleet.fits(subject, whole + less, label="training single members")
        bad = {work[i % len(work)][0] for i, a in enumerate(answers[len(whole) :]) if a.problem}
        if any(a.problem for a in answers[: len(whole)]):
            bad = set(range(len(units)))  # then refits say what is wrong with it
        each = [np.zeros((0, K)) if a.problem else read(made, a.log_p, K) for a in answers]
        log_with = np.zeros((len(seeds), len(row_query), K))
        log_without = np.zeros_like(log_with)
        for s in range(len(seeds) if len(bad) < len(units) else 0):
            full = np.stack(each[s * made.shards : (s + 1) * made.shards])[:, place]
            log_with[s] = pooled(made, full)
            changed = full.copy()
            for (u, m), mine in zip(work, each[len(whole) + s * len(work) :], strict=False):
                if u not in bad:
                    changed[m, bounds[u] : bounds[u + 1]] = mine
            log_without[s] = pooled(made, changed)
        covered = np.array([u not in bad for u in range(len(units))], dtype=bool)
        found = Retrained(
            units=np.asarray(units, dtype=np.int64),
            seeds=seeds,
            row_unit=row_unit,
            row_query=row_query,
            log_with=log_with,
            log_without=log_without,
            error=np.full(len(units), rounding(made, K) + SINGLE * in_batches(subject)),
            status=np.full(len(units), Status.EXACT, dtype=object),
            engine=np.full(len(units), self.name, dtype=object),
        )
        return found.select(covered), np.asarray(units, dtype=np.int64)[~covered]


def read(made: Sharded, log_p: Float, K: int) -> Float:
    """Return one member's part of the answer, shape (n, K), from a model whose other members answer nothing."""
    if made.combine == "log_pool":
        return np.asarray(made.shards * (log_p - log_p.max(axis=1, keepdims=True)))
    alone = np.exp(log_p) * (made.shards + K * made.alpha) - made.alpha
    return np.asarray(alone - (made.shards - 1) / K)


def pooled(made: Sharded, parts: Float) -> Float:
    """Return log-probabilities of all members together; ``parts`` has shape (members, n, K)."""
    K = parts.shape[-1]
    if made.combine == "log_pool":
        z = parts.mean(axis=0)
        return np.asarray(z - np.logaddexp.reduce(z, axis=1, keepdims=True))
    return np.asarray(np.log((parts.sum(axis=0) + made.alpha) / (made.shards + K * made.alpha)))


def rounding(made: Sharded, K: int) -> float:
    """Return how far a log-probability put together here may be from the library's, nats."""
    unit = np.finfo(np.float64).eps
    if made.combine == "log_pool":
        return float(16 * (K + made.shards + 8) * unit)
    # a member's share comes out of a difference with numbers up to M + K alpha; the answer is at least alpha
    whole = made.shards + K * made.alpha
    return float(16 * (K + made.shards + 8) * unit * made.shards * whole / made.alpha)


ENGINE = ShardedEngine()
