"""The law: every broken training "with differential privacy" is refused or charged, every honest one passes."""

import bisect
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pandas as pd
import pytest

from privgate import Claim, Recipe, Subject, TrainingData
from privgate.errors import MeasurementError
from privgate.evidence import Observation
from privgate.privacy_claims import watch_noise, watch_replay
from privgate.privacy_claims.accountant import Mechanism
from privgate.privacy_claims.observe import watched
from privgate.privacy_claims.standing import GuaranteeBasis, contradictions
from privgate.privacy_claims.watch_noise import Noise
from privgate.privacy_claims.watch_sampling import Draws, matched, used
from privgate.privacy_claims.watch_transcript import codes, owners
from privgate.training import payload, worker
from privgate.training.task_limits import TaskLimits
from tests.claims import dp_recipes as recipes

#: what 20 Poisson steps at rate 0.2 and noise 1 give where one record is replaced, by the accountant
TRUE = 9.192
CLAIM = Claim(
    "dp-sgd",
    "replace_one",
    epsilon=TRUE,
    delta=1e-5,
    noise_multiplier=1.0,
    sample_rate=0.2,
    steps=20,
    sampling="poisson",
)
#: a few of each kind; the others are slow
QUICK = (
    "five_times", "class_means_added", "best_epoch", "mixup_pairs", "noise_halved", "batches_used_twice",
    "mixup_in_the_loop", "running_statistics", "summed_loss_said_to_be_a_mean", "perceptron", "public_pretraining",
    "examples_shipped", "stops_at_a_large_loss", "loss_clamped", "every_other_row_negated", "two_dropouts",
    "first_batch_looked_at", "seeded_with_the_time", "seed_of_31_bits", "as_in_the_tutorial",
)  # fmt: skip
#: honest: four passes without amplification, by the closed form of Gaussian noise; one pass of Poisson batches
OTHERWISE = {"shuffled_and_said_so": 24.382, "accumulated": 24.382, "private_returned": 4.745}
OTHERWISE |= dict.fromkeys(("subset_drawn", "other_loader_looked_at"), 24.382)
OTHERWISE |= dict.fromkeys(
    ("broken_off", "broken_off_unequally", "broken_off_between_sums", "first_of_each_pass_left"), 4.745
)
OTHERWISE["first_shuffled_batch_looked_at"] = 4.745

#: what is random for each record in several places: the control of half the batches needs three reruns more
RANDOM = {
    "dropout", "two_dropouts", "noise_in_the_loop", "jittered_by_numpy", "own_dataset", "as_in_the_tutorial",
}  # fmt: skip


@pytest.fixture(scope="module")
def process():
    made = ProcessPoolExecutor(1, get_context("spawn"), worker.start, (worker.WorkerSettings(),))
    yield made
    made.shutdown(cancel_futures=True)


def people(groups=None, n=100):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6)).astype(np.float32)
    return TrainingData(X, np.where(X[:, 0] + 0.1 * rng.normal(size=n) > 0, "b", "a"), groups=groups)


def seen(process, fit, folder, data=None, claim=CLAIM):
    subject = Subject.local(Recipe(fit, dp=claim), data or people())
    shipped = payload.write(subject, folder / "subject")
    return Observation.from_payload(
        process.submit(watched, shipped, 2, TaskLimits(300.0, 0), subject.data.units.owner).result()
    )


def marked(fits):
    return [pytest.param(f, id=f.__name__, marks=() if f.__name__ in QUICK else pytest.mark.slow) for f in fits]


def refused(found, claim=CLAIM):
    """Whether nothing passes for what was seen: no finite ε, nothing known, or a claim that is contradicted."""
    return bool(found.broken or found.problem) or any(p.outcome == "failed" for p in contradictions(claim, found, 100))


@pytest.mark.slow
@pytest.mark.parametrize("fit", marked(recipes.BROKEN))
def test_a_broken_training_is_refused_or_charged(process, tmp_path, fit):
    found = seen(process, fit, tmp_path)
    assert found.library == "opacus"  # watched at work, not lost on the way
    assert refused(found), found


