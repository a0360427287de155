"""Where privgate keeps things around a logged model, and which files a digest covers."""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from privgate import digest
from privgate.errors import DigestMismatchError, SubjectError

# In the served folder lie ``privgate/recipe.json`` and the source snapshot ``privgate/src/<digest>/…``; with the *run*
# lie ``privgate_reports/<model id>/<policy>/…`` and, for ``store="artifacts"``, ``privgate_data/<digest>/…``.
# Two digests name a logged model: ``model`` covers every file but those below ``privgate/``, which a recipe can record;
# ``files`` covers every file, and is what a statement signs. Only MLflow's note in copies that it loads counts in
# neither; anything else under that name is refused, and an MLmodel file that points into ``privgate/``.

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
#: names that need no quotes in YAML, of either version: none begins with a sign of its own or holds ": " or " #"
_NAME = r"""(?:[\w$(]|[-~](?=\w))(?:[]\w .,+@=()~&;!%$*'"[{}<>|?^-]|(?<! )\#){0,299}"""
_META = re.compile(f"model_name: (?:({_NAME})|'([^']{{1,300}})')\nmodel_version: '?([0-9]{{1,10}})'?\n?")
_NAMELESS = "model_name: null\nmodel_version: null\n"  # of a model that was loaded by its id
#: where readers of YAML 1.1 or 1.2 end a line, or a shell or an eye is led astray
UNPLAIN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff]")

#: (name, version) of rows that serve the files; an empty version is any, and no row at all is one nobody knows
Rows = Collection[tuple[str, str]]

Mapped = Callable[[Callable[[Path], str], list[Path]], Iterable[str]]


def model_files(root: Path) -> dict[str, str]:
    """Return ``path -> sha256`` of every file but privgate's own."""
    return all_files(root, exclude=(f"{FOLDER}/",))


def all_files(root: Path, *, exclude: tuple[str, ...] = (), mapped: Mapped = map, rows: Rows = ()) -> dict[str, str]:
    """Return ``path -> sha256`` of every file of a served folder; ``rows`` are what MLflow's own note may name."""
    try:
        digests = digest.of_files(root, exclude=exclude, mapped=mapped)
    except ValueError as exc:
        raise SubjectError(f"the model's files cannot be named by digest: {exc}") from exc

    def read_beginning(path: str) -> bytes:
        with (root / path).open("rb") as file:
            return file.read(1_000)

    return {path: digests[path] for path in covered(digests, read_beginning, rows)}


def covered(paths: Iterable[str], read: Callable[[str], bytes], rows: Rows = ()) -> list[str]:
    """Return the paths that a digest covers: all but MLflow's own note.

    ``DigestMismatchError``: something else lies where that note does. ``SubjectError``: two names are one file on some
    machines.
    """
    paths, seen = list(paths), dict[str, str]()
    for path in paths:  # where case and accents are not told apart, nobody knows which of two is served
        twin = seen.setdefault(unicodedata.normalize("NFKC", path).casefold(), path)
        if twin != path:
            raise SubjectError(
                f"the model's files {twin!r} and {path!r} are one file on some machines; rename one of them"
            )
    there = any(path.partition("/")[0] == MLFLOW_META for path in paths)
    if there and not (MLFLOW_META in paths and _is_note(read(MLFLOW_META)[:1_000], rows)):
        raise DigestMismatchError(
            f"{MLFLOW_META!r} is not the two lines that MLflow writes there about the model itself; remove it"
        )
    return [path for path in paths if path != MLFLOW_META]


def _is_note(content: bytes, rows: Rows) -> bool:
    text = content.decode(errors="replace")
    found = _META.fullmatch(text)
    if found is None or UNPLAIN.search(text):
        return text == _NAMELESS
    said = found[1] or found[2], found[3]
    return not rows or any(said == (name, version or said[1]) for name, version in rows)


def path_part(text: str) -> str:
    """Return ``text`` as one harmless part of an artifact path or metric name."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")[:100] or "policy"


def compare(recorded: dict[str, str], found: dict[str, str], what: str) -> None:
    """Raise ``DigestMismatchError`` that names the first file which was changed, is missing, or was added."""
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
