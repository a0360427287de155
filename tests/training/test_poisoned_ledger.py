"""Ways to have a run believe what nobody trained, by what lies in the ledger's folder or comes back from a worker."""

import os
from queue import SimpleQueue
from types import SimpleNamespace

import numpy as np
import pytest

from privgate.errors import UsageError
from privgate.training import ledger as ledgers
from privgate.training.clusters import DaskPool
from privgate.training.fit import Answer, Chunk
from privgate.training.fleet import Fleet
from privgate.training.ledger import Ledger
from privgate.training.sandbox import wire
from tests.training.conftest import out

pytestmark = pytest.mark.usefixtures("own_key")
ME = os.getuid()
SECRET = b"of the operator's own"
HARMLESS = ledgers.encode(Answer(np.log(np.full((2, 2), 0.5))))


def plain(folder, secret=SECRET, **settings):
    return Fleet(jobs=1, ledger=Ledger(folder, secret=secret), isolate="none", **settings)


def swap(ledger, mine, theirs):
    """Put another answer's file under this name; the two names change places."""
    held = (ledger / mine).read_bytes(), (ledger / theirs).read_bytes()
    (ledger / mine).write_bytes(held[1])
    (ledger / theirs).write_bytes(held[0])


def replace_by(make):
    """Put something else there that is no file of the folder."""
    return lambda ledger, mine, _: ((ledger / mine).rename(ledger / "elsewhere"), make(ledger / mine))


#: what is done to the file of one answer by somebody without the key; the second name is another answer's
FORGED = {
    "another answer's file": swap,
    "truncated": lambda ledger, mine, _: os.truncate(ledger / mine, 40),
    "empty": lambda ledger, mine, _: os.truncate(ledger / mine, 0),
    "another key": lambda ledger, mine, _: Ledger(ledger, secret=b"somebody else's key").write(mine, HARMLESS),
    "a public constant": lambda ledger, mine, _: Ledger(ledger, secret=b"privgate ledger/2").write(mine, HARMLESS),
    "no tag": lambda ledger, mine, _: (ledger / mine).write_bytes(HARMLESS),
    "a pipe": replace_by(os.mkfifo),
    "a link elsewhere": replace_by(lambda path: path.symlink_to(path.parents[1] / "elsewhere")),
    "a link to itself": replace_by(lambda path: path.symlink_to(path)),
    "a device": replace_by(lambda path: path.symlink_to("/dev/zero")),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", FORGED)
def test_a_forged_file_is_never_used(tmp_path, subject, how):
    with plain(tmp_path / "ledger") as fleet:
        true = [a.log_p for a in fleet.fits(subject(), out(1, 2))]
        mine, theirs = fleet.names(subject(), out(1, 2))
    FORGED[how](tmp_path / "ledger", mine, theirs)
    with plain(tmp_path / "ledger") as second:
        answers = [a.log_p for a in second.fits(subject(), out(1, 2))]
        assert second.calls == (2 if how == "another answer's file" else 1)
    np.testing.assert_array_equal(answers, true)


@pytest.mark.parametrize("how", ["owner", "mode"])
def test_a_folder_that_others_write_to_is_read_with_a_key_alone(tmp_path, monkeypatch, how):
    place = tmp_path / "ledger"
    Ledger(place, secret=b"of whoever made it").write("a/b", HARMLESS)
    if how == "mode":
        place.chmod(0o777)
    else:
        monkeypatch.setattr(os, "getuid", lambda: ME + 1)
    with pytest.raises(UsageError, match="needs a key; set PRIVGATE_LEDGER_KEY"):
        Ledger(place)
    assert Ledger(place, secret=SECRET).read("a/b") is None


NONCE = bytes(wire.NONCE)
#: what a worker of a cluster may answer
WRONG = [b"", None, [], wire.encoded(NONCE, {"a": 1}), wire.encoded(NONCE, [Answer(np.full((2, 2), np.nan))])]


@pytest.mark.parametrize("what", [*WRONG, wire.encoded(NONCE, [Answer(np.zeros((2, 1)))])])
def test_a_clusters_worker_that_answers_anything_else_counts_as_dead(what):
    pool, chunk = object.__new__(DaskPool), Chunk([0], out(7), 2)
    pool._done, pool._flying = SimpleQueue(), {"one": (chunk, SimpleNamespace(result=lambda: what))}
    pool._done.put("one")
    assert pool.next() == (chunk, None)
