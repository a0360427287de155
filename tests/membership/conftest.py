"""What tests of attacks share."""

import pytest

from privgate.membership import attacks


@pytest.fixture
def light_attacks(monkeypatch):
    """Leave out the attacks that train models of their own, where a test is about something else."""
    monkeypatch.setattr(attacks, "ALL", tuple(a for a in attacks.ALL if not a.trains))
