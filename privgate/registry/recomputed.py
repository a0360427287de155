"""The digests of a version from the registry's own files, for a signer who believes no report: runs nobody's code."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privgate import digest
from privgate.errors import DigestMismatchError, RegistryError, SubjectError
from privgate.registry import data_read, layout
from privgate.registry.load import read_recipe, sources_of
from privgate.registry.stored_files import StoredFiles
from privgate.subject.recipe import Recipe
from privgate.subject.sources import check_path


def recomputed(
    client: Any, uri: str, files: StoredFiles, table: Mapping[str, str], *, tracking_uri: str | None
) -> dict[str, str]:
    """Return digests of model and recipe, and of the data where they are stored and this user may read them.

    Parameters
    ----------
    uri : str
        For messages.
    files : StoredFiles
        The served folder.
    table : mapping of path -> sha256
        Of every file there, as they were just read.

    Raises
    ------
    DigestMismatchError
        Files, recipe or data are not what was recorded.
    """
    own = sorted(path for path in table if path.startswith(f"{layout.FOLDER}/"))
    found = {"model": digest.of_manifest({p: d for p, d in table.items() if p not in own})}
    with tempfile.TemporaryDirectory(prefix="privgate-") as place:
        folder = Path(place, "model")
        for path in own:
            target = folder / check_path(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(files.read(path))
        document = read_recipe(folder, uri)
        recipe = Recipe.read(document["recipe"], sources_of(folder, document))
        if recipe.digest != document["recipe_digest"]:
            raise DigestMismatchError(f"model file {layout.RECIPE!r} was changed after the recipe was recorded")
        found["recipe"] = recipe.digest
        reference = document["data"]
        if reference.get("kind") in {"run", "uri", "file"}:  # a loader is somebody's code
            try:
                read = data_read.read(client, reference, Path(place, "data"), tracking_uri=tracking_uri)
            except DigestMismatchError:
                raise
            except (RegistryError, SubjectError, OSError):  # no right to read them: then they are named by digest only
                return found
            found["data"] = read.digest
    return found
