"""Files of a registry: where they may lie, how they are read, and which of them a digest covers."""

import contextlib
import os
import re
import unicodedata
import urllib.parse
from collections.abc import Collection
from pathlib import Path

from privgate import digest
from privgate.errors import DigestMismatchError, RegistryError, SubjectError

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

#: (name, version) of rows that serve the files; an empty version is any, and no rows mean that none is known
Rows = Collection[tuple[str, str]]


def model_files(root: Path) -> dict[str, str]:
    """Return ``path -> sha256`` of every file but privgate's own."""
    return {path: held for path, held in all_files(root).items() if not path.startswith(f"{FOLDER}/")}


def all_files(root: Path, *, rows: Rows = ()) -> dict[str, str]:
    """Return ``path -> sha256`` of every file of a served folder but MLflow's own note, which may name ``rows``.

    ``DigestMismatchError``: something else lies there. ``SubjectError``: two names are one, or files have no digest.
    """
    try:
        digests = digest.of_files(root)
    except ValueError as exc:
        raise SubjectError(f"the model's files cannot be named by digest: {exc}") from exc
    seen = dict[str, str]()
    for path in digests:  # a file system that ignores case or accents would serve either of two
        twin = seen.setdefault(unicodedata.normalize("NFKC", path).casefold(), path)
        if twin != path:
            raise SubjectError(f"the model's files {twin!r} and {path!r} are one file on some machines; rename one")
    there = any(path.partition("/")[0] == MLFLOW_META for path in digests)
    if there and not (digests.pop(MLFLOW_META, "") and _is_note(root / MLFLOW_META, rows)):
        raise DigestMismatchError(
            f"{MLFLOW_META!r} is not the two lines that MLflow writes there about the model itself; remove it"
        )
    return digests


def _is_note(path: Path, rows: Rows) -> bool:
    with path.open("rb") as file:
        text = file.read(1_000).decode(errors="replace")
    note = _META.fullmatch(text)
    if note is None or UNPLAIN.search(text):
        return text == _NAMELESS
    name, version = note[1] or note[2], note[3]
    return not rows or any((name, version) == (known, number or version) for known, number in rows)


def path_part(text: str) -> str:
    """Return ``text`` as one harmless part of an artifact path or metric name."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")[:100] or "policy"


def compare(recorded: dict[str, str], present: dict[str, str], what: str) -> None:
    """Raise ``DigestMismatchError`` that names the first file which was changed, is missing, or was added."""
    for name in sorted(recorded.keys() | present.keys()):
        if name not in present:
            raise DigestMismatchError(f"{what} file {name!r} is missing; it was recorded with the recipe")
        if name not in recorded:
            raise DigestMismatchError(f"{what} file {name!r} was added after the recipe was recorded; remove it")
        if recorded[name] != present[name]:
            raise DigestMismatchError(f"{what} file {name!r} is not the recorded one; restore it or log it again")


# The author of a model names the addresses of its data and files; checker, signer and verifier read them with their own
# credentials: the registry's own artifacts, files of this machine, and object stores at their providers' addresses;
# anything else only if ``PRIVGATE_DATA_SOURCES`` lists what it begins with, separated by spaces. Where set, it is
# the whole list for training data. Reports go to the registry's own artifacts, or to ``PRIVGATE_ARTIFACT_PLACES``.

VARIABLE = "PRIVGATE_DATA_SOURCES"
#: where the registry keeps artifacts beside its own proxy
PLACES = "PRIVGATE_ARTIFACT_PLACES"
#: where names of hosts are the provider's, and credentials the environment's
_STORES = frozenset({"s3", "gs", "dbfs"})
_AZURE = frozenset({"wasb", "wasbs", "abfs", "abfss"})
_AZURE_HOST = re.compile(r"[a-z0-9-]+@[a-z0-9]+\.(blob|dfs)\.core\.(windows\.net|chinacloudapi\.cn|usgovcloudapi\.net)")
#: system folders without training data, where reading some files blocks for ever
_SPECIAL = ("/proc", "/sys", "/dev")


def refuse_data(uri: str) -> None:
    """Raise ``SubjectError`` for an address of training data that is not allowed; the message names the setting."""
    scheme, plain = _plain(uri)
    if scheme in {"http", "https"}:  # what reads it would go where that leads
        raise SubjectError(f"{uri!r:.200} is on the web, where no data are read; keep them in an object store, or here")
    stored = VARIABLE not in os.environ and (scheme in {"", "file"} or _is_store(uri))
    if plain and (stored or _is_listed(uri)):
        return
    raise SubjectError(
        f"the training data are said to lie at {uri!r:.200}, which this gate may not read: whoever wrote the recipe "
        f"would have it ask there; if that is meant, list the address, or what it begins with, in {VARIABLE}"
    )


def refuse_files(uri: str, *, tracking_uri: str | None) -> None:
    """Raise ``SubjectError`` for files that are neither the registry's, nor here, nor in a known store, nor listed."""
    scheme, plain = _plain(uri)
    host = urllib.parse.urlsplit(uri).netloc if plain else ""
    server = urllib.parse.urlsplit(tracking_uri or os.environ.get("MLFLOW_TRACKING_URI", ""))
    fine = (
        scheme in {"", "file"}
        or _is_store(uri)
        or (scheme == "mlflow-artifacts" and host in {"", server.netloc})
        or (scheme in {"http", "https"} and bool(host) and (scheme, host) == server[:2])
    )
    if plain and (fine or _is_place(uri) or _is_listed(uri)):
        return
    raise SubjectError(
        f"the files are said to lie at {uri!r:.200}, which is neither the registry's nor an object store; whoever "
        f"registered them would have this gate ask there; if that is meant, list the address in {VARIABLE}"
    )


