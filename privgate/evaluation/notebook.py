"""What people get of a verdict: what page one says beside it, the report, a notebook's table, and keyed hashes."""

import getpass
import os
import platform
from collections.abc import Mapping
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from privgate import report as reports
from privgate.errors import MeasurementError
from privgate.evidence.verdict import Outcome, Verdict
from privgate.report import assertions, charts, schema
from privgate.report.schema import is_condition
from privgate.training.ledger import config_folder, read_key

#: what an operator may state; also the keys of ``privgate.yaml`` and, in capitals after PRIVGATE_, of the environment
STATED = ("purpose", "owner", "data_name", "data_source")
#: the page's colours, for a drawing that stands alone
_COLORS = "--paper:#fff;--ink:#16191d;--chart-a:#1b6ca8;--chart-limit:#9b1216;--chart-soft:#5b646e"


def load_hash_key(file: str | os.PathLike[str] | None = None) -> bytes:
    """Return the key; whoever holds it can recompute the hashes in a report from the record ids.

    ``file`` is ``privgate/hash.key`` in the user's configuration folder if absent, and is written on first use.
    ``UsageError``: it can neither be read nor made, or is too short.
    """
    path = Path(file) if file is not None else config_folder() / "hash.key"
    return read_key(path, "the hash key", "name --hash-key-file", 32)


def with_context(verdict: Verdict, stated: Mapping[str, Any]) -> Verdict:
    """Return the verdict with what page one says beside it: purpose, owner, name and source of the data, as stated."""
    known = {k: " ".join(str(stated.get(k) or "").split()) for k in STATED}
    return replace(verdict, detail={**verdict.detail, "context": known | ran(os.environ)})


def ran(environ: Mapping[str, str]) -> dict[str, str]:
    """Return who ran the check and where: the actor and address of a workflow run, else this user and host."""
    if run := environ.get("GITHUB_RUN_ID"):
        place = "/".join(environ.get(k, "") for k in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY"))
        return {"run_by": environ.get("GITHUB_ACTOR", ""), "run_on": f"{place}/actions/runs/{run}"}
    if address := environ.get("CI_JOB_URL"):
        return {"run_by": environ.get("GITLAB_USER_LOGIN", ""), "run_on": address}
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in many containers
        user = f"user {os.getuid()}"
    return {"run_by": user, "run_on": platform.node()}


def overview(verdict: Verdict) -> str:
    """Return one row a rule and one a condition that does not hold, in HTML, in the words of the report."""
    findings = sorted(map(verdict.said, verdict.findings), key=schema.badness)
    rules = assertions.of_rules([f for f in findings if not is_condition(f)], verdict.evidence.measurements.values())
    unheld = [f for f in findings if is_condition(f) and f.outcome is not Outcome.PASSED]
    # no message: it may name a person, and notebooks travel
    rows = [(f.outcome.word, f.title or f.rule, "", "") for f in unheld]
    rows += [(a.outcome.word, a.title, a.value if a.measured else "", a.threshold) for a in rules]
    cells = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    head = "<tr><th>Result</th><th>Rule</th><th>Measured</th><th>Limit</th></tr>"
    return f"<p><strong>{escape(repr(verdict)[1:-1])}</strong></p><table>{head}{cells}</table>"


def report(
    verdict: Verdict,
    path: str | Path,
    *,
    hash_key: bytes | None = None,
    baseline: Mapping[str, Any] | None = None,
    **stated: Any,
) -> list[Path]:
    """Write the report: one page where ``path`` ends in .html, else every format into that folder."""
    if unknown := sorted(set(stated) - set(STATED)):
        raise TypeError(f"page one has no place for {', '.join(unknown)}; known: {', '.join(STATED)}")
    if stated or not verdict.detail.get("context"):
        verdict = with_context(verdict, stated)
    place, key = Path(path), load_hash_key() if hash_key is None else hash_key
    if place.suffix != ".html":
        return reports.write(verdict, place, hash_key=key, baseline=baseline)
    place.parent.mkdir(parents=True, exist_ok=True)
    page = reports.render(reports.document(verdict, hash_key=key, baseline=baseline), "html")
    place.write_text(page, encoding="utf-8")
    return [place]


def plot(verdict: Verdict) -> charts.Picture:
    """Return everybody's influence, largest first, or the worst ones where not everybody was measured."""
    drawn = charts.draw_influence(schema.read(reports.document(verdict, hash_key=load_hash_key())))
    if not drawn.svg:
        raise MeasurementError(f"there is nothing to draw: {drawn.caption}")
    head, _, body = drawn.svg.partition(">")
    head = head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return drawn._replace(svg=f'{head} style="{_COLORS}">{body}')
