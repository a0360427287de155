"""Multinomial and complement naive Bayes: how far each person's absence moves an answer to accepted questions.

Model.  T are the sums of features over each class's records, not negative. With ``alpha`` added, multinomial weights
are ln of a class's share of each feature. Complement ones are -ln of the share that all other classes hold;
"normed" ones are divided by their sum. A score is linear: weights . x, and for multinomial a prior.

Claim.  No answer about a record of theirs (asked "own"), or to any accepted question ("any"), differs by more than
``high`` between the models with and without a person; one about a record of theirs, or their ``question``, differs by
``low`` or more.

Certificate.  None: the sums say it all.

Why it is enough.  Both models' weights are computed here from sums, with a bound of their errors (``_weights``): sums
of whole numbers are exact, others off by a unit in the last place of the whole sum a record; the library's complement
takes a class's own sum off the smoothed sum of all. A change of a log-odds is linear in the question, and ``Accepted``
bounds linear functions. ``scores`` does the rest.

Axioms.  Answers are computed as scikit-learn's ``MultinomialNB`` and ``ComplementNB`` do, in float64.
"""

from dataclasses import dataclass

import numpy as np

from privgate.kernel.accepted import Accepted
from privgate.kernel.assertion import Case, Float, Index, Limits, every
from privgate.kernel.rounding import ELEMENTARY, EPS, gamma, of_logarithm
from privgate.kernel.scores import (
    Block,
    Scope,
    asked_questions,
    at,
    blocks,
    fixed_prior,
    labels,
    largest,
    over,
    settled,
)

#: smoothing below which numbers that are divided by it may overflow, and numbers whose sums may
_TINY, _LARGE = 1e-290, 1e100


@dataclass(frozen=True, eq=False)
class _Linear:
    """Scores ``bias + weights . x`` of U models, (U, K) and (U, K, d), and how far each is off."""

    bias: Float
    weights: Float
    off_bias: float
    off: Float

    def at(self, X: Float, who: Index) -> tuple[Float, Float]:
        """Return scores (m, K) of the model ``who`` (m,) at each question, and how far they are off, (m,)."""
        z = self.bias[who] + np.einsum("mkd,md->mk", self.weights[who], X)
        return z, np.einsum("mkd,md->mk", self.off[who], np.abs(X)).max(axis=1) + self.off_bias

    def anywhere(self, accepted: Accepted) -> Float:
        """Return how far any score is off at any accepted question, (U,)."""
        return np.asarray(accepted.sizes.most(self.off).max(axis=1) + self.off_bias)


@dataclass(frozen=True, eq=False)
class _Model:
    """Sums ``T`` (K, d) and records ``N`` (K,) of each class; a fixed prior, if the records do not say it."""

    X: Float
    label: Index
    T: Float
    N: Float
    alpha: Float
    prior: Float | None
    kind: str

    @classmethod
    def of(cls, case: Case) -> "_Model":
        """Return the model that is trained on the case's records."""
        X, alpha = case.array("X", 2), case.array("alpha", 1)
        label, N = labels(case, X.shape)
        every(
            (bool(((X >= 0) & (X < _LARGE)).all()), "numbers are negative, or not finite"),
            (alpha.shape == X.shape[1:] and bool(((alpha >= _TINY) & (alpha < _LARGE)).all()), "no smoothing"),
        )
        kind = case.setting("weights", str)
        every((kind in ("multinomial", "complement", "normed"), f"no weights are {kind!r}"))
        prior = fixed_prior(case, len(N)) if kind == "multinomial" else np.zeros(len(N))
        T = np.stack([X[label == k].sum(axis=0) for k in range(len(N))])
        return cls(X, label, T, N, alpha, prior, kind)

    @property
    def lost(self) -> Float:
        """How far sums are off, in any order and with anything taken off again, (d,)."""
        total = self.T.sum(axis=0)
        exact = (np.floor(self.X) == self.X).all(axis=0) & (total < 2.0**52)
        return np.where(exact, 0.0, (len(self.X) + len(self.N) + 8) * EPS * total)

    def linear(self, T: Float, N: Float) -> _Linear:
        """Return the scores of U models with these sums (U, K, d) and records (U, K)."""
        weights, off = self._weights(np.maximum(T, 0.0))
        bias = np.log(N) if self.prior is None else np.broadcast_to(self.prior, N.shape)
        size = float(np.abs(self.prior).max()) if self.prior is not None else 0.0
        off_bias = 2 * (ELEMENTARY + gamma(8)) * (size + float(np.log(len(self.X))))
        return _Linear(bias, weights, off_bias, 2 * off + 2 * gamma(T.shape[-1] + 8) * np.abs(weights))

    def _weights(self, T: Float) -> tuple[Float, Float]:
        """Return (weights, how far the library's are off), each (U, K, d)."""
        lost, d = self.lost, T.shape[-1]
        if self.kind != "multinomial":
            everything = T.sum(axis=-2, keepdims=True)
            held = everything - T
            lost = 2 * lost + 4 * EPS * (everything + self.alpha)  # the library adds the smoothing before it takes off
        else:
            held = T
        smoothed = np.maximum(held, 0.0) + self.alpha
        total = smoothed.sum(axis=-1, keepdims=True)
        logs = np.log(smoothed), np.log(total)
        off = of_logarithm(lost / smoothed + 4 * EPS) + 2 * ELEMENTARY * (np.abs(logs[0]) + np.abs(logs[1]) + 1)
        off = off + of_logarithm(np.broadcast_to(lost, T.shape).sum(axis=-1, keepdims=True) / total + gamma(d + 8))
        weights = logs[0] - logs[1]
        if self.kind != "normed":
            return (weights if self.kind == "multinomial" else -weights), off
        summed = weights.sum(axis=-1, keepdims=True)
        doubt = off.sum(axis=-1, keepdims=True) + gamma(d + 8) * np.abs(summed)
        shares, safe = weights / summed, np.abs(summed) - doubt
        return shares, np.where(safe > 0, (off + np.abs(shares) * doubt) / safe + 4 * EPS * np.abs(shares), np.inf)

    def without(self, block: Block) -> tuple[Float, _Linear]:
        """Return (records that are left of each class (U, K), the scores without each of some people)."""
        label, U = self.label[block.rows], block.U
        N, T = np.tile(self.N, (U, 1)), np.tile(self.T, (U, 1, 1))
        np.subtract.at(N, (block.who, label), 1.0)
        np.subtract.at(T, (block.who, label), self.X[block.rows])
        return N, self.linear(T, N)


