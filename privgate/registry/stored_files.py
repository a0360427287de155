"""The files of a logged model: where they lie if that is on this machine, else over HTTP, else downloaded by MLflow."""

import hashlib
import tempfile
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.request import url2pathname

from privgate.documents import LARGE, DocumentError, door
from privgate.errors import SubjectError
from privgate.registry import layout
from privgate.registry.client import answering, connect, download
from privgate.registry.object_store import BucketFiles
from privgate.registry.rest import OddNameError, RestClient, artifact_root

#: files read at once: hashing and the network take turns, and small files cost mostly waiting
_AT_ONCE = 8


class StoredFiles(Protocol):
    """Files of a logged model, wherever they lie."""

    def digests(self) -> dict[str, str]:
        """Return ``path -> sha256`` of every file but attached reports."""
        ...

    def below(self, folder: str) -> list[str]:
        """Return the paths of all files below ``folder``, sorted."""
        ...

    def read(self, path: str) -> bytes:
        """Return a file's bytes."""
        ...


@dataclass(frozen=True)
class FolderFiles:
    """Files in a folder of this machine."""

    folder: Path

    def digests(self) -> dict[str, str]:
        """Return ``path -> sha256`` of every file but attached reports."""
        return layout.all_files(self.folder, mapped=_at_once)

    def below(self, folder: str) -> list[str]:
        """Return the paths of all files below ``folder``, sorted."""
        found = (self.folder / folder).rglob("*")
        return sorted(p.relative_to(self.folder).as_posix() for p in found if p.is_file())

    def read(self, path: str) -> bytes:
        """Return a file's bytes."""
        try:
            return door.content(self.folder / path, LARGE)
        except DocumentError as exc:
            raise SubjectError(f"{path}: {exc}; attach the report again") from exc


class ServedFiles:
    """Files that the tracking server serves; they are read as a stream, nothing is written.

    Parameters
    ----------
    client : RestClient
        Of the server.
    location : str
        ``mlflow-artifacts:/…``.

    Raises
    ------
    OddNameError
        A name is not plain; MLflow's client must read these files.
    """

    def __init__(self, client: RestClient, location: str) -> None:
        self.client, self.location = client, location
        self.paths = sorted(client.files(location))
        if len(set(self.paths)) != len(self.paths):
            raise OddNameError("a name that is listed twice")

    def digests(self) -> dict[str, str]:
        """Return ``path -> sha256`` of every file but attached reports."""
        covered = [p for p in self.paths if layout.is_covered(p)]
        with answering(f"reading the files at {self.location}"):
            return dict(zip(covered, _at_once(self._digest, covered), strict=True))

    def below(self, folder: str) -> list[str]:
        """Return the paths of all files below ``folder``, sorted."""
        return [p for p in self.paths if p.startswith(f"{folder}/")]

    def read(self, path: str) -> bytes:
        """Return a file's bytes.

        Raises
        ------
        SubjectError
            The file is longer than any report.
        """
        content = bytearray()
        with answering(f"reading {path} at {self.location}"):
            for chunk in self.client.chunks(self.location, path):
                content += chunk
                if len(content) > LARGE.size:
                    raise SubjectError(f"{path} is longer than any report; attach the report again")
        return bytes(content)

    def _digest(self, path: str) -> str:
        h = hashlib.sha256()
        for chunk in self.client.chunks(self.location, path):
            h.update(chunk)
        return "sha256:" + h.hexdigest()


def _at_once(one: Callable[[Any], str], items: Iterable[Any]) -> list[str]:
    """Map in threads: reading waits, and hashing lets other threads run."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(one, items))


@contextmanager
def stored_files(client: Any, model_id: str) -> Iterator[StoredFiles]:
    """Give the files of a logged model.

    Parameters
    ----------
    client : MlflowClient or RestClient
        Where the model is known.
    model_id : str
        Of the logged model.

    Raises
    ------
    RegistryError
        They cannot be listed or read.
    """
    with answering(f"finding the files of {model_id}"):
        location = str(client.get_logged_model(model_id).artifact_location)
    local = _local(location)
    served = _served(client, location) if local is None else None
    if local is not None:
        yield FolderFiles(local)
    elif served is not None:
        yield served
    elif location.startswith("s3://") and isinstance(client, RestClient):
        yield BucketFiles(location)
    else:
        with tempfile.TemporaryDirectory() as place:
            own = connect(client.tracking_uri) if isinstance(client, RestClient) else client
            yield FolderFiles(download(own, model_id, Path(place), tracking_uri=client.tracking_uri))


def _served(client: Any, location: str) -> ServedFiles | None:
    if not isinstance(client, RestClient):
        return None
    try:
        artifact_root(location)
        with answering(f"listing the files at {location}"):
            return ServedFiles(client, location)
    except OddNameError:
        return None


def _local(location: str) -> Path | None:
    parsed = urllib.parse.urlparse(location)
    path = Path(url2pathname(parsed.path)) if parsed.scheme == "file" else Path(location)
    return path if parsed.scheme in {"", "file"} and not parsed.netloc and path.is_dir() else None
