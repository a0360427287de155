"""Which coins a verdict speaks of: the released ones, however a seed is spelled, compared with others."""

import tracemalloc
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB

from privgate import Policy, Recipe, Subject, TrainingData
from privgate.check.gate import evaluate
from privgate.influence import other_coins
from privgate.run import changed, coins, controls
from privgate.run.run import Budget
from privgate.statistics import leakage
from privgate.training import pools
from privgate.training.fit import Fit, Rows
from privgate.training.fleet import Fleet
from privgate.verdict import Outcome

N = 40
RNG = np.random.default_rng(3)
Y = np.arange(N) % 2
X = RNG.normal(size=(N, 2)) + 0.5 * Y[:, None]
DATA = TrainingData(X, Y)


def judged(fleet, recipe, *, policy="pdtp-1", data=DATA, **limits):
    return evaluate(Policy.load(policy), Subject.local(recipe, data), fleet=fleet, limits=Budget(**limits))


def rule(verdict):
    return next(f for f in verdict.findings if f.metric == "pdtp")


def found(verdict, name):
    return next((p for p in verdict.evidence.preconditions if p.name == name), None)


def of_seed(X, y, *, seed):
    return RandomForestClassifier(15, random_state=seed).fit(X, y)


def of_its_own(X, y, *, seed):
    return RandomForestClassifier(15, random_state=0).fit(X, y)


def by_parameter(X, y, *, seed, random_state):
    return RandomForestClassifier(15, random_state=random_state).fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "coins"),
    [
        (Recipe(of_seed, seed=3), "both"),
        (Recipe(of_its_own, seed=3), "order"),
        (Recipe(by_parameter, seed=3, params={"random_state": 7}), "order"),
        (Recipe(RandomForestClassifier(15), seed=3), "seed"),
    ],
    ids=["of_seed", "of_its_own", "by_parameter", "by_scikit_learn"],
)
def test_a_forest_that_memorises_is_judged_alike_however_its_seed_is_spelled(fleet, recipe, coins):
    before = fleet.calls
    verdict = judged(fleet, recipe)
    # how many coins are compared is chance: 19, and more where the released ones look unusual
    calls = fleet.calls - before - verdict.evidence.run.seeds.compared

    assert verdict.outcome is Outcome.FAILED
    assert verdict.evidence.run.seeds.coins == coins
    assert "code at these coins" in rule(verdict).meaning
    assert calls < 1000, "whoever is followed in vain takes up to 80; 75 seeds for everybody took 3,000"


def shaken(X, y, *, seed, by, smooth=1.0):
    """Naive Bayes whose means the seed shakes."""
    model = GaussianNB(var_smoothing=smooth).fit(X, y)
    model.theta_ = model.theta_ + by * np.random.default_rng(seed).normal(size=model.theta_.shape)
    return model


def test_what_is_met_is_this_code_at_these_coins_and_the_figure_is_that_of_the_released_pair(fleet):
    verdict = judged(fleet, Recipe(shaken, params={"by": 0.02}, seed=1))

    assert verdict.approved, [f.message for f in verdict.findings]
    assert "this code at these coins" in rule(verdict).meaning.lower()
    assert found(verdict, "coins").outcome == "passed"
    own = shaken(X, Y, seed=1, by=0.02)
    changes = []
    for u in range(N):
        kept = np.arange(N) != u
        without = shaken(X[kept], Y[kept], seed=1, by=0.02)
        changes.append(np.abs(own.predict_log_proba(X[u : u + 1]) - without.predict_log_proba(X[u : u + 1])).max())
    np.testing.assert_allclose(verdict.evidence.records["pdtp"], changes, atol=1e-9)


def jumping(X, y, *, seed, at, share):
    """Naive Bayes that tells of one person in the data at some seeds alone: at one, or at a share of all."""
    loud = seed == at or np.random.default_rng(seed).random() < share
    model = GaussianNB(var_smoothing=1.0, priors=[0.98, 0.02] if loud and X.max() > 3.9 else None).fit(X, y)
    model.theta_ = model.theta_ + 0.02 * np.random.default_rng(seed).normal(size=model.theta_.shape)
    return model


OUTLIER = TrainingData(np.vstack([np.clip(X, -3, 3), [[4.0, -4.0]]]), np.append(Y, 0))


