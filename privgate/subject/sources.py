"""Source snapshots of a recipe: collecting them, and importing them again under a private name.

Collecting never imports anything that is not loaded already: files are found by walking search paths. Importing again
happens in workers only.
"""

import ast
import functools
import hashlib
import importlib
import importlib.util
import itertools
import re
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from types import FunctionType, ModuleType
from typing import Any

from privgate.errors import SubjectError
from privgate.subject import script

_STDLIB = set(sys.stdlib_module_names)

#: under which a notebook's own functions are recorded
_CELLS = "notebook_cells"


def main_module() -> str:
    """Return the name under which functions of a script or notebook are recorded: dotted name, or the file's stem."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    if (path := getattr(main, "__file__", None)) is None:
        return _CELLS
    stem = re.sub(r"\W", "_", Path(path).stem)
    # a command (bin/privgate) is called like the library that it starts, which its name here must not hide
    found = _locate(stem)
    return stem if found is None or Path(found).resolve() == Path(path).resolve() else f"{stem}_script"


@functools.cache
def _library_roots() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    roots = [paths[k] for k in ("stdlib", "platstdlib", "purelib", "platlib")]
    roots += [*site.getsitepackages(), site.getusersitepackages()]
    return tuple(Path(r).resolve() for r in roots)


def is_library(path: Path) -> bool:
    """Whether a file belongs to an installed distribution or to Python itself."""
    found = path.resolve()
    return {"site-packages", "dist-packages"} & set(found.parts) != set() or any(
        found.is_relative_to(r) for r in _library_roots()
    )


def _locate(module: str) -> str | None:
    """Return the file of a module that is not loaded, without importing its parents."""
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None or not rest:
        return None if spec is None else spec.origin
    for place in spec.submodule_search_locations or ():
        stem = Path(place, *rest)
        for candidate in (stem / "__init__.py", stem.with_name(stem.name + ".py")):
            if candidate.is_file():
                return str(candidate)
    return None


def _own_file(module: str) -> Path | None:
    """Return the source file of a module of the user's, or None for libraries, built-ins and packages without code."""
    if module.partition(".")[0] == "privgate":
        return None
    loaded = sys.modules.get("__main__" if module == main_module() else module)
    origin = getattr(loaded, "__file__", None)
    if origin is None and module.partition(".")[0] not in _STDLIB:
        origin = _locate(module)
    if origin is None or not origin.endswith(".py") or is_library(Path(origin)):
        return None
    return Path(origin)


def _imports(module: str, tree: ast.AST, *, is_package: bool) -> set[str]:
    """Return the absolute names of modules that a source file imports anywhere."""
    package = module if is_package else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parts, base] if base else parts)
            found.add(base)
            found.update(f"{base}.{a.name}" for a in node.names)
    return found - {""}


def collect(references: Iterable[str], *, extra: Iterable[str | Path] = ()) -> dict[str, bytes]:
    """Return the user's source files that the references need: their modules, and what these import, transitively.

    Of a script or notebook only what the references (``module:qualname``) reach, see ``script``. ``extra`` are files to
    add as they are, for what a function imports or reads by computed names. Keys are paths in the layout of imports.
    Installed libraries are not copied; their versions are recorded with the environment instead.

    ``SubjectError``: a script's function needs what would be trained, read or logged again where it is imported.
    """
    main, references = main_module(), list(references)
    todo = [r.partition(":")[0] for r in references]
    asked = {r.partition(":")[2].partition(".")[0] for r in references if r.partition(":")[0] == main}
    found: dict[str, bytes] = {}
    seen = {"__main__", main}
    cut: set[str] = set()
    while todo or asked - cut:
        if asked - cut:
            cut = set(asked)
            file = getattr(sys.modules["__main__"], "__file__", None)
            content = script.needed(sorted(cut), file=None if file is None else Path(file)).encode()
            found[f"{main.replace('.', '/')}.py"] = content
            todo += [*_parents(main), *sorted(_imports(main, ast.parse(content), is_package=False))]
        module = todo.pop() if todo else main
        if module in seen:
            continue
        seen.add(module)
        path = _own_file(module)
        if path is None:
            continue
        content = path.read_bytes()
        stem = module.replace(".", "/")
        found[f"{stem}/__init__.py" if path.name == "__init__.py" else f"{stem}.py"] = content
        imported = _imports(module, ast.parse(content, filename=str(path)), is_package=path.name == "__init__.py")
        todo += [*_parents(module), *sorted(imported)]
        asked |= {i.removeprefix(f"{main}.").partition(".")[0] for i in imported if i.startswith(f"{main}.")}
    for file in extra:
        found[Path(file).name] = Path(file).read_bytes()
    return found


