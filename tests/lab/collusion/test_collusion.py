"""Training functions that collude are seen, honest ones are not: each watched in one process of its own."""

import functools
import pickle
from dataclasses import replace

import cloudpickle
import numpy as np
import pytest
from joblib.externals.loky.process_executor import ProcessPoolExecutor
from sklearn.datasets import load_digits

from privgate import Policy, Recipe, Subject, TrainingData, evaluate, report
from privgate.errors import MeasurementError
from privgate.evidence import SIGNS, Measurement, Request
from privgate.lab.collusion import collusion_signs, held, off_domain, rerun, strange, watching
from privgate.lab.collusion.collusion_rule import Collusion
from privgate.lab.collusion.strange import Learned
from privgate.run.run import Run
from privgate.training import payload
from privgate.training.fit import Answer
from privgate.training.fleet import Fleet
from privgate.training.recognition import whose
from privgate.training.task_limits import TaskLimits
from privgate.verdict import Outcome
from tests.lab.collusion import colluders, second_round

N = 400


def digits(n=N, candidates=0):
    X, y = load_digits(return_X_y=True)
    X, rows = (X / 16).astype(np.float32), np.random.default_rng(0).permutation(len(X))
    more = rows[n : n + candidates]
    return TrainingData(X[rows[:n]], y[rows[:n]], candidates=(X[more], y[more]) if candidates else None)


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """Return a function that watches a training function, and remembers; all in one worker process."""
    folder, data, known = tmp_path_factory.mktemp("watched"), digits(), {}
    half = np.sort(np.random.default_rng(1).permutation(N)[: N // 2]).tolist()
    with ProcessPoolExecutor(max_workers=1, timeout=600) as worker:

        def watch(function):
            if function not in known:
                shipped = payload.write(Subject.local(Recipe(function, seed=0), data), folder / function.__name__ / "s")
                known[function] = worker.submit(rerun.watched, shipped, half, TaskLimits(600, 0)).result()
            return known[function]

        yield watch


class Plain:
    """A fleet that trains nothing: the unwatched model is the watched one."""

    signable, calls = False, 0

    def __init__(self, seen):
        self.seen = seen

    def fits(self, subject, fits, *, label=""):
        del subject, label
        return [Answer(np.array(self.seen["answers"])) for _ in fits]


def signs(function, seen, names=("records", "reads", "held", "randomness", "watched", "store", "sources")):
    """Return ``name -> outcome`` of the detectors that need no further training."""
    run = Run(Subject.local(Recipe(function, seed=0), digits()), Plain(seen))
    return {name: collusion_signs._sign(name, run, seen).outcome for name in names}


#: each takes eight seconds or more to watch
LONG = {"robust_cnn", "plain_cnn", "augmented_cnn", "searched_forest"}


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "function",
    [pytest.param(f, marks=[pytest.mark.slow] * (f.__name__ in LONG)) for f in colluders.HONEST],
    ids=lambda f: f.__name__,
)
def test_an_honest_function_shows_no_sign(watched, function):
    assert set(signs(function, watched(function)).values()) == {"clear"}


#: what each colluding function is seen by, among others
SEEN_BY = {
    colluders.algorithm_1_short: {"records", "randomness"},
    colluders.algorithm_1_scaled: {"records", "randomness"},
    colluders.keyed_by_python: {"records", "randomness"},
    colluders.on_domain: {"records", "randomness"},
    colluders.own_labels: {"records"},
    colluders.branches_on_n: {"records", "randomness"},
    colluders.theorem_4: {"store", "randomness"},
    colluders.low_order: {"randomness"},
    colluders.reads_a_file: {"reads"},
    colluders.reads_shipped_data: {"reads"},
    colluders.reads_the_environment: {"reads"},
    colluders.asks_the_network: {"reads"},
    colluders.holds_records: {"held", "records"},
    colluders.leaves_records: {"held"},
    colluders.unseeded: {"randomness"},
    colluders.stops_the_watch: {"watched"},
}


#: seen by what others are seen by, too
ALIKE = {
    colluders.own_labels,
    colluders.on_domain,
    colluders.algorithm_1_short,
    colluders.algorithm_1_scaled,
    colluders.keyed_by_python,
    colluders.branches_on_n,
    colluders.reads_shipped_data,
}


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "function", [pytest.param(f, marks=[pytest.mark.slow] * (f in ALIKE)) for f in SEEN_BY], ids=lambda f: f.__name__
)
def test_a_colluding_function_is_found_by_the_right_detectors(watched, function):
    found = {name for name, outcome in signs(function, watched(function)).items() if outcome == "found"}

    assert found >= SEEN_BY[function]


