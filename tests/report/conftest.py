"""The real runs, as fixtures."""

import inspect

import pytest

from privgate.report import charts
from tests.report import real_runs


@pytest.fixture(scope="session")
def runs():
    """The module that reads the goldens of real runs."""
    return real_runs


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

    def remembering(draw):
        def chart(*args, **kw):
            key = draw.__name__, repr(args), repr(kw)
            return drawn[key] if key in drawn else drawn.setdefault(key, draw(*args, **kw))

        return chart

    for name, draw in [] if "draws_anew" in request.fixturenames else inspect.getmembers(charts, inspect.isfunction):
        if draw.__module__ == charts.__name__ and not name.startswith("_"):
            monkeypatch.setattr(charts, name, remembering(draw))
