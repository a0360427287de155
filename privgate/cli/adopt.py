"""``privgate adopt``: a recipe for a version that has none."""

import importlib
import sys
from pathlib import Path
from typing import Any

import click

from privgate import door
from privgate.cli import console, options
from privgate.errors import UsageError


@click.command()
@options.subject
@click.option("--recipe", "recipe_name", required=True, metavar="MODULE:NAME", help="A Recipe, or a training function.")
@click.option("--data", "data_name", required=True, metavar="MODULE:NAME", help="TrainingData, or what returns them.")
@click.option("--seed", type=click.IntRange(min=0), default=None, help="Of the recipe, if NAME is a function.")
@click.option("--store", default=None, metavar="FOLDER|URI|artifacts", help="Where the training data may be kept.")
def adopt(
    *, uri: str, tracking_uri: str | None, recipe_name: str, data_name: str, seed: int | None, store: str | None
) -> int:
    """Attach a recipe to the version URI, which MLflow 2 or a script without privgate has registered.

    The modules are yours and are imported here, from this folder too. A version that is no logged model of MLflow 3
    becomes a new version of the same bytes; the old one stays as it is.
    """
    from privgate import registry
    from privgate.subject.data import TrainingData
    from privgate.subject.recipe import Recipe

    with door.held_open():  # the operator's own modules
        recipe, data = _named(recipe_name, "--recipe"), _named(data_name, "--data")
        data = data() if callable(data) and not isinstance(data, TrainingData) else data
    if not isinstance(recipe, Recipe):
        recipe = Recipe(recipe, seed=seed)
    elif seed is not None:
        raise UsageError(f"--seed: {recipe_name} is a Recipe, which has its own")
    if not isinstance(data, TrainingData):
        raise UsageError(f"--data: {data_name} is a {type(data).__name__}, not TrainingData")
    found = registry.adopt(uri, recipe, data, tracking_uri=tracking_uri, store=store)
    click.echo(console.plain(f"{found} holds the bytes of {uri} and has a recipe; now: privgate check {found}"))
    return 0


def _named(name: str, option: str) -> Any:
    module, _, attribute = name.partition(":")
    if not module or not attribute.isidentifier():
        raise UsageError(f"{option} {name!r} is no name; write module:name")
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as exc:
        raise UsageError(f"{option} {name!r} cannot be imported: {exc}") from exc
    finally:
        sys.path.remove(str(Path.cwd()))
