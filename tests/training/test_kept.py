"""Models are kept where they are small: other questions train nothing, and a run to be signed believes none of them."""

import os
import pickle
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training import kept, plan
from privgate.training.box import wire
from privgate.training.fit import Answer, Fit
from privgate.training.fleet import Fleet

N = 40
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, 3))
Y = (X[:, 0] + RNG.logistic(size=N) > 0).astype(int)
SLOWLY = LogisticRegression(tol=1e-2)
NOBODY = np.zeros(0, dtype=np.int64)


@pytest.fixture(autouse=True)
def own_key(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("PRIVGATE_LEDGER_KEY", raising=False)


def of(training=SLOWLY, candidates=None):
    return Subject.local(Recipe(training, seed=1), TrainingData(X, Y, candidates=candidates))


def out(row, *queries, **more):
    return Fit(1, np.array(queries, dtype=np.int64), left_out=np.array([row]), **more)


def plain(folder="none", **settings):
    return Fleet(jobs=1, ledger=folder, isolate="none", **settings)


@pytest.mark.parametrize(
    ("model", "isolate"), [(SLOWLY, "auto"), (make_pipeline(StandardScaler(), RandomForestClassifier(3)), "none")]
)
def test_other_questions_are_answered_as_training_would_and_train_nothing(tmp_path, model, isolate):
    with Fleet(jobs=1, ledger=tmp_path / "ledger", isolate=isolate) as fleet:
        fleet.fits(of(model), [out(r, 0) for r in range(4)])
        assert fleet.calls == 4
    with Fleet(jobs=1, ledger=tmp_path / "ledger", isolate=isolate) as second:
        assert second.missing(of(model), [out(r, *range(N)) for r in range(6)]) == 2
        answers = second.fits(of(model), [out(r, *range(N)) for r in range(6)])
        assert second.calls == 2  # whom nobody had left out
        assert not second.freshness.told(signable=False).signable
    with plain() as afresh:
        expected = afresh.fits(of(model), [out(r, *range(N)) for r in range(6)])
    for got, want in zip(answers, expected, strict=True):
        np.testing.assert_array_equal(got.log_p, want.log_p)


def test_whoever_else_could_be_asked_a_model_is_the_same(tmp_path):
    more = (RNG.normal(size=(3, 3)), np.array([0, 1, 1]))
    with plain(tmp_path / "ledger") as fleet:
        fleet.fits(of(), [out(0, 1)])
        (answer,) = fleet.fits(of(candidates=more), [out(0, N, N + 2)])
        assert fleet.calls == 1
    model = LogisticRegression(tol=1e-2).fit(X[1:], Y[1:])
    np.testing.assert_array_equal(answer.log_p, np.log(model.predict_proba(more[0][[0, 2]])))


def test_another_training_is_another_model():
    person, again, label = out(1, 5), out(0, 5, repeat=1), out(0, 5, relabel=((3, 0),))
    seed = Fit(2, np.array([5]), left_out=np.array([0]))
    with plain() as fleet:
        for count, call in enumerate((out(0, 5), person, again, label, seed), 1):
            fleet.fits(of(), [call])
            assert fleet.calls == count


def test_models_of_random_subsets_are_not_kept(tmp_path):
    half = np.arange(0, N, 2)
    with plain(tmp_path / "ledger") as fleet:
        fleet.fits(of(), [Fit(1, np.array([0]), members=half)])
        fleet.fits(of(), [Fit(1, np.array([1]), members=half)])
        assert (fleet.calls, len(fleet.ledger)) == (2, 2)


class Nasty:
    """A model that cannot be packed, or not opened again; ``marker`` appears where it was opened."""

    classes_ = np.array([0, 1])

    def __init__(self, how, marker):
        self.how, self.marker = how, marker

    def predict_proba(self, X):
        return np.full((len(X), 2), 0.5)

    def __reduce__(self):
        if self.how == "raises":
            raise SystemError("not to be packed")
        if self.how == "large":
            return (bytes, (b"x" * 2**17,))
        return (os.mkdir, (self.marker,))


def nasty(X, y, *, seed, how, marker):
    """Return a model like that."""
    return Nasty(how, marker)


@pytest.mark.parametrize("how", ["raises", "large", "opens"])
def test_what_cannot_be_kept_is_trained_again(tmp_path, how):
    marker = tmp_path / "opened"
    made = Recipe(nasty, params={"how": how, "marker": str(marker)}, seed=1)
    asked = Subject.local(made, TrainingData(X, Y))
    with plain(tmp_path / "ledger") as fleet:
        fleet.fits(asked, [out(0, 1)])
        (answer,) = fleet.fits(asked, [out(0, 2)])
        assert (fleet.calls, answer.problem) == (2, "")
        assert len(fleet.ledger) == 2


def test_a_run_to_be_signed_opens_no_model_that_it_did_not_train(tmp_path):
    """Whoever can write to the ledger could keep a model of their own there."""
    marker = tmp_path / "opened"
    with plain(tmp_path / "ledger", signable=True) as fleet:
        name = kept.names(fleet._about(of()), [out(0, 0)])[0][0]
        fleet.ledger.write([(name, pickle.dumps(Nasty("opens", str(marker))))])
        fleet.ledger.flush()
        fleet.fits(of(), [out(0, 3)])
        assert fleet.calls == 1
        fleet.fits(of(), [out(0, 4)])  # trained here meanwhile, but another one is kept
        assert fleet.calls == 2
        assert not marker.exists()
        fleet.fits(of(), [out(2, 3)])
        fleet.fits(of(), [out(2, 4)])
        assert fleet.calls == 3  # its own it believes
    with plain(tmp_path / "ledger") as unsigned:
        unsigned.fits(of(), [out(0, 5)])
    assert marker.exists()  # or nothing was shown above


class Other:
    """A model that is another one in what matters: ``how`` says when."""

    classes_ = np.array([0, 1])

    def __init__(self, how):
        self.how, self.asked, self.opened = how, 0, False

    def __setstate__(self, state):
        self.__dict__ |= state | {"opened": True}
        if self.how in {"dies", "raises"} and Path(state["marker"]).exists():
            os._exit(1) if self.how == "dies" else self.missing

    def predict_proba(self, X):
        self.asked += 1
        if self.how == "fails" and self.opened:
            raise OSError("what it needs was not packed")
        p = {"draws": np.random.default_rng().uniform(), "counts": 1 / (1 + self.asked)}.get(self.how, 0.5)
        if self.how == "far off" and self.opened:
            p = np.where(X[:, 0] > 1e6, 0.9, 0.5)
        return np.column_stack([np.full(len(X), p), np.full(len(X), 1 - p)])


def other(X, y, *, seed, how, marker=""):
    """Return a model like that."""
    made = Other(how)
    made.marker = marker
    return made


@pytest.mark.parametrize("how", ["draws", "counts", "fails"])
def test_what_opens_as_another_model_is_not_kept(tmp_path, how):
    """Every answer is that of a model as training returns it."""
    asked = Subject.local(Recipe(other, params={"how": how}, seed=1), TrainingData(X, Y))
    with plain(tmp_path / "ledger") as fleet:
        first, second = (fleet.fits(asked, [out(0, row)])[0] for row in (1, 2))
        assert (fleet.calls, len(fleet.ledger), first.problem, second.problem) == (2, 2, "", "")
    if how == "counts":
        np.testing.assert_array_equal(first.log_p, second.log_p)


@pytest.mark.parametrize("signable", [True, False])
def test_a_run_that_can_be_signed_opens_no_model_of_anybodys_class(tmp_path, signable):
    """What it does far off once it is opened, training never showed: a stored model can be like that."""
    far = (np.full((1, 3), 1e7), np.array([0]))
    asked = [
        Subject.local(Recipe(other, params={"how": "far off"}, seed=1), TrainingData(X, Y, candidates=c))
        for c in (None, far)
    ]
    with plain(tmp_path / "ledger", signable=signable) as fleet:
        fleet.fits(asked[0], [out(0, 1)])
        (answer,) = fleet.fits(asked[1], [out(0, N)])
        assert fleet.freshness.told(signable=signable).signable
        assert fleet.calls == 2
    assert np.exp(answer.log_p).tolist() == [[0.5, 0.5]]
    with plain(tmp_path / "ledger", signable=signable) as fleet:
        (answer,) = fleet.fits(asked[1], [out(0, 1, N)])
        # whoever gives up the signature believes what is kept
        assert fleet.freshness.told(signable=signable).signable == signable == bool(fleet.calls)


@pytest.mark.parametrize("how", ["dies", "raises"])
def test_a_model_that_ends_its_worker_when_opened_is_trained_again(tmp_path, how):
    marker = tmp_path / "marker"
    asked = Subject.local(Recipe(other, params={"how": how, "marker": str(marker)}, seed=1), TrainingData(X, Y))
    with plain(tmp_path / "ledger") as fleet:
        fleet.fits(asked, [out(0, 1)])
    marker.mkdir()
    with plain(tmp_path / "ledger") as fleet:
        (answer,) = fleet.fits(asked, [out(0, 2)])
        assert (fleet.calls, answer.problem) == (1, "")


def test_a_sparse_matrix_may_be_of_another_type_beside_other_records():
    """What was trained on whole numbers is none that was trained on fractions."""
    whole = csr_matrix(np.arange(N * 3).reshape(N, 3))
    alone, alike, other_type = (
        kept.about(Subject.local(Recipe(SLOWLY, seed=1), TrainingData(whole, Y, candidates=c)))
        for c in (None, (whole[:1], Y[:1]), (whole[:1] / 2, Y[:1]))
    )
    assert alone == alike != other_type


def test_many_questions_to_kept_models_travel_together(tmp_path):
    """One at a time, the way to a worker and back would take longer than what is asked."""
    with plain(tmp_path / "ledger") as fleet:
        fleet.fits(of(), [out(r, 0) for r in range(N)])
    with plain(tmp_path / "ledger") as second:
        chunks, pool = [], second.pool
        submit = pool.submit
        pool.submit = lambda payload, chunk: (chunks.append(len(chunk.positions)), submit(payload, chunk))[1]
        second.fits(of(), [out(r, 1) for r in range(N)])
        assert second.calls == 0
    assert sum(chunks) == N
    assert len(chunks) < N / 2


def test_a_worker_that_was_given_no_model_trained_one(monkeypatch):
    with plain() as fleet:
        pool = fleet.pool
        come = pool.next

        def lying():
            chunk, answers = come()
            return chunk, [replace(a, reused=True) for a in answers]

        monkeypatch.setattr(pool, "next", lying)
        fleet.fits(of(), [out(0, 1)])
        assert (fleet.calls, fleet.freshness.trained) == (1, 1)


def test_no_model_is_kept_of_very_many(monkeypatch):
    monkeypatch.setattr(kept, "MOST", 3)
    with plain() as fleet:
        fleet.fits(of(), [out(r, 0) for r in range(4)])
        assert len(fleet.ledger) == 4
        fleet.fits(of(), [out(0, 1)])
        assert fleet.calls == 5


def test_what_nothing_was_trained_for_says_nothing_about_how_long_training_takes(tmp_path):
    few, asked = [out(r, 0) for r in range(20)], [out(r, 1) for r in range(N)]
    with plain(tmp_path / "ledger") as fleet:
        fleet.fits(of(), few)
        fleet.fits(of(), asked[:20])
        assert plan.remembered_seconds(of(), asked[:20], fleet) == 0.0 < plan.remembered_seconds(of(), few, fleet)
        first = plan.estimate(of(), [out(r, 2) for r in range(N)], fleet)
        assert fleet.calls == 20 + plan.TIMED
    with plain(tmp_path / "ledger") as second:
        again = plan.estimate(of(), [out(r, 2) for r in range(N)], second)
        assert second.calls == 0
        nothing = plan.estimate(of(), [out(r, 3) for r in range(20)], second)
    assert again.seconds_each == first.seconds_each > 0
    assert (first.missing, nothing.missing) == (17, 0)


def test_a_damaged_model_is_trained_again(tmp_path):
    with plain(tmp_path / "ledger") as fleet:
        (answer,) = fleet.fits(of(), [out(0, 0)])
    (path,) = (tmp_path / "ledger").glob("*.seg")
    content = bytearray(path.read_bytes())
    start = content.index(b"LogisticRegression")
    content[start : start + 5] = b"Ridge"
    path.write_bytes(content)
    with plain(tmp_path / "ledger") as second:
        (again,) = second.fits(of(), [out(0, 0, 1)])
        assert (second.calls, second.ledger.damaged) == (1, 1)
    np.testing.assert_array_equal(again.log_p[:1], answer.log_p)


@pytest.mark.parametrize("models", [(b"12345",), (b"1", b"2")], ids=["too large", "too many"])
def test_more_models_than_were_asked_for_are_a_lie(models):
    nonce = b"n" * wire.NONCE
    body = wire.encoded(nonce, [Answer(np.zeros((1, 2)), models=models)])
    with pytest.raises(wire.LieError):
        wire.answers(body, nonce, [(1, 2)], [(1, 4)])
    with pytest.raises(wire.LieError):
        wire.answers(body, nonce, [(1, 2)])


def test_models_survive_the_pipe():
    nonce, sent = (
        b"n" * wire.NONCE,
        [Answer(np.zeros((1, 2)), models=(b"123", b"")), Answer(np.zeros((1, 2)), reused=True)],
    )
    body = wire.encoded(nonce, sent)
    got = wire.answers(body, nonce, [(1, 2), (1, 2)], [(2, 3), (1, 3)])
    assert [(a.models, a.reused) for a in got] == [((b"123", b""), False), ((), True)]
    assert len(body) <= wire.most_bytes([(1, 2), (1, 2)], [(2, 3), (1, 3)])
    for at in range(len(body)):
        with pytest.raises(wire.LieError):
            wire.answers(body[:at], nonce, [(1, 2), (1, 2)], [(2, 3), (1, 3)])


def test_of_many_quick_trainings_no_model_is_packed(monkeypatch, tmp_path):
    """Packing takes some microseconds, and so does a quick training."""
    monkeypatch.setattr(kept, "FEW", 3)
    quick, few = Subject.local(Recipe(at_once, seed=1), TrainingData(X, Y)), [out(r, 0) for r in range(3)]
    with plain(tmp_path / "ledger") as fleet:
        fleet.fits(quick, few)
        assert len(fleet.ledger) == 6
        fleet.fits(quick, [out(r, 0) for r in range(3, N)])
        assert len(fleet.ledger) == 6 + N - 3


class Constant:
    """A model that takes long to pack, and nothing to train."""

    classes_ = np.array([0, 1])

    def predict_proba(self, X):
        return np.full((len(X), 2), 0.5)

    def __reduce__(self):
        time.sleep(0.05)
        return (Constant, ())


def at_once(X, y, *, seed):
    """Return it."""
    del X, y, seed
    return Constant()
