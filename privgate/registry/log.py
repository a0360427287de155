"""Logging: train once, store model, recipe and data reference, register; or give a version without one its recipe."""

import datetime as dt
import getpass
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, get_args

import numpy as np

from privgate import digest
from privgate.errors import SubjectError, UsageError
from privgate.registry import load, mlmodel, native, training_data
from privgate.registry.client import EXPERIMENTS, answering, connect, download, tracking_at
from privgate.registry.files import (
    FOLDER,
    RECIPE,
    SCHEMA,
    SOURCES,
    all_files,
    compare,
    model_files,
    path_part,
    refuse_written,
)
from privgate.registry.named import find_version, named, plain_name
from privgate.registry.native import StoredModel
from privgate.subject import sources, tasks
from privgate.subject.accepted_questions import is_double
from privgate.subject.containers import take
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.release import Release, Serve
from privgate.subject.subject import Subject

#: says of a subject what a check will find too few; checks are floors above, so that the package root wires it
FORESEEING: list[Callable[[Subject], Iterable[str]]] = []
_MOST_TRIED = 10_000  # records that a schema is tried on, as many as a check sends
_SHOWN = 5  # records that an example shows


def log_model(
    recipe: Recipe,
    data: TrainingData,
    *,
    registered_model_name: str | None = None,
    name: str = "model",
    release: Release | None = None,
    tracking_uri: str | None = None,
    store: str | Path | None = None,
    tags: Mapping[str, str] | None = None,
    trained: Callable[[TrainingData], Any] | None = None,
) -> Any:
    """Store the data, train once, here, on what is read back, log model, recipe and data reference; then register.

    Training has one thread, as every training of a check has. No version exists without its recipe.

    Parameters
    ----------
    recipe, data : Recipe, TrainingData
        What to train, on what.
    registered_model_name, name, tags : str, str, mapping
        Registered model to add a version to, if any; name of the logged model within its run; tags of the version.
    release : Release, optional
        What the deployed model will return, which MLflow is set to serve; exact probabilities if absent.
    tracking_uri : str, optional
        MLflow server or store; the environment's if absent.
    store : str or Path, optional
        Folder or URI that the gate may read, for data without a source. ``"artifacts"`` uploads them with the run:
        every reader of its experiment's artifacts then reads them in clear.
    trained : callable, optional
        Gives the model from the data as they are read back; a check trains by the recipe all the same, and compares.

    Returns
    -------
    mlflow.models.model.ModelInfo
        With ``model_id`` and ``registered_model_version``.

    Raises
    ------
    UsageError, SubjectError, RegistryError
        No ``store`` for data in memory; recipe, data or model cannot be stored; MLflow refused.
    """
    import mlflow

    release, packages = _judgeable(recipe, data, release)
    subject = Subject(recipe, data, release=release)
    for sentence in (said for foresee in FORESEEING for said in foresee(subject)):
        sys.stderr.write(f"privgate: {sentence}\n")
    with training_data.kept(data, store=store) as kept:
        data = kept.data
        with _as_checked(recipe):
            model = recipe.train(data.X, data.y, seed=recipe.seed) if trained is None else trained(data)
        if why := recipe.answerless(model):
            raise SubjectError(why)
        _try_prediction(recipe, model, data, subject.classes)
        ours = EXPERIMENTS.get(tracking_uri or "")  # else MLflow's choice
        with (
            tracking_at(tracking_uri),
            answering(f"logging {name!r}"),
            nullcontext() if mlflow.active_run() else mlflow.start_run(experiment_id=ours),
        ):
            info = native.log(
                model,
                name=name,
                example=take(data.X, np.arange(min(_SHOWN, data.n))),
                questions=data.at(np.arange(data.pool_size)[:: max(1, data.pool_size // _MOST_TRIED)]),
                requirements=native.requirements(packages),
                own_classes=any(r.startswith(f"{sources.main_module()}:") for r in recipe._references()),  # noqa: SLF001  one package
                serving=native.Serving(recipe, release, subject.classes, _accepted(data)),
            )
            _attach(info, recipe, kept, packages, release=release, tracking_uri=tracking_uri)
            if registered_model_name is not None:
                row = mlflow.register_model(f"models:/{info.model_id}", registered_model_name, tags=dict(tags or {}))
                info.registered_model_version = int(row.version)
    return info


def log_recipe(
    info_or_uri: Any,
    recipe: Recipe,
    data: TrainingData,
    *,
    release: Release | None = None,
    tracking_uri: str | None = None,
    store: str | Path | None = None,
    serve: Serve | None = None,
) -> str:
    """Attach recipe and data reference to a model that a script has logged itself, and return the recipe's digest.

    Twice replaces the first. What MLflow serves stays as the script has set it: ``check`` compares it with ``release``.
    With ``serve`` the URI of a new version is returned, or of the logged model where none is registered.

    Parameters
    ----------
    info_or_uri : ModelInfo, LoggedModel or str
        What ``mlflow.<flavor>.log_model`` returned, or ``models:/…``.
    recipe, data, release, tracking_uri, store
        As in ``log_model``, and so are the errors; data that reading back changes are refused, naming the column.
    serve : {"probabilities"}, optional
        Opens the fitted model here and logs it again, so that MLflow serves what ``release`` declares; most flavors
        serve labels. The version that was logged stays as it is.
    """
    if serve is not None:
        if serve not in get_args(Serve):
            raise UsageError(f"serve={serve!r}: it is one of {', '.join(get_args(Serve))}, or left out")
        return _serve(info_or_uri, recipe, data, {"release": release, "tracking_uri": tracking_uri, "store": store})
    release, packages = _judgeable(recipe, data, release)
    with training_data.kept(data, store=store) as kept:
        training_data.refuse_changes(data, kept.data)
        _attach(info_or_uri, recipe, kept, packages, release=release, tracking_uri=tracking_uri)
    return recipe.digest


def _serve(info_or_uri: Any, recipe: Recipe, data: TrainingData, about: dict[str, Any]) -> str:
    """Log the very model of a version again, by a way of which MLflow serves the declared probabilities."""
    import mlflow

    release = about["release"] or Release()
    if release.form != "probabilities" or recipe.task == "regression" or data.y.dtype.kind == "f":
        raise UsageError("serve='probabilities' is for classifiers whose release is probabilities")
    client = connect(about["tracking_uri"])
    uri, storage, name, own_run = _locate(client, info_or_uri)
    with tempfile.TemporaryDirectory() as place, answering(f"opening {uri}"):
        folder = download(storage, Path(place, "model"), tracking_uri=client.tracking_uri)
        held = StoredModel(folder, mlmodel.flavor_of(folder), None, tuple(sorted(all_files(folder).items()))).load()
        run_id = None if mlflow.active_run() else own_run
        before = client.get_run(run_id).info if run_id else None
        try:
            with tracking_at(about["tracking_uri"]), mlflow.start_run(run_id) if run_id else nullcontext():
                about |= {"registered_model_name": name, "tags": {"privgate.adopted_from": uri}}
                info = log_model(recipe, data, trained=lambda _: held, **about)
        finally:  # the training of the owner ended when and as it did, whatever was refused here
            if before is not None:
                client.set_terminated(run_id, before.status, before.end_time)
    return f"models:/{name}/{info.registered_model_version}" if name else f"models:/{info.model_id}"


def _locate(client: Any, info_or_uri: Any) -> tuple[str, str, str | None, str | None]:
    """Return (URI, where the files lie, registered model, run) of what was logged; None where there is none."""
    given = getattr(info_or_uri, "model_id", None)
    uri = f"models:/{given}" if given else str(info_or_uri)
    name, version = find_version(client, uri)
    with answering(f"reading {uri}"):
        if version:
            row = client.get_model_version(name, version)
            storage = str(client.get_model_version_download_uri(name, version))
            return f"models:/{name}/{version}", storage, plain_name(name, uri), row.run_id or None
        logged = client.get_logged_model(name)
        versions = json.loads(dict(logged.tags).get("mlflow.modelVersions", "[]"))
    last = versions[-1] if versions else {"name": None}
    old = f"models:/{last['name']}/{last['version']}" if versions else uri
    return old, str(logged.artifact_location), last["name"], logged.source_run_id or None


def _attach(
    info_or_uri: Any,
    recipe: Recipe,
    kept: training_data.Kept,
    packages: Any,
    *,
    release: Release,
    tracking_uri: str | None,
) -> None:
    client = connect(tracking_uri)
    given = getattr(info_or_uri, "model_id", None)
    present = named(client, f"models:/{given}" if given else str(info_or_uri))
    with answering(f"reading {present.model_id}"):
        logged = client.get_logged_model(present.model_id)
        if not (run_id := logged.source_run_id):
            run = client.create_run(logged.experiment_id, run_name="training data")
            client.set_terminated(run_id := str(run.info.run_id))
    with tempfile.TemporaryDirectory() as place:
        folder = download(present.storage, Path(place, "model"), tracking_uri=client.tracking_uri)
        mlmodel.flavor_of(folder)
        files = model_files(folder)
        held = {name: f"sha256:{hashlib.sha256(text).hexdigest()}" for name, text in sorted(recipe.snapshot.items())}
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "recipe": dict(recipe.payload),
            "recipe_digest": recipe.digest,
            "sources": {"folder": f"{SOURCES}/{recipe.digest.removeprefix('sha256:')[:16]}", "files": held},
            "model": {"files": files, "digest": digest.of_manifest(files)},
            "data": kept.with_run(client, run_id),
            "environment": packages,
            "release": release.payload(),
            "logged_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        }
        written = Path(place, "written")
        sources.write(recipe.snapshot, written / document["sources"]["folder"])
        with answering(f"attaching the recipe to {present.model_id}"):
            _upload_recipe(client, present.model_id, _state_people(document, kept.data.people_declared), written)


def _upload_recipe(client: Any, model_id: str, document: Mapping[str, Any], root: Path) -> None:
    (root / RECIPE).parent.mkdir(parents=True, exist_ok=True)
    (root / RECIPE).write_text(json.dumps(document, indent=1), encoding="utf-8")
    client.log_model_artifacts(model_id, str(root))


@contextmanager
def _as_checked(recipe: Recipe) -> Iterator[None]:
    """Train as every check does: one thread, one process; sums in another order have another last bit."""
    import sklearn
    from joblib import parallel_config
    from mlflow.utils.autologging_utils import disable_autologging
    from threadpoolctl import threadpool_limits

    with ThreadPoolExecutor(1) as new:
        usual = new.submit(sklearn.get_config).result()
    kept = any(b"set_config" in text for text in recipe.snapshot.values())
    lost = {k: v for k, v in sklearn.get_config().items() if v != usual[k] and not kept}
    as_there = sklearn.config_context(**{k: usual[k] for k in lost})
    with threadpool_limits(1), parallel_config(backend="sequential"), disable_autologging(), as_there:
        try:
            yield
        except Exception as exc:
            if not lost:
                raise
            raise SubjectError(
                f"training raised {type(exc).__name__}: {exc}; a check trains without sklearn.set_config(**{lost}), "
                "which no source of the recipe says: write it at the top of the training function's module"
            ) from exc


def _try_prediction(recipe: Recipe, model: Any, data: TrainingData, classes: Any) -> None:
    if recipe.task == "regression" or data.y.dtype.kind == "f":
        return
    try:
        recipe.probabilities(model, take(data.X, np.arange(min(_SHOWN, data.n))), classes)
    except SubjectError:
        raise
    except Exception as exc:  # the user's code may raise anything
        raise SubjectError(f"the trained model cannot be asked: prediction raised {type(exc).__name__}: {exc}") from exc


def _accepted(data: TrainingData) -> dict[str, Any] | None:
    domain = data.domain
    if domain is None or not domain.holds(data.pool()[0]).all():
        return None
    names = [c if isinstance(c, str) else int(c) for c in getattr(data.X, "columns", ())]
    return {**domain.payload(), "double": is_double(data.X), **({"names": names} if names else {})}


def _judgeable(recipe: Recipe, data: TrainingData, release: Release | None) -> tuple[Release, dict[str, Any]]:
    """Return the release and the environment to record; refuse, before anything is trained, what no check can judge."""
    if why := recipe.refusal:
        raise SubjectError(why)
    if why := recipe.unclear_task(data.y):
        raise SubjectError(f"{why}: {tasks.QUESTION}")
    release = Subject(recipe, data, release=release or Release()).release  # refuses what no such model releases
    modules = {r.partition(".")[0].partition(":")[0] for r in recipe._references()}  # noqa: SLF001  one package
    packages = native.record(modules | sources.imported_names(recipe.snapshot))
    if recipe.task != "regression":  # numbers need not be any training record's
        training_data.refuse_new_labels(data)
    return release, packages


def _state_people(document: Mapping[str, Any], declared: str) -> dict[str, Any]:
    user = ""
    with suppress(KeyError, OSError):  # of a container without a name for its user
        user = getpass.getuser()
    stated = {**document, "people": {"declared": declared, "by": user}} if declared else document
    return {**stated, "digest": digest.of_json(stated)}


def declare_people(uri: str, declared: str, *, tracking_uri: str | None = None) -> None:
    """Declare beside a registered version whose its records are: "one record each", or "groups <column>"."""
    client = connect(tracking_uri)
    present = named(client, uri)
    with tempfile.TemporaryDirectory() as place, answering(f"declaring whose the records of {uri} are"):
        folder = download(present.storage, Path(place, "model"), tracking_uri=client.tracking_uri)
        document = load.read_recipe(folder, uri)
        if declared.startswith("groups "):
            data = training_data.read(client, document["data"], Path(place, "data"))
            training_data.declare_people(data, {"declared": declared, "by": ""})
        _upload_recipe(client, present.model_id, _state_people(document, declared), Path(place, "written"))


def adopt(
    uri: str,
    recipe: Recipe,
    data: TrainingData,
    *,
    release: Release | None = None,
    tracking_uri: str | None = None,
    store: str | Path | None = None,
    serve: Serve | None = None,
) -> str:
    """Attach recipe and data reference to a registered version, and return the URI of the version that has them.

    ``uri`` is ``models:/name/version`` or ``models:/name@alias``. A logged model of MLflow 3 keeps its version, unless
    ``serve`` makes another, as in ``log_recipe``. The files of any other become a logged model, byte by byte, and that
    a new version of the same registered model; the old one stays. All else, and the errors: ``log_recipe``.
    """
    import mlflow

    client = connect(tracking_uri)
    about: dict[str, Any] = {"release": release, "tracking_uri": tracking_uri, "store": store}
    if serve is not None:
        return log_recipe(uri, recipe, data, serve=serve, **about)
    model_id = ""
    with suppress(SubjectError):
        model_id = named(client, uri).model_id
    if model_id:
        log_recipe(f"models:/{model_id}", recipe, data, **about)
        return uri
    training_data.refuse_without_place(data, store)  # before anything is made
    recipe.digest  # noqa: B018  ditto: collects its sources
    old, storage, name, run_id = _locate(client, uri)
    with tempfile.TemporaryDirectory() as place, answering(f"adopting {uri}"):
        folder = download(storage, Path(place, "model"), tracking_uri=client.tracking_uri)
        mlmodel.flavor_of(folder)
        files = all_files(folder)
        if any(name.startswith(f"{FOLDER}/") for name in files):
            raise SubjectError(f"the files of {uri} hold a folder {FOLDER!r} of their own; log the model again")
        experiment = str(client.get_run(run_id).info.experiment_id) if run_id else "0"
        refuse_written(str(client.get_experiment(experiment).artifact_location), tracking_uri=str(client.tracking_uri))
        logged = client.create_logged_model(experiment, name=path_part(str(name)), source_run_id=run_id)
        client.log_model_artifacts(logged.model_id, str(folder))
        client.finalize_logged_model(logged.model_id, "READY")
        again = download(logged.artifact_location, Path(place, "again"), tracking_uri=client.tracking_uri)
        compare(files, all_files(again), "model")
        log_recipe(f"models:/{logged.model_id}", recipe, data, **about)
        with tracking_at(tracking_uri):  # the tags by which two versions name each other are for people, no evidence
            tags = {"privgate.adopted_from": old}
            version = str(mlflow.register_model(f"models:/{logged.model_id}", name, tags=tags).version)
        new = f"models:/{name}/{version}"
        client.set_model_version_tag(name, old.rpartition("/")[2], "privgate.adopted_as", new)
    return new