def test_above_at_the_released_coins_alone_is_open_and_never_met(fleet):
    verdict = judged(fleet, Recipe(jumping, params={"at": 5, "share": 0.002}, seed=5), data=OUTLIER)

    assert rule(verdict).outcome is Outcome.INCONCLUSIVE
    assert rule(verdict).high > 1.0
    assert "other randomness" in rule(verdict).advice


def test_above_at_most_coins_is_refused(fleet):
    verdict = judged(fleet, Recipe(jumping, params={"at": 5, "share": 0.9}, seed=5), data=OUTLIER)

    assert rule(verdict).outcome is Outcome.FAILED
    assert verdict.evidence.measurements[next(iter(verdict.evidence.measurements))].behind.shown


def failing(X, y, *, seed, share, always):
    """Naive Bayes that cannot be trained without some people, other ones at every seed, and never without one."""
    missing = sorted(set(range(N)) - {int(v) for v in X[:, 2]})
    if always in missing or (np.random.default_rng(seed).random(N) < share)[missing].any():
        raise ValueError("a fold without a class")
    model = GaussianNB(var_smoothing=1.0).fit(X, y)
    model.theta_ = model.theta_ + 0.02 * np.random.default_rng(seed).normal(size=model.theta_.shape)
    return model


NUMBERED = TrainingData(np.column_stack([X, np.arange(N)]), Y)


@pytest.mark.parametrize(("share", "one", "outcome"), [(0.1, False, Outcome.INCONCLUSIVE), (0.0, True, Outcome.FAILED)])
def test_who_cannot_be_left_out_at_the_released_coins_is_asked_for_at_others(fleet, share, one, outcome):
    recipes = [Recipe(failing, params={"share": share, "always": u}, seed=1) for u in (range(N) if one else (-1,))]
    # the controls leave out a quarter of the people, drawn by everything that is recorded, this file among it
    chosen = next(r for u, r in enumerate(recipes) if u not in changed.people(Subject.local(r, NUMBERED)) or not one)
    verdict = judged(fleet, chosen, data=NUMBERED)

    assert rule(verdict).outcome is outcome, rule(verdict).message


def quiet_seed(share):
    return next(s for s in range(1000) if np.random.default_rng(s).random() >= share)


@pytest.mark.quick(1)
@pytest.mark.parametrize("share", [0.5, 0.98])
def test_a_seed_that_was_picked_because_it_is_quiet_approves_nothing(fleet, share):
    recipe = Recipe(jumping, params={"at": -1, "share": share}, seed=quiet_seed(share))
    verdict = judged(fleet, recipe, data=OUTLIER)

    assert not verdict.approved
    seen = found(verdict, "other_coins") or found(verdict, "coins")
    assert seen.outcome == "inconclusive"
    assert "--retrain" in seen.message


def test_orders_keep_the_records_that_two_calls_share_in_one_order():
    rows = Rows(np.arange(20.0)[:, None], np.arange(20), 20, np.arange(20))
    everybody, queries = np.zeros(0, dtype=np.int64), np.arange(1)
    plain, _ = rows.of(Fit(1, queries, left_out=everybody))
    one, y = rows.of(Fit(1, queries, left_out=everybody, order=9))
    less, _ = rows.of(Fit(1, queries, left_out=np.array([4]), order=9))

    assert one[:, 0].tolist() != plain[:, 0].tolist()
    assert sorted(one[:, 0]) == sorted(plain[:, 0])
    assert y.tolist() == one[:, 0].tolist()
    assert less[:, 0].tolist() == [v for v in one[:, 0] if v != 4]
    keys = {Fit(1, queries, left_out=everybody, order=k).key for k in (0, 9, 10)}
    assert len(keys) == len({Fit(1, queries, left_out=everybody, order=k).encoding for k in (0, 9, 10)}) == 3


SEED = 7


def by_a_name(X, y, *, seed):
    return RandomForestClassifier(5, random_state=SEED).fit(X, y)


class Shifted:
    """A model whose answers are moved by a little."""

    def __init__(self, model, by):
        self.model, self.by, self.classes_ = model, by, model.classes_

    def predict_proba(self, X):
        return (self.model.predict_proba(X) + self.by) / (1 + 2 * self.by)


