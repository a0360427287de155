"""Laws that every certificate in the catalogue must keep; a new one needs only a line in ``families.FAMILIES``."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
from families import FAMILIES
from sklearn.base import clone
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from privgate import Domain, Recipe, Release, Subject, TrainingData
from privgate.check import confirm
from privgate.run import refit
from privgate.theorems import catalogue
from privgate.theorems.closed_form import Asked
from privgate.theorems.logistic import LOGISTIC
from tests.in_process import InProcess
from tests.leaving_out import answer

NAMES = sorted(catalogue.THEOREMS)


class Chain:
    """Closed form and refits: a list of questions is put to any model."""

    def answers(self, asked):
        return answer(replace(asked, fleet=InProcess()), changes=True).retrained, asked.units[:0]


class Refits:
    """Refits alone, whose models are read."""

    def answers(self, asked):
        return refit.leave_out(asked, changes=True), asked.units[:0]


def without_domain(name):
    """A subject of the theorem's family that declares no domain."""
    subject = FAMILIES[name](np.random.default_rng(2)).subject
    return Subject.local(subject.recipe, dataclasses.replace(subject.data, domain=None))


#: theorems about every query there is, or about categories read off the data
ANYWHERE = [name for name in NAMES if not catalogue.THEOREMS[name].applies(without_domain(name))]
#: whose models answer nothing that is missing, infinite or large
REFUSING = ("categorical_nb",)
#: whose retrained models a certificate reads, where it is not the logistic engine
ENGINES = {"listed_questions": Chain(), "linear": Refits()}
#: rounding of sums, and of refits that solve their equations in another order
ROUNDING = 1e-8


def speak(name, instance, units=None):
    certificate, subject = catalogue.THEOREMS[name], instance.subject
    assert certificate.applies(subject) == ""
    units = np.arange(len(subject.data.units)) if units is None else units
    given = retrained(subject, units, ENGINES.get(name, LOGISTIC)) if certificate.needs_retrained else None
    return certificate.bound(subject, units, given, fleet=InProcess())


def retrained(subject, units, engine=LOGISTIC):
    order = np.sort(units)
    found, left = engine.answers(Asked(subject, order, (None,), InProcess()))
    assert not len(left)
    assert (order == units).all()
    return found


def test_every_certificate_has_a_family_and_a_room():
    for name, certificate in catalogue.THEOREMS.items():
        assert certificate.name == name
        assert type(certificate).__module__.startswith("privgate.theorems.")
        assert certificate.source
    assert set(FAMILIES) == set(NAMES)


@pytest.mark.quick
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(8))
def test_never_below_the_change_at_a_real_query(name, seed):
    instance = FAMILIES[name](np.random.default_rng(seed))
    found, changes = speak(name, instance), instance.changes()
    finite = np.isfinite(found.upper)
    assert (found.upper[finite] >= changes[finite] * (1 - 1e-9) - ROUNDING).all()
    assert np.isinf(found.upper[np.isinf(changes)]).all()
    if instance.complete:
        assert (found.lower[finite] <= changes[finite] + ROUNDING).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ANYWHERE)
