"""Loading a subject from the registry alone: everything verified by digest, nothing executed."""

import tempfile
from pathlib import Path
from typing import Any

from privgate import digest
from privgate.documents import LARGE, door, strict_json
from privgate.errors import DigestMismatchError, SubjectError
from privgate.evidence import Precondition
from privgate.registry import data_read, environment, layout
from privgate.registry import recorded as recorded_shape
from privgate.registry.client import connect, download, remember_address
from privgate.registry.mlmodel import flavor_of
from privgate.registry.named import Named, named
from privgate.registry.stored_model import StoredModel
from privgate.subject import sources
from privgate.subject.recipe import Recipe
from privgate.subject.release import Release
from privgate.subject.subject import Subject

# the copies live as long as this process: workers open models and import sources from them
_copies: list[tempfile.TemporaryDirectory[str]] = []


def load_subject(uri: str, *, tracking_uri: str | None = None) -> Subject:
    """Return the subject that a registry names.

    Parameters
    ----------
    uri : str
        ``models:/name/version``, ``models:/name@alias``, ``models:/<model_id>``, ``runs:/<run_id>/<name>`` or a run id;
        copied versions too.
    tracking_uri : str, optional
        MLflow server or store; the environment's if absent.

    Raises
    ------
    DigestMismatchError
        A file of the model, the recipe, its sources or the data is not what was recorded; the sentence names it.
    SubjectError
        There is no recipe, or it cannot be read.
    RegistryError
        The registry does not know the model, or does not answer.
    """
    client = connect(tracking_uri)
    target = named(client, uri)
    remember_address(target.model_id, client)
    copy = tempfile.TemporaryDirectory(prefix="privgate-")
    _copies.append(copy)
    place = Path(copy.name)
    folder = download(target.storage, place / "model", tracking_uri=tracking_uri or client.tracking_uri)
    document = read_recipe(folder, uri)
    root = sources_of(folder, document)
    flavor = flavor_of(folder)
    files, every = layout.model_files(folder), layout.all_files(folder)
    layout.compare(dict(document["model"]["files"]), files, "model")
    recipe = Recipe.read(document["recipe"], root)
    if recipe.digest != document["recipe_digest"]:
        raise DigestMismatchError("model file 'privgate/recipe.json' was changed after the recipe was recorded")
    data = data_read.read(client, document["data"], place / "data", tracking_uri=tracking_uri)
    return Subject(
        recipe,
        data,
        model=StoredModel(folder, flavor, root, tuple(sorted(every.items()))),
        release=Release.from_payload(dict(document["release"])),
        name=target.name,
        version=target.version,
        uri=uri,
        digests={
            "model": digest.of_manifest(files),
            "recipe": recipe.digest,
            "data": data.digest,
            "files": digest.of_manifest(every),
        },
        detail=_detail(target, document, flavor),
    )


def _detail(target: Named, document: dict[str, Any], flavor: str) -> dict[str, Any]:
    recorded = document["environment"]
    differences = environment.differences(recorded)
    agrees = Precondition("environment", "passed", "the recorded environment is the present one")
    return {
        "model_id": target.model_id,
        "source": target.source,
        "storage": target.storage,
        "flavor": flavor,
        "logged_at": document["logged_at"],
        "data_kind": document["data"]["kind"],
        "environment": {"recorded": recorded, "differences": differences},
        "preconditions": [_differs(differences) if differences else agrees],
    }


def _differs(differences: list[str]) -> Precondition:
    return Precondition(
        "environment",
        "warned",
        f"the environment is not the recorded one: {'; '.join(differences[:5])}"
        + (f" and {len(differences) - 5} more" if len(differences) > 5 else ""),
        {"differences": differences},
    )


def read_recipe(folder: Path, uri: str) -> dict[str, Any]:
    """Return the checked content of ``privgate/recipe.json`` below ``folder``."""
    path = folder / layout.RECIPE
    if not path.is_file():
        raise SubjectError(
            f"{uri} has no recipe; attach one with privgate.log_recipe(uri, recipe, data) or by "
            f"privgate adopt {uri} --recipe module:recipe --data module:data"
        )
    try:
        document = strict_json.read(path, LARGE)
        recorded = document.pop("digest")
        schema = document["schema"]
    except (OSError, *door.GARBLED) as exc:
        raise SubjectError(f"{layout.RECIPE} of {uri} cannot be read: {door.why(exc)}; log the recipe again") from exc
    if schema != layout.SCHEMA:
        raise SubjectError(f"{layout.RECIPE} of {uri} has schema {schema!r}; this privgate reads {layout.SCHEMA}")
    if digest.of_json(document) != recorded:
        raise DigestMismatchError(f"model file {layout.RECIPE!r} was changed after the recipe was recorded")
    recorded_shape.check(document, f"{layout.RECIPE} of {uri} cannot be read")
    return dict(document)


def sources_of(folder: Path, document: dict[str, Any]) -> Path | None:
    """Return the verified source folder, or None where the recipe has no sources of its own."""
    recorded = {sources.check_path(str(k)): str(v) for k, v in document["sources"]["files"].items()}
    if not recorded:
        return None
    root = folder / sources.check_path(str(document["sources"]["folder"]))
    if not root.is_relative_to(folder / layout.SOURCES):
        raise SubjectError(f"{layout.RECIPE} keeps its sources outside {layout.SOURCES}; log the recipe again")
    layout.compare(recorded, digest.of_files(root), "source")
    return root
