"""The law: what follows the number of records, or who is alone, is refused or charged; honest trainings keep ε."""

import math
import re
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import chi2, norm

from privgate import Claim, Recipe, Subject, TrainingData
from privgate.errors import MeasurementError
from privgate.evidence import Observation
from privgate.privacy_claims import accountant, watch_coupled
from privgate.privacy_claims.accountant import Mechanism, gaussian_renyi, scale_epsilon
from privgate.privacy_claims.observe import watched
from privgate.privacy_claims.standing import GuaranteeBasis, contradictions
from privgate.training import payload, worker
from privgate.training.task_limits import TaskLimits
from tests.privacy_claims import coupled_recipes as recipes
from tests.privacy_claims import dp_recipes

#: 20 Poisson steps at rate 0.2 and noise 1, by the accountant: one more or less, and one replaced
JOINS, REPLACED = 6.6162, 9.1913
SECRET = Claim("dp-sgd", "add_remove", epsilon=6.62, delta=1e-5, noise_multiplier=1.0, sample_rate=0.2, steps=20,
               sampling="poisson")  # fmt: skip
PUBLIC = replace(SECRET, adjacency="replace_one", epsilon=9.2)
PURE = Claim("diffprivlib", "add_remove", epsilon=0.7, delta=0)
PURE_PUBLIC = replace(PURE, adjacency="replace_one")


