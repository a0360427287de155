"""Real users: what a training function can reach when checker and signer are two of them."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from privgate.guard import keys as truststore

SIGNER, CHECKER = 64001, 64002

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become two other users")

#: counts what holds this key, and no other: tests that run beside this one have signers and keys of their own
THIEF = """
import glob, sys
key = sys.stdin.buffer.read()
found = 0
for path in [*sys.argv[1:], *glob.glob("/proc/[0-9]*/environ")]:
    try:
        with open(path, "rb") as file:
            found += key in file.read()
    except OSError:
        pass
print(found)
"""


@pytest.fixture
def vault():
    """A folder of the signer's, with its key."""
    folder = Path(tempfile.mkdtemp(prefix="privgate-vault-"))
    key = folder / "key.pem"
    key.write_bytes(truststore.new_key().private_bytes)
    key.chmod(0o600)
    for path in (folder, key):
        os.chown(path, SIGNER, SIGNER)
    yield key
    shutil.rmtree(folder)


def steal(user, key):
    """Run what a hostile training function would, as ``user``, while the signer runs beside it with its key."""
    secret = key.read_text()
    environment = {"PRIVGATE_SIGNING_KEY": secret, "PATH": os.environ["PATH"]}
    signer = subprocess.Popen(["sleep", "60"], user=SIGNER, group=SIGNER, extra_groups=[], env=environment)
    try:
        done = subprocess.run(
            [_python(), "-c", THIEF, str(key)],
            user=user, group=user, extra_groups=[], env={}, capture_output=True, text=True, check=True, cwd="/",
            input=secret,
        )  # fmt: skip
    finally:
        signer.kill()
        signer.wait()
    return int(done.stdout)


def _python():
    """Return an interpreter that other users may run."""
    for candidate in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        with contextlib.suppress(OSError):
            subprocess.run(
                [candidate, "-c", ""], user=CHECKER, group=CHECKER, extra_groups=[], check=True, env={}, cwd="/"
            )
            return candidate
    pytest.skip("no Python interpreter that other users may run")


def test_another_user_reaches_neither_key_nor_environment(vault):
    assert steal(CHECKER, vault) == 0


def test_the_same_user_reaches_both_which_is_why_such_statements_are_advisory(vault):
    assert steal(SIGNER, vault) == 2
