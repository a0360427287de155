"""Where the reports about a logged model lie, with its run and never in the folder that is served; and reading them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from privgate.documents import LARGE, DocumentError, strict_json
from privgate.errors import PrivgateError, SubjectError
from privgate.registry.client import answering, connect, list_pages, stored_files
from privgate.registry.files import OLD_REPORTS, REPORTS, path_part, refuse_files, refuse_written
from privgate.registry.named import named

#: tag of a logged model that was logged in no run: the run that keeps its reports
RUN_TAG = "privgate.reports_run"


def folder_of(model_id: str, policy: str = "") -> str:
    """Return the folder, within the run's artifacts, of the reports about a model, or of those by one policy."""
    return f"{REPORTS}/{path_part(model_id)}" + (f"/{path_part(policy)}" if policy else "")


def run_of(client: Any, model_id: str) -> str:
    """Return the run that keeps the reports about a logged model; empty while nobody has made one."""
    held = client.get_logged_model(model_id)
    return str(held.source_run_id or dict(held.tags).get(RUN_TAG, ""))


def location_of(client: Any, model_id: str) -> str:
    """Return where the reports about a logged model lie; ``SubjectError``: there can be none, it has no run."""
    with answering(f"finding the reports about {model_id}"):
        run_id = run_of(client, model_id)
        if not run_id:
            raise SubjectError(f"no report is kept about {model_id}; run privgate check on it")
        root = str(client.get_run(run_id).info.artifact_uri)
    return f"{root.rstrip('/')}/{folder_of(model_id)}"


def refuse_elsewhere(client: Any, model_id: str) -> str:
    """Refuse reports where only the maker of an experiment says; return the run looked at, empty for none yet."""
    if run_id := run_of(client, model_id):
        place = str(client.get_run(run_id).info.artifact_uri)
    else:
        experiment = str(client.get_logged_model(model_id).experiment_id)
        place = str(client.get_experiment(experiment).artifact_location)
    refuse_place(client, place)
    return run_id


def refuse_place(client: Any, place: str) -> None:
    """Refuse to write at a place of artifacts that is neither the registry's own nor listed."""
    refuse_written(place, tracking_uri=str(client.tracking_uri))


def keep(client: Any, model_id: str, files: Path, place: str) -> str:
    """Copy a folder to ``place`` within the artifacts of the model's run, and return the run; not where others say."""
    if not (run_id := refuse_elsewhere(client, model_id)):
        fresh = client.create_run(client.get_logged_model(model_id).experiment_id, run_name="privgate reports")
        run_id = str(fresh.info.run_id)
        client.set_terminated(run_id)
        client.set_logged_model_tags(model_id, {RUN_TAG: run_id})
    client.log_artifacts(run_id, str(files), place)
    return run_id


def attached(uri: str, *, policy: str | None = None, tracking_uri: str | None = None) -> dict[str, Any]:
    """Return the report attached to ``models:/…``, the last or that by a policy; ``SubjectError``: there is none."""
    client = connect(tracking_uri)
    present = named(client, uri)
    # artifacts written by other tools are not ours to trust: a report is display, a signed statement is evidence
    with stored_files(client, _place(client, present.model_id, uri)) as stored:
        wanted = [p for p in stored.names() if p.count("/") == 1 and p.endswith("/report.json")]
        if policy is not None:
            wanted = [p for p in wanted if p.partition("/")[0] == path_part(policy)]
        documents = []
        for path in wanted:
            try:
                documents.append(strict_json.loads(stored.read(path), LARGE))
            except DocumentError as exc:
                raise SubjectError(f"{path} attached to {uri} {exc}") from exc
    documents = [document for document in documents if isinstance(document, dict)]
    if not documents:
        which = f" by policy {policy!r}" if policy else ""
        raise SubjectError(f"no report{which} is attached to {uri}; run privgate check on it first")
    return max(documents, key=lambda d: str(d.get("decided_at", "")))


def _place(client: Any, model_id: str, uri: str) -> str:
    """Return where the reports about a model lie; refuse those that lie in the served folder."""
    with answering(f"reading the reports of {uri}"):
        run_id = run_of(client, model_id)
        if run_id:  # listing sends credentials, too
            refuse_files(location := location_of(client, model_id), tracking_uri=client.tracking_uri)
            if client.list_artifacts(run_id, folder_of(model_id)):
                return location
        refuse_files(client.get_logged_model(model_id).artifact_location, tracking_uri=client.tracking_uri)
        if client.list_logged_model_artifacts(model_id, OLD_REPORTS):
            raise SubjectError(
                f"the reports of {uri} lie in the served folder, where an earlier privgate kept them, and do not "
                "count; check it again"
            )
    raise SubjectError(f"no report is attached to {uri}; run privgate check on it first")


def in_use(alias: str, *, tracking_uri: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield one row a registered model that ``alias`` names: name, version, alias, document or problem."""
    client = connect(tracking_uri)
    with answering("listing registered models"):
        models = list(list_pages(client.search_registered_models))
    for model in models:
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
