"""What MLflow's client would be told by its environment: where the registry is, who asks, and how patiently.

Where that client would do more than a plain request (plugins that add headers or sign requests, a registry of another
address), it must be used itself.
"""

import base64
import configparser
import os
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from privgate.errors import RegistryError

if TYPE_CHECKING:
    import requests

_HTTP = ("http://", "https://")
#: MLflow's own list of answers that may be different a moment later
_PASSING = (408, 429, 500, 502, 503, 504)
_TRUE = {"true", "1"}
#: MLflow tries a dead server again for minutes; a few seconds must do, unless the environment says otherwise
TRIES, BACKOFF = 2, 1


def address_for(tracking_uri: str | None) -> str | None:
    """Return the address that MLflow would talk to, or None where MLflow itself must do it."""
    wanted = _asked_of_mlflow(tracking_uri) if "mlflow" in sys.modules else _asked_of_environment(tracking_uri)
    if wanted is None or not wanted.startswith(_HTTP) or _needs_mlflow():
        return None
    return wanted


def _asked_of_environment(tracking_uri: str | None) -> str | None:
    wanted = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    return wanted if os.environ.get("MLFLOW_REGISTRY_URI") in {None, "", wanted} else None


def _asked_of_mlflow(tracking_uri: str | None) -> str | None:
    """Ask MLflow where it is loaded anyway: a program may have set its addresses."""
    import mlflow

    wanted = tracking_uri or str(mlflow.get_tracking_uri())
    if not wanted.startswith(_HTTP):
        return None  # its client would open a database
    return wanted if mlflow.MlflowClient(wanted)._registry_uri == wanted else None  # noqa: SLF001  nothing else tells


def _needs_mlflow() -> bool:
    """Whether something else than a plain request is configured."""
    return bool(
        os.environ.get("MLFLOW_TRACKING_AUTH")
        or is_set("MLFLOW_TRACKING_AWS_SIGV4")
        or (is_set("MLFLOW_TRACKING_INSECURE_TLS") and os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH"))
        or entry_points(group="mlflow.request_header_provider")
    )


def is_set(variable: str, default: str = "false") -> bool:
    """Whether a switch of the environment is on, as MLflow reads it."""
    return os.environ.get(variable, default).lower() in _TRUE


def session() -> "requests.Session":
    """Return a session with MLflow's patience, workspace and credentials."""
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.util import Retry

    tries = int(os.environ.get("MLFLOW_HTTP_REQUEST_MAX_RETRIES") or TRIES)
    patience = Retry(
        total=tries,
        backoff_factor=float(os.environ.get("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR") or BACKOFF),
        status_forcelist=_PASSING,
        respect_retry_after_header=is_set("MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER", "true"),
        raise_on_status=True,
    )
    made = requests.Session()
    for scheme in ("http://", "https://"):
        made.mount(scheme, HTTPAdapter(pool_maxsize=32, max_retries=patience))
    made.headers["User-Agent"] = "privgate"
    if workspace := os.environ.get("MLFLOW_WORKSPACE", "").strip():
        made.headers["X-MLFLOW-WORKSPACE"] = workspace
    if authorization := _authorization():
        made.headers["Authorization"] = authorization
    return made


def _authorization() -> str:
    """Return the header that MLflow's client would send: a password goes before a token."""
    kept, path = configparser.ConfigParser(interpolation=None), Path("~/.mlflow/credentials").expanduser()
    try:
        kept.read(path)
    except (configparser.Error, UnicodeDecodeError) as exc:
        raise RegistryError(f"{path} cannot be read ({type(exc).__name__}); write it as MLflow documents") from exc
    user, password = (
        os.environ.get(name.upper()) or kept.get("mlflow", name, fallback="") or ""
        for name in ("mlflow_tracking_username", "mlflow_tracking_password")
    )
    if user and password:
        return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    return f"Bearer {token}" if token else ""
