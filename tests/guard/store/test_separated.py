"""Check as one user, sign as another: what a training function reaches on the way, and what each user's word counts."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException

import privgate
from privgate import Recipe
from tests.guard.store.conftest import Site

SIGNER, CHECKER = 64011, 64012

pytestmark = [
    pytest.mark.slow,
    pytest.mark.server,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become two other users"),
]

TRAINING = '''
"""Trains, and takes what it can reach."""
import glob, json, os, urllib.error, urllib.request
from sklearn.naive_bayes import CategoricalNB

def fit(X, y, *, seed):
    keys = []
    if os.path.isdir({loot!r}):
        for path in [{key!r}, *glob.glob("/proc/[0-9]*/environ")]:
            try:
                content = open(path, "rb").read()
            except OSError:
                continue
            if b"PRIVATE KEY" in content:
                keys.append(path)
        body = json.dumps(dict(name="credit", alias="production", version="1")).encode()
        request = urllib.request.Request(
            {address!r} + "/api/2.0/mlflow/registered-models/alias", body, {{"Content-Type": "application/json"}}
        )
        try:
            status = urllib.request.urlopen(request, timeout=20).status
        except urllib.error.HTTPError as exc:
            status = exc.code
        except OSError:
            status = 0
        with open(os.path.join({loot!r}, str(os.getpid())), "a") as out:
            print(os.geteuid(), len(keys), status, file=out)
    return CategoricalNB(alpha=5.0, min_categories=3).fit(X, y)
'''


def interpreter():
    """Return an interpreter that other users may run, and the environment in which it finds privgate; or skip."""
    path = os.pathsep.join([str(Path(privgate.__file__).parents[1]), *(p for p in sys.path if "site-packages" in p)])
    for python, extra in ((sys.executable, {}), ("/usr/bin/python3", {"PYTHONPATH": path})):
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            subprocess.run(
                [python, "-c", "import privgate, mlflow, sklearn"],
                user=CHECKER, group=CHECKER, extra_groups=[], cwd="/", check=True, capture_output=True,
                env={"HOME": tempfile.gettempdir(), **extra},
            )  # fmt: skip
            return python, extra
    pytest.skip("no interpreter that other users may run has privgate's dependencies")


def run_as(user, home, *arguments):
    """Run the command line as a user, who keeps nothing of ours."""
    python, extra = interpreter()
    done = subprocess.run(
        [python, "-m", "privgate", *map(str, arguments)],
        user=user, group=user, extra_groups=[], cwd=home, capture_output=True, text=True, check=False,
        env={"HOME": str(home), "PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", **extra},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def homes():
    """A folder each for checker, signer and loot, outside of pytest's, which other users cannot enter."""
    place = Path(tempfile.mkdtemp(prefix="privgate-users-"))
    place.chmod(0o755)
    for name, user, mode in (("checker", CHECKER, 0o755), ("signer", SIGNER, 0o700), ("loot", 0, 0o777)):
        (place / name).mkdir()
        os.chown(place / name, user, user)
        (place / name).chmod(mode)
    yield place
    shutil.rmtree(place)


@pytest.fixture
def registry(homes, running_guarded):
    """A guarded registry that accepts no advisory statement; its configuration is public."""
    interpreter()  # skips before a server is started in vain
    site, key = Site(homes / "site"), homes / "signer" / "key.pem"
    (homes / "server").mkdir()
    for path in (homes / "site", *site.folder.iterdir()):
        path.chmod(0o755)
    write_key(key, site.signer.private_bytes, SIGNER)
    with running_guarded(homes / "server", site=site) as registry:
        yield registry


def write_key(path, content, user):
    path.write_bytes(content)
    path.chmod(0o600)
    os.chown(path, user, user)


CHECK = ("check", "models:/credit/1", "--policy", "dtp-1", "--report-dir", "out", "--jobs", "1", "--quiet")


def test_a_training_function_reaches_no_key_no_environment_and_no_alias(homes, registry, tmp_path, monkeypatch):
    loot, key = homes / "loot", homes / "signer" / "key.pem"
    module = tmp_path / "grabbing_training.py"
    module.write_text(TRAINING.format(loot=str(loot), key=str(key), address=registry.address))
    monkeypatch.syspath_prepend(str(tmp_path))
    import grabbing_training

    registry.log_recipe("credit", Recipe(grabbing_training.fit))
    for path in loot.iterdir():  # what training as this user found does not count
        path.unlink()
    secret = {"K": registry.site.signer.private_bytes.decode()}
    # the signer at work meanwhile, its key in its environment
    signing = subprocess.Popen(["sleep", "600"], user=SIGNER, group=SIGNER, extra_groups=[], env=secret)
    try:
        more = ("--budget", "30 trainings", "--isolation", "none")  # a box would keep what it took
        where = ("--tracking-uri", registry.address)
        _, said = run_as(CHECKER, homes / "checker", *CHECK, *more, *where)
    finally:
        signing.kill()
        signing.wait()
    took = [line.split() for path in loot.iterdir() for line in path.read_text().splitlines()]
    assert len(took) > 10, said
    assert {user for user, _, _ in took} == {str(CHECKER)}
    assert {keys for _, keys, _ in took} == {"0"}  # neither the key nor anybody's environment
    assert {status for _, _, status in took} <= {"403", "0"}  # the alias: refused, or no network
    assert dict(registry.client.get_registered_model("credit").aliases) == {}


def test_only_the_other_users_signature_counts(homes, registry):
    registry.log_recipe("credit")
    where = ("--tracking-uri", registry.address)
    code, said = run_as(CHECKER, homes / "checker", *CHECK, *where)
    assert code == 0, said
    config = registry.site.config
    signing = ("sign", homes / "checker" / "out", "--config", config, "--key", "key.pem", "--policy", "dtp-1", *where)
    assert run_as(CHECKER, homes / "checker", *signing)[0] == 2  # it has no key

    # the same key in the checker's hands: the statement says that it is advisory, and the server refuses it
    write_key(homes / "checker" / "key.pem", registry.site.signer.private_bytes, CHECKER)
    code, said = run_as(CHECKER, homes / "checker", *signing)
    assert (code, "advisory" in said) == (0, True), said
    with pytest.raises(MlflowException, match="advisory"):
        registry.client.set_registered_model_alias("credit", "production", "1")

    code, said = run_as(SIGNER, homes / "signer", *signing, "--to", homes / "signer" / "signed")
    assert (code, "advisory" in said) == (0, False), said
    registry.client.set_registered_model_alias("credit", "production", "1")
