"""Small random problems of counting models, and what real refits of the library answer."""

import itertools
import warnings

import numpy as np
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, ComplementNB, GaussianNB, MultinomialNB

from privgate.kernel import Case, limits
from privgate.models import ContingencyTable, RandomTrees


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
    everybody, found = make().fit(X, y), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for u in range(person.max() + 1):
            kept = person != u
            if len(np.unique(y[kept])) < len(np.unique(y)):
                found.append(np.inf)
                continue
            at = X[~kept] if asked is None else asked
            try:
                without = make().fit(X[kept], y[kept])
                found.append(np.abs(log_p(everybody, at) - log_p(without, at)).max())
            except (IndexError, ValueError):
                found.append(np.inf)
    return np.nan_to_num(np.array(found), nan=np.inf, posinf=np.inf)


def log_p(model, X):
    if hasattr(model, "predict_log_proba"):
        return model.predict_log_proba(X)
    return np.log(model.predict_proba(X))


def outside(case, truth, *, complete=True):
    """Return (people outside their limits, ratio of high to truth where both are finite)."""
    found = limits(case)
    bad = (found.high < truth) | ((found.low > truth) & complete)
    with np.errstate(all="ignore"):
        ratio = (found.high / truth)[np.isfinite(found.high) & np.isfinite(truth) & (truth > 1e-6)]
    return np.flatnonzero(bad), ratio


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

    def make():
        if bernoulli:
            return BernoulliNB(alpha=alpha, binarize=None, **more)
        return CategoricalNB(alpha=alpha, min_categories=V if declared else None, **more)

    settings |= {"alpha": alpha, "classes": int(y.max()) + 1, "bernoulli": bernoulli}
    arrays |= {"codes": X, "label": y, "person": person, "sizes": sizes, "accepted": accepted}
    arrays |= {"floor": V if declared else np.zeros(d, dtype=np.int64)}
    return make, X, y, person, settings, arrays, np.array(list(itertools.product(*map(range, accepted))))