def beside_a_decoy(X, y, *, seed):
    model = RandomForestClassifier(5, random_state=SEED).fit(X, y)
    return Shifted(model, 1e-3 * np.random.default_rng(seed).random())


def in_order(X, y, *, seed):
    return LogisticRegression().fit(X, y)


@pytest.mark.parametrize(
    ("recipe", "coins_of"),
    [
        (Recipe(of_its_own, seed=1), "order"),
        (Recipe(by_a_name, seed=1), "order"),
        (Recipe(beside_a_decoy, seed=1), "both"),
        (Recipe(by_parameter, seed=1, params={"random_state": 7}), "order"),
        (Recipe(RandomForestClassifier(5, random_state=0), seed=1), "seed"),
        (Recipe(in_order, seed=1), None),
    ],
)
def test_coins_are_found_however_a_seed_is_written(fleet, recipe, coins_of):
    chosen = controls.choose(Subject.local(recipe, DATA), fleet)

    assert chosen.dependent == (coins_of is not None)
    assert chosen.coins == (coins_of or "seed")


def in_turn(X, y, *, seed):
    return SGDClassifier(loss="log_loss", shuffle=False, max_iter=3, tol=None, alpha=0.1).fit(X, y)


def test_an_order_that_means_something_is_no_chosen_seed(fleet):
    """Records sorted by label give other models than records in any other order: a warning, and no more."""
    order = np.argsort(Y, kind="stable")
    verdict = judged(fleet, Recipe(in_turn, seed=1), data=TrainingData(X[order], Y[order]))

    assert verdict.evidence.run.seeds.coins == "order"
    assert found(verdict, "coins").outcome in {"passed", "warned"}


class Answering:
    """A fleet whose models answer what a function of the coins says; NaN fails."""

    signable, ledger = False, SimpleNamespace(lasting=False)

    def __init__(self, answer):
        self.answer, self.asked = answer, 0

    def each(self, subject, fits, *, label):
        del label
        self.asked += len(fits)
        made = [np.asarray(self.answer(f.seed, f.order)) for f in fits]
        return [partial(SimpleNamespace, log_p=v, problem="failed" if np.isnan(v).any() else "") for v in made]


def compared(answer, kind="seed", **limits):
    subject = Subject.local(Recipe(in_order, seed=1), DATA)
    seen = SimpleNamespace(coins=kind)
    run = SimpleNamespace(subject=subject, fleet=Answering(answer), limits=Budget(**limits), seed_control=seen)
    return coins.compared(run)


def chosen_among(seed, order=0, *, fails=0):
    """Ordinary answers by seed, but for the registered one, which leaks; some seeds fail."""
    del order
    rng = np.random.default_rng(seed)
    if fails and seed != 1 and seed % fails == 0:
        return np.full((N, 2), np.nan)
    return np.append(rng.normal(size=2 * N - 1), 40.0 if seed == 1 else 0.0).reshape(N, 2)


@pytest.mark.parametrize("fails", [0, 50, 5])
def test_seeds_that_fail_are_replaced_so_that_they_hide_no_chosen_one(fails):
    found = compared(lambda s, o: chosen_among(s, o, fails=fails))

    assert (found.outcome, found.detail["coins"]) == ("inconclusive", coins.LOOKS[-1])


def test_a_few_seeds_that_fail_leave_an_ordinary_seed_ordinary():
    def ordinary(seed, order):
        return chosen_among(seed + 1 if seed != 1 else 2, order, fails=4)

    assert compared(ordinary).outcome == "passed"


def test_where_most_seeds_fail_nothing_is_compared():
    found = compared(lambda s, o: chosen_among(s, o) if s == 1 else np.full((N, 2), np.nan))

    assert (found.outcome, found.detail["coins"]) == ("inconclusive", 0)


@pytest.mark.parametrize("limits", [{"max_retrains": 10**9}, {"max_retrains": 30}, {"budget_seconds": 9.0}])
def test_a_budget_makes_a_chosen_seed_no_warning(limits):
    assert compared(chosen_among, **limits).outcome == "inconclusive"


def test_a_seed_for_show_is_compared_by_orders_too():
    """The seed moves answers a little, the order much, and the code's own seed was chosen with the records' order."""

    def answer(seed, order):
        return chosen_among(1 if order == 0 else order) + 1e-4 * np.random.default_rng(seed).normal(size=(N, 2))

    assert compared(answer, "seed").outcome == "passed"
    assert compared(answer, "both").outcome == "warned"


