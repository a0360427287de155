"""Talking to MLflow: one client, errors in our words, and what a URI names."""

import shutil
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privgate.errors import PrivgateError, RegistryError, SubjectError

# where each loaded model came from; kept here and not in the subject, because addresses may hold passwords
_ADDRESSES: dict[str, str] = {}
# registry -> experiment that runs of ours go to; MLflow would keep it in the environment, which other threads read
_EXPERIMENTS: dict[str, str] = {}

_COPIES = 16  # a copied version points at its source; longer chains are a loop


@contextmanager
def answering(doing: str) -> Iterator[None]:
    """Turn whatever MLflow and the network raise into a ``RegistryError`` that says what was being done.

    How patiently MLflow tries again is the environment's to say, which the command line fills in when it starts
    (``privgate.__main__``): a library writes no environment, because other threads read it.
    """
    try:
        yield
    except PrivgateError:
        raise
    except _problems() as exc:
        raise RegistryError(f"{doing}: {_sentence(exc)}") from exc


def _problems() -> tuple[type[BaseException], ...]:
    """Return what libraries raise about a registry; one that is not loaded has raised nothing."""
    found: list[type[BaseException]] = [OSError]  # requests' errors are such, too
    for module, name in (("mlflow.exceptions", "MlflowException"), ("sqlalchemy.exc", "SQLAlchemyError")):
        if module in sys.modules:
            found.append(getattr(sys.modules[module], name))
    return tuple(found)


def _sentence(exc: BaseException) -> str:
    text = str(getattr(exc, "message", None) or exc).strip().splitlines()
    return text[0][:600] if text else type(exc).__name__


def connect(tracking_uri: str | None = None) -> Any:
    """Return an MLflow client; the environment decides where ``tracking_uri`` is absent."""
    try:
        from mlflow import MlflowClient
    except ImportError as exc:  # privgate-verify has none
        raise RegistryError(
            f"{tracking_uri or 'the registry'} needs MLflow's own client, which is not installed; "
            "give the address of a tracking server (http or https)"
        ) from exc
    with answering("connecting to MLflow"):
        return MlflowClient(tracking_uri=tracking_uri)


def reader(tracking_uri: str | None = None) -> Any:
    """Return a client that reads versions and files only: MLflow's, or a quick one where plain HTTP does."""
    from privgate.registry import http_settings
    from privgate.registry.rest import RestClient

    address = http_settings.address_for(tracking_uri)
    return connect(tracking_uri) if address is None else RestClient(address)


def remember_address(model_id: str, client: Any) -> None:
    """Remember where a logged model was found."""
    _ADDRESSES[model_id] = str(client.tracking_uri)


def remember_experiment(tracking_uri: str, experiment_id: str) -> None:
    """Log our own runs for this registry to an experiment from now on."""
    _EXPERIMENTS[tracking_uri] = experiment_id


def experiment_of(tracking_uri: str | None) -> str | None:
    """Return the experiment of a registry that ``local_registry`` made in this process; None: MLflow decides."""
    return _EXPERIMENTS.get(tracking_uri or "")


def address_of(model_id: str) -> str | None:
    """Return where a logged model was found in this process, or None."""
    return _ADDRESSES.get(model_id)


@contextmanager
def tracking_at(tracking_uri: str | None) -> Iterator[None]:
    """While this lasts, MLflow's fluent functions talk to ``tracking_uri``.

    Not by ``mlflow.set_tracking_uri``, which writes the address into the process's environment as well, for good.

    Raises
    ------
    RegistryError
        This MLflow keeps its address elsewhere; nothing was logged.
    """
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
        utils._tracking_uri = before  # noqa: SLF001


@dataclass(frozen=True)
class Named:
    """What a URI names.

    Parameters
    ----------
    model_id : str
        The logged model that holds the files.
    name, version : str
        Registered model and version; empty if the URI names a logged model directly.
    source : str
        The version's immutable source, as the registry's row has it.
    """

    model_id: str
    name: str = ""
    version: str = ""
    source: str = ""


def named(client: Any, uri: str) -> Named:
    """Return what ``uri`` names now.

    Parameters
    ----------
    client : MlflowClient
        See ``connect``.
    uri : str
        ``models:/name/version``, ``models:/name@alias`` or ``models:/<model_id>``.

    Raises
    ------
    SubjectError
        Another kind of URI, or a version whose files belong to no logged model.
    RegistryError
        The registry does not know it, or does not answer.
    """
    name, version = _parts(client, uri)
    if not version:
        return Named(model_id=name)
    with answering(f"reading {uri}"):
        source = str(client.get_model_version(name, version).source)
    return Named(_logged_model(client, source, uri), name, version, source)


def _parts(client: Any, uri: str) -> tuple[str, str]:
    """Return (name, version), or (model id, "")."""
    parsed = urllib.parse.urlparse(uri, allow_fragments=False)
    path = parsed.path.strip("/")
    if parsed.scheme != "models" or parsed.netloc or not path or path.count("/") > 1:
        raise SubjectError(
            f"{uri!r} names no model; use models:/name/version, models:/name@alias or models:/<model_id>"
        )
    name, slash, suffix = path.partition("/")
    if slash:
        if not suffix.isdigit():
            raise SubjectError(f"{uri!r} names a moving target; use a version number or an alias")
        return name, suffix
    if "@" in name:
        name, _, alias = name.rpartition("@")
        with answering(f"reading {uri}"):
            return name, str(client.get_model_version_by_alias(name, alias).version)
    return name, ""


def _logged_model(client: Any, source: str, uri: str) -> str:
    """Return the id of the logged model behind a version's source, following copies."""
    for _ in range(_COPIES):
        parsed = urllib.parse.urlparse(source)
        path = parsed.path.strip("/")
        if parsed.scheme != "models":
            raise SubjectError(
                f"the files of {uri} lie at {source!r}, no logged model; log it with MLflow 3 and register that"
            )
        name, slash, version = path.partition("/")
        if not slash:
            return name
        with answering(f"reading {source}, the source of {uri}"):
            source = str(client.get_model_version(name, version).source)
    raise SubjectError(f"the copies behind {uri} never end; register the model again")


def upload(client: Any, model_id: str, folder: Path, place: str) -> None:
    """Copy the files below ``folder`` to ``place`` within a logged model.

    MLflow's client of 3.14 takes no such place; here the copied folder has it in its paths, for every version.
    """
    with tempfile.TemporaryDirectory() as root:
        shutil.copytree(folder, Path(root, place))
        client.log_model_artifacts(model_id, root)


def download(client: Any, model_id: str, folder: Path, *, tracking_uri: str | None) -> Path:
    """Copy every file of a logged model below ``folder`` and return where they lie."""
    import mlflow.artifacts

    with answering(f"downloading the files of {model_id}"):
        location = client.get_logged_model(model_id).artifact_location
        # not through models:/…, whose repository would follow the process-wide tracking address
        got = mlflow.artifacts.download_artifacts(
            artifact_uri=location, dst_path=str(folder), tracking_uri=tracking_uri or client.tracking_uri
        )
    return Path(got)
