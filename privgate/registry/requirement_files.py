"""From where a model's own files let packages be installed: from the usual indexes, or where the operator says."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement

from privgate.documents import DocumentError, strict_json, strict_yaml
from privgate.evidence import Precondition

# ``mlflow models serve`` installs what these files name before it loads the model: whoever may write one line of them
# chooses code that runs beside the model, which no check of the model sees.

#: beginnings of addresses from which packages may be installed, besides the usual ones; separated by spaces
VARIABLE = "PRIVGATE_PACKAGE_SOURCES"
_STEP = f"take the line out and log the model again, or list the address in {VARIABLE}"
_INDEXES = ("https://pypi.org/simple", "https://files.pythonhosted.org/packages")
_CHANNELS = frozenset({"conda-forge", "defaults", "nodefaults"})
#: files that MLflow reads, whatever the MLmodel file names besides
_LISTS = ("requirements.txt", "constraints.txt")
_ENVIRONMENTS = ("conda.yaml", "python_env.yaml")
_LOCKS = ("uv.lock", "pyproject.toml")
_LOCKED = re.compile(r"""\b(?:registry|url|git|path|index-url|extra-index-url|find-links)\s*=\s*["']([^"']+)["']""")
#: options of a requirements file that name an address, those that name a file, and those that name none
_ADDRESSES = frozenset({"-i", "--index-url", "--pypi-url", "--extra-index-url", "-f", "--find-links"})
_FILES = frozenset({"-r", "--requirement", "-c", "--constraint"})
_HARMLESS = frozenset({"--no-index", "--pre", "--prefer-binary", "--require-hashes"})
_CHOICES = frozenset({"--no-binary", "--only-binary"})


class _Line(NamedTuple):
    """One line of a file below the model's folder."""

    file: str
    number: int
    text: str


def check_requirements(folder: Path) -> Precondition:
    """Return whether all packages come from where everybody's come from, with file and line of the first that does not.

    Parameters
    ----------
    folder : Path
        The logged model's files. None of them is run, and nothing is fetched.

    Returns
    -------
    Precondition
        ``failed`` where an index, a channel, an address, a path or an option is neither usual nor listed in
        ``PRIVGATE_PACKAGE_SOURCES``, or where a file cannot be read.

    """
    try:
        for line in _list_lines(folder):
            if why := _refuse_line(folder, line):
                where = f"{line.file}, line {line.number}" if line.number else line.file
                text = f"{where}: {why}, and whoever serves the model would install that; {_STEP}"
                return Precondition("requirements", "failed", text)
    except (OSError, DocumentError, UnicodeDecodeError, ValueError) as exc:
        why = strict_json.why(exc) if isinstance(exc, strict_json.GARBLED) else str(exc)
        return Precondition("requirements", "failed", f"the model's requirements cannot be read: {why}; log it again")
    return Precondition("requirements", "passed", "packages are installed from the usual indexes or from listed ones")


def _list_lines(folder: Path) -> Iterator[_Line]:
    """Give every line that names a package or a place, files that others name included."""
    names = (*_LISTS, *_ENVIRONMENTS, *_named_by_model(folder))
    waiting, seen = [name for name in names if (folder / name).is_file()], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        lines = list(_read_environment(folder, name) if name.endswith((".yaml", ".yml")) else _read_list(folder, name))
        yield from lines
        waiting += [nested for line in lines if (nested := _nested(folder, line))]
    for name in (n for n in _LOCKS if (folder / n).is_file()):
        for number, text in enumerate((folder / name).read_text(encoding="utf-8").splitlines(), 1):
            for place in _LOCKED.findall(text):
                if not _is_inside(folder, Path(place)):
                    yield _Line(name, number, f"--index-url {shlex.quote(place)}")


def _named_by_model(folder: Path) -> list[str]:
    """Return the files that the MLmodel file names as environments."""
    content = strict_yaml.as_mlflow_reads((folder / "MLmodel").read_text(encoding="utf-8"))
    served: Any = dict(content["flavors"]).get("python_function", {})
    env = served.get("env") or {}
    return [str(name) for name in (env.values() if isinstance(env, dict) else [env])]


