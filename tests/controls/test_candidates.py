"""Candidates that are members in disguise, or come from elsewhere: found in every container, honest ones left alone."""

import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from privgate.check.beforehand import _check_candidates
from privgate.controls import strangers
from privgate.errors import MeasurementError
from privgate.run import pool
from privgate.subject.containers import length
from privgate.subject.data import TrainingData

N = 400


def outcomes(data):
    """Return the outcomes for copies and for people of another population."""
    return tuple(p.outcome for p in _check_candidates(data))


def numbers(rng, n=N):
    return rng.normal(size=(n, 6)) * [1, 3, 0.1, 20, 1e4, 1e-3]


def frame(rng, n=N):
    """Ages, money, categories, text and a flag, as registries have them."""
    return pd.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "income": rng.lognormal(10, 1, n).round(2),
            "job": rng.choice([f"job {i}" for i in range(15)], n),
            "city": rng.choice(["Bonn", "Oslo", "Lima", "Kyoto"], n),
            "rate": rng.random(n),
            "code": rng.choice([f"{i:03d}" for i in range(200)], n),
            "flag": rng.integers(0, 2, n),
        }
    )


def counts(rng, n=N):
    return sp.random(n, 300, 0.06, "csr", random_state=int(rng.integers(1 << 30)))


def texts(rng, n=N):
    words = np.array([f"word{i}" for i in range(400)])
    return [" ".join(rng.choice(words, 18)) for _ in range(n)]


MAKERS = {"numbers": numbers, "frame": frame, "sparse": counts, "texts": texts}


def noisy(X, rng):
    """A ten-thousandth of noise on every fraction; texts in capitals and with other spaces."""
    if hasattr(X, "iloc"):
        return X.assign(**{c: X[c] * (1 + 1e-4 * rng.random(len(X))) for c in X.columns if X[c].dtype.kind == "f"})
    if isinstance(X, list):
        return [f" {t.upper()}. ".replace(" ", "  ") for t in X]
    out = X.copy()
    values = out.data if hasattr(X, "tocsr") else out
    values[...] = values * (1 + 1e-4 * rng.standard_normal(values.shape))
    return out


def single(X, rng):
    del rng
    if hasattr(X, "iloc"):
        return X.astype(dict.fromkeys(X.select_dtypes("float").columns, "float32"))
    return X.astype(np.float32) if hasattr(X, "astype") else [f"{t} " for t in X]


def changed(X, rng):
    """One column, or one word, replaced; rows shuffled."""
    order = rng.permutation(N)
    if hasattr(X, "iloc"):
        return X.assign(flag=1 - X["flag"], age=X["age"].sample(frac=1, random_state=0).to_numpy()).iloc[order]
    if isinstance(X, list):
        return [f"other {' '.join(X[i].split()[1:])}" for i in order]
    out = X.tolil() if hasattr(X, "tocsr") else X.copy()
    out[:, 0] = 1.0
    return (out.tocsr() if hasattr(X, "tocsr") else out)[order]


def data(X, candidates, rng, y=None, **options):
    options = options or {"one_record_each": True}
    labels = rng.integers(0, 2, length(X)) if y is None else y
    return TrainingData(X, labels, candidates=(candidates, rng.integers(0, 2, length(candidates))), **options)


