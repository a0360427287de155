"""Load a subject from the registry: every file is verified by digest, and no code of the recipe runs."""

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, ValidationError, create_model

from privgate import digest
from privgate.documents import LARGE, strict_json
from privgate.errors import DigestMismatchError, RegistryError, SubjectError
from privgate.evidence import Precondition
from privgate.registry import native, training_data
from privgate.registry.client import ADDRESSES, download, reader
from privgate.registry.files import FOLDER, RECIPE, SCHEMA, SOURCES, all_files, compare
from privgate.registry.mlmodel import check_requirements, flavor_of
from privgate.registry.named import Named, named
from privgate.registry.native import StoredModel
from privgate.subject import estimators
from privgate.subject.recipe import Recipe
from privgate.subject.release import Release
from privgate.subject.sources import check_path
from privgate.subject.subject import Subject

# The shape of ``privgate/recipe.json``, which an untrusted author may have written; pydantic checks it before use.


_shape = partial(create_model, __config__=ConfigDict(extra="allow", strict=True, allow_inf_nan=False))
_SHAPE = {
    "recipe": _shape(
        "Recipe",
        kind=(Literal["estimator", "function"], ...),
        seed=(int | None, ...),
        predict=(str | None, ...),
        dp=(dict[str, Any] | None, ...),
        params=(dict[str, Any], ...),
        fit=(str | None, None),
        network=(bool, False),
        task=(Literal["classification", "regression"] | None, None),
    ),
    "recipe_digest": str,
    "sources": _shape("Sources", folder=(str, ...), files=(dict[str, str], ...)),
    "model": _shape("Model", files=(dict[str, str], ...)),
    "data": _shape(
        "Data",
        **dict.fromkeys(("kind", "digest"), (str, ...)),
        **dict.fromkeys(("reference", "run_id", "path", "uri"), (str, "")),
        **dict.fromkeys(("options", "source"), (dict[str, Any], {})),
        files=(dict[str, str], {}),
    ),
    "environment": _shape("Environment", python=(str, ""), packages=(dict[str, str | None], {})),
    "release": dict[str, Any],
    "logged_at": str,
}
_Document = _shape("Document", **{name: (kind, ...) for name, kind in _SHAPE.items()})


def check_document(document: Mapping[str, Any], sentence: str) -> None:
    """Raise ``SubjectError`` for a recipe.json with a missing or wrong field; ``sentence`` begins the message."""
    try:
        _Document.model_validate(document)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(p)[:40] for p in first["loc"])
        raise SubjectError(f"{sentence}: {place}: {str(first['msg']).lower()}; log the recipe again") from exc
    recipe, data, estimator = document["recipe"], document["data"], document["recipe"].get("estimator")
    why = "" if recipe["kind"] == "estimator" or recipe.get("fit") else "recipe.fit: names no function"
    encoded = isinstance(estimator, Mapping) and estimator.get("!") == "estimator"
    if recipe["kind"] == "estimator" and not (encoded and isinstance(estimator.get("class"), str)):
        why = "recipe.estimator: names no class"
    if not why:
        with strict_json.reading(sentence, SubjectError):
            references = estimators.references([estimator, *recipe["params"].values()])
            why = "" if all(isinstance(name, str) for name in references) else "recipe: a name is no text"
    needed = {"loader": "reference", "run": "run_id path files", "uri": "uri files", "file": "source"}
    missing = [key for key in needed.get(data["kind"], "").split() if not data.get(key)]
    if why or missing:
        raise SubjectError(f"{sentence}: {why or f'data.{missing[0]}: missing'}; log the recipe again")
    with strict_json.reading(sentence, SubjectError):
        Release.from_payload(dict(document["release"]))


_CHANGED = f"model file {RECIPE!r} was changed after the recipe was recorded"
# downloaded copies of models, kept until this process ends: workers open models and import sources from them
_downloads: list[tempfile.TemporaryDirectory[str]] = []


