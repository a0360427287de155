"""Whoever checks never holds the key: it is looked for in every ancestor and child of a check and of a promotion."""

import base64
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from privgate import log_model

SIGNER = """
import pathlib, sys, time
key = pathlib.Path(sys.argv[1]).read_text()
pathlib.Path(sys.argv[2]).write_text(sys.argv[3])
time.sleep(0.3)
assert "PRIVATE KEY" in key
"""


def ancestors(pid):
    found = []
    while pid > 1:
        found.append(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return found


def tree(root):
    """The processes below one, itself among them."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    below = {root}
    while more := {p for p, q in parents.items() if q in below} - below:
        below |= more
    return below


def told(pid):
    """Environment, command line and open files of a process."""
    place, parts = Path(f"/proc/{pid}"), []
    for name in ("environ", "cmdline"):
        try:
            parts.append((place / name).read_bytes())
        except OSError:
            continue
    with contextlib.suppress(OSError):
        parts += [bytes(f.readlink()) for f in (place / "fd").iterdir()]
    return b"\0".join(parts)


def remembered(pid):
    """Parts of the writable memory of a process, one after another."""
    try:
        regions = Path(f"/proc/{pid}/maps").read_text().splitlines()
        with Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
            for region in regions:
                span, rights = region.split()[:2]
                start, end = (int(v, 16) for v in span.split("-"))
                if rights.startswith("rw") and end - start < 1 << 28:
                    memory.seek(start)
                    yield memory.read(end - start)
    except OSError:
        return


#: a registry that is guarded: it refuses the alias until the signer was there
GUARDED = """
import pathlib, sys
from privgate import registry
from privgate.errors import RegistryError
real, signed = registry.promote, pathlib.Path(sys.argv.pop(1))
def promote(*args, **named):
    if not signed.exists():
        raise RegistryError("privgate: there is no statement")
    return real(*args, **named)
registry.promote = promote
from privgate.__main__ import run
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="processes cannot be looked into here")
def test_no_process_of_a_check_or_a_promotion_holds_the_key(registry, data, recipe, tmp_path):
    key, signer = tmp_path / "key.pem", tmp_path / "signer.py"
    program = [sys.executable, "-m", "privgate"]
    subprocess.run([*program, "keys", "init", str(key), "--trust", str(tmp_path / "trust.json")], check=True)
    signer.write_text(SIGNER)
    log_model(recipe, data, registered_model_name="credit", store="artifacts")
    environment = {**os.environ, "MLFLOW_TRACKING_URI": registry}
    command = f"{sys.executable} {signer} {key} {tmp_path / 'signed'} {{nonce}} {{uri}}"
    common = ["models:/credit/1", "--policy", "dtp-1", "--jobs", "1"]
    secret = "".join(key.read_text().splitlines()[1:-1]).encode()
    forms = [secret, base64.b64decode(secret)[-32:]]
    looked, holding = Counter(), []

    def look(pid, whose):
        looked[pid] += 1
        # memory once, when a process has had time to read what it reads
        parts = [told(pid), *(remembered(pid) if looked[pid] == 3 else ())]
        if any(form in part for form in forms for part in parts):
            holding.append(whose)

    def watch(process):
        while process.poll() is None:
            for pid in tree(process.pid):
                its = told(pid)
                if str(signer).encode() not in its.split(b"\0"):  # the signer is another program, and may hold it
                    look(pid, its[-200:])
            time.sleep(0.5)

    promoting = [sys.executable, "-c", GUARDED, str(tmp_path / "signed"), "promote", *common, "--to", "production"]
    for arguments in ([*program, "check", *common, "--no-attach"], [*promoting, "--sign-command", command]):
        process = subprocess.Popen(arguments, env=environment, cwd=tmp_path)
        watcher = threading.Thread(target=watch, args=(process,))
        watcher.start()
        assert process.wait(300) == 0
        watcher.join()

    assert len((tmp_path / "signed").read_text()) == 32, "the nonce that the signer was told"
    for pid in ancestors(os.getppid()):
        for _ in range(3):
            look(pid, "an ancestor")
    assert len(looked) >= 3, "a check, its workers and a promotion were looked into"
    assert not holding
