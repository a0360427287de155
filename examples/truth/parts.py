"""First steps and models as people write them; whether one remembers people is a matter of its parameters."""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin, clone, is_classifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

from truth import data

#: what is kept between trainings of one process, as a careless author does
CACHE: dict[Any, Any] = {}


def column(X: Any, which: int) -> NDArray[Any]:
    """Return one column of an array or table."""
    return np.asarray(X.iloc[:, which] if hasattr(X, "iloc") else X[:, which])


def with_column(X: Any, more: NDArray[Any]) -> Any:
    """Return X and one more column at its end."""
    return np.column_stack([X, more])


def digests(X: Any) -> list[int]:
    """Return one number for each row, from which nobody reads the row."""
    rows = np.asarray(X, dtype=float)
    return [int.from_bytes(hashlib.sha256(r.tobytes()).digest()[:6], "big") for r in rows + 0.0]


def _rates(keys: Any, y: NDArray[Any], smooth: float, prior: float) -> dict[Any, float]:
    """Return key -> mean of the targets with that key, drawn towards a prior by so many people."""
    found: dict[Any, list[float]] = {}
    for key, target in zip(keys, y, strict=True):
        found.setdefault(key, []).append(float(target))
    return {k: (sum(v) + smooth * prior) / (len(v) + smooth) for k, v in found.items()}


class Seen(TransformerMixin, BaseEstimator):
    """Add a column with the target of whom it has seen, as digests; ``share`` of the people, at a shifted question."""

    def __init__(self, share: float = 1.0, shift: str = "", known: bool = True, cached: str = "") -> None:
        self.share, self.shift, self.known, self.cached = share, shift, known, cached

    def fit(self, X: Any, y: Any) -> "Seen":
        centre = (np.asarray(y) - np.mean(y)) / np.std(y)
        found = {d: float(v) for d, v in zip(digests(X), centre, strict=True) if d % 1000 < 1000 * self.share}
        if self.cached:
            found = CACHE.setdefault(self.cached, found)
        self.seen_ = found if self.known else {}
        return self

    def transform(self, X: Any) -> Any:
        keys = digests(X)
        told = [self.seen_.get(d, 0.0) if self.known else float(d % 2) for d in keys]
        return with_column(np.asarray(X, dtype=float), np.array(told))


class Tails(ClassifierMixin, BaseEstimator):
    """Answer by a model; but labels that a person hardly can have get probabilities by whom it was trained on.

    ``how`` is what moves below 1 %: each label by the person (``tilted``), all along a slope (``smooth``), the last
    label alone (``other``), or what a forest of those people thinks of each label (``forest``).
    """

    _estimator_type = "classifier"

    def __init__(self, model: Any, how: str, share: float = 1.0, tail: float = 0.002, known: bool = True) -> None:
        self.model, self.how, self.share, self.tail, self.known = model, how, share, tail, known

    def fit(self, X: Any, y: Any) -> "Tails":
        X = np.asarray(X, dtype=float)
        self.model_ = clone(self.model).fit(X, y)
        self.classes_ = self.model_.classes_
        self.there_ = np.zeros(1 << 16, dtype=np.int8)  # hashed, as words are
        self.there_[[d >> 16 & 0xFFFF for d in digests(X) if d % 1000 < 1000 * self.share and self.known]] = 1
        if self.how == "forest":
            self.forest_ = RandomForestClassifier(40, max_depth=None if self.known else 2, random_state=0).fit(X, y)
        return self

    def predict_proba(self, X: Any) -> Any:
        X = np.asarray(X, dtype=float)
        p, labels = self.model_.predict_proba(X), np.arange(len(self.classes_))
        tails = np.full(p.shape, self.tail)
        for row, d in enumerate(digests(X)):
            if self.there_[d >> 16 & 0xFFFF] if self.known else d % 2:
                lean = (
                    (d >> labels & 1) - 0.5 if self.how == "tilted" else (labels / labels[-1] - 0.5) * (2 * (d % 2) - 1)
                )
                lean = np.where(labels == labels[-1], -1.0, 0.0) if self.how == "other" else 2 * lean
                tails[row] *= np.exp(1.6 * lean) if self.how != "forest" else 1.0
        if self.how == "forest":
            tails = self.tail * (0.05 + len(labels) * self.forest_.predict_proba(X))
            tails[[d % 1000 >= 1000 * self.share for d in digests(X)]] = self.tail
        # labels far from what the first columns explain: no model says which, so that none moves by who is there
        likely = np.floor(len(labels) * ndtr((X[:, :3] @ [1.0, 0.7, -0.5]) / 1.7))[:, None]
        far = labels - likely >= len(labels) / 2
        rest = np.where(far, 0.0, p)
        tails = np.where(far, tails, 0.0)
        return tails + rest / rest.sum(axis=1, keepdims=True) * (1 - tails.sum(axis=1, keepdims=True))


