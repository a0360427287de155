"""From where a model's own files let packages be installed: from the usual indexes, or where the operator says."""

import os
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from privgate.documents import DocumentError, strict_json, strict_yaml
from privgate.evidence import Precondition

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
_ADDRESSES = frozenset(
    {"-i", "--index-url", "--pypi-url", "--extra-index-url", "-f", "--find-links", "-e", "--editable"}
)
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
    except (OSError, DocumentError, AttributeError, KeyError, TypeError, ValueError) as exc:
        why = strict_json.why(exc) if isinstance(exc, strict_json.GARBLED) else f"{exc}"
        return Precondition("requirements", "failed", f"the model's requirements cannot be read: {why}; log it again")
    return Precondition("requirements", "passed", "packages are installed from the usual indexes or from listed ones")


def _list_lines(folder: Path) -> Iterator[tuple[str, str]]:
    """Give each file with every line of it that names a package or a place, as pip would be told them."""
    content: Any = strict_yaml.as_mlflow_reads((folder / "MLmodel").read_text(encoding="utf-8"))
    env: Any = dict(content["flavors"]).get("python_function", {}).get("env") or {}
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
    """Give the addresses and packages of a uv project."""
    content = tomllib.loads(text)
    groups = [content.get("build-system", {}).get("requires", ())]
    if name == "pyproject.toml":
        project = content.get("project", {})
        groups += [project.get("dependencies", ()), *project.get("optional-dependencies", {}).values()]
        groups += content.get("dependency-groups", {}).values()
        content = content.get("tool", {}).get("uv", {})
    yield from (part for group in groups for part in group if isinstance(part, str))
    for key, value in _walk(content):
        if (key in _LOCAL_KEYS and value != ".") or re.match(r"(?i)^\s*(?:[a-z][a-z0-9+.-]*:/|git\+|file:)", value):
            yield f"--index-url {shlex.quote(value)}"


def _walk(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Give every text below a value, with the key that it stands under."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict | list):
        for name, part in value.items() if isinstance(value, dict) else ((key, each) for each in value):
            yield from _walk(part, name)


def _refuse_line(line: str) -> str:
    if line.startswith("-"):
        if (channel := line.removeprefix("--channel ")) != line:
            return "" if channel in _CHANNELS or _is_listed(channel) else f"channel {channel!r:.200} is not a usual one"
        option, *values = shlex.split(line.replace("=", " ", 1) if line.startswith("--") else line)
        if option in _ADDRESSES and len(values) == 1:
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
