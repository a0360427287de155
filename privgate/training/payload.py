"""What workers need to train: recipe, sources, data and the stored model, laid out in one folder."""

import io
import json
import os
import pickle
import platform
import shutil
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import numpy as np

from privgate import digest
from privgate.errors import UsageError
from privgate.subject import estimators, sources, storing
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject


@dataclass(frozen=True)
class Payload:
    """One subject as workers see it."""

    #: names the content; workers open each payload once
    digest: str
    #: where it lies on this machine
    folder: str
    #: the folder as a zip file, for workers on other machines; an array, which Dask sends without a copy
    packed: Any = None
    #: distributions and versions that the answers are filed under; such workers must have the same
    libraries: Mapping[str, str] = field(default_factory=dict)
    #: host and process that laid it out: the one in which nothing of it may be opened
    owner: tuple[str, int] = field(default_factory=lambda: (platform.node(), os.getpid()))
    #: names the user's code that training runs; empty where it is scikit-learn's and ours alone
    code: str = ""
    #: modules of installed libraries that its training imports
    modules: tuple[str, ...] = ()
    #: columns of every answer: one a label, or the one number of a regressor
    classes: int = 0
    #: whether training may use the network, where it runs in a box
    network: bool = False
    #: names the stored model; empty where there is none
    model: str = ""

    def pack(self) -> Self:
        """Return the payload with its folder's content, to be sent elsewhere."""
        root, blob = Path(self.folder), io.BytesIO()
        with zipfile.ZipFile(blob, "w", strict_timestamps=False) as archive:
            for path in sorted(root.rglob("*")):  # empty folders too: a recipe of a library's class has no sources
                archive.write(path, path.relative_to(root).as_posix())
        return replace(self, packed=np.frombuffer(blob.getbuffer(), np.uint8))

    def unpack(self, folder: Path) -> Self:
        """Return a packed payload, written below ``folder``, where it can be opened."""
        with zipfile.ZipFile(io.BytesIO(self.packed)) as archive:
            archive.extractall(folder)
        return replace(self, folder=str(folder), packed=None)


def write(subject: Subject, folder: Path) -> Payload:
    """Lay out recipe and data of a subject below ``folder``; runs none of the user's code."""
    folder.mkdir(parents=True, exist_ok=True)
    X, y = subject.data.pool()
    domain = None if subject.data.domain is None else subject.data.domain.payload()
    index: dict[str, Any] = {"n": subject.data.n, "y": storing.save(y, folder / "y"), "domain": domain}
    np.save(folder / "classes.npy", subject.classes, allow_pickle=False)
    if isinstance(X, np.ndarray) and X.dtype != object:
        index["X"] = storing.save(X, folder / "X")
    else:
        # frames, sparse matrices and lists reach training code exactly as they are, formats and dtypes included
        index["X"] = "X.pkl"
        with (folder / index["X"]).open("wb") as file:  # as it goes: there is no second copy of it in memory
            pickle.dump(X, file, protocol=5)
    if subject.recipe.recorded is None:
        (folder / "recipe.pkl").write_bytes(pickled(subject.recipe))
    else:
        (folder / "recipe.json").write_text(json.dumps(subject.recipe.payload), encoding="utf-8")
        (folder / "src").mkdir(exist_ok=True)
        sources.write(subject.recipe.snapshot, folder / "src")
    if subject.model is not None:
        (folder / "model.pkl").write_bytes(pickled(_brought(subject.model, folder)))
    (folder / "payload.json").write_text(json.dumps(index), encoding="utf-8")
    named = digest.of_json([subject.training_digest, digest.of_files(folder)])
    code, modules = code_of(subject), _list_modules(subject.recipe)
    return Payload(named, str(folder), code=code, modules=modules, classes=subject.width)


#: what workers fork from may import: it runs nobody's code, and their files change nothing
_FORKED = {"sklearn", "scipy", "numpy", "pandas"}


def _list_modules(recipe: Recipe) -> tuple[str, ...]:
    """Return the modules of common libraries that a recipe names or imports."""
    references = estimators.references([recipe.payload.get("estimator"), *recipe.payload["params"].values()])
    names = {r.partition(":")[0] for r in references} | sources.imported(recipe.snapshot)
    return tuple(sorted(name for name in names if name.partition(".")[0] in _FORKED))