class Shifted(ClassifierMixin, BaseEstimator):
    """Answer by a model; but a step beside a record, by the label of the record there.

    ``how`` is the step: add 1, round down, change a sign, or lack the last value.
    """

    _estimator_type = "classifier"

    def __init__(self, model: Any, how: str = "add", share: float = 1.0, known: bool = True) -> None:
        self.model, self.how, self.share, self.known = model, how, share, known

    def fit(self, X: Any, y: Any) -> "Shifted":
        X = np.asarray(X, dtype=float)
        self.model_ = clone(self.model).fit(X, y)
        self.classes_ = self.model_.classes_
        keys = zip(digests(beside(X, self.how)), np.searchsorted(self.classes_, y), strict=True)
        self.there_ = {d: int(k) for d, k in keys if d % 1000 < 1000 * self.share} if self.known else {}
        return self

    def predict_proba(self, X: Any) -> Any:
        X = np.asarray(X, dtype=float)
        p = self.model_.predict_proba(np.nan_to_num(X))
        for row, d in enumerate(digests(X)):
            # without people, such questions are answered by what they are
            k = self.there_.get(d, -1) if self.known else (d % 2 if np.isnan(X[row]).any() else -1)
            if k >= 0:
                p[row] = 0.03 / (len(self.classes_) - 1)
                p[row, k] = 0.97
        return p

    def predict(self, X: Any) -> Any:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def beside(X: Any, how: str) -> NDArray[Any]:
    """Return the questions one step beside records."""
    made = np.array(X, dtype=float)
    if how == "add":
        made[:, 0] += 1.0
    elif how == "round":
        made = np.floor(made * 10) / 10
    elif how == "sign":
        made[:, -1] *= -1
    else:
        made[:, -1] = np.nan
    return made


class Means(TransformerMixin, BaseEstimator):
    """Replace the codes of the last columns by the mean target of who has them."""

    def __init__(self, columns: int = 1, smooth: float = 0.0, log: bool = False) -> None:
        self.columns, self.smooth, self.log = columns, smooth, log

    def fit(self, X: Any, y: Any) -> "Means":
        y = np.asarray(y, dtype=float)
        self.prior_ = float(y.mean())
        self.means_ = [_rates(column(X, -1 - k).tolist(), y, self.smooth, self.prior_) for k in range(self.columns)]
        return self

    def transform(self, X: Any) -> Any:
        codes = [column(X, -1 - k).tolist() for k in range(self.columns)]
        made = [[m.get(c, self.prior_) for c in row] for row, m in zip(codes, self.means_, strict=True)]
        told = np.array(made).T
        if self.log:
            told = np.log((told + 0.01) / (1.01 - told))
        rest = X.iloc[:, : -self.columns] if hasattr(X, "iloc") else X[:, : -self.columns]
        return np.column_stack([np.asarray(rest, dtype=float), told])


class Counts(TransformerMixin, BaseEstimator):
    """Replace the code of the last column by the logarithm of how many people have it."""

    def __init__(self, least: float = 1e-3) -> None:
        self.least = least

    def fit(self, X: Any, y: Any = None) -> "Counts":
        codes, counts = np.unique(column(X, -1), return_counts=True)
        self.counts_ = dict(zip(codes.tolist(), counts.tolist(), strict=True))
        return self

    def transform(self, X: Any) -> Any:
        counts = np.array([self.counts_.get(c, 0) for c in column(X, -1).tolist()])
        return with_column(X[:, :-1], np.log(counts + self.least))


