"""Reports as they leave, of kept evidence: judged again, told again, rendered again.

``python tests/goldens/documents.py`` freezes them anew; a difference is read line by line before it is kept.
"""

import datetime as dt
import html
import json
import re
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[2])]
import adapters  # noqa: E402  it lies beside this file

FOLDER = Path(__file__).parent / "data" / "documents"
#: a run that is kept with the tests of the report, or one of them with counts of a few people planted
ROWS = ("certified", "refuted", "undecided", "attacked", "few", "shares", "private", "sensitive",
        "regressor", "people", "early")  # fmt: skip


def judged(name):
    """Return the verdict on a kept run, judged now under the policy that it names."""
    from privgate.policy import judging
    from privgate.policy.document_shape import Document

    runs = adapters.module("real_runs", "report")
    kept = runs.golden({"few": "attacked"}.get(name, name))
    kept = runs.few(kept) if name == "few" else kept
    given = runs.verdict(kept)
    source = {k: v for k, v in given.policy["source"].items() if k not in ("extends", "applies_to")}
    policy = Document.model_validate_json(json.dumps(source))
    found = judging.judge(
        policy,
        given.evidence,
        facts={"n_units": int(given.evidence.subject["n_units"]), "expectations": {}},
        today=dt.datetime.fromisoformat(kept["detail"]["decided_at"]).date(),
    )
    return runs, given, found.findings


def text(name):
    """Return everything that leaves of one run, as lines."""
    from dataclasses import replace

    from privgate import report

    runs, given, findings = judged(name)
    doc = report.document(replace(given, findings=findings), hash_key=runs.KEY)
    lines = []
    for key, value in [*doc.items(), *doc["evidence"].items()]:
        rows = value if isinstance(value, list) else [{} if key == "evidence" else value]
        lines += [f"{key}: {json.dumps(row, sort_keys=True)}" for row in rows]
    for kind in ("markdown", "junit", "text"):
        lines += [f"== {kind}", *report.render(doc, kind).splitlines()]
    page = re.sub(r"<style>.*?</style>|<svg.*?</svg>", " ", report.render(doc, "html"), flags=re.DOTALL)
    plain = html.unescape(re.sub(r"<[^>]+>", "\n", page))
    said = [line for raw in plain.splitlines() if (line := " ".join(raw.split()))]
    return re.sub(r"\b(privgate|version) 1\.\d+\.\w+", r"\1 VERSION", "\n".join([*lines, "== html", *said])) + "\n"


def main(names):
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names or ROWS:
        (FOLDER / f"{name}.txt").write_text(text(name), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
