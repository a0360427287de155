"""A box is one: an adversarial recipe tries all that it could reach as the user who checks, and finds nothing."""

import contextlib
import ctypes
import importlib
import json
import os
import pickle
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from privgate.errors import UsageError
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training.fit import Answer
from privgate.training.fleet import Fleet
from privgate.training.sandbox import bubblewrap, wire
from tests.training.conftest import out

SECRET = "a-password-of-this-test"

boxes = pytest.mark.skipif(
    not bubblewrap.find_bubblewrap().version, reason=f"no boxes here: {bubblewrap.find_bubblewrap().why}"
)

ADVERSARY = '''
"""Trains, and tells in its log what it reached on the way."""
import ctypes, glob, json, os, socket, sys
from pathlib import Path

import numpy as np

from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training.fit import Fit
from privgate.training.fleet import Fleet

SECRET = SECRET_OF_THIS_TEST


class Model:
    classes_ = np.array([0, 1])

    def predict_proba(self, X):
        return np.full((len(X), 2), 0.5)


def tried(attempt):
    """Return what an attempt reached; an error is nothing."""
    try:
        return attempt()
    except Exception:
        return False


def reads(path):
    with open(path, "rb") as f:
        return len(f.read(100)) >= 0


def connects(address, family=socket.AF_INET):
    with socket.socket(family) as s:
        s.settimeout(5)
        s.connect(address)
        return True


def writes(path):
    with open(path, "ab"):
        return True


def links(path):
    link = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"link-{os.getpid()}")
    os.symlink(path, link)
    try:
        return reads(link)
    finally:
        os.unlink(link)


def outside(descriptor):
    """Whether an open file is one that nobody in here opened."""
    own = ("/dev/null", "pipe:", "socket:", "/proc/", "anon_inode:", "/tmp/")
    return tried(lambda: not os.readlink(descriptor).startswith(own))


def fills(folder):
    path = os.path.join(folder, f"full-{os.getpid()}")
    with open(path, "wb") as f:
        try:
            os.posix_fallocate(f.fileno(), 0, 1 << 33)
            return True
        finally:
            os.unlink(path)


def leaks(name):
    for path in glob.glob(f"/proc/[0-9]*/{name}"):
        try:
            if SECRET.encode() in open(path, "rb").read():
                return True
        except OSError:
            continue
    return False


def attaches(pid):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, pid, 0, 0) != 0:
        return False
    os.waitpid(pid, 0x40000000)
    libc.ptrace(17, pid, 0, 0)
    return True


def alone(attempt):
    """Try in a process that has no threads."""
    child = os.fork()
    if child == 0:
        os._exit(0 if attempt() else 1)
    return os.waitpid(child, 0)[1] == 0


def fit(X, y, *, seed, about):
    import privgate
    data = [p for p in glob.glob("/tmp/privgate-fleet-*/**/X.npy", recursive=True)]
    libc = ctypes.CDLL(None)
    found = {
        "own environment": any(SECRET in v for v in os.environ.values()),
        "somebody's environment": leaks("environ"),
        "somebody's command line": leaks("cmdline"),
        "key": tried(lambda: reads(about["key"])),
        "key by a link": tried(lambda: links(about["key"])),
        "key by a root": any(tried(lambda p=p: reads(p + about["key"])) for p in glob.glob("/proc/[0-9]*/root")),
        "home": tried(lambda: len(os.listdir(about["home"])) >= 0),
        "ledger": tried(lambda: len(os.listdir(about["ledger"])) >= 0),
        "home of root": tried(lambda: os.listdir("/root") not in ([], [".pyenv"])),
        "registry": tried(lambda: connects(("127.0.0.1", about["port"]))),
        "abstract socket": tried(lambda: connects("\\0" + about["abstract"], socket.AF_UNIX)),
        "socket file": tried(lambda: connects(about["socket"], socket.AF_UNIX)),
        "code": tried(lambda: writes(os.path.join(os.path.dirname(privgate.__file__), "version.py"))),
        "libraries": tried(lambda: writes(os.path.join(os.path.dirname(np.__file__), "version.py"))),
        "data": any(tried(lambda p=p: writes(p)) for p in data),
        "signals": tried(lambda: os.kill(about["parent"], 0) is None),
        "ptrace": tried(lambda: attaches(about["parent"])),
        "processes": len(glob.glob("/proc/[0-9]*")) > 8,
        "root": tried(lambda: os.setuid(0) is None and os.geteuid() == 0),
        "a namespace": alone(lambda: libc.unshare(0x10000000) == 0),
        "a keyring": libc.syscall({"x86_64": 250, "aarch64": 219}[os.uname().machine], 0, -3, 0) >= 0,
        "a user namespace": alone(lambda: libc.unshare(0x10000000 | 0x20000) == 0),
        "the machine outside": tried(lambda: socket.socket(40, socket.SOCK_STREAM)),  # vsock: no namespace holds it
        "the kernel's ciphers": tried(lambda: socket.socket(38, socket.SOCK_SEQPACKET)),
        "packets": tried(lambda: socket.socket(17, socket.SOCK_RAW)),
        "io_uring": libc.syscall(425, 8, ctypes.create_string_buffer(120)) >= 0,
        "somebody's shared memory": libc.shmget(about["shared"], 0, 0) >= 0,
        "an inherited file": any(map(outside, glob.glob("/proc/self/fd/*"))),
        "new privileges": libc.prctl(39, 0, 0, 0, 0) != 1,
        "a parent's memory": tried(lambda: open(f"/proc/{about['parent']}/mem", "rb").seek(0) == 0),
        "memory of what forks workers": tried(lambda: open(f"/proc/{os.getppid()}/mem", "r+b").seek(0) == 0),
        "the kernel": tried(lambda: writes("/proc/sys/kernel/core_pattern")),
        "devices": tried(lambda: reads("/dev/mem") or reads("/dev/kmsg")),
    }
    if about["boxed"]:
        found |= {f"room in {p}": tried(lambda p=p: fills(p)) for p in ("/tmp", "/dev/shm", "/dev", "/", "/var")}
    found["data seen"] = bool(data)
    print("FOUND " + json.dumps({k: bool(v) for k, v in found.items()}), flush=True)
    return Model()


if __name__ == "__main__":
    about = json.loads(sys.argv[1])
    about["parent"] = os.getpid()
    X = np.arange(20.0)[:, None]
    subject = Subject.local(Recipe(fit, params={"about": about}, seed=1), TrainingData(X, np.arange(20) % 2))
    fleet = Fleet(jobs=1, ledger=about["ledger"], isolate="bubblewrap" if about["boxed"] else "none")
    fleet.logs = Path(about["logs"])
    with fleet:
        answers = fleet.fits(subject, [Fit(1, np.arange(1), left_out=np.array([3]))])
        assert not answers[0].problem, answers
    print(fleet.isolation)
'''.replace("SECRET_OF_THIS_TEST", repr(SECRET))