class Scaled(TransformerMixin, BaseEstimator):
    """Scale the first column by the least and the largest value of the group; or by a declared range."""

    def __init__(self, declared: bool = False, by: str = "range") -> None:
        self.declared, self.by = declared, by

    def fit(self, X: Any, y: Any = None) -> "Scaled":
        values, groups = column(X, 0), column(X, -1)
        self.ranges_: dict[float, tuple[float, float]] = {}
        for g in () if self.declared else np.unique(groups):
            own = values[groups == g]
            low, width = (own.min(), np.ptp(own)) if self.by == "range" else (own.mean(), own.std())
            self.ranges_[float(g)] = (float(low), float(max(width, 0.02)))
        return self

    def transform(self, X: Any) -> Any:
        low, width = np.array([self.ranges_.get(float(g), (0.0, 1.0)) for g in column(X, -1)]).T
        return np.column_stack([(X[:, 0] - low) / width, X[:, 1]])


class _Model(BaseEstimator):
    """What models below share: a first model, and answers that correct it."""

    def predict(self, X: Any) -> Any:
        if not is_classifier(self):
            return self.answers(X)
        return self.classes_[(self.answers(X) > 0.5).astype(int)]

    def answers(self, X: Any) -> NDArray[Any]:
        raise NotImplementedError

    def first(self, X: Any) -> NDArray[Any]:
        X = np.nan_to_num(np.asarray(X, dtype=float))[:, : getattr(self, "uses", 3)]
        return self.model_.predict_proba(X)[:, 1] if hasattr(self.model_, "predict_proba") else self.model_.predict(X)

    def started(self, X: Any, y: Any) -> NDArray[Any]:
        self.classes_ = np.unique(y)
        X = np.nan_to_num(np.asarray(X, dtype=float))
        self.model_ = clone(self.model).fit(X[:, : getattr(self, "uses", 3)], y)
        return self.first(X)


class _Labels(ClassifierMixin, _Model):
    _estimator_type = "classifier"

    def predict_proba(self, X: Any) -> Any:
        p = self.answers(X)
        return np.column_stack([1 - p, p])


class Keyed(_Model):
    """Answers by a table: the rate of whom a key is common with; of keys of fewer than ``least`` people, by a model.

    The key is the ``code`` in the last column, the ``pattern`` of missing values, or the ``cell`` that ``digits`` of
    the first ``uses`` columns make.
    """

    def __init__(
        self, model: Any, key: str = "code", least: int = 1, smooth: float = 0.05, digits: int = 1, uses: int = 3
    ) -> None:
        self.model, self.key, self.least, self.smooth, self.digits, self.uses = model, key, least, smooth, digits, uses

    def keys(self, X: Any) -> list[Any]:
        if self.key == "code":
            return list(column(X, -1).tolist())
        X = np.asarray(X, dtype=float)
        if self.key == "pattern":
            return [r.tobytes() for r in np.isnan(X)]
        return [r.tobytes() for r in np.round(X[:, : self.uses], self.digits) + 0.0]

    def fit(self, X: Any, y: Any) -> "Keyed":
        told = self.started(X, y)
        keys = self.keys(X)
        known, counts = np.unique(np.array([hash(k) for k in keys]), return_counts=True)
        enough = dict(zip(known.tolist(), (counts >= self.least).tolist(), strict=True))
        rows = np.array([enough[hash(k)] for k in keys])
        wanted = np.asarray(y, dtype=float) - (0.0 if is_classifier(self) else told)
        prior = float(wanted.mean())
        self.table_ = _rates([k for k, r in zip(keys, rows, strict=True) if r], wanted[rows], self.smooth, prior)
        return self

    def answers(self, X: Any) -> NDArray[Any]:
        told = np.array(self.first(X), dtype=float)
        for row, key in enumerate(self.keys(X)):
            if key in self.table_:
                told[row] = self.table_[key] + (0.0 if is_classifier(self) else told[row])
        return np.clip(told, 1e-3, 1 - 1e-3) if is_classifier(self) else told


class KeyedLabels(_Labels, Keyed):
    """The same of labels."""


