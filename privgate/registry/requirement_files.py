"""From where a model's own files let packages be installed: from the usual indexes, or where the operator says."""

import os
import re
import shlex
import tomllib
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement

from privgate.documents import DocumentError, strict_json, strict_yaml
from privgate.evidence import Precondition

# ``mlflow models serve`` installs the packages in these files before it loads the model: an author of one line chooses
# code that runs beside the model, which no check of the model sees.

#: beginnings of addresses from which packages may be installed, besides the usual ones; separated by spaces
VARIABLE = "PRIVGATE_PACKAGE_SOURCES"
_STEP = f"take the line out and log the model again, or list the address in {VARIABLE}"
_USUAL = (
    *("https://pypi.org/simple", "https://files.pythonhosted.org/packages"),
    *("https://repo.anaconda.com/pkgs", "https://conda.anaconda.org/conda-forge"),
)
_CHANNELS = frozenset({"conda-forge", "defaults", "nodefaults"})
#: files that MLflow reads, whatever the MLmodel file names besides, and how each is read
_FILES = {"requirements.txt": "list", "constraints.txt": "list", "conda.yaml": "conda", "python_env.yaml": "virtualenv"}
_CONDA_KEYS = frozenset({"name", "channels", "dependencies", "prefix"})
_ENV_KEYS = frozenset({"python", "build_dependencies", "dependencies"})
#: of a uv project: all its texts, or those of its own table
_LOCKS = ("uv.lock", "uv.toml", "pyproject.toml")
_ADDRESS = re.compile(r"(?i)^\s*(?:[a-z][a-z0-9+.-]*:/|git\+|file:)")
_LOCAL_KEYS = frozenset({"path", "directory", "editable"})
#: options of a requirements file that name an address, a file, nothing, or a choice of packages
_INDEXES = frozenset({"-i", "--index-url", "--pypi-url", "--extra-index-url", "-f", "--find-links"})
_NESTING = frozenset({"-r", "--requirement", "-c", "--constraint"})
_HARMLESS = frozenset({"--no-index", "--pre", "--prefer-binary", "--require-hashes"})
_CHOICES = frozenset({"--no-binary", "--only-binary"})
_CODING = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")


class _Line(NamedTuple):
    """One line of a file below the model's folder; its number is 0 where it has none."""

    file: str
    number: int
    text: str


def _find_line(name: str, rows: list[str], part: str, text: str) -> _Line:
    return _Line(name, next((n for n, row in enumerate(rows, 1) if part in row), 0), text)


def check_requirements(folder: Path) -> Precondition:
    """Return whether all packages come from usual or listed places, with file and line of the first that does not."""
    try:
        for line in _list_lines(folder):
            options = _split_options(line.text) if line.text.startswith("-") else None
            each = (_refuse_option(folder, line, *given) for given in options or ())
            if why := _refuse_package(folder, line) if options is None else next(filter(None, each), ""):
                where = f"{line.file}, line {line.number}" if line.number else line.file
                text = f"{where}: {why}, and whoever serves the model would install that; {_STEP}"
                return Precondition("requirements", "failed", text)
    except (OSError, DocumentError, AttributeError, KeyError, TypeError, ValueError) as exc:
        why = strict_json.why(exc) if isinstance(exc, strict_json.GARBLED) else f"{exc}"
        return Precondition("requirements", "failed", f"the model's requirements cannot be read: {why}; log it again")
    return Precondition("requirements", "passed", "packages are installed from the usual indexes or from listed ones")


def _list_lines(folder: Path) -> Iterator[_Line]:
    """Give every line that names a package or a place, files that others name included."""
    waiting = [
        (name, kind) for name, kind in {**_FILES, **_named_by_model(folder)}.items() if (folder / name).is_file()
    ]
    seen = set[tuple[str, str]]()
    while waiting:
        name, kind = waiting.pop()
        if (name, kind) not in seen:
            seen.add((name, kind))
            lines = list(_read_list(folder, name) if kind == "list" else _read_environment(folder, name, kind))
            yield from lines
            for line in lines:
                nested = [_find_inside(folder, line, v) for k, v in _split_options(line.text) if k in _NESTING]
                waiting += [(path.relative_to(folder.resolve()).as_posix(), "list") for path in nested if path]
    for name in (n for n in _LOCKS if (folder / n).is_file()):
        yield from _read_lock(folder, name)


def _named_by_model(folder: Path) -> dict[str, str]:
    """Return the files that the MLmodel file names as environments, and how each is read."""
    content = strict_yaml.as_mlflow_reads((folder / "MLmodel").read_text(encoding="utf-8"))
    env: Any = dict(content["flavors"]).get("python_function", {}).get("env") or {}
    given = env if isinstance(env, dict) else {"conda": env}
    return {str(name): "conda" if key == "conda" else "virtualenv" for key, name in given.items()}


def _read_list(folder: Path, name: str) -> Iterator[_Line]:
    """Give the lines of a requirements file as pip reads them: continued ones joined, comments left out."""
    held, first = "", 0
    for number, text in enumerate((folder / name).read_text(encoding="utf-8-sig").splitlines(), 1):
        first = first or number
        coding = _CODING.match(text) if number < 3 else None
        if coding and coding[1].lower().replace("_", "-") not in {"utf-8", "utf8", "ascii"}:
            yield _Line(name, number, f"--encoding {coding[1]}")
        if text.endswith("\\") and not text.lstrip().startswith("#"):
            held += text[:-1] + " "
            continue
        whole, held = re.sub(r"(^|\s)#.*$", "", held + text).strip(), ""
        if whole:
            yield _Line(name, first, whole)
        first = 0
    if held.strip():
        yield _Line(name, first, held.strip())


