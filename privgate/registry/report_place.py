"""Where the reports about a logged model lie: with its run, never in the folder that is served, nor at any address."""

from pathlib import Path
from typing import Any

from privgate.errors import SubjectError
from privgate.registry import layout
from privgate.registry.addresses import refuse_written
from privgate.registry.client import answering

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

    ``SubjectError``: there can be none: the model has no run.
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
    refuse_written(place, tracking_uri=str(client.tracking_uri))


def location_of_experiment(client: Any, experiment_id: str) -> str:
    """Return where an experiment's artifacts lie."""
    return str(client.get_experiment(experiment_id).artifact_location)


def keep(client: Any, model_id: str, files: Path, place: str) -> str:
    """Copy the files of a folder to ``place`` within the artifacts of the model's run, and return that run.

    ``RegistryError``: those are not the registry's own; nothing was sent there.
    """
    run_id = refuse_elsewhere(client, model_id) or _new_run(client, model_id)
    client.log_artifacts(run_id, str(files), place)
    return run_id


def _new_run(client: Any, model_id: str) -> str:
    made = client.create_run(client.get_logged_model(model_id).experiment_id, run_name="privgate reports")
    client.set_terminated(made.info.run_id)
    client.set_logged_model_tags(model_id, {RUN_TAG: made.info.run_id})
    return str(made.info.run_id)
