"""The real runs, as fixtures."""

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
    draw = charts.intervals

    def chart(*args, **kw):
        key = repr((args, kw))
        return drawn[key] if key in drawn else drawn.setdefault(key, draw(*args, **kw))

    if "draws_anew" not in request.fixturenames:
        monkeypatch.setattr(charts, "intervals", chart)
