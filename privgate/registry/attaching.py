"""Attaching a verdict to a model version: files, headline metrics, display tags, a short description.

None of it is evidence: tags and descriptions are for people. What a guarded store believes is a signed statement.
"""

import json
import math
import re
import shutil
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from privgate import digest
from privgate.errors import DigestMismatchError, Outcome, RegistryError
from privgate.evidence.verdict import SCOPES, Verdict
from privgate.registry import reports
from privgate.registry.client import ADDRESSES, answering, connect, stored_files
from privgate.registry.files import path_part
from privgate.registry.named import named
from privgate.subject.subject import Subject

_FILES = ("report.json", "report.html", "summary.md", "junit.xml")
_RECORDS = "records.parquet"
_MARK = "privgate: "
#: what stands for infinity where a dashboard sorts: no change of a probability in floating point is as large
LARGEST_NATS = 1000.0
#: characters of a version's description that MLflow's store keeps
_DESCRIPTION = 5000


def attach(
    subject: Subject, out_dir: Path, verdict: Verdict, *, tracking_uri: str | None = None, include_records: bool = False
) -> str:
    """Attach a verdict's files, metrics and tags, and return their folder within the artifacts of the model's run.

    Doing it again changes nothing. ``out_dir`` holds the written report and stays as it is, whatever the registry does.
    ``include_records`` attaches the per-person table too, which is personal data about the training set.

    ``RegistryError``: the subject has no registry, or that refused or vanished midway; attach again to complete it.
    """
    model_id = str(subject.detail.get("model_id") or "")
    if not model_id:
        raise RegistryError("a local subject has no registry to attach to; log it with privgate.log_model")
    client = connect(tracking_uri or ADDRESSES.get(model_id))
    policy = str(verdict.policy.get("name", "policy"))
    place = reports.folder_of(model_id, policy)
    suites = sorted(p.name for p in out_dir.glob("validation-*.json"))
    named = [*_FILES, *suites, *([_RECORDS] if include_records else [])]
    with answering(f"attaching the report to {subject.uri}; it stays in {out_dir}"), tempfile.TemporaryDirectory() as t:
        for name in named:
            if (out_dir / name).is_file():
                shutil.copy(out_dir / name, Path(t, name))
        run_id = reports.keep(client, model_id, Path(t), place)
        if own_run := client.get_logged_model(model_id).source_run_id:
            log_to(client, own_run, subject, verdict)
        tags = _tags(verdict, policy, f"runs:/{run_id}/{place}", out_dir)
        client.set_logged_model_tags(model_id, tags)
        if subject.version:
            for key in (k for k in tags if k not in _NOT_ON_VERSIONS):
                client.set_model_version_tag(subject.name, subject.version, key, tags[key])
            experiment = client.get_run(run_id).info.experiment_id
            link = f"#/experiments/{experiment}/runs/{run_id}/artifacts/{quote(place)}/report.html"
            day = _decided_at(verdict).date().isoformat()
            head = f"{_MARK}{verdict.decision.text}, by policy {_plain(policy)}, on {day}; [report]({link})"
            _describe(client, subject, head, out_dir)
    return place


def refuse_unattachable(subject: Subject, *, tracking_uri: str | None = None) -> None:
    """Refuse, before anything is trained, a subject whose report would lie neither with the registry nor as listed."""
    model_id = str(subject.detail.get("model_id", ""))
    with answering(f"finding the place of reports about {model_id}"):
        reports.refuse_elsewhere(connect(tracking_uri or ADDRESSES.get(model_id)), model_id)


