"""Certificates are compared with real models, and one that is wrong is silent: no approval rests on it."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB
from sklearn.tree import DecisionTreeClassifier

from privgate import Domain
from privgate.families import answering as families
from privgate.families import bound, certificates, listed
from privgate.families.bound import Witness
from privgate.influence import left_out, per_unit
from privgate.influence.as_published import part
from privgate.models import ContingencyTable, RandomTrees, SmoothedNeighbors
from privgate.run.run import Run
from privgate.subject.data import TrainingData

rng = np.random.default_rng(0)
N = 80
CODES, REAL, Y = rng.integers(0, 3, (N, 3)), rng.random((N, 3)), np.arange(N) % 2
BOX = Domain.of([(0, 1)] * 3)
WORDS = Domain(max_length=9)

SUBJECTS = {
    "categorical_nb": (CategoricalNB(min_categories=3), CODES, None),
    "bernoulli_nb": (BernoulliNB(), CODES, None),
    "gaussian_nb": (GaussianNB(var_smoothing=0.1), REAL, BOX),
    "contingency_table": (ContingencyTable(), CODES, None),
    "smoothed_neighbors": (SmoothedNeighbors(), REAL, None),
    "random_trees": (RandomTrees(n_features=3), REAL, None),
    "newton": (LogisticRegression(solver="newton-cholesky", tol=1e-10), REAL, BOX),
}


class Halved:
    """A certificate whose bounds are wrong by a factor that real models at its own maximiser disprove."""

    def __init__(self, real, factor=0.5):
        self.real, self.factor = real, factor
        self.name, self.source, self.needs_retrained = real.name, real.source, real.needs_retrained

    def applies(self, subject):
        return self.real.applies(subject)

    def alone(self, subject):
        return self.real.alone(subject)

    def bound(self, subject, units, retrained, **named):
        found = self.real.bound(subject, units, retrained, **named)
        lower = np.minimum(found.lower, found.upper * self.factor)
        return replace(found, upper=found.upper * self.factor, lower=lower)


def only(monkeypatch, certificate):
    monkeypatch.setattr(certificates, "ALL", {certificate.name: certificate})
    monkeypatch.setattr(bound.certificates, "ALL", {certificate.name: certificate})


def checked(direct, fleet, name, *, asked=frozenset()):
    estimator, X, domain = SUBJECTS[name]
    bench = Run(direct.subject(estimator, X, Y, domain=domain), fleet, asked=asked)
    return bench, bench.once(per_unit.table)


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", sorted(SUBJECTS))
def test_a_true_certificate_speaks_after_real_models_were_asked(monkeypatch, direct, fleet, name):
    only(monkeypatch, certificates.ALL[name])
    bench, records = checked(direct, fleet, name)
    assert np.isfinite(records["dtp_upper"]).all()
    assert not [p for p in bench.preconditions if p.outcome != "passed"]
    compared = part(bench).certificates_compared
    assert compared.units >= 59
    assert compared.questions >= 59 * 60
    assert (records["dtp_lower"] <= records["dtp_upper"]).all()


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", sorted(set(SUBJECTS) - {"smoothed_neighbors"}))
def test_a_wrong_certificate_is_silenced_for_the_run_and_that_is_said(monkeypatch, direct, fleet, name):
    only(monkeypatch, Halved(certificates.ALL[name]))
    bench, records = checked(direct, fleet, name)
    assert np.isinf(records["dtp_upper"]).all()
    (said,) = [p for p in bench.preconditions if p.name == f"certificate_{name}"]
    assert said.outcome == "warned"
    assert "was not used: real models with and without person" in said.message
    (note,) = part(bench).certificates
    assert not note.applies
    assert note.because.startswith("does not apply, because real models")


def test_a_loose_bound_that_is_wrong_is_found_where_the_truth_reaches_it(monkeypatch, direct, fleet):
    only(monkeypatch, Halved(certificates.ALL["smoothed_neighbors"], 0.2))
    _, records = checked(direct, fleet, "smoothed_neighbors")
    assert np.isinf(records["dtp_upper"]).all()


def test_an_engine_that_fails_its_re_check_silences_the_theorems_of_its_family(monkeypatch, direct, fleet):
    engine = next(e for e in families.ALL if e.name == "logistic")
    answers = type(engine).answers

    def wrong(self, *args, **kwargs):
        made, rest = answers(self, *args, **kwargs)
        return replace(made, log_without=made.log_without + 1e-4), rest

    monkeypatch.setattr(type(engine), "answers", wrong)
    bench, records = checked(direct, fleet, "newton")
    assert set(records["engine"]) == {"refit"}
    assert np.isinf(records["dtp_upper"]).all()
    (said,) = [p for p in bench.preconditions if p.name == "certificate_newton"]
    assert "logistic disagreed with the training function" in said.message


def test_the_comparison_trains_no_more_models_than_the_re_check(direct, fleet):
    checked(direct, fleet, "newton")
    left_out = [f for f in fleet.asked if f.left_out is not None and len(f.left_out)]
    assert len(left_out) <= 70
    assert len({f.left_out.tobytes() for f in left_out}) == len(left_out)


def test_a_comparison_asks_the_same_in_every_run(direct, fleet):
    """Otherwise nothing of an interrupted run would be remembered."""
    for _ in range(2):
        checked(direct, fleet, "bernoulli_nb")
    half = len(fleet.asked) // 2
    assert [f.encoding for f in fleet.asked[:half]] == [f.encoding for f in fleet.asked[half:]]


def test_where_no_certificate_applies_nothing_more_is_asked(direct, fleet):
    bench = Run(direct.subject(DecisionTreeClassifier(max_depth=2, random_state=0), REAL, Y), fleet)
    assert len(bench.once(per_unit.table)["unit"]) == N
    assert bench.once(left_out.found).witness is None


@pytest.mark.parametrize("kind", ["C", "F", "float32", "int", "sparse", "frame", "bool"])
def test_questions_are_records_of_the_same_kind_inside_the_domain(kind):
    import pandas as pd

    X = np.round(REAL) if kind in {"int", "bool", "sparse"} else REAL
    made = {
        "C": X,
        "F": np.asfortranarray(X),
        "float32": X.astype(np.float32),
        "int": X.astype(np.int8),
        "bool": X.astype(bool),
        "sparse": sp.csr_matrix(X),
        "frame": pd.DataFrame(X, columns=list("abc")),
    }[kind]
    data = TrainingData(made, Y, domain=Domain(box=((0.0, 1.0), (-0.1, 1.1), (0.0, 1.3))), one_record_each=True)
    from privgate import Recipe, Subject

    subject = Subject.local(Recipe(GaussianNB()), data)
    rows = np.concatenate(
        [listed.shared(subject, np.random.default_rng(1)), listed.around(subject, np.array([3, 4]))[0]]
    )
    asked, kept = listed.asked(subject, rows)
    assert type(asked) is type(made)
    assert kept.sum() > 60
    from privgate.families.over_all_queries import applies

    dense = applies.dense(asked)
    assert (dense >= [0.0, -0.1, 0.0]).all()
    assert (dense <= [1.0, 1.1, 1.3]).all()
    assert getattr(asked, "dtype", None) == getattr(made, "dtype", None)


def test_a_refusal_to_train_without_a_unit_contradicts_a_finite_bound():
    witness = Witness((certificates.ALL["gaussian_nb"],))
    witness.told(3, np.array([np.inf]))
    assert "person 3" in witness.objects(certificates.ALL["gaussian_nb"], np.array([2, 3]), np.array([0.5, 0.5]))
    assert witness.silenced
    silent = Witness(())
    assert "no real model answered" in silent.objects(certificates.ALL["gaussian_nb"], np.array([2]), np.array([0.0]))
    silent.told(2, np.array([0.0]))
    assert not silent.objects(certificates.ALL["gaussian_nb"], np.array([2]), np.array([0.0]))
