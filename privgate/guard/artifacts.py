"""The guarded destination of artifacts: the files of a released version are neither written nor deleted.

``mlflow server --artifacts-destination privgate:<destination>``. MLflow opens one repository of that address, and each
artifact route of its server goes through it. Reads are MLflow's own.
"""

import os
import posixpath
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repo import ArtifactRepository, MultipartUploadMixin

from privgate.errors import PolicyError

if TYPE_CHECKING:
    from privgate.guard.config import Guard

# MLflow loads this module in every process that imports it: what is heavy is imported where a write asks for it, and
# MLflow's own registry of repositories cannot be imported before it is complete.

SCHEME = "privgate:"
#: where MLflow's command line tells its workers where the files go (3.10 to 3.18)
DESTINATION = "_MLFLOW_SERVER_ARTIFACT_DESTINATION"
_PROXY = "mlflow-artifacts:"
_ROUTE = "/mlflow-artifacts/artifacts/"


class Held(NamedTuple):
    """A version: address of its files as the registry writes it, aliases and stage, text of its statement if any."""

    name: str
    version: str
    storage: str
    targets: tuple[str, ...]
    statement: str


class GuardedRepository(ArtifactRepository):  # type: ignore[misc]  # MLflow is not typed
    """MLflow's own repository of a destination, which asks the registry before it writes or deletes."""

    def __init__(self, artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None) -> None:
        super().__init__(artifact_uri, tracking_uri, registry_uri)
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        destination = os.environ.get(DESTINATION)
        # MLflow lets no client name a folder of its server; by our scheme none may, either
        if destination is not None and not _touches(locate_files(artifact_uri), locate_files(destination)):
            raise _refuse(f"{artifact_uri!r:.200} does not lie below this server's destination")
        self._inner = get_artifact_repository(artifact_uri.removeprefix(SCHEME))

    @contextmanager
    def _changing(self, path: str | None, *, folder: bool = False) -> Iterator[None]:
        """Let a write through where nothing is released there; look again behind it, because it may take long."""
        self._check(path, folder=folder)
        yield
        self._check(path, folder=folder, after=True)

    def _check(self, path: str | None, *, folder: bool, after: bool = False) -> None:
        place = locate_files(posixpath.join(self.artifact_uri, (path or "").strip("/")))
        try:
            held = find_released(place, folder=folder)
        except Exception as exc:  # whatever it is: what cannot be asked is not written
            from privgate.guard.transaction import PASSING, permission_denied

            why = f"whether {path or 'all files'!r} belongs to a released version could not be found out"
            raise permission_denied(
                f"privgate: {why} ({type(exc).__name__}: {exc!s:.300}); try again", PASSING
            ) from exc
        if held is None:
            return
        version = f"models:/{held.name}/{held.version}"
        if after:
            raise _refuse(f"{version} was released while {path!r} was written; its files changed, check it again")
        raise _refuse(
            f"{path or 'all files'!r} belongs to {version}, which is released; log another version, or withdraw its "
            "aliases and revoke its statement first"
        )

    def log_artifact(self, local_file: str, artifact_path: str | None = None) -> None:
        """Write one file."""
        with self._changing(posixpath.join(artifact_path or "", Path(local_file).name)):
            self._inner.log_artifact(local_file, artifact_path)

    def log_artifacts(self, local_dir: str, artifact_path: str | None = None) -> None:
        """Write a folder."""
        with self._changing(artifact_path, folder=True):
            self._inner.log_artifacts(local_dir, artifact_path)

    def delete_artifacts(self, artifact_path: str | None = None) -> None:
        """Delete a file or a folder."""
        with self._changing(artifact_path, folder=True):
            self._inner.delete_artifacts(artifact_path)

    def list_artifacts(self, path: str | None = None) -> Any:
        """Return what lies in a folder."""
        return self._inner.list_artifacts(path)

    def download_artifacts(self, artifact_path: str, dst_path: str | None = None) -> str:
        """Return the local path of what was read."""
        return str(self._inner.download_artifacts(artifact_path, dst_path))

    def _download_file(self, remote_file_path: str, local_path: str) -> None:
        self._inner._download_file(remote_file_path, local_path)  # noqa: SLF001  MLflow's base class calls it, too

    def get_local_path(self, artifact_path: str) -> str | None:
        """Return where a file lies on this machine; None where it lies elsewhere, or MLflow is too old to ask."""
        find = getattr(self._inner, "get_local_path", None)
        return None if find is None else find(artifact_path)


