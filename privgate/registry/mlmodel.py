"""What MLmodel and environment files let others load and install: one model, covered files, usual indexes."""

import os
import posixpath
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from packaging.requirements import InvalidRequirement, Requirement

from privgate import digest
from privgate.documents import DocumentError, strict_json, strict_yaml
from privgate.errors import SubjectError
from privgate.evidence import Precondition
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
    with strict_json.reading("the MLmodel file cannot be read, so log the model again", SubjectError):
        text = strict_json.text_of(path)
        if odd := UNPLAIN.search(text.replace("\r\n", "\n")):
            raise DocumentError(f"holds the character U+{ord(odd[0]):04X}, where some readers end a line")
        content = strict_yaml.as_mlflow_reads(text)
        flavors = {str(name): dict(conf) for name, conf in dict(content["flavors"]).items()}
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
    for _, value in _walk(content):
        if posixpath.normpath(value.replace("\\", "/")).lstrip("/").split("/")[0] == FOLDER and "/" in value:
            _refuse(f"the MLmodel file points into privgate's own folder ({value!r})")
    for _, value in _walk(content.get("flavors"), but=_NOTES):
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


#: beginnings of addresses from which packages may be installed, besides the usual ones; separated by spaces
VARIABLE = "PRIVGATE_PACKAGE_SOURCES"
_STEP = f"take the line out and log the model again, or list the address in {VARIABLE}"
_USUAL = (
    *("https://pypi.org/simple", "https://files.pythonhosted.org/packages"),
    *("https://repo.anaconda.com/pkgs", "https://conda.anaconda.org/conda-forge"),
)
_CHANNELS = frozenset({"conda-forge", "defaults", "nodefaults"})
#: files that MLflow reads, whatever the MLmodel file names besides
_LISTS = ("requirements.txt", "constraints.txt")
_KEYS = frozenset({"name", "prefix", "python", "channels", "dependencies", "build_dependencies"})
#: of a uv project
_LOCKS = ("uv.lock", "uv.toml", "pyproject.toml")
_LOCAL_KEYS = frozenset({"path", "directory", "editable"})
#: options of a requirements file that name an address, or nothing
_PLACES = frozenset({"-i", "--index-url", "--pypi-url", "--extra-index-url", "-f", "--find-links", "-e", "--editable"})
_HARMLESS = frozenset({"--no-index", "--pre", "--prefer-binary", "--require-hashes"})
#: those that are looked at in any case
_BESIDE = [f"{option} {name}" for name in _LISTS for option in ("-r", "-c", "--requirement", "--constraint")]
#: by which pip reads a file as something else; a line of its own only where pip's bytes have a newline
_CODING = re.compile(r"(?is)#.*coding[:=]\s*+(?!(?:utf-?8|ascii)(?![-\w.]))[-\w.]")


