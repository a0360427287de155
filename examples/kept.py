"""Rows that are kept as soon as they are there, each with what it rests on: an interrupted run goes on."""

import ast
import hashlib
import json
import os
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import distributions, packages_distributions, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: what a run leaves beside sources
LEFT = {"__pycache__", "out", "mlruns", "mlartifacts"}
ABSENT = "not installed"


def digest(*paths: Path) -> str:
    """Return a digest of names and contents: of files, and of all that lies below folders.

    What runs leave there does not count, nor do tables of results (``*results.md``).
    """
    whole = hashlib.sha256()
    for path in paths:
        below = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        for file in below:
            name = file.relative_to(path.parent)
            if LEFT.isdisjoint(name.parts) and file.suffix != ".db" and not name.name.endswith("results.md"):
                whole.update(f"{name} {file.stat().st_size}\n".encode() + file.read_bytes())
    return whole.hexdigest()


@cache
def product() -> str:
    """Return the digest of the package and its policies."""
    return digest(ROOT / "privgate", ROOT / "policies")


def sources(module: Path) -> list[Path]:
    """Return a module and the modules beside it that it imports, and that those import."""
    found, todo = set[Path](), [module]
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = {*node.module.split("."), *(alias.name for alias in node.names)}
                todo += [p for n in names if (p := module.with_name(f"{n}.py")).is_file()]
    return sorted(found)


def versions(*modules: str) -> dict[str, str]:
    """Return the version of Python and of the library behind each module; ``ABSENT`` for what is not there."""
    known = _distributions()
    found = {m: ", ".join(version(d) for d in sorted(set(known.get(m, ())))) or ABSENT for m in modules}
    return {"Python": platform.python_version(), **found}


@cache
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


def environment() -> str:
    """Return a digest of every library that is installed, with its version, and of Python's."""
    return of(platform.python_version(), *sorted(f"{d.name} {d.version}" for d in distributions()))


def of(*words: str) -> str:
    """Return a digest of words."""
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


def read(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file; the half line that a killed run leaves is none."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            rows.append(dict(json.loads(line)))
        except ValueError:
            continue
    return rows


def add(path: Path, row: Mapping[str, Any]) -> None:
    """Add a row to a file, on a line of its own whatever a killed run left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torn = path.is_file() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if torn else "") + json.dumps(row) + "\n")


def stale(row: Mapping[str, Any] | None, rests: Mapping[str, str]) -> str:
    """Return why a row has to be made again; nothing where all that it rests on is as it was."""
    if row is None:
        return "not measured yet"
    before = row.get("rests", {})
    changed = [name for name in {**before, **rests} if before.get(name) != rests.get(name)]
    return f"changed since: {', '.join(changed)}" if changed else ""


def machine() -> str:
    """Return the machine in words."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    model = next((x.partition(":")[2].strip() for x in lines if "model name" in x), platform.processor())
    return f"{os.cpu_count()} cores {model}, Python {platform.python_version()}"