def _read_list(folder: Path, name: str) -> Iterator[_Line]:
    """Give the lines of a requirements file as pip reads them: continued ones joined, comments left out."""
    held, first = "", 0
    for number, text in enumerate((folder / name).read_text(encoding="utf-8-sig").splitlines(), 1):
        first = first or number
        if text.endswith("\\") and not text.lstrip().startswith("#"):
            held += text[:-1] + " "
            continue
        whole, held = re.sub(r"(^|\s)#.*$", "", held + text).strip(), ""
        if whole:
            yield _Line(name, first, whole)
        first = 0
    if held.strip():
        yield _Line(name, first, held.strip())


def _read_environment(folder: Path, name: str) -> Iterator[_Line]:
    """Give channels and packages of a conda or virtualenv file, as pip would be told them."""
    text = (folder / name).read_text(encoding="utf-8")
    content: Any = strict_yaml.as_mlflow_reads(text) or {}
    rows = text.splitlines()

    def line(value: str, shown: str) -> _Line:
        return _Line(name, next((n for n, row in enumerate(rows, 1) if value in row), 0), shown)

    for channel in content.get("channels") or ():
        yield line(str(channel), f"--channel {channel}")
    for key in ("dependencies", "build_dependencies"):
        for part in content.get(key) or ():
            if isinstance(part, dict):
                yield from (line(str(each), str(each)) for each in part.get("pip") or ())
            elif "python" in content:  # a virtualenv's file: all is pip's
                yield line(str(part), str(part))
            elif "::" in str(part) or "/" in str(part):
                yield line(str(part), f"--channel {str(part).rpartition('::')[0] or part}")


def _nested(folder: Path, line: _Line) -> str:
    """Return the file below the model's folder that a line names, from the folder; empty if none."""
    option, value = _split_option(line.text)
    path = (folder / line.file).parent / value
    if option not in _FILES or not _is_inside(folder, path):
        return ""
    return path.resolve().relative_to(folder.resolve()).as_posix()


def _refuse_line(folder: Path, line: _Line) -> str:
    """Return what is wrong with a line, without a full stop; empty if nothing."""
    option, value = _split_option(line.text)
    if option == "--channel":
        return "" if value in _CHANNELS or _is_listed(value) else f"channel {value!r:.200} is not a usual one"
    if option == "--trusted-host":
        listed = any(re.sub("^[a-z+]+://", "", place).startswith(value) for place in _listed())
        return "" if value and listed else f"host {value!r:.200} is trusted without a certificate"
    if option in _ADDRESSES:
        return "" if _is_listed(value) else f"{value!r:.200} is not the usual index"
    if option in _FILES:
        return "" if _nested(folder, line) else f"{value!r:.200} is no file of the model"
    if option in {"-e", "--editable"}:
        return "" if _is_listed(value) else f"{value!r:.200} would be installed from its sources"
    if option.startswith("-"):
        return "" if option in _HARMLESS | _CHOICES else f"option {option!r:.50} is not known to be harmless"
    return _refuse_package(folder, line)


def _refuse_package(folder: Path, line: _Line) -> str:
    text = re.sub(r"\s--hash[= ]\S+", "", line.text).strip()
    try:
        address = Requirement(text).url or ""
    except InvalidRequirement:
        address = text
    else:
        if not address:
            return ""
    path = (folder / line.file).parent / address.partition("#")[0]
    if path.suffix == ".whl" and "://" not in address and _is_inside(folder, path):
        return ""  # a wheel beside the model is part of its digest
    return "" if _is_listed(address) else f"{text!r:.200} names no package of an index"


def _split_option(text: str) -> tuple[str, str]:
    """Return the option of a line and its value; an empty option for a package."""
    if not text.startswith("-"):
        return "", text
    option, _, value = text.partition(" ")
    if text.startswith("--") and "=" in option:
        option, _, value = text.partition("=")
    elif not text.startswith("--") and len(option) > 2:  # pip reads -ifoo as -i foo
        option, value = option[:2], option[2:] + value
    words = shlex.split(value)
    return option, words[0] if len(words) == 1 else value.strip()


def _is_inside(folder: Path, path: Path) -> bool:
    whole = (folder / path).resolve()
    return whole.is_file() and whole.is_relative_to(folder.resolve())


def _listed() -> list[str]:
    return os.environ.get(VARIABLE, "").split()


def _is_listed(address: str) -> bool:
    """Whether an address begins with a usual or listed one, by whole parts of its path."""
    if "$" in address or ".." in address:
        return False
    return any(f"{address.rstrip('/')}/".startswith(f"{place.rstrip('/')}/") for place in (*_INDEXES, *_listed()))
