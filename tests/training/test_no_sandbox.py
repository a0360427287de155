"""What training code can do to whoever checks without a box, and that a box is no name of a program."""

import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from privgate.errors import UsageError
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training import isolation
from privgate.training.fit import Fit
from privgate.training.fleet import Fleet
from privgate.training.sandbox import bubblewrap

boxes = pytest.mark.skipif(
    not bubblewrap.find_bubblewrap().version, reason=f"no boxes here: {bubblewrap.find_bubblewrap().why}"
)

#: a program called bwrap that says its version, and runs what it is given as it is
FAKE = """#!/bin/sh
[ "$1" = --version ] && echo "bubblewrap 9.9.9" && exit
while [ "$1" != {python} ]; do shift; done
exec "$@"
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a box needs Linux")
def test_a_program_that_keeps_nothing_apart_is_no_box(tmp_path, monkeypatch):
    program = tmp_path / "bwrap"
    program.write_text(FAKE.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    # whoever is not root cannot become nobody, and ends there already; what is tried here is the question after it
    before = "from privgate.training.sandbox.bubblewrap import confine; confine(0); "
    monkeypatch.setattr(bubblewrap, "python", lambda code: [sys.executable, "-c", code.replace(before, "")])
    found = bubblewrap.find_bubblewrap.__wrapped__()
    assert (found.version, found.why) == ("", "bubblewrap makes no box here: it keeps nothing apart")


@pytest.mark.parametrize(
    ("setting", "value", "step"),
    [
        ("kernel.apparmor_restrict_unprivileged_userns", "1", "give bwrap an AppArmor profile that allows userns"),
        ("kernel.unprivileged_userns_clone", "0", "set it to 1"),
        ("user.max_user_namespaces", "0", "set it to 10000"),
        ("user.max_user_namespaces", "9", "a profile of AppArmor or of a container may forbid it; else look at "),
    ],
)
def test_the_setting_that_forbids_boxes_is_named(tmp_path, monkeypatch, setting, value, step):
    said = "loopback: Operation not permitted" if value == "1" else "setting up uid map: Permission denied"
    place = tmp_path / setting.replace(".", "/")
    place.parent.mkdir()
    place.write_text(f"{value}\n")
    told = bubblewrap._forbidding(f"bwrap: {said}", tmp_path)
    assert setting in told
    assert step in told
    assert bubblewrap._forbidding("bwrap: Can't find source path", tmp_path) == ""
    (tmp_path / "bwrap").write_text(f"#!/bin/sh\necho 'bwrap: {said}' >&2\n[ $1 = --version ]\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = bubblewrap.find_bubblewrap.__wrapped__()
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", lambda: found)
    with pytest.raises(UsageError, match=rf"bwrap: {said} \(.*forbid") as raised:
        isolation.choose_isolation("bubblewrap")
    assert "install" not in str(raised.value)


@pytest.mark.parametrize("said", ["bubblewrap 0.8.0", "BUBBLEWRAP", "auto ", "", "docker", "none with network"])
def test_isolation_is_one_of_three_words(said):
    with pytest.raises(UsageError, match="auto, bubblewrap, none"):
        isolation.choose_isolation(said)


def test_neither_recipe_nor_variable_decides_what_is_said_of_the_box(monkeypatch):
    for name in ("PRIVGATE_ISOLATION", "PRIVGATE_BOX", "container", "BWRAP"):
        monkeypatch.setenv(name, "bubblewrap 0.8.0")
    asked = subject(lingering, isolation="bubblewrap 0.8.0", network=True)
    with Fleet(jobs=1, ledger="none", isolate="none") as fleet:
        assert {fleet.isolation, fleet.isolation_of(asked)} == {"none"}
    with pytest.raises(UsageError, match="not boxed"):
        isolation.choose_isolation("bubblewrap", cluster=True)


def littering(X, y, *, seed):
    """Leave a file in the working folder, as libraries of boosting do, and end unless it was empty."""
    if any(Path().iterdir()):
        raise ArithmeticError("the working folder is not empty")
    Path("info.tsv").write_text(str(seed))
    return lingering(X, y, seed=seed)


def test_training_without_a_box_works_in_an_empty_folder_of_its_own(tmp_path, monkeypatch):
    (tmp_path / "of-the-operator").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(os.path.relpath(Path(__file__).parent, tmp_path))  # relative paths of modules hold
    with Fleet(jobs=1, ledger="none", isolate="none") as fleet:
        (answer,) = fleet.fits(subject(littering), [Fit(1, np.arange(2), left_out=np.array([1]))])
        spool = fleet._spool
    assert not answer.problem
    assert [path.name for path in tmp_path.iterdir()] == ["of-the-operator"]
    assert not spool.exists()


def lingering(X, y, *, seed, place="", **_):
    """Train; leave a process behind that writes a report later."""
    import contextlib
    import time
    from pathlib import Path

    if place and os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            with contextlib.suppress(OSError):
                time.sleep(1.0)
                Path(place, "report.json").write_text("approved")
        os._exit(0)
    return GaussianNB().fit(X, y)


def subject(function, **params):
    rng = np.random.default_rng(0)
    return Subject.local(
        Recipe(function, params, seed=1),
        TrainingData(rng.normal(size=(20, 2)), np.arange(20) % 2, one_record_each=True),
    )


@pytest.mark.slow
@pytest.mark.boxed
@pytest.mark.parametrize("way", ["none", pytest.param("bubblewrap", marks=boxes)])
def test_training_code_outlives_the_check_only_without_a_box(tmp_path, way):
    """Why an approval without a box counts nowhere by default: its report may be the author's."""
    with Fleet(jobs=1, ledger="none", isolate=way) as fleet:
        (answer,) = fleet.fits(subject(lingering, place=str(tmp_path)), [Fit(1, np.arange(2), left_out=np.array([1]))])
    assert not answer.problem
    until = time.monotonic() + (20 if way == "none" else 2)
    while time.monotonic() < until and not (tmp_path / "report.json").exists():
        time.sleep(0.05)
    assert (tmp_path / "report.json").exists() == (way == "none")
