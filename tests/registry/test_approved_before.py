"""Which version of a model was approved last: what the next check compares its sources with."""

from types import SimpleNamespace

import pytest

from privgate.errors import RegistryError, SubjectError
from privgate.registry import reports


@pytest.fixture
def registry(monkeypatch):
    """Reports by version: approved, refused, none, unreadable; and what was asked for."""
    known = {"1": True, "2": True, "3": False, "4": None, "5": RegistryError("down"), "6": True}
    asked = []

    def attached(uri, *, tracking_uri):
        version = uri.rpartition("/")[2]
        asked.append(version)
        if known[version] is None:
            raise SubjectError("no report")
        if isinstance(known[version], Exception):
            raise known[version]
        return {"approved": known[version], "subject": {"version": version}, "at": tracking_uri}

    client = SimpleNamespace(search_model_versions=lambda _: [SimpleNamespace(version=v) for v in known])
    monkeypatch.setattr(reports, "connect", lambda _: client)
    monkeypatch.setattr(reports, "address_of", lambda model_id: "sqlite:///there" if model_id == "m-1" else None)
    monkeypatch.setattr(reports, "attached", attached)
    return asked


def subject(name="credit", version="6", model_id="m-1"):
    return SimpleNamespace(name=name, version=version, detail={"model_id": model_id})


def test_it_is_the_newest_other_version_with_an_approving_report(registry):
    found = reports.approved_before(subject())

    assert (found["subject"]["version"], found["at"]) == ("2", "sqlite:///there")
    assert registry == ["5", "4", "3", "2"]


def test_there_is_none_for_a_model_of_no_registry(registry):
    for other in (subject(name=""), subject(version=""), subject(model_id="elsewhere")):
        assert reports.approved_before(other) is None
    assert registry == []
