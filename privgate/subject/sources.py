"""A recipe's own code: collecting its source files, importing them again under a private name, and calling it.

Collecting never imports anything that is not loaded already: files are located by walking search paths. Importing again
happens in workers only.
"""

import ast
import functools
import hashlib
import importlib
import importlib.util
import inspect
import itertools
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from importlib import metadata
from pathlib import Path
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
    hidden = _locate(stem)
    return stem if hidden is None or Path(hidden).resolve() == Path(path).resolve() else f"{stem}_script"


def is_library(path: Path) -> bool:
    """Whether a file belongs to an installed distribution or to Python itself."""
    file, homes = path.resolve(), {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    installed = {"site-packages", "dist-packages"} & set(file.parts)
    return bool(installed) or any(file.is_relative_to(Path(home).resolve()) for home in homes)


def _locate(module: str) -> str | None:
    """Return the file of a module that is not loaded, without importing its parents."""
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None or not rest:
        return None if spec is None else spec.origin
    stems = [Path(place, *rest) for place in spec.submodule_search_locations or ()]
    files = (file for stem in stems for file in (stem / "__init__.py", stem.with_name(f"{stem.name}.py")))
    return next((str(file) for file in files if file.is_file()), None)


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
    package = module.split(".") if is_package else module.split(".")[:-1]
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            around = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*around, *([node.module] if node.module else [])])
            names |= {base, *(f"{base}.{a.name}" for a in node.names)}
    return names - {""}


def collect(references: Iterable[str]) -> dict[str, bytes]:
    """Return the user's source files that the references need: their modules, and what these import, transitively."""
    main, pairs = main_module(), [r.partition(":") for r in references]
    todo, seen, files = [module for module, _, _ in pairs], {"__main__", main}, dict[str, bytes]()
    if names := {name.partition(".")[0] for module, _, name in pairs if module == main}:
        file = getattr(sys.modules["__main__"], "__file__", None)
        content = script.needed(sorted(names), file=None if file is None else Path(file)).encode()
        files[f"{main.replace('.', '/')}.py"] = content
        todo += [*_parents(main), *sorted(_imports(main, ast.parse(content), is_package=False))]
    while todo:
        module = todo.pop()
        path = None if module in seen else _own_file(module)
        seen.add(module)
        if path is not None:
            content, is_package = path.read_bytes(), path.name == "__init__.py"
            files[f"{module.replace('.', '/')}{'/__init__' if is_package else ''}.py"] = content
            imports = _imports(module, ast.parse(content, filename=str(path)), is_package=is_package)
            todo += [*_parents(module), *sorted(imports)]
    return files


def _parents(module: str) -> list[str]:
    return list(itertools.accumulate(module.split(".")[:-1], "{}.{}".format))


def imported_names(snapshot: Mapping[str, bytes]) -> set[str]:
    """Return the top-level names of everything a snapshot imports that is neither its own nor Python's."""
    own = {name.partition("/")[0].removesuffix(".py") for name in snapshot}
    return {m.partition(".")[0] for m in imported(snapshot)} - own - _STDLIB


def imported(snapshot: Mapping[str, bytes]) -> set[str]:
    """Return the dotted names of everything that a snapshot imports."""
    names: set[str] = set()
    for name, content in snapshot.items():
        if name.endswith(".py"):
            package = name.endswith("/__init__.py")
            module = name.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
            with suppress(SyntaxError, ValueError, RecursionError, MemoryError):  # a worker says so, which imports it
                names |= _imports(module, ast.parse(content), is_package=package)
    return names


def resolve(reference: str, root: Path | None) -> Any:
    """Return the object behind ``module:qualname``, from the snapshot below ``root`` if it holds the module."""
    module, _, qualname = reference.partition(":")
    with importing_from(root):
        try:
            thing: Any = importlib.import_module(module)
        except ImportError as exc:
            raise SubjectError(f"module {module!r} of the recipe cannot be imported: {exc}") from exc
    try:
        thing = functools.reduce(getattr, qualname.split("."), thing)
    except AttributeError as exc:
        raise SubjectError(f"{module} has no {qualname!r}; the recipe names something that its sources lack") from exc
    stem = (root or Path()) / module.replace(".", "/")
    held = root is not None and (stem.with_name(stem.name + ".py").is_file() or stem.is_dir())
    if not (held and isinstance(thing, FunctionType)):
        return thing

    @functools.wraps(thing)
    def call(*args: Any, **kwargs: Any) -> Any:
        with importing_from(root):  # imports inside its body find the snapshot, too
            return thing(*args, **kwargs)

    return call


@functools.cache
def _private(root: Path) -> tuple[str, frozenset[str]]:
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


# Training as a function, called as it will be.

FORM = "a recipe needs a function fit(X, y, *, seed, **params) at the top level of a module, or an estimator"


def check_training(training: Any, params: Mapping[str, Any]) -> None:
    """Refuse what cannot be called with records, labels, a seed and these parameters; say which argument is wrong."""
    name = getattr(training, "__qualname__", type(training).__name__)
    if isinstance(training, type) or inspect.ismethod(training) or not hasattr(training, "__qualname__"):
        raise SubjectError(f"{name} is a class, a method or an object; {FORM}")
    try:
        signature = inspect.signature(training)
    except (TypeError, ValueError):  # written in C
        return
    kinds = {p.kind for p in signature.parameters.values()}
    if "seed" not in signature.parameters and inspect.Parameter.VAR_KEYWORD not in kinds:
        raise SubjectError(f"{name} takes no argument 'seed', by which it is trained again; {FORM}")
    try:
        signature.bind(None, None, **{"seed": 0, **params})
    except TypeError as exc:
        raise SubjectError(f"{name} cannot be called with these parameters: {exc}; {FORM}") from exc


# What is known of installed libraries before they are imported, and how skops is imported.

#: what imports a whole library each and holds no estimator: packages of scikit-learn's own, and what its tests are of
_ADAPTERS = (*(f"sklearn.externals.array_api_compat.{name}" for name in ("torch", "dask", "cupy")), "pytest")


def providing(modules: Iterable[str]) -> list[str]:
    """Return the names of the distributions that install these top-level modules."""
    wanted = {module for module in modules if module != "__pycache__"}
    pattern = re.compile(rf'^"?(?:{"|".join(map(re.escape, wanted))})(?:/.*)?\.py"?,', re.MULTILINE)
    names = set[str]()
    for installed in metadata.distributions() if wanted else ():
        # their lists of files are long, and parsing all of them takes longer than most imports
        declared = (installed.read_text("top_level.txt") or "").split()
        if wanted & set(declared) or (not declared and pattern.search(installed.read_text("RECORD") or "")):
            names.add(installed.metadata["Name"])
    return sorted(names)


@contextmanager
def pickling_by_value(modules: Iterable[Any]) -> Iterator[None]:
    """Let cloudpickle store what these modules define, for processes in which no import finds them."""
    import cloudpickle

    with ExitStack() as after:
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
            after.callback(cloudpickle.unregister_pickle_by_value, module)
        yield


def find_version(distribution: str) -> str:
    """Return the version of a distribution; empty where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def skops_io() -> Any:
    """Return ``skops.io``, which imports torch and dask on the way; ``ImportError``: it is not installed."""
    absent = [name for name in _ADAPTERS if name not in sys.modules and "skops.io" not in sys.modules]
    loaded: dict[str, Any] = sys.modules
    loaded |= dict.fromkeys(absent)  # None: what the list then passes over
    try:
        import skops.io
    finally:
        for name in absent:
            sys.modules.pop(name, None)
    return skops.io
