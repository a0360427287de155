"""Talking to MLflow: one client, errors in our words, and what a URI names."""

import re
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
from privgate.registry.addresses import refuse_files
from privgate.registry.names import plain_name

# where each loaded model came from; kept here and not in the subject, because addresses may hold passwords
_ADDRESSES: dict[str, str] = {}
# registry -> experiment that runs of ours go to; MLflow would keep it in the environment, which other threads read
_EXPERIMENTS: dict[str, str] = {}

# a run, or a model by its name in it
_RUN = re.compile(r"(?:runs:/)?([0-9a-f]{32})(?:/([^?#%]+))?/?")
# the folder of a logged model, as MLflow's tracking stores lay it out
_HOME = re.compile(r"/(m-[0-9a-f]{32})/artifacts$")


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


#: what MLflow says where no server answers, the pool of connections included
_SILENT = re.compile(
    r"API request to (https?://[^/\s]+)\S* failed with exception .*(?:\[Errno -?\d+\] ([\w ]+)|(timed out))"
)


def _sentence(exc: BaseException) -> str:
    text = str(getattr(exc, "message", None) or exc).strip().splitlines()
    if text and (silent := _SILENT.search(text[0])):
        return f"{silent[1]} does not answer: {(silent[2] or silent[3]).lower()}"
    return text[0][:600] if text else type(exc).__name__


def connect(tracking_uri: str | None = None, *, make: bool = False) -> Any:
    """Return an MLflow client; the environment decides where ``tracking_uri`` is absent.

    Raises
    ------
    RegistryError
        MLflow is not installed, or there is no such registry: MLflow would make an empty one; ``make`` lets it.
    """
    try:
        from mlflow import MlflowClient
    except ImportError as exc:  # privgate-verify has none
        raise RegistryError(
            f"{tracking_uri or 'the registry'} needs MLflow's own client, which is not installed; "
            "give the address of a tracking server (http or https)"
        ) from exc
    if not make:
        _present(tracking_uri)
    with answering("connecting to MLflow"):
        return MlflowClient(tracking_uri=tracking_uri)


def _present(tracking_uri: str | None) -> None:
    """Refuse a database or folder that does not exist: whoever mistypes an address wants no empty registry there."""
    import mlflow

    address = str(tracking_uri or mlflow.get_tracking_uri())
    scheme, _, rest = address.partition("://")
    if scheme == "sqlite" and rest.startswith("/") and ":memory:" not in rest:
        place = Path(urllib.parse.unquote(rest[1:].partition("?")[0]))
    elif scheme == "file" or "://" not in address:
        place = Path(urllib.parse.unquote(rest) if rest else address)
    else:
        return
    if not place.exists() and address not in ("databricks", "databricks-uc"):
        how = "it was named" if tracking_uri else "no --tracking-uri and no MLFLOW_TRACKING_URI names another"
        raise RegistryError(f"there is no registry at {address} ({how}); name the one that holds the model")


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
        utils._tracking_uri = before  # noqa: SLF001  put back as found


@dataclass(frozen=True)
class Named:
    """What a URI names.

    Parameters
    ----------
    model_id : str
        The logged model that holds the files.
    storage : str
        Where they lie: what a consumer of the URI is given, and the only place that is ever read.
    name, version : str
        Registered model and version; empty if the URI names a logged model directly.
    source : str
        The version's immutable source, as the registry's row has it.
    run_id : str
        The row's run; empty where it has none.
    """

    model_id: str
    storage: str
    name: str = ""
    version: str = ""
    source: str = ""
    run_id: str = ""


def named(client: Any, uri: str) -> Named:
    """Return what ``uri`` names now.

    Parameters
    ----------
    client : MlflowClient
        See ``connect``.
    uri : str
        ``models:/name/version``, ``models:/name@alias``, ``models:/<model_id>``, ``runs:/<run_id>/<name>`` or a run id.

    Raises
    ------
    SubjectError
        Another kind of URI, a run that has logged no such model or several, a name that readers take for another, or a
        version whose files are not those of one logged model.
    RegistryError
        The registry does not know it, or does not answer.
    """
    name, version = _parts(client, uri)
    if not version:
        return Named(model_id=name, storage=_location(client, name))
    plain_name(name, uri)
    with answering(f"reading {uri}"):
        row = client.get_model_version(name, version)
        storage = str(client.get_model_version_download_uri(name, version))
    source = str(row.source)
    return Named(_holder(client, uri, source, storage), storage, name, version, source, str(row.run_id or ""))


