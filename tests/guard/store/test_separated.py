"""Check as one user, sign as another: what each user's word counts."""

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
from tests.guard.store.conftest import Site

SIGNER, CHECKER = 64011, 64012

pytestmark = [
    pytest.mark.slow,
    pytest.mark.server,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become two other users"),
]


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
    """A folder each for checker and signer, outside of pytest's, which other users cannot enter."""
    place = Path(tempfile.mkdtemp(prefix="privgate-users-"))
    place.chmod(0o755)
    for name, user, mode in (("checker", CHECKER, 0o755), ("signer", SIGNER, 0o700)):
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


def test_only_the_other_users_signature_counts(homes, registry):
    registry.log_recipe("credit")
    where = ("--tracking-uri", registry.address)
    code, said = run_as(CHECKER, homes / "checker", *CHECK, *where)
    assert code == 0, said
    config = registry.site.config
    signing = (
        "guard",
        "sign",
        homes / "checker" / "out",
        "--config",
        config,
        "--key",
        "key.pem",
        "--policy",
        "dtp-1",
        *where,
    )
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
