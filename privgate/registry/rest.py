"""Reading a registry without MLflow, whose import takes longer than a verification: over HTTP, or in an SQLite file."""

import base64
import configparser
import os
import re
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from privgate.errors import RegistryError

if TYPE_CHECKING:
    import requests

_HTTP = ("http://", "https://")
#: MLflow's own list of answers that may be different a moment later
_PASSING = (408, 429, 500, 502, 503, 504)
#: MLflow tries a dead server again for minutes; a few seconds must do, unless the environment says otherwise
_TRIES, _BACKOFF = 2, 1


def address_for(tracking_uri: str | None) -> str | None:
    """Return the address that MLflow would talk to, or None where MLflow itself must do it."""
    if "mlflow" in sys.modules:
        import mlflow

        wanted = tracking_uri or str(mlflow.get_tracking_uri())
        if wanted.startswith(_HTTP) and mlflow.MlflowClient(wanted)._registry_uri != wanted:  # noqa: SLF001  nothing else tells
            return None
    else:
        wanted = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or ""
        if os.environ.get("MLFLOW_REGISTRY_URI") not in {None, "", wanted}:
            return None
    more = (  # plugins, signed requests, and what MLflow refuses
        os.environ.get("MLFLOW_TRACKING_AUTH")
        or is_set("MLFLOW_TRACKING_AWS_SIGV4")
        or (is_set("MLFLOW_TRACKING_INSECURE_TLS") and os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH"))
        or entry_points(group="mlflow.request_header_provider")
    )
    return wanted if wanted.startswith(_HTTP) and not more else None


def is_set(variable: str, default: str = "false") -> bool:
    """Whether a switch of the environment is on, as MLflow reads it."""
    return os.environ.get(variable, default).lower() in {"true", "1"}


def session() -> "requests.Session":
    """Return a session with MLflow's patience, workspace and credentials."""
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.util import Retry

    patience = Retry(
        total=int(os.environ.get("MLFLOW_HTTP_REQUEST_MAX_RETRIES") or _TRIES),
        backoff_factor=float(os.environ.get("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR") or _BACKOFF),
        status_forcelist=_PASSING,
        respect_retry_after_header=is_set("MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER", "true"),
        raise_on_status=True,
    )
    fresh = requests.Session()
    for scheme in _HTTP:
        fresh.mount(scheme, HTTPAdapter(pool_maxsize=32, max_retries=patience))
    fresh.headers["User-Agent"] = "privgate"
    if workspace := os.environ.get("MLFLOW_WORKSPACE", "").strip():
        fresh.headers["X-MLFLOW-WORKSPACE"] = workspace
    if authorization := _authorization():
        fresh.headers["Authorization"] = authorization
    return fresh


def _authorization() -> str:
    """Return the header that MLflow's client would send: a password goes before a token."""
    kept, path = configparser.ConfigParser(interpolation=None), Path("~/.mlflow/credentials").expanduser()
    try:
        kept.read(path)
    except (configparser.Error, UnicodeDecodeError) as exc:
        raise RegistryError(f"{path} cannot be read ({type(exc).__name__}); write it as MLflow documents") from exc
    names = "mlflow_tracking_username", "mlflow_tracking_password"
    user, password = (os.environ.get(name.upper()) or kept.get("mlflow", name, fallback="") or "" for name in names)
    if user and password:
        return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    return f"Bearer {token}" if token else ""


class RestClient:
    """What a verification asks a registry, by the methods and with the names of MLflow's client."""

    def __init__(self, tracking_uri: str) -> None:
        self.tracking_uri = tracking_uri
        self._base = tracking_uri.rstrip("/")
        self._session = session()

    def get_model_version(self, name: str, version: str) -> Any:
        """Return a version's row."""
        return self._ask("model-versions/get", _version, name=name, version=version)

    def get_model_version_by_alias(self, name: str, alias: str) -> Any:
        """Return the row that an alias names."""
        return self._ask("registered-models/alias", _version, name=name, alias=alias)

    def get_model_version_download_uri(self, name: str, version: str) -> str:
        """Return where a version's files lie."""
        answer = self._ask("model-versions/get-download-uri", lambda a: a["artifact_uri"], name=name, version=version)
        return str(answer)

    def get_logged_model(self, model_id: str) -> Any:
        """Return a logged model."""
        return self._ask(f"logged-models/{quote(model_id, safe='')}", _logged_model)

    def get_run(self, run_id: str) -> SimpleNamespace:
        """Return a run, which says where it keeps its artifacts."""
        place = self._ask("runs/get", lambda a: str(a["run"]["info"]["artifact_uri"]), run_id=run_id)
        return SimpleNamespace(info=SimpleNamespace(artifact_uri=place))

    def _ask(self, path: str, read: Callable[[Any], Any], **query: str) -> Any:
        import requests

        # said at each request: a session's own would give way to other variables
        how: dict[str, Any] = {
            "timeout": float(os.environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT") or 120),
            "allow_redirects": is_set("MLFLOW_ALLOW_HTTP_REDIRECTS", "true"),
            "verify": os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH") or not is_set("MLFLOW_TRACKING_INSECURE_TLS"),
            "cert": os.environ.get("MLFLOW_TRACKING_CLIENT_CERT_PATH") or None,
        }
        try:
            answer = self._session.get(f"{self._base}/api/2.0/mlflow/{path}", params=query, **how)
        except requests.ConnectionError as exc:
            if type(exc) is not requests.ConnectionError:  # of certificates and proxies, which have a sentence
                raise
            server, why = urlsplit(self._base), re.search(r"\[Errno -?\d+\] ([\w ]+)", str(exc))
            said = f": {why[1].lower()}" if why else ""
            raise RegistryError(f"{server.scheme}://{server.netloc.rpartition('@')[2]} does not answer{said}") from exc
        if answer.status_code != 200:
            try:
                refusal = f"{(body := answer.json())['error_code']}: {body['message']}"
            except (ValueError, KeyError, TypeError):
                refusal = f"HTTP {answer.status_code} {answer.reason}"
            raise requests.HTTPError(refusal, response=answer)
        try:
            return read(answer.json())
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            what = path.partition("/")[0]
            raise requests.RequestException(f"the answer of {what} is not MLflow's; is this an MLflow server") from exc


def _version(answer: Any) -> SimpleNamespace:
    row = answer["model_version"]
    texts = {key: str(row[key]) for key in ("name", "version")}
    texts |= {"source": str(row.get("source", "")), "run_id": str(row.get("run_id") or "")}
    return SimpleNamespace(**texts, creation_timestamp=int(row["creation_timestamp"]), tags=_tags(row))


def _logged_model(answer: Any) -> SimpleNamespace:
    info = answer["model"]["info"]
    run_id = info.get("source_run_id") or None
    return SimpleNamespace(artifact_location=str(info["artifact_uri"]), source_run_id=run_id, tags=_tags(info))


def _tags(row: Any) -> dict[str, str]:
    return {str(t["key"]): str(t.get("value", "")) for t in row.get("tags", [])}


#: revision of MLflow's tables whose columns below mean what they are read for
_REVISION = "dc11669786a5"
_VERSION = "model_versions where workspace='default' and name=? and version=? and current_stage<>'Deleted_Internal'"


def find_client(tracking_uri: str | None, connect: Callable[[str], Any]) -> "SqliteClient | None":
    """Return a client of a store in a file with known tables, or None; ``connect`` makes MLflow's own."""
    wanted = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or ""
    match = re.fullmatch(r"sqlite:///([^?#%:]+)", wanted)
    elsewhere = os.environ.get("MLFLOW_REGISTRY_URI") not in {None, "", wanted}
    if match is None or elsewhere or "mlflow" in sys.modules or any("MLFLOW_WORKSPACE" in name for name in os.environ):
        return None
    client = SqliteClient(wanted, Path(match[1]), connect)
    return client if client.select("version_num", "alembic_version") == [(_REVISION,)] else None


class SqliteClient:
    """What loading and verifying ask a registry, by the methods and with the names of MLflow's client."""

    def __init__(self, tracking_uri: str, place: Path, connect: Callable[[str], Any]) -> None:
        self.tracking_uri = tracking_uri
        self._place, self._make = f"{place.resolve().as_uri()}?mode=ro", cache(partial(connect, tracking_uri))

    def select(self, columns: str, rest: str, *values: str) -> list[Any]:
        """Return the rows that a query finds; none where nothing can be read."""
        try:
            with closing(sqlite3.connect(self._place, uri=True)) as store:
                return store.execute(f"select {columns} from {rest}", values).fetchall()  # noqa: S608  columns of ours
        except sqlite3.Error:
            return []

    def get_model_version(self, name: str, version: str) -> Any:
        """Return a version's row."""
        rows = self.select("name, version, source, run_id, creation_time", _VERSION, name, version)
        if not rows:
            return self._make().get_model_version(name, version)
        where = "model_version_tags where workspace='default' and name=? and version=?"
        tags = dict(self.select("key, value", where, name, version))
        named = dict(zip(("name", "version", "source", "run_id", "creation_timestamp"), rows[0], strict=True))
        return SimpleNamespace(**named, tags=tags)

    def get_model_version_by_alias(self, name: str, alias: str) -> Any:
        """Return the row that an alias names."""
        where = "registered_model_aliases where workspace='default' and name=? and alias=?"
        rows = [] if alias.lower() == "latest" else self.select("version", where, name, alias)
        if not rows:
            return self._make().get_model_version_by_alias(name, alias)
        return self.get_model_version(name, str(rows[0][0]))

    def get_model_version_download_uri(self, name: str, version: str) -> str:
        """Return where a version's files lie."""
        rows = self.select("coalesce(nullif(storage_location, ''), source)", _VERSION, name, version)
        return str(rows[0][0] if rows else self._make().get_model_version_download_uri(name, version))

    def get_logged_model(self, model_id: str) -> Any:
        """Return a logged model."""
        where = "logged_models where model_id=? and lifecycle_stage='active'"
        rows = self.select("artifact_location, source_run_id", where, model_id)
        if not rows:
            return self._make().get_logged_model(model_id)
        tags = dict(self.select("tag_key, tag_value", "logged_model_tags where model_id=?", model_id))
        return SimpleNamespace(artifact_location=rows[0][0], source_run_id=rows[0][1], tags=tags)

    def get_run(self, run_id: str) -> Any:
        """Return a run, which says where it keeps its artifacts."""
        rows = self.select("artifact_uri", "runs where run_uuid=? and lifecycle_stage='active'", run_id)
        return SimpleNamespace(info=SimpleNamespace(artifact_uri=rows[0][0])) if rows else self._make().get_run(run_id)
