"""A ledger cannot approve: what a run to be signed rests on was trained in it, and a forged entry blocks."""

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import CategoricalNB

from privgate.check import beforehand, gate
from privgate.errors import UsageError
from privgate.policy import Policy
from privgate.run.run import Budget, Run
from privgate.subject.data import TrainingData
from privgate.subject.domain import Domain
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training import context
from privgate.training import ledger as ledger_key
from privgate.training.fit import Answer, Fit
from privgate.training.fleet import Fleet
from privgate.training.ledger import Ledger, build, sealing_key


@pytest.fixture(autouse=True)
def own_key(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("PRIVGATE_LEDGER_KEY", raising=False)
    return tmp_path / "config" / "privgate" / "ledger.key"


def out(*rows):
    return [Fit(1, np.arange(2), left_out=np.array([r])) for r in rows]


def plain(folder, **settings):
    return Fleet(jobs=1, ledger=folder, isolate="none", **settings)


def forge(fleet, subject, fits, answer, secret):
    """Write entries for these calls as somebody with a secret can."""
    entries = [(key, context.encode(answer)) for key in fleet.keys(subject, fits)]
    folder = fleet.ledger.place.folder
    for path in folder.iterdir():
        path.unlink()
    (folder / "00000000000000000001-1-forged.seg").write_bytes(build(entries, sealing_key(secret)))


HARMLESS = Answer(np.log(np.full((2, 2), 0.5)))


@pytest.mark.attack("10 a ledger sealed with a public constant", "check", "refused")
def test_what_was_forged_with_a_public_constant_is_not_read(tmp_path, subject):
    with plain(tmp_path / "ledger") as fleet:
        forge(fleet, subject(), out(1, 2), HARMLESS, b"this user only")
    with plain(tmp_path / "ledger") as second:
        answers = second.fits(subject(), out(1, 2))
        assert second.calls == 2
    assert all(not np.array_equal(a.log_p, HARMLESS.log_p) for a in answers)


def test_who_holds_the_key_forges_what_an_unsigned_run_believes_and_a_signable_one_finds_out(
    tmp_path, subject, own_key
):
    with plain(tmp_path / "ledger") as fleet:
        forge(fleet, subject(), out(1, 2), HARMLESS, own_key.read_bytes())
    with plain(tmp_path / "ledger") as unsigned:
        with unsigned.afresh():
            believed = unsigned.fits(subject(), out(1, 2))
        assert unsigned.calls == 0
        assert not unsigned.freshness.told(signable=False).signable
    np.testing.assert_array_equal(believed[0].log_p, HARMLESS.log_p)

    with plain(tmp_path / "ledger", signable=True) as fresh:
        with fresh.afresh():
            found = fresh.fits(subject(), out(1, 2))
        assert fresh.freshness.different == fresh.freshness.compared == 2
    assert not np.array_equal(found[0].log_p, HARMLESS.log_p)

    with plain(tmp_path / "ledger", signable=True) as sampling:
        sampling.fits(subject(), out(1, 2))
        assert sampling.calls == 0
        sampling.spot_check()
        assert sampling.freshness.different == 2


def test_in_a_signable_run_nothing_is_trained_afresh_twice(tmp_path, subject):
    with plain(tmp_path / "ledger") as first:
        first.fits(subject(), out(*range(8)))
    written = len(Ledger(tmp_path / "ledger"))
    with plain(tmp_path / "ledger", signable=True) as second:
        for _ in range(2):
            with second.afresh():
                second.fits(subject(), out(0, 1, 2))
        second.fits(subject(), out(*range(8)))
        second.spot_check()
        second.spot_check()
        assert second.calls == 8
        told = second.freshness.told(signable=True)
    assert (told.compared, told.different, told.signable) == (8, 0, True)
    assert len(Ledger(tmp_path / "ledger")) == written  # what agrees is not written again


def test_the_sample_is_drawn_from_everything_and_nobody_knows_it_before(tmp_path, subject):
    asked = subject(n=200)
    fits = out(*range(150))
    drawn = []
    for _ in range(2):
        seen = context.Freshness()
        for i in range(0, 150, 7):
            keys = [bytes([j]) * 32 for j in range(i, min(i + 7, 150))]
            seen.note(asked, keys, fits[i : i + 7], [HARMLESS] * len(keys))
        drawn.append({r.key for r in seen.sample()})
    assert [len(d) for d in drawn] == [context.SAMPLE] * 2
    assert drawn[0] != drawn[1]
    assert any(key[0] >= 100 for key in drawn[0] | drawn[1])


def noisy(X, y, *, seed):
    from sklearn.naive_bayes import GaussianNB

    rng = np.random.default_rng()
    return GaussianNB().fit(X + rng.normal(size=X.shape), y)


def test_training_that_never_repeats_itself_accuses_nobody(tmp_path):
    data = TrainingData(np.arange(20.0)[:, None], np.arange(20) % 2)
    asked = Subject.local(Recipe(noisy, seed=1), data)
    with plain(tmp_path / "ledger") as first:
        first.fits(asked, out(1, 2))
    with plain(tmp_path / "ledger", signable=True) as second, second.afresh():
        second.fits(asked, out(1, 2))
    assert (second.freshness.compared, second.freshness.noisy, second.freshness.different) == (2, 2, 0)


@pytest.mark.parametrize("signable", [True, False])
def test_where_training_never_repeats_itself_a_run_keeps_what_it_trained(tmp_path, own_key, signable):
    asked = Subject.local(Recipe(noisy, seed=1), TrainingData(np.arange(20.0)[:, None], np.arange(20) % 2))
    with plain(tmp_path / "ledger", signable=signable) as fleet:
        own = fleet.fits(asked, out(1))[0]
        fleet.ledger.settle()
        forge(fleet, asked, out(1), Answer(own.log_p - 0.1), own_key.read_bytes())  # another process wrote its own
        fleet.ledger._open()
        assert len({fleet.fits(asked, out(1))[0].log_p[0, 0] for _ in range(3)}) == 1
        assert fleet.calls <= 2
        assert not fleet.freshness.different


def test_what_cannot_be_compared_is_not_used_in_a_run_to_be_signed(tmp_path):
    data = TrainingData(np.arange(20.0)[:, None], np.arange(20) % 2)
    asked = Subject.local(Recipe(noisy, seed=1), data)
    with plain(tmp_path / "ledger") as first:
        old = first.fits(asked, out(1, 2, 3))
    with plain(tmp_path / "ledger", signable=True) as second:
        with second.afresh():
            new = second.fits(asked, out(1))
        new += second.fits(asked, out(2, 3))
        again = second.fits(asked, out(1, 2, 3))
    assert not any(np.array_equal(a.log_p, b.log_p) for a, b in zip(old, new, strict=True))
    assert all(np.array_equal(a.log_p, b.log_p) for a, b in zip(again, new, strict=True))
    with plain(tmp_path / "ledger", signable=True) as third:  # who forges leaves out what controls ask for
        third.fits(asked, out(2, 3))
        found = beforehand.remembered(Run(asked, third))
    assert [(p.name, p.outcome) for p in found] == [("remembered", "inconclusive")]


class Stored:
    """A stored model that answers as it was fitted."""

    def load(self):
        return CategoricalNB(alpha=5.0, min_categories=3).fit([[0], [1], [2]], [0, 1, 1])


def test_what_the_stored_model_is_remembered_to_answer_is_counted_and_compared(tmp_path, own_key):
    from dataclasses import replace

    data = TrainingData(np.arange(20)[:, None] % 3, np.arange(20) % 2)
    asked = replace(
        Subject.local(Recipe(CategoricalNB(alpha=5.0, min_categories=3)), data), model=Stored(), digests={"model": "m"}
    )
    rows = np.arange(2)
    with plain(tmp_path / "ledger") as first:
        true = first.registered(asked, rows)
        assert not true.problem
    with plain(tmp_path / "ledger") as unsigned:
        unsigned.registered(asked, rows)
        assert not unsigned.freshness.told(signable=False).signable
    ledger = Ledger(tmp_path / "ledger")
    keys = [k.tobytes() for segment in ledger._segments for k in segment.keys]
    for path in (tmp_path / "ledger").iterdir():
        path.unlink()
    name = tmp_path / "ledger" / "00000000000000000001-1-forged.seg"
    name.write_bytes(build([(k, context.encode(HARMLESS)) for k in keys], sealing_key(own_key.read_bytes())))
    with plain(tmp_path / "ledger", signable=True) as signable:
        answers = [signable.registered(asked, rows) for _ in range(2)]
        assert (signable.freshness.compared, signable.freshness.different) == (1, 1)
    assert all(np.array_equal(a.log_p, true.log_p) for a in answers)


def test_one_models_runs_remember_nothing_for_another(tmp_path, subject):
    from dataclasses import replace

    one, two = (replace(subject(), name=name) for name in ("credit", "fraud"))
    with plain(tmp_path / "ledger") as fleet:
        for asked in (one, two, one):
            fleet.fits(asked, out(1))
        assert fleet.calls == 2


def placed(X, y, *, seed, place):
    """Train where a folder is there, and raise an error of another class than the system's where it is not."""
    if not Path(place).is_dir():
        raise ModuleNotFoundError("No module named 'shrunk'")
    return CategoricalNB().fit(X, y)


@pytest.mark.parametrize("signable", [True, False])
@pytest.mark.parametrize("written_earlier", [True, False])
def test_what_a_place_broke_is_final_in_its_run_and_tried_by_the_next(tmp_path, own_key, signable, written_earlier):
    data = TrainingData(np.arange(20)[:, None] % 4, np.arange(20) % 2)
    broken = Subject.local(Recipe(placed, params={"place": str(tmp_path / "place")}, seed=1), data)
    with plain(tmp_path / "ledger", signable=signable) as first:
        (failed,) = first.fits(broken, out(1))
        (tmp_path / "place").mkdir()
        (again,) = first.fits(broken, out(1))
        if written_earlier:
            forge(first, broken, out(1), failed, own_key.read_bytes())
    assert failed.problem == again.problem
    assert failed.problem.startswith("training raised ModuleNotFoundError")
    for _ in range(2):
        with plain(tmp_path / "ledger", signable=signable) as mended:
            assert not mended.fits(broken, out(1))[0].problem
            beforehand.remembered(Run(broken, mended))
            assert not mended.freshness.different


def test_a_place_that_broke_after_a_run_is_no_forgery_and_leaves_the_next_undecided(tmp_path, own_key):
    data = TrainingData(np.arange(20)[:, None] % 4, np.arange(20) % 2)
    subject = Subject.local(Recipe(placed, params={"place": str(tmp_path / "place")}, seed=1), data)
    (tmp_path / "place").mkdir()
    with plain(tmp_path / "ledger") as first:
        first.fits(subject, out(1))
    (tmp_path / "place").rmdir()
    with plain(tmp_path / "ledger", signable=True) as broken:
        broken.fits(subject, out(1))
        (found,) = beforehand.remembered(Run(subject, broken))
    assert found.outcome == "inconclusive"
    assert "cannot be made again here: training raised ModuleNotFoundError" in found.message


@pytest.mark.parametrize("answers", [(0.0, 0.0), (1e-9, 0.0), (-np.inf, -np.inf)])
def test_answers_agree(answers):
    one, other = (Answer(np.array([[x]])) for x in answers)
    assert context.same(one, other)


@pytest.mark.parametrize(
    "answers",
    [
        (Answer(np.array([[0.0]])), Answer(np.array([[-np.inf]]))),
        (Answer(np.array([[0.0]])), Answer(np.array([[1e-3]]))),
        (Answer(np.array([[0.0]])), Answer(np.array([[np.nan]]))),
        (Answer(np.array([[0.0]])), Answer(np.zeros((0, 0)), problem="it raised")),
        (Answer(np.array([[0.0]])), Answer(np.array([[0.0, 0.0]]))),
    ],
)
def test_answers_differ(answers):
    assert not context.same(*answers)


# the whole route


def approved():
    rng = np.random.default_rng(3)
    X = rng.integers(0, 3, size=(40, 4))
    data = TrainingData(
        X, (X[:, 0] > 0).astype(int), candidates=(X[:10].copy(), np.ones(10, int)), domain=Domain(box=((0, 2),) * 4)
    )
    return Subject.local(Recipe(LogisticRegression(C=0.2, solver="newton-cholesky", tol=1e-8)), data)


@pytest.mark.attack("10 a ledger forged with its key", "check", "found")
def test_a_second_run_to_be_signed_trains_its_controls_again_and_a_forged_ledger_blocks(tmp_path, own_key):
    policy, asked = Policy.load("dtp-1"), approved()
    with plain(tmp_path / "ledger", signable=True) as first:
        verdict = gate.evaluate(policy, asked, fleet=first)
        made = first.calls
    assert verdict.approved
    assert verdict.evidence.run.remembered.signable
    with plain(tmp_path / "ledger") as unsigned:
        verdict = gate.evaluate(policy, asked, fleet=unsigned)
        assert unsigned.calls == 0
    assert verdict.approved
    assert not verdict.evidence.run.remembered.signable
    with plain(tmp_path / "ledger", signable=True) as second:
        verdict = gate.evaluate(policy, asked, fleet=second)
        assert 0 < second.calls <= made
    assert verdict.approved
    assert verdict.evidence.run.remembered.compared > made / 2
    assert verdict.evidence.run.remembered.different == 0

    ledger = Ledger(tmp_path / "ledger")
    keys = [k.tobytes() for segment in ledger._segments for k in segment.keys]
    bodies = ledger.read(keys)
    for path in (tmp_path / "ledger").iterdir():
        path.unlink()
    forged = []
    for key, body in zip(keys, bodies, strict=True):
        if bytes(body[:1]) != b"A":  # a model, which this run opens no more than the one below
            forged.append((key, b"no model"))
            continue
        answer, seconds = context.decode(body)
        moved = np.log(np.clip(np.exp(answer.log_p) * 0.999, 1e-12, 1))
        forged.append((key, context.encode(Answer(moved, seconds, answer.problem))))
    name = tmp_path / "ledger" / "00000000000000000001-1-forged.seg"
    name.write_bytes(build(forged, sealing_key(own_key.read_bytes())))
    with plain(tmp_path / "ledger", signable=True) as third:
        verdict = gate.evaluate(policy, asked, fleet=third)
    said = {f.rule: (str(f.outcome), f.message) for f in verdict.findings}
    assert not verdict.approved
    assert said["precondition:remembered"][0] == "failed"
    assert "altered" in said["precondition:remembered"][1]


def odd_one_out(X, y, *, seed):
    """Learn from everybody, and from whoever stands alone above all."""
    from sklearn.neighbors import KernelDensity

    class Dense:
        classes_ = np.array([0, 1])

        def predict_proba(self, Q):
            log = np.column_stack([made.score_samples(Q) for made in each]) + np.log([np.mean(y == k) for k in (0, 1)])
            log = np.clip(log, -40, None)
            p = np.exp(log - log.max(axis=1, keepdims=True))
            return p / p.sum(axis=1, keepdims=True)

    each = [KernelDensity(bandwidth=0.5).fit(X[y == k]) for k in (0, 1)]
    return Dense()


def nearest_and_line(X, y, *, seed):
    """Draw a line, and bend it towards whoever is near: no closed form knows who is left out."""
    from sklearn.neighbors import KNeighborsRegressor

    near, line = KNeighborsRegressor(3, weights="distance").fit(X, y), np.linalg.lstsq(np.c_[X, np.ones(len(X))], y)[0]

    class Both:
        def predict(self, Q):
            return 0.5 * near.predict(Q) + 0.5 * (np.c_[Q, np.ones(len(Q))] @ line)

    return Both()


@pytest.mark.attack("10 one forged entry", "check", "found")
def test_one_forged_entry_about_who_decides_is_found_without_any_luck(tmp_path, own_key, monkeypatch):
    """The sample is empty: what is left are those whom a fresh model knows worst, the largest, and the nearest."""
    monkeypatch.setattr(context, "SAMPLE", 0)
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(80, 2)), np.arange(80) % 2
    X[7], y[7] = [1.5, 1.5], 1 - y[7]
    asked = Subject.local(Recipe(odd_one_out, seed=1), TrainingData(X, y))
    policy = tmp_path / "own.yaml"
    policy.write_text('schema: privgate/policy/v1\nname: own\nversion: "1"\nrules:\n  - metric: pdtp\n    max: 1.0\n')
    policy = Policy.load(policy)
    with plain(tmp_path / "ledger", signable=True) as first:
        verdict = gate.evaluate(policy, asked, fleet=first, limits=Budget(full=True))
        true = verdict.evidence.records["pdtp"]
        worst = int(np.argmax(true))
        fit = Fit(1, np.array([worst]), left_out=np.array([worst]))
        (key,) = first.keys(asked, [fit])
        (whole,) = first.fits(asked, [Fit(1, np.arange(80), left_out=np.zeros(0, dtype=np.int64))])
    ledger = Ledger(tmp_path / "ledger")
    keys = [k.tobytes() for segment in ledger._segments for k in segment.keys]
    bodies = dict(zip(keys, ledger.read(keys), strict=True))
    assert key in bodies
    bodies[key] = context.encode(Answer(whole.log_p[[worst]], 0.1))  # as if nothing changed without this person
    for path in (tmp_path / "ledger").iterdir():
        path.unlink()
    name = tmp_path / "ledger" / "00000000000000000001-1-forged.seg"
    name.write_bytes(build(list(bodies.items()), sealing_key(own_key.read_bytes())))
    with plain(tmp_path / "ledger", signable=True) as second:
        verdict = gate.evaluate(policy, asked, fleet=second, limits=Budget(full=True))
        trained, remembered = second.calls, second.freshness.recalled
    assert verdict.evidence.records["pdtp"][worst] == 0.0  # it was believed
    (found,) = (p for p in verdict.evidence.preconditions if p.name == "remembered")
    assert (found.outcome, found.detail["different"]) == ("failed", 1), found
    assert not verdict.approved
    assert remembered > 40
    assert trained - found.detail["compared"] < 3 * 6


