"""Closed forms behind first steps that learn: naive Bayes, discriminants and neighbours of records that all move.

Without a unit, feature j of everybody is ``a_j z + b_j + g_j M`` of what it was (``carry``). Moments and distances of
such features follow from those of ``z`` and ``M``; nothing is fitted again (docs/mathematics.md, section 17.2).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.families.closed_form import ClosedForm, Form, Scores
from privgate.families.discriminants import lda
from privgate.families.engine import Cost
from privgate.families.naive_bayes import gaussian
from privgate.families.neighbours import k_nearest
from privgate.families.pipelines import steps
from privgate.families.pipelines.carried import Carried
from privgate.families.pipelines.carried_moments import Moments
from privgate.families.pipelines.last_step import laid_open
from privgate.families.removal import Removal
from privgate.families.retrained import Index, Seeds
from privgate.subject.subject import Subject

Float = NDArray[np.float64]


class Behind(ClosedForm):
    """An engine for one kind of last step.

    Attributes
    ----------
    last : str
        Name of the library's class.
    alone : Engine
        Covers it by itself.
    """

    version = 1
    last: str
    alone: ClosedForm
    hands_on = "a first step learns something else without them"

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data is not covered; empty if it is."""
        estimator = subject.recipe.library_estimator
        if not steps.is_pipeline(estimator) or type(estimator[-1]).__name__ != self.last:
            return f"the recipe is no pipeline that ends in scikit-learn's {self.last}"
        found = laid_open(subject)
        return found if isinstance(found, str) else self.alone.supports(found[0]) or self.unfit(estimator[-1], found[0])

    def unfit(self, last: Any, inner: Subject) -> str:
        """Return what more is not covered behind steps that learn; empty if nothing."""
        del last, inner
        return ""

    def opened(self, subject: Subject) -> tuple[Subject, Carried, Index]:
        """Return (last step, how records move, unit of each record) of a subject that is supported."""
        found = laid_open(subject)
        if isinstance(found, str):
            raise TypeError(f"answers() without supports(): {found}")
        owner = np.empty(subject.data.n, dtype=np.int64)
        for u, rows in enumerate(subject.data.units):
            owner[rows] = u
        return *found, owner


class CarriedBayes(Behind):
    """Leave-one-out for ``GaussianNB``: means, variances and their floor of features that move; O(K d) a unit."""

    name = "gaussian_nb_carried"
    last = "GaussianNB"
    alone = gaussian.ENGINE

    def unfit(self, last: Any, inner: Subject) -> str:
        """Return that a feature may divide by 0; empty if none can."""
        del inner
        return "" if last.var_smoothing > 0 else "without var_smoothing a feature that does not vary divides by 0"

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost: a fifth of a millisecond a unit."""
        n, d = self.opened(subject)[0].data.X.shape
        return Cost(0, 2e-4 * len(units) + 1e-8 * n * d, 24 * n * d)

    def form(self, subject: Subject) -> Form:
        """Return the closed form; units without whom a step learns something else are handed on."""
        inner, moves, owner = self.opened(subject)
        last, K = inner.recipe.library_estimator, len(inner.classes)
        X, M = inner.data.pool()[0], moves.M.astype(np.float64)
        moments = Moments.of(X[: inner.data.n], M[: inner.data.n], inner.label_codes, K)
        fixed = None if last.priors is None else np.log(np.asarray(last.priors, dtype=np.float64))
        still = np.ones(X.shape[1]), np.zeros(X.shape[1])

        def scores(some: Moments, a: Float, g: Float, at: Index) -> Float:
            variance, whole = some.variances(a, g)
            variance = variance + last.var_smoothing * whole.max()
            away = a * (X[at][:, None] - some.mean) + g * (M[at][:, None] - some.held)
            prior = np.log(some.totals) - np.log(some.totals.sum()) if fixed is None else fixed
            return np.asarray(prior - 0.5 * (np.log(2 * np.pi * variance) + away**2 / variance).sum(axis=2))

        def joint(lost: Removal, unit: Index, query: Index) -> Scores:
            full, rest = scores(moments, *still, query), np.full((len(query), K), np.nan)
            sure = np.zeros(len(query), dtype=bool)
            edges = np.searchsorted(unit, np.arange(len(lost.first)))
            for u in range(len(lost.first) - 1):
                parts = lost.parts(u)
                whose = owner[parts[0][1][0]]
                left = moments.totals - np.bincount([c for c, _ in parts], [len(r) for _, r in parts], minlength=K)
                rows = slice(edges[u], edges[u + 1])
                sure[rows] = not moves.otherwise[whose]
                if left.min() > 0 and not moves.otherwise[whose]:
                    rest[rows] = scores(moments.without(parts), moves.a[whose], moves.g[whose], query[rows])
                elif left.min() <= 0:
                    rest[rows], sure[rows] = -np.inf, True  # the class vanishes: there is no model to compare
            return Scores(full, rest, sure)

        return Form(joint, K * X.shape[1])


class CarriedLda(Behind):
    """Leave-one-out for ``LinearDiscriminantAnalysis``: scaled and shifted features give the same answers.

    At full rank, which ``lda`` makes sure of, answers do not change when features are scaled and moved; so they are
    those of the last step alone. Units without whom filled-in values move are handed on.
    """

    name = "lda_carried"
    last = "LinearDiscriminantAnalysis"
    alone = lda.ENGINE
    hands_on = "filled-in values move without them, a first step learns something else, or their leverage is near 1"
    complements = True

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of one factorisation and a few products."""
        return self.alone.cost(self.opened(subject)[0], units, seeds, mode=mode)

    def form(self, subject: Subject) -> Form:
        """Return the closed form of the last step; may raise ``Declined``."""
        inner, moves, owner = self.opened(subject)
        made, kept = self.alone.form(inner), ~(moves.otherwise | moves.g.any(axis=1))

        def joint(lost: Removal, unit: Index, query: Index) -> Scores:
            whose = owner[lost.rows[lost.whole.start[:-1]]]
            found = made.joint(lost, unit, query)
            return Scores(found.full, found.without, found.sure & kept[whose[unit]])

        return Form(joint, made.width, made.normalize, made.undefined)


