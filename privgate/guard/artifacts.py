"""The guarded destination of artifacts: the files of a released version are neither written nor deleted.

``mlflow server --artifacts-destination privgate:<destination>``. MLflow opens one repository of that address, and each
artifact route of its server goes through it. Reads are MLflow's own.
"""

import functools
import os
import posixpath
import re
import sys
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repo import ArtifactRepository

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
    """MLflow's own repository of a place, which asks the registry before it writes or deletes."""

    def __init__(self, artifact_uri: str, inner: ArtifactRepository) -> None:
        super().__init__(artifact_uri)
        self._inner = inner
        # a folder is named by what the inner repository opens: it drops parts of an address
        folder = getattr(inner, "artifact_dir", None)
        self._address = str(folder or artifact_uri)
        #: a folder of the server that is no place for artifacts; its own configuration may lie there
        self._foreign = folder is not None and not _is_served(self._address)

    @contextmanager
    def _changing(self, path: str | None, *, folder: bool = False) -> Iterator[None]:
        """Let a write through where nothing is released there; look again behind it, because it may take long."""
        self._check(path, folder=folder)
        yield
        self._check(path, folder=folder, after=True)

    def _check(self, path: str | None, *, folder: bool, after: bool = False) -> None:
        if self._foreign:
            raise _refuse(f"{self.artifact_uri!r:.200} is a folder of this server, and not its destination")
        place = locate_files(posixpath.join(self._address, (path or "").strip("/")))
        try:
            held = find_released(place, folder=folder)
        except Exception as exc:  # whatever it is: what cannot be asked is not written
            from privgate.guard.rows import UNAVAILABLE, permission_denied

            why = f"whether {path or 'all files'!r} belongs to a released version could not be found out"
            why = f"privgate: {why} ({type(exc).__name__}: {exc!s:.300}); try again"
            raise permission_denied(why, UNAVAILABLE) from exc
        version = f"models:/{held.name}/{held.version}" if held is not None else ""
        if version and after:
            raise _refuse(f"{version} was released while {path!r} was written; its files changed, check it again")
        if version:
            raise _refuse(
                f"{path or 'all files'!r} belongs to {version}, which is released; log another version, or withdraw "
                "its aliases and revoke its statement first"
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


def guarded_repository(
    artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None
) -> GuardedRepository:
    """Return MLflow's repository of ``privgate:<destination>``; an MLflow error where the address is another's."""
    place = artifact_uri.removeprefix(SCHEME)
    # MLflow lets no client name a folder of its server; by our scheme none may, either, nor what is read differently
    if os.environ.get(DESTINATION) is not None and (re.search("[?#;]", place) or not _is_served(place)):
        raise _refuse(f"{artifact_uri!r:.200} does not lie below this server's destination")
    from mlflow.store.artifact.artifact_repository_registry import _artifact_repository_registry as registry

    opening = _OPENING.set(True)
    try:
        return GuardedRepository(artifact_uri, registry.get_artifact_repository(place, tracking_uri, registry_uri))
    finally:
        _OPENING.reset(opening)


#: whether this thread opens what a guarded repository stands before
_OPENING: ContextVar[bool] = ContextVar("privgate_opening", default=False)


def guard_addresses() -> None:
    """Let a guarded server write by no other address to its destination, nor to other folders of its machine.

    A client names the location of an experiment, and MLflow opens that by a repository of its own.
    """
    module = sys.modules.get("mlflow.store.artifact.artifact_repository_registry")
    registry = getattr(module, "_artifact_repository_registry", None)
    if registry is None or hasattr(registry.get_artifact_repository, "__wrapped__"):
        return
    open_address = registry.get_artifact_repository

    @functools.wraps(open_address)
    def get_artifact_repository(artifact_uri: str, *args: Any, **kwargs: Any) -> Any:
        repository, destination = open_address(artifact_uri, *args, **kwargs), os.environ.get(DESTINATION, "")
        if _OPENING.get() or not destination.startswith(SCHEME) or isinstance(repository, GuardedRepository):
            return repository
        folder = getattr(repository, "artifact_dir", None)
        place, root = locate_files(str(folder or artifact_uri)), locate_files(destination)
        served = folder is not None or _touches(place, root) or _touches(root, place)
        return GuardedRepository(artifact_uri, repository) if served else repository

    registry.get_artifact_repository = get_artifact_repository


guard_addresses()  # MLflow loads this module while it puts its registry of repositories together


def locate_files(address: str) -> str:
    """Return one spelling for all addresses of a place: the destination behind the proxy, decoded, without case.

    Spellings that some file system tells apart may come out equal: that refuses a write too many, none too few.
    """
    place, destination = address, os.environ.get(DESTINATION, "")
    while place.startswith(SCHEME):
        place = place.removeprefix(SCHEME)
    if place.startswith(("http:", "https:")) and _ROUTE in place:
        place = _PROXY + "/" + place.partition(_ROUTE)[2]
    if place.startswith(_PROXY):
        path = urllib.parse.urlsplit(place).path.lstrip("/")
        place = posixpath.join(destination.removeprefix(SCHEME) or _PROXY, path)
    remote = _REMOTE.match(place)
    if remote or place.startswith("file:"):  # a query names no other place
        parts = urllib.parse.urlsplit(place)
        place = f"{remote[0]}{parts.netloc}{parts.path}" if remote else parts.path
    while (decoded := urllib.parse.unquote(place)) != place:
        place = decoded
    return posixpath.normpath(place if remote else str(Path(place).resolve())).casefold()


#: an address of another machine; what a client appends to a path is none
_REMOTE = re.compile("(?!file:)[A-Za-z][A-Za-z0-9+.-]*://")


def _touches(place: str, root: str) -> bool:
    """Whether a place is a root, or lies below it."""
    return place == root or place.startswith(root.rstrip("/") + "/")


def _is_served(address: str) -> bool:
    """Whether an address lies at or below this server's destination; true where this is no server."""
    destination = os.environ.get(DESTINATION)
    return destination is None or _touches(locate_files(address), locate_files(destination))


#: rows name few places, and each write asks for all of them
_locate_stored = functools.lru_cache(1 << 16)(locate_files)


def find_released(place: str, *, folder: bool) -> Held | None:
    """Return a released version whose files lie at or above ``place``, or below where it is a folder; None if none."""
    from privgate.guard.store import watch_configured

    with watch_configured().held() as guard:
        return next((held for held in _list_held(place, folder=folder) if _is_released(held, guard)), None)


def _is_released(held: Held, guard: "Guard") -> bool:
    """Whether a version holds what is protected, or a statement that counts lets it be released."""
    from privgate.guard import statement
    from privgate.guard.config import fold
    from privgate.guard.verification import counting

    protected = (guard.alias_meant(target) or fold(target) in guard.stages for target in held.targets if target)
    if not guard.excepts(held.name) and any(protected):
        return True
    claims = counting(held.statement, guard.trust, statement.now()) if held.statement else None
    # a copied statement freezes no other files: it names the location that was checked
    return claims is not None and claims.passed and locate_files(claims.storage) == locate_files(held.storage)


def _list_held(place: str, *, folder: bool) -> Iterator[Held]:
    """Give the versions whose files touch a place, from this server's registry."""
    from mlflow.server import ARTIFACTS_ONLY_ENV_VAR, handlers
    from mlflow.store.model_registry.dbmodels.models import SqlModelVersion as Version
    from mlflow.store.model_registry.dbmodels.models import SqlModelVersionTag as Tag
    from mlflow.store.model_registry.dbmodels.models import SqlRegisteredModelAlias as Alias
    from sqlalchemy import func, or_, tuple_

    from privgate.guard.rows import DELETED
    from privgate.registry.named import TAG

    def touching(storage: str) -> bool:
        try:
            root = _locate_stored(storage)
        except ValueError:  # no address that anything opens, such as one with a zero byte
            return False
        return _touches(place, root) or (folder and _touches(root, place))

    if os.environ.get(ARTIFACTS_ONLY_ENV_VAR):
        raise PolicyError("a server of artifacts alone knows no releases; serve them from the registry's server")
    store = handlers._get_model_registry_store()  # noqa: SLF001  the only door
    storage, row = func.coalesce(Version.storage_location, Version.source), tuple_(Version.name, Version.version)
    with store.ManagedSessionMaker() as session:
        signed = session.query(Tag.name, Tag.version).filter(Tag.key == TAG)
        held = or_(row.in_(signed), row.in_(session.query(Alias.name, Alias.version)), Version.current_stage != "None")
        rows = session.query(Version.name, Version.version, storage).filter(Version.current_stage != DELETED, held)
        for name, version, where in rows:
            if not touching(str(where or "")):
                continue
            for kept in session.query(Version).filter(Version.name == name, Version.version == version):
                aliases = (a for a in kept.registered_model.registered_model_aliases if a.version == kept.version)
                targets = (*(str(a.alias) for a in aliases), str(kept.current_stage or ""))
                text = next((str(tag.value) for tag in kept.model_version_tags if tag.key == TAG), "")
                yield Held(str(name), str(version), str(kept.storage_location or kept.source), targets, text)


def _refuse(why: str) -> MlflowException:
    from privgate.guard.rows import permission_denied
    from privgate.guard.store import watch_configured
    from privgate.guard.writes import record_event

    with suppress(Exception):  # the refusal stands, whether it can be written down or not
        if (log := watch_configured().guard().audit_log) is not None:
            record_event(log, "refused", doing="files", why=why)
    return permission_denied(f"privgate: {why}")