def test_without_a_domain_never_below_the_change_at_a_question_that_is_missing_or_infinite(name):
    spoken = 0
    for seed in range(12):
        instance = FAMILIES[name](np.random.default_rng(seed))
        if instance.subject.data.domain is not None or spoken == 1:
            continue
        odd = np.array([[v] for v in (np.nan, np.inf, -np.inf, 1e300, -2.0)])
        some = np.repeat(instance.queries[:3].astype(np.float64), len(odd), axis=0)
        at = np.arange(some.shape[1]) == np.arange(len(some))[:, None] % some.shape[1]
        asked = np.concatenate(
            [np.where(at, np.tile(odd, (len(some) // len(odd), 1)), some), np.tile(odd, some.shape[1])]
        )
        answers = [q for q in asked if answered(instance, q)]
        if answers:
            found, changes = speak(name, instance), dataclasses.replace(instance, queries=np.array(answers)).changes()
            assert (found.upper >= changes * (1 - 1e-9) - ROUNDING).all()
            spoken += 1
    assert bool(spoken) == (name not in REFUSING)


def answered(instance, question):
    """Whether the model answers, and a number."""
    subject = instance.subject
    with np.errstate(all="ignore"):
        try:
            model = clone(subject.recipe.library_estimator).fit(np.asarray(subject.data.X), subject.data.y)
            return bool(np.isfinite(model.predict_proba(question[None])).all())
        except (ValueError, IndexError):
            return False


@pytest.mark.quick
@pytest.mark.parametrize("name", ["bernoulli_nb", "categorical_nb", "contingency_table"])
@pytest.mark.parametrize("seed", range(100, 112))
def test_equals_enumeration_on_small_domains(name, seed):
    instance = FAMILIES[name](np.random.default_rng(seed))
    found, changes = speak(name, instance), instance.changes()
    np.testing.assert_allclose(found.upper, changes, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_bounds_are_ordered_and_never_negative(name):
    found = speak(name, FAMILIES[name](np.random.default_rng(7)))
    assert (found.lower >= 0).all()
    assert (found.upper >= found.lower).all()
    assert not np.isnan(found.upper).any()
    assert found.assumptions


@pytest.mark.parametrize("name", NAMES)
def test_units_are_answered_alike_alone_and_together_and_in_any_order(name):
    instance = FAMILIES[name](np.random.default_rng(3))
    everyone = speak(name, instance)
    order = np.random.default_rng(0).permutation(len(instance.subject.data.units))[:5]
    order = np.sort(order) if catalogue.THEOREMS[name].needs_retrained else order
    some = speak(name, instance, order)
    # effort depends on who else asks, so bounds may differ but must overlap
    finite = np.isfinite(everyone.upper[order])
    np.testing.assert_array_equal(np.isfinite(some.upper), finite)
    assert (some.lower <= everyone.upper[order] + ROUNDING).all()
    assert (everyone.lower[order] <= some.upper + ROUNDING).all()


@pytest.mark.parametrize("seed", [1000, 1007, 1188])
def test_a_list_limits_by_no_rounding_too_little_or_too_much(seed):
    """At 7e9 nats, as at one, what another order of adding gives lies between both limits."""
    instance = FAMILIES["listed_questions"](np.random.default_rng(seed))
    found, changes = speak("listed_questions", instance), instance.changes()
    finite = np.isfinite(changes) & np.isfinite(found.upper)
    assert finite.any()
    assert (found.lower[finite] <= changes[finite]).all()
    assert (changes[finite] <= found.upper[finite]).all()
    assert (found.upper[finite] - found.lower[finite] <= 5e-6 + 1e-12 * changes[finite]).all()


@pytest.mark.quick
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["rounded", "label", "top_k"])
def test_says_nothing_about_a_release_that_is_not_exact(name, form):
    instance = FAMILIES[name](np.random.default_rng(1))
    subject = dataclasses.replace(instance.subject, release=Release(form=form))
    assert catalogue.THEOREMS[name].applies(subject).startswith("does not apply, because ")


@pytest.mark.parametrize("name", NAMES)
def test_says_nothing_about_another_model_or_a_wrapped_one(name):
    data = TrainingData(np.eye(4), [0, 1, 0, 1], one_record_each=True)
    other = Subject.local(Recipe(DecisionTreeClassifier()), data)
    assert catalogue.THEOREMS[name].applies(other).startswith("does not apply, because ")
    if name == "listed_questions":
        return  # whatever answers is asked
    wrapped = FAMILIES[name](np.random.default_rng(1)).subject
    own = Recipe(wrapped.recipe.training, predict=my_predict)
    subject = Subject.local(own, wrapped.data)
    assert catalogue.THEOREMS[name].applies(subject).startswith("does not apply, because ")


def my_predict(model, X):
    return model.predict_proba(X)


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(ANYWHERE)))
def test_without_a_declared_domain_the_sentence_says_how_to_declare_one(name):
    said = catalogue.THEOREMS[name].applies(without_domain(name))
    if name == "listed_questions":
        return  # without a list it is another kind of subject
    assert said.startswith("does not apply, because ")
    assert "Domain(" in said
    assert "infinite" in said


@pytest.mark.parametrize("name", ["gaussian_nb", "newton"])
@pytest.mark.parametrize("seed", range(3))
def test_a_larger_box_never_lowers_the_bound(name, seed):
    subject = FAMILIES[name](np.random.default_rng(seed)).subject
    small = catalogue.THEOREMS[name].bound(subject, np.arange(3), None)
    wide = tuple((a - (b - a), b + (b - a)) for a, b in subject.data.domain.box)
    larger = Subject.local(subject.recipe, dataclasses.replace(subject.data, domain=Domain(box=wide)))
    found = catalogue.THEOREMS[name].bound(larger, np.arange(3), None)
    assert (found.upper >= small.lower - ROUNDING).all()
    if name == "gaussian_nb":
        assert (found.upper >= small.upper - ROUNDING).all()


@pytest.mark.quick
@pytest.mark.parametrize("name", ["bernoulli_nb", "categorical_nb", "gaussian_nb"])
@pytest.mark.parametrize("seed", range(4))
def test_one_copy_of_a_duplicate_tells_no_more_than_the_single_record_did(name, seed):
    """Leaving out one of two copies: small, which is why people with several records are left out together."""
    instance = FAMILIES[name](np.random.default_rng(seed + 40))
    subject, data = instance.subject, instance.subject.data
    alone = dataclasses.replace(data, groups=None)
    twice = dataclasses.replace(alone, X=np.concatenate([np.asarray(data.X)] * 2), y=np.concatenate([data.y] * 2))
    # everybody doubled: every count doubles, so one record is half as much of each
    before = catalogue.THEOREMS[name].bound(Subject.local(subject.recipe, alone), np.arange(data.n), None)
    after = catalogue.THEOREMS[name].bound(Subject.local(subject.recipe, twice), np.arange(data.n), None)
    assert (after.lower <= before.upper + ROUNDING).all()


@pytest.mark.quick
@pytest.mark.parametrize("name", sorted(set(NAMES) - {"listed_questions"}))
@pytest.mark.parametrize("seed", range(3))
def test_its_cases_are_made_of_the_data_again(name, seed):
    """A yes of a theorem whose cases are not is inconclusive: it would never approve anybody."""
    instance = FAMILIES[name](np.random.default_rng(seed))
    cases = [replace(k, theorem=name) for k in speak(name, instance).cases]

    assert cases
    assert [confirm.canonical(instance.subject, k) for k in cases] == [""] * len(cases)


def test_the_best_bound_names_its_certificate_and_the_silence_of_the_others():
    instance = FAMILIES["gaussian_nb"](np.random.default_rng(5))
    units = np.arange(len(instance.subject.data.units))
    found, by, notes = catalogue.bound(instance.subject, units, None)
    assert (by == "gaussian_nb").all()
    assert len(notes) == len(catalogue.THEOREMS) - 1
    assert all("does not apply, because " in text for text in notes)
    np.testing.assert_array_equal(found.upper, speak("gaussian_nb", instance).upper)


def test_without_any_certificate_the_bound_is_infinite_and_nobody_is_named():
    subject = Subject.local(
        Recipe(DecisionTreeClassifier()), TrainingData(np.eye(4), [0, 1, 0, 1], one_record_each=True)
    )
    found, by, notes = catalogue.bound(subject, np.arange(4), None)
    assert np.isinf(found.upper).all()
    assert set(by) == {""}
    assert len(notes) == len(catalogue.THEOREMS)


def test_training_records_outside_the_declared_domain_are_refused():
    X = np.array([[0.0], [1.0], [2.0], [3.0]])
    subject = Subject.local(
        Recipe(GaussianNB()), TrainingData(X, [0, 0, 1, 1], domain=Domain(box=((0.0, 2.0),)), one_record_each=True)
    )
    assert "outside the declared domain" in catalogue.THEOREMS["gaussian_nb"].applies(subject)
