"""Where the training data is kept, how a recipe refers to it, and how it is fetched and verified."""

import importlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privgate import digest
from privgate.documents import LARGE, strict_json
from privgate.errors import DigestMismatchError, PrivgateError, SubjectError, UsageError
from privgate.evidence import Count
from privgate.registry.client import answering, download
from privgate.registry.files import DATA, all_files, compare, refuse_data, refuse_files
from privgate.subject import storing
from privgate.subject.data import TrainingData
from privgate.subject.sources import check_path

_WEB = ("http:", "https:")


def read(client: Any, reference: Mapping[str, Any], folder: Path) -> TrainingData:
    """Return the data that a reference names; every file and the whole are verified."""
    kind = reference.get("kind")
    if kind == "loader":
        if (loader := str(reference["reference"])) not in os.environ.get("PRIVGATE_LOADERS", "").split():
            raise SubjectError(f"the loader of the data {loader!r} would run here; list it in PRIVGATE_LOADERS")
        importlib.invalidate_caches()
        data = TrainingData.from_loader(loader, **dict(reference.get("options", {})))
    elif kind == "file":
        with _reading("the file of the training data"):
            for uri in (reference["source"][part] for part in ("uri", "candidates") if reference["source"].get(part)):
                refuse_data(str(uri))
            data = TrainingData.from_source(reference["source"])
    elif kind in {"run", "uri"}:
        recorded = {check_path(str(k)): str(v) for k, v in reference["files"].items()}
        fetched = _fetch_allowed(client, reference, folder)
        compare(recorded, all_files(fetched), "data")
        data = _read_folder(fetched, recorded)
    else:
        raise SubjectError(f"recipe.json refers to data of unknown kind {kind!r}; this privgate is too old for it")
    if data.digest != reference["digest"]:
        why = "the training data are not the recorded ones (another digest)"
        raise DigestMismatchError(f"{why}; restore the data or log the model again")
    return data


def declare_people(data: TrainingData, stated: Any) -> TrainingData:
    """Return the data with whose their records are; ``SubjectError``: that cannot be read, or names no column."""
    if stated is None:
        return data
    if not isinstance(stated, Mapping) or not all(isinstance(stated.get(k), str) for k in ("declared", "by")):
        raise SubjectError("recipe.json does not say who declared whose the records are; declare it again")
    column = str(stated["declared"]).removeprefix("groups ")
    groups = data.read_column(column) if column != stated["declared"] else None
    return data.declare_people(str(stated["declared"]), str(stated["by"]), groups)


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Say in one sentence what reading a file of others raises."""
    try:
        yield
    except PrivgateError:
        raise
    except Exception as exc:  # a reader of others may raise anything
        raise SubjectError(f"{what} cannot be read: {' '.join(str(exc).split())[:200] or type(exc).__name__}") from exc


def _fetch_allowed(client: Any, reference: Mapping[str, Any], folder: Path) -> Path:
    """Fetch recorded files from where this gate may read: the address is the word of the recipe's author."""
    uri = str(reference.get("uri", ""))
    if reference["kind"] == "run":
        with answering("finding the run that holds the training data"):
            root = client.get_run(str(reference["run_id"])).info.artifact_uri
        uri = f"{root.rstrip('/')}/{check_path(str(reference['path']))}"
        refuse_files(uri, tracking_uri=client.tracking_uri)
    else:
        refuse_data(uri)
    return download(uri, folder, tracking_uri=client.tracking_uri)


def _read_folder(folder: Path, files: Mapping[str, str]) -> TrainingData:
    """Read data whose index names nothing but verified files."""
    with _reading("data.json of the training data"):
        index = strict_json.read(folder / "data.json", LARGE)
        named = [v for value in index["files"].values() for v in (value if isinstance(value, list) else [value]) if v]
    if unrecorded := [name for name in named if name not in files]:
        raise SubjectError(f"data.json names {unrecorded[0]!r}, which is no recorded file of the training data")
    with _reading("the training data"):
        return TrainingData.load(folder)


