"""Where a command writes: tried before anything is trained, so that hours of work are not lost to a folder."""

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privgate.errors import UsageError


def why(exc: OSError) -> str:
    """Return the system's words; a file where a folder is to be made "exists", which says too little."""
    return "Not a directory" if isinstance(exc, FileExistsError) else str(exc.strerror or exc)


def folder(path: str | os.PathLike[str], option: str) -> Path:
    """Return a folder that was made if absent and in which a file was just written and removed.

    ``UsageError``: it cannot be written; the sentence names ``option``, the path and why.
    """
    place = Path(path).expanduser()
    trial = place / f".privgate-{uuid.uuid4().hex}"
    try:
        place.mkdir(parents=True, exist_ok=True)
        trial.write_bytes(b"")
        trial.unlink()
    except OSError as exc:
        raise UsageError(f"{option} {place.absolute()} cannot be written: {why(exc)}; name another folder") from exc
    return place


def file(path: str | os.PathLike[str], option: str) -> Path:
    """Return a file that can be written; what it holds stays until it is. ``UsageError``: as ``folder``."""
    place = Path(path).expanduser()
    fresh = not place.exists()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("ab"):
            pass
        if fresh:
            place.unlink()
    except OSError as exc:
        raise UsageError(f"{option} {place.absolute()} cannot be written: {why(exc)}; name another file") from exc
    return place


def ledger(where: str | None) -> None:
    """Try the ledger's folder. ``UsageError``: it cannot be written."""
    from privgate.training.ledger import Ledger

    opened = Ledger(where)
    if opened.folder is not None:
        trial = uuid.uuid4().hex
        opened.write(trial, b"")
        (opened.folder / trial).unlink()


def check(settings: Mapping[str, Any]) -> None:
    """Try everything that ``privgate check`` will write on this machine: report, hash key, ledger.

    ``UsageError``: one of them cannot be written; nothing was trained.
    """
    from privgate.evaluation.notebook import load_hash_key as hash_key

    place = folder(settings["report_dir"], "--report-dir")
    for name in ("report.json", "report.html", "summary.md", "junit.xml", "records.parquet", "cases.npz"):
        if (place / name).is_dir():
            raise UsageError(f"--report-dir {place} cannot hold the report: {name} in it is a folder; name another")
    hash_key(settings["hash_key_file"])
    if settings["cluster"] is None or settings["ledger"] is not None:
        ledger(settings["ledger"])
