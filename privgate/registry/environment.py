"""The environment a recipe was recorded in, and how the present one differs."""

import platform
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import Any

from privgate.subject.distributions import providing

# always recorded where installed: numbers change with their versions even if no source imports them by name
_BASE = ("numpy", "scipy", "scikit-learn", "pandas", "cloudpickle", "skops")


def record(imported: Iterable[str]) -> dict[str, Any]:
    """Return the Python version and the installed versions of what a recipe imports.

    Parameters
    ----------
    imported : iterable of str
        Top-level module names.

    Returns
    -------
    dict
        ``{"python": "3.11.9", "packages": {distribution: version}}``; modules of no installed distribution are absent.
    """
    names = {*providing(imported), *_BASE}
    versions = {name: version for name in sorted(names) if (version := installed(name)) is not None}
    return {"python": platform.python_version(), "packages": versions}


def installed(distribution: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def differences(recorded: Mapping[str, Any]) -> list[str]:
    """Return one sentence a difference between the recorded environment and this one; empty if they agree."""
    found = []
    python = platform.python_version()
    if recorded.get("python") != python:
        found.append(f"recorded with Python {recorded.get('python')}, running Python {python}")
    for name, version in dict(recorded.get("packages", {})).items():
        present = installed(name)
        if present is None:
            found.append(f"{name} {version} is not installed")
        elif present != version:
            found.append(f"recorded with {name} {version}, running {present}")
    return found


def requirements(recorded: Mapping[str, Any]) -> list[str]:
    """Return the environment as pip requirements, so that MLflow need not infer them by loading the model."""
    pinned = dict(recorded["packages"])
    if (mlflow := installed("mlflow")) is not None:
        pinned["mlflow"] = mlflow
    return [f"{name}=={version}" for name, version in sorted(pinned.items())]