def log_to(client: Any, run_id: str, subject: Subject, verdict: Verdict) -> Mapping[str, float]:
    """Log the figures for this model and the data it was trained on, which the run then names, and return them."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    held = subject.digests.get("data", "")
    source = json.dumps({"digest": held, "kind": str(subject.detail.get("data_kind", ""))})
    # MLflow keeps 36 characters of a digest; all of it is in the source
    data = Dataset(f"{subject.name or 'model'} training data", held.rpartition(":")[2][:36], "privgate", source)
    dataset = DatasetInput(data, [InputTag("mlflow.data.context", "training")])
    metrics = headline(verdict)
    client.log_inputs(run_id, datasets=[dataset])
    when = int(_decided_at(verdict).timestamp() * 1000)
    about = {"dataset_name": data.name, "dataset_digest": data.digest, "model_id": str(subject.detail["model_id"])}
    for key, value in metrics.items():
        # the same time and step twice is one point, so attaching again adds none
        client.log_metric(run_id, key, value, timestamp=when, step=0, **about)
    return metrics


def headline(verdict: Verdict) -> Mapping[str, float]:
    """Return the metrics of a verdict, such that a dashboard which sorts by any of them puts the worst model last.

    ``privgate/<rule>`` is the measured value, infinity included, as MLflow stores it (a database keeps the largest
    float). A share or a quantile is no largest value and has a name of its own, as ``privgate/<rule>_share_above``.
    Beside every figure in nats stand ``privgate/<rule>_is_infinite`` (0 or 1: no limit is known) and
    ``privgate/<rule>_capped``: the end of its interval that a limit is compared with, at most ``LARGEST_NATS``. What
    was not measured is as bad as infinite. ``privgate/outcome`` is 0 (passed) to 3 (failed); ``privgate/scope`` is 0
    where an approval speaks of all questions that rules ask, 1 of those near people's own records, 2 of those at them.
    """
    d = verdict.decision
    facts = {"outcome": d.outcome.rank, "scope": SCOPES.index(d.scope), "warnings": d.warnings, "observed": d.observed}
    told = {f"privgate/{name}": float(value) for name, value in facts.items()}
    for f in verdict.findings:
        name = f"privgate/{path_part(f'{f.rule}{f.suffix}')}"
        if f.metric and not math.isnan(f.value):
            told[name] = verdict.said(f).value
        if f.metric and f.unit == "nats" and f.direction == "max":
            worst = f.value if math.isnan(f.high) else f.high
            told[f"{name}_is_infinite"] = float(not math.isfinite(worst))
            told[f"{name}_capped"] = LARGEST_NATS if math.isnan(worst) else min(max(worst, 0.0), LARGEST_NATS)
    return told


#: tags of the logged model that would only be cut on a version's page: its description says the same
_NOT_ON_VERSIONS = frozenset({"privgate.policy", "privgate.report"})


def _tags(verdict: Verdict, policy: str, place: str, out_dir: Path) -> dict[str, str]:
    written = out_dir / "report.json"  # there the assertions name nobody
    found = json.loads(written.read_text(encoding="utf-8"))["findings"] if written.is_file() else ()
    said = {f["rule"]: f["message"] for f in found}
    blocking = [f for f in verdict.findings if f.outcome in (Outcome.FAILED, Outcome.INCONCLUSIVE)]
    counted = sorted(blocking, key=lambda f: -f.outcome.rank)
    more = f", and {len(counted) - 1} more" if len(counted) > 1 else ""
    return {
        "privgate": f"{verdict.decision.text}, {_plain(policy)[:40]}, {_decided_at(verdict).date().isoformat()}",
        "privgate.outcome": ("observed: " if verdict.observed else "") + verdict.outcome.value,
        "privgate.policy": policy,
        "privgate.policy_digest": str(verdict.policy.get("digest", "")),
        "privgate.decided_at": _decided_at(verdict).isoformat(timespec="seconds"),
        "privgate.report": f"{place}/report.html",
        # last: whoever waits for a check to be attached waits for this one
        "privgate.findings": f"{counted[0].title[:200]}: {said.get(counted[0].rule, '')[:4000]}{more}"
        if counted
        else "none",
    }


def _describe(client: Any, subject: Subject, head: str, out_dir: Path) -> None:
    """Write the summary as the version's description, unless somebody wrote one of their own."""
    present = client.get_model_version(subject.name, subject.version).description or ""
    if present and not present.startswith(_MARK):
        return
    summary = out_dir / "summary.md"
    text = f"{head}\n\n{summary.read_text(encoding='utf-8') if summary.is_file() else ''}"
    # what is folded there is in the report; a page's description neither folds nor holds more
    shown = text.partition("<details>")[0].rstrip()
    while len(shown) > _DESCRIPTION:
        shown = shown[: _DESCRIPTION - 1].rpartition("\n")[0]
    client.update_model_version(subject.name, subject.version, description=shown)


def _decided_at(verdict: Verdict) -> datetime:
    stated = verdict.detail.get("decided_at")
    return datetime.fromisoformat(str(stated)) if stated else datetime.now(UTC)


def _plain(text: str) -> str:
    return re.sub(r"[^\w .,:/+-]", "?", text)[:200]


def promote(subject: Subject, alias: str, *, tracking_uri: str | None = None, forward_only: bool = False) -> str:
    """Set ``alias`` (without ``@``) to the version that was checked, and return the version that has it now.

    ``forward_only`` leaves the alias where a later version has it. ``RegistryError``: the subject is no registered
    version, or the registry refused, in its own words. ``DigestMismatchError``: the version's files changed since.
    """
    if not subject.version:
        raise RegistryError(f"{subject.uri or subject.name} is no registered version; only versions have aliases")
    client = connect(tracking_uri or ADDRESSES.get(str(subject.detail.get("model_id"))))
    uri = f"models:/{subject.name}/{subject.version}"
    present = named(client, uri)
    with stored_files(client, present.storage) as stored:
        if digest.of_manifest(stored.digests()) != subject.digests["files"]:
            raise DigestMismatchError(f"the files of {uri} changed while it was being checked; check it again")
    return move(client, subject.name, subject.version, alias, forward_only=forward_only)


def move(client: Any, name: str, version: str, alias: str, *, forward_only: bool) -> str:
    """Set ``alias`` and return the version that has it now: with ``forward_only`` a later one keeps it."""
    with answering(f"setting alias {alias!r} of {name} to version {version}"):
        held = dict(client.get_registered_model(name).aliases).get(alias) if forward_only else None
        if held is not None and int(held) > int(version):
            return str(held)
        client.set_registered_model_alias(name, alias, version)
    return version
