"""Reports that were attached before: one version's, and those of every version that an alias names."""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from privgate.documents import LARGE, DocumentError, strict_json
from privgate.errors import PrivgateError, RegistryError, SubjectError
from privgate.registry import layout
from privgate.registry.client import answering, connect, named


def attached(uri: str, *, policy: str | None = None, tracking_uri: str | None = None) -> dict[str, Any]:
    """Return the report document attached to a model version: the last decided one, or that of one policy.

    Parameters
    ----------
    uri : str
        ``models:/name/version`` or ``models:/name@alias``.
    policy : str, optional
        Name of the policy whose report is wanted.
    tracking_uri : str, optional
        MLflow server or store; the environment's if absent.

    Raises
    ------
    SubjectError
        No report is attached, or it is about other files than the version has now.
    """
    client = connect(tracking_uri)
    present = named(client, uri)
    with answering(f"reading the reports of {uri}"), tempfile.TemporaryDirectory() as place:
        # artifacts written by other tools are not ours to trust: a report is display, a signed statement is evidence
        kept = [p.path for p in client.list_logged_model_artifacts(present.model_id, layout.REPORTS)]
        wanted = [p for p in kept if policy is None or Path(p).name == layout.path_part(policy)]
        found = [_read(client, present.model_id, path, Path(place)) for path in wanted]
    documents = [d for d in found if d is not None]
    if not documents:
        which = f" by policy {policy!r}" if policy else ""
        raise SubjectError(f"no report{which} is attached to {uri}; run privgate check on it first")
    return max(documents, key=lambda d: str(d.get("decided_at", "")))


def _read(client: Any, model_id: str, path: str, place: Path) -> dict[str, Any] | None:
    held = [p.path for p in client.list_logged_model_artifacts(model_id, path)]
    name = f"{path}/report.json"
    if name not in held:
        return None
    local = _fetch(client, model_id, name, place / Path(path).name)
    try:
        document = strict_json.read(Path(local), LARGE)
    except DocumentError as exc:
        raise SubjectError(f"{name} attached to {model_id} {exc}") from exc
    return document if isinstance(document, dict) else None


def _fetch(client: Any, model_id: str, path: str, place: Path) -> str:
    import mlflow

    place.mkdir(parents=True, exist_ok=True)
    uri = f"{client.get_logged_model(model_id).artifact_location.rstrip('/')}/{path}"
    return str(mlflow.artifacts.download_artifacts(uri, dst_path=str(place), tracking_uri=client.tracking_uri))


def baseline(subject_name: str, alias: str, *, tracking_uri: str | None = None) -> Mapping[str, Any] | None:
    """Return the report of the approved version that ``alias`` names now, or None where there is none."""
    if not subject_name:
        return None
    try:
        document = attached(f"models:/{subject_name}@{alias}", tracking_uri=tracking_uri)
    except (SubjectError, RegistryError):
        # nothing was approved before: a comparison is an extra, never a condition
        return None
    return document if document.get("approved") is True else None


def in_use(alias: str, *, tracking_uri: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield one row a registered model that ``alias`` names: name, version, alias, document or problem."""
    client = connect(tracking_uri)
    token = None
    while True:
        with answering("listing registered models"):
            page = client.search_registered_models(max_results=200, page_token=token)
        for model in page:
            version = dict(model.aliases or {}).get(alias)
            if version is None:
                continue
            row: dict[str, Any] = {"name": model.name, "version": str(version), "alias": alias}
            try:
                row["document"] = attached(f"models:/{model.name}/{version}", tracking_uri=tracking_uri)
            except SubjectError:
                row["document"] = None
            except PrivgateError as exc:
                row["problem"] = str(exc)
            yield row
        token = page.token
        if not token:
            return