def _parents(module: str) -> list[str]:
    return list(itertools.accumulate(module.split(".")[:-1], "{}.{}".format))


def imported_names(snapshot: Mapping[str, bytes]) -> set[str]:
    """Return the top-level names of everything a snapshot imports that is neither its own nor Python's."""
    own = {PurePosixPath(name).parts[0].removesuffix(".py") for name in snapshot}
    return {m.partition(".")[0] for m in imported(snapshot)} - own - _STDLIB - {""}


def imported(snapshot: Mapping[str, bytes]) -> set[str]:
    """Return the dotted names of everything that a snapshot imports, with what it may take of modules of privgate."""
    found: set[str] = set()
    for name, content in snapshot.items():
        if name.endswith(".py"):
            package = name.endswith("/__init__.py")
            module = name.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
            with suppress(SyntaxError, ValueError, RecursionError):  # a worker says so, which imports it
                tree = ast.parse(content)
                names = _imports(module, tree, is_package=package)
                taken = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
                found |= names | {f"{m}.{a}" for m in names if m.startswith("privgate.") for a in taken}
    return found


def resolve(reference: str, root: Path | None) -> Any:
    """Return the object behind ``module:qualname``, from the snapshot below ``root`` if it holds the module.

    Snapshot modules never shadow what the process has loaded: they are in ``sys.modules`` under their own names only
    while they are executed (and while a function from here runs), afterwards under ``_privgate_<digest>.…``.
    """
    module, _, qualname = reference.partition(":")
    with importing_from(root):
        try:
            thing: Any = importlib.import_module(module)
        except ImportError as exc:
            raise SubjectError(f"module {module!r} of the recipe cannot be imported: {exc}") from exc
    stem = (root or Path()) / module.replace(".", "/")
    held = root is not None and (stem.with_name(stem.name + ".py").is_file() or stem.is_dir())
    for part in qualname.split("."):
        try:
            thing = getattr(thing, part)
        except AttributeError as exc:
            raise SubjectError(
                f"{module} has no {qualname!r}; the recipe names something that its sources lack"
            ) from exc
    if not (held and isinstance(thing, FunctionType)):
        return thing

    @functools.wraps(thing)
    def call(*args: Any, **kwargs: Any) -> Any:
        with importing_from(root):  # imports inside its body find the snapshot, too
            return thing(*args, **kwargs)

    return call


@functools.cache
def _private(root: Path) -> tuple[str, frozenset[str]]:
    """Return the private prefix of a snapshot and the top-level names it defines."""
    importlib.invalidate_caches()
    prefix = f"_privgate_{hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:12]}."
    return prefix, frozenset(
        p.stem if p.is_file() else p.name for p in root.iterdir() if p.is_dir() or p.suffix == ".py"
    )


_active: list[Path] = []


@contextmanager
def importing_from(root: Path | None) -> Iterator[None]:
    """While this lasts, the snapshot's module names mean the snapshot; afterwards ``sys.modules`` is as it was."""
    if root is None or root in _active:
        yield
        return
    prefix, tops = _private(root)
    before = _take_out(tops)
    for name in [m for m in sys.modules if m.startswith(prefix)] if tops else []:
        sys.modules[name.removeprefix(prefix)] = sys.modules[name]
    sys.path.insert(0, str(root))
    writes_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # the snapshot stays as it was verified
    _active.append(root)
    try:
        yield
    finally:
        _active.remove(root)
        sys.dont_write_bytecode = writes_bytecode
        if str(root) in sys.path:
            sys.path.remove(str(root))
        sys.modules.update({prefix + name: module for name, module in _take_out(tops).items()})
        sys.modules.update(before)


def _take_out(tops: frozenset[str]) -> dict[str, ModuleType]:
    """Remove and return every loaded module whose top-level name is one of ``tops``."""
    below = tuple(f"{top}." for top in tops)  # thousands are loaded, and each training asks
    return {m: sys.modules.pop(m) for m in list(sys.modules) if m.startswith(below) or m in tops} if tops else {}


def write(snapshot: Mapping[str, bytes], folder: Path) -> None:
    """Write a snapshot below ``folder``; paths that leave it are refused before anything is written."""
    for name in snapshot:
        check_path(name)
    for name, content in snapshot.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def check_path(name: str) -> str:
    """Return a plain relative POSIX path; refuse one that climbs or holds a drive, control characters, backslashes."""
    parts = name.split("/")
    if not name or name.startswith("/") or {"", ".", ".."} & set(parts) or re.search(r"[\\:\x00-\x1f]", name):
        raise SubjectError(f"path {name!r} is not a plain relative path; files of a recipe stay in its folder")
    return name