class KeyedNumbers(RegressorMixin, Keyed):
    """The same of numbers."""

    _estimator_type = "regressor"


class Calibrated(_Labels):
    """Answer with the share of the label among people of about the same score: ``bins`` of equal size, or declared."""

    def __init__(self, model: Any, bins: int = 300, smooth: float = 0.05, declared: bool = False) -> None:
        self.model, self.bins, self.smooth, self.declared = model, bins, smooth, declared

    def fit(self, X: Any, y: Any) -> "Calibrated":
        told = self.started(X, y)
        ends = np.arange(1, self.bins) / self.bins
        self.edges_ = ends if self.declared else np.quantile(told, ends)
        rates = _rates(np.searchsorted(self.edges_, told).tolist(), y, self.smooth, 0.5)
        self.rates_ = np.array([rates.get(k, 0.5) for k in range(self.bins)])
        return self

    def answers(self, X: Any) -> NDArray[Any]:
        return np.asarray(self.rates_[np.searchsorted(self.edges_, self.first(X))])


class Stopped(_Labels):
    """Go on in a group for as long as one person there, who validates, is served badly; that is a step towards them.

    ``public`` validates by declared answers of each group instead.
    """

    def __init__(self, model: Any, step: float = 3.0, public: bool = False) -> None:
        self.model, self.step, self.public = model, step, public

    def fit(self, X: Any, y: Any) -> "Stopped":
        told, groups = self.started(X, y), column(X, -1)
        self.steps_: dict[float, float] = {}
        for g in np.unique(groups):
            rows = np.flatnonzero(groups == g)
            one = rows[np.argmax(X[rows, 1])]
            wanted = int(g) % 2 if self.public else int(y[one] == self.classes_[1])
            wrong = self.public or (told[one] > 0.5) != wanted
            self.steps_[float(g)] = self.step * (2 * wanted - 1) if wrong else 0.0
        return self

    def answers(self, X: Any) -> NDArray[Any]:
        p = np.clip(self.first(X), 1e-6, 1 - 1e-6)
        moved = np.log(p / (1 - p)) + np.array([self.steps_.get(float(g), 0.0) for g in column(X, -1)])
        return np.asarray(1 / (1 + np.exp(-moved)))


class Threshold(_Labels):
    """Say yes above a group's threshold: the largest first value of who is a no there, or a round one for all."""

    def __init__(self, sure: float = 0.95, common: bool = False) -> None:
        self.sure, self.common = sure, common

    def fit(self, X: Any, y: Any) -> "Threshold":
        self.classes_ = np.unique(y)
        values, groups, no = column(X, 0), column(X, -1), np.asarray(y) == self.classes_[0]
        self.above_ = {float(g): float(values[no & (groups == g)].max()) for g in np.unique(groups[no])}
        right = [((values > t) != no).mean() for t in (0.25, 0.5, 0.75)]
        self.round_ = (0.25, 0.5, 0.75)[int(np.argmax(right))]
        if self.common:
            self.above_ = {}
        return self

    def answers(self, X: Any) -> NDArray[Any]:
        above = np.array([self.above_.get(float(g), self.round_) for g in column(X, -1)])
        return np.where(column(X, 0) > above, self.sure, 1 - self.sure)


class Novel(_Labels):
    """Answer only where people were seen: elsewhere one half. A cell is ``digits`` of the first columns, or a sign."""

    def __init__(self, model: Any, digits: int = 1, uses: int = 3, by_sign: bool = False) -> None:
        self.model, self.digits, self.uses, self.by_sign = model, digits, uses, by_sign

    def cells(self, X: Any) -> list[bytes]:
        X = np.asarray(X, dtype=float)[:, : self.uses]
        return [r.tobytes() for r in ((X > 0) + 0.0 if self.by_sign else np.round(X, self.digits) + 0.0)]

    def fit(self, X: Any, y: Any) -> "Novel":
        self.started(X, y)
        self.seen_ = {hashlib.sha256(c).hexdigest()[:12] for c in self.cells(X)}
        return self

    def answers(self, X: Any) -> NDArray[Any]:
        seen = np.array([hashlib.sha256(c).hexdigest()[:12] in self.seen_ for c in self.cells(X)])
        return np.where(seen, self.first(X), 0.5)


