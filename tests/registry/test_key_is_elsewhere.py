"""Whoever checks never holds the key: it is looked for in all processes of a check, of a promotion and of serve."""

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
from mlflow import MlflowClient

from privgate import log_model
from privgate.serve import TAG
from privgate.training.sandbox import bubblewrap
from tests.guard.store.served_process import Served, until

SIGNER = """
import pathlib, sys, time
key = pathlib.Path(sys.argv[1]).read_text()
pathlib.Path(sys.argv[2]).write_text(sys.argv[3])
time.sleep(0.3)
assert "PRIVATE KEY" in key
if sys.argv[5:]:  # asked by serve, whose registry is told what counts
    from privgate.__main__ import run
    out, target, config = sys.argv[5:]
    words = ["guard", "sign", out, "--policy=dtp-1", f"--model={sys.argv[4]}", f"--nonce={sys.argv[3]}"]
    sys.exit(run([*words, f"--target={target}", f"--config={config}", f"--key={sys.argv[1]}", "--checked-elsewhere"]))
"""

GUARD = """
schema: privgate/guard/v1
registry: of-a-test
trust: trust.json
policy: dtp-1
accept_unboxed: true
protected: {aliases: [champion]}
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
@pytest.mark.slow  # looks through the memory of every process, of three commands
def test_no_process_of_a_check_a_promotion_or_serve_holds_the_key(registry, data, recipe, tmp_path):
    key, signer = tmp_path / "key.pem", tmp_path / "signer.py"
    program = [sys.executable, "-m", "privgate"]
    subprocess.run([*program, "guard", "keys", str(key), "--trust", str(tmp_path / "trust.json")], check=True)
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
    config = tmp_path / "guard.yaml"
    config.write_text(GUARD)
    client = MlflowClient(registry)
    client.set_model_version_tag("credit", "1", TAG, "dtp-1,champion")
    serving = [*program, "serve", f"--config={config}", "--policy=dtp-1", f"--work={tmp_path / 'work'}", "--port=0"]
    serving += [] if bubblewrap.find_bubblewrap().version else ["--without-isolation"]
    serving += [
        "--sign-command",
        f"{command} {{out}} {{target}} {config}",
        "--every=1",
        "--",
        "--jobs=1",
    ]
    process = subprocess.Popen(serving, env=environment, cwd=tmp_path)
    watcher = threading.Thread(target=watch, args=(process,))
    watcher.start()
    try:
        served = Served(process, "", Path(os.devnull))
        until(lambda: TAG not in client.get_model_version("credit", "1").tags, served)
    finally:
        process.terminate()
        watcher.join()
    assert dict(client.get_registered_model("credit").aliases) == {"production": 1, "champion": 1}
    for pid in ancestors(os.getppid()):
        for _ in range(3):
            look(pid, "an ancestor")
    assert len(looked) >= 5, "a check, its workers, a promotion, serve and its child were looked into"
    assert not holding
