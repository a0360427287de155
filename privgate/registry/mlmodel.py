"""What an MLmodel file lets MLflow load: one model, by whatever flavor it is asked, from covered files alone."""

import os
import posixpath
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from privgate import digest
from privgate.documents import DocumentError, strict_json, strict_yaml
from privgate.errors import SubjectError
from privgate.registry.files import FOLDER, MLFLOW_META, UNPLAIN
from privgate.subject.sources import providing

SERVED = "python_function"
#: what names a file but is none that is loaded: where an artifact once came from, and what a model is told
_NOTES = frozenset({"uri", "config", "env_vars", "model_code_path"})
#: what names a file or folder that is read, in a flavor and below ``saved_input_example_info``
_READ = frozenset(
    ("artifact_path", "code", "components_binary", "conda", "data", "env", "model_binary", "model_config", "model_data")
) | {"model_path", "path", "pickled_model", "pipeline", "python_model", "serving_input_path", "virtualenv"}
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def _refuse(why: str) -> NoReturn:
    raise SubjectError(f"{why}; log the model again")


def flavor_of(folder: Path) -> str:
    """Return the flavor that gives back the native model, from the MLmodel file.

    What MLflow serves (``python_function``) and what that flavor opens must be one model, of the same files. Any other
    flavor would be a second one, which no check covers. ``SubjectError``: the two differ, or a path leaves the files.
    """
    flavors, content = read(folder)
    if not flavors:
        _refuse("the MLmodel file lists no flavor")
    _check_paths(folder, content)
    native = [name for name in flavors if name != SERVED]
    if SERVED in flavors:
        _check_code(folder, flavors)
        if native:
            _check_one_model(folder, flavors, native)
    elif len(native) > 1:
        _refuse(f"the MLmodel file lists the flavors {', '.join(native)}, of which one is checked")
    return native[0] if native else SERVED


def read(folder: Path) -> tuple[dict[str, Any], Any]:
    """Return flavors and the whole content of the MLmodel file."""
    path = folder / "MLmodel"
    if not path.is_file():
        raise SubjectError("the logged model has no MLmodel file; log it again")
    try:
        text = strict_json.content(path).decode("utf-8")
        if odd := UNPLAIN.search(text.replace("\r\n", "\n")):
            raise DocumentError(f"holds the character U+{ord(odd[0]):04X}, where some readers end a line")
        content = strict_yaml.as_mlflow_reads(text)
        flavors = {str(name): dict(conf) for name, conf in dict(content["flavors"]).items()}
    except (OSError, *strict_json.GARBLED) as exc:
        raise SubjectError(f"the MLmodel file cannot be read: {strict_json.why(exc)}; log the model again") from exc
    return flavors, content


def _check_one_model(folder: Path, flavors: Mapping[str, Mapping[str, Any]], native: list[str]) -> None:
    served = flavors[SERVED]
    loader = str(served.get("loader_module"))
    if len(native) > 1 or not f"{loader}.".startswith(f"mlflow.{native[0]}."):
        why = f"{SERVED} is loaded by {loader}, beside {', '.join(native)}"
        raise SubjectError(f"the MLmodel file holds several models: {why}; log one model by one flavor")
    own = flavors[native[0]]
    if (own.get("code") or None) != (served.get("code") or None):
        _refuse(f"{SERVED} and {native[0]} are loaded with different code")
    loaded = {posixpath.normpath(str(served[key])) for key in ("data", "model_path") if served.get(key)}
    named = {posixpath.normpath(v) for k, v in own.items() if k != "code" and _is_file(folder, v)}
    if loaded and loaded != named:
        serves, opens = ", ".join(sorted(loaded)), ", ".join(sorted(named)) or "no file"
        _refuse(f"MLflow serves {serves}, and the flavor {native[0]} opens {opens}: these are two models")


def _is_file(folder: Path, value: Any) -> bool:
    return isinstance(value, str) and bool(value) and os.path.exists(folder / value)  # noqa: PTH110  any text is asked


def _check_paths(folder: Path, content: Any) -> None:
    """Refuse paths out of the served folder and into privgate's own, in this MLmodel file and any nested one."""
    for value in _texts(content):
        if posixpath.normpath(value.replace("\\", "/")).lstrip("/").split("/")[0] == FOLDER and "/" in value:
            _refuse(f"the MLmodel file points into privgate's own folder ({value!r})")
    for value in _texts(content.get("flavors"), _NOTES):
        parts = value.replace("\\", "/").split("/")
        leaves = value.startswith(("/", "~", "\\")) or value[1:3] in {":/", ":\\"} or _URL.match(value)
        if ".." in parts or value == FOLDER or leaves:
            _refuse(f"the MLmodel file names {value!r}, which leaves the files that are checked")
    for value in _read_from(content):
        whole = str(value).rstrip("/")
        inside = whole == posixpath.normpath(whole) and whole.split("/")[0] not in {"", ".", "..", MLFLOW_META}
        if not (inside and _is_file(folder, value)):
            _refuse(f"the MLmodel file names {value!r}, which is none of the model's files")
    if inner := next((p for p in digest.below(folder) if p.name == "MLmodel" and p.parent != folder), None):
        raise SubjectError(
            f"the model holds another MLmodel file ({inner.relative_to(folder).as_posix()}), by which MLflow may load "
            "something else; hand that model to the python_model as an attribute (self.model = …), not in artifacts="
        )


def _read_from(content: Any) -> Iterator[Any]:
    """Give what must be a file or folder of the model; a model of another place is none that is checked."""
    todo = [("", conf) for conf in (*dict(content["flavors"]).values(), content.get("saved_input_example_info"))]
    while todo:
        key, value = todo.pop()
        if isinstance(value, dict):
            if value.get("source_model_name") and not value.get("model_binary"):
                yield value["source_model_name"]
            if code := value.get("model_code_path"):  # where it once lay: MLflow runs the model's own file of that name
                yield posixpath.basename(str(code))
            todo += [(str(k), v) for k, v in value.items() if k not in _NOTES]
        elif key in _READ and value:
            yield value


def _check_code(folder: Path, flavors: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse code that takes the place of an installed module where it is served, and not where it is checked."""
    for conf in flavors.values():
        if not (code := conf.get("code")):
            continue
        place = folder / str(code)
        if posixpath.normpath(str(code)) == "." or not _is_file(folder, str(code)) or not place.is_dir():
            _refuse(f"the model's code {str(code)!r} is no folder of its own")
        for name in sorted({p.name.partition(".")[0] for p in place.iterdir()}):
            if name in sys.stdlib_module_names or set(providing((name,))) - _checkouts():
                raise SubjectError(f"the model's code hides the installed module {name!r}; log it under another name")


@cache
def _checkouts() -> frozenset[str]:
    from importlib import metadata

    known = metadata.distributions()
    return frozenset(d.metadata["Name"] for d in known if '"editable"' in (d.read_text("direct_url.json") or ""))


def _texts(value: Any, but: frozenset[str] = frozenset()) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    if isinstance(value, dict):
        value = [part for key, part in value.items() if key not in but]
    for part in value if isinstance(value, list) else ():
        yield from _texts(part, but)