_READABLE = (
    "the training data lie in clear with run %s: whoever may read the artifacts of its experiment can read them; "
    "store='folder or URI that the gate may read' keeps them elsewhere"
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Kept:
    """Training data as they were read back: what is trained on, what a recipe records, files to upload with the run."""

    data: TrainingData
    reference: dict[str, Any]
    folder: Path | None = None

    def with_run(self, client: Any, run_id: str) -> dict[str, Any]:
        """Return the whole reference; upload what goes with the run."""
        if self.folder is None:
            return self.reference
        path = f"{DATA}/{self.data.digest.removeprefix('sha256:')[:16]}"
        with answering("storing the training data as a run artifact"):
            client.log_artifacts(run_id, str(self.folder), path)
            client.set_tag(run_id, "privgate.data", _READABLE % run_id)
        logger.warning(_READABLE, run_id)
        return {"kind": "run", "run_id": run_id, "path": path, **self.reference}


@contextmanager
def kept(data: TrainingData, *, store: str | Path | None) -> Iterator[Kept]:
    """Yield the data as read back from their store, file or loader: training uses these, not the argument."""
    if data.loader is not None:
        yield Kept(data, {"kind": "loader", **json.loads(data.loader), "digest": data.digest})
        return
    if data.source is not None:
        if str(data.source["uri"]).lower().startswith(_WEB):
            raise UsageError("no check reads data from the web; download the file, or keep it in an object store")
        again = TrainingData.from_source(data.source)
        if again.digest != data.digest:
            why = storing.difference(data.X, again.X)
            raise DigestMismatchError(
                f"the file {data.source['uri']!r} is not the data given{': ' if why else ''}{why}; read it again with "
                "TrainingData.from_file"
            )
        yield Kept(again, {"kind": "file", "source": dict(data.source), "digest": again.digest})
        return
    refuse_without_place(data, store)
    with tempfile.TemporaryDirectory() as place:
        files = data.save(folder := Path(place, "data"))
        # what is stored is what is retrained on: a file format may change a dtype, and the digest must be of the file
        stored = _read_folder(folder, files)
        reference = {"files": files, "digest": stored.digest}
        if str(store) == "artifacts":
            yield Kept(stored, reference, folder)
        else:
            yield Kept(stored, {"kind": "uri", "uri": _deposit(folder, str(store), files), **reference})


def refuse_without_place(data: TrainingData, store: str | Path | None) -> None:
    """Raise ``UsageError`` for data in memory without ``store``; the message lists the choices."""
    if data.loader is None and data.source is None and (store is None or str(store).lower().startswith(_WEB)):
        raise UsageError(
            "give store='a folder or URI that the gate may read' for the training data; or store='artifacts', in clear "
            "for readers of the run; or data of TrainingData.from_file or from_loader, whose digest is logged"
        )


def _deposit(folder: Path, store: str, files: Mapping[str, str]) -> str:
    """Copy files below a store, by digest, and return where they lie."""
    name = digest.of_manifest(files).removeprefix("sha256:")[:16]
    if "://" in store and not store.startswith("file://"):
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        with answering(f"storing the training data at {store}"):
            get_artifact_repository(f"{store.rstrip('/')}/{name}").log_artifacts(str(folder))
        return f"{store.rstrip('/')}/{name}"
    target = Path(store.removeprefix("file://")).expanduser().resolve() / name
    try:
        shutil.copytree(folder, target, dirs_exist_ok=True)
    except OSError as exc:
        raise SubjectError(f"the training data cannot be stored below {store!r}: {exc.strerror or exc}") from exc
    return target.as_uri()


def refuse_changes(given: TrainingData, stored: TrainingData) -> None:
    """Raise ``SubjectError`` for data that storing changes, if a model was trained on them before."""
    if why := storing.difference(given.X, stored.X):
        raise SubjectError(f"the data cannot be stored as they are: {why}; train on what save and load give back")
    if (given.order, given.digest) != (stored.order, stored.digest):
        raise SubjectError("memory order, labels, ids, groups or candidates change when read back; pass plain arrays")


def refuse_new_labels(data: TrainingData) -> None:
    """Refuse candidates with labels that no training record has: no model could give them a probability."""
    if data.candidates is None or data.y.dtype.kind == "f":
        return
    if (new := ~np.isin(data.candidates[1], data.classes)).any():
        those = f"{Count(int(new.sum()))} candidates (first {int(new.argmax())})"
        raise SubjectError(f"{those} have a label that no training record has; remove them, or train on such records")