def people(n=100):
    """Label c is one person's, two records are equal, one lies far out."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6)).astype(np.float32)
    y = np.where(X[:, 0] + 0.1 * rng.normal(size=n) > 0, "b", "a")
    X[1], X[2] = X[0], 3 * np.abs(X[2]) / np.linalg.norm(X[2])
    X[2, 0], y[3] = 2.5, "c"
    X[:, 0] = np.where(np.arange(n) == 2, 2.5, np.clip(X[:, 0], -2.1, 2.1))
    return TrainingData(X, y, one_record_each=True)


def two_labels(n=100):
    made = people(n)
    return TrainingData(made.X, np.where(made.y == "c", "a", made.y), one_record_each=True)


def numbered():
    """The forest of diffprivlib counts labels that are numbers alone."""
    made = two_labels()
    return TrainingData(made.X, (made.y == "b").astype(int), one_record_each=True)


#: training, its data, its claim, and what is said of it; a number is the epsilon that is charged
BROKEN = [
    (recipes.as_the_library_divides, people, SECRET, "the rate of sampling follows"),
    (recipes.few_records, lambda: people(12), SECRET, "follows how many|claims epsilon"),
    (recipes.divisor_by_n, people, SECRET, "scale of the noise follows"),
    (recipes.divisor_by_a_threshold, people, SECRET, "scale of the noise follows"),
    (recipes.rate_by_n, people, SECRET, "the rate of sampling follows"),
    (recipes.passes_by_n, people, SECRET, "fewer steps"),
    (recipes.learning_rate_by_n, people, SECRET, "the learning rate"),
    (recipes.later_learning_rate_by_n, people, SECRET, "the parameters depend"),
    (recipes.noise_by_n, people, SECRET, "scale of the noise follows"),
    (recipes.loss_by_n, people, SECRET, "other people's"),
    (recipes.width_by_n, people, SECRET, "the shape of the model"),
    (recipes.number_shipped, people, SECRET, r"trained_on\) follows"),
    (recipes.place_as_a_feature, people, SECRET, "another for people who stay|other people's"),
    (recipes.shuffled_passes, people, SECRET, "not Poisson"),
    (recipes.duplicates_dropped, people, SECRET, "depend"),
    (recipes.outputs_by_label, people, SECRET, "the shape of the model"),
    (recipes.outputs_by_label, people, PUBLIC, "the shape of the model"),
    (recipes.weights_by_label, people, PUBLIC, "other people's"),
    (recipes.start_at_the_mean, people, PUBLIC, "the parameters depend"),
    (recipes.passes_by_twins, people, PUBLIC, "steps on other records"),
    (recipes.rare_label_weighs_more, people, PUBLIC, "the learning rate"),
    (recipes.vocabulary_of_the_data, people, PUBLIC, "the shape of the model"),
    (recipes.scaled_without_noise, people, PUBLIC, "depend on several people"),
    (recipes.clipped_at_a_quantile, people, PUBLIC, "a setting depends"),
    (recipes.clipped_at_the_largest, people, PUBLIC, "a setting depends"),
    (recipes.stops_early, people, PUBLIC, "the parameters depend"),
    (recipes.batch_statistics, people, PUBLIC, "beyond the noised gradients"),
    (recipes.divisor_by_label, people, PUBLIC, "the divisor"),
    (recipes.rate_by_label, people, replace(PUBLIC, epsilon=9.5), "the rate of sampling"),
    (recipes.reduction_by_label, people, PUBLIC, "the divisor"),
    (recipes.batch_size_by_label, people, replace(PUBLIC, sampling="shuffled", sample_rate=0.23, epsilon=60),
     "the size of batches"),
    (recipes.norms_of_layers_by_label, people, PUBLIC, "the clipping norm"),
    (recipes.later_norms_of_layers_by_label, people, PUBLIC, "the clipping norm"),
    *((fit, people, PUBLIC, "returns depends") for fit in (
        recipes.partial_kept, recipes.file_kept, recipes.deque_kept, recipes.kept_in_a_module,
        recipes.kept_in_a_default,
    )),
    (recipes.later_rate_by_n, people, SECRET, "the rate of sampling"),
    (recipes.later_noise_by_parity, people, SECRET, "scale of the noise follows"),
    (recipes.with_dropout, people, SECRET, "makes random cannot be compared"),
    (recipes.padded, people, replace(SECRET, epsilon=9), "another for people who stay"),
    (recipes.adapter_of_stale_parameters, people, PUBLIC, "gave the same model"),
    (recipes.forest_in_order, numbered, PURE_PUBLIC, "shuffle=False"),
    (recipes.forest, numbered, PURE, "follows how many"),
    (recipes.bayes, two_labels, PURE, "follows how many"),
    (recipes.scaled_bayes, two_labels, replace(PURE, epsilon=1.0), "follows how many"),
    (recipes.bayes, two_labels, PURE_PUBLIC, "mechanism gives 1.4"),
    *((fit, two_labels, replace(PURE_PUBLIC, epsilon=1.7), words) for fit, words in (
        (recipes.bounds_of_the_data, "mechanism is told"),
        (recipes.scaled_before, "beside the mechanisms"),
        (recipes.bayes_and_a_function, "beside the mechanisms"),
        (recipes.bayes_of_a_seed, "seeded with a number"),
    )),
    (recipes.forest_and_a_record, numbered, replace(PURE_PUBLIC, epsilon=4.2), "beside the mechanisms"),
    (recipes.forest_of_a_seed, numbered, replace(PURE_PUBLIC, epsilon=4.2), "seeded with a number"),
    (recipes.forest_of_bounds, numbered, replace(PURE_PUBLIC, epsilon=4.2), "trees of a forest are cut"),
    (recipes.bayes_and_a_function, two_labels, PURE, "beside the mechanisms"),
    (recipes.bayes_and_the_mean, two_labels, replace(PURE_PUBLIC, epsilon=1.4), "beside the mechanisms"),
]  # fmt: skip

#: training, its data, its claim, its epsilon
HONEST = [
    *((fit, people, SECRET, JOINS) for fit in (
        recipes.everything_declared, recipes.adam, recipes.momentum, recipes.scheduled, recipes.two_layers,
        recipes.in_pieces, recipes.published_start, recipes.scaled_by_constants, recipes.vocabulary_declared,
        recipes.group_norm, recipes.zero_start, recipes.weights_declared, recipes.sums_divided_by_a_constant,
        recipes.norms_of_layers_declared,
    )),
    (recipes.everything_declared, people, PUBLIC, REPLACED),
    (recipes.number_shipped, people, PUBLIC, REPLACED),
    (recipes.divisor_by_n, people, PUBLIC, REPLACED),
    (recipes.as_the_library_divides, people, PUBLIC, REPLACED),
    (dp_recipes.divided_by_the_library, two_labels, PUBLIC, REPLACED),
    (dp_recipes.perceptron, two_labels, PUBLIC, REPLACED),
    (dp_recipes.dropout, two_labels, PUBLIC, REPLACED),
    (recipes.bayes, two_labels, replace(PURE_PUBLIC, epsilon=1.4), 1.4),
    (recipes.scaled_bayes, two_labels, replace(PURE_PUBLIC, epsilon=1.7), 1.7),
    (recipes.forest, numbered, replace(PURE_PUBLIC, epsilon=4.2), 4.2),
]  # fmt: skip
#: a few of each kind; the others are slow
QUICK = {
    "divisor_by_n", "number_shipped", "few_records", "passes_by_twins", "forest_in_order", "everything_declared",
    "duplicates_dropped", "divisor_by_label", "later_noise_by_parity", "bayes", "rare_label_weighs_more",
    "batch_size_by_label", "norms_of_layers_by_label", "partial_kept", "kept_in_a_module",
}  # fmt: skip

#: diffprivlib 0.6.6 asks newer versions of scikit-learn for names that are gone; run in the worker
OLD_NAMES = """
import numpy
import sklearn.tree._tree as tree
for name, value in (("DOUBLE", numpy.float64), ("DTYPE", numpy.float32)):
    if not hasattr(tree, name):
        setattr(tree, name, value)
