"""Whoever reads a version's files, over HTTP, by MLflow, in a folder or in the registry, says the same of them."""

import hashlib
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException

from privgate import Fleet, Policy, Subject, evaluate, report
from privgate.errors import PrivgateError
from privgate.guard import signing
from privgate.guard.guard_config import Guard
from privgate.guard.guard_doctor import examine
from privgate.guard.signing import TAG
from privgate.guard.verifying import verify, verify_folder
from privgate.registry import rest

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]

PACKAGE = Path(__file__).resolve().parents[3] / "packages" / "privgate-verify"
#: privgate-verify as a program that is asked again and again
ASKED = """
import shlex, sys
from privgate_verify.cli.ending import run
from privgate_verify.cli.verify import verify
for line in sys.stdin:
    code = run(verify, shlex.split(line), "privgate-verify")
    sys.stderr.flush()
    print(f"ended {code}", flush=True)
"""


@pytest.fixture(scope="module")
def verifier(tmp_path_factory):
    """Return a function that asks privgate-verify, built of this tree, and returns its exit code."""
    spec = importlib.util.spec_from_file_location("closure", PACKAGE / "closure.py")
    closure = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(closure)
    config = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    place = tmp_path_factory.mktemp("package")
    for name, text in closure.sources(PACKAGE.parents[1], config["hooks"]["custom"]).items():
        path = place / "privgate_verify" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    process = subprocess.Popen(
        [sys.executable, "-c", ASKED], env={**os.environ, "PYTHONPATH": str(place)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def ask(*words):
        process.stdin.write(shlex.join(map(str, words)) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            if line.startswith("ended "):
                return int(line.split()[1])
        raise AssertionError("privgate-verify has ended")

    yield ask
    process.stdin.close()
    process.wait()


@pytest.fixture(scope="module")
def world(authors_world, verifier, site):
    """The released version, checked and with a report; the server's guard reads files, too."""
    made = authors_world
    policy = Policy.load("dtp-1")
    subject = Subject.load("models:/m/1", tracking_uri=made.registry.address)
    with Fleet(jobs=1, ledger=made.work / "ledger") as fleet:
        verdict = evaluate(policy, subject, fleet=fleet)
    report.write(verdict, made.work / "checked", hash_key=b"k" * 32)
    made.verifier, made.policy = verifier, policy
    made.config = site.folder / "by-digest.yaml"  # privgate-verify has no policies of its own
    made.config.write_text(site.config.read_text().replace("policy: dtp-1", f"policy: {policy.digest}"))
    before = site.config.read_text()
    site.config.write_text(before + "check_files: true\n")
    yield made
    site.config.write_text(before)


def digests(folder):
    """Return path -> sha256 of what a statement is about, by nothing of privgate's."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if path.is_file() and path != folder / "registered_model_meta":
                found[path.relative_to(folder).as_posix()] = "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def answers(world, tmp_path, signed):
    """Return what each reader says of the files as they are: whether they are those of ``signed``."""
    address, guard = world.registry.address, Guard.load(world.registry.site.config)
    folder = shutil.copytree(world.files, tmp_path / "folder", symlinks=True)
    envelope = tmp_path / "verdict.dsse.json"
    envelope.write_text(dict(world.registry.client.get_model_version("m", "1").tags)[TAG])
    out = shutil.copytree(world.work / "checked", tmp_path / "out")
    document = json.loads((out / "report.json").read_text())
    for about in (document["subject"], document["evidence"]["subject"]):
        own = {p: d for p, d in signed.items() if not p.startswith("privgate/")}
        about["digests"] |= {"files": manifest(signed), "model": manifest(own)}
    (out / "report.json").write_text(json.dumps(document))

    def doctor():
        wrong = [a.text for a in examine(guard, tracking_uri=address) if a.state == "wrong"]
        if wrong:
            raise PrivgateError(wrong[0])

    def by_mlflow():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rest, "address_for", lambda _: None)
            verify("models:/m@production", guard, tracking_uri=address)

    def package(*words):
        if world.verifier(*words, "--config", world.config):
            raise PrivgateError("privgate-verify says no")

    readers = {
        "verify": lambda: verify("models:/m@production", guard, tracking_uri=address),
        "verify by MLflow": by_mlflow,
        "verify --to": lambda: verify("models:/m/1", guard, tracking_uri=address, to=tmp_path / "to"),
        "folder": lambda: verify_folder(folder, envelope, guard, target="production"),
        "doctor": doctor,
        "guard": lambda: world.registry.client.set_registered_model_alias("m", "production", "1"),
        "signer": lambda: signing.sign(
            out, world.registry.site.signer, policy=world.policy, registry="test-registry", tracking_uri=address
        ),
        "privgate-verify": lambda: package("models:/m@production", "--tracking-uri", address),
        "privgate-verify folder": lambda: package(folder, "--statement", envelope, "--target", "production"),
    }
    said = {}
    for name, ask in readers.items():
        try:
            ask()
            said[name] = "yes"
        except (PrivgateError, MlflowException) as exc:
            said[name] = f"no: {exc}"
    return said


def manifest(table):
    return (
        "sha256:"
        + hashlib.sha256(
            _framed(json.dumps(table, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())
        ).hexdigest()
    )


def _framed(content):
    return len(content).to_bytes(8, "big") + content


def put(path, content=b"x"):
    def change(folder):
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)

    return change


def note(content):
    return put("registered_model_meta", content)


def link(target, path="linked"):
    def change(folder):
        (folder / path).unlink(missing_ok=True)
        (folder / path).symlink_to(folder / target if not target.startswith("/") else target)

    return change


def rename(old, new):
    return lambda folder: (folder / old).rename(folder / new)


def more(path, content):
    def change(folder):
        place = folder / path
        place.write_bytes(place.read_bytes() + content)

    return change


OWN = b"model_name: m\nmodel_version: '1'\n"
#: a change -> what is said of it where the statement is of the files before, and where it is of the changed ones
CHANGES = {
    "nothing": (lambda _: None, "yes", "yes"),
    "a file added": (put("more.bin"), "no", "yes"),
    "an empty file added": (put("empty.txt", b""), "no", "yes"),
    "a hidden file added": (put(".hidden"), "no", "yes"),
    "a file of compiled code added": (put("code/__pycache__.d/x.pyc"), "no", "yes"),
    "a file removed": (lambda folder: (folder / "requirements.txt").unlink(), "no", "yes"),
    "a file changed": (more("model.skops", b"x"), "no", "yes"),
    "a file emptied": (put("requirements.txt", b""), "no", "yes"),
    "conda.yaml named otherwise": (rename("conda.yaml", "environment.yaml"), "no", "yes"),
    "MLmodel with a bare return": (more("MLmodel", b"# a remark\rrun_id: x\n"), "no", "yes"),
    "the recipe changed": (more("privgate/recipe.json", b" "), "no", "yes"),
    "nested folders": (put("a/b/c/d.txt"), "no", "yes"),
    "a folder of one file of its name": (put("same/same"), "no", None),
    "a folder of a file and its name": (put("same/same/file"), "no", "yes"),
    "an empty folder": (lambda folder: (folder / "nothing").mkdir(), "yes", "yes"),
    "MLflow's note": (note(OWN), "yes", "yes"),
    "MLflow's note of no name": (note(b"model_name: null\nmodel_version: null\n"), "yes", "yes"),
    "MLflow's note of another version": (note(OWN.replace(b"1", b"2")), "no", "no"),
    "MLflow's note of another model": (note(OWN.replace(b": m", b": other")), "no", "no"),
    "a note with a third line": (note(OWN + b"dependencies: [evil]\n"), "no", "no"),
    "a note with a bare return": (note(OWN.replace(b": m", b": m\rdependencies: [evil]")), "no", "no"),
    "an empty note": (note(b""), "no", "no"),
    "a note that is a folder": (put("registered_model_meta/conda.yaml"), "no", "no"),
    "a note below a folder": (put("code/registered_model_meta", OWN), "no", "yes"),
    "a name with signs of addresses": (put("a#b?c=%41.txt"), "no", None),
    "a name of other letters": (put("ünï 信用 (1).bin"), "no", "yes"),
    # privgate-verify leaves names that are odd in a URL to MLflow's client, which it lacks, and says no
    "a name that ends with a space": (put("a "), "no", None),
    "a name with a new line": (put("a\nb"), "no", None),
    "a name with a backslash": (put("a\\b"), "no", None),
    "a name that is no text": (lambda folder: Path(os.fsdecode(bytes(folder) + b"/\xff")).touch(), "no", None),
    "a twin in other case": (put("mlmodel"), "no", "no"),
    "a link to a file": (link("MLmodel"), "no", None),
    "a link in place of a file": (link("/etc/hostname", "requirements.txt"), "no", None),
    "a link to nothing": (link("absent"), "no", "no"),
    "a link to a folder": (link("/etc/ssl"), "no", None),
}


#: asked by default: one of each kind; `make test-slow` asks the rest
QUICK = {
    *("nothing", "a file removed", "a file changed", "a folder of one file of its name"),
    *("a twin in other case", "a note with a bare return", "a link to a file"),
}
QUICK_SIGNED = {"a note that is a folder", "MLmodel with a bare return"}


def some(changes, quick):
    return [pytest.param(c, marks=[] if c in quick else pytest.mark.slow) for c in changes]


def said_of(world, tmp_path, change, *, signed):
    """Return what readers say of a change, of which the statement knows or not."""
    with world.kept():
        if signed:
            CHANGES[change][0](world.files)
        table = digests(world.files)
        world.signed(table)
        if not signed:
            CHANGES[change][0](world.files)
        return answers(world, tmp_path, table)


@pytest.mark.attack("22 files changed after they were signed", "every reader", "refused by all")
@pytest.mark.parametrize("change", some(CHANGES, QUICK))
def test_everybody_says_the_same_of_what_was_changed_since(world, tmp_path, change):
    said = said_of(world, tmp_path, change, signed=False)
    assert {what.partition(":")[0] for what in said.values()} == {CHANGES[change][1]}, said


@pytest.mark.attack("22 odd files under a statement", "every reader", "one answer")
@pytest.mark.parametrize("change", some([c for c in CHANGES if CHANGES[c][2]], QUICK_SIGNED))
def test_everybody_says_the_same_of_what_was_signed(world, tmp_path, change):
    said = said_of(world, tmp_path, change, signed=True)
    assert {what.partition(":")[0] for what in said.values()} == {CHANGES[change][2]}, said
