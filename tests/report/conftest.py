"""The real runs, as fixtures."""

import pytest

from tests.report import real_runs


@pytest.fixture(scope="session")
def runs():
    """The module that reads the goldens of real runs."""
    return real_runs