def bound(case: Case) -> Limits:
    """Return limits of multinomial or complement naive Bayes; the module's docstring is the theorem."""
    model = _Model.of(case)
    (n, d), K = model.X.shape, len(model.N)
    (person, people), limit = case.person(n), case.setting("limit", float, default=1.0)
    question, inside, accepted = asked_questions(case, people, d), np.ones(n, dtype=bool), None
    everybody = model.linear(model.T[None], model.N[None])
    if case.asked == "any":
        accepted = Accepted.of(case, d)
        inside = accepted.inside(model.X)
        question = np.where(accepted.inside(question)[:, None], question, np.nan)
    low, high, told = np.zeros(people), np.zeros(people), np.zeros(1)
    for block in blocks(person, people, 4 * K * d):
        left, without = model.without(block)
        below, most = _at(everybody, without, model.X[block.rows], block.who)
        if accepted is not None:
            below = np.where(inside[block.rows], below, 0.0)
            told = _at(everybody, without, question[block.people], np.arange(block.U))[0]
            most = _over(everybody, without, accepted, limit)
        else:
            most = largest(block.who, block.U, most)
        low[block.people], high[block.people] = settled(block, below, told, most, left)
    return Limits(low, high)


def _at(everybody: _Linear, without: _Linear, X: Float, who: Index) -> tuple[Float, Float]:
    """Return (low, high) at questions (m, d), each without one of the people."""
    (z0, off0), (z1, off1) = everybody.at(X, np.zeros_like(who)), without.at(X, who)
    return at(z0, z1, np.maximum(off0, off1))


def _over(everybody: _Linear, without: _Linear, accepted: Accepted, limit: float) -> Float:
    """Return ``high`` over the accepted questions, (U,)."""
    bias, change = everybody.bias - without.bias, everybody.weights - without.weights
    K = bias.shape[1]
    odds, top = np.zeros((len(bias), K, K)), np.zeros((K, K))
    w0, b0 = everybody.weights[0], everybody.bias[0]
    for a in range(K):
        for b in set(range(K)) - {a}:
            odds[:, a, b] = accepted.most(change[:, a] - change[:, b]) + bias[:, a] - bias[:, b]
            top[a, b] = accepted.most(w0[a] - w0[b]) + b0[a] - b0[b]

    def reach(who: Index, k: float, n: float) -> Float:
        w = k * (w0[1] - w0[0]) - n * (change[who, 1] - change[who, 0])
        return np.asarray(accepted.most(w) + k * (b0[1] - b0[0]) - n * (bias[who, 1] - bias[who, 0]))

    return over(odds, np.maximum(everybody.anywhere(accepted), without.anywhere(accepted)), Scope(top, limit, reach))
