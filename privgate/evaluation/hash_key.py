"""The key of the keyed hashes that stand for people: it stays with the controller and is made on first use."""

import os
import secrets
from pathlib import Path

from privgate.errors import UsageError


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
        key = path.read_bytes().strip() if path.exists() else _made(path)
    except OSError as exc:
        why = "Not a directory" if isinstance(exc, FileExistsError) else exc.strerror
        raise UsageError(f"the hash key {path} cannot be read or made: {why}; name --hash-key-file") from exc
    if len(key) < 32:
        raise UsageError(f"the hash key in {path} is shorter than 32 characters; delete the file to have one made")
    return key


def _made(path: Path) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as f:
        f.write(secrets.token_hex(32).encode())
    return path.read_bytes()