def _read_environment(folder: Path, name: str, kind: str) -> Iterator[_Line]:
    """Give channels and packages of a conda or virtualenv file, as pip would be told them."""
    text = (folder / name).read_text(encoding="utf-8")
    content: Any = strict_yaml.as_mlflow_reads(text) or {}
    shown = [(key, f"--{key}") for key in content.keys() - (_CONDA_KEYS if kind == "conda" else _ENV_KEYS)]
    shown += [(channel, f"--channel {channel}") for channel in content.get("channels") or ()]
    for part in [p for key in ("dependencies", "build_dependencies") for p in content.get(key) or ()]:
        if kind != "conda":
            shown.append((part, str(part)))
        elif isinstance(part, dict):
            shown += [(key, f"--{key}") for key in part if key != "pip"]
            shown += [(each, str(each)) for each in part.get("pip") or ()]
        elif re.search(r"::|[/\[]", str(part)):
            shown.append((part, f"--channel {str(part).rpartition('::')[0] or part}"))
    for value, line in shown:
        yield _find_line(name, text.splitlines(), str(value), line)


def _read_lock(folder: Path, name: str) -> Iterator[_Line]:
    """Give the addresses and packages of a uv project, as pip would be told them."""
    text = (folder / name).read_text(encoding="utf-8")
    content = tomllib.loads(text)
    groups = [content.get("build-system", {}).get("requires", ())]
    if name == "pyproject.toml":
        project = content.get("project", {})
        groups += [project.get("dependencies", ()), *project.get("optional-dependencies", {}).values()]
        groups += content.get("dependency-groups", {}).values()
        content = content.get("tool", {}).get("uv", {})
    shown = [part for group in groups for part in group if isinstance(part, str)]
    for key, value in _walk(content):
        local = key in _LOCAL_KEYS and value != "." and not _is_inside(folder, folder / value)
        if local or _ADDRESS.match(value):
            shown.append(f"--index-url {shlex.quote(value)}")
    for each in shown:
        place = shlex.split(each)[-1] if each.startswith("--index-url") else each
        yield _find_line(name, text.splitlines(), place, each)


def _walk(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Give every text below a value, with the key that it stands under."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict | list):
        for name, part in value.items() if isinstance(value, dict) else ((key, each) for each in value):
            yield from _walk(part, name)


def _refuse_option(folder: Path, line: _Line, option: str, value: str) -> str:
    if option == "--channel":
        return "" if value in _CHANNELS or _is_listed(value) else f"channel {value!r:.200} is not a usual one"
    if option == "--trusted-host":
        listed = value in {urllib.parse.urlsplit(place).netloc for place in _listed()}
        return "" if value and listed else f"host {value!r:.200} is trusted without a certificate"
    if option in _INDEXES:
        return "" if _is_listed(value) else f"{value!r:.200} is not the usual index"
    if option in _NESTING:
        return "" if _find_inside(folder, line, value) else f"{value!r:.200} is no file of the model"
    if option in {"-e", "--editable"}:
        return "" if _is_listed(value) else f"{value!r:.200} would be installed from its sources"
    harmless = (option in _HARMLESS and not value) or (option in _CHOICES and value)
    return "" if harmless else f"{option} {value}".strip()[:100] + " is not known to be harmless"


def _refuse_package(folder: Path, line: _Line) -> str:
    text = re.sub(r"\s--hash[= ]\S+", "", line.text).strip()
    try:
        if not (address := Requirement(text).url or ""):
            return ""
    except InvalidRequirement:
        address = text
    path = _find_inside(folder, line, address.partition("#")[0])
    if path is not None and path.suffix == ".whl":
        return ""  # a wheel beside the model is part of its digest
    return "" if _is_listed(address) else f"{text!r:.200} names no package of an index"


def _split_options(text: str) -> list[tuple[str, str]]:
    """Return the options of a line with their values; what is left over is a value too many, which none allows."""
    if not text.startswith("-"):
        return []
    options, words = list[tuple[str, str]](), shlex.split(text)
    while words:
        option = words.pop(0)
        if option.startswith("--"):
            option, equals, value = option.partition("=")
            takes = not equals and option not in _HARMLESS
        else:  # pip reads -ifoo as -i foo
            option, value = option[:2], option[2:]
            takes = not value
        options.append((option, words.pop(0) if takes and words else value))
    return options


def _find_inside(folder: Path, line: _Line, name: str) -> Path | None:
    """Return the file of the model that a line names by a plain path from its own place; None for anything else."""
    path = ((folder / line.file).parent / name).resolve()
    return path if not re.search(r"[:$\\]", name) and _is_inside(folder, path) else None


def _is_inside(folder: Path, path: Path) -> bool:
    return path.is_file() and path.resolve().is_relative_to(folder.resolve())


def _listed() -> list[str]:
    return os.environ.get(VARIABLE, "").split()


def _is_listed(address: str) -> bool:
    """Whether an address begins with a usual or listed one, by whole parts of its path."""
    if re.search(r"[$\s]|\.\.", address):
        return False
    return any(f"{address.rstrip('/')}/".startswith(f"{place.rstrip('/')}/") for place in (*_USUAL, *_listed()))
