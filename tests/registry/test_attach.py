"""Attaching and promoting."""

import json
import math
import sys

import mlflow
import pytest

from privgate import Subject, log_model
from privgate.errors import DigestMismatchError, ExitCode, RegistryError
from privgate.evidence import Evidence
from privgate.evidence.verdict import Finding, Outcome, Verdict
from privgate.registry import attach, promote
from privgate.registry.attachments import LARGEST_NATS, collect_metrics


def verdict(outcome=Outcome.PASSED, **detail):
    findings = (
        Finding("dtp", "DTP", outcome, "measured", metric="dtp", value=0.75, high=0.75, limit=1.0, unit="nats"),
        Finding("open", "Open <b>", Outcome.PASSED, "no certificate", metric="dtp", value=math.inf, unit="nats"),
    )
    policy = {"name": "../dtp-1", "version": "1", "digest": "sha256:00"}
    return Verdict(policy, findings, Evidence({}, (), {}), detail={"decided_at": "2026-01-02T03:04:05+00:00", **detail})


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    for name in ("report.json", "report.html", "summary.md", "junit.xml", "records.parquet", "cases.npz", "notes.txt"):
        (folder / name).write_text(name)
    (folder / "report.json").write_text(json.dumps({"findings": [{"rule": "dtp", "message": "4-fold; 2 is allowed"}]}))
    return folder


def test_a_verdict_is_attached_once_however_often(registry, recipe, data, out):
    log_model(recipe, data, registered_model_name="credit", store="artifacts")
    subject = Subject.load("models:/credit/1")
    client = mlflow.MlflowClient()
    model_id = subject.detail["model_id"]

    for _ in range(2):
        place = attach(subject, out, verdict())

    run_id = client.get_logged_model(model_id).source_run_id
    assert place == f"privgate_reports/{model_id}/dtp-1"
    held = sorted(f.path.rpartition("/")[2] for f in client.list_artifacts(run_id, place))
    assert held == ["junit.xml", "report.html", "report.json", "summary.md"]
    metrics = client.get_logged_model(model_id).metrics
    infinite = {m.value for m in metrics if m.key == "privgate/open"}
    assert infinite <= {math.inf, sys.float_info.max}  # a database has no infinity
    assert {m.key: m.value for m in metrics if m.key != "privgate/open"} == {
        "privgate/outcome": 0.0,
        "privgate/scope": 0.0,
        "privgate/warnings": 0.0,
        "privgate/observed": 0.0,
        "privgate/dtp": 0.75,
        "privgate/dtp_is_infinite": 0.0,
        "privgate/dtp_capped": 0.75,
        "privgate/open_is_infinite": 1.0,
        "privgate/open_capped": LARGEST_NATS,
    }
    assert infinite
    assert len(metrics) == 10
    version = client.get_model_version("credit", "1")
    assert version.tags["privgate.outcome"] == "passed"
    assert version.tags["privgate"] == "approved, ../dtp-1, 2026-01-02"
    tags = client.get_logged_model(model_id).tags
    assert tags["privgate.report"] == f"runs:/{run_id}/{place}/report.html"
    assert tags["privgate.outcome"] == "passed"
    assert Subject.load("models:/credit/1").digests == subject.digests
    promote(subject, "production")
    assert Subject.load("models:/credit@production").version == "1"


def bounded(value, high):
    finding = Finding("dtp", "DTP", Outcome.FAILED, "", metric="dtp", value=value, high=high, unit="nats")
    return Verdict({"name": "p"}, (finding,), Evidence({}, (), {}))


def test_whatever_is_sorted_by_the_worst_model_comes_last():
    """From best to worst: a small figure, a large one, one without an upper limit, an infinite one, none at all."""
    figures = ((0.3, 0.4), (700.0, 701.0), (0.2, math.inf), (math.inf,) * 2, (math.nan,) * 2)
    ranked = [collect_metrics(bounded(*figure)) for figure in figures]

    capped = [h["privgate/dtp_capped"] for h in ranked]
    assert capped == sorted(capped)
    assert capped[1] < capped[2] == capped[-1] == LARGEST_NATS
    assert [h["privgate/dtp_is_infinite"] for h in ranked] == [0, 0, 1, 1, 1]
    assert all(math.isfinite(v) for h in ranked for k, v in h.items() if k != "privgate/dtp")
    assert ranked[3]["privgate/dtp"] == math.inf