class GuardedParts(GuardedRepository, MultipartUploadMixin):  # type: ignore[misc]  # MLflow is not typed
    """The same for a destination that takes files in parts: beginning and completing one is writing it."""

    def create_multipart_upload(self, local_file: str, num_parts: int = 1, artifact_path: str | None = None) -> Any:
        """Begin a file; whoever has the addresses of its parts can write nothing that counts before it is complete."""
        with self._changing(posixpath.join(artifact_path or "", local_file)):
            return self._inner.create_multipart_upload(local_file, num_parts, artifact_path)

    def complete_multipart_upload(
        self, local_file: str, upload_id: str, parts: Any, artifact_path: str | None = None
    ) -> Any:
        """Make a file of its parts."""
        with self._changing(posixpath.join(artifact_path or "", local_file)):
            return self._inner.complete_multipart_upload(local_file, upload_id, parts, artifact_path)

    def abort_multipart_upload(self, local_file: str, upload_id: str, artifact_path: str | None = None) -> Any:
        """Forget the parts of a file, which is not there yet."""
        return self._inner.abort_multipart_upload(local_file, upload_id, artifact_path)


def guarded_repository(
    artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None
) -> GuardedRepository:
    """Return MLflow's repository of ``privgate:<destination>``; an MLflow error where the address is another's."""
    repository = GuardedRepository(artifact_uri, tracking_uri, registry_uri)
    if isinstance(repository._inner, MultipartUploadMixin):  # noqa: SLF001  ours
        repository.__class__ = GuardedParts  # it adds methods alone
    return repository


def locate_files(address: str) -> str:
    """Return one spelling for all addresses of a place: the destination behind the proxy, decoded, without case.

    Spellings that some file system tells apart may come out equal: that refuses a write too many, none too few.
    """
    place, destination = address.removeprefix(SCHEME), os.environ.get(DESTINATION, "").removeprefix(SCHEME)
    if place.startswith(("http:", "https:")) and _ROUTE in place:
        place = _PROXY + "/" + place.partition(_ROUTE)[2]
    if place.startswith(_PROXY):
        place = posixpath.join(destination or _PROXY, urllib.parse.urlsplit(place).path.lstrip("/"))
    while (decoded := urllib.parse.unquote(place)) != place:
        place = decoded
    if place.startswith("file:"):
        place = "/" + place.removeprefix("file:").lstrip("/")
    if "://" not in place:
        place = str(Path(place).resolve())
    return posixpath.normpath(place).casefold()


def _touches(place: str, root: str) -> bool:
    """Whether a place is a root, or lies below it."""
    return place == root or place.startswith(root.rstrip("/") + "/")


def find_released(place: str, *, folder: bool) -> Held | None:
    """Return a released version whose files lie at or above ``place``, or below where it is a folder; None if none."""
    from privgate.guard.store import watch_configured

    with watch_configured().held() as guard:
        for held in _list_held(guard, place, folder=folder):
            if _is_released(held, guard):
                return held
    return None


def _is_released(held: Held, guard: "Guard") -> bool:
    """Whether a version holds what is protected, or a statement that counts lets it be released."""
    from privgate.guard import statement
    from privgate.guard.checks import counting
    from privgate.guard.config import fold

    protected = (guard.alias_meant(target) or fold(target) in guard.stages for target in held.targets if target)
    if not guard.excepts(held.name) and any(protected):
        return True
    claims = counting(held.statement, guard.trust, statement.now()) if held.statement else None
    # a copied statement freezes nobody's files: it names the place that was checked
    return claims is not None and claims.passed and locate_files(claims.storage) == locate_files(held.storage)