def load_subject(uri: str, *, tracking_uri: str | None = None) -> Subject:
    """Return the subject that ``uri`` names in a registry, downloaded and verified.

    ``uri`` is ``models:/name/version``, ``models:/name@alias``, ``models:/<model_id>``, ``runs:/<run_id>/<name>`` or a
    run id; a copied version, too. ``DigestMismatchError``: a file differs from the recorded one; the message names it.
    ``SubjectError``: the version has no recipe, or an unreadable one.
    """
    client = reader(tracking_uri)
    target = named(client, uri)
    ADDRESSES[target.model_id] = str(client.tracking_uri)
    _downloads.append(copy := tempfile.TemporaryDirectory(prefix="privgate-"))
    place = Path(copy.name)
    folder = download(target.storage, place / "model", tracking_uri=client.tracking_uri)
    document = read_recipe(folder, uri)
    every = all_files(folder)
    files = {path: sha for path, sha in every.items() if not path.startswith(f"{FOLDER}/")}
    recipe, root = _read_sources(folder, document)
    flavor = flavor_of(folder)
    compare(dict(document["model"]["files"]), files, "model")
    data = training_data.read(client, document["data"], place / "data")
    data = training_data.declare_people(data, document.get("people"))
    held = {"model": digest.of_manifest(files), "recipe": recipe.digest}
    return Subject(
        recipe,
        data,
        model=StoredModel(folder, flavor, root, tuple(sorted(every.items()))),
        release=Release.from_payload(dict(document["release"])),
        name=target.name,
        version=target.version,
        uri=uri,
        digests={**held, "data": data.digest, "files": digest.of_manifest(every)},
        detail=_describe(target, document, flavor, check_requirements(folder)),
    )


def _describe(target: Named, document: dict[str, Any], flavor: str, packages: Precondition) -> dict[str, Any]:
    recorded = document["environment"]
    environment = Precondition("environment", "passed", "the recorded environment is the present one")
    if differences := native.differences(recorded):
        more = f" and {len(differences) - 5} more" if len(differences) > 5 else ""
        sentence = f"the environment is not the recorded one: {'; '.join(differences[:5])}{more}"
        environment = Precondition("environment", "warned", sentence, {"differences": differences})
    return {
        "model_id": target.model_id,
        "source": target.source,
        "storage": target.storage,
        "flavor": flavor,
        "logged_at": document["logged_at"],
        "data_kind": document["data"]["kind"],
        "environment": {"recorded": recorded, "differences": differences},
        "preconditions": [environment, packages],
    }


def read_recipe(folder: Path, uri: str) -> dict[str, Any]:
    """Return the content of ``privgate/recipe.json`` below ``folder``, checked by shape and digest."""
    path = folder / RECIPE
    if not path.is_file():
        raise SubjectError(
            f"{uri} has no recipe; attach one with privgate.log_recipe(uri, recipe, data) or by "
            f"privgate adopt {uri} --recipe module:recipe --data module:data; what holds no "
            "training data of yours has nothing to check: keep it out of the names that a guard protects"
        )
    with strict_json.reading(f"{RECIPE} of {uri} cannot be read, so log the recipe again", SubjectError):
        document = strict_json.read(path, LARGE)
        recorded = document.pop("digest")
        schema = document["schema"]
    if schema != SCHEMA:
        raise SubjectError(f"{RECIPE} of {uri} has schema {schema!r}; this privgate reads {SCHEMA}")
    if digest.of_json(document) != recorded:
        raise DigestMismatchError(_CHANGED)
    check_document(document, f"{RECIPE} of {uri} cannot be read")
    return dict(document)


def _read_sources(folder: Path, document: dict[str, Any]) -> tuple[Recipe, Path | None]:
    root = verify_sources(folder, document)
    recipe = Recipe.read(document["recipe"], root)
    if recipe.digest != document["recipe_digest"]:
        raise DigestMismatchError(_CHANGED)
    return recipe, root


def verify_sources(folder: Path, document: dict[str, Any]) -> Path | None:
    """Return the folder of the recipe's sources, verified by digest; None for a recipe without sources."""
    recorded = {check_path(path): sha for path, sha in document["sources"]["files"].items()}
    if not recorded:
        return None
    root = folder / check_path(document["sources"]["folder"])
    if not root.is_relative_to(folder / SOURCES):
        raise SubjectError(f"{RECIPE} keeps its sources outside {SOURCES}; log the recipe again")
    compare(recorded, digest.of_files(root), "source")
    return root


def recompute_digests(client: Any, uri: str, folder: Path, table: Mapping[str, str]) -> dict[str, str]:
    """Return the digests of model, recipe and readable data, computed from the files; no code of theirs runs."""
    digests = {"model": digest.of_manifest({p: d for p, d in table.items() if not p.startswith(f"{FOLDER}/")})}
    document = read_recipe(folder, uri)
    digests["recipe"] = _read_sources(folder, document)[0].digest
    if document["data"]["kind"] in {"run", "uri", "file"}:  # a loader would run the recipe author's code
        with tempfile.TemporaryDirectory(prefix="privgate-") as place:
            try:
                digests["data"] = training_data.read(client, document["data"], Path(place, "data")).digest
            except DigestMismatchError:
                raise
            except (RegistryError, SubjectError, OSError):  # this user may not read the data: no digest of them
                return digests
    return digests