@pytest.mark.quick(1)
@pytest.mark.parametrize("fit", marked(recipes.HONEST))
def test_an_honest_training_passes(process, tmp_path, fit):
    found = seen(process, fit, tmp_path)
    assert (found.broken, found.problem, found.rows) == ("", "", 1)
    assert found.replays == 5 + 3 * (fit.__name__ in RANDOM)
    epsilon = GuaranteeBasis(CLAIM, found, found.rows, 100).guarantee(1e-5).epsilon
    assert epsilon <= OTHERWISE.get(fit.__name__, TRUE)


@pytest.mark.slow
def test_no_epsilon_by_opacus_holds_for_one_more_or_less(process, tmp_path):
    """Its rate is 1 / ceil(n / batch) and its divisor int(n * rate): both tell how many records there are."""
    joins = replace(CLAIM, adjacency="add_remove")
    found = seen(process, recipes.divided_by_the_library, tmp_path, claim=joins)
    assert (found.broken, found.problem) == ("", "")
    with pytest.raises(MeasurementError, match=r'how many records there are.* Claim\(adjacency="replace_one"\)'):
        GuaranteeBasis(joins, found, 1, 100).guarantee(1e-5)
    assert [(p.name, p.outcome) for p in contradictions(joins, found, 100)] == [("dp_claim", "failed")]
    assert [(p.name, p.outcome) for p in contradictions(CLAIM, found, 100)] == [("dp_claim", "passed")]


def test_the_divisor_of_the_library_is_another_for_one_record_less():
    divisors = []
    for n in (100, 99):
        X, y = np.zeros((n, 6), np.float32), np.arange(n) % 2
        recipes.by_fifths(X, y, watch=lambda optimizer: divisors.append(optimizer.expected_batch_size))
    assert divisors == [20, 19]


