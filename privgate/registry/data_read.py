"""Training data that a recipe refers to: fetched from where this gate may read, verified, and read."""

import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from privgate.documents import LARGE, door, strict_json
from privgate.errors import DigestMismatchError, SubjectError
from privgate.registry import addresses, fetching, layout
from privgate.registry.client import answering
from privgate.subject.data import TrainingData
from privgate.subject.sources import check_path

_WEB = ("http:", "https:")


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
    elif kind == "file":
        try:
            data = TrainingData.from_source(_near(reference["source"], folder))
        except (KeyError, TypeError, ValueError) as exc:
            raise SubjectError(f"recipe.json does not say how the file of the data is read: {door.why(exc)}") from exc
    elif kind in {"run", "uri"}:
        recorded = {check_path(str(k)): str(v) for k, v in dict(reference["files"]).items()}
        found = _fetch_allowed(client, reference, recorded, folder, tracking_uri)
        layout.compare(recorded, layout.all_files(found), "data")
        data = read_folder(found, recorded)
    else:
        raise SubjectError(f"recipe.json refers to data of unknown kind {kind!r}; this privgate is too old for it")
    if data.digest != reference["digest"]:
        raise DigestMismatchError(
            f"the training data has digest {data.digest[:19]}…, recorded was {str(reference['digest'])[:19]}…; "
            "restore the data or log the model again"
        )
    return data


def _near(source: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """Return how a file is read, with what may be asked over http(s) fetched before: pandas would follow anything."""
    made = dict(source)
    for part in ("uri", "candidates"):
        uri = made.get(part)
        if uri is None:
            continue
        addresses.refuse_data(str(uri))
        if str(uri).lower().startswith(_WEB):
            folder.mkdir(parents=True, exist_ok=True)
            made[part] = str(fetching.fetch(str(uri), folder / part))
    return made


def _fetch_allowed(
    client: Any, reference: Mapping[str, Any], recorded: Mapping[str, str], folder: Path, tracking_uri: str | None
) -> Path:
    """Fetch recorded files from where this gate may read: the address is the word of the recipe's author."""
    uri = str(reference.get("uri", ""))
    if reference["kind"] == "run" or uri.startswith("runs:"):
        uri = _of_run(client, reference, uri)
        addresses.refuse_files(uri, tracking_uri=tracking_uri or str(client.tracking_uri))
        return fetch(uri, folder, tracking_uri)
    addresses.refuse_data(uri)
    if uri.lower().startswith(_WEB):
        return fetching.fetch_all(uri, recorded, folder)
    return fetch(uri, folder, tracking_uri)


def _of_run(client: Any, reference: Mapping[str, Any], uri: str) -> str:
    """Return where artifacts of a run lie: the run's own address, which somebody chose, too."""
    _, _, named = uri.partition("runs:/")
    run_id, _, path = named.partition("/") if named else (str(reference["run_id"]), "", str(reference["path"]))
    with answering("finding the run that holds the training data"):
        root = client.get_run(run_id).info.artifact_uri
    return f"{root.rstrip('/')}/{check_path(path)}"


def fetch(uri: str, folder: Path, tracking_uri: str | None) -> Path:
    """Return where files lie once they are downloaded."""
    import mlflow.artifacts

    folder.mkdir(parents=True, exist_ok=True)
    with answering(f"downloading the training data from {uri}"):
        return Path(
            mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=str(folder), tracking_uri=tracking_uri)
        )


def read_folder(folder: Path, files: Mapping[str, str]) -> TrainingData:
    """Read data whose index names nothing but verified files."""
    try:
        index = strict_json.read(folder / "data.json", LARGE)
        named = [v for value in index["files"].values() for v in (value if isinstance(value, list) else [value]) if v]
    except (OSError, *door.GARBLED) as exc:
        raise SubjectError(f"data.json of the training data cannot be read: {door.why(exc)}") from exc
    for name in named:
        if name not in files:
            raise SubjectError(f"data.json names {name!r}, which is no recorded file of the training data")
    try:
        return TrainingData.load(folder)
    except (OSError, *door.GARBLED) as exc:
        raise SubjectError(f"the files of the training data cannot be read: {door.why(exc)}") from exc


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
