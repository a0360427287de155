"""Attacks: what somebody with access to the model finds out, and which attacks were not tried."""

import math
from typing import Any

from privgate.report import attack_charts, reading, words
from privgate.report.attack_data import at_fpr, strength, title, told
from privgate.report.blocks import Block, Heading, List, Section, Table
from privgate.report.reading import Doc
from privgate.report.text import number, percent, plain, real

#: attacks whose labels and groups are drawn; those of the others are in tables
_DRAWN = 3


def section(doc: Doc) -> Section | None:
    """Return the attacks that ran with their figures and curves, and those that could not run."""
    attacks = reading.rows(reading.detail(doc).get("attacks"))
    if not attacks:
        return None
    ran = [a for a in attacks if not a.get("problem")]
    blocks: list[Block] = []
    if ran:
        blocks.append(_table(ran))
        blocks += attack_charts.curves(ran)
        ranked = sorted(ran, key=strength, reverse=True)
        blocks += [b for i, a in enumerate(ranked) for b in attack_charts.groups(a, drawn=i < _DRAWN)]
        blocks += [b for a in ran for b in attack_charts.by_pdtp(a)]
        blocks += attack_charts.all_by_pdtp(reading.mapping(reading.detail(doc).get("attack_against_pdtp")))
        blocks += attack_charts.false_alarms(reading.mapping(reading.detail(doc).get("attack_null_runs")))
        blocks.append(_methods(ran))
    failed = [a for a in attacks if a.get("problem")]
    if failed:
        blocks += [
            Heading("Could not run"),
            List([f"{title(a)}: {plain(a['problem'], 240)}" for a in failed]),
        ]
    tested = words.kinds_tested(doc)
    rows = [(k.capitalize(), "tested" if k in tested else "not tested") for k in words.ATTACK_KINDS]
    blocks.append(Table("Kinds of attack", ("Kind", "In this run"), rows))
    return Section("attacks", "Attacks", blocks)


def _table(ran: list[Doc]) -> Table:
    fprs = sorted({f for a in ran for f, _ in at_fpr(a)})[:3]
    rows = []
    for a in sorted(ran, key=strength, reverse=True):
        rates = dict(at_fpr(a))
        rows.append(
            (
                title(a),
                plain(a.get("scope"), 20) or "model",
                told(a.get("auc"), fraction=False).removesuffix(", no interval"),
                told(a.get("accuracy")),
                *(rates.get(f, "not measured") for f in fprs),
            )
        )
    columns = ("Attack", "Against", "AUC (0.5 is guessing)", "Accuracy (50 % is guessing)",
               *(f"Found at {percent(f)} false accusations" for f in fprs))  # fmt: skip
    return Table("What each attack achieved, strongest first", columns, rows)


def _methods(ran: list[Doc]) -> Block:
    rows = [
        (
            title(a),
            plain(a.get("threat_model"), 200),
            " / ".join(
                f"{number(a[k])} {w}"
                for k, w in (("n_members", "in"), ("n_nonmembers", "out"), ("n_shadows", "shadow models"))
                if a.get(k)
            ),
            _self_test(a.get("self_test")),
            plain(a.get("source"), 160),
        )
        for a in ran
    ]
    columns = ("Attack", "What the attacker knows", "Sample", "Self-test", "Source")
    return Table("How the attacks were run", columns, rows, folded="How the attacks were run, with sources")


def _self_test(value: Any) -> str:
    if isinstance(value, dict):
        if value.get("problem"):
            return f"failed: {plain(value['problem'], 120)}"
        kinds = [("in probabilities", "planted"), ("in shares of votes", "votes"), ("in labels", "labels")]
        told = [f"{number(value[k])} {w}" for w, k in kinds if not math.isnan(real(value.get(k)))]
        return f"AUC on a planted leak {', '.join(told)}; {number(value.get('blind'))} on none"
    return plain(value, 120) or "none recorded"
