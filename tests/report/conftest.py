"""The real runs, as fixtures."""

import importlib.util
import inspect
import sys
from pathlib import Path

import pytest

from privgate.report import charts


def _load(name):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def runs():
    """The module that reads the goldens of real runs."""
    return _load("real_runs")


@pytest.fixture(scope="session")
def drawn():
    """The charts that were drawn in this session, by what was asked for."""
    return {}


@pytest.fixture
def draws_anew():
    """For tests of drawing itself: nothing is remembered."""


@pytest.fixture(autouse=True)
def _draws_each_chart_once(drawn, request, monkeypatch):
    """Remember each chart: the same few reports are rendered hundreds of times, and a third of it is drawing."""
    if "draws_anew" in request.fixturenames:
        return

    def remembering(draw):
        def chart(*args, **kw):
            key = draw.__name__, repr(args), repr(kw)
            if key not in drawn:
                drawn[key] = draw(*args, **kw)
            return drawn[key]

        return chart

    for name, draw in inspect.getmembers(charts, inspect.isfunction):
        if draw.__module__ == charts.__name__ and not name.startswith("_"):
            monkeypatch.setattr(charts, name, remembering(draw))