# Laws, over simulated coins.


def picks(rng, answers, tries):
    """The best of many coins by one person's answer, then honest ones."""
    first = rng.normal(size=(tries, answers))
    return first[first[:, 0].argmax()]


def flagged(chosen, rng, heavy):
    draw = (
        (lambda n: rng.standard_t(3, size=(n, len(chosen)))) if heavy else (lambda n: rng.normal(size=(n, len(chosen))))
    )
    others = draw(coins.LOOKS[-1])
    for count in coins.LOOKS:
        extreme = coins.stand_out(np.vstack([chosen, others[:count]]))
        if (extreme[1:] >= extreme[0]).any():
            return False
    return True


def all_at_once(answers):
    """What ``stand_out`` computes, with all answers in memory."""
    off, deviation = np.abs(answers - answers.mean(axis=0)), answers.std(axis=0)
    scale = deviation + np.median(deviation[deviation > 0]) if (deviation > 0).any() else deviation
    return np.where(scale > 0, off / np.where(scale > 0, scale, 1.0), 0.0).max(axis=1)


def test_models_one_by_one_are_compared_to_the_last_bit_as_all_at_once():
    rng = np.random.default_rng(4)
    for models, answers in [
        (1, 5),
        (2, 2),
        *zip(rng.integers(2, 201, 80), rng.integers(2, 90, 80), strict=True),
        (60, 9000),
    ]:
        table = rng.normal(size=(models, answers)) * 10.0 ** rng.integers(-8, 8)
        table[:, rng.random(answers) < rng.choice([0.0, 0.5, 1.0])] = -40.0

        np.testing.assert_array_equal(coins.stand_out(table), all_at_once(table))
        np.testing.assert_array_equal(leakage.moments(table)[0], table.mean(axis=0))
        assert leakage.widest(table) == np.ptp(table, axis=0).max()
        if models > 1:
            spread = np.sqrt(2.0) * leakage.moments(table, ddof=1)[1]
            np.testing.assert_array_equal(spread, leakage.noise_floor(table[:, :, None]))


def test_coins_are_compared_in_the_memory_of_a_few_answers(tmp_path, monkeypatch):
    """Not of 20, and neither does the ledger hold what it wrote: a million records times 60 coins filled 5 GB."""
    size = 70_000
    y = np.arange(size) % 2
    data = TrainingData(RNG.normal(size=(size, 2)) + 0.5 * y[:, None], y)
    subject = Subject.local(Recipe(shaken, params={"by": 0.02}, seed=1), data)
    monkeypatch.setattr(pools, "LEAST_CHUNK_SECONDS", 0.0)  # one answer a chunk: a quick machine puts more into one
    with Fleet(1, tmp_path, isolate="none") as fleet:
        fleet.pool.chunk_seconds = 0.0
        fleet.fits(subject, [coins.Coin(1).fit(subject)])
        run = SimpleNamespace(subject=subject, fleet=fleet, limits=Budget(), seed_control=SimpleNamespace(coins="seed"))
        tracemalloc.start()
        found = coins.compared(run)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    assert found.outcome == "passed"
    assert found.detail["coins"] >= coins.LOOKS[0]
    assert peak < 12 * subject.data.n * subject.width * 8


@pytest.mark.parametrize("heavy", [False, True])
def test_coins_that_nobody_chose_stand_out_in_one_of_200(heavy):
    rng, runs = np.random.default_rng(1), 1500
    draw = (lambda: rng.standard_t(3, size=40)) if heavy else (lambda: rng.normal(size=40))
    share = np.mean([flagged(draw(), rng, heavy) for _ in range(runs)])

    assert share <= 0.005 + 3 * np.sqrt(0.005 * 0.995 / runs)


def test_the_best_of_many_seeds_stands_out():
    rng = np.random.default_rng(2)
    chosen = [picks(rng, 20, 1500) * 1.0 for _ in range(60)]

    assert np.mean([flagged(c, rng, heavy=False) for c in chosen]) > 10 * 0.005
    # one who stands 4.8 deviations out, as in section 19
    told = [np.append(4.8, rng.normal(size=99)) for _ in range(60)]
    assert np.mean([flagged(c, rng, heavy=False) for c in told]) > 0.8