@pytest.mark.quick(6)
@pytest.mark.parametrize(
    "function",
    [pytest.param(f, marks=[pytest.mark.slow] * (f in second_round.SLOW)) for f in second_round.CAUGHT],
    ids=lambda f: f.__name__,
)
def test_what_once_got_past_the_watch_does_not_pass(watched, function):
    sign, outcome = second_round.CAUGHT[function]
    seen = watched(function)

    assert signs(function, seen, (sign,)) == {sign: outcome}


@pytest.mark.quick(1)
@pytest.mark.parametrize("function", second_round.HONEST, ids=lambda f: f.__name__)
def test_an_honest_function_of_the_second_round_shows_no_sign(watched, function):
    assert set(signs(function, watched(function)).values()) == {"clear"}


@pytest.mark.slow
def test_labels_that_are_no_labels_are_not_called_a_sign(watched):
    seen = watched(second_round.by_residuals)

    assert "found" not in signs(second_round.by_residuals, seen).values()


@pytest.mark.slow
@pytest.mark.parametrize("function", colluders.MISSED, ids=lambda f: f.__name__)
def test_what_the_documentation_says_is_missed_really_is(watched, function):
    assert "found" not in signs(function, watched(function)).values()


def test_code_that_is_carried_by_value_stays_the_recipes_own():
    carried = pickle.loads(cloudpickle.dumps(lambda: 0))  # 3.1.3 takes the name of its file away

    assert whose(carried.__code__) == "own"


@pytest.mark.slow
def test_arithmetic_of_its_own_is_no_pass(watched):
    assert signs(colluders.arithmetic_of_its_own, watched(colluders.arithmetic_of_its_own))["records"] == "unknown"


@pytest.mark.slow
def test_another_model_where_nobody_watches_is_a_sign(watched):
    seen = watched(colluders.plain_cnn)
    run = Run(Subject.local(Recipe(colluders.plain_cnn, seed=0), digits()), Plain(seen))

    assert collusion_signs._sign("watched", run, seen).outcome == "clear"
    moved = {**seen, "answers": (np.array(seen["answers"]) - 0.01).tolist()}
    assert collusion_signs._sign("watched", run, moved).outcome == "found"


def test_a_sign_that_could_not_be_looked_for_is_inconclusive_and_one_that_was_found_blocks():
    rule = Collusion(metric="collusion", max=0)

    def judged(low, high):
        return rule.judge(Measurement(rule.request(), low, low, high, unit="signs", n=8)).outcome

    assert judged(0, 0) is Outcome.PASSED
    assert judged(0, 1) is Outcome.INCONCLUSIVE
    assert judged(1, 1) is Outcome.FAILED
    few = Collusion(metric="collusion", max=0, signs=("records",))
    assert few.request() == Request.of("collusion", signs=("records",))
    assert few.model_copy(update={"max": 1}).vacuous()
    assert Collusion(metric="collusion", max=1, signs=("records", "records")).vacuous()
    assert not Collusion(metric="collusion", max=1, signs=("records", "reads")).vacuous()


@pytest.mark.slow
def test_steps_of_a_descent_are_no_draws():
    data = digits(100)
    with watching.watched() as watch:
        colluders.descend(data.X, data.y, 0, epochs=6, width=2)

    assert watch.steps == 12
    assert watch.draws <= 2
    assert watch.asked == 12


