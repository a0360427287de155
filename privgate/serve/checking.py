"""One check in a process of its own, and one signature by a command of the operator's."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from privgate.errors import StatementError
from privgate.registry.addresses import VARIABLE as SOURCES

#: what this process knows and untrusted training code must not find in its environment
_SECRETS = ("PRIVGATE_SIGNING_KEY", "PRIVGATE_WEBHOOK_SECRET")


def environment() -> dict[str, str]:
    """Return this process's environment without secrets of privgate's own, for work on anybody's word.

    Training data lie beside the registry or where the operator says: a recipe names no other address.
    """
    return {SOURCES: "", **{k: v for k, v in os.environ.items() if k not in _SECRETS}}


def run_check(
    uri: str, policy: str, folder: Path, options: Sequence[str], lost: threading.Event, *, nonce: str = ""
) -> tuple[int, str]:
    """Run ``privgate check`` on ``uri`` and return its exit code and its last words.

    Parameters
    ----------
    uri, policy : str
        Exact version, and policy by name or file.
    folder : Path
        Where the report goes; what the process says goes to ``check.log`` there.
    options : sequence of str
        More options of ``privgate check``.
    lost : threading.Event
        Ends the check at once, with all its workers, when it is set.
    nonce : str
        Goes into the report; the signer is told it, training code in a box cannot find it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").unlink(missing_ok=True)  # an older report must not look like this check's
    command = [sys.executable, "-m", "privgate.serve.child", "check", uri, "--policy", policy]
    command += ["--report-dir", str(folder), "--quiet", f"--nonce={nonce}", *options]
    log = folder / "check.log"
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603  our own command line, without a shell
            command,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment(),
            start_new_session=True,
        )
        try:
            while process.poll() is None and not lost.is_set():
                time.sleep(0.1)
        finally:
            _end(process)
    said = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return process.returncode, said[-1][:300] if said else ""


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End what is left of a process's group, workers included."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def signer_for(command: str, *, timeout: float = 600.0) -> Callable[[Mapping[str, str]], None]:
    """Return a function that hands a report to the operator's signer command.

    Parameters
    ----------
    command : str
        Split as a shell would, run without one. In it stand for something: ``{out}`` the report's folder, ``{policy}``,
        ``{uri}`` models:/NAME/VERSION, ``{nonce}`` the check's, ``{model}``, ``{version}``, ``{target}`` MODEL@ALIAS.
        Part of a word may be such a name, a value never becomes two words.
    timeout : float
        Seconds.
    """
    words = shlex.split(command)

    def hand_over(values: Mapping[str, str]) -> None:
        filled = [_filled(word, values) for word in words]
        try:
            subprocess.run(  # noqa: S603  the operator's own command, without a shell
                filled, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=True, env=environment()
            )
        except subprocess.CalledProcessError as exc:
            said = exc.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise StatementError(f"the signer command ended with {exc.returncode}: {said[-1][:300]}") from exc
        except (OSError, subprocess.SubprocessError) as exc:
            raise StatementError(f"the signer command did not run ({type(exc).__name__}); run it by hand") from exc

    return hand_over


def _filled(word: str, values: Mapping[str, str]) -> str:
    for key, value in values.items():
        # one pass a name, and values hold no braces of names: model names come from the registry
        word = word.replace(f"{{{key}}}", value.replace("{", "").replace("}", ""))
    return word