@pytest.mark.slow
def test_people_with_several_records_are_counted_in_what_is_sampled(process, tmp_path):
    found = seen(process, recipes.plain, tmp_path, people(np.arange(100) // 2))
    assert (found.broken, found.problem, found.rows, found.copies) == ("", "", 2, 1)
    tripled = seen(process, recipes.augmented_three_times, tmp_path / "b", people(np.arange(100) // 2))
    assert (tripled.rows, tripled.copies) == (6, 3)


def test_what_cannot_be_compared_is_inconclusive(process, tmp_path):
    found = seen(process, recipes.fails_on_others, tmp_path / "a")
    assert "fails on other records (ValueError)" in found.problem
    assert "random beyond" in seen(process, recipes.own_random_start, tmp_path / "b").problem
    found = seen(process, recipes.dropout_of_few, tmp_path / "c", people(n=20))
    assert found.leaks == ()
    assert "random gradients are too few" in found.problem


def test_what_one_implausible_record_would_settle_is_a_leak(process, tmp_path):
    assert "how many records" in seen(process, recipes.outliers_dropped, tmp_path / "a").broken
    assert "shape or a setting" in seen(process, recipes.columns_for_what_is_missing, tmp_path / "b").broken
    positive = TrainingData(np.abs(people().X), people().y, one_record_each=True)
    coded = TrainingData(np.digitize(people().X, [-1, 0, 1]), people().y, one_record_each=True)
    assert "shape or a setting" in seen(process, recipes.one_row_a_code, tmp_path / "d", coded).broken
    assert "other people's" in seen(process, recipes.logarithms_of_what_is_positive, tmp_path / "c", positive).broken


def test_batches_from_a_guessable_seed_amplify_nothing(process, tmp_path):
    found = seen(process, recipes.seeded_loader, tmp_path)
    assert (found.sampling, found.broken, found.problem) == ("unknown", "", "")
    said = {p.name: (p.outcome, p.message) for p in contradictions(CLAIM, found, 100)}
    assert said["dp_claim"][0] == "failed"
    assert "guessable seed" in said["dp_sampling"][1]
    assert GuaranteeBasis(CLAIM, found, 1, 100).guarantee(1e-5).epsilon == pytest.approx(77.330, abs=1e-3)


def test_a_network_that_carries_gradients_of_single_records_is_told(process, tmp_path):
    assert seen(process, recipes.plain, tmp_path / "a").leftovers == ""
    found = seen(process, recipes.private_returned, tmp_path / "b")
    assert found.leftovers == "rerun"
    warned = [p for p in contradictions(CLAIM, found, 100) if p.name == "dp_leftovers"]
    assert [p.outcome for p in warned] == ["warned"]
    stored = [p for p in contradictions(CLAIM, replace(found, leftovers="stored"), 100) if p.name == "dp_leftovers"]
    assert [p.outcome for p in stored] == ["failed"]
    assert "zero_grad" in stored[0].message


def noise(rows):
    half = rows.shape[1] // 2
    return [
        Noise(1.0, np.array([r[:half] @ r[:half], r[half:] @ r[half:]]), np.array([half, rows.shape[1] - half]),
              zero=False, kept=r, seed=2**40) for r in rows
    ]  # fmt: skip


@pytest.mark.parametrize(("steps", "numbers"), [(4, 6), (60, 14), (10, 256)])
def test_gaussian_noise_is_never_called_anything_else(steps, numbers):
    rng = np.random.default_rng(3)
    for _ in range(20):
        made = noise(rng.normal(size=(steps, numbers)))
        assert watch_noise.defect(made) == ""
        assert watch_noise.multiplier(made) == 1.0


@pytest.mark.parametrize("quiet", [slice(40, 60), slice(0, 1), slice(30, 32)])
def test_noise_that_is_missing_in_part_is_charged_for_all(quiet):
    rows = np.random.default_rng(4).normal(size=(60, 200))
    rows[quiet, 100:] *= 0.3
    assert watch_noise.multiplier(noise(rows)) <= 0.3


def test_noise_of_another_shape_is_named():
    rng = np.random.default_rng(5)
    assert "not Gaussian" in watch_noise.defect(noise(rng.uniform(-(3**0.5), 3**0.5, size=(100, 100))))
    assert "not independent" in watch_noise.defect(noise(np.repeat(rng.normal(size=(30, 1)), 20, axis=1)))
    fresh = rng.normal(size=(31, 40))
    assert "not independent" in watch_noise.defect(noise((fresh[1:] - fresh[:-1]) / 2**0.5))


def one_by_one(batches, skip=()):
    """What is clipped where each batch is a step, but for some."""
    return [[(len(b), {0: at + 1})] for at, b in enumerate(batches) if at not in skip]


@pytest.mark.parametrize(("n", "rate", "steps"), [(100, 0.2, 20), (1000, 0.05, 200), (50, 0.5, 50), (60, 1 / 30, 60)])
def test_poisson_batches_are_taken_for_what_they_are(n, rate, steps):
    rng = np.random.default_rng(6)
    for _ in range(20):
        batches = [np.flatnonzero(rng.random(n) < rate) for _ in range(steps)]
        assert used(one_by_one(batches), [Draws(None, "poisson", n, rate, batches=batches)], n).kind == "poisson"


def test_words_of_two_units_never_make_the_word_of_a_third():
    words = codes(50)
    assert len(np.unique(words, axis=0)) == 50
    pairs = words[:, None] | words[None]
    weight = words[0].sum()
    assert (pairs.sum(axis=2)[~np.eye(50, dtype=bool)] > weight).all()
    changed = np.vstack([words, words[0] | words[1], np.zeros_like(words[0])])
    assert owners(changed, words).tolist() == [*range(50), -2, -1]


def test_there_are_enough_of_both():
    assert len(recipes.BROKEN) >= 20
    assert len(recipes.HONEST) >= 10
    assert {f.__name__ for f in (*recipes.BROKEN, *recipes.HONEST)} >= set(QUICK)


@pytest.mark.parametrize(("batch", "a_pass", "releases"), [(51, 1, 20), (30, 3, 20), (10, 2, 20), (25, 4, 20)])
def test_a_pass_that_leaves_records_out_counts_as_a_whole_one(batch, a_pass, releases):
    """The last batch dropped, or a pass broken off: without shuffling, the same record is in every pass."""
    rows = np.arange(100)
    batches = [rows[k * batch : (k + 1) * batch] for _ in range(20) for k in range(a_pass)]
    drawn = Draws(None, "shuffled", 100, float("nan"), 0, batches, list(range(0, 20 * a_pass, a_pass)))
    found = used(one_by_one(batches), [drawn], 100)
    mechanism = Mechanism(4.0, found.rate, found.steps, found.kind, "replace_one", passes=found.passes)

    assert max(np.bincount(np.concatenate(batches))) == releases
    assert mechanism.releases == releases
    assert (found.kind, found.rate) == ("shuffled", batch / 100)


@pytest.mark.parametrize(
    ("passes", "left"),
    [
        ([0, 4, 8, 12], {3, 7, 11, 15}),  # if i == 3: break
        ([0, 4, 8, 12], {0, 4, 8, 12}),  # the first of each pass is passed over
        ([0, 1, 6, 11], {0}),  # one is looked at before
        ([0, 5, 9, 14], {4, 8, 13, 15}),  # as many as come
    ],
)
def test_batches_that_are_drawn_and_left_are_nobodys_steps(passes, left):
    batches = [np.arange(20 * k, 20 * k + 20) % 100 for k in range(16)]
    drawn = Draws(None, "shuffled", 100, float("nan"), 0, batches, passes)
    found = used(one_by_one(batches, left), [drawn], 100)

    assert [e.tolist() for e in found.entries] == [b.tolist() for k, b in enumerate(batches) if k not in left]
    used_in = {bisect.bisect(passes, at) for at in range(16) if at not in left}
    assert (found.kind, found.rate, found.steps, found.passes) == ("shuffled", 0.2, 16 - len(left), len(used_in))


def test_poisson_batches_that_somebody_picked_are_not_taken_for_what_they_are():
    """Steps on the batches alone that hold record 0: it is in each of them."""
    rng = np.random.default_rng(7)
    batches = [np.flatnonzero(rng.random(100) < 0.2) for _ in range(100)]
    drawn = Draws(None, "poisson", 100, 0.2, 0, batches, [*range(0, 100, 5)])
    without = {at for at, b in enumerate(batches) if 0 not in b}
    assert used(one_by_one(batches, without), [drawn], 100).kind == "unknown"
    second = {at for at in range(0, 100, 5) if 0 not in batches[at]}  # another batch where the first is another's
    assert used(one_by_one(batches, second), [drawn], 100).kind == "unknown"
    last_of_each = set(range(4, 100, 5))
    found = used(one_by_one(batches, last_of_each), [drawn], 100)
    assert (found.kind, found.steps) == ("poisson", 80)


@pytest.mark.parametrize(
    ("times", "sampler", "kind"), [(1, "shuffled", "shuffled"), (3, "shuffled", "unknown"), (1, "unknown", "shuffled")]
)
def test_a_pass_is_one_where_nobody_comes_twice(times, sampler, kind):
    rng = np.random.default_rng(8)
    batches = [b for _ in range(4) for b in np.split(np.concatenate([rng.permutation(100)] * times), 5 * times)]
    drawn = Draws(None, sampler, 100 * times, float("nan"), 0, batches, [*range(0, 20 * times, 5 * times)])
    found = used(one_by_one(batches), [drawn], 100)
    assert (found.kind, found.steps) == (kind, 20 * times)


@pytest.mark.slow
@pytest.mark.parametrize("fit", [recipes.three_passes_an_epoch, recipes.three_times_in_a_pass])
def test_an_epoch_of_three_passes_counts_every_step(process, tmp_path, fit):
    found = seen(process, fit, tmp_path)
    assert (found.broken, found.problem, found.sampling) == ("", "", "unknown")
    assert GuaranteeBasis(CLAIM, found, 1, 100).mechanism("replace_one").releases == found.steps


def test_few_draws_without_a_sampler_of_torch_do_not_make_a_pass():
    batches = [np.array([7, 9])] * 4
    drawn = Draws(None, "unknown", 100, float("nan"), 0, batches, [0, 1, 2, 3])
    assert used(one_by_one(batches), [drawn], 100).kind == "unknown"


def test_one_record_that_is_in_every_batch_shows_among_many():
    rng = np.random.default_rng(9)
    batches = [np.union1d(np.flatnonzero(rng.random(1000) < 0.2), [5]) for _ in range(20)]
    assert used(one_by_one(batches), [Draws(None, "poisson", 1000, 0.2, 0, batches, [0])], 1000).kind == "unknown"


def test_of_two_loaders_the_one_that_drew_last_was_used():
    batches = [np.arange(20 * k, 20 * k + 20) % 100 for k in range(10)]
    shown, drawn = (Draws(None, "shuffled", 100, float("nan"), k, batches, [0, 5]) for k in (0, 1))
    clipped = [[(20, {0: 10, 1: at + 1})] for at in range(10)]
    assert used(clipped, [shown, drawn], 100).number == 1


def test_steps_are_paired_with_pieces_sums_and_batches_drawn_ahead():
    batches = [np.arange(20 * k, 20 * k + 20) % 100 for k in range(10)]
    drawn = Draws(None, "shuffled", 100, float("nan"), 0, batches, [0, 5])
    pieces = [[(12, {0: at + 1}), (8, {0: at + 1})] for at in range(10)]
    sums = [[(20, {0: at + 1}), (20, {0: at + 2})] for at in (0, 2, 5, 7)]  # the fifth and tenth are left
    ahead = [[(20, {0: min(at - at % 5 + 5, at + 3)})] for at in range(10)]  # workers do, to the end of the pass
    twice = [[(20, {0: at + 1})] for at in range(10) for _ in range(2)]

    assert matched(pieces, drawn) == ([[at] for at in range(10)], [*range(10)])
    assert matched(sums, drawn) == ([[0, 1], [2, 3], [5, 6], [7, 8]], [0, 1, 2, 3, 5, 6, 7, 8])
    assert matched(ahead, drawn) == ([[at] for at in range(10)], [*range(10)])
    assert matched(twice, drawn) is None


def test_an_honest_rate_is_not_contradicted_by_the_passes_that_leave_records_out():
    shuffled = replace(CLAIM, sampling="shuffled", sample_rate=0.3, steps=15, noise_multiplier=4.0, epsilon=20.0)
    found = Observation("opacus", 2, 100, 15, 4.0, max_grad_norm=0.5, sampling="shuffled", sample_rate=0.3, passes=5)
    said = {p.name: p.outcome for p in contradictions(shuffled, found, 100)}
    assert said["dp_claim"] == "passed"
    assert "dp_parameters" not in said
    exact = GuaranteeBasis(shuffled, found, 1, 100).guarantee(1e-5).epsilon
    assert (
        exact == GuaranteeBasis(shuffled, replace(found, sample_rate=1 / 3, passes=0), 1, 100).guarantee(1e-5).epsilon
    )
    fewer = replace(found, passes=0, sample_rate=0.2)
    assert exact > GuaranteeBasis(shuffled, fewer, 1, 100).guarantee(1e-5).epsilon


def test_records_far_away_are_made_of_every_kind_of_number():
    rows = np.array([True, False, False])
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": np.array([5, 6, 7], np.int8), "c": ["x", "y", "z"]})
    far = watch_replay.far_away(frame, rows, 1e6)
    assert far["a"].tolist() == [1e6, 2.0, 3.0]
    assert (far["b"].tolist(), far["b"].dtype) == ([90, 6, 7], np.int8)  # as far as the type holds
    assert far["c"].tolist() == ["x", "y", "z"]
    assert frame["a"].tolist() == [1.0, 2.0, 3.0]
    counts = watch_replay.far_away(np.arange(6).reshape(3, 2), rows, 1e6)
    assert counts.tolist() == [[0, 1_000_000], [2, 3], [4, 5]]
    assert watch_replay.far_away(["a", "b", "c"], rows, 1e6) == ["a", "b", "c"]
    both = watch_replay.far_away(np.ones((3, 2)), rows, -1e6)
    assert both.tolist() == [[-1e6, 1e6], [1, 1], [1, 1]]
    missing = watch_replay.far_away(frame, rows, np.nan)
    assert (missing["a"].isna().tolist(), missing["b"].tolist()) == ([True, False, False], [5, 6, 7])
