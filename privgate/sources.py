"""Source snapshots of a recipe: collecting them, and importing them again under a private name."""

import ast
import hashlib
import importlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from privgate.errors import SubjectError

_STDLIB = set(sys.stdlib_module_names)


def _is_library(path: Path) -> bool:
    """Whether a file belongs to an installed distribution or to Python itself."""
    roots = [Path(sysconfig.get_paths()[k]).resolve() for k in ("stdlib", "purelib", "platlib")]
    return any(path.resolve().is_relative_to(r) for r in roots)


def _own_file(module: str) -> Path | None:
    """Return the source file of a module of the user's, or None for libraries, built-ins and packages without code."""
    top = module.partition(".")[0]
    if top in _STDLIB or top == "privgate":
        return None
    loaded = sys.modules.get(module)
    origin = getattr(loaded, "__file__", None)
    if origin is None:
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError, AttributeError):
            return None
        origin = None if spec is None else spec.origin
    if origin is None or not origin.endswith(".py") or _is_library(Path(origin)):
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
    return found


def _snapshot_name(module: str, path: Path) -> str:
    stem = module.replace(".", "/")
    return f"{stem}/__init__.py" if path.name == "__init__.py" else f"{stem}.py"


def _main_name() -> str:
    """Return the name under which a script's own functions are recorded."""
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is None:
        raise SubjectError("the training function is defined interactively; move it to a module to register it")
    return Path(path).stem


def _check_script(tree: ast.Module, path: Path) -> None:
    """Refuse a script whose import would run the whole training again."""
    harmless = (
        ast.Import,
        ast.ImportFrom,
        ast.FunctionDef,
        ast.AsyncFunctionDef,
        ast.ClassDef,
        ast.Assign,
        ast.AnnAssign,
    )
    for node in tree.body:
        guard = isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not (isinstance(node, harmless) or guard or text):
            raise SubjectError(
                f"{path.name}:{node.lineno} runs when the file is imported; put the script's work under "
                "if __name__ == '__main__', or move the training function to a module of its own"
            )


def collect(
    references: Iterable[str], *, extra: Iterable[str | Path] = (), objects: Iterable[Any] = ()
) -> dict[str, bytes]:
    """Return the user's source files that the references need: their modules, and what these import, transitively.

    Parameters
    ----------
    references : iterable of str
        ``module:qualname``.
    extra : iterable of path
        Files to add as they are, by file name.
    objects : iterable
        The objects behind the references; unused for finding files, kept so that callers say what they mean.

    Returns
    -------
    dict
        Relative path (import layout) -> content. Installed libraries are not copied; their versions are recorded
        with the environment instead.
    """
    del objects
    todo = [r.partition(":")[0] for r in references]
    found: dict[str, bytes] = {}
    seen: set[str] = set()
    while todo:
        module = todo.pop()
        if module in seen:
            continue
        seen.add(module)
        path = _own_file(module)
        if path is None:
            continue
        content = path.read_bytes()
        tree = ast.parse(content, filename=str(path))
        name = module
        if module == "__main__":
            _check_script(tree, path)
            name = _main_name()
        found[_snapshot_name(name, path)] = content
        parents = name.split(".")[:-1]
        todo += [".".join(parents[: i + 1]) for i in range(len(parents))]
        todo += sorted(_imports(name, tree, is_package=path.name == "__init__.py"))
    for file in extra:
        found[Path(file).name] = Path(file).read_bytes()
    return found


def resolve(reference: str, root: Path | None) -> Any:
    """Return the object behind ``module:qualname``, from the snapshot below ``root`` if it holds the module.

    Snapshot modules are imported under a private name (``_privgate_<digest>.…``) and never shadow what the process has
    loaded: while they are executed their own names resolve to the snapshot, afterwards ``sys.modules`` is as it was.
    """
    module, _, qualname = reference.partition(":")
    loaded = _import(module, root)
    thing: Any = loaded
    for part in qualname.split("."):
        try:
            thing = getattr(thing, part)
        except AttributeError as exc:
            raise SubjectError(
                f"{module} has no {qualname!r}; the recipe names something that its sources lack"
            ) from exc
    return thing


def _import(module: str, root: Path | None) -> ModuleType:
    name = module
    if root is not None and module == "__main__":
        scripts = sorted(p.stem for p in root.glob("*.py"))
        name = scripts[0] if len(scripts) == 1 else module
    held = root is not None and (
        (root / (name.replace(".", "/") + ".py")).is_file() or (root / name.replace(".", "/")).is_dir()
    )
    try:
        return _import_private(name, root) if held and root is not None else importlib.import_module(module)
    except ImportError as exc:
        raise SubjectError(f"module {module!r} of the recipe cannot be imported: {exc}") from exc


def _import_private(name: str, root: Path) -> ModuleType:
    key = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:12]
    private = f"_privgate_{key}.{name}"
    if private in sys.modules:
        return sys.modules[private]
    tops = {p.stem if p.is_file() else p.name for p in root.iterdir()}
    before = {m: sys.modules.pop(m) for m in list(sys.modules) if m.partition(".")[0] in tops}
    sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    try:
        found = importlib.import_module(name)
        for m in [m for m in sys.modules if m.partition(".")[0] in tops]:
            sys.modules[f"_privgate_{key}.{m}"] = sys.modules[m]
    finally:
        sys.path.remove(str(root))
        for m in [m for m in sys.modules if m.partition(".")[0] in tops]:
            del sys.modules[m]
        sys.modules.update(before)
    return found


def write(snapshot: Mapping[str, bytes], folder: Path) -> None:
    """Write a snapshot below ``folder``; paths that leave it are refused."""
    for name, content in snapshot.items():
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise SubjectError(f"source path {name!r} leaves the recipe's folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