def test_attached_again_a_verdict_replaces_its_tags_and_people_stay_on_disk(registry, recipe, data, out):
    log_model(recipe, data, registered_model_name="credit", store="artifacts")
    subject, client = Subject.load("models:/credit/1"), mlflow.MlflowClient()
    attach(subject, out, verdict())
    place = attach(subject, out, verdict(Outcome.FAILED, decided_at="2026-01-03T03:04:05+00:00"))
    version = client.get_model_version("credit", "1")
    assert version.tags["privgate.findings"] == "DTP: 4-fold; 2 is allowed"
    held = client.list_artifacts(version.run_id, place)
    assert "records.parquet" not in {f.path.rpartition("/")[2] for f in held}


def test_a_model_without_version_gets_files_and_metrics(registry, recipe, data, out):
    info = log_model(recipe, data, store="artifacts")
    subject = Subject.load(f"models:/{info.model_id}")
    attach(subject, out, verdict())
    assert mlflow.MlflowClient().get_logged_model(info.model_id).tags["privgate.outcome"] == "passed"
    with pytest.raises(RegistryError, match="no registered version"):
        promote(subject, "production")
    with pytest.raises(RegistryError, match="log_model"):
        attach(Subject.local(recipe, data), out, verdict())


def test_a_model_that_was_logged_in_no_run_gets_one_for_its_reports(registry, recipe, data, out, tmp_path):
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("tests").experiment_id
    made = client._tracking_client.create_logged_model(experiment, name="own")
    info = log_model(recipe, data, store="artifacts")
    folder = mlflow.artifacts.download_artifacts(info.model_uri, dst_path=str(tmp_path / "copy"))
    client.log_model_artifacts(made.model_id, folder)
    subject = Subject.load(f"models:/{made.model_id}")
    for _ in range(2):
        attach(subject, out, verdict())
    run_id = client.get_logged_model(made.model_id).tags["privgate.reports_run"]
    held = client.list_artifacts(run_id, f"privgate_reports/{made.model_id}/dtp-1")
    assert len(held) == 4
    assert len(client.search_runs([experiment], "attributes.run_name = 'privgate reports'")) == 1


def test_a_registry_that_refuses_midway_leaves_the_report_on_disk(registry, recipe, data, out, monkeypatch):
    log_model(recipe, data, registered_model_name="credit", store="artifacts")
    subject = Subject.load("models:/credit/1")

    def refuse(*args, **kwargs):
        raise mlflow.MlflowException("PERMISSION_DENIED: not yours")

    for call in ("log_artifacts", "log_metric", "set_logged_model_tags", "set_model_version_tag"):
        with monkeypatch.context() as patch:
            patch.setattr(mlflow.MlflowClient, call, refuse)
            with pytest.raises(RegistryError, match=f"attaching the report.*stays in {out}.*not yours") as caught:
                attach(subject, out, verdict())
        assert caught.value.exit_code is ExitCode.SUBJECT
        assert (out / "summary.md").read_text() == "summary.md"

    attach(subject, out, verdict())  # completing it later is possible
    assert mlflow.MlflowClient().get_model_version("credit", "1").tags["privgate.outcome"] == "passed"


def test_a_model_that_changed_since_it_was_checked_is_not_promoted(registry, recipe, data, tmp_path):
    log_model(recipe, data, registered_model_name="credit", store="artifacts")
    subject = Subject.load("models:/credit/1")
    path = next((tmp_path / "artifacts").rglob("model.*"))
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(DigestMismatchError, match="changed while"):
        promote(subject, "production")