@pytest.mark.quick(8)
@pytest.mark.parametrize("disguise", [single, noisy, changed], ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", MAKERS)
def test_members_in_disguise_are_found_in_every_container(kind, disguise):
    rng = np.random.default_rng(3)
    X = MAKERS[kind](rng)
    found = data(X, disguise(X, rng), rng)

    with pytest.raises(MeasurementError, match=r"nearly equal a training record|too few|same population"):
        pool.build_pool(found)
    assert "warned" in outcomes(found)


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", MAKERS)
def test_honest_candidates_are_left_alone(kind):
    for k in range(2):
        rng = np.random.default_rng([8, k])
        honest = data(MAKERS[kind](rng), MAKERS[kind](rng), rng)
        p = pool.build_pool(honest)

        assert p.copies == 0
        assert not p.shift().significant
        assert outcomes(honest) == ("passed",) * 2


def test_copies_among_candidates_with_names_are_listed():
    X, y = np.random.default_rng(5).normal(size=(60, 3)), np.arange(60) % 2
    found = TrainingData(X[:40], y[:40], groups=np.arange(40), candidates=(X[35:], y[35:], np.arange(50, 75)))
    assert strangers.list_copies(found).tolist() == [0, 1, 2, 3, 4]


def test_honest_sparse_candidates_of_another_month_are_no_members_stored_once_more():
    """Everybody fills the columns of two zones and the distance: which are filled tells nobody, their values do."""
    rng = np.random.default_rng(4)

    def month(n):
        pair, far = rng.integers(0, 60, n), rng.exponential(4.0, n).round(4)
        return sp.csr_matrix((np.append(np.ones(n), far), (np.tile(np.arange(n), 2), np.append(pair, np.full(n, 60)))))

    X, others = month(N), month(N)
    twins_ = sp.csr_matrix((X.data.astype(np.float32), X.indices, X.indptr), X.shape)

    assert pool.build_pool(data(X, others, rng)).copies == 0
    assert pool.built(data(X, twins_, rng)).refusal.endswith("give other candidates")


def test_a_few_members_among_the_candidates_are_charged():
    rng = np.random.default_rng(0)
    X, Z = numbers(rng), numbers(rng)
    Z[:12] = X[:12].astype(np.float32)
    some = data(X, Z, rng)
    p = pool.build_pool(some)

    assert 12 / N <= p.copies <= 20 / N
    assert p.trial.all()  # thinned on one side, rare people would remain there
    assert "than chance explains" in _check_candidates(some)[0].message


@pytest.mark.parametrize("k", [3, 7])
def test_how_many_were_compared_does_not_tell_how_many_were_left_out_on_both_sides(k):
    rng = np.random.default_rng(0)
    X, Z = numbers(rng, 60), numbers(rng, 40)
    Z[:k] = X[:k]
    y = rng.integers(0, 2, 60)
    candidates = (Z, np.append(y[:k], rng.integers(0, 2, 40 - k)))
    found = _check_candidates(TrainingData(X, y, candidates=candidates, one_record_each=True))[1]

    # 100 - 2k were compared, and any share of them in full digits names their number
    assert set(re.findall(r"\d+", found.message)) <= {"0", "5", f"{100 * found.detail['auc']:02.0f}"}
    assert all(v == round(v, 2) for v in found.detail.values())


def test_another_record_of_a_member_is_a_twin_and_ones_own_other_records_are_not():
    rng = np.random.default_rng(6)
    X = np.repeat(numbers(rng, N // 2), 2, axis=0) * (1 + 1e-4 * rng.standard_normal((N, 6)))
    groups = np.arange(N) // 2
    honest = data(X, numbers(rng), rng, groups=groups)
    same = data(X, X[rng.permutation(N)] * (1 + 1e-4 * rng.standard_normal((N, 6))), rng, groups=groups)

    assert not pool.built(honest).copied
    assert pool.built(same).copied


def between(X, rng):
    """Half way to the nearest other member."""
    far = np.linalg.norm((X[:, None] - X[None]) / X.std(axis=0), axis=2) + np.diag([np.inf] * len(X))
    return (X + X[far.argmin(axis=1)]) / 2


def elsewhere(X, rng):
    return numbers(rng) + np.array([0, 0, 0, 20.0, 0, 0])


FROM_MEMBERS = r"made from members, or picked beside them|nearly equal"
MOVED = {
    "another place": (elsewhere, False, "same population"),
    "one class": (lambda X, rng: numbers(rng), True, "same population"),
    "a fifth": (lambda X, rng: X + 0.2 * X.std(axis=0) * rng.normal(size=X.shape), False, FROM_MEMBERS),
    "a third": (lambda X, rng: X + 0.3 * X.std(axis=0) * rng.normal(size=X.shape), False, FROM_MEMBERS),
    "between": (between, False, "repeat one another"),  # of two members each, so that two are equal
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("kind", MOVED)
def test_what_moves_candidates_without_the_model_is_seen(kind):
    make, one_class, words = MOVED[kind]
    rng = np.random.default_rng(11)
    X, y = numbers(rng), rng.integers(0, 2, N)
    moved = TrainingData(X, y, candidates=(make(X, rng), np.ones(N, int) if one_class else y), one_record_each=True)

    assert "warned" in outcomes(moved)
    with pytest.raises(MeasurementError, match=words):
        pool.build_pool(moved)


@pytest.mark.quick
@pytest.mark.parametrize("n", [60, 100, 400])
@pytest.mark.parametrize("copy", [lambda v: v, lambda v: v.astype(np.float32)], ids=["exact", "nearly"])
def test_members_hidden_among_few_candidates_count_as_found(n, copy):
    rng = np.random.default_rng(12)
    X, Z = numbers(rng, n), numbers(rng, n)
    Z[:15] = copy(X[:15])
    p = pool.built(data(X, Z, rng))

    # labels differ for half of them: exact copies of features with another label are near ones
    assert p.copies >= 15 / n or p.refusal


def test_ten_candidates_are_too_few_and_nothing_ends_as_a_bug():
    rng = np.random.default_rng(2)
    few = data(numbers(rng), numbers(rng, 10), rng)

    assert pool.built(few).shift() is None
    assert outcomes(few) == ("passed", "warned")
    with pytest.raises(MeasurementError, match="too few"):
        pool.build_pool(few)


def test_a_double_among_few_candidates_is_charged_and_ends_nothing():
    rng = np.random.default_rng(7)
    Z, y = numbers(rng, 60), rng.integers(0, 2, 60)
    Z[1], y[1] = Z[0], y[0]
    X = numbers(rng, 4000)
    p = pool.build_pool(TrainingData(X, rng.integers(0, 2, 4000), candidates=(Z, y), one_record_each=True))

    assert p.copies == 1 / 60


def test_copies_are_a_share_of_people_however_many_records_somebody_has():
    rng = np.random.default_rng(9)
    X, Z, y = numbers(rng), numbers(rng), rng.integers(0, 2, N)
    people, more = np.arange(N, 2 * N), np.full(9 * N, 2 * N - 1)
    Z[:12] = X[:12]
    outside = (np.concatenate([Z, numbers(rng, 9 * N)]), np.resize(y, 10 * N), np.append(people, more))

    assert pool.built(TrainingData(X, y, groups=np.arange(N), candidates=outside)).copies >= 12 / N


def test_candidates_of_other_labels_are_seen_where_nobody_is_alone():
    zero, y = np.zeros((N, 2)), np.arange(N) % 2
    coarse = TrainingData(zero, y, candidates=(zero, y * 0), one_record_each=True)
    with pytest.raises(MeasurementError, match="same population"):
        pool.build_pool(coarse)
    with pytest.raises(MeasurementError, match="alone with their records"):  # a few alone would judge nobody else
        _ = pool.built(coarse).alone