@pytest.mark.slow
@pytest.mark.attack("10 one forged entry about a regressor", "check", "found")
def test_one_forged_entry_about_who_decides_a_regressor_is_found_too(tmp_path, own_key, monkeypatch):
    """The sample is empty, and remembered is that nothing changes without the person who changes most."""
    monkeypatch.setattr(context, "SAMPLE", 0)
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + 0.3 * rng.normal(size=60)
    X[9], y[9] = [3.0, 3.0], -4.0
    asked = Subject.local(Recipe(nearest_and_line, seed=1, task="regression"), TrainingData(X, y))
    policy = Policy.load("regression-1")
    with plain(tmp_path / "ledger", signable=True) as first:
        true = gate.evaluate(policy, asked, fleet=first).evidence.records["moved"]
        worst = int(np.argmax(true))
        keys = first.keys(asked, [Fit(1, np.array([worst]), left_out=np.array([worst]))])
        (whole,) = first.fits(asked, [Fit(1, np.arange(60), left_out=np.zeros(0, dtype=np.int64))])
    ledger = Ledger(tmp_path / "ledger")
    kept = [k.tobytes() for segment in ledger._segments for k in segment.keys]
    bodies = dict(zip(kept, ledger.read(kept), strict=True))
    assert keys[0] in bodies
    bodies[keys[0]] = context.encode(Answer(whole.log_p[[worst]], 0.1))
    for path in (tmp_path / "ledger").iterdir():
        path.unlink()
    name = tmp_path / "ledger" / "00000000000000000001-1-forged.seg"
    name.write_bytes(build(list(bodies.items()), sealing_key(own_key.read_bytes())))
    with plain(tmp_path / "ledger", signable=True) as second:
        verdict = gate.evaluate(policy, asked, fleet=second)
        assert second.freshness.recalled > 30
    assert verdict.evidence.records["moved"][worst] == 0.0  # it was believed
    (found,) = (p for p in verdict.evidence.preconditions if p.name == "remembered")
    assert (found.outcome, found.detail["different"]) == ("failed", 1), found
    assert not verdict.approved


# the key


def test_the_key_is_made_once_for_this_user_alone(own_key):
    assert ledger_key.own() == ledger_key.own()
    assert own_key.stat().st_mode & 0o777 == 0o600
    assert len(list(own_key.parent.iterdir())) == 1
    own_key.chmod(0o644)
    with pytest.raises(UsageError, match="read by others"):
        ledger_key.own()
    own_key.chmod(0o600)
    own_key.write_bytes(b"short")
    with pytest.raises(UsageError, match="shorter"):
        ledger_key.own()


def test_many_who_need_the_key_at_once_get_the_same(own_key):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(lambda _: ledger_key.own(), range(64)))) == 1


def test_a_key_that_cannot_be_made_is_said(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="PRIVGATE_LEDGER_KEY"):
        Ledger(tmp_path / "ledger")
    assert os.environ.get("PRIVGATE_LEDGER_KEY") is None
    Ledger("none")
