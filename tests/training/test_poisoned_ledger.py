"""Ways to have a run believe what nobody trained, by what lies in the ledger's folder or comes back from a worker."""

import dataclasses
import errno
import hashlib
import itertools
import os
import pickle
import sys
import threading
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from privgate.check import gate
from privgate.errors import UsageError
from privgate.policy import Policy
from privgate.run.run import Budget
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training import context, storage
from privgate.training import fleet as fleets
from privgate.training.fit import Answer, Fit
from privgate.training.fleet import Fleet
from privgate.training.ledger import KEY, MANY_SEGMENTS, TAG, Ledger, build, own, sealing_key
from privgate.training.pools import LocalPool

ME = os.getuid()
SECRET = b"of the operator's own"
BODIES = {hashlib.sha256(b"%d" % i).digest(): b"body number %d" % i for i in range(3)}


@pytest.fixture(autouse=True)
def own_key(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("PRIVGATE_LEDGER_KEY", raising=False)
    return tmp_path / "config" / "privgate" / "ledger.key"


@pytest.fixture
def folder(tmp_path):
    """A ledger's folder with three entries in one segment."""
    Ledger(tmp_path / "ledger", secret=SECRET).write(BODIES.items())
    return tmp_path / "ledger"


def within(seconds, function):
    """Return what a function returns; fails if it does not end in time."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, "it hangs, or raised"
    return found[0]


def read(folder):
    return [None if b is None else bytes(b) for b in Ledger(folder, secret=SECRET).read(list(BODIES))]


# what lies in the folder


@pytest.mark.attack("29 a ledger folder that another user made", "check", "refused")
@pytest.mark.parametrize("how", ["owner", "mode"])
def test_a_folder_that_others_write_to_is_read_with_a_key_alone(tmp_path, monkeypatch, how):
    place = tmp_path / "ledger"
    place.mkdir(mode=0o700)
    (place / "1.seg").write_bytes(build(BODIES.items(), sealing_key(b"of whoever made the folder")))
    if how == "mode":
        place.chmod(0o777)
    else:
        monkeypatch.setattr(os, "getuid", lambda: ME + 1)
    with pytest.raises(UsageError, match="needs a key"):
        Ledger(place)
    ledger = Ledger(place, secret=SECRET)
    assert ledger.read(list(BODIES)) == [None] * 3
    assert ledger.damaged == 3


@pytest.mark.attack("29 a ledger's key that another user made", "check", "refused")
def test_a_key_of_another_users_is_none(own_key, monkeypatch):
    own()
    assert own_key.stat().st_mode & 0o777 == 0o600  # as root, whom no mode keeps out, finds it in somebody's home
    monkeypatch.setattr(os, "getuid", lambda: ME + 1)
    with pytest.raises(UsageError, match="read by others"):
        own()


@pytest.mark.attack("29 a pipe, a folder or a link for a segment", "check", "passed over")
@pytest.mark.parametrize("how", ["pipe", "folder", "itself", "nowhere", "device", "elsewhere"])
def test_what_is_no_file_of_the_folder_is_not_read(folder, tmp_path, how):
    evil = folder / "00000.seg"
    if how == "pipe":
        os.mkfifo(evil)
    elif how == "folder":
        evil.mkdir()
    else:
        (segment,) = folder.glob("*.seg")
        segment.rename(tmp_path / "elsewhere")
        place = {"itself": evil, "nowhere": "/no/where", "device": "/dev/zero", "elsewhere": tmp_path / "elsewhere"}
        evil.symlink_to(place[how])
    whole = [*BODIES.values()] if how in {"pipe", "folder"} else [None] * 3
    assert within(10, lambda: read(folder)) == whole


@pytest.mark.attack("29 a segment that the checker may not open", "check", "passed over")
def test_what_another_of_the_team_wrote_for_himself_is_passed_over(folder, monkeypatch):
    monkeypatch.setattr(storage.LocalPlace, "read", lambda *_: (_ for _ in ()).throw(PermissionError(13, "denied")))
    assert within(10, lambda: read(folder)) == [None] * 3


def test_what_another_of_the_team_wrote_stays_when_segments_are_merged(folder):
    theirs = Ledger(folder, secret=SECRET)
    for number in range(MANY_SEGMENTS + 2):
        theirs.write([(hashlib.sha256(b"of the team %d" % number).digest(), b"told")])
    kept = set(theirs.place.names())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage.LocalPlace, "read", Mock(side_effect=PermissionError(errno.EACCES, "not ours")))
        ours = Ledger(folder, secret=SECRET)
        ours.write([(KEY * b"k", b"of our own")])
        ours.settle()
    assert kept < set(ours.place.names())


@pytest.mark.attack("29 an entry changed after its tag was checked", "check", "what was checked is used")
def test_what_is_used_is_what_was_checked(folder):
    ledger = Ledger(folder, secret=SECRET)
    bodies = ledger.read(list(BODIES))
    (segment,) = folder.glob("*.seg")
    content = segment.read_bytes()
    with segment.open("r+b") as same:  # in place, as whoever may write this file can at any time
        same.write(content.replace(b"body number", b"evil number"))
    assert [bytes(b) for b in bodies] == [*BODIES.values()]
    assert ledger.read(list(BODIES)) == [None] * 3


@pytest.mark.attack("29 two entries that change places while they are read", "check", "refused")
def test_an_entry_in_anothers_place_is_not_read(folder):
    ledger = Ledger(folder, secret=SECRET)
    (path,) = folder.glob("*.seg")
    first, second, third = BODIES.items()
    with path.open("r+b") as f:  # in place: the ledger has this very file mapped
        f.write(build([second, first, third], sealing_key(SECRET)))

    assert [None if b is None else bytes(b) for b in ledger.read(list(BODIES))] == [None, None, third[1]]


@pytest.mark.attack("29 an answer put beside one that this run trained", "check", "trained again")
@pytest.mark.parametrize("ask", ["fits", "each"])
def test_what_a_run_trained_is_what_it_reads_again(tmp_path, monkeypatch, subject, ask):
    monkeypatch.setattr(fleets, "LARGE", 1)
    subject = subject()
    with plain(Ledger(tmp_path, secret=SECRET), signable=True) as fleet:
        reads = fleet.each(subject, out(1, 2))
        true = [read().log_p.copy() for read in reads]
        forged = context.encode(Answer(np.full_like(true[0], -0.5)))
        entries = [(key, forged) for key in fleet.keys(subject, out(1, 2))]
        (tmp_path / "0.seg").write_bytes(build(entries, sealing_key(SECRET)))
        fleet.ledger._open()  # as after a merge
        for _ in range(2):
            found = [read() for read in reads] if ask == "each" else fleet.fits(subject, out(1, 2))
            assert [np.array_equal(a.log_p, b) for a, b in zip(found, true, strict=True)] == [True, True]


def put(fleet, key, answer):
    """Let a ledger hold this answer alone, or nothing, as after a merge."""
    for path in fleet.ledger.place.folder.glob("*.seg"):
        path.unlink()
    if answer is not None:
        path = fleet.ledger.place.folder / "0.seg"
        path.write_bytes(build([(key, context.encode(answer))], sealing_key(SECRET)))
    fleet.ledger._open()
    fleet.ledger._pending.clear()


@pytest.mark.attack("29 a forged answer that is used, then put back or taken away", "check", "found")
@pytest.mark.parametrize("then", ["stays", "put back", "taken away"])
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("ask", ["fits", "each"])
def test_a_forged_answer_that_was_used_is_found_whatever_happens_to_it(
    tmp_path, monkeypatch, subject, ask, large, then
):
    if large:
        monkeypatch.setattr(fleets, "LARGE", 1)
        monkeypatch.setattr(context, "LARGE", 1)
    subject = subject()
    with plain(Ledger(tmp_path, secret=SECRET)) as fleet:
        (key,), true = fleet.keys(subject, out(1)), Answer(fleet.fits(subject, out(1))[0].log_p.copy())
        put(fleet, key, Answer(np.full_like(true.log_p, -0.5)))
    with plain(Ledger(tmp_path, secret=SECRET), signable=True) as fleet:
        (read,) = fleet.each(subject, out(1))
        asked = read if ask == "each" else lambda: fleet.fits(subject, out(1))[0]
        assert not np.array_equal(asked().log_p, true.log_p)  # it is believed until it is looked at
        if then != "stays":
            put(fleet, key, true if then == "put back" else None)
            held = ask == "each" and not large  # a small answer is not read twice
            assert np.array_equal(asked().log_p, true.log_p) != held
        fleet.spot_check()
        assert fleet.freshness.different


@pytest.mark.attack("29 an answer of the stored model that is exchanged", "check", "asked again")
def test_what_the_stored_model_answered_is_what_is_read_again(tmp_path, monkeypatch, subject):
    subject, rows, true = subject(), np.arange(3), Answer(np.log(np.full((3, 2), 0.5)))
    object.__setattr__(subject, "digests", {**subject.digests, "model": "one"})
    with plain(Ledger(tmp_path, secret=SECRET), signable=True) as fleet:
        monkeypatch.setattr(fleet, "_pool", SimpleNamespace(registered=lambda *_, **__: true, close=lambda **_: None))
        monkeypatch.setattr(fleet, "_ship", lambda _: None)
        fleet.registered(subject, rows)
        put(fleet, next(iter(fleet.freshness.fresh)), Answer(np.full((3, 2), -9.0)))
        assert np.array_equal(fleet.registered(subject, rows).log_p, true.log_p)


@pytest.mark.attack("29 a large answer exchanged after it was read", "check", "trained again")
def test_large_answers_are_those_that_were_read_first(tmp_path, monkeypatch, subject):
    monkeypatch.setattr(fleets, "LARGE", 1)
    monkeypatch.setattr(context, "LARGE", 1)
    subject = subject()
    with plain(Ledger(tmp_path, secret=SECRET)) as fleet:
        true = fleet.fits(subject, out(1))[0].log_p.copy()
    with plain(Ledger(tmp_path, secret=SECRET), signable=True) as fleet:
        (read,) = fleet.each(subject, out(1))
        assert np.array_equal(read().log_p, true)
        entry = fleet.keys(subject, out(1))[0], context.encode(Answer(np.full_like(true, -0.5)))
        (tmp_path / "0.seg").write_bytes(build([entry], sealing_key(SECRET)))
        fleet.ledger._open()
        assert np.array_equal(read().log_p, true)


@pytest.mark.attack("29 a shared segment cut while it is read", "check", "what was there is used")
def test_a_segment_of_a_shared_folder_can_be_cut_at_any_time(folder):
    folder.chmod(0o770)
    ledger = Ledger(folder, secret=SECRET)
    for segment in folder.glob("*.seg"):
        os.truncate(segment, 0)  # of mapped memory this would end the process by a signal
    assert [bytes(b) for b in ledger.read(list(BODIES))] == [*BODIES.values()]


def forgeries(content):
    """Whatever is made of a segment by somebody without the key: (what, bytes)."""
    head, n = content[:24], 3
    keys = [content[24 + KEY * i : 24 + KEY * (i + 1)] for i in range(n)]
    at = 24 + KEY * n
    offsets, at = content[at : at + 8 * (n + 1)], at + 8 * (n + 1)
    tags = [content[at + TAG * i : at + TAG * (i + 1)] for i in range(n)]
    bodies = content[at + TAG * n :]
    size = len(bodies) // n
    split = [bodies[size * i : size * (i + 1)] for i in range(n)]
    for a, b, c in itertools.product(itertools.permutations(range(n)), repeat=3):
        parts = [keys[i] for i in a], [tags[i] for i in b], [split[i] for i in c]
        yield f"keys {a} tags {b} bodies {c}", b"".join([head, *parts[0], offsets, *parts[1], *parts[2]])
    for end in range(len(content)):
        yield f"cut at {end}", content[:end]
    for i in range(8 * (n + 1)):
        for value in (0, 1, 255):
            at = 24 + KEY * n + i
            yield f"offset byte {i}", content[:at] + bytes([value]) + content[at + 1 :]
    for count in (0, 1, 2, 4, 2**32, 2**63, 2**64 - 1):
        yield f"count {count}", content[:16] + count.to_bytes(8, "little") + content[24:]


@pytest.mark.attack("29 segments cut, swapped, repeated, reordered", "check", "true entries or none")
def test_whoever_has_no_key_gives_true_entries_or_none(folder):
    (segment,) = folder.glob("*.seg")
    content, kept = segment.read_bytes(), 0
    for what, forged in forgeries(content):
        segment.write_bytes(forged)
        found = read(folder)
        assert all(f in (None, true) for f, true in zip(found, BODIES.values(), strict=True)), what
        kept += sum(f is not None for f in found)
    assert kept > 100  # each entry's own key, tag and body count wherever they stand
    segment.write_bytes(content)
    for i in range(3):
        (folder / f"again-{i}.seg").write_bytes(content)
    assert read(folder) == [*BODIES.values()]


@pytest.mark.attack("29 a disk that fills up in the middle", "check", "one sentence")
def test_a_full_disk_is_one_sentence_and_leaves_nothing_half(folder, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    ledger = Ledger(folder, secret=SECRET)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdopen", full)
        with pytest.raises(UsageError, match="No space left on device; say --ledger"):
            ledger.write([(b"k" * 32, b"more")])
    assert len(list(folder.iterdir())) == 1
    ledger.flush()  # it was kept, and there is room again
    assert bytes(Ledger(folder, secret=SECRET).read([b"k" * 32])[0]) == b"more"


class Bomb:
    """Whoever opens it tells its own process id."""

    def __init__(self, place):
        self.place = str(place)

    def __reduce__(self):
        return (exec, (f"import os; open({self.place!r}, 'a').write(f'{{os.getpid()}} ')",))


def out(*rows):
    return [Fit(1, np.arange(2), left_out=np.array([r])) for r in rows]


def plain(folder, **settings):
    return Fleet(jobs=1, ledger=folder, isolate="none", **settings)


@pytest.mark.attack("29 a pickle that runs code in the ledger", "check", "not opened")
@pytest.mark.parametrize("signable", [True, False])
def test_a_pickle_in_the_ledger_runs_nothing_in_the_checker(tmp_path, own_key, subject, signable):
    """As whoever holds the key: what a run to be signed did not train is not even opened by its workers."""
    told = tmp_path / "told"
    with plain(tmp_path / "ledger") as fleet:
        fleet.fits(subject(), out(1, 2))
        ledger = Ledger(tmp_path / "ledger")
        keys = [k.tobytes() for segment in ledger._segments for k in segment.keys]
        answers = set(fleet.keys(subject(), out(1, 2)))
        for path in (tmp_path / "ledger").iterdir():
            path.unlink()
        models = [(k, pickle.dumps(Bomb(told))) for k in keys if k not in answers]
    assert models
    (tmp_path / "ledger" / "1.seg").write_bytes(build(models, sealing_key(own_key.read_bytes())))
    with plain(tmp_path / "ledger", signable=signable) as fleet:
        assert all(not a.problem for a in fleet.fits(subject(), out(1, 2)))
        assert fleet.calls == 2
    opened = told.read_text().split() if told.exists() else []
    assert str(os.getpid()) not in opened
    assert not (signable and opened)


# entries of something else


def others():
    """The same, and what differs in one thing that changes an answer."""
    rng = np.random.default_rng(0)
    data = TrainingData(rng.normal(size=(20, 2)), np.arange(20) % 2)
    usual = Subject.local(Recipe(GaussianNB()), data)
    moved = dataclasses.replace(data, X=np.where(np.arange(20)[:, None] == 3, 9.0, data.X))
    flipped = dataclasses.replace(data, y=np.where(np.arange(20) == 3, 1 - data.y, data.y))
    yield "", usual
    yield "recipe", Subject.local(Recipe(GaussianNB(var_smoothing=1e-3)), data)
    yield "record", Subject.local(Recipe(GaussianNB()), moved)
    yield "label", Subject.local(Recipe(GaussianNB()), flipped)
    yield "model", dataclasses.replace(usual, name="another")


@pytest.mark.attack("29 entries of another recipe, record, label, seed, model or version", "check", "not found")
def test_nothing_is_found_under_what_is_not_the_very_same(tmp_path, monkeypatch):
    with plain("none") as fleet:
        keys = {what: fleet.keys(asked, out(1, 2)) for what, asked in others()}
        usual = next(asked for _, asked in others())
        keys["seed"] = fleet.keys(usual, [dataclasses.replace(f, seed=2) for f in out(1, 2)])
        keys["order"] = fleet.keys(usual, out(2, 1))[::-1]
    for what, change in {
        "library": (context, "libraries_of", lambda _: {"scikit-learn": "0"}),
        "privgate": (context, "VERSION", context.VERSION + 1),
        "python": (context.platform, "python_version", lambda: "3.0.0"),
        "machine": (context.platform, "machine", lambda: "another"),
    }.items():
        with monkeypatch.context() as patched, plain("none") as fleet:
            patched.setattr(*change)
            keys[what] = fleet.keys(usual, out(1, 2))
    assert keys.pop("order") == keys[""]
    flat = [key for pair in keys.values() for key in pair]
    assert len(flat) == len(set(flat)) == 20


@pytest.mark.attack("29 entries renamed as another recipe's", "check", "refused")
def test_a_harmless_models_entries_are_not_another_models(tmp_path):
    known = dict(others())
    with plain(tmp_path / "ledger") as fleet:
        fleet.fits(known["recipe"], out(1, 2))
        theirs, ours = fleet.keys(known["recipe"], out(1, 2)), fleet.keys(known[""], out(1, 2))
    for path in (tmp_path / "ledger").glob("*.seg"):
        content = path.read_bytes()
        for key, other in zip(theirs, ours, strict=True):
            content = content.replace(key, other)
        path.write_bytes(content)
    with plain(tmp_path / "ledger") as fleet:
        assert fleet.missing(known[""], out(1, 2)) == 0  # something lies there
        fleet.fits(known[""], out(1, 2))
        assert fleet.calls == 2
        assert fleet.ledger.damaged


# what workers answer


WRONG = {
    "no number": lambda a: np.full_like(a, np.nan),
    "unlimited": lambda a: np.full_like(a, np.inf),
    "no rows": lambda a: a[:0],
    "a row more": lambda a: np.vstack([a, a[:1]]),
    "one column": lambda a: a[:, :1],
    "no dimension": lambda _: np.array(0.0),
    "text": lambda a: np.full(a.shape, "0.0"),
    "no array": None,
    "a list": lambda a: a.tolist(),
}


def odd_one_out(X, y, *, seed):
    """Whoever is far away decides how far: the harm that a liar would hide."""
    return GaussianNB().fit(X, y)


def harmful():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(24, 2)), np.arange(24) % 2
    X[7] = 40.0
    return Subject.local(Recipe(odd_one_out, seed=1), TrainingData(X, y))


@pytest.mark.attack("29 a worker that answers anything else", "check", "not approved")
@pytest.mark.parametrize("what", WRONG)
def test_a_worker_that_answers_anything_else_approves_nothing(tmp_path, monkeypatch, what):
    """As a worker of a cluster may, about the one person who decides; no crash, no number made of it."""

    class Lying(LocalPool):
        def next(self):
            chunk, answers = super().next()
            if answers is None:
                return chunk, answers
            wrong = [isinstance(f, Fit) and f.left_out is not None and 7 in f.left_out for f in chunk.fits]
            lie = [7 if WRONG[what] is None else Answer(WRONG[what](a.log_p)) for a in answers]
            return chunk, [one if w else a for w, one, a in zip(wrong, lie, answers, strict=True)]

    monkeypatch.setattr(fleets, "LocalPool", Lying)
    path = tmp_path / "own.yaml"
    path.write_text('schema: privgate/policy/v1\nname: own\nversion: "1"\nrules:\n  - metric: pdtp\n    max: 1.0\n')
    with plain("none", signable=True) as fleet:
        answers = fleet.fits(harmful(), out(6, 7))
    assert [bool(a.problem) for a in answers] == [False, True]
    assert answers[1].log_p.size == 0


@pytest.mark.slow
@pytest.mark.attack("29 a worker that answers anything else", "check to the verdict", "not approved")
@pytest.mark.parametrize("what", WRONG)
def test_whom_a_liar_hides_is_unlimited_in_the_verdict(tmp_path, monkeypatch, what):
    def lying(pool):
        chunk, answers = LocalPool.next(pool)
        wrong = [isinstance(f, Fit) and f.left_out is not None and 7 in f.left_out for f in chunk.fits]
        lie = [7 if WRONG[what] is None else Answer(WRONG[what](a.log_p)) for a in answers or ()]
        return chunk, answers and [one if w else a for w, one, a in zip(wrong, lie, answers, strict=True)]

    monkeypatch.setattr(fleets, "LocalPool", type("Lying", (LocalPool,), {"next": lying}))
    path = tmp_path / "own.yaml"
    path.write_text('schema: privgate/policy/v1\nname: own\nversion: "1"\nrules:\n  - metric: pdtp\n    max: 1.0\n')
    with plain("none", signable=True) as fleet:
        verdict = gate.evaluate(Policy.load(path), harmful(), fleet=fleet, limits=Budget(full=True))
    assert not verdict.approved
    assert verdict.evidence.records["pdtp"][7] == np.inf


# training code


def poisoning(X, y, *, seed, folder="", secret=""):
    """Write beside what the checker remembers, whatever happens."""
    import contextlib
    from pathlib import Path

    for place, content in ((Path(folder) / "00000.seg", b"forged"), (Path(secret), b"k" * 32)):
        with contextlib.suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
    return GaussianNB().fit(X, y)


@pytest.mark.boxed
@pytest.mark.skipif(sys.platform != "linux", reason="a box needs Linux")
@pytest.mark.attack("29 training code writes to the ledger", "box", "nothing arrives")
def test_training_code_in_a_box_writes_nothing_to_the_ledger(tmp_path, own_key):
    from privgate.training.isolation import missing

    if why := missing():
        pytest.skip(why)
    rng = np.random.default_rng(0)
    data = TrainingData(rng.normal(size=(20, 2)), np.arange(20) % 2)
    recipe = Recipe(poisoning, {"folder": str(tmp_path / "ledger"), "secret": str(own_key)}, seed=1)
    with Fleet(jobs=1, ledger=tmp_path / "ledger", isolate="bubblewrap", signable=True) as fleet:
        before = own_key.read_bytes()
        (answer,) = fleet.fits(Subject.local(recipe, data), out(1))
    assert not answer.problem
    assert own_key.read_bytes() == before
    assert not (tmp_path / "ledger" / "00000.seg").exists()
    assert Ledger(tmp_path / "ledger").damaged == 0
