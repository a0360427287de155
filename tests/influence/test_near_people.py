"""People asked about at or beside their records: what leaks there counts, and nothing else changes."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB

from privgate import Budget, Policy, Recipe, Subject, TrainingData, evaluate
from privgate.check import questions
from privgate.evidence import Request
from privgate.influence import left_out, person_table, regressors, riskiest
from privgate.run import near_questions, refit
from privgate.run.run import Run
from tests.in_process import InProcess
from tests.membership.test_near_trials import equal_do_not_vote, made, on_numbers, remembers_beside

N = 40


def run(recipe, data=None, **kept):
    kept = {"near_questions": True, "fleet": InProcess(), **kept}
    return Run(Subject.local(recipe, data or made(N)), kept.pop("fleet"), seeds=(recipe.seed,), **kept)


def pdtp(some):
    return questions.measure(some, Request.build("pdtp", aggregate="max")).value


@pytest.mark.parametrize("design", [equal_do_not_vote, remembers_beside])
def test_what_changes_beside_the_record_alone_counts_where_it_is_asked(design):
    some = run(Recipe(design, seed=3))

    assert pdtp(some) > pdtp(run(Recipe(design, seed=3), near_questions=False)) + 1


def test_a_fast_engine_says_what_refits_say_beside_the_record():
    estimator = LogisticRegression(solver="newton-cholesky", tol=1e-10)
    some = run(Recipe(estimator))
    near = some.compute(near_questions.ask_near_people)
    found, direct = (
        some.compute(riskiest.compute_everybody).computed.answers,
        some.compute(person_table.measure_direct)["pdtp"],
    )
    again = refit.leave_out(replace(riskiest.ask_about(some, found.units), fleet=InProcess()))

    assert set(found.engine) == {"logistic"}
    assert len(found.row_query) == N * (1 + len(near.kinds))
    assert (found.row_query == again.row_query).all()
    assert found.log_without == pytest.approx(again.log_without, abs=1e-5)
    assert (
        direct >= run(Recipe(estimator), near_questions=False).compute(person_table.measure_direct)["pdtp"] - 1e-9
    ).all()


def test_a_person_of_several_records_is_asked_beside_each():
    data = made(N)
    some = run(Recipe(GaussianNB()), TrainingData(data.X, data.y, groups=np.arange(N) // 2))
    found = some.compute(left_out.retrained)

    assert np.bincount(found.row_unit).tolist() == [
        2 * (1 + len(some.compute(near_questions.ask_near_people).kinds))
    ] * (N // 2)


def test_residuals_of_a_regressor_are_those_at_records(fleet):
    near, own = (
        run(Recipe(Ridge(), task="regression"), on_numbers(N), near_questions=b, fleet=fleet) for b in (True, False)
    )

    assert near.compute(regressors.measure_unit) == pytest.approx(own.compute(regressors.measure_unit))
    assert (near.compute(regressors.measure_moves).value >= own.compute(regressors.measure_moves).value - 1e-12).all()
    assert len(near.compute(left_out.retrained).row_query) > len(own.compute(left_out.retrained).row_query)


def test_share_1_refuses_who_leaks_beside_and_its_earlier_version_did_not(fleet):
    subject = Subject.local(Recipe(equal_do_not_vote, seed=3), made(N))
    now, before = (
        evaluate(Policy.load(name), subject, fleet=fleet, limits=Budget()) for name in ("share-1", "share-1@3")
    )
    told = {v: next(f for f in v.findings if f.metric == "pdtp") for v in (now, before)}

    assert told[now].outcome == "failed"
    assert "asked at or beside their record" in told[now].meaning
    assert told[before].outcome == "passed"
    assert "approved for direct queries only" in told[before].message


def test_who_asks_at_the_record_alone_is_named_and_measured_as_before():
    request = Request.build("pdtp", aggregate="max")
    some = run(Recipe(LogisticRegression()), near_questions=False)

    assert some.compute(near_questions.ask_near_people).kinds == {}
    assert some.compute(left_out.retrained).row_query.tolist() == list(range(N))
    assert any(a.endswith("with its own features") for a in questions.measure(some, request).assumptions)
