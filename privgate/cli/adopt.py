"""``privgate adopt``: a recipe for a version that has none."""

import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import click

from privgate.cli import console, options
from privgate.errors import PrivgateError, SubjectError, UsageError
from privgate.subject import sources
from privgate.subject.release import Form, Release, Serve


@click.command()
@options.subject
@click.option("--recipe", "recipe_name", metavar="MODULE:NAME", help="A Recipe, or a training function.")
@click.option("--data", "data_name", metavar="MODULE:NAME", help="TrainingData, or what returns them.")
@click.option("--seed", type=click.IntRange(min=0), default=None, help="Of the recipe, if NAME is a function.")
@click.option("--store", default=None, metavar="FOLDER|URI|artifacts", help="Where the training data may be kept.")
@click.option(
    "--release",
    "form",
    type=click.Choice(get_args(Form)),
    default="probabilities",
    show_default=True,
    help="What MLflow serves of the model; its own log_model serves labels unless it is told otherwise.",
)
@click.option(
    "--serve",
    type=click.Choice(get_args(Serve)),
    help="Open the model here and register it again, so that MLflow serves these.",
)
@click.option("--one-record-each", is_flag=True, help="Declare that each record is a person of its own.")
@click.option("--groups", metavar="COLUMN", help="Declare which column of the data names the person of each record.")
def adopt(*, uri: str, recipe_name: str | None, data_name: str | None, groups: str | None, **o: Any) -> int:
    """Attach a recipe to the version URI, which MLflow 2 or a script without privgate has registered.

    The modules are yours and are imported here, from this folder too. A version that is no logged model of MLflow 3
    becomes a new version of the same bytes; the old one stays as it is. A version that has a recipe needs neither
    --recipe nor --data to be told whose its records are; check it again afterwards.
    """
    from privgate import registry
    from privgate.subject.data import TrainingData
    from privgate.subject.recipe import Recipe

    if o["one_record_each"] and groups:
        raise UsageError("--one-record-each and --groups contradict each other; give one of them")
    declared = "one record each" if o["one_record_each"] else f"groups {groups}" if groups else ""
    if recipe_name is None and data_name is None and declared and o["serve"] is None:
        registry.declare_people(uri, declared, tracking_uri=o["tracking_uri"])
        click.echo(console.plain(f"{uri} says whose its records are ({declared}); now: privgate check {uri}"))
        return 0
    if recipe_name is None or data_name is None:
        raise UsageError("give --recipe and --data; a version that has them takes --one-record-each or --groups alone")
    recipe, data = import_named(recipe_name, "--recipe"), import_named(data_name, "--data")
    if callable(data) and not isinstance(data, TrainingData):
        data = _ran(data, f"--data {data_name!r}")
    if not isinstance(recipe, Recipe):
        recipe = Recipe(recipe, seed=o["seed"])
    elif o["seed"] is not None:
        raise UsageError(f"--seed: {recipe_name} is a Recipe, which has its own")
    if not isinstance(data, TrainingData):
        raise UsageError(f"--data: {data_name} is a {type(data).__name__}, not TrainingData")
    if declared:
        data = data.declare_people(declared, groups=data.read_column(groups) if groups else None)
    about = {k: o[k] for k in ("tracking_uri", "store", "serve")}
    adopted = registry.adopt(uri, recipe, data, release=Release(o["form"]), **about)
    holds = f"serves {o['serve']} of the model of" if o["serve"] else "holds the bytes of"
    click.echo(console.plain(f"{adopted} {holds} {uri} and has a recipe; now: privgate check {adopted}"))
    return 0


def import_named(name: str, option: str) -> Any:
    """Return what ``module:name`` names, from the working folder too. ``UsageError``: it cannot be imported."""
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise UsageError(f"{option} {name!r} is no name; write module:name")
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(_ran(lambda: importlib.import_module(module), f"{option} {name!r}"), attribute)
    except (ModuleNotFoundError, AttributeError) as exc:
        raise UsageError(f"{option} {name!r} cannot be imported: {exc}") from exc
    finally:
        sys.path.remove(str(Path.cwd()))


def _ran(owners: Callable[[], Any], what: str) -> Any:
    """Return what the owner's own code gives; an error in it is the owner's, and is told with its place."""
    try:
        return owners()
    except PrivgateError:
        raise
    except (Exception, SystemExit) as exc:
        frames = [f for f in traceback.extract_tb(exc.__traceback__) if f.filename != __file__]
        own = [f for f in frames if not f.filename.startswith("<") and not sources.is_library(Path(f.filename))]
        if isinstance(exc, ModuleNotFoundError) and not own:  # nothing of the owner's has run
            raise
        where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
        raise SubjectError(f"{what} raised {type(exc).__name__}: {exc}{where}; mend it and adopt again") from exc