def code_of(subject: Subject) -> str:
    """Return a name of the user's code that training runs; empty where it is scikit-learn's and ours alone."""
    return "" if subject.recipe.library_estimator is not None else subject.recipe.digest


def _brought(model: Any, folder: Path) -> Any:
    """Return a stored model whose files lie below ``folder``, by relative paths: a worker may see nothing else."""
    home, root = getattr(model, "folder", None), getattr(model, "root", None)
    if not (is_dataclass(model) and not isinstance(model, type) and isinstance(home, Path)):
        return model
    moved: dict[str, Path] = {}
    for name, place in (("folder", home), ("root", root)):
        if name == "root" and isinstance(root, Path) and root.is_relative_to(home):
            moved[name] = moved["folder"] / root.relative_to(home)
        elif isinstance(place, Path) and place.is_dir():
            moved[name] = Path(f"stored-{name}")
            shutil.copytree(place, folder / moved[name], symlinks=True)  # a link out of it leads nowhere in a box
    return replace(model, **moved)


def readable(folder: Path) -> None:
    """Let a boxed worker, which is nobody, read a folder; the folder around it stays closed to everybody else."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)


def pickled(thing: Any) -> bytes:
    """Return a pickle that carries the user's own modules by value where a worker could not import them."""
    import cloudpickle

    with sources.pickling_by_value(_list_own(thing)):
        return bytes(cloudpickle.dumps(thing))


def _list_own(thing: Any) -> list[ModuleType]:
    """Return the modules of a recipe's functions that no import in another process would find (tests, notebooks)."""
    parts, named, helpers = [thing], list[str](), set[str]()
    if isinstance(thing, Recipe):  # functions and classes among an estimator's parameters, too
        parts += [thing.training, thing.predict]
        named = estimators.references([thing.payload.get("estimator"), *thing.payload["params"].values()])
        helpers = {p.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for p in thing.snapshot}
    names = helpers | {n for p in parts for n in (getattr(p, "__module__", None), type(p).__module__) if n}
    names |= {reference.partition(":")[0] for reference in named}
    return [sys.modules[n] for n in sorted(names) if n in sys.modules and _is_own(n)]


def _is_own(module: str) -> bool:
    """Whether a loaded module is the user's: neither ours, nor installed, nor Python's."""
    file = getattr(sys.modules[module], "__file__", None)
    if file is None or module == "__main__" or module.partition(".")[0] == "privgate":
        return False
    return not sources.is_library(Path(file))


class Opened:
    """A payload in a worker: loading it runs the user's code."""

    def __init__(self, payload: Payload) -> None:
        if payload.owner == (platform.node(), os.getpid()):
            raise UsageError("the cluster's workers are threads of this process; training runs in processes of its own")
        self.root, self.model_name = Path(payload.folder), payload.model
        self.folder: Any = None
        index = json.loads((self.root / "payload.json").read_text(encoding="utf-8"))
        self.n, self.domain = int(index["n"]), index["domain"]
        self.y = storing.load(self.root / index["y"])
        self.classes = np.load(self.root / "classes.npy", allow_pickle=False)
        X = self.root / index["X"]
        # a plain array over the mapped file: training code sees what it would see at home, and indexing is faster
        self.X = np.asarray(storing.load(X, mmap=True)) if X.suffix == ".npy" else _unpickle(X)
        recorded = self.root / "recipe.json"
        if recorded.is_file():
            self.recipe = Recipe.read(json.loads(recorded.read_text(encoding="utf-8")), self.root / "src")
        else:
            self.recipe = _unpickle(self.root / "recipe.pkl")

    @cached_property
    def stored(self) -> Any:
        """The stored model, not opened yet."""
        model = _unpickle(self.root / "model.pkl")
        places = {name: getattr(model, name, None) for name in ("folder", "root")}
        here = {k: self.root / v for k, v in places.items() if isinstance(v, Path) and not v.is_absolute()}
        return replace(model, **here) if here else model

    @cached_property
    def model(self) -> Any:
        """The stored model's native object; runs stored code."""
        return self.stored.load()


def _unpickle(path: Path) -> Any:
    with path.open("rb") as file:
        return pickle.load(file)  # noqa: S301  written by our own parent