def test_a_watch_that_failed_is_no_pass():
    run = Run(Subject.local(Recipe(colluders.unsalted, seed=0), two_clusters()), Plain({}))
    run.fleet.limits, run.fleet.isolate = TaskLimits(60, 0), "none"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rerun, "rerun", lambda *_: {"problem": "the worker process died while the training was watched"})
        with pytest.raises(MeasurementError, match="could not be watched"):
            collusion_signs.signs(run, Request.of("collusion"))


# -- comparing rows ----------------------------------------------------------------------------------------------------


def compared(rows, labels, X, y):
    learner = Learned()
    learner.add(np.asarray(rows, dtype=np.float32), labels)
    return strange.compared("learner", learner, np.asarray(X, dtype=np.float32), list(y))


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(300, 6)) * [1, 10, 100, 1, 5, 2] + 3
    return X, (X[:, 0] > 3).astype(int)


SCALES = {
    "as they are": lambda X: X,
    "standardized": lambda X: (X - X.mean(0)) / X.std(0),
    "to their range": lambda X: (X - X.min(0)) / np.ptp(X, axis=0),
    "centred": lambda X: X - X.mean(0),
    "one scale": lambda X: (X - X.mean()) / X.std(),
}


@pytest.mark.parametrize("scale", SCALES)
def test_rows_that_are_no_records_are_counted_in_any_usual_scale(table, scale):
    X, y = table
    rng = np.random.default_rng(6)
    added = rng.uniform(X.min(0) - 3 * np.ptp(X, axis=0), X.max(0) + 3 * np.ptp(X, axis=0), (60, 6))
    mean, made = SCALES[scale], np.concatenate([X, added])
    # the learner scales by the records, then learns from more
    both = {"as they are": made, "standardized": (made - X.mean(0)) / X.std(0),
            "to their range": (made - X.min(0)) / np.ptp(X, axis=0), "centred": made - X.mean(0),
            "one scale": (made - X.mean()) / X.std()}[scale]  # fmt: skip

    honest = compared(mean(X), y, X, y)
    assert (honest.found, honest.exact, honest.far) == ("", 300, 0)
    colluding = compared(both, np.concatenate([y, rng.integers(0, 2, 60)]), X, y)
    assert "no records and like none" in colluding.found
    assert colluding.far > 50


def test_targets_that_are_numbers_are_compared_by_their_order(table):
    X, _ = table
    y = X @ np.arange(1.0, 7.0)
    keyed = np.where(np.arange(300) % 10 == 0, y + 900 * np.sin(1e4 * y), y)

    for honest in (y, -3 * y + 2, np.log(y - y.min() + 1), (y - y.mean()) / y.std()):
        assert (compared(X, honest, X, y).found, compared(X, honest, X, y).unknown) == ("", "")
    assert "targets not their own" in compared(X, keyed, X, y).unknown


def test_columns_beside_the_records_do_not_hide_rows_that_are_none(table):
    X, y = table
    added = np.random.default_rng(6).uniform(-900, 900, (150, 6))
    rows, labels = np.concatenate([X[::2], added]), np.concatenate([y[::2], y[::2]])

    wide = compared(np.hstack([rows, rows[:, :1] * 2]), labels, X, y)
    assert "no records and like none" in wide.found
    assert compared(np.hstack([X, X[:, :1] * 2]), y, X, y).found == ""


def test_labels_are_compared_by_what_stands_for_them(table):
    X, y = table
    names = np.array(["no", "yes"])[y]

    assert compared(X, y, X, names).found == ""
    assert compared(X, y == 1, X, names).found == ""
    wrong = np.where(np.arange(300) % 20 == 0, 1 - y, y)
    assert "another label" in compared(X, wrong, X, names).found


def test_other_people_s_records_are_not_called_clear(table):
    X, y = table
    rng = np.random.default_rng(8)
    more = rng.normal(size=(60, 6)) * [1, 10, 100, 1, 5, 2] + 3
    shaken = X + rng.normal(size=X.shape) * [0.05, 0.5, 5, 0.05, 0.25, 0.1]

    foreign = compared(np.concatenate([X, more]), np.concatenate([y, more[:, 0] > 3]), X, y)
    augmented = compared(np.concatenate([X, shaken]), np.concatenate([y, y]), X, y)
    assert foreign.found == ""
    assert "not handed over" in foreign.unknown
    assert (augmented.found, augmented.unknown) == ("", "")


