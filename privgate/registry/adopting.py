"""Giving a recipe to a version that has none: one of MLflow 2, or one whose files were put there by hand."""

import tempfile
from pathlib import Path
from typing import Any

from privgate.errors import SubjectError
from privgate.registry import layout, mlmodel, report_place, training_data
from privgate.registry.client import answering, connect, download, tracking_at
from privgate.registry.log import log_recipe
from privgate.registry.named import named
from privgate.registry.names import plain_name
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.release import Release

#: tags by which the two versions name each other; for people, no evidence
FROM, AS = "privgate.adopted_from", "privgate.adopted_as"


def adopt(
    uri: str,
    recipe: Recipe,
    data: TrainingData,
    *,
    release: Release | None = None,
    tracking_uri: str | None = None,
    store: str | Path | None = None,
    data_uri: str | None = None,
) -> str:
    """Attach recipe and data reference to a registered version, and return the URI of the version that has them.

    Where the version is a logged model of MLflow 3, that is the version itself. Any other has no place that a recipe
    can lie in and a statement can name: its files become a logged model, byte by byte, and that a new version of the
    same registered model. The old one stays as it is.

    Parameters
    ----------
    uri : str
        ``models:/name/version`` or ``models:/name@alias``.
    recipe, data, release, tracking_uri, store, data_uri
        As in ``log_recipe``.

    Raises
    ------
    SubjectError
        The files are no model that can be checked, or recipe or data cannot be recorded.
    RegistryError
        MLflow refused or did not answer.
    """
    import mlflow

    client = connect(tracking_uri)
    try:
        present = named(client, uri)
    except SubjectError:
        present = None
    about: dict[str, Any] = {"release": release, "tracking_uri": tracking_uri, "store": store, "data_uri": data_uri}
    if present is not None:
        log_recipe(f"models:/{present.model_id}", recipe, data, **about)
        return uri
    training_data.refuse_without_place(data, store, data_uri)  # before anything is made
    recipe.digest  # noqa: B018  ditto: collects its sources
    row = _row(client, uri)
    with tempfile.TemporaryDirectory() as place, answering(f"adopting {uri}"):
        storage = str(client.get_model_version_download_uri(row.name, row.version))
        folder = download(storage, Path(place, "model"), tracking_uri=client.tracking_uri)
        mlmodel.flavor_of(folder)
        files = layout.all_files(folder)
        if any(name.startswith(f"{layout.FOLDER}/") for name in files):
            raise SubjectError(f"the files of {uri} hold a folder {layout.FOLDER!r} of their own; log the model again")
        name, experiment = layout.path_part(row.name), _experiment(client, row)
        report_place.refuse_place(client, report_place.location_of_experiment(client, experiment))
        made = client.create_logged_model(experiment, name=name, source_run_id=row.run_id or None)
        client.log_model_artifacts(made.model_id, str(folder))
        client.finalize_logged_model(made.model_id, "READY")
        again = download(made.artifact_location, Path(place, "again"), tracking_uri=client.tracking_uri)
        layout.compare(files, layout.all_files(again), "model")
        log_recipe(f"models:/{made.model_id}", recipe, data, **about)
        with tracking_at(tracking_uri):
            told = {FROM: f"models:/{row.name}/{row.version}"}
            version = str(mlflow.register_model(f"models:/{made.model_id}", row.name, tags=told).version)
        client.set_model_version_tag(row.name, row.version, AS, f"models:/{row.name}/{version}")
    return f"models:/{row.name}/{version}"


def _row(client: Any, uri: str) -> Any:
    name, _, version = uri.removeprefix("models:/").partition("/")
    with answering(f"reading {uri}"):
        if version.isdigit():
            row = client.get_model_version(name, version)
        else:
            name, _, alias = uri.removeprefix("models:/").rpartition("@")
            row = client.get_model_version_by_alias(name, alias)
    plain_name(row.name, uri)
    return row


def _experiment(client: Any, row: Any) -> str:
    if row.run_id:
        return str(client.get_run(row.run_id).info.experiment_id)
    return "0"