def _list_held(guard: "Guard", place: str, *, folder: bool) -> Iterator[Held]:
    """Give the versions whose files touch a place, from the registry of the configuration, else from this server's."""

    def touching(storage: str) -> bool:
        root = locate_files(storage)
        return _touches(place, root) or (folder and _touches(root, place))

    store = _open_registry(guard.registry_uri)
    sessions = getattr(store, "ManagedSessionMaker", None)
    yield from _ask_database(sessions, touching) if sessions is not None else _ask_server(store, guard, touching)


@cache
def _open_registry(uri: str) -> Any:
    """Return a client of another server, the store of a database, or for no address the one that this server has."""
    if uri.startswith("http"):
        from mlflow import MlflowClient

        return MlflowClient(tracking_uri=uri, registry_uri=uri)
    if uri:
        from privgate.guard.store import guarded_store

        return guarded_store(uri)
    from mlflow.server import ARTIFACTS_ONLY_ENV_VAR, handlers

    if os.environ.get(ARTIFACTS_ONLY_ENV_VAR):
        raise PolicyError("a server of artifacts alone has no registry: name it as registry_uri in the configuration")
    return handlers._get_model_registry_store()  # noqa: SLF001  the only door


def _ask_database(sessions: Any, touching: Any) -> Iterator[Held]:
    """Give the versions of all workspaces whose files touch a place."""
    from mlflow.store.model_registry.dbmodels.models import SqlModelVersion as Version
    from sqlalchemy import func

    from privgate.guard.rows import DELETED, TAG

    storage = func.coalesce(Version.storage_location, Version.source)
    with sessions() as session:
        for name, version, where in session.query(Version.name, Version.version, storage).filter(
            Version.current_stage != DELETED
        ):
            if not touching(str(where or "")):
                continue
            for kept in session.query(Version).filter(Version.name == name, Version.version == version):
                aliases = (a for a in kept.registered_model.registered_model_aliases if a.version == kept.version)
                targets = (*(str(a.alias) for a in aliases), str(kept.current_stage or ""))
                text = next((str(tag.value) for tag in kept.model_version_tags if tag.key == TAG), "")
                yield Held(str(name), str(version), str(kept.storage_location or kept.source), targets, text)


def _ask_server(client: Any, guard: "Guard", touching: Any) -> Iterator[Held]:
    """Give the versions of another server's registry whose files touch a place; it is asked for each address once."""
    import requests

    from privgate.guard.diagnosis import released
    from privgate.guard.rows import TAG
    from privgate.registry.client import list_pages

    # MLflow's client tries again for minutes where nobody answers
    requests.get(f"{guard.registry_uri.rstrip('/')}/health", timeout=_SECONDS).raise_for_status()
    known = {f"models:/{name}{place}": target for name, place, target in released(client, guard) if target}
    tagged = {f"models:/{v.name}/{v.version}": v for v in list_pages(client.search_model_versions) if TAG in v.tags}
    for uri in {**known, **tagged}:
        name, _, version = uri.removeprefix("models:/").rpartition("/")
        held = tagged.get(uri)
        key = (uri, None if held is None else held.creation_timestamp)
        try:
            if key not in _ADDRESSES or held is None:
                _ADDRESSES[key] = str(client.get_model_version_download_uri(name, version))
        except MlflowException as exc:
            if exc.error_code == "RESOURCE_DOES_NOT_EXIST":  # an alias of nothing serves no files
                continue
            raise
        if touching(_ADDRESSES[key]):
            targets = (known[uri],) if uri in known else ()
            yield Held(name, version, _ADDRESSES[key], targets, "" if held is None else str(held.tags[TAG]))


_SECONDS = 5.0
#: addresses of files of (version, time of its creation), which never change
_ADDRESSES: dict[tuple[str, Any], str] = {}


def _refuse(why: str) -> MlflowException:
    from privgate.guard.transaction import permission_denied

    message = f"privgate: {why}"
    with suppress(Exception):  # the refusal stands, whether it can be written down or not
        from privgate.guard.store import watch_configured

        log = watch_configured().guard().audit_log
        if log is not None:
            log.record("refused", what="files", why=why)
    return permission_denied(message)