def _parts(client: Any, uri: str) -> tuple[str, str]:
    """Return (name, version), or (model id, "")."""
    if found := _RUN.fullmatch(uri):
        return _of_run(client, found[1], found[2] or "", uri), ""
    parsed = urllib.parse.urlparse(uri, allow_fragments=False)
    path = parsed.path.strip("/")
    if parsed.scheme != "models" or parsed.netloc or parsed.query or not path or path.count("/") > 1:
        raise SubjectError(
            f"{uri!r} names no model; use models:/name/version, models:/name@alias, models:/<model_id> or "
            "runs:/<run_id>/<name>"
        )
    name, slash, suffix = path.partition("/")
    if slash:
        if not (suffix.isascii() and suffix.isdigit()):
            raise SubjectError(f"{uri!r} names a moving target; use a version number or an alias")
        return name, str(int(suffix))
    if "@" in name:
        name, _, alias = name.rpartition("@")
        with answering(f"reading {uri}"):
            return name, str(client.get_model_version_by_alias(name, alias).version)
    return name, ""


def _of_run(client: Any, run_id: str, name: str, uri: str) -> str:
    """Return the id of the one logged model of a run, of this name if one is given."""
    if not hasattr(client, "search_logged_models"):  # the verifier's own client asks about versions only
        client = connect(client.tracking_uri)
    with answering(f"reading {uri}"):
        outputs = client.get_run(run_id).outputs
        ids = dict.fromkeys(o.model_id for o in (outputs.model_outputs if outputs else []))
        held = {i: str(client.get_logged_model(i).name) for i in ids}
    chosen = [i for i, own in held.items() if name in {"", own}]
    if len(chosen) == 1:
        return str(chosen[0])
    known = ", ".join(f"{own} (models:/{i})" for i, own in held.items())
    if held:
        raise SubjectError(f"{uri!r} names {len(chosen)} models of the run, which has logged {known}; name one of them")
    raise SubjectError(
        f"the run of {uri!r} has logged no model of MLflow 3; if it holds files of one, register them and run: "
        "privgate adopt models:/name/version --recipe module:recipe --data module:data"
    )


def _location(client: Any, model_id: str) -> str:
    with answering(f"reading {model_id}"):
        return str(client.get_logged_model(model_id).artifact_location)


def _holder(client: Any, uri: str, source: str, storage: str) -> str:
    """Return the id of the logged model whose folder is ``storage``.

    A source that is a name is never followed: the name may mean another version by now, and consumers do not ask it.
    It is compared, where it still exists: a row whose source and files differ is not one thing that can be approved.
    """
    path = source.removeprefix("models:/") if source.startswith("models:/") else ""
    by_id = bool(path) and "/" not in path
    home = _HOME.search(storage)
    if not by_id and home is None:
        raise SubjectError(
            f"the files of {uri} lie at {storage!r}, no logged model of MLflow 3; make one of the same bytes: privgate "
            f"adopt {uri} --recipe module:recipe --data module:data"
        )
    model_id = path if by_id or home is None else home[1]
    location = _location(client, model_id)
    if location != storage:
        raise SubjectError(
            f"{uri} serves the files at {storage!r}, and its source {source!r} has them at {location!r}; "
            "register the logged model itself again"
        )
    name, slash, version = path.partition("/")
    said = _storage_now(client, name, version) if slash else storage
    if said not in {storage, None}:
        raise SubjectError(
            f"{uri} serves the files at {storage!r}, and its source {source!r} names those at {said!r} by now; "
            "register the logged model itself again"
        )
    return model_id


def _storage_now(client: Any, name: str, version: str) -> str | None:
    """Return where the files of a version lie; None where it is gone, which changes nothing for its copies."""
    try:
        with answering(f"reading models:/{name}/{version}"):
            return str(client.get_model_version_download_uri(name, version))
    except RegistryError as exc:
        if "RESOURCE_DOES_NOT_EXIST" in str(exc) or "not found" in str(exc):
            return None
        raise


def upload(client: Any, model_id: str, folder: Path, place: str) -> None:
    """Copy the files below ``folder`` to ``place`` within a logged model.

    MLflow's client of 3.14 takes no such place; here the copied folder has it in its paths, for every version.
    """
    with tempfile.TemporaryDirectory() as root:
        shutil.copytree(folder, Path(root, place))
        client.log_model_artifacts(model_id, root)


def download(location: str, folder: Path, *, tracking_uri: str | None) -> Path:
    """Copy every file at a location below ``folder`` and return where they lie."""
    try:
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
    except ImportError as exc:  # privgate-verify has none
        raise RegistryError(
            f"the files at {location} are read by MLflow's own client, which is not installed; serve them by the "
            "tracking server, mount them here, or keep them in S3"
        ) from exc
    refuse_files(location, tracking_uri=tracking_uri)
    folder.mkdir(parents=True, exist_ok=True)
    with answering(f"downloading the files at {location}"):
        # the way by which MLflow loads a version's files, and not through models:/…, which asks for the name again
        repository = get_artifact_repository(location, tracking_uri=tracking_uri)
        return Path(repository.download_artifacts("", str(folder)))