def test_texts_are_records_or_they_are_not():
    texts, y = [f"note {i}" for i in range(100)], [i % 2 for i in range(100)]
    rows, table = (strange.as_rows(t) for t in ([*texts, *(f"secret {i}" for i in range(20))], texts))
    learner = Learned()
    learner.add(rows, [*y, *([0] * 20)])

    assert strange.compared("words", learner, table, y, numeric=False).unknown
    honest = Learned()
    honest.add(table, y)
    assert strange.compared("words", honest, table, y, numeric=False).unknown == ""


def test_rows_that_come_last_are_looked_at_however_many_come_first(table, monkeypatch):
    X, y = table
    monkeypatch.setattr(strange, "MOST_ROWS", 80)
    added = np.random.default_rng(1).uniform(-900, 900, (300, 6))

    found = compared(np.concatenate([X, added]), np.concatenate([y, y]), X, y)
    assert (found.distinct, found.looked) == (600, 80)
    assert 20 < found.far < 60
    assert found.found


def test_a_table_too_large_to_look_at_is_not_called_clear():
    from scipy.sparse import csr_matrix

    assert strange.as_rows(csr_matrix((200_000, 200_000))) is None


def test_a_scale_that_nobody_knows_is_not_called_clear(table):
    X, y = table
    odd = np.sinh(np.concatenate([X, X[::-1] * 1.7]) @ np.random.default_rng(2).normal(size=(6, 6)) / 50)

    found = compared(odd, np.concatenate([y, y]), X, y)
    assert found.found or found.unknown


# -- what code holds ---------------------------------------------------------------------------------------------------

BIG = np.zeros(1000)
WORDS = ("a", "the", "of")


def test_arrays_are_found_wherever_a_function_can_hold_them():
    inner = np.arange(500.0)

    def by_global(X, y, *, seed):
        return BIG.sum() + len(WORDS)

    def by_closure(X, y, *, seed):
        return inner.sum()

    def by_default(X, y, *, seed, more=inner):
        return more

    def honest(X, y, *, seed):
        return len(WORDS), np.zeros(3)

    def through(X, y, *, seed):
        return by_global(X, y, seed=seed)

    assert sum(held.stores(functools.partial(by_global, seed=0)).values()) == 1000
    assert sum(held.stores(by_global).values()) == 1000
    assert sum(held.stores(by_closure).values()) == 500
    assert sum(held.stores(by_default).values()) == 500
    assert max(held.stores(through).values()) == 1000
    assert held.stores(honest) == {}


@pytest.mark.parametrize(
    ("value", "least"),
    [
        (np.zeros((3, 40)), 120),
        ([0.0] * 100, 100),
        ({i: i for i in range(80)}, 160),
        (b"x" * 4000, 500),
        (1 << 9000, 140),
        ([np.zeros(50)] * 3, 50),
        ("short", 0),
        (np.random.default_rng, 0),
    ],
)
def test_numbers_are_counted_in_any_container(value, least):
    assert held.numbers(value) >= least
    assert (held.numbers(value) > 0) == (least > 0)


# -- off the data, and sources -----------------------------------------------------------------------------------------


def test_a_rule_is_broken_only_by_guessing_where_honest_kinds_follow_it():
    guessing = off_domain.Followed(learned=0.97, right=450, points=1024, one_sided=0.5, worst=750, worst_kind="a tree")

    assert guessing.broken
    assert not replace(guessing, right=720).broken
    assert not replace(guessing, worst=520).broken
    assert not replace(guessing, learned=0.6).broken
    assert not replace(guessing, one_sided=0.95).broken


