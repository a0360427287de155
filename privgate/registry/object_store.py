"""Files in S3, read without MLflow: listed and streamed by boto3, which the extra ``s3`` brings.

boto3 reads its own settings (``AWS_*``, profiles, roles, a pod's identity); the endpoint and TLS settings are MLflow's.
"""

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from privgate.documents import LARGE
from privgate.errors import RegistryError, SubjectError
from privgate.registry import layout

_AT_ONCE = 8
_CHUNK = 1 << 20
_MOST_FILES = 100_000


class BucketFiles:
    """Files below a prefix of a bucket.

    Parameters
    ----------
    location : str
        ``s3://bucket/prefix``.

    Raises
    ------
    RegistryError
        They cannot be listed, or the extra is not installed.
    SubjectError
        A name is none that a file of a model has.
    """

    def __init__(self, location: str) -> None:
        parsed = urlsplit(location, allow_fragments=False)
        self.location, self.bucket = location, parsed.netloc
        self.prefix = parsed.path.strip("/") + "/"
        self._s3 = _client()
        self.paths = sorted(self._listed())

    def digests(self) -> dict[str, str]:
        """Return ``path -> sha256`` of every file."""
        covered = [p for p in self.paths if not self._is_written_by_mlflow(p)]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return dict(zip(covered, pool.map(self._digest, covered), strict=True))

    def names(self) -> list[str]:
        """Return the paths of all files, sorted."""
        return self.paths

    def copy_to(self, folder: Path) -> None:
        """Write every file below ``folder``, which is empty."""
        for path in self.paths:  # no name climbs: others were refused when they were listed
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as written:
                for chunk in self._chunks(path):
                    written.write(chunk)

    def _is_written_by_mlflow(self, path: str) -> bool:
        return path == layout.MLFLOW_META and layout.is_written_by_mlflow(path, self.read(path))

    def read(self, path: str) -> bytes:
        """Return a file's bytes.

        Raises
        ------
        SubjectError
            The file is longer than any report.
        """
        found = bytearray()
        for chunk in self._chunks(path):
            found += chunk
            if len(found) > LARGE.size:
                raise SubjectError(f"{path} is longer than any report; attach the report again")
        return bytes(found)

    def _listed(self) -> Iterator[str]:
        with _answering(f"listing {self.location}"):
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix)
            seen = 0
            for page in pages:
                for entry in page.get("Contents", ()):
                    seen += 1
                    name = str(entry["Key"]).removeprefix(self.prefix)
                    parts = name.split("/")
                    if parts[-1] == "" and not entry["Size"]:
                        continue  # what consoles make for a folder
                    if seen > _MOST_FILES or not all(p and p not in {".", ".."} for p in parts):
                        raise SubjectError(f"{self.location} holds {name[:80]!r}, which is no file of a model")
                    yield name

    def _digest(self, path: str) -> str:
        h = hashlib.sha256()
        for chunk in self._chunks(path):
            h.update(chunk)
        return "sha256:" + h.hexdigest()

    def _chunks(self, path: str) -> Iterator[bytes]:
        with _answering(f"reading {path} at {self.location}"):
            body = self._s3.get_object(Bucket=self.bucket, Key=self.prefix + path)["Body"]
            while chunk := body.read(_CHUNK):
                yield chunk


def _client() -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError as exc:
        raise RegistryError("files in S3 need boto3; install the extra: pip install 'privgate-verify[s3]'") from exc
    with _answering("connecting to S3"):
        return boto3.client(
            "s3",
            endpoint_url=os.environ.get("MLFLOW_S3_ENDPOINT_URL") or None,
            verify=False if os.environ.get("MLFLOW_S3_IGNORE_TLS", "").lower() in {"true", "1"} else None,
            config=Config(connect_timeout=10, read_timeout=60, retries={"max_attempts": 3}, max_pool_connections=32),
        )


@contextmanager
def _answering(doing: str) -> Iterator[None]:
    """Turn what boto3 raises into a ``RegistryError`` that says what was being done."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError, OSError) as exc:
        raise RegistryError(f"{doing}: {' '.join(str(exc).split())[:300]}") from exc
