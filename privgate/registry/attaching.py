"""Attaching a verdict to a model version: files, headline metrics, display tags, a short description.

None of it is evidence: tags and descriptions are for people. What a guarded store believes is a signed statement.
"""

import math
import re
import shutil
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from privgate.errors import RegistryError
from privgate.registry import layout, report_place
from privgate.registry.client import address_of, answering, connect
from privgate.subject.subject import Subject
from privgate.verdict import Verdict

_FILES = ("report.json", "report.html", "summary.md", "junit.xml")
_RECORDS = "records.parquet"
_MARK = "privgate: "


def attach(
    subject: Subject,
    out_dir: Path,
    verdict: Verdict,
    *,
    tracking_uri: str | None = None,
    include_records: bool = False,
) -> str:
    """Attach a verdict's files, metrics and tags; doing it again changes nothing.

    Parameters
    ----------
    subject : Subject
        From ``load_subject``.
    out_dir : Path
        Folder that holds the written report; it stays as it is, whatever the registry does.
    verdict : Verdict
        What was decided.
    tracking_uri : str, optional
        Where to attach; where the subject came from if absent.
    include_records : bool
        Also attach the per-unit table, which is personal data about the training set.

    Returns
    -------
    str
        Folder of the files within the artifacts of the model's run.

    Raises
    ------
    RegistryError
        The subject has no registry, or the registry refused or vanished midway; attach again to complete it.
    """
    model_id = subject.detail.get("model_id")
    if not model_id:
        raise RegistryError("a local subject has no registry to attach to; log it with privgate.log_model")
    client = connect(tracking_uri or address_of(str(subject.detail.get("model_id"))))
    policy = str(verdict.policy.get("name", "policy"))
    place = report_place.folder_of(str(model_id), policy)
    named = [*_FILES, *([_RECORDS] if include_records else [])]
    with answering(f"attaching the report to {subject.uri}; it stays in {out_dir}"), tempfile.TemporaryDirectory() as t:
        for name in named:
            if (out_dir / name).is_file():
                shutil.copy(out_dir / name, Path(t, name))
        run_id = report_place.keep(client, str(model_id), Path(t), place)
        _log_metrics(client, str(model_id), verdict)
        tags = _tags(verdict, policy, f"runs:/{run_id}/{place}")
        client.set_logged_model_tags(model_id, tags)
        if subject.version:
            for key, value in tags.items():
                client.set_model_version_tag(subject.name, subject.version, key, value)
            _describe(client, subject, verdict, policy)
    return place


def _log_metrics(client: Any, model_id: str, verdict: Verdict) -> None:
    run_id = client.get_logged_model(model_id).source_run_id
    if run_id is None:
        return
    when = int(_decided_at(verdict).timestamp() * 1000)
    for key, value in headline(verdict).items():
        # the same time and step twice is one point, so attaching again adds none
        client.log_metric(run_id, key, value, timestamp=when, step=0, model_id=model_id)


def headline(verdict: Verdict) -> Mapping[str, float]:
    """Return ``privgate/<rule>`` -> measured value for every rule with a finite number."""
    return {
        f"privgate/{layout.path_part(f.rule)}": float(f.value)
        for f in verdict.findings
        if f.metric and math.isfinite(f.value)
    }


def _tags(verdict: Verdict, policy: str, place: str) -> dict[str, str]:
    counted = [f for f in verdict.findings if not f.outcome.releases]
    return {
        "privgate.outcome": ("observed: " if verdict.observed else "") + verdict.outcome.value,
        "privgate.policy": policy,
        "privgate.policy_digest": str(verdict.policy.get("digest", "")),
        "privgate.decided_at": _decided_at(verdict).isoformat(timespec="seconds"),
        "privgate.report": f"{place}/report.html",
        "privgate.findings": "; ".join(f"{f.title}: {f.outcome.value}" for f in counted)[:1000] or "none",
    }


def _describe(client: Any, subject: Subject, verdict: Verdict, policy: str) -> None:
    """Write one line, unless somebody wrote a description of their own."""
    present = client.get_model_version(subject.name, subject.version).description or ""
    if present and not present.startswith(_MARK):
        return
    day = _decided_at(verdict).date().isoformat()
    text = (
        f"{_MARK}{_outcome_words(verdict)} under policy {_plain(policy)} on {day}; see the report with the model's run"
    )
    client.update_model_version(subject.name, subject.version, description=text)


def _outcome_words(verdict: Verdict) -> str:
    if verdict.observed:
        return "observed only"
    return "approved" if verdict.approved else f"not approved ({verdict.outcome.value})"


def _decided_at(verdict: Verdict) -> datetime:
    stated = verdict.detail.get("decided_at")
    return datetime.fromisoformat(str(stated)) if stated else datetime.now(UTC)


def _plain(text: str) -> str:
    """Return ``text`` without characters that Markdown or a terminal would act on."""
    return re.sub(r"[^\w .,:/+-]", "?", text)[:200]
