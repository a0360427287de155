"""Attach verdicts to model versions as files, metrics and tags, read them back, and set aliases."""

import json
import math
import re
import shutil
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from privgate import digest
from privgate.documents import LARGE, strict_json
from privgate.errors import DigestMismatchError, Outcome, RegistryError, SubjectError
from privgate.evidence.verdict import SCOPES, Verdict
from privgate.registry.client import ADDRESSES, answering, connect, stored_files
from privgate.registry.files import all_files, path_part, refuse_files, refuse_written
from privgate.registry.named import RUN_TAG, find_run, join_folder, locate_reports, named
from privgate.subject.subject import Subject

_FILES = ("report.json", "report.html", "summary.md", "junit.xml")
#: nats that replace infinity in metrics that dashboards sort by; changes of float64 log-probabilities are smaller
LARGEST_NATS = 1000.0


def attach(subject: Subject, out_dir: Path, verdict: Verdict, *, tracking_uri: str | None = None) -> str:
    """Attach a verdict's files, metrics and tags, and return their folder within the artifacts of the model's run."""
    model_id = str(subject.detail.get("model_id") or "")
    if not model_id:
        raise RegistryError("a local subject has no registry to attach to; log it with privgate.log_model")
    client = _connect(subject, tracking_uri)
    policy = str(verdict.policy.get("name", "policy"))
    place = join_folder(model_id, policy)
    with answering(f"attaching the report to {subject.uri}; it stays in {out_dir}"), tempfile.TemporaryDirectory() as t:
        for path in (p for name in _FILES if (p := out_dir / name).is_file()):
            shutil.copy(path, t)
        run_id = copy_to_run(client, model_id, Path(t), place)
        if own_run := client.get_logged_model(model_id).source_run_id:
            log_metrics(client, own_run, subject, verdict)
        tags = _tags(verdict, policy, f"runs:/{run_id}/{place}", out_dir)
        client.set_logged_model_tags(model_id, tags)
        if subject.version:
            for key in tags:
                client.set_model_version_tag(subject.name, subject.version, key, tags[key])
    return place


def _connect(subject: Subject, tracking_uri: str | None) -> Any:
    return connect(tracking_uri or ADDRESSES.get(str(subject.detail.get("model_id"))))


def refuse_unattachable(subject: Subject, *, tracking_uri: str | None = None) -> None:
    """Refuse, before training, a subject whose report would lie where the gate may not write."""
    model_id = str(subject.detail.get("model_id", ""))
    with answering(f"finding the place of reports about {model_id}"):
        refuse_elsewhere(_connect(subject, tracking_uri), model_id)


def refuse_elsewhere(client: Any, model_id: str) -> str:
    """Return the run that keeps a model's reports, "" for none yet; refuse a place that the gate may not write."""
    if run_id := find_run(client, model_id):
        place = client.get_run(run_id).info.artifact_uri
    else:
        place = client.get_experiment(str(client.get_logged_model(model_id).experiment_id)).artifact_location
    refuse_written(str(place), tracking_uri=str(client.tracking_uri))
    return run_id


def copy_to_run(client: Any, model_id: str, files: Path, place: str) -> str:
    """Copy a folder to ``place`` within the artifacts of the run that keeps the model's reports; return that run."""
    if not (run_id := refuse_elsewhere(client, model_id)):
        fresh = client.create_run(client.get_logged_model(model_id).experiment_id, run_name="privgate reports")
        run_id = str(fresh.info.run_id)
        client.set_terminated(run_id)
        client.set_logged_model_tags(model_id, {RUN_TAG: run_id})
    client.log_artifacts(run_id, str(files), place)
    return run_id


def log_metrics(client: Any, run_id: str, subject: Subject, verdict: Verdict) -> Mapping[str, float]:
    """Log a verdict's metrics to a run, for the model, and return the metrics."""
    metrics = collect_metrics(verdict)
    model_id, when = str(subject.detail["model_id"]), int(_decided_at(verdict).timestamp() * 1000)
    for key, value in metrics.items():
        # MLflow keeps one point a time and step, so attaching again adds none
        client.log_metric(run_id, key, value, timestamp=when, step=0, model_id=model_id)
    return metrics