def check_requirements(folder: Path) -> Precondition:
    """Return whether all packages come from usual or listed places, with the file of the first that does not."""
    try:
        for name, line in _list_lines(folder):
            if why := _refuse_line(line):
                text = f"{name}: {why}, and whoever serves the model would install that; {_STEP}"
                return Precondition("requirements", "failed", text)
    except (OSError, SubjectError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as exc:
        why = strict_json.why(exc) if isinstance(exc, strict_json.GARBLED) else f"{exc}"
        return Precondition("requirements", "failed", f"the model's requirements cannot be read: {why}; log it again")
    return Precondition("requirements", "passed", "packages are installed from the usual indexes or from listed ones")


def _list_lines(folder: Path) -> Iterator[tuple[str, str]]:
    """Give each file with every line of it that names a package or a place, as pip would be told them."""
    env: Any = read(folder)[0].get(SERVED, {}).get("env") or {}
    given = env if isinstance(env, dict) else {"conda": env}
    kinds = {"conda.yaml": "conda", "python_env.yaml": "virtualenv"}
    kinds |= {str(name): "conda" if key == "conda" else "virtualenv" for key, name in given.items()}
    if below := next((name for name in kinds if Path(name).name != name), ""):
        raise ValueError(f"{below} lies in a folder of its own, beside other files of these names")
    for name in (n for n in (*_LISTS, *kinds, *_LOCKS) if (folder / n).is_file()):
        text = (folder / name).read_bytes().decode("utf-8-sig")
        if name in kinds:
            lines = _read_environment(text, kinds[name])
        else:
            lines = _read_lock(text, name) if name in _LOCKS else _read_list(text)
        yield from ((name, line) for line in lines)


def _read_list(text: str) -> Iterator[str]:
    """Give the lines of a requirements file as pip reads them: comments end, then continued lines are joined."""
    if any(map(_CODING.match, text.split("\n")[:2])):
        yield "--encoding"
    ended = "\n".join(re.sub(r"^\s*#.*", "", line) for line in text.splitlines())
    for line in ended.replace("\\\n", " ").splitlines():
        if whole := re.sub(r"(^|\s)#.*$", "", line).strip():
            yield whole


def _read_environment(text: str, kind: str) -> Iterator[str]:
    content: Any = strict_yaml.as_mlflow_reads(text) or {}
    yield from (f"--{key}" for key in content.keys() - _KEYS)
    for key, value in _walk(content):
        if key == "channels" or (kind == "conda" and key == "dependencies"):
            if key == "channels" or re.search(r"::|[/\[]", value):
                yield f"--channel {value.rpartition('::')[0] or value}"
        elif key in ("dependencies", "build_dependencies", "pip"):
            yield value
        elif key not in _KEYS:
            yield f"--{key}"


def _read_lock(text: str, name: str) -> Iterator[str]:
    """Give the addresses and packages of a uv project; what people and other tools read is none of them."""
    content = tomllib.loads(text)
    if name == "pyproject.toml":
        project = content.get("project", {})
        groups = [content.get("build-system", {}).get("requires", ()), project.get("dependencies", ())]
        groups += [*project.get("optional-dependencies", {}).values(), *content.get("dependency-groups", {}).values()]
        yield from (part for group in groups for part in group if isinstance(part, str))
        content = content.get("tool", {}).get("uv", {})
    for key, value in _walk(content):
        address = re.search(r"(?i)^\s*((?:[a-z][a-z0-9+.-]*:/|git\+|file:).*)|@\s*(.*[:/].*)", value)
        if address or (key in _LOCAL_KEYS and value != "."):
            yield f"--index-url {shlex.quote((address[1] or address[2]) if address else value)}"


def _walk(value: Any, key: str = "", but: frozenset[str] = frozenset()) -> Iterator[tuple[str, str]]:
    """Give every text below a value, with the key that it stands under, except below some keys."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict | list):
        for name, part in value.items() if isinstance(value, dict) else ((key, each) for each in value):
            if name not in but:
                yield from _walk(part, name, but)


def _refuse_line(line: str) -> str:
    if line.startswith("-"):
        if (channel := line.removeprefix("--channel ")) != line:
            return "" if channel in _CHANNELS or _is_listed(channel) else f"channel {channel!r:.200} is not a usual one"
        option, *values = shlex.split(line.replace("=", " ", 1) if line.startswith("--") else line)
        if option in _PLACES and len(values) == 1:
            return "" if _is_listed(values[0]) else f"{values[0]!r:.200} is not the usual index"
        fine = line in _HARMLESS or line in _BESIDE or re.fullmatch(r"--(no|only)-binary[= ][\w:.,-]+", line)
        return "" if fine else f"{line:.100} is not known to be harmless"
    text = re.sub(r"\s--hash[= ]\S+", "", line).strip()
    try:
        address = Requirement(text).url or ""
    except InvalidRequirement:
        address = text
    return "" if not address or _is_listed(address) else f"{text!r:.200} names no package of an index"


def _is_listed(address: str) -> bool:
    """Whether an address begins with a usual or listed one, by whole parts of its path."""
    if re.search(r"[$\s]|\.\.", address):
        return False
    places = (*_USUAL, *os.environ.get(VARIABLE, "").split())
    return any(f"{address.rstrip('/')}/".startswith(f"{place.rstrip('/')}/") for place in places)
