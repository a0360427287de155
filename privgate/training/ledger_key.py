"""What seals a ledger: the operator's secret, or one of this user's own that is made when it is first needed.

A public constant would let everybody who can write a file there say what training gave. Training code can read neither:
a box has no home and no environment of anybody's.
"""

import os
import secrets
from pathlib import Path

from privgate.errors import UsageError

VARIABLE = "PRIVGATE_LEDGER_KEY"
#: bytes, below which a secret could be guessed
LEAST = 16


def given(secret: bytes | None) -> bytes | None:
    """Return the secret that somebody chose, or None.

    Raises
    ------
    UsageError
        It is too short.
    """
    chosen = secret if secret is not None else os.environ.get(VARIABLE, "").encode() or None
    if chosen is not None and len(chosen) < LEAST:
        raise UsageError(f"the ledger's key has {len(chosen)} bytes; use {LEAST} or more, such as openssl rand -hex 32")
    return chosen


def own() -> bytes:
    """Return this user's secret, which no other user can read.

    Raises
    ------
    UsageError
        It cannot be made, or others can read it.
    """
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    path = home / "privgate" / "ledger.key"
    try:
        if not path.is_file():
            _make(path)
        mode, secret = path.stat().st_mode, path.read_bytes().strip()
    except OSError as exc:
        raise UsageError(f"the ledger's key {path} cannot be read or made: {exc.strerror}; set {VARIABLE}") from exc
    if mode & 0o077:
        raise UsageError(f"the ledger's key {path} can be read by others; delete it to have one made")
    if len(secret) < LEAST:
        raise UsageError(f"the ledger's key {path} is shorter than {LEAST} bytes; delete it to have one made")
    return secret


def _make(path: Path) -> None:
    """Write a new secret whole, or leave the one that another process wrote meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as f:
            f.write(secrets.token_hex(32).encode())
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        draft.unlink()