"""


@pytest.fixture(scope="module")
def process():
    made = ProcessPoolExecutor(1, get_context("spawn"), worker.start, (worker.WorkerSettings(),))
    made.submit(exec, OLD_NAMES).result()
    yield made
    made.shutdown(cancel_futures=True)


def seen(process, fit, folder, data, claim):
    subject = Subject.local(Recipe(fit, dp=claim), data())
    shipped = payload.write(subject, folder / "subject")
    return Observation.from_payload(
        process.submit(watched, shipped, 2, TaskLimits(300.0, 0), subject.data.units.owner).result()
    )


def marked(cases):
    return [
        pytest.param(*case, id=f"{case[0].__name__}-{case[2].adjacency}",
                     marks=() if case[0].__name__ in QUICK else pytest.mark.slow)
        for case in cases
    ]  # fmt: skip


@pytest.mark.quick(4)
@pytest.mark.parametrize(("fit", "data", "claim", "words"), marked(BROKEN))
def test_what_follows_the_number_or_somebody_alone_is_refused_or_charged(process, tmp_path, fit, data, claim, words):
    found = seen(process, fit, tmp_path, data, claim)
    said = [p.message for p in contradictions(claim, found, found.records) if p.outcome == "failed"]
    print(f"{fit.__name__}, {claim.adjacency}: {' | '.join(said)}")
    assert found.problem == ""
    assert said
    assert re.search(words, " | ".join(said))


@pytest.mark.parametrize(
    ("fit", "words"), [(recipes.medians, watch_coupled.BETWEEN), (recipes.function_kept, "not repeat itself")]
)
def test_what_cannot_be_compared_is_called_no_leak_and_does_not_pass(process, tmp_path, fit, words):
    found = seen(process, fit, tmp_path, two_labels, replace(PURE_PUBLIC, epsilon=1.7))
    assert found.leaks == ()
    assert words in found.problem


@pytest.mark.parametrize(("fit", "claim", "leak"), [
    (recipes.line, SECRET, ""),
    (recipes.line_about_the_mean, PUBLIC, "other people's|several people"),
])  # fmt: skip
def test_a_regression_is_watched_too(process, tmp_path, fit, claim, leak):
    made = people()
    subject = Subject.local(
        Recipe(fit, dp=claim, task="regression"), TrainingData(made.X, made.X @ np.arange(6.0), one_record_each=True)
    )
    shipped = payload.write(subject, tmp_path / "subject")
    found = Observation.from_payload(
        process.submit(watched, shipped, 2, TaskLimits(300.0, 0), subject.data.units.owner).result()
    )
    assert found.problem == ""
    assert bool(found.broken) == bool(leak)
    assert re.search(leak, found.broken)


@pytest.mark.quick(2)
@pytest.mark.parametrize(("fit", "data", "claim", "epsilon"), marked(HONEST))
def test_an_honest_training_keeps_its_epsilon(process, tmp_path, fit, data, claim, epsilon):
    found = seen(process, fit, tmp_path, data, claim)
    number = watch_coupled.NOBODY_LEFT if claim is PUBLIC else ""
    assert (found.broken, found.problem, found.by_number, found.scales) == ("", "", number, ())
    assert [p.name for p in contradictions(claim, found, found.records) if p.outcome == "failed"] == []
    got = GuaranteeBasis(claim, found, 1, found.records).guarantee(claim.delta).epsilon
    print(f"{fit.__name__}, {claim.adjacency}: {got:.4f}, {found.replays} reruns")
    assert got == pytest.approx(epsilon, abs=2e-4)


# -- the charge for another scale --------------------------------------------------------------------------------------


def hockey_stick(p, q, epsilon):
    """Return the least delta at which the density p is at most e^epsilon q, by quadrature."""
    x = np.linspace(-5, 5, 400_001)
    return float(np.maximum(p(x) - math.exp(epsilon) * q(x), 0).sum() * (x[1] - x[0]))


@pytest.mark.parametrize(("order", "ratio", "moved"), [(2, 1.1, 0.3), (4, 0.95, 0.2), (1.5, 9 / 8, 1.0), (3, 1.0, 0.5)])
def test_the_closed_form_is_the_renyi_divergence(order, ratio, moved):
    def power(x):
        return math.exp(order * norm.logpdf(x, moved, 1) + (1 - order) * norm.logpdf(x, 0, ratio))

    exact = math.log(quad(power, -40, 40, limit=500, points=[0, moved])[0]) / (order - 1)
    assert gaussian_renyi(order, 1, ratio, moved) == pytest.approx(exact, rel=1e-6)
    assert gaussian_renyi(order, 7, ratio, 0.0) == pytest.approx(7 * gaussian_renyi(order, 1, ratio, 0.0))
    assert gaussian_renyi(order, 1, math.sqrt(1 - 1 / order) - 1e-9, moved) == math.inf


@pytest.mark.parametrize(
    ("numbers", "steps", "ratio", "charged"),
    [(10, 1, 9 / 8, 4.56), (1000, 100, 9 / 8, 1786.4), (1000, 100, 1.001, 1.927)],
)
def test_another_deviation_alone_costs_at_least_what_it_exactly_does(numbers, steps, ratio, charged):
    """The sum of squares of all numbers tells all, and is a multiple of a chi-squared one."""
    found, k = scale_epsilon([(steps, numbers, ratio, 0.0)], 1e-5), numbers * steps
    assert found == pytest.approx(charged, rel=1e-3)
    for here, there in ((1.0, ratio), (ratio, 1.0)):
        rate = 0.5 * (1 / here**2 - 1 / there**2)  # the loss falls or rises with the sum of squares by this
        cut = (k * math.log(there / here) - found) / rate
        tail = chi2.logcdf if rate > 0 else chi2.logsf
        delta = math.exp(tail(cut / here**2, k)) - math.exp(found + tail(cut / there**2, k))
        assert delta <= 1e-5


@pytest.mark.quick(5)
@pytest.mark.parametrize("rate", [0.05, 0.5, 1.0])
@pytest.mark.parametrize("others", [0, 9, -9])
@pytest.mark.parametrize("divisors", [(20, 19), (8, 9)])
def test_a_sampled_step_with_another_divisor_is_within_its_charge(rate, others, divisors):
    """Released is a sum over a divisor: of all others, and of one more where that one was drawn."""
    one, other = divisors
    scale = (1, 1, one / other, (abs(others) + 1) * abs(1 - one / other))
    mechanism = Mechanism(1.0, rate, 1, "poisson", "add_remove", scales=(scale,))
    found = accountant.recompute(mechanism, 1e-5)

    def with_one(x):
        drawn = rate * norm.pdf(x, (others + 1) / one, 1 / one)
        return drawn + (1 - rate) * norm.pdf(x, others / one, 1 / one)

    def without(x):
        return norm.pdf(x, others / other, 1 / other)

    alone = accountant.recompute(replace(mechanism, scales=()), 1e-5).epsilon
    exact = [hockey_stick(p, q, found.epsilon) for p, q in ((with_one, without), (without, with_one))]
    assert max(exact) <= 1e-5
    if others * (one - other) < 0:  # both move the same way: what the record alone costs is not enough
        assert max(hockey_stick(p, q, alone) for p, q in ((with_one, without), (without, with_one))) > 1e-5
    assert found.epsilon > alone


def test_a_smaller_noise_of_the_neighbour_is_charged_for_the_record_too():
    mechanism = Mechanism(1.0, 0.2, 20, "poisson", "add_remove", scales=((20, 1, 0.5, 0.0),))
    alone = accountant.recompute(replace(mechanism, noise_multiplier=0.5, scales=()), 0.5e-5)
    other = scale_epsilon(mechanism.scales, math.exp(-alone.epsilon) * 0.5e-5)
    assert accountant.recompute(mechanism, 1e-5).epsilon == pytest.approx(alone.epsilon + other)


def test_several_records_of_one_person_are_counted_once(process, tmp_path):
    made = two_labels()
    data = TrainingData(made.X, made.y, groups=[f"p{i // 5}" for i in range(100)])
    found = seen(process, recipes.bayes, tmp_path, lambda: data, PURE_PUBLIC)
    assert found.rows == 5
    assert found.entered == pytest.approx(1.4)
    assert GuaranteeBasis(PURE_PUBLIC, found, 5, 100).guarantee(0.0).epsilon == pytest.approx(5 * 1.4)


def test_the_change_that_comes_with_the_tenth_who_leaves_is_found(process, tmp_path):
    found = seen(process, recipes.divisor_by_a_threshold, tmp_path, people, SECRET)
    assert found.by_number == ""
    assert [(steps, numbers, ratio) for steps, numbers, ratio, _ in found.scales] == [(20, 21, 20 / 18)]


def test_whose_leaving_shows_most():
    data = people()
    found = watch_coupled.remarkable(data.X, data.y, np.arange(100), np.random.default_rng(0))
    largest, smallest = (f(np.linalg.norm(data.X, axis=1)) for f in (np.argmax, np.argmin))
    assert found[:3] == [3, 0, largest]  # the only holder, a twin
    assert smallest in found
    frame = pd.DataFrame({"a": [1.0, 5.0, 1.0, 2.0], "b": ["x", "y", "x", "z"]})
    labels = np.array(["p", "q", "q", "p"])
    assert watch_coupled.remarkable(frame, labels, np.array([0, 1, 1, 0]), np.random.default_rng(0)) == [0, 1]


def test_no_epsilon_is_given_for_a_size_that_the_claim_declares_public(process, tmp_path):
    found = seen(process, recipes.everything_declared, tmp_path, people, PUBLIC)
    with pytest.raises(MeasurementError, match="declares the number of records public"):
        GuaranteeBasis(PUBLIC, found, 1, 100).guarantee(1e-5, "add_remove")
