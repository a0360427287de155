"""Where privgate keeps things around a logged model, and which files a digest covers."""

import re
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

from privgate import digest
from privgate.errors import DigestMismatchError, SubjectError

# Where privgate keeps things around a logged model, and which files a digest covers.
#
# ========================================= ======================================================================
# ``privgate/recipe.json`` in the served folder: recipe, data reference, digests, environment, release
# ``privgate/src/<digest>/…`` in the served folder: the recipe's source snapshot, in import layout
# ``privgate_reports/<model id>/<policy>/…`` reports, artifacts of the *run*; never in the served folder
# ``privgate_data/<digest>/…`` the training data where ``store="artifacts"``; an artifact of the *run*
# ========================================= ======================================================================
#
# Two digests name a logged model. ``model`` covers what a recipe can record: every file except those below
# ``privgate/``. ``files`` covers every file of the served folder, without exception; it is what a statement signs.
# Only what MLflow itself writes into the copies that it loads (``registered_model_meta``, two lines) counts in
# neither; anything else under that name does. An MLmodel file that points into ``privgate/`` is refused.

FOLDER = "privgate"
RECIPE = "privgate/recipe.json"
SOURCES = "privgate/src"
REPORTS = "privgate_reports"
#: where earlier versions kept reports: in the served folder, which they changed after it was approved
OLD_REPORTS = "privgate/reports"
DATA = "privgate_data"
SCHEMA = "privgate/logged-recipe/v1"

#: written by MLflow into copies that it loads, and by its local stores beside the model itself
MLFLOW_META = "registered_model_meta"
_META = re.compile(rb"model_name: [^\n]{1,300}\nmodel_version: ('?[0-9]{1,10}'?|null)\n?")

Mapped = Callable[[Callable[[Path], str], list[Path]], Iterable[str]]


def model_files(root: Path) -> dict[str, str]:
    """Return ``path -> sha256`` of every file but privgate's own."""
    return _table(root, (f"{FOLDER}/",))


def all_files(root: Path, *, mapped: Mapped = map) -> dict[str, str]:
    """Return ``path -> sha256`` of every file of a served folder.

    Parameters
    ----------
    root : Path
        Folder of a logged model.
    mapped : callable
        As in ``digest.of_files``.
    """
    return _table(root, (), mapped)


def is_written_by_mlflow(path: str, content: bytes) -> bool:
    """Whether a file is what MLflow notes in a copy that it loads: name and version, nothing that could be served."""
    return path == MLFLOW_META and _META.fullmatch(content) is not None


def refuse_twins(paths: Iterable[str]) -> None:
    """Refuse names that are one file where case and accents are not told apart: nobody knows which is served there."""
    seen: dict[str, str] = {}
    for path in paths:
        twin = seen.setdefault(unicodedata.normalize("NFKC", path).casefold(), path)
        if twin != path:
            raise SubjectError(
                f"the model's files {twin!r} and {path!r} are one file on some machines; rename one of them"
            )


def _table(root: Path, exclude: tuple[str, ...], mapped: Mapped = map) -> dict[str, str]:
    try:
        found = digest.of_files(root, exclude=exclude, mapped=mapped)
    except ValueError as exc:
        raise SubjectError(f"the model's files cannot be named by digest: {exc}") from exc
    refuse_twins(found)
    meta = root / MLFLOW_META
    if meta.is_file() and meta.stat().st_size < 1_000 and is_written_by_mlflow(MLFLOW_META, meta.read_bytes()):
        found.pop(MLFLOW_META, None)
    return found


def path_part(text: str) -> str:
    """Return ``text`` as one harmless part of an artifact path or metric name."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")[:100] or "policy"


def compare(recorded: dict[str, str], found: dict[str, str], what: str) -> None:
    """Raise on the first difference between two tables of files.

    Raises
    ------
    DigestMismatchError
        A file was changed, is missing, or was added; the sentence names it.
    """
    for name in sorted(recorded.keys() | found.keys()):
        if name not in found:
            raise DigestMismatchError(f"{what} file {name!r} is missing; it was recorded with the recipe")
        if name not in recorded:
            raise DigestMismatchError(f"{what} file {name!r} was added after the recipe was recorded; remove it")
        if recorded[name] != found[name]:
            raise DigestMismatchError(
                f"{what} file {name!r} is not the one that was recorded: it has {found[name][:19]}…, "
                f"recorded was {recorded[name][:19]}…; restore it or log the model again"
            )
