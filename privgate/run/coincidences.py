"""Records that several people of a pool share: a tie is no evidence, and only too many of them are copies.

Given the people who hold a record, nobody can tell which of them were trained on. So everybody is a trial, and ties
are kept. Mathematics: docs/mathematics.md, section 9.5.
"""

from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.arrays import Bool, Float, Index

#: probability of an alarm about an honest pool
LEVEL = 0.01
#: from this distance to the quantile on, permutations decide in the normal law's place
_NEAR, _PERMUTATIONS = 0.4, 1999
#: variance from which on the normal law is near enough
_NORMAL = 1000
#: standard errors by which the unseen mass is smaller at most, at a level of 1 %
_ESTY = 2.33
#: share of the candidates who may be members at most; where more may be, nothing approves
MOST_COPIES = 0.05


@dataclass(frozen=True, eq=False)
class Coincidences:
    """Who of a pool holds which record: one pair of a record and a person each, arrays of shape (Q,)."""

    #: code of the record, and number of the person
    values: Index
    person: Index
    #: the first so many people are members
    members: int

    @staticmethod
    def count(values: NDArray[Any], person: Index, members: int) -> "tuple[Coincidences, Index]":
        """Return the pairs, and how many people hold each row's record; the first ``members`` people are members."""
        code = np.unique(values, return_inverse=True)[1].astype(np.int64)
        people = int(person.max()) + 1
        pairs = np.unique(code * people + person)
        held = Coincidences(pairs // people, pairs % people, members)
        return held, held.counts[code]

    @cached_property
    def merged(self) -> "Coincidences":
        """The same with all records that the same people hold as one: what a couple shares is one coincidence.

        Where members have several records and candidates one, this counts members' doubles as too few.
        """
        names = np.random.default_rng(37).integers(2**63, size=int(self.person.max()) + 1)
        sets = np.add.reduceat(names[self.person], np.cumsum(self.counts) - self.counts)
        own = np.isin(np.arange(len(sets)), np.unique(sets, return_index=True)[1])
        if own.all():
            return self
        kept = own[self.values]
        return Coincidences((np.cumsum(own) - 1)[self.values[kept]], self.person[kept], self.members)

    @property
    def member(self) -> Bool:
        """Whether each pair's person is a member."""
        return np.asarray(self.person < self.members)

    @cached_property
    def counts(self) -> Index:
        """People who hold each record, shape (V,)."""
        return np.bincount(self.values)

    @cached_property
    def inside(self) -> Index:
        """Members who hold each record, shape (V,)."""
        return np.bincount(self.values[self.member], minlength=len(self.counts))

    @property
    def sides(self) -> tuple[int, int]:
        """How many pairs are of members, and of candidates."""
        return int(self.member.sum()), int((~self.member).sum())

    @cached_property
    def _strangers(self) -> Float:
        """Probability that no holder of a record is a member, by how many hold it, from 0 to twice the largest."""
        (n, m), most = self.sides, 2 * int(self.counts.max())
        i = np.arange(most)
        with np.errstate(divide="ignore"):
            steps = np.log(np.maximum(m - i, 0) / np.maximum(n + m - i, 1))
        return np.asarray(np.exp(np.concatenate([[0.0], np.cumsum(steps)])))

    @property
    def deduplicated(self) -> bool:
        """Whether equal records of members were dropped, and those of candidates were not: no chance explains it.

        Of two holders on one side chance says which, and of three or more that at most one is a member.
        """
        (n, m), twos = self.sides, int(((self.counts == 2) & (self.inside == 0)).sum())
        c = self.counts[self.counts > 2]
        if (self.inside > 1).any() or not twos + len(c):
            return False
        if (c > m).any():
            return True
        at_most_one = np.log(self._strangers[c]) + np.log1p(c * n / (m - c + 1))
        outside = np.log(m * (m - 1) / (m * (m - 1) + n * (n - 1)))
        return bool(at_most_one.sum() + twos * outside <= np.log(LEVEL))

    @property
    def doubles(self) -> int:
        """How many candidates hold a record that another candidate holds, without one candidate for each record."""
        return int(np.maximum(self.counts - self.inside - 1, 0).sum())

    def count_copies(self, rng: Generator, share: float = 1.0) -> float:
        """Return how many candidates may be members at most, more than chance explains; 0 without an alarm.

        Those whose record a member holds have a known law where chance chose. One test spends a ``share`` of ``LEVEL``.
        """
        shared = self._count_shared(self.inside)
        held, g = np.unique(self.counts, return_counts=True)
        p, (n, m) = self._strangers, self.sides
        mean = m - (g * held * p[held]).sum()
        pairs = p[held[:, None] + held] - p[held][:, None] * p[held]
        variance = (np.outer(g * held, g * held) * pairs).sum() + (g * held**2 * (p[held] - p[2 * held])).sum()
        if variance <= 0:
            return 0.0
        beyond = (shared - 0.5 - mean) / np.sqrt(variance)
        quantile = NormalDist().inv_cdf(1 - LEVEL * share)
        if abs(beyond - quantile) < _NEAR and variance < _NORMAL:
            # only who shares a record matters: members among them, of all that might be
            size, tied = len(self.counts), self.values[self.counts[self.values] > 1]
            drawn = (rng.permutation(tied)[: rng.hypergeometric(n, m, len(tied))] for _ in range(_PERMUTATIONS))
            as_many = sum(self._count_shared(np.bincount(d, minlength=size)) >= shared for d in drawn)
            if (1 + as_many) / (1 + _PERMUTATIONS) > LEVEL * share:
                return 0.0
        elif beyond < quantile:
            return 0.0
        one, two = ((self.inside == k).sum() for k in (1, 2))
        r = 1 - one / n  # members with a double among members
        if r == 1:
            return float(m)
        error = np.sqrt(r * (1 - r) / m + max(one + 2 * two - one**2 / n, 0.0) / n**2)  # Esty (1983)
        return float(np.clip((shared - m * r + _ESTY * m * error) / (1 - r), 0, m))

    def _count_shared(self, inside: Index) -> int:
        return int((self.counts - inside)[inside > 0].sum())


def bound_rare(holders: Index, smaller: float, least: int) -> int:
    """Return the fewest holders up to which ``least`` people of the smaller side are expected to hold a rare record.

    ``holders``, shape (U,), counts who holds each trial's record; ``smaller`` is the smaller side's share of trials.
    Where all together are fewer, everybody counts as rare. Who is there on each side is not looked at: it tells.
    """
    enough = np.cumsum(np.bincount(holders)) * smaller >= least
    return int(np.argmax(enough)) if enough.any() else int(holders.max())


def keep_common(labels: Index, n: int, m: int) -> Bool:
    """Return which labels, by position, are so common in the pool that chance leaves none to candidates alone.

    ``labels`` are those of all ``n`` members and ``m`` candidates, shape (P,). Whoever dropped the labels that members
    lack would select by membership.
    """
    counts = np.bincount(labels)
    held, g = np.unique(counts[counts > 0], return_counts=True)
    i = np.arange(int(held.max()))
    with np.errstate(divide="ignore"):
        p = np.exp(np.cumsum(np.log(np.maximum(m - i, 0) / (n + m - i))))
    expected = np.cumsum((g * held * p[held - 1])[::-1])[::-1]  # candidates of labels that no member has
    least = held[np.argmax(expected < 1)] if (expected < 1).any() else counts.max() + 1
    return np.asarray(counts >= least)