def collect_metrics(verdict: Verdict) -> Mapping[str, float]:
    """Return the metrics of a verdict; a dashboard that sorts by any of them puts the worst model last.

    ``privgate/<rule>`` is the measured value; ``_capped`` the end of its interval that the limit is compared with, at
    most ``LARGEST_NATS``. ``privgate/outcome`` is 0 (passed) to 3 (failed), ``privgate/scope`` 0 (all questions) to 2.
    """
    d = verdict.decision
    facts = {"outcome": d.outcome.rank, "scope": SCOPES.index(d.scope), "warnings": d.warnings, "observed": d.observed}
    metrics = {f"privgate/{name}": float(value) for name, value in facts.items()}
    for f in (f for f in verdict.findings if f.metric):
        name = f"privgate/{path_part(f'{f.rule}{f.suffix}')}"
        if not math.isnan(f.value):
            metrics[name] = verdict.said(f).value
        if f.unit == "nats" and f.direction == "max":
            worst = f.value if math.isnan(f.high) else f.high
            metrics[f"{name}_is_infinite"] = float(not math.isfinite(worst))
            metrics[f"{name}_capped"] = LARGEST_NATS if math.isnan(worst) else min(max(worst, 0.0), LARGEST_NATS)
    return metrics


def _tags(verdict: Verdict, policy: str, place: str, out_dir: Path) -> dict[str, str]:
    written = out_dir / "report.json"  # this file holds messages without names of people
    findings = json.loads(written.read_text(encoding="utf-8"))["findings"] if written.is_file() else ()
    messages = {f["rule"]: f["message"] for f in findings}
    blocking = [f for f in verdict.findings if f.outcome in (Outcome.FAILED, Outcome.INCONCLUSIVE)]
    first = max(blocking, key=lambda f: f.outcome.rank, default=None)
    more = f", and {len(blocking) - 1} more" if len(blocking) > 1 else ""
    moment, plain = _decided_at(verdict), re.sub(r"[^\w .,:/+-]", "?", policy)[:40]
    return {
        "privgate": f"{verdict.decision.text}, {plain}, {moment.date().isoformat()}",
        "privgate.outcome": ("observed: " if verdict.observed else "") + verdict.outcome.value,
        "privgate.policy": policy,
        "privgate.policy_digest": str(verdict.policy.get("digest", "")),
        "privgate.decided_at": moment.isoformat(timespec="seconds"),
        "privgate.report": f"{place}/report.html",
        # last, because clients that wait for an attached check wait for this tag
        "privgate.findings": f"{first.title[:200]}: {messages.get(first.rule, '')[:4000]}{more}" if first else "none",
    }


def _decided_at(verdict: Verdict) -> datetime:
    stated = verdict.detail.get("decided_at")
    return datetime.fromisoformat(str(stated)) if stated else datetime.now(UTC)


def promote(subject: Subject, alias: str, *, tracking_uri: str | None = None, forward_only: bool = False) -> str:
    """Set ``alias`` (without ``@``) to the version that was checked, and return the version that has it now."""
    if not subject.version:
        raise RegistryError(f"{subject.uri or subject.name} is no registered version; only versions have aliases")
    client = _connect(subject, tracking_uri)
    uri = f"models:/{subject.name}/{subject.version}"
    with stored_files(client, named(client, uri).storage) as folder:
        if digest.of_manifest(all_files(folder)) != subject.digests["files"]:
            raise DigestMismatchError(f"the files of {uri} changed while it was being checked; check it again")
    return move_alias(client, subject.name, subject.version, alias, forward_only=forward_only)


def move_alias(client: Any, name: str, version: str, alias: str, *, forward_only: bool) -> str:
    """Set ``alias`` and return the version that has it now: with ``forward_only`` a later one keeps it."""
    with answering(f"setting alias {alias!r} of {name} to version {version}"):
        holder = dict(client.get_registered_model(name).aliases).get(alias) if forward_only else None
        if holder is not None and int(holder) > int(version):
            return str(holder)
        client.set_registered_model_alias(name, alias, version)
    return version


def attached(uri: str, *, tracking_uri: str | None = None) -> dict[str, Any]:
    """Return the newest report attached to ``models:/…``; ``SubjectError``: there is none."""
    client = connect(tracking_uri)
    model_id, documents = named(client, uri).model_id, list[dict[str, Any]]()
    none = SubjectError(f"no report is attached to {uri}; run privgate check on it first")
    with answering(f"reading the reports of {uri}"):
        if not (run_id := find_run(client, model_id)):
            raise none
        refuse_files(location := locate_reports(client, model_id), tracking_uri=client.tracking_uri)
        if not client.list_artifacts(run_id, join_folder(model_id)):  # which sends credentials, too
            raise none
    # other tools may have written artifacts: only a signed statement is evidence
    unread = strict_json.reading(f"a report attached to {uri} cannot be read, so attach it again", SubjectError)
    with stored_files(client, location) as folder, unread:
        for path in digest.below(folder):  # a folder that may not be read is no absent report
            if path.name == "report.json" and path.parent.parent == folder and path.is_file():
                documents.append(dict(strict_json.read(path, LARGE)))
    if not documents:
        raise none
    return max(documents, key=lambda d: str(d.get("decided_at", "")))
