"""Attacks: what somebody with access to the model finds out, and which attacks were not tried."""

import math
from collections.abc import Sequence

from privgate.evidence import AttackResult, MembershipPart, SelfTest
from privgate.evidence.figures import number, percent
from privgate.report import attack_charts, found_blocks, words
from privgate.report.blocks import Block, Heading, List, Section, TableBlock
from privgate.report.charts import Ran, ran, rate, title, told
from privgate.report.report_schema import ReportDocument
from privgate.report.sentences import say
from privgate.report.text import plain

#: attacks whose labels and groups are drawn; those of the others are in tables
_DRAWN = 3


def section(doc: ReportDocument) -> Section | None:
    """Return the attacks that ran with their figures and curves, and those that could not run."""
    part, inferred = doc.evidence.membership, found_blocks.attribute_blocks(doc.evidence.attributes)
    inferred += found_blocks.robust_blocks(doc.evidence.robust)
    if (part is None or not part.attacks) and not inferred:
        return None
    blocks = [*(_on_membership(part) if part is not None and part.attacks else []), *inferred]
    tested = words.kinds_tested(doc)
    rows = [(words.capital(say(f"kind.{k}")), "tested" if k in tested else "not tested") for k in words.ATTACK_KINDS]
    blocks.append(TableBlock("Kinds of attack", ("Kind", "In this run"), rows))
    return Section("attacks", "Attacks", blocks)


def _on_membership(part: MembershipPart) -> list[Block]:
    ranked = ran(part.attacks)
    blocks: list[Block] = []
    if ranked:
        blocks.append(_table(ranked))
        blocks += attack_charts.curves(ranked)
        blocks += [b for i, r in enumerate(ranked) for b in attack_charts.groups(r, drawn=i < _DRAWN)]
        blocks += attack_charts.against_pdtp(part.against_pdtp) if part.against_pdtp else []
        blocks += attack_charts.false_alarms(part.null_runs) if part.null_runs else []
        blocks.append(_methods([a for a in part.attacks if a.figures]))
    failed = [a for a in part.attacks if not a.figures]
    if failed:
        blocks += [Heading("Could not run"), List([f"{title(a)}: {plain(a.problem, 240)}" for a in failed])]
    return blocks


def _table(ranked: Sequence[Ran]) -> TableBlock:
    asked = sorted({r.fpr for _, f in ranked for r in f.tpr_at_fpr})[:3]
    fprs = [p for p in asked if any(r.fpr == p and not r.problem for _, f in ranked for r in f.tpr_at_fpr)]
    rows = []
    for a, f in ranked:
        rates = {r.fpr: rate(r) for r in f.tpr_at_fpr}
        found = (rates.get(fpr, "not measured") for fpr in fprs)
        rows.append((title(a), plain(a.scope, 20), number(f.auc), told(f.accuracy), *found))
    columns = ("Attack", "Against", "AUC (0.5 is guessing)", "Accuracy (50 % is guessing)",
               *(f"Found at {percent(f)} false accusations" for f in fprs))  # fmt: skip
    coarse = [percent(p) for p in asked if p not in fprs]
    why = f"; too few people to resolve {' or '.join(coarse)} false accusations" if coarse else ""
    return TableBlock(f"What each attack achieved, strongest first{why}", columns, rows)


def _methods(attacks: Sequence[AttackResult]) -> Block:
    rows = [(title(a), plain(a.threat_model, 200), _self_test(a.self_test), plain(a.source, 160)) for a in attacks]
    columns = ("Attack", "What the attacker knows", "Self-test", "Source")
    return TableBlock("How the attacks were run", columns, rows, folded="How the attacks were run, with sources")


def _self_test(test: SelfTest) -> str:
    if test.problem:
        return f"failed: {plain(test.problem, 120)}"
    kinds = {"in probabilities": test.planted, "in shares of votes": test.votes, "in labels": test.labels}
    told = [f"{number(v)} {w}" for w, v in kinds.items() if not math.isnan(v)]
    return f"AUC on a planted leak {', '.join(told)}; {number(test.blind)} on none"
