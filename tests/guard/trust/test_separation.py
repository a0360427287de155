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
key, count = sys.stdin.buffer.read(), 0
for path in [*sys.argv[1:], *glob.glob("/proc/[0-9]*/environ")]:
    try:
        with open(path, "rb") as file:
            count += key in file.read()
    except OSError:
        pass
print(count)
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
    """Run what a hostile training function would, as ``user``, while the signer runs with its key at the same time."""
    secret, words = key.read_text(), ["-c", THIEF, str(key)]
    environment = {"PRIVGATE_SIGNING_KEY": secret, "PATH": os.environ["PATH"]}
    signer = subprocess.Popen(["sleep", "60"], user=SIGNER, group=SIGNER, extra_groups=[], env=environment)
    own = {"user": user, "group": user, "extra_groups": [], "env": {}, "cwd": "/"}
    try:
        for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
            with contextlib.suppress(OSError):  # other users may not run this one
                done = subprocess.run([python, *words], **own, input=secret, capture_output=True, text=True, check=True)
                return int(done.stdout)
    finally:
        signer.kill()
        signer.wait()
    pytest.skip("no Python interpreter that other users may run")


@pytest.mark.parametrize(("user", "count"), [(CHECKER, 0), (SIGNER, 2)], ids=["checker", "signer"])
def test_only_the_same_user_reaches_key_and_environment_and_its_statements_are_advisory(vault, user, count):
    assert steal(user, vault) == count