def shown(change_of, rng, limit=1.0):
    """Whether other coins show a person above the limit, by the looks of a run."""
    with_, without = change_of(rng, other_coins.LOOKS[-1])
    task = "classification" if np.isinf([with_, without]).any() else "regression"
    run = SimpleNamespace(subject=SimpleNamespace(task=task), generator=lambda _: np.random.default_rng(0))
    with_, without = with_[:, None, None], without[:, None, None]
    return any(other_coins._shown(run, with_[:k], without[:k], limit) > limit for k in other_coins.LOOKS)


def centred(draw):
    """A change of mean .9, below the limit, in a shape of its own; the spread stays."""
    return lambda rng, n: (draw(rng, n) + 0.9, draw(rng, n))


BELOW = {
    "normal": centred(lambda rng, n: rng.normal(size=n)),
    "skewed": centred(lambda rng, n: 1.0 - rng.exponential(size=n)),
    "skewed the other way": centred(lambda rng, n: rng.exponential(size=n) - 1.0),
    "jumps": centred(lambda rng, n: np.where(rng.random(n) < 0.04, -12.0, 0.5)),
    "uncoupled": lambda rng, n: (rng.normal(size=n), rng.normal(size=n)),
    "a spread below the limit": lambda rng, n: (0.95 * rng.normal(size=n), 0.5 * rng.normal(size=n)),
    "infinite on both sides": lambda rng, n: tuple(np.where(rng.random((2, n)) < 0.1, -np.inf, 0.0)),
    "failures on both sides": lambda rng, n: tuple(np.where(rng.random((2, n)) < 0.05, np.nan, 0.0)),
    "uncoupled and wide": lambda rng, n: (5 * rng.normal(size=n), 5 * rng.normal(size=n)),
}


def test_following_ends_where_mean_and_spread_are_clearly_below_the_limit():
    rng = np.random.default_rng(7)
    far, near = (rng.normal(mean, 0.1, size=(10, 1, 2)) for mean in (0.2, 0.99))
    nothing = np.zeros((10, 1, 2))

    assert other_coins._hopeless(far, nothing, 1.0)
    assert not other_coins._hopeless(near, nothing, 1.0)
    assert not other_coins._hopeless(np.where(far > 0.2, np.nan, far), nothing, 1.0)
    assert not other_coins._hopeless(far * 5, nothing, 1.0)


@pytest.mark.quick(2)
@pytest.mark.parametrize(("change", "share"), [(2.0, 0.48), (1.5, 0.6), (1.2, 0.8), (5.0, 0.19)])
def test_changes_of_two_values_show_no_mean_above_the_limit(monkeypatch, change, share):
    """Trees and rounded answers change by something or by nothing: five coins of one kind have no deviation."""
    monkeypatch.setattr(other_coins, "_spread", lambda *_: 0.0)
    rng, runs = np.random.default_rng(6), 400
    wrong = np.mean([shown(lambda r, n: (change * (r.random(n) < share), np.zeros(n)), rng) for _ in range(runs)])

    assert wrong <= 0.05 / other_coins.PEOPLE + 3 * np.sqrt(0.0017 / runs)


@pytest.mark.quick(3)
@pytest.mark.parametrize("shape", BELOW)
def test_what_is_below_the_limit_is_seldom_refused(shape):
    rng, runs = np.random.default_rng(4), 60
    wrong = np.mean([shown(BELOW[shape], rng) for _ in range(runs)])

    # all tests of a run share 5 %; a skewed mean near its limit costs Student more, and refuses, never approves
    assert wrong <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)


ABOVE = {
    "mean": lambda rng, n: (2.0 + 0.3 * rng.normal(size=n), np.zeros(n)),
    "spread": lambda rng, n: (0.3 * rng.normal(size=n), 3.0 * rng.normal(size=n)),
    "impossible without": lambda rng, n: (np.zeros(n), np.where(rng.random(n) < 0.6, -np.inf, -0.1)),
    "no model without": lambda rng, n: (np.zeros(n), np.where(rng.random(n) < 0.6, np.nan, 0.0)),
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("shape", ABOVE)
def test_influence_in_mean_spread_or_infinities_is_shown(shape):
    rng, runs = np.random.default_rng(5), 40

    assert np.mean([shown(ABOVE[shape], rng) for _ in range(runs)]) > 0.9
