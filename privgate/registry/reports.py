"""Reports that were attached before, and where the reports about a logged model lie."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from privgate.documents import LARGE, DocumentError, strict_json
from privgate.errors import PrivgateError, RegistryError, SubjectError
from privgate.registry import layout
from privgate.registry.addresses import refuse_files, refuse_written
from privgate.registry.client import address_of, answering, connect
from privgate.registry.named import named, plain_name
from privgate.registry.stored_files import stored_files
from privgate.subject.subject import Subject

# Where the reports about a logged model lie: with its run, never in the folder that is served, nor at any address.

#: tag of a logged model that was logged in no run: the run that keeps its reports
RUN_TAG = "privgate.reports_run"


def folder_of(model_id: str, policy: str = "") -> str:
    """Return the folder, within the run's artifacts, of the reports about a model, or of those by one policy."""
    return f"{layout.REPORTS}/{layout.path_part(model_id)}" + (f"/{layout.path_part(policy)}" if policy else "")


def run_of(client: Any, model_id: str) -> str:
    """Return the run that keeps the reports about a logged model; empty while nobody has made one."""
    held = client.get_logged_model(model_id)
    return str(held.source_run_id or dict(held.tags).get(RUN_TAG, ""))


def location_of(client: Any, model_id: str) -> str:
    """Return where the reports about a logged model lie.

    Raises
    ------
    SubjectError
        There can be none: the model has no run.
    """
    with answering(f"finding the reports about {model_id}"):
        run_id = run_of(client, model_id)
        if not run_id:
            raise SubjectError(f"no report is kept about {model_id}; run privgate check on it")
        root = str(client.get_run(run_id).info.artifact_uri)
    return f"{root.rstrip('/')}/{folder_of(model_id)}"


def refuse_elsewhere(client: Any, model_id: str) -> str:
    """Refuse a model whose reports would be written where only the maker of its experiment says.

    Returns
    -------
    str
        The run that was looked at; a tag may name another one a moment later. Empty while nobody has made one.

    Raises
    ------
    RegistryError
        Nothing was sent there.
    """
    if run_id := run_of(client, model_id):
        place = str(client.get_run(run_id).info.artifact_uri)
    else:
        place = location_of_experiment(client, str(client.get_logged_model(model_id).experiment_id))
    refuse_place(client, place)
    return run_id


def refuse_place(client: Any, place: str) -> None:
    """Refuse to write at a place of artifacts that is neither the registry's own nor listed."""
    try:
        with answering("reading the first experiment"):
            first = location_of_experiment(client, "0")
    except RegistryError:  # deleted for good, or not ours to read
        first = ""
    refuse_written(place, tracking_uri=str(client.tracking_uri), first=first)


def location_of_experiment(client: Any, experiment_id: str) -> str:
    """Return where an experiment's artifacts lie."""
    return str(client.get_experiment(experiment_id).artifact_location)


def keep(client: Any, model_id: str, files: Path, place: str) -> str:
    """Copy the files of a folder to ``place`` within the artifacts of the model's run, and return that run.

    Raises
    ------
    RegistryError
        Those are not the registry's own; nothing was sent there.
    """
    run_id = refuse_elsewhere(client, model_id) or _new_run(client, model_id)
    client.log_artifacts(run_id, str(files), place)
    return run_id


def _new_run(client: Any, model_id: str) -> str:
    made = client.create_run(client.get_logged_model(model_id).experiment_id, run_name="privgate reports")
    client.set_terminated(made.info.run_id)
    client.set_logged_model_tags(model_id, {RUN_TAG: made.info.run_id})
    return str(made.info.run_id)


# Reports that were attached before: one version's, and those of every version that an alias names.

#: newest versions among which an approved one is looked for
_LOOKED_AT = 10


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
        run_id = run_of(client, model_id)
        if run_id:  # listing sends credentials, too
            refuse_files(location := location_of(client, model_id), tracking_uri=client.tracking_uri)
            if client.list_artifacts(run_id, folder_of(model_id)):
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


def approved_before(subject: Subject) -> Mapping[str, Any] | None:
    """Return the report of the newest other version of the same model that was approved; None where there is none.

    A report is display, no evidence: whoever compares with one may find more by it, never less.
    """
    address = address_of(str(subject.detail.get("model_id", "")))
    if not (subject.name and subject.version and address):
        return None
    client = connect(address)
    with answering(f"listing the versions of {subject.name}"):
        found = client.search_model_versions(f"name='{plain_name(subject.name, subject.name)}'")
    others = sorted((int(v.version) for v in found if str(v.version) != subject.version), reverse=True)
    for version in others[:_LOOKED_AT]:
        with contextlib.suppress(SubjectError, RegistryError):
            document = attached(f"models:/{subject.name}/{version}", tracking_uri=address)
            if document.get("approved") is True:
                return document
    return None
