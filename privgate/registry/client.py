"""Talking to MLflow: one client, and errors in our words."""

import os
import shutil
import sys
import tempfile
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import url2pathname

from privgate.errors import PrivgateError, RegistryError, SubjectError
from privgate.registry.files import refuse_files
from privgate.registry.rest import RestClient, address_for, find_client

#: logged model -> where it was found; kept here and not in the subject, because addresses may hold passwords
ADDRESSES: dict[str, str] = {}
#: registry -> experiment that runs of ours go to; MLflow would keep it in the environment, which other threads read
EXPERIMENTS: dict[str, str] = {}


@contextmanager
def answering(doing: str) -> Iterator[None]:
    """Turn whatever MLflow and the network raise into a ``RegistryError`` that says what was being done."""
    try:
        yield
    except PrivgateError:
        raise
    except _problems() as exc:
        inner: BaseException | None = exc
        while inner is not None and not isinstance(inner, PrivgateError):  # a sentence of ours, wrapped by MLflow
            inner = inner.__cause__ or inner.__context__
        raise RegistryError(f"{doing}: {inner or _sentence(exc)}") from exc


def _problems() -> tuple[type[BaseException], ...]:
    kinds = [("mlflow.exceptions", "MlflowException"), ("sqlalchemy.exc", "SQLAlchemyError")]
    kinds += [("botocore.exceptions", name) for name in ("BotoCoreError", "ClientError")]
    known = (getattr(sys.modules[module], name) for module, name in kinds if module in sys.modules)
    return OSError, RecursionError, *known  # requests' errors, too; folders within folders


def _sentence(exc: BaseException) -> str:
    text = str(getattr(exc, "message", None) or exc).strip().splitlines()
    return text[0][:600] if text else type(exc).__name__


def connect(tracking_uri: str | None = None, *, make: bool = False) -> Any:
    """Return an MLflow client; ``RegistryError``: there is no such registry, and only ``make`` lets MLflow make one."""
    if find_spec("mlflow") is None:  # privgate-verify has none
        raise RegistryError(f"{tracking_uri or 'this'} needs MLflow, which is not installed; name a server (https)")
    if not make and (address := tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")):
        _check_place(address, "it was named")  # before MLflow's import, which takes seconds
    import mlflow

    if not make and not tracking_uri:
        _check_place(mlflow.get_tracking_uri(), "no --tracking-uri and no MLFLOW_TRACKING_URI names another")
    with answering("connecting to MLflow"):
        try:
            return mlflow.MlflowClient(tracking_uri=tracking_uri)
        except ModuleNotFoundError as exc:  # the driver of a database
            raise RegistryError(f"{tracking_uri or 'the registry'} needs {exc.name}; install it") from exc


def _check_place(address: str, how: str) -> None:
    """Refuse a database or folder that does not exist: MLflow would create an empty registry at a mistyped address."""
    scheme, _, rest = address.partition("://")
    if scheme == "sqlite" and rest.startswith("/") and ":memory:" not in rest:
        place = Path(urllib.parse.unquote(rest[1:].partition("?")[0]))
    elif scheme == "file" or "://" not in address:
        place = Path(urllib.parse.unquote(rest) if rest else address)
    else:
        return
    if not place.exists() and address not in ("databricks", "databricks-uc"):
        raise RegistryError(f"there is no registry at {address} ({how}); name the one that holds the model")


def list_pages(search: Callable[..., Any], *query: str) -> Iterator[Any]:
    """Give everything that a search of MLflow's finds."""
    token = None
    while True:
        page = search(*query, max_results=1000, page_token=token)
        yield from page
        if not (token := page.token):
            return


def reader(tracking_uri: str | None = None) -> Any:
    """Return a client that reads versions and files only: MLflow's, or a quick one of plain HTTP or a known file."""
    if address := address_for(tracking_uri):
        return RestClient(address)
    return find_client(tracking_uri, connect) or connect(tracking_uri)


@contextmanager
def tracking_at(tracking_uri: str | None) -> Iterator[None]:
    """Let MLflow's fluent functions talk to ``tracking_uri`` meanwhile; the environment stays as it is."""
    import mlflow
    from mlflow.tracking._tracking_service import utils

    if tracking_uri is None or tracking_uri == mlflow.get_tracking_uri():
        yield
        return
    before = getattr(utils, "_tracking_uri", None)
    utils._tracking_uri = tracking_uri  # noqa: SLF001  its only public setter writes the environment
    try:
        if mlflow.get_tracking_uri() != tracking_uri:
            raise RegistryError(f"this MLflow cannot be pointed at {tracking_uri}; set MLFLOW_TRACKING_URI instead")
        yield
    finally:
        utils._tracking_uri = before  # noqa: SLF001  put back as found


def download(location: str, folder: Path, *, tracking_uri: str | None) -> Path:
    """Copy every file at a location below ``folder`` and return where they lie."""
    refuse_files(location, tracking_uri=tracking_uri)
    if (local := _local(location)) is not None and _is_plain(local):
        with answering(f"copying the files at {location}"):
            shutil.copytree(local, folder, symlinks=True, dirs_exist_ok=True)  # no digest accepts a link
        return folder
    try:
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
    except ImportError as exc:  # as above
        raise RegistryError(
            f"the files at {location} are read by MLflow's own client, which is not installed: install "
            "privgate-verify[mlflow], or download them by any tool and verify that folder with --statement"
        ) from exc
    folder.mkdir(parents=True, exist_ok=True)
    with answering(f"downloading the files at {location}"):
        # the way by which MLflow loads a version's files, and not through models:/…, which asks for the name again
        copy = Path(get_artifact_repository(location, tracking_uri=tracking_uri).download_artifacts("", str(folder)))
    if empty := next((p for p in copy.rglob("*") if p.is_dir() and not any(p.iterdir())), None):
        raise SubjectError(f"the model's folder {empty.name!r} is empty to MLflow, or a file has its name; rename it")
    return copy


@contextmanager
def stored_files(client: Any, location: str) -> Iterator[Path]:
    """Give a folder with the files at a location, which the client's registry named; ``RegistryError``: none."""
    refuse_files(location, tracking_uri=client.tracking_uri)
    if (local := _local(location)) is not None:
        yield local
        return
    with tempfile.TemporaryDirectory() as place:
        yield download(location, Path(place), tracking_uri=client.tracking_uri)


def _local(location: str) -> Path | None:
    parsed = urllib.parse.urlparse(location)
    if parsed.scheme not in {"", "file"} or (parsed.scheme and parsed.netloc):
        return None
    path = Path(url2pathname(parsed.path if parsed.scheme else location))
    return path if path.is_dir() else None


def _is_plain(folder: Path) -> bool:
    """Whether MLflow would copy a folder as it lies: it has a way of its own with links and some names."""
    odd = (p for p in folder.rglob("*") if p.is_symlink() or p.name == p.parent.name or p.name.startswith(".artifact."))
    return not folder.is_symlink() and next(odd, None) is None


def local_registry(folder: Path, *, experiment: str = "privgate") -> str:
    """Return the tracking URI of an SQLite registry below a folder, made if absent, and log to it from now on."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    uri = f"sqlite:///{folder / 'registry.db'}"
    with answering(f"opening the registry in {folder}"):
        client = connect(uri, make=True)
        known = client.get_experiment_by_name(experiment)
        place = (folder / "artifacts").as_uri()
        number = known.experiment_id if known else client.create_experiment(experiment, artifact_location=place)
    EXPERIMENTS[uri] = str(number)
    return uri
