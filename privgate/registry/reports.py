"""Reports that were attached before: one version's, and those of every version that an alias names."""

from collections.abc import Iterator
from typing import Any

from privgate.documents import LARGE, DocumentError, strict_json
from privgate.errors import PrivgateError, SubjectError
from privgate.registry import layout, report_place
from privgate.registry.addresses import refuse_files
from privgate.registry.client import answering, connect
from privgate.registry.named import named
from privgate.registry.stored_files import stored_files


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
    # artifacts written by other tools are not ours to trust: a report is display, a signed statement is evidence
    with stored_files(client, _place(client, present.model_id, uri)) as stored:
        wanted = [p for p in stored.names() if p.count("/") == 1 and p.endswith("/report.json")]
        if policy is not None:
            wanted = [p for p in wanted if p.partition("/")[0] == layout.path_part(policy)]
        found = [_document(stored.read(path), f"{path} attached to {uri}") for path in wanted]
    documents = [d for d in found if d is not None]
    if not documents:
        which = f" by policy {policy!r}" if policy else ""
        raise SubjectError(f"no report{which} is attached to {uri}; run privgate check on it first")
    return max(documents, key=lambda d: str(d.get("decided_at", "")))


def _place(client: Any, model_id: str, uri: str) -> str:
    """Return where the reports about a model lie; refuse those that lie in the served folder."""
    with answering(f"reading the reports of {uri}"):
        run_id = report_place.run_of(client, model_id)
        if run_id:  # listing sends credentials, too
            refuse_files(location := report_place.location_of(client, model_id), tracking_uri=client.tracking_uri)
            if client.list_artifacts(run_id, report_place.folder_of(model_id)):
                return location
        refuse_files(client.get_logged_model(model_id).artifact_location, tracking_uri=client.tracking_uri)
        if client.list_logged_model_artifacts(model_id, layout.OLD_REPORTS):
            raise SubjectError(
                f"the reports of {uri} lie in the served folder, where an earlier privgate kept them, and do not "
                "count; check it again"
            )
    raise SubjectError(f"no report is attached to {uri}; run privgate check on it first")


def _document(content: bytes, name: str) -> dict[str, Any] | None:
    try:
        document = strict_json.loads(content, LARGE)
    except DocumentError as exc:
        raise SubjectError(f"{name} {exc}") from exc
    return document if isinstance(document, dict) else None


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
            except PrivgateError as exc:  # whoever was never checked has no problem to tell
                never = isinstance(exc, SubjectError) and str(exc).startswith("no report")
                row |= {"document": None} if never else {"problem": str(exc)}
            yield row
        token = page.token
        if not token:
            return
