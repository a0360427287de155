"""Where privgate keeps things inside a logged model, and which files a digest covers.

======================================  =========================================================================
``privgate/recipe.json``                the recipe, the data reference, digests, environment, release
``privgate/src/<digest>/…``             the recipe's source snapshot, in import layout
``privgate/reports/<policy>/…``         reports, attached later; nothing ever loads them, no digest covers them
``privgate_data/<digest>/…``            the training data, an artifact of the *run*, never beside the model
======================================  =========================================================================

Two digests name a logged model. ``model`` covers what serving loads: every file except those below ``privgate/`` and
the root's ``registered_model_meta``, which MLflow writes into its own downloads. ``files`` covers every file except
those below ``privgate/reports/`` and that same ``registered_model_meta``; it is what a statement signs. An MLmodel file
that points into ``privgate/`` is refused, so that nothing outside the first digest can change what serving loads.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from privgate import digest
from privgate.errors import DigestMismatchError, SubjectError

FOLDER = "privgate"
RECIPE = "privgate/recipe.json"
SOURCES = "privgate/src"
REPORTS = "privgate/reports"
DATA = "privgate_data"
SCHEMA = "privgate/logged-recipe/v1"

#: written by MLflow into downloaded copies of registered models
_MLFLOW_META = "registered_model_meta"

Mapped = Callable[[Callable[[Path], str], list[Path]], Iterable[str]]


def model_files(root: Path) -> dict[str, str]:
    """Return ``path -> sha256`` of the files that serving loads."""
    return _table(root, f"{FOLDER}/")


def all_files(root: Path, *, mapped: Mapped = map) -> dict[str, str]:
    """Return ``path -> sha256`` of every file but attached reports.

    Parameters
    ----------
    root : Path
        Folder of a logged model.
    mapped : callable
        As in ``digest.of_files``.
    """
    return _table(root, f"{REPORTS}/", mapped)


def is_covered(path: str) -> bool:
    """Whether ``all_files`` covers a path."""
    return not path.startswith(f"{REPORTS}/") and path != _MLFLOW_META


def _table(root: Path, exclude: str, mapped: Mapped = map) -> dict[str, str]:
    try:
        found = digest.of_files(root, exclude=(exclude,), mapped=mapped)
    except ValueError as exc:
        raise SubjectError(f"the model's files cannot be named by digest: {exc}") from exc
    found.pop(_MLFLOW_META, None)
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
