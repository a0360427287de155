"""Where the training data is kept, how a recipe refers to it, and reading it back, verified."""

import importlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from privgate.documents import LARGE, door, strict_json
from privgate.errors import DigestMismatchError, SubjectError
from privgate.registry import layout
from privgate.registry.client import answering
from privgate.subject.data import TrainingData
from privgate.subject.sources import check_path

Reference = dict[str, Any]


def keep(client: Any, data: TrainingData, *, run_id: str, uri: str | None, tracking_uri: str | None) -> Reference:
    """Store the data, or refer to where it already is, and return the reference.

    Parameters
    ----------
    client : MlflowClient
        See ``connect``.
    data : TrainingData
        Data with a loader is never uploaded: only its digest leaves.
    run_id : str
        The run that gets the artifact.
    uri : str, optional
        Folder that ``TrainingData.save`` wrote, anywhere MLflow can download from; nothing is uploaded then.
    tracking_uri : str, optional
        Where ``uri`` is resolved.
    """
    if data.loader is not None:
        return {"kind": "loader", **json.loads(data.loader), "digest": data.digest}
    with tempfile.TemporaryDirectory() as place:
        if uri is not None:
            folder = _fetch(uri, Path(place), tracking_uri)
            files = layout.all_files(folder)
            stored = _read(folder, files)
            if stored.digest != data.digest:
                raise DigestMismatchError(f"the data at {uri!r} is not the data given; save that again with data.save")
            return {"kind": "uri", "uri": uri, "files": files, "digest": stored.digest}
        folder = Path(place, "data")
        files = data.save(folder)
        # what is stored is what is retrained on: a file format may change a dtype, and the digest must be of the file
        stored = _read(folder, files)
        path = f"{layout.DATA}/{stored.digest.removeprefix('sha256:')[:16]}"
        with answering("storing the training data as a run artifact"):
            client.log_artifacts(run_id, str(folder), path)
    return {"kind": "run", "run_id": run_id, "path": path, "files": files, "digest": stored.digest}


def read(client: Any, reference: Mapping[str, Any], folder: Path, *, tracking_uri: str | None) -> TrainingData:
    """Return the data that a reference names; every file and the whole are verified.

    Raises
    ------
    DigestMismatchError
        A file, or what a loader returned, is not what was recorded.
    SubjectError
        The reference is of an unknown kind, or names a loader that the operator has not allowed.
    """
    kind = reference.get("kind")
    if kind == "loader":
        data = TrainingData.from_loader(_allowed(str(reference["reference"])), **dict(reference.get("options", {})))
    elif kind in {"run", "uri"}:
        recorded = {check_path(str(k)): str(v) for k, v in dict(reference["files"]).items()}
        found = _fetch(_address(client, reference), folder, tracking_uri)
        layout.compare(recorded, layout.all_files(found), "data")
        data = _read(found, recorded)
    else:
        raise SubjectError(f"recipe.json refers to data of unknown kind {kind!r}; this privgate is too old for it")
    if data.digest != reference["digest"]:
        raise DigestMismatchError(
            f"the training data has digest {data.digest[:19]}…, recorded was {str(reference['digest'])[:19]}…; "
            "restore the data or log the model again"
        )
    return data


def _address(client: Any, reference: Mapping[str, Any]) -> str:
    if reference["kind"] == "uri":
        return str(reference["uri"])
    with answering("finding the run that holds the training data"):
        root = client.get_run(str(reference["run_id"])).info.artifact_uri
    return f"{root.rstrip('/')}/{check_path(str(reference['path']))}"


def _fetch(uri: str, folder: Path, tracking_uri: str | None) -> Path:
    import mlflow.artifacts

    folder.mkdir(parents=True, exist_ok=True)
    with answering(f"downloading the training data from {uri}"):
        return Path(
            mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=str(folder), tracking_uri=tracking_uri)
        )


def _read(folder: Path, files: Mapping[str, str]) -> TrainingData:
    """Read data whose index names nothing but verified files."""
    try:
        index = strict_json.read(folder / "data.json", LARGE)
        named = [v for value in index["files"].values() for v in (value if isinstance(value, list) else [value]) if v]
    except (OSError, *door.GARBLED) as exc:
        raise SubjectError(f"data.json of the training data cannot be read: {door.why(exc)}") from exc
    for name in named:
        if name not in files:
            raise SubjectError(f"data.json names {name!r}, which is no recorded file of the training data")
    return TrainingData.load(folder)


def _allowed(reference: str) -> str:
    """Return a loader's reference if the operator allows it: it runs here, with the data's credentials."""
    allowed: Sequence[str] = os.environ.get("PRIVGATE_LOADERS", "").split()
    if reference not in allowed:
        raise SubjectError(
            f"the data comes from the loader {reference!r}, which would run in this process with its credentials; "
            f"allow it by listing it in the environment variable PRIVGATE_LOADERS"
        )
    importlib.invalidate_caches()
    return reference
