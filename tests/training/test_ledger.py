"""The ledger gives back what was put in, or nothing; whatever happens to its files or beside them."""

import dataclasses
import errno
import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.naive_bayes import GaussianNB

from privgate.errors import PrivgateWarning, UsageError
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training import ledger as ledgers
from privgate.training.fit import Answer
from privgate.training.fleet import Fleet
from privgate.training.ledger import Ledger, decode, encode
from tests.training.conftest import out

NAMES = [ledgers.name_answer(b"subject", b"%d" % i) for i in range(4)]


pytestmark = pytest.mark.usefixtures("own_key")


def test_what_was_written_is_there_for_the_next_process_and_nothing_else(tmp_path):
    Ledger(tmp_path / "ledger").write(NAMES[0], b"body")
    again = Ledger(tmp_path / "ledger")

    assert (again.read(NAMES[0]), again.read(NAMES[1])) == (b"body", None)
    assert [p.name for p in (tmp_path / "ledger").iterdir()] == [NAMES[0].partition("/")[0]]  # a folder a subject


def test_none_forgets_with_the_process():
    ledger = Ledger("none")
    ledger.write(NAMES[0], b"body")

    assert (ledger.read(NAMES[0]), ledger.lasting) == (b"body", False)
    assert Ledger("none").read(NAMES[0]) is None


@given(at=st.integers(0, 30), flip=st.integers(1, 255))
def test_a_changed_byte_is_never_read(at, flip, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ledger")
    Ledger(folder, secret=b"k" * 16).write(NAMES[0], b"fifteen letters")
    content = bytearray((folder / NAMES[0]).read_bytes())
    content[at % len(content)] ^= flip
    (folder / NAMES[0]).write_bytes(content)

    assert Ledger(folder, secret=b"k" * 16).read(NAMES[0]) is None


def write_some(folder, start):
    ledger = Ledger(folder, secret=b"k" * 16)
    for i in range(start, start + 50):
        ledger.write(ledgers.name_answer(b"subject", b"%d" % i), b"body %d" % i)


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    started = [multiprocessing.get_context("fork").Process(target=write_some, args=(tmp_path, 25 * k)) for k in (0, 1)]
    for process in started:
        process.start()
    for process in started:
        process.join()

    ledger = Ledger(tmp_path, secret=b"k" * 16)
    assert all(ledger.read(ledgers.name_answer(b"subject", b"%d" % i)) == b"body %d" % i for i in range(75))
    assert not list(tmp_path.rglob(".*"))


def test_a_full_disk_is_one_sentence_and_leaves_nothing_half(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    ledger = Ledger(tmp_path / "ledger")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdopen", full)
        with pytest.raises(UsageError, match="No space left on device; say --ledger FOLDER"):
            ledger.write(NAMES[0], b"more")
    assert not [p for p in (tmp_path / "ledger").rglob("*") if p.is_file()]
    ledger.write(NAMES[0], b"more")
    assert ledger.read(NAMES[0]) == b"more"


def test_a_place_that_is_no_folder_is_refused_and_a_ledger_of_before_is_named(tmp_path):
    with pytest.raises(UsageError, match="no folder of this machine; say --ledger FOLDER"):
        Ledger("s3://bucket/ledger")
    (tmp_path / "00000-1-abc.seg").write_bytes(b"PRIVGATE")
    with pytest.warns(PrivgateWarning, match=r"written by privgate 0\.1, whose answers are not read"):
        Ledger(tmp_path)


# names


def others():
    """The same, and what differs in one thing that changes an answer."""
    rng = np.random.default_rng(0)
    data = TrainingData(rng.normal(size=(20, 2)), np.arange(20) % 2, one_record_each=True)
    usual = Subject.local(Recipe(GaussianNB()), data)
    yield "", usual
    yield "recipe", Subject.local(Recipe(GaussianNB(var_smoothing=1e-3)), data)
    moved = dataclasses.replace(data, X=np.where(np.arange(20)[:, None] == 3, 9.0, data.X))
    yield "record", Subject.local(Recipe(GaussianNB()), moved)
    flipped = dataclasses.replace(data, y=np.where(np.arange(20) == 3, 1 - data.y, data.y))
    yield "label", Subject.local(Recipe(GaussianNB()), flipped)
    yield "model", dataclasses.replace(usual, name="another")


def test_nothing_has_the_name_of_what_is_not_the_very_same(monkeypatch):
    with Fleet(1, "none", isolate="none") as fleet:
        names = {what: fleet.names(asked, out(1, 2)) for what, asked in others()}
        usual = next(asked for _, asked in others())
        names["seed"] = fleet.names(usual, out(1, 2, seed=2))
        assert fleet.names(usual, out(2, 1))[::-1] == names[""]
    changes = {
        "library": (ledgers, "libraries_of", lambda _: {"scikit-learn": "0"}),
        "privgate": (ledgers, "VERSION", ledgers.VERSION + 1),
        "python": (ledgers.platform, "python_version", lambda: "3.0.0"),
        "machine": (ledgers.platform, "machine", lambda: "another"),
        "sandbox": (Fleet, "isolation", "bubblewrap 0.8.0"),
    }
    for what, change in changes.items():
        with monkeypatch.context() as patched, Fleet(1, "none", isolate="none") as fleet:
            patched.setattr(*change)
            names[what] = fleet.names(usual, out(1, 2))
    flat = [name for pair in names.values() for name in pair]
    assert len(flat) == len(set(flat)) == 22


@given(st.text(max_size=40), st.integers(0, 3), st.integers(0, 3))
def test_answers_survive_as_bytes(problem, rows, columns):
    answer = Answer(np.random.default_rng(0).random((rows, columns)), 1.5, problem)
    again = decode(encode(answer))

    np.testing.assert_array_equal(again.log_p, answer.log_p)
    assert (again.problem, again.seconds) == (problem, 1.5)
    with pytest.raises(ValueError, match="no answer"):
        decode(encode(answer) + b"x")


# the key


def test_the_key_is_made_once_for_this_user_alone(own_key, monkeypatch):
    assert ledgers.own_key() == ledgers.own_key()
    assert own_key.stat().st_mode & 0o777 == 0o600
    assert len(list(own_key.parent.iterdir())) == 1
    own_key.chmod(0o644)
    with pytest.raises(UsageError, match="read by others"):
        ledgers.own_key()
    own_key.chmod(0o600)
    own_key.write_bytes(b"short")
    with pytest.raises(UsageError, match="shorter"):
        ledgers.own_key()
    own_key.unlink()
    ledgers.own_key()
    monkeypatch.setattr(os, "getuid", lambda: own_key.stat().st_uid + 1)
    with pytest.raises(UsageError, match="read by others"):
        ledgers.own_key()


def test_many_who_need_the_key_at_once_get_the_same():
    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(lambda _: ledgers.own_key(), range(64)))) == 1


def test_a_key_that_cannot_be_made_is_said(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="PRIVGATE_LEDGER_KEY"):
        Ledger(tmp_path / "ledger")
    with pytest.raises(UsageError, match="16 or more"):
        Ledger("none", secret=b"short")
