"""What page one says beside the verdict, and the key of the keyed hashes that stand for people."""

import getpass
import os
import platform
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from privgate.errors import UsageError
from privgate.evidence.verdict import Verdict
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

# The key of the keyed hashes that stand for people: it stays with the controller and is made on first use.


def hash_key(file: str | os.PathLike[str] | None = None) -> bytes:
    """Return the key; whoever holds it can recompute the hashes in a report from the record ids.

    Parameters
    ----------
    file : path, optional
        ``privgate/hash.key`` in the user's configuration folder if absent.

    Raises
    ------
    UsageError
        It can neither be read nor made, or is too short.
    """
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    path = Path(file) if file is not None else home / "privgate" / "hash.key"
    try:
        key = path.read_bytes().strip() if path.exists() else _write_key(path)
    except OSError as exc:
        why = "Not a directory" if isinstance(exc, FileExistsError) else exc.strerror
        raise UsageError(f"the hash key {path} cannot be read or made: {why}; name --hash-key-file") from exc
    if len(key) < 32:
        raise UsageError(f"the hash key in {path} is shorter than 32 characters; delete the file to have one made")
    return key


def _write_key(path: Path) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as f:
        f.write(secrets.token_hex(32).encode())
    return path.read_bytes()


# What page one says beside the verdict: data set, purpose, owner, who ran the check and where, and accuracy.

#: what an operator may state; also the keys of ``privgate.yaml`` and, in capitals after PRIVGATE_, of the environment
STATED = ("purpose", "owner", "data_name", "data_source")
#: people asked at most to say how often the model is right
_ASKED = 5000


def with_context(verdict: Verdict, subject: Subject | None, fleet: Fleet | None, stated: Mapping[str, Any]) -> Verdict:
    """Return the verdict with what page one says beside it; nothing of it is judged.

    Parameters
    ----------
    verdict : Verdict
    subject : Subject, optional
        What was judged.
    fleet : Fleet, optional
        Asks the registered model, in a worker, about people outside its data; accuracy is not measured without.
    stated : mapping
        Purpose, owner, name and source of the data, in the operator's words; what is missing is said to be.
    """
    known = {k: " ".join(str(stated.get(k) or "").split()) for k in STATED}
    right, asked = (None, 0) if fleet is None or subject is None else accuracy(subject, fleet)
    context = {**known, **ran(os.environ), "accuracy": right, "accuracy_n": asked}
    return replace(verdict, detail={**verdict.detail, "context": context})


def ran(environ: Mapping[str, str]) -> dict[str, str]:
    """Return who ran the check and where: the actor and address of a workflow run, else this user and host."""
    if run := environ.get("GITHUB_RUN_ID"):
        place = "/".join(environ.get(k, "") for k in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY"))
        return {"run_by": environ.get("GITHUB_ACTOR", ""), "run_on": f"{place}/actions/runs/{run}"}
    if address := environ.get("CI_JOB_URL"):
        return {"run_by": environ.get("GITLAB_USER_LOGIN", ""), "run_on": address}
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in many containers
        user = f"user {os.getuid()}"
    return {"run_by": user, "run_on": platform.node()}


def accuracy(subject: Subject, fleet: Fleet) -> tuple[float | None, int]:
    """Return the share of right answers about people outside the data, and how many were asked; None if unknown.

    The registered model answers in a worker process, the most probable label counts, candidates that equal a training
    record are asked too: this is the model's use, not an attack.
    """
    data = subject.data
    if data.candidates is None or not subject.digests.get("model"):
        return None, 0
    outside = np.asarray(data.candidates[1])
    rows = np.arange(data.n, data.n + min(len(outside), _ASKED), dtype=np.int64)
    answer = fleet.registered(subject, rows)
    if answer.problem or answer.log_p.shape != (len(rows), len(subject.classes)):
        return None, 0
    said = np.asarray(subject.classes)[answer.log_p.argmax(axis=1)]
    return float((said == outside[: len(rows)]).mean()), len(rows)
