"""A guarded MLflow server: it refuses ``@production``, and accepts it once the version was checked and signed.

Run it with ``python examples/guarded-server/run.py [FOLDER]``; it starts a server on a free port of this host, and ends
with exit code 0. Checker and signer are one user here, which the guard is told to accept (``accept_advisory``): in a
company they are two.
"""

import os
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import mlflow
from sklearn.naive_bayes import CategoricalNB

from privgate import Recipe, log_model
from privgate.__main__ import run
from privgate.demo import adult

GUARD = """
schema: privgate/guard/v2
registry: example-registry
trust: trust.json
check_files: true
releases:
  - {models: income, task: classification, policy: dtp-1}
protected:
  aliases: [production]
accept_advisory: true
accept_unboxed: true
"""


def started(folder: Path) -> tuple[subprocess.Popen, str]:
    """Start the server, wait for it, and return it with its address."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    store = f"sqlite:///{folder / 'mlflow.db'}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
               "--backend-store-uri", store, "--registry-store-uri", f"privgate:{store}",
               "--artifacts-destination", f"privgate:{folder}/artifacts"]  # fmt: skip
    with (folder / "server.log").open("w") as log:
        # MLflow would start eight more processes for jobs that a registry does not need
        own = {"PRIVGATE_GUARD": str(folder / "guard.yaml"), "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        server = subprocess.Popen(command, env={**os.environ, **own}, stdout=log, stderr=log)
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1)
            break
        except OSError:
            if server.poll() is not None:
                raise SystemExit(f"the server ended: see {folder / 'server.log'}") from None
            time.sleep(0.2)
    return server, f"http://127.0.0.1:{port}"


def moved(version: str) -> bool:
    """Try what anybody would try: set the alias."""
    try:
        mlflow.MlflowClient().set_registered_model_alias("income", "production", version)
    except mlflow.exceptions.MlflowException as refused:
        print("refused:", refused.message)
        return False
    print("accepted: version", version, "is @production")
    return True


def main(folder: Path) -> int:
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    key, config, report = (str(folder / name) for name in ("signing-key.pem", "guard.yaml", "report"))
    if code := run(["guard", "keys", key, "--trust", str(folder / "trust.json")]):
        return code
    Path(config).write_text(GUARD, encoding="utf-8")
    server, address = started(folder)
    try:
        mlflow.set_tracking_uri(address)
        recipe = Recipe(CategoricalNB(alpha=5.0, min_categories=list(adult.SIZES)), seed=7)
        info = log_model(recipe, adult.load(), registered_model_name="income", store=folder / "data")
        version = str(info.registered_model_version)
        if moved(version):
            return 3  # an unchecked version must never get there
        uri, where = f"models:/income/{version}", ["--tracking-uri", address]
        promote = [
            "promote",
            uri,
            "--to",
            "production",
            "--policy",
            "dtp-1",
            "--jobs",
            "1",
            "--report-dir",
            report,
            *where,
        ]
        if run(promote) != 6:  # approved, and nobody signed it
            return 3
        signer = [sys.executable, "-m", "privgate", "guard", "sign", "{out}"]
        signer += ["--policy", "{policy}", "--model", "{uri}"]
        signer += ["--nonce", "{nonce}", "--target", "{target}", "--config", config, "--key", key, *where]
        if code := run([*promote, "--sign-command", shlex.join(signer)]):
            return code
        return run(["verify", "models:/income@production", "--config", config, "--to", str(folder / "model"), *where])
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/guarded-server")))
