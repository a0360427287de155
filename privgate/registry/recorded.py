"""What ``privgate/recipe.json`` may say, checked before anything is made of it: whoever logs a model wrote it."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from privgate.documents import door
from privgate.errors import SubjectError
from privgate.subject import estimators
from privgate.subject.release import Release


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


class _Model(_Part):
    files: dict[str, str]


class _Sources(_Part):
    folder: str
    files: dict[str, str]


class _Data(_Part):
    kind: str
    digest: str
    reference: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    run_id: str = ""
    path: str = ""
    uri: str = ""
    source: dict[str, Any] = Field(default_factory=dict)
    files: dict[str, str] = Field(default_factory=dict)


class _Recipe(_Part):
    kind: Literal["estimator", "function"]
    seed: int | None
    predict: str | None
    dp: dict[str, Any] | None
    params: dict[str, Any]
    fit: str | None = None
    network: bool = False
    task: Literal["classification", "regression"] | None = None


class _Environment(_Part):
    python: str = ""
    packages: dict[str, str | None] = Field(default_factory=dict)


class _Document(_Part):
    recipe: _Recipe
    recipe_digest: str
    sources: _Sources
    model: _Model
    data: _Data
    environment: _Environment
    release: dict[str, Any]
    logged_at: str


def check(document: Mapping[str, Any], sentence: str) -> None:
    """Refuse a document whose values are not of the kind that reading them takes for granted.

    Parameters
    ----------
    document : mapping
        Read from recipe.json.
    sentence : str
        What cannot be read, for the message.

    Raises
    ------
    SubjectError
        A key is missing, or its value is of another kind; names the first one.
    """
    try:
        _Document.model_validate(document)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(p)[:40] for p in first["loc"])
        raise SubjectError(f"{sentence}: {place}: {str(first['msg']).lower()}; log the recipe again") from exc
    if document["recipe"]["kind"] == "function" and not document["recipe"].get("fit"):
        raise SubjectError(f"{sentence}: recipe.fit: names no function; log the recipe again")
    estimator = document["recipe"].get("estimator")
    if document["recipe"]["kind"] == "estimator":
        named = isinstance(estimator, Mapping) and estimator.get("!") == "estimator"
        if not (named and isinstance(estimator.get("class"), str)):
            raise SubjectError(f"{sentence}: recipe.estimator: names no class; log the recipe again")
    with door.reading(sentence, SubjectError):
        references = estimators.references([estimator, *document["recipe"]["params"].values()])
    if not all(isinstance(reference, str) for reference in references):
        raise SubjectError(f"{sentence}: recipe: a name is no text; log the recipe again")
    needed = {
        "loader": ("reference",),
        "run": ("run_id", "path", "files"),
        "uri": ("uri", "files"),
        "file": ("source",),
    }
    for key in needed.get(document["data"]["kind"], ()):
        if not document["data"].get(key):
            raise SubjectError(f"{sentence}: data.{key}: missing; log the recipe again")
    release(document, sentence)


def release(document: Mapping[str, Any], sentence: str) -> Release:
    """Return the release that the document declares.

    Raises
    ------
    SubjectError
        It is none.
    """
    with door.reading(sentence, SubjectError):
        return Release.from_payload(dict(document["release"]))
