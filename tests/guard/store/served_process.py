"""``privgate guard serve`` as a process, with a signer command that is another program."""

import contextlib
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from privgate.training.sandbox import bubblewrap

SECRET = b"a secret of this test alone"


class Served:
    """A running ``privgate guard serve``."""

    def __init__(self, process, address, log):
        self.process, self.address, self.log = process, address, log

    def get(self, path, body=None, headers=()):
        request = urllib.request.Request(self.address + path, data=body, headers=dict(headers))
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as exc:
            return exc.code, exc.read().decode()


@contextlib.contextmanager
def serving(registry, folder, *options):
    """Run ``privgate guard serve`` with a signer command that is another program."""
    folder.mkdir(exist_ok=True)
    key = folder / "key.pem"
    key.write_bytes(registry.site.signer.private_bytes)
    key.chmod(0o600)
    secret = folder / "secret"
    secret.write_bytes(SECRET)
    secret.chmod(0o600)
    port = registry.free_port()
    config, where = str(registry.site.config), registry.address
    signer = (
        f"{sys.executable} -m privgate guard sign {{out}} --model={{uri}} --nonce={{nonce}} "
        f"--policy {{policy}} --target={{target}} --config {config} "
        f"--key {key} --checked-elsewhere --tracking-uri {where}"
    )
    command = [sys.executable, "-m", "privgate", "guard", "serve", "--config", config, "--policy", "dtp-1"]
    command += ["--work", str(folder / "work"), "--port", str(port), "--tracking-uri", where]
    command += ["--webhook-secret-file", str(secret), "--sign-command", signer]
    command += [*([] if bubblewrap.find_bubblewrap().version else ["--without-isolation"]), *options]
    environment = {**os.environ, "PRIVGATE_SIGNING_KEY": "must not be passed on", "OMP_NUM_THREADS": "1"}
    log = (folder / f"serve-{port}.log").open("wb")
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)
    served = Served(process, f"http://127.0.0.1:{port}", folder / f"serve-{port}.log")
    try:
        until(lambda: _answers(served), served)
        yield served
    finally:
        process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def _answers(served):
    try:
        return served.get("/health")[0] in {200, 503}
    except OSError:
        return False


def until(holds, *served, seconds=200):
    """Wait until something holds; fail with the logs when it is late, or a server on which it rests has ended."""
    deadline, why = time.monotonic() + seconds, "it never came"
    while time.monotonic() < deadline:
        ended = [s for s in served if s.process.poll() is not None]  # before looking: what ended may have done it
        if holds():
            return
        if ended:
            why = f"privgate guard serve ended with {ended[0].process.returncode}"
            break
        time.sleep(0.3)
    pytest.fail(f"{why}:\n" + "\n".join(s.log.read_text(errors="replace")[-3000:] for s in served))