class CarriedNeighbours(Behind):
    """Leave-one-out for ``KNeighborsClassifier``, uniform weights and Euclidean distances; O(n d) a query.

    Scaling changes who is near, so every distance from a unit's queries is computed anew, as it is without the unit.
    """

    name = "k_nearest_carried"
    last = "KNeighborsClassifier"
    alone = k_nearest.ENGINE
    hands_on = "the distances of their neighbours tie, or a first step learns something else without them"

    def unfit(self, last: Any, inner: Subject) -> str:
        """Return that a unit has too many records; empty if none has."""
        many = max(map(len, inner.data.units)) + last.n_neighbors + 1 > inner.data.n
        return "without somebody there are hardly more records than neighbours" if many else ""

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of two rows of distances a record."""
        n, d = self.opened(subject)[0].data.X.shape
        return Cost(0, 4e-9 * n * d * len(units), 32 * n * d)

    def form(self, subject: Subject) -> Form:
        """Return the closed form; units whose neighbours tie are handed on."""
        inner, moves, owner = self.opened(subject)
        n, K, k = inner.data.n, len(inner.classes), int(inner.recipe.library_estimator.n_neighbors)
        X, M, y = inner.data.pool()[0], moves.M.astype(np.float64), inner.label_codes
        size = float((X**2).sum(axis=1).max())
        rounded = 64 * float(np.finfo(np.float64).eps) * size
        still = np.ones(X.shape[1]), np.zeros(X.shape[1])

        def votes(at: int, a: Float, g: Float, gone: Index) -> tuple[Float, bool]:
            away = a * (X[:n] - X[at])
            if g.any():
                away += g * (M[:n] - M[at])
            square = np.einsum("nd,nd->n", away, away)
            square[gone] = np.inf
            near = np.argpartition(square, k)[: k + 1]
            near = near[np.argsort(square[near], kind="stable")]
            apart = square[near[k]] - square[near[k - 1]]
            share = np.bincount(y[near[:k]], minlength=K) / k
            return share, bool(apart > k_nearest.TIE * (square[near[k]] + 1e-3 * size) + rounded)

        def joint(lost: Removal, unit: Index, query: Index) -> Scores:
            full, rest = np.empty((len(query), K)), np.empty((len(query), K))
            sure, start = np.empty(len(query), dtype=bool), lost.whole.start
            for r, (u, at) in enumerate(zip(unit.tolist(), query.tolist(), strict=True)):
                gone = lost.rows[start[u] : start[u + 1]]
                whose = owner[gone[0]]
                full[r], clear = votes(at, *still, gone[:0])
                rest[r], clear_without = votes(at, moves.a[whose], moves.g[whose], gone)
                sure[r] = clear and clear_without and not moves.otherwise[whose]
            return Scores(np.log(full), np.log(rest), sure)

        return Form(joint, X.shape[0], normalize=False)


BAYES, LDA, NEIGHBOURS = CarriedBayes(), CarriedLda(), CarriedNeighbours()
