"""Small random problems of counting models, and what real refits of the library answer."""

import contextlib
import itertools
import warnings

import numpy as np
from sklearn.base import clone
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB

from privgate.kernel import Case, limits
from privgate.models import ContingencyTable


def labels_and_people(rng, n):
    """Return labels 0, 1, … and whose each record is."""
    K = int(rng.integers(2, 5))
    y = rng.integers(0, K, n) if rng.random() < 0.7 else np.minimum(rng.geometric(0.6, n) - 1, K - 1)
    y = np.unique(np.append(y[:-2], [0, 1]), return_inverse=True)[1]
    person = rng.integers(0, max(2, n // 2), n) if rng.random() < 0.5 else rng.permutation(n)
    return y.astype(np.int64), np.unique(person, return_inverse=True)[1].astype(np.int64)


def prior(rng, K):
    """Return (arguments of the library, settings, arrays)."""
    if rng.random() < 0.5:
        return {}, {"fit_prior": True}, {}
    if rng.random() < 0.5:
        return {"fit_prior": False}, {"fit_prior": False}, {}
    p = rng.dirichlet(np.ones(K))
    return {"class_prior": p}, {"fit_prior": False}, {"log_prior": np.log(p)}


def changes(make, X, y, person, asked=None):
    """Return the largest change of a released log-probability of each person: at own records, or at ``asked``."""
    everybody, largest = make().fit(X, y), np.full(person.max() + 1, np.inf)
    for u in range(len(largest)):
        kept, at = person != u, X[person == u] if asked is None else asked
        if len(np.unique(y[kept])) == len(np.unique(y)):
            with warnings.catch_warnings(), contextlib.suppress(IndexError, ValueError):
                warnings.simplefilter("ignore")
                largest[u] = np.abs(log_p(everybody, at) - log_p(make().fit(X[kept], y[kept]), at)).max()
    return np.nan_to_num(largest, nan=np.inf, posinf=np.inf)


def log_p(model, X):
    return model.predict_log_proba(X) if hasattr(model, "predict_log_proba") else np.log(model.predict_proba(X))


def outside(case, truth):
    """Return (people outside their limits, ratio of high to truth where that is finite)."""
    found = limits(case)
    with np.errstate(all="ignore"):
        ratio = (found.high / truth)[np.isfinite(truth) & (truth > 1e-6)]
    return np.flatnonzero((found.high < truth) | (found.low > truth)), ratio


def judged(family, seed, asked):
    """Return the same of one random problem."""
    make, X, y, person, settings, arrays, questions = FAMILIES[family](seed)
    truth = changes(make, X, y, person, None if asked == "own" else questions)
    return outside(Case(family, asked, settings, arrays), truth)


def categorical(seed):
    """Return (estimator, codes, labels, person, settings, arrays, every accepted question)."""
    rng = np.random.default_rng(seed)
    d, n, bernoulli = int(rng.integers(1, 5)), int(rng.integers(6, 30)), bool(rng.random() < 0.3)
    V = np.full(d, 2) if bernoulli else rng.integers(1, 5, d)
    X = np.column_stack([np.minimum(rng.geometric(rng.uniform(0.2, 0.9), n) - 1, v - 1) for v in V])
    X[rng.integers(0, n, n // 3)] = X[0]
    y, person = labels_and_people(rng, n)
    declared = rng.random() < 0.5 or bernoulli
    sizes = V if declared else X.max(axis=0) + 1
    accepted = sizes if rng.random() < 0.7 else rng.integers(1, sizes + 1)
    alpha = float(10.0 ** rng.uniform(-10, 3)) if rng.random() < 0.5 else float(rng.choice([1e-10, 0.1, 1.0, 5.0]))
    more, settings, arrays = prior(rng, y.max() + 1)
    more |= {"alpha": alpha}

    def make():
        categories = V if declared else None
        return BernoulliNB(binarize=None, **more) if bernoulli else CategoricalNB(min_categories=categories, **more)

    settings |= {"alpha": alpha, "classes": int(y.max()) + 1, "bernoulli": bernoulli}
    arrays |= {"codes": X, "label": y, "person": person, "sizes": sizes, "accepted": accepted}
    arrays |= {"floor": V if declared else np.zeros(d, dtype=np.int64)}
    return make, X, y, person, settings, arrays, np.array(list(itertools.product(*map(range, accepted))))


def gaussian(seed):
    """Return the same with numbers in a box, and many questions of it beside its corners."""
    rng = np.random.default_rng(seed)
    d, n = int(rng.integers(1, 4)), int(rng.integers(6, 40))
    y, person = labels_and_people(rng, n)
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-1, 1, d) + 0.7 * y[:, None]
    if rng.random() < 0.3:
        X += 10.0 ** rng.uniform(0, 6)
    if rng.random() < 0.3:
        X[:, 0] = X[0, 0] if d > 1 else np.round(X[:, 0])  # constant
    if rng.random() < 0.3:
        X = np.round(X)
    X[rng.integers(0, n, n // 3)] = X[0]
    wide = float(10.0 ** rng.uniform(-2, 0.5)) * np.ptp(X, axis=0) + 0.1
    box = np.array([X.min(axis=0) - wide, X.max(axis=0) + wide])
    if rng.random() < 0.2:
        box = np.array([np.median(X, axis=0) - wide, np.median(X, axis=0) + wide])
    smoothing = float(rng.choice([1e-9, 1e-4, 1e-2, 1.0]))
    K = int(y.max()) + 1
    p = rng.dirichlet(np.ones(K)) if rng.random() < 0.3 else None
    settings = {"var_smoothing": smoothing, "classes": K}
    arrays = {"X": X, "label": y, "person": person, "box": box}
    arrays |= {} if p is None else {"log_prior": np.log(p)}
    inside = X[(np.clip(X, *box) == X).all(axis=1)]
    corners = np.array(list(itertools.product(*box.T)))
    asked = np.concatenate([box[0] + (box[1] - box[0]) * rng.random((300, d)), corners, inside])
    return lambda: GaussianNB(priors=p, var_smoothing=smoothing), X, y, person, settings, arrays, asked


def partitions(seed):
    """Return the same for a table."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(6, 30)), int(rng.integers(1, 4))
    X = np.round(rng.normal(size=(n, d)), 1) if rng.random() < 0.5 else rng.integers(0, 3, (n, d)).astype(float)
    y, person = labels_and_people(rng, n)
    alpha = float(10.0 ** rng.uniform(-10, 3))
    asked = np.concatenate([X, rng.uniform(-3, 3, (300, d)), rng.integers(0, 3, (30, d))])
    leaf = np.unique(X, axis=0, return_inverse=True)[1].reshape(-1, 1)
    model, sizes = ContingencyTable(alpha=alpha), np.array([leaf.max() + 2])
    settings = {"alpha": alpha, "classes": int(y.max()) + 1}
    arrays = {"leaf": leaf, "label": y, "person": person, "sizes": sizes}
    return lambda: clone(model), X, y, person, settings, arrays, asked


FAMILIES = {"categorical": categorical, "gaussian": gaussian, "partitions": partitions}
