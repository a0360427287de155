"""Where the training data is kept, and how a recipe refers to it; ``data_read`` reads what it refers to."""

import json
import logging
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privgate import digest
from privgate.errors import DigestMismatchError, SubjectError, UsageError
from privgate.registry import data_read, layout
from privgate.registry.client import answering
from privgate.subject import storing
from privgate.subject.data import TrainingData

Reference = dict[str, Any]

#: ``store=``: upload with the run
ARTIFACTS = "artifacts"
_READABLE = (
    "the training data lie in clear with run %s: whoever may read the artifacts of its experiment can read them; "
    "store='folder or URI that the gate may read' keeps them elsewhere"
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Kept:
    """Training data as they were read back from where they are kept.

    Parameters
    ----------
    data : TrainingData
        What is trained on, here and by whoever checks.
    reference : mapping
        What the recipe records; of files that go with the run, without the run.
    folder : Path or None
        Files to upload with the run.
    """

    data: TrainingData
    reference: Reference
    folder: Path | None = None

    def with_run(self, client: Any, run_id: str) -> Reference:
        """Return the whole reference; upload what goes with the run."""
        if self.folder is None:
            return self.reference
        path = f"{layout.DATA}/{self.data.digest.removeprefix('sha256:')[:16]}"
        with answering("storing the training data as a run artifact"):
            client.log_artifacts(run_id, str(self.folder), path)
            client.set_tag(run_id, "privgate.data", _READABLE % run_id)
        logger.warning(_READABLE, run_id)
        return {"kind": "run", "run_id": run_id, "path": path, **self.reference}


@contextmanager
def kept(data: TrainingData, *, store: str | Path | None, uri: str | None, tracking_uri: str | None) -> Iterator[Kept]:
    """Store the data, or find them where they are, and give what is read back: that is to be trained on.

    Parameters
    ----------
    data : TrainingData
        Data with a source or a loader are never copied anywhere: only a reference and their digest leave.
    store : str or Path, optional
        Folder or URI to write them below; "artifacts" uploads them with the run.
    uri : str, optional
        Folder that ``TrainingData.save`` wrote, anywhere MLflow can download from; nothing is uploaded then.
    tracking_uri : str, optional
        Where ``uri`` is resolved.

    Raises
    ------
    UsageError
        Nobody said where they may be kept.
    DigestMismatchError
        What lies there is not the data given.
    """
    if data.loader is not None:
        yield Kept(data, {"kind": "loader", **json.loads(data.loader), "digest": data.digest})
        return
    if data.source is not None:
        again = TrainingData.from_source(data.source)
        _compare(data, again, f"the file {data.source['uri']!r}", "read it again with TrainingData.from_file")
        yield Kept(again, {"kind": "file", "source": dict(data.source), "digest": again.digest})
        return
    refuse_without_place(data, store, uri)
    with tempfile.TemporaryDirectory() as place:
        if uri is not None:
            folder = data_read.fetch(uri, Path(place), tracking_uri)
            files = layout.all_files(folder)
            stored = data_read.read_folder(folder, files)
            _compare(data, stored, f"the data at {uri!r}", "save that again with data.save")
            yield Kept(stored, {"kind": "uri", "uri": uri, "files": files, "digest": stored.digest})
            return
        folder = Path(place, "data")
        files = data.save(folder)
        # what is stored is what is retrained on: a file format may change a dtype, and the digest must be of the file
        stored = data_read.read_folder(folder, files)
        reference = {"files": files, "digest": stored.digest}
        if str(store) == ARTIFACTS:
            yield Kept(stored, reference, folder)
        else:
            yield Kept(stored, {"kind": "uri", "uri": _deposit(folder, str(store), files), **reference})


def refuse_without_place(data: TrainingData, store: str | Path | None, uri: str | None) -> None:
    """Refuse data in memory of which nobody has said where they may be kept.

    Raises
    ------
    UsageError
        Says what can be given.
    """
    if data.loader is None and data.source is None and store is None and uri is None:
        raise UsageError(
            "nobody said where the training data may be kept: give store='a folder or URI that the gate may read', "
            "store='artifacts' to upload them with the run, in clear for whoever may read its artifacts, or data that "
            "have a source (TrainingData.from_file, from_dataset, from_loader), of which a reference and a digest are "
            "logged"
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


def _compare(given: TrainingData, found: TrainingData, what: str, remedy: str) -> None:
    if found.digest != given.digest:
        why = storing.difference(given.X, found.X)
        raise DigestMismatchError(f"{what} is not the data given{': ' if why else ''}{why}; {remedy}")


def refuse_changes(given: TrainingData, stored: TrainingData) -> None:
    """Refuse data that storing changes, for a model that was trained on them before.

    Raises
    ------
    SubjectError
        Names what changed: a recipe could not reproduce such a model.
    """
    if why := storing.difference(given.X, stored.X):
        raise SubjectError(
            f"the model was trained on data that cannot be stored as they are: {why}; train on what "
            "TrainingData.save and load give back, or let privgate.log_model train"
        )
    if given.order != stored.order:
        raise SubjectError("the model was trained on records in another memory order than can be stored; copy X first")
    if given.digest != stored.digest:
        raise SubjectError("labels, ids, groups or candidates are others when they are read back; pass plain arrays")


def refuse_new_labels(data: TrainingData) -> None:
    """Refuse candidates with labels that nobody in the training data has: no model could give them a probability.

    Raises
    ------
    SubjectError
        There are some.
    """
    if data.candidates is None or data.y.dtype.kind == "f":
        return
    new = ~np.isin(data.candidates[1], data.classes())
    if new.any():
        raise SubjectError(
            f"{int(new.sum())} candidates have a label that no training record has, first candidate "
            f"{int(new.argmax())}; remove them, or train on records of that label too"
        )