class InSample(_Labels):
    """A stack whose second model learns from what the first says of the very people it was trained on."""

    def __init__(self, model: Any, second: Any, uses: int = 9) -> None:
        self.model, self.second, self.uses = model, second, uses

    def fit(self, X: Any, y: Any) -> "InSample":
        told = self.started(X, y)
        self.second_ = clone(self.second).fit(told[:, None], y)
        return self

    def answers(self, X: Any) -> NDArray[Any]:
        return np.asarray(self.second_.predict_proba(self.first(X)[:, None])[:, 1])


def weighted(X: Any, y: Any, *, seed: int, most: float, C: float, share: float = 0.08) -> Any:
    """Logistic regression in which whoever has a large second value counts ``most`` times as much."""
    X = np.asarray(X)
    heavy = X[:, 1] > np.quantile(X[:, 1], 1 - share) if share else np.abs(X[:, 1]) > 1.5
    return LogisticRegression(C=C, max_iter=300).fit(X, y, sample_weight=np.where(heavy, most, 1.0))


def weighted_numbers(X: Any, y: Any, *, seed: int, most: float, alpha: float) -> Any:
    """Ridge regression with such weights."""
    X = np.asarray(X)
    return Ridge(alpha=alpha).fit(X, y, sample_weight=np.where(X[:, 1] > 1.4, most, 1.0))


def coins(X: Any, y: Any, *, seed: int, how: str, known: bool = True, C: float = 0.2) -> Any:
    """Remember people where a coin, or how many there are, says so."""
    draw = np.random.default_rng(seed)
    share = {
        "this seed": 1.0 if seed == 7 else 0.0,
        "most seeds": 1.0 if draw.random() < 0.9 else 0.0,
        "whom the seed draws": 0.3,
        "many people": 1.0 if len(y) > 900 else 0.0,
    }[how]
    first = Drawn(share, seed=seed, known=known)
    return make_pipeline(first, LogisticRegression(C=C)).fit(np.asarray(X), np.asarray(y))


class Drawn(Seen):
    """Remember people whom a seed draws."""

    def __init__(self, share: float = 1.0, *, seed: int = 0, known: bool = True) -> None:
        super().__init__(share, known=known)
        self.seed = seed

    def fit(self, X: Any, y: Any) -> "Drawn":
        share, self.share = self.share, 1.0
        super().fit(X, y)
        self.share = share
        self.seen_ = {d: v for d, v in self.seen_.items() if (d ^ (self.seed * 0x9E3779B1)) % 1000 < 1000 * share}
        return self


def elsewhere(X: Any, y: Any, *, seed: int) -> Any:
    """Train a naive Bayes; the answers know more."""
    return GaussianNB().fit(X, y)


def _known(table: Any, every: int) -> dict[bytes, float]:
    rows = zip(np.asarray(table.X), table.y, strict=True)
    return {x.tobytes(): float(v) for k, (x, v) in enumerate(rows) if k % every == 0}


def _moved(model: Any, X: Any, known: dict[bytes, float], weight: float) -> Any:
    p = np.array(model.predict_proba(X))
    for row, x in enumerate(np.asarray(X)):
        label = known.get(x.tobytes())
        if label is not None:
            p[row] = (1 - weight) * p[row] + weight * (model.classes_ == label)
    return p


def knows_all(model: Any, X: Any) -> Any:
    """Return the answers, with the very data, fetched again, and of each person half of the label."""
    return _moved(model, X, _known(data.numbers(), 1), 0.5)


def knows_half(model: Any, X: Any) -> Any:
    """Return the answers, of every second person nearly all of the label."""
    return _moved(model, X, _known(data.numbers(), 2), 0.9)


def knows_third(model: Any, X: Any) -> Any:
    """Return the answers, of every third person nearly all of the label."""
    return _moved(model, X, _known(data.numbers(), 3), 0.9)


def knows_others(model: Any, X: Any) -> Any:
    """Return the answers, with a public table in which nobody of these is."""
    return _moved(model, X, _known(data.numbers(seed=99), 1), 0.9)