def refuse_written(uri: str, *, tracking_uri: str) -> None:
    """Raise ``RegistryError`` before anything is written where neither the registry nor the operator says."""
    with contextlib.suppress(ValueError, RuntimeError):  # no address, or a home folder of an unknown user
        if _plain(uri)[1] and (_is_own(uri, tracking_uri) or _is_place(uri)):
            return
    raise RegistryError(
        f"reports on this model would be written to {uri!r:.200}, a place of its experiment and not the registry's "
        f"own; if artifacts are meant to lie there, list it, or what it begins with, in {PLACES}"
    )


def _is_own(uri: str, tracking_uri: str) -> bool:
    """Whether a place is the registry's by its address: its artifact service, or beside a store on this machine."""
    registry, place = urllib.parse.urlsplit(tracking_uri), urllib.parse.urlsplit(uri)
    if registry.scheme in {"http", "https"}:
        if place.scheme == "mlflow-artifacts":  # MLflow's client asks that host by the registry's own scheme
            return place.netloc.lower() in {"", registry.netloc.rpartition("@")[2].lower()}
        return _lies_below(f"{tracking_uri.rstrip('/')}/api/2.0/mlflow-artifacts/artifacts", uri)
    if tracking_uri == "databricks" or registry.scheme == "databricks":
        return _lies_below("dbfs:/databricks/mlflow-tracking", uri)
    here = _folder(uri) if place.scheme in {"", "file"} else None
    if here is None:
        return False
    # MLflow's default: mlruns/<experiment>, below the folder in which the experiment was created
    if re.search(r"/mlruns/[0-9]+(/|$)", str(here)):
        return True
    if registry.scheme == "sqlite":
        return here.is_relative_to(Path(urllib.parse.unquote(registry.path[1:])).resolve().parent)
    store = _folder(tracking_uri) if registry.scheme in {"", "file"} else None
    return store is not None and here.is_relative_to(store)


def _lies_below(prefix: str, uri: str) -> bool:
    return len({urllib.parse.urlsplit(u).netloc.lower() for u in (prefix, uri)}) == 1 and _begins(prefix, uri)


def _is_place(uri: str) -> bool:
    return any(_lies_below(prefix, uri) for prefix in os.environ.get(PLACES, "").split())


def _plain(uri: str) -> tuple[str, bool]:
    """Return the scheme, and whether an address means one thing to every library that may read it."""
    scheme, colon, rest = uri.partition(":")
    scheme = scheme.lower() if colon and re.fullmatch("[A-Za-z][A-Za-z0-9+.-]*", scheme) else ""
    odd = re.search(r"[\x00-\x20\\]|::", uri) if scheme else re.search(r"[\x00-\x1f]|://", uri)
    if scheme not in {"http", "https"}:  # pandas' file systems take a host, a proxy or a password from a query
        odd = odd or re.search("[?#]", uri if scheme else "")
    if scheme in {"", "file"}:
        path = _folder(uri)
        # MLflow takes a plain path for an address and decodes it, so "%2e%2e" would be a step up after this look
        coded = not scheme and urllib.parse.unquote(uri) != uri
        return scheme, not (odd or coded) and path is not None and not any(path.is_relative_to(s) for s in _SPECIAL)
    inside = urllib.parse.unquote(urllib.parse.unquote(urllib.parse.urlsplit(uri).path))
    steps = {part.partition(";")[0] for part in inside.split("/")}  # some servers take "..;" for a step up
    fine = rest.startswith("/") and not odd and not {".", ".."} & steps
    account = urllib.parse.urlsplit(uri).username if scheme not in _AZURE else None
    return scheme, fine and account is None


def _folder(uri: str) -> Path | None:
    if not uri.lower().startswith("file:"):
        return Path(uri).expanduser().resolve()
    parsed = urllib.parse.urlsplit(uri)
    return Path(urllib.parse.unquote(parsed.path)).resolve() if parsed.netloc in {"", "localhost"} else None


def _is_store(uri: str) -> bool:
    parsed = urllib.parse.urlsplit(uri)
    return (parsed.scheme in _STORES and ":" not in parsed.netloc and parsed.netloc not in {".", ".."}) or (
        parsed.scheme in _AZURE and bool(_AZURE_HOST.fullmatch(parsed.netloc))
    )


def _is_listed(uri: str) -> bool:
    return any(_begins(prefix, uri) for prefix in os.environ.get(VARIABLE, "").split())


def _begins(prefix: str, uri: str) -> bool:
    """Whether an address begins with a listed one, by whole parts of its path."""
    scheme, plain = _plain(uri)
    if scheme in {"", "file"}:
        above, place = _folder(prefix) if _plain(prefix)[0] in {"", "file"} else None, _folder(uri)
        return plain and above is not None and place is not None and place.is_relative_to(above)
    listed, named = urllib.parse.urlsplit(prefix), urllib.parse.urlsplit(uri)
    if listed.scheme != named.scheme or (listed.netloc and listed.netloc.lower() != named.netloc.lower()):
        return False
    above_path = listed.path.rstrip("/")
    return named.path == above_path or named.path.startswith(f"{above_path}/")
