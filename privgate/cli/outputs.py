"""Where a command writes: tried before anything is trained, so that hours of work are not lost to a folder."""

import contextlib
import os
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from privgate.errors import UsageError


@contextlib.contextmanager
def _named(place: Path, option: str, what: str) -> Iterator[None]:
    """Tell of a place that cannot be written by its option and path; a file in a folder's place "exists", no more."""
    try:
        yield
    except OSError as exc:
        why = "Not a directory" if isinstance(exc, FileExistsError) else exc.strerror or exc
        raise UsageError(f"{option} {place.absolute()} cannot be written: {why}; name another {what}") from exc


def folder(path: str | os.PathLike[str], option: str) -> Path:
    """Return a folder that was made if absent, and in which a file can be written; ``UsageError``: it cannot."""
    place = Path(path).expanduser()
    with _named(place, option, "folder"):
        place.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=place).close()
    return place


def file(path: str | os.PathLike[str], option: str) -> Path:
    """Return a file that can be written; what it holds stays until it is. ``UsageError``: as ``folder``."""
    place = Path(path).expanduser()
    fresh = not place.exists()
    with _named(place, option, "file"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.open("ab").close()
        if fresh:
            place.unlink()
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
