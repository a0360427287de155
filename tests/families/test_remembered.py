"""What engines and theorems computed before is found by exactly what it was computed from, and never for a signer."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import CategoricalNB

from privgate import Policy, Recipe, Subject, TrainingData
from privgate.check.gate import evaluate
from privgate.families import certificates, in_parts
from privgate.families.catalogue import ALL
from privgate.families.engine import Asked
from privgate.families.retrained import Retrained
from privgate.subject.domain import Domain
from privgate.subject.release import Release
from privgate.training.fleet import Fleet

N = 120
RNG = np.random.default_rng(6)
CODES = RNG.integers(0, 3, (N, 3))
Y = (CODES[:, 0] + RNG.normal(size=N) > 1).astype(int)
COUNTS = TrainingData(CODES, Y, domain=Domain(categories=(3, 3, 3)))
NUMBERS = TrainingData(CODES.astype(float), Y, domain=Domain(box=((0, 2),) * 3))
KINDS = {
    "categorical_nb": (Recipe(CategoricalNB(min_categories=3, alpha=9.0), seed=1), COUNTS),
    "logistic": (Recipe(LogisticRegression(C=0.05, solver="newton-cholesky", tol=1e-10), seed=1), NUMBERS),
}


@pytest.fixture(autouse=True)
def worth_it(monkeypatch):
    monkeypatch.setattr(in_parts, "WORTH", 10)


def computing(monkeypatch, kind):
    """Return the names of engines and theorems that compute, as they do."""
    done = []
    engine = next(e for e in ALL if e.name == kind)
    honest = type(engine).answers
    monkeypatch.setattr(type(engine), "answers", lambda self, asked: done.append(self.name) or honest(self, asked))
    for certificate in certificates.ALL.values():
        real = type(certificate).bound

        def bound(self, *args, real=real, **named):
            done.append(self.name)
            return real(self, *args, **named)

        if "bound" in vars(type(certificate)):
            monkeypatch.setattr(type(certificate), "bound", bound)
    return done


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_second_policy_trains_and_computes_nothing_and_ends_with_the_same_numbers(kind, tmp_path):
    recipe, data = KINDS[kind]
    made = Subject.local(recipe, data)
    with Fleet(jobs=1, ledger=tmp_path) as first:
        evaluate(Policy.load("pdtp-1"), made, fleet=first)
    with pytest.MonkeyPatch.context() as patch, Fleet(jobs=1, ledger=tmp_path) as own:
        done = computing(patch, kind)
        again = evaluate(Policy.load("dtp-1"), made, fleet=own)
    with pytest.MonkeyPatch.context() as patch, Fleet(jobs=1, ledger=tmp_path) as own_too:
        patch.setattr(in_parts, "WORTH", N + 1)
        alone = evaluate(Policy.load("dtp-1"), made, fleet=own_too)

    assert own.calls == 0
    assert kind not in done
    assert again.outcome is alone.outcome
    for name in ("pdtp", "dtp_lower", "dtp_upper", "error"):
        np.testing.assert_array_equal(again.evidence.records[name], alone.evidence.records[name])


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_comes_back_as_it_was_and_only_for_the_same_question(kind, monkeypatch):
    recipe, data = KINDS[kind]
    made, units = Subject.local(recipe, data), np.arange(N)
    engine = next(e for e in ALL if e.name == kind)
    with Fleet(jobs=1, ledger="none") as own:
        asked = Asked(made, units, (1,), own, changes=True)
        fresh, left = in_parts.remembered_answers(engine, asked)
        assert in_parts.remembered_known(engine, asked)
        assert own.freshness.told(signable=False).signable
        kept, left_again = in_parts.remembered_answers(engine, asked)
        assert not own.freshness.told(signable=False).signable

        np.testing.assert_array_equal(left, left_again)
        for name in ("units", "row_unit", "row_query", "log_with", "log_without", "error", "status", "engine"):
            np.testing.assert_array_equal(getattr(kept, name), getattr(fresh, name))
        assert kept.seeds == fresh.seeds
        assert set(kept.changes) == set(fresh.changes)
        narrower = Domain(categories=(4, 3, 3)) if kind == "categorical_nb" else Domain(box=((0, 3),) * 3)
        for other in (
            replace(asked, units=units[:-1]),
            replace(asked, changes=False),
            replace(asked, seeds=(2,)),
            replace(asked, subject=Subject.local(recipe, data, release=Release("rounded", step=0.1))),
            replace(asked, subject=made.with_data(replace(data, domain=narrower))),
        ):
            assert not in_parts.remembered_known(engine, other)
        own.signable = True
        assert not in_parts.remembered_known(engine, asked)
        own.signable = False
        monkeypatch.setattr(in_parts, "source", lambda: "another version of the package")
        assert not in_parts.remembered_known(engine, asked)


def test_bounds_on_models_that_are_kept_as_objects_are_computed_every_time():
    units = np.arange(N)
    trees = np.empty((1, N), dtype=object)
    rows, logs = (units, units), np.zeros((1, N, 2))
    made = Retrained.of("tree_ensembles", units, (None,), rows, logs, logs, changes={"trees": trees})
    stub = SimpleNamespace(name="tree_cells", bound=lambda *_, **__: "computed")
    nothing_to_ask = SimpleNamespace(signable=False)
    assert in_parts.bound(stub, None, units, made, nothing_to_ask, limit=1.0) == "computed"