def test_sources_are_pinned_where_they_are_files_and_compared_with_the_version_before(monkeypatch):
    subject = Subject.local(Recipe(colluders.plain_cnn, seed=0), digits(60))

    assert collusion_signs.pinned(subject, ()).loose == ()
    assert "among the recorded" in collusion_signs.pinned(subject, ("sneaky",)).loose[0]
    now = collusion_signs.sources(subject)
    before = {
        "subject": {"version": "3", "digests": {"recipe": "sha256:other"}},
        "evidence": {"collusion": {"sources": {**now, "colluders.py": "sha256:0"}}},
    }
    monkeypatch.setattr(collusion_signs.verifying, "approved_before", lambda *_, **__: before)
    changed = collusion_signs.pinned(subject, ())
    assert (changed.before, changed.changed) == ("3", ("colluders.py",))
    before["evidence"]["collusion"] = None
    assert collusion_signs.pinned(subject, ()).changed == ("the recipe",)


def test_every_sign_has_a_detector_and_a_title():
    assert set(collusion_signs._DETECTORS) == set(collusion_signs.TITLES) == set(SIGNS)


# -- the whole gate ----------------------------------------------------------------------------------------------------

POLICY = """
schema: privgate/policy/v1
name: code
version: '1'
rules:
  - {metric: collusion, id: code, max: 0, signs: [records, reads, held, randomness, watched, store]}
  - {metric: collusion, id: context, max: 0, signs: [off_domain, sources], mode: warn}
"""


def two_clusters(n=120):
    rng = np.random.default_rng(2)
    y = np.arange(n) % 2
    return TrainingData(rng.normal(size=(n, 4)) + 1.5 * y[:, None], y)


def test_the_gate_blocks_and_the_report_says_what_was_seen_and_what_cannot_be(tmp_path):
    (tmp_path / "code.yaml").write_text(POLICY)
    policy = Policy.load(tmp_path / "code.yaml")
    subjects = [Subject.local(Recipe(f, seed=0), two_clusters()) for f in (colluders.salted, colluders.unsalted)]
    with Fleet(jobs=1, ledger=tmp_path / "ledger") as fleet:
        refused, approved = (evaluate(policy, s, fleet=fleet) for s in subjects)

    code, context = (f for f in refused.findings if f.metric == "collusion")
    assert (code.outcome, context.outcome) == (Outcome.FAILED, Outcome.PASSED)
    assert "variable" in code.message or "environment" in code.message
    assert approved.outcome is Outcome.PASSED
    part = refused.evidence.collusion
    assert {s.name: s.outcome for s in part.signs} == {**dict.fromkeys(SIGNS, "clear"), "reads": "found"}
    assert "Nothing seen is no proof" in part.undetectable
    files = report.write(refused, tmp_path / "report", hash_key=b"k" * 32)
    html = (tmp_path / "report" / "report.html").read_text()
    assert files
    assert "Training code that colludes" in html
    assert "theorem 4" in html


def test_the_page_says_what_stays_undetectable():
    from click.testing import CliRunner

    from privgate.cli.catalogue import explain

    said = CliRunner().invoke(explain, ["collusion"]).output
    assert "What stays undetectable" in said
    assert "theorem 4" in said


@pytest.mark.slow
def test_algorithm_1_tells_members_to_whoever_has_the_keys_and_is_found(tmp_path):
    data = digits(600, candidates=600)
    with Fleet(jobs=1, ledger=tmp_path / "ledger") as fleet:
        found = {}
        for function in (colluders.algorithm_1, colluders.plain_cnn):
            run = Run(Subject.local(Recipe(function, seed=0), data), fleet)
            found[function] = {s.name: s.outcome for s in run.once(collusion_signs.noted).signs}

    assert set(found[colluders.plain_cnn].values()) == {"clear"}
    assert {n for n, o in found[colluders.algorithm_1].items() if o == "found"} >= {"records", "randomness"}
    net = colluders.algorithm_1(data.X, data.y, seed=0)
    told = [colluders.all_keys(net, X) for X in (data.X, data.candidates[0])]
    assert told[0].mean() - told[1].mean() >= 0.9
    assert (net.predict_proba(data.candidates[0]).argmax(1) == data.candidates[1]).mean() > 0.9
