"""Multinomial naive Bayes on counted words whose vocabulary is read off the texts: without a person it is smaller.

A word that only one person used is no feature without them: it leaves every question, and takes its smoothing out of
every class's total. Nothing else changes but the counts (docs/mathematics.md, sections 3.3 and 17.2).
"""

from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral
from typing import Any

import numpy as np

from privgate.arrays import Float, Index
from privgate.families.closed_form import VANISHED, normalized
from privgate.families.designs import vanishing
from privgate.families.engine import Asked, Cost, Engine
from privgate.families.over_all_queries.applies import smoothing
from privgate.families.pipelines import steps
from privgate.families.retrained import Retrained, Seeds
from privgate.subject.subject import Subject


@dataclass(frozen=True, eq=False)
class Counted:
    """Counts of the pool's texts, and of each class's training texts.

    Parameters
    ----------
    words : scipy CSR matrix of shape (P, V)
    totals : float64 array of shape (K, V)
        Each class's counts.
    holders : int64 array of shape (V,)
        Training texts in which each word occurs.
    alpha : float
    prior : float64 array of shape (K,), or None
        Fixed log-priors; None where they follow the labels.
    """

    words: Any
    totals: Float
    holders: Index
    alpha: float
    prior: Float | None

    def joint(self, sizes: Float, queries: Index, lost: tuple[Index, Float], gone: Index) -> Float:
        """Return joint log-probabilities of pool rows, shape (Q, K).

        Parameters
        ----------
        sizes : float64 array of shape (K,)
            Training texts of each class.
        lost : (words, counts)
            Words of which each class loses counts, ascending, and how many, (K, W).
        gone : int64 array
            Words that are no features any more, ascending; among those of ``lost``.
        """
        at, less = lost
        features = self.words.shape[1] - len(gone)
        rest = self.totals.sum(axis=1) - less.sum(axis=1) + self.alpha * features
        prior = np.log(sizes) - np.log(sizes.sum()) if self.prior is None else self.prior
        made = np.empty((len(queries), len(sizes)))
        for k, row in enumerate(queries.tolist()):
            span = slice(self.words.indptr[row], self.words.indptr[row + 1])
            word, count = self.words.indices[span], self.words.data[span].astype(np.float64)
            held = self.totals[:, word].copy()
            place = np.minimum(np.searchsorted(at, word), max(len(at) - 1, 0))
            if len(at):
                same = at[place] == word
                held[:, same] -= less[:, place[same]]
            keep = ~np.isin(word, gone)
            made[k] = prior + (np.log(held[:, keep] + self.alpha) - np.log(rest)[:, None]) @ count[keep]
        return made


@lru_cache(maxsize=2)
def counted(subject: Subject) -> Counted | str:
    """Return the counts of a recipe's texts, or why it is not covered."""
    from sklearn.base import clone

    estimator = subject.recipe.library_estimator
    if not steps.is_pipeline(estimator) or [type(s).__name__ for _, s in estimator.steps] != [
        "CountVectorizer",
        "MultinomialNB",
    ]:
        return "the recipe is not scikit-learn's CountVectorizer and MultinomialNB"
    reader, last = estimator[0], estimator[-1]
    texts = subject.data.pool()[0]
    if reader.input != "content" or hasattr(texts, "columns") or not all(isinstance(t, str) for t in texts):
        return "the records are no texts"
    if reader.token_pattern != type(reader)().token_pattern:  # matching one may take for ever, and here nothing ends it
        return "its token_pattern is not the library's, so texts are read in a box"
    if reader.vocabulary is not None:
        return "its first steps do not depend on the data"
    # 1 is one text, and 1.0 all of them
    everything = reader.min_df == 1 and isinstance(reader.min_df, Integral) and reader.max_df == 1.0
    if reader.max_features is not None or not everything or isinstance(reader.max_df, Integral):
        return "which words count depends on how many texts they are in; leave min_df, max_df and max_features alone"
    alpha = smoothing(last)
    if alpha is None or not alpha > 0:
        return "without one smoothing for all words, a word that only one person used rules classes out"
    try:
        fitted = clone(reader).fit(subject.data.X)
        words = fitted.transform(texts).tocsr().sorted_indices()
    except ValueError as exc:
        return f"the texts cannot be counted ({' '.join(str(exc).split())[:80]})"
    train, codes, K = words[: subject.data.n], subject.label_codes, len(subject.classes)
    totals = np.stack([np.asarray(train[codes == c].sum(axis=0), dtype=np.float64).ravel() for c in range(K)])
    holders = np.bincount(train.indices, minlength=words.shape[1])
    prior = None
    if last.class_prior is not None:
        with np.errstate(divide="ignore"):
            prior = np.log(np.asarray(last.class_prior, dtype=np.float64))
    elif not last.fit_prior:
        prior = np.full(K, -np.log(K))
    return Counted(words, totals, holders.astype(np.int64), alpha, prior)


class CountedWords(Engine):
    """Leave-one-out for ``CountVectorizer`` and ``MultinomialNB``, in closed form."""

    name = "counted_words"

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data is not covered; empty if it is."""
        found = counted(subject)
        return found if isinstance(found, str) else ""

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost: some hundred microseconds a person."""
        del subject, seeds, mode
        return Cost(0, 4e-4 * len(units))

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return exact answers for every unit."""
        subject, units, (row_unit, row_query) = asked.subject, asked.units, asked.rows
        found = counted(subject)
        if isinstance(found, str):
            raise TypeError(f"answers() without supports(): {found}")
        codes, K = subject.label_codes, len(subject.classes)
        sizes = np.bincount(codes, minlength=K).astype(np.float64)
        nothing = np.zeros(0, dtype=np.int64), np.zeros((K, 0))
        asked_for, back = np.unique(row_query, return_inverse=True)
        with_ = normalized(found.joint(sizes, asked_for, nothing, nothing[0]))[back]
        without = np.full(with_.shape, -np.inf)
        gone, edges = vanishing(subject, units), np.searchsorted(row_unit, np.arange(len(units) + 1))
        for k in np.flatnonzero(~gone):
            rows = subject.data.units[int(units[k])]
            own = found.words[rows]
            at, place = np.unique(own.indices, return_inverse=True)
            less = np.zeros((K, len(at)))
            np.add.at(less, (np.repeat(codes[rows], np.diff(own.indptr)), place), own.data)
            unheard = at[found.holders[at] <= np.bincount(place, minlength=len(at))]
            left = sizes - np.bincount(codes[rows], minlength=K)
            part = slice(edges[k], edges[k + 1])
            without[part] = normalized(found.joint(left, row_query[part], (at, less), unheard))
        made = Retrained.of(
            self.name,
            units,
            asked.seeds[:1],
            asked.rows,
            with_[None],
            without[None],
            undefined={int(k): VANISHED for k in np.flatnonzero(gone)},
        )
        return made, units[:0]


ENGINE = CountedWords()