@pytest.fixture
def attacked():
    """Run the adversary, boxed or not, beside what it is after; return what it found."""
    place = Path(tempfile.mkdtemp(prefix="privgate-box-test-"))
    home, script = place / "home", place / "adversary.py"
    home.mkdir()
    script.write_text(ADVERSARY)
    (home / "key.pem").write_text(SECRET)
    for path in (place, home, home / "key.pem"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    with contextlib.ExitStack() as open_:
        registry = open_.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract, file = (open_.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
        abstract.bind("\0" + place.name)
        file.bind(str(home / "socket"))
        (home / "socket").chmod(0o777)
        for s in (abstract, file):
            s.listen()
        shared_key, libc = 0x70726976, ctypes.CDLL(None)
        shared = libc.shmget(shared_key, 4096, 0o1000 | 0o666)
        assert shared >= 0
        open_.callback(libc.shmctl, shared, 0, None)

        def run(*, boxed):
            about = {
                "boxed": boxed, "key": str(home / "key.pem"), "home": str(home),
                "ledger": str(home / f"ledger-{boxed}"),
                "port": registry.getsockname()[1], "abstract": place.name, "socket": str(home / "socket"),
                "logs": str(home / f"logs-{boxed}"), "shared": shared_key,
            }  # fmt: skip
            secrets = ("MLFLOW_TRACKING_PASSWORD", "GITHUB_OUTPUT", "PRIVGATE_LEDGER_KEY", "PRIVGATE_SIGNING_KEY")
            done = subprocess.run(
                [sys.executable, str(script), json.dumps(about), SECRET],
                cwd=home, capture_output=True, text=True, check=False,
                env={"HOME": str(home), "PATH": os.environ["PATH"], **dict.fromkeys(secrets, SECRET)},
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            said = "".join(p.read_text() for p in Path(about["logs"]).iterdir())
            assert said.count("FOUND ") == 1, said
            return done.stdout.strip(), json.loads(said.partition("FOUND ")[2].splitlines()[0])

        yield run
    shutil.rmtree(place)


@boxes
def test_an_adversarial_recipe_finds_nothing_outside_its_box(attacked):
    told, open_ = attacked(boxed=False)
    assert told == "none"
    # without a box the same code reaches all of this: what follows is no test of attempts that always fail
    reached = {k for k, found in open_.items() if found}
    assert reached >= {
        "somebody's environment", "somebody's command line", "key", "key by a link", "key by a root", "home", "ledger",
        "registry", "abstract socket", "socket file", "data", "signals", "processes", "somebody's shared memory",
        "new privileges", "a parent's memory", "memory of what forks workers",
    }  # fmt: skip

    told, found = attacked(boxed=True)
    assert told == f"bubblewrap {bubblewrap.find_bubblewrap().version}"
    assert {k for k, reached in found.items() if reached} == {"data seen"}


class Even:
    classes_ = np.array([0, 1])

    def predict_proba(self, X):
        return np.full((len(X), 2), 0.5)


def missing(X, row):
    return not (X[:, 0] == row).any()


def subject(training, **params):
    return Subject.local(
        Recipe(training, params=params, seed=1),
        TrainingData(np.arange(12.0)[:, None], np.arange(12) % 2, one_record_each=True),
    )


def even(X, y, *, seed):
    return Even()


def calling(X, y, *, seed, port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        print("REACHED", flush=True)
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX):
        print("LOCAL SERVICES", flush=True)
    return Even()


@boxes
@pytest.mark.parametrize(("declared", "allowed"), [(False, True), (True, False), (True, True)])
def test_a_box_has_the_network_where_the_recipe_declares_it_and_the_operator_lets_it(tmp_path, declared, allowed):
    with socket.create_server(("127.0.0.1", 0)) as outside:
        recipe = Recipe(calling, params={"port": outside.getsockname()[1]}, seed=1, network=declared)
        asked = Subject.local(recipe, subject(even).data)
        fleet = Fleet(jobs=1, ledger=tmp_path / "ledger", isolate="bubblewrap", network=allowed)
        fleet.logs = tmp_path / "logs"
        with fleet:
            assert not fleet.fits(asked, out(1))[0].problem
            told = fleet.isolation_of(asked)
        said = "".join(p.read_text() for p in (tmp_path / "logs").glob("*"))
    assert ("REACHED" in said) == (declared and allowed)
    # with the network shared, sockets of abstract names would reach the host: none is made then
    assert ("LOCAL SERVICES" in said) == (not (declared and allowed))
    assert told == f"bubblewrap {bubblewrap.find_bubblewrap().version}" + (
        " with network" if declared and allowed else ""
    )


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


def forging(X, y, *, seed, how, marker):
    """Write to whatever descriptor is open, before the answer, what a parent might take for one."""
    if missing(X, 7):
        body = {
            "pickle": pickle.dumps(Bomb(marker)),
            "answer": b"\0" * 16 + b"A" + struct.pack("<I", 1) + b"\0" * 100,
            "endless": b"\0" * 10,
            "json": b"\0" * 16 + b"J" + b"[" * 100_000,
        }[how]
        for fd in range(3, 4096):
            with contextlib.suppress(OSError):
                os.write(fd, struct.pack("<Q", 1 << 62 if how == "endless" else len(body)) + body)
    return Even()


@pytest.mark.quick(2)
@boxes
@pytest.mark.parametrize("how", ["pickle", "answer", "endless", "json"])
def test_what_is_forged_through_the_pipe_is_no_answer_and_runs_nothing(tmp_path, how):
    marker = tmp_path / "marker"
    with Fleet(jobs=1, ledger=tmp_path / "ledger", isolate="bubblewrap") as fleet:
        answers = fleet.fits(subject(forging, how=how, marker=str(marker)), out(6, 7, 8))

    assert [bool(a.problem) for a in answers] == [False, True, False]
    assert not marker.exists()
    assert answers[1].log_p.size == 0


def multiplying(X, y, *, seed):
    """Start processes that outlive training until no more can be started."""
    started = 0
    with contextlib.suppress(OSError):
        while started < 3000:
            os.posix_spawn("/bin/sleep", ["sleep", "600"], {}, setsid=True)  # a fork of all libraries takes longer
            started += 1
    print(f"STARTED {started}", flush=True)
    return Even()


def inside():
    """Return how many processes there are in boxes, whatever they are called."""
    found, ours = 0, Path("/proc/self/ns/pid").readlink()
    for path in Path("/proc").glob("[0-9]*/ns/pid"):
        with contextlib.suppress(OSError):
            found += path.readlink() != ours
    return found


def leaving_a_child(X, y, *, seed):
    """Die beside a process that lives on."""
    if missing(X, 7):
        if os.fork() == 0:
            time.sleep(60)
        os._exit(1)
    return Even()


@pytest.mark.parametrize("way", [pytest.param("bubblewrap", marks=boxes), "none"])
def test_a_worker_that_dies_is_missed_at_once_though_a_child_of_it_lives(tmp_path, way):
    began = time.monotonic()
    with Fleet(jobs=1, ledger=tmp_path, isolate=way, time_limit=100) as fleet:
        answers = fleet.fits(subject(leaving_a_child), out(6, 7, 8))
    assert [bool(a.problem) for a in answers] == [False, True, False]
    assert time.monotonic() - began < 50


@boxes
def test_processes_are_limited_and_none_outlives_its_box(tmp_path):
    before = inside()
    fleet = Fleet(jobs=1, ledger=tmp_path / "ledger", isolate="bubblewrap")
    fleet.logs = tmp_path / "logs"
    with fleet:
        fleet.fits(subject(multiplying), out(1))
        assert inside() > before
    said = "".join(p.read_text() for p in fleet.logs.iterdir())
    assert 0 < int(said.partition("STARTED ")[2].split()[0]) < 1024
    deadline = time.monotonic() + 200
    while inside() > before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert inside() <= before


def telling(X, y, *, seed, name):
    """Leave a mark in the process and in /tmp, and tell which marks of others are there."""
    import sklearn

    marks = [m for m in getattr(sklearn, "marks", []) if m != name]
    marks += [p.name for p in Path("/tmp").iterdir() if name not in p.name]
    sklearn.marks = [*getattr(sklearn, "marks", []), name]
    Path("/tmp", f"mark-{name}").touch()
    print(f"MARKS {name} {[m for m in marks if 'mark' in m or m in ('one', 'two')]}", flush=True)
    print(f"SPOOL {sorted(p.name for p in Path('/tmp').glob('privgate-fleet-*/*'))}", flush=True)
    return Even()


@boxes
def test_code_of_two_recipes_never_meets(tmp_path):
    fleet = Fleet(jobs=1, ledger=tmp_path / "ledger", isolate="bubblewrap")
    fleet.logs = tmp_path / "logs"
    one, two = subject(telling, name="one"), subject(telling, name="two")
    with fleet:
        for asked, rows in ((one, (1,)), (two, (1,)), (one, (2,))):
            fleet.fits(asked, out(*rows))
    said = "".join(p.read_text() for p in sorted(fleet.logs.iterdir()))
    assert said.count("MARKS ") == 3
    assert said.count("[]") == 3
    assert all(line.count("'") == 2 for line in said.splitlines() if line.startswith("SPOOL"))


@boxes
def test_answers_are_the_same_in_a_box(tmp_path):
    from sklearn.ensemble import RandomForestClassifier

    forest, answers = subject(RandomForestClassifier(n_estimators=5)), []
    for way in ("bubblewrap", "none"):
        with Fleet(jobs=1, ledger="none", isolate=way) as fleet:
            answers.append([a.log_p for a in fleet.fits(forest, out(*range(6)))])
    np.testing.assert_array_equal(*answers)


@boxes
def test_a_package_whose_modules_use_each_other_travels_whole(tmp_path, monkeypatch):
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "__init__.py").touch()
    (tmp_path / "packed" / "tools.py").write_text("def double(X):\n    return 2 * X\n")
    (tmp_path / "packed" / "fitting.py").write_text(
        "from sklearn.naive_bayes import GaussianNB\nfrom packed import tools\n\n\n"
        "def fit(X, y, *, seed):\n    return GaussianNB().fit(tools.double(X), y)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with Fleet(jobs=1, ledger="none", isolate="bubblewrap") as fleet:
        assert not fleet.fits(subject(importlib.import_module("packed.fitting").fit), out(1))[0].problem


# without a box


def test_where_no_box_can_be_made_the_run_says_none_or_refuses(tmp_path, monkeypatch):
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", lambda: bubblewrap.Installed(why="bubblewrap is not installed"))
    with Fleet(jobs=1, ledger=tmp_path) as fleet:
        assert fleet.isolation == "none"
        assert not fleet.fits(subject(even), out(1))[0].problem
    with Fleet(1, tmp_path, isolate="bubblewrap") as fleet, pytest.raises(UsageError, match="not installed"):
        fleet.fits(subject(even), out(2))


# what comes through the pipe


def reply(*answers):
    nonce = b"n" * wire.NONCE
    return nonce, wire.encoded(nonce, list(answers))


def test_answers_survive_the_pipe():
    sent = [Answer(np.log([[0.25, 0.75]]), 0.5), Answer(np.zeros((0, 0)), 1.0, "training raised it", lasting=False)]
    nonce, body = reply(*sent)
    got = wire.answers(body, nonce, [(1, 2), (1, 2)])
    np.testing.assert_array_equal(got[0].log_p, sent[0].log_p)
    assert [(a.seconds, a.problem, a.lasting) for a in got] == [(0.5, "", True), (1.0, "training raised it", False)]
    assert len(body) <= wire.most_bytes([(1, 2), (1, 2)])
    assert wire.json_value(wire.encoded(nonce, {"a": [1]}), nonce) == {"a": [1]}


def test_what_no_worker_of_ours_would_reply_is_a_lie():
    nonce, body = reply(Answer(np.zeros((1, 2))))
    odd = [np.full((1, 2), np.nan), np.full((1, 2), np.inf), np.zeros((2, 2)), np.zeros((1, 3)), np.zeros((0, 0))]
    wrong = [reply(Answer(log_p))[1] for log_p in odd]
    wrong += [reply(Answer(np.zeros((1, 2)), seconds))[1] for seconds in (np.nan, -1.0, np.inf)]
    wrong += [b"m" * 16 + body[16:], body + b"\0", body[:-1], body[:20], b"", nonce + b"J" + body[17:], reply()[1]]
    for each in wrong:
        with pytest.raises(wire.GoneError):
            wire.answers(each, nonce, [(1, 2)])
    for text in (b"[" * 100_000, b"\xff", b"{", b""):
        with pytest.raises(wire.GoneError):
            wire.json_value(nonce + b"J" + text, nonce)
    nasty = Answer(np.zeros((0, 0)), problem="\x1b[2Jraised\n" + "x" * 10_000)
    problem = wire.answers(reply(nasty)[1], nonce, [(1, 2)])[0].problem
    assert problem.isprintable()
    assert len(problem) <= 500
