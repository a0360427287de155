"""Where privgate keeps things around a logged model, which files a digest covers, and what an MLmodel may load."""

import posixpath
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from privgate import digest
from privgate.documents import strict_json, strict_yaml
from privgate.errors import DigestMismatchError, SubjectError
from privgate.subject.libraries import providing

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


# What an MLmodel file lets MLflow load: one model, by whatever flavor it is asked, from covered files alone.

SERVED = "python_function"
#: what names a file but is none that is loaded: where an artifact once came from, and what a model is told
_NOTES = frozenset({"uri", "config", "env_vars"})
_AGAIN = "log the model again"


def flavor_of(folder: Path) -> str:
    """Return the flavor that gives back the native model, from the MLmodel file.

    What MLflow serves (``python_function``) and what that flavor opens must be one model: the flavor whose loader
    serves, and the same files. Any other flavor beside it would be a second model, which nobody has checked.

    Raises
    ------
    SubjectError
        No MLmodel file, no flavor, flavors that are not one model, or a path that leaves the covered files.
    """
    flavors, content = read(folder)
    if not flavors:
        raise SubjectError(f"the MLmodel file lists no flavor; {_AGAIN}")
    _check_paths(folder, content)
    native = [name for name in flavors if name != SERVED]
    if SERVED not in flavors:
        if len(native) > 1:
            raise SubjectError(
                f"the MLmodel file lists the flavors {', '.join(native)}, of which one is checked; {_AGAIN}"
            )
        return str(native[0])
    _check_code(folder, flavors)
    _check_one_model(folder, flavors, native)
    return str(native[0]) if native else SERVED


def read(folder: Path) -> tuple[dict[str, Any], Any]:
    """Return flavors and the whole content of the MLmodel file."""
    path = folder / "MLmodel"
    if not path.is_file():
        raise SubjectError("the logged model has no MLmodel file; log it again")
    try:
        content = strict_yaml.as_mlflow_reads(strict_json.content(path).decode("utf-8"))
        flavors = {str(name): dict(conf) for name, conf in dict(content["flavors"]).items()}
    except (OSError, *strict_json.GARBLED) as exc:
        raise SubjectError(f"the MLmodel file cannot be read: {strict_json.why(exc)}; log the model again") from exc
    return flavors, content


def _check_one_model(folder: Path, flavors: Mapping[str, Mapping[str, Any]], native: list[str]) -> None:
    served = flavors[SERVED]
    loader = str(served.get("loader_module"))
    if not native:
        return
    if len(native) > 1 or not f"{loader}.".startswith(f"mlflow.{native[0]}."):
        raise SubjectError(
            f"the MLmodel file holds several models: {SERVED} is loaded by {loader}, beside {', '.join(native)}; "
            "log one model by one flavor"
        )
    own = flavors[native[0]]
    if (own.get("code") or None) != (served.get("code") or None):
        raise SubjectError(f"{SERVED} and {native[0]} are loaded with different code; {_AGAIN}")
    loaded = {posixpath.normpath(str(served[key])) for key in ("data", "model_path") if served.get(key)}
    named = {posixpath.normpath(v) for k, v in own.items() if k != "code" and _is_file(folder, v)}
    if loaded and loaded != named:
        raise SubjectError(
            f"MLflow serves {', '.join(sorted(loaded))}, and the flavor {native[0]} opens "
            f"{', '.join(sorted(named)) or 'no file'}: these are two models; {_AGAIN}"
        )


def _is_file(folder: Path, value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(value) and (folder / value).exists()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _check_paths(folder: Path, content: Any) -> None:
    """Refuse paths out of the served folder and into privgate's own, in this MLmodel file and any nested one."""
    for value in _texts(content):
        if posixpath.normpath(value.replace("\\", "/")).lstrip("/").split("/")[0] == FOLDER and "/" in value:
            raise SubjectError(f"the MLmodel file points into privgate's own folder ({value!r}); {_AGAIN}")
    for value in _texts(content.get("flavors"), _NOTES):
        parts = value.replace("\\", "/").split("/")
        if ".." in parts or value == FOLDER or value.startswith(("/", "~", "\\")) or value[1:3] in {":/", ":\\"}:
            raise SubjectError(f"the MLmodel file names {value!r}, which leaves the files that are checked; {_AGAIN}")
    if nested := next((p for p in sorted(folder.rglob("MLmodel")) if p.parent != folder), None):
        raise SubjectError(
            f"the model holds another MLmodel file ({nested.relative_to(folder).as_posix()}), by which MLflow may load "
            f"something else; {_AGAIN}"
        )


def _check_code(folder: Path, flavors: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse code that takes the place of an installed module where it is served, and not where it is checked."""
    for conf in flavors.values():
        if not (code := conf.get("code")):
            continue
        place = folder / str(code)
        if posixpath.normpath(str(code)) == "." or not _is_file(folder, str(code)) or not place.is_dir():
            raise SubjectError(f"the model's code {str(code)!r} is no folder of its own; {_AGAIN}")
        for name in sorted({p.name.partition(".")[0] for p in place.iterdir()}):
            if name in sys.stdlib_module_names or set(providing((name,))) - _checkouts():
                raise SubjectError(f"the model's code hides the installed module {name!r}; log it under another name")


@cache
def _checkouts() -> frozenset[str]:
    """Return the distributions that are installed from a checkout of their own."""
    from importlib import metadata

    return frozenset(
        d.metadata["Name"] for d in metadata.distributions() if '"editable"' in (d.read_text("direct_url.json") or "")
    )


def _texts(value: Any, but: frozenset[str] = frozenset()) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, part in value.items():
            if key not in but:
                yield from _texts(part, but)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part, but)
