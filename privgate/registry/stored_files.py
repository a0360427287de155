"""Files at a location: where they lie if that is on this machine, else over HTTP, else downloaded by MLflow."""

import hashlib
import os
import shutil
import tempfile
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import url2pathname

from privgate import digest
from privgate.documents import LARGE, DocumentError, strict_json
from privgate.errors import RegistryError, SubjectError
from privgate.registry import layout
from privgate.registry.addresses import refuse_files
from privgate.registry.client import answering, download
from privgate.registry.rest import OddNameError, RestClient

_AT_ONCE = 8  # downloads
_CHUNK = 1 << 20  # bytes
_MOST_FILES = 100_000  # of a model


@dataclass(frozen=True)
class FolderFiles:
    """Files in a folder of this machine."""

    folder: Path

    def digests(self, rows: layout.Rows = ()) -> dict[str, str]:
        """Return ``path -> sha256`` of every file."""
        return layout.all_files(self.folder, mapped=_at_once, rows=rows)

    def names(self) -> list[str]:
        """Return the paths of all files, sorted."""
        try:
            return sorted(p.relative_to(self.folder).as_posix() for p in digest.below(self.folder) if p.is_file())
        except (DocumentError, OSError) as exc:
            raise SubjectError(f"the model's files cannot be listed: {strict_json.why(exc)}") from exc

    def read(self, path: str) -> bytes:
        """Return a file's bytes."""
        try:
            return strict_json.content(self.folder / path, LARGE)
        except DocumentError as exc:
            raise SubjectError(f"{path}: {exc}; attach the report again") from exc

    def copy_to(self, folder: Path) -> None:
        """Write every file below ``folder``, which is empty; links stay links, which no digest accepts."""
        shutil.copytree(self.folder, folder, symlinks=True, dirs_exist_ok=True)


class RemoteFiles:
    """Files that are read as a stream; ``paths`` was listed, and ``chunks`` gives a file's bytes."""

    location: str
    paths: list[str]

    def chunks(self, path: str) -> Iterator[bytes]:
        """Give a file's bytes."""
        raise NotImplementedError

    def digests(self, rows: layout.Rows = ()) -> dict[str, str]:
        """Return ``path -> sha256`` of every file."""
        covered = layout.covered(self.paths, self.read, rows)
        with answering(f"reading the files at {self.location}"):
            return dict(zip(covered, _at_once(self._digest, covered), strict=True))

    def names(self) -> list[str]:
        """Return the paths of all files, sorted."""
        return self.paths

    def copy_to(self, folder: Path) -> None:
        """Write every file below ``folder``, which is empty."""
        for path in self.paths:  # no name climbs: others were refused when they were listed
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            with answering(f"reading {path} at {self.location}"), place.open("wb") as written:
                for chunk in self.chunks(path):
                    written.write(chunk)

    def read(self, path: str) -> bytes:
        """Return a file's bytes. ``SubjectError``: the file is longer than any report."""
        content = bytearray()
        with answering(f"reading {path} at {self.location}"):
            for chunk in self.chunks(path):
                content += chunk
                if len(content) > LARGE.size:
                    raise SubjectError(f"{path} is longer than any report; attach the report again")
        return bytes(content)

    def _digest(self, path: str) -> str:
        h = hashlib.sha256()
        for chunk in self.chunks(path):
            h.update(chunk)
        return "sha256:" + h.hexdigest()


class ServedFiles(RemoteFiles):
    """Files that the tracking server serves; ``OddNameError``: MLflow's client must read them, a name is not plain."""

    def __init__(self, client: RestClient, location: str) -> None:
        self.client, self.location = client, location
        self.paths = sorted(client.files(location))
        if len(set(self.paths)) != len(self.paths):
            raise OddNameError("a name that is listed twice")

    def chunks(self, path: str) -> Iterator[bytes]:
        """Give a file's bytes."""
        return self.client.chunks(self.location, path)


class BucketFiles(RemoteFiles):
    """Files below ``s3://bucket/prefix``, listed and streamed by boto3; the endpoint and TLS settings are MLflow's.

    ``RegistryError``: they cannot be listed, or the extra ``s3`` is not installed. ``SubjectError``: a name is none
    that a file of a model has.
    """

    def __init__(self, location: str) -> None:
        parsed = urllib.parse.urlsplit(location, allow_fragments=False)
        self.location, self.bucket = location, parsed.netloc
        self.prefix = parsed.path.strip("/") + "/"
        try:
            import boto3
            from botocore.config import Config
        except ImportError as exc:
            raise RegistryError("files in S3 need boto3; install the extra: pip install 'privgate-verify[s3]'") from exc
        with answering("connecting to S3"):
            self._s3 = boto3.client(
                "s3",
                endpoint_url=os.environ.get("MLFLOW_S3_ENDPOINT_URL") or None,
                verify=False if os.environ.get("MLFLOW_S3_IGNORE_TLS", "").lower() in {"true", "1"} else None,
                config=Config(
                    connect_timeout=10, read_timeout=60, retries={"max_attempts": 3}, max_pool_connections=32
                ),
            )
        self.paths = sorted(self._listed())

    def _listed(self) -> Iterator[str]:
        with answering(f"listing {self.location}"):
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix)
            seen = 0
            for page in pages:
                seen += 1 + len(page.get("Contents", ()))
                if seen > _MOST_FILES:
                    raise SubjectError(f"{self.location} holds more than {_MOST_FILES} files, as no model does")
                for entry in page.get("Contents", ()):
                    name = str(entry["Key"]).removeprefix(self.prefix)
                    parts = name.split("/")
                    if parts[-1] == "" and not entry["Size"]:
                        continue  # what consoles make for a folder
                    if not (name.isprintable() and all(p and p not in {".", ".."} for p in parts)):
                        raise SubjectError(f"{self.location} holds {name[:80]!r}, which is no file of a model")
                    yield name

    def chunks(self, path: str) -> Iterator[bytes]:
        """Give a file's bytes."""
        with answering(f"reading {path} at {self.location}"):
            body = self._s3.get_object(Bucket=self.bucket, Key=self.prefix + path)["Body"]
            while chunk := body.read(_CHUNK):
                yield chunk


StoredFiles = FolderFiles | RemoteFiles


def _at_once(one: Callable[[Any], str], items: Iterable[Any]) -> list[str]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(one, items))


@contextmanager
def stored_files(client: Any, location: str) -> Iterator[StoredFiles]:
    """Give the files at a location, of the client of the registry that named it, or raise a ``RegistryError``."""
    refuse_files(location, tracking_uri=client.tracking_uri)
    local, served = _local(location), None
    if local is None and isinstance(client, RestClient):
        with suppress(OddNameError), answering(f"listing the files at {location}"):
            served = ServedFiles(client, location)
    if local is not None:
        yield FolderFiles(local)
    elif served is not None:
        yield served
    elif location.startswith("s3://") and isinstance(client, RestClient):
        yield BucketFiles(location)
    else:
        with tempfile.TemporaryDirectory() as place:
            yield FolderFiles(download(location, Path(place), tracking_uri=client.tracking_uri))


def _local(location: str) -> Path | None:
    parsed = urllib.parse.urlparse(location)
    if parsed.scheme not in {"", "file"} or (parsed.scheme and parsed.netloc):
        return None
    path = Path(url2pathname(parsed.path if parsed.scheme else location))
    return path if path.is_dir() else None
