"""Attacks: what somebody with access to the model finds out, and which attacks were not tried."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from privgate import digest
from privgate.evidence import (
    AgainstPdtp,
    AttackFigures,
    AttackResult,
    AttributeGuesses,
    AttributeResult,
    AttributesPart,
    Estimate,
    MembershipPart,
    NullRuns,
    RobustPart,
    SelfTest,
)
from privgate.evidence.attack_facts import CellAccuracy, RateAtFpr
from privgate.evidence.figures import number, percent
from privgate.report import charts, words
from privgate.report.blocks import Block, Chart, Heading, List, Section, TableBlock, Text, numbers
from privgate.report.charts import Curve
from privgate.report.report_schema import ReportDocument
from privgate.report.sentences import say
from privgate.report.text import plain, shown

#: an attack that ran, with what it achieved
Ran = tuple[AttackResult, AttackFigures]
#: attacks whose labels and groups are drawn; those of the others are in tables
_DRAWN = 3


def section(doc: ReportDocument) -> Section | None:
    """Return the attacks that ran with their figures and curves, and those that could not run."""
    part, inferred = doc.evidence.membership, attribute_blocks(doc.evidence.attributes)
    inferred += robust_blocks(doc.evidence.robust)
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
        blocks += curves(ranked)
        blocks += [b for i, r in enumerate(ranked) for b in groups(r, drawn=i < _DRAWN)]
        blocks += against_pdtp(part.against_pdtp) if part.against_pdtp else []
        blocks += false_alarms(part.null_runs) if part.null_runs else []
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


#: curves drawn at once; more cannot be told apart
_CURVES = 4
_GROUPS = 12


def curves(ran: Sequence[Ran]) -> list[Block]:
    """Return the ROC curves of the strongest attacks, given strongest first."""
    drawn = [r for r in ran if r[1].roc][:_CURVES]
    if not drawn:
        return []
    most = finds_most(ran)
    if most and most[0][1].roc and most[0] not in drawn:
        drawn[-1] = most[0]
    name = "Members found against people wrongly accused"
    said = (
        f"The attack that finds most, {title(most[0][0])}, finds {most[2]} of the people in the data when "
        f"{percent(most[1])} of the candidates are wrongly accused"
        if most
        else f"The strongest attack is {title(drawn[0][0])}; the closer to the dotted line, the closer to guessing"
    )
    curves = [(title(a), thinned(f.roc)) for a, f in drawn]
    least = min((p[0] for _, points in curves for p in points if p[0] > 0), default=0.01)
    svg = charts.roc("roc", name, "ROC curves on two logarithmic axes with the line of guessing.", curves=curves,
                     floor=max(1e-4, 10.0 ** math.floor(math.log10(least))))  # fmt: skip
    rates = (0.001, 0.01, 0.1, 0.5)
    rows = [(label, *_at(points, rates)) for label, points in curves]
    table = numbers("Points of the curves", ("Attack", *(f"Found at {percent(f)}" for f in rates)), rows)
    return [Chart("roc", name, f"{said}.", svg, table)]


def _at(curve: Curve, fprs: tuple[float, ...]) -> list[str]:
    finest = min((p[0] for p in curve if p[0] > 0), default=1.0)
    return [
        percent(max((p[1] for p in curve if p[0] <= f), default=0.0)) if f >= finest else "too fine for the sample"
        for f in fprs
    ]


def groups(ran: Ran, *, drawn: bool = True) -> list[Block]:
    """Return one attack's accuracy for each label and group, as a chart or as its table alone."""
    attack, found = ran
    # a column that has only a number is called one
    figures = [
        (plain(re.sub(r"^(\d+) = ", r"column \1 = ", g.name), 40), *estimate(g))
        for g in (*found.classes, *found.groups)[:_GROUPS]
    ]
    if not figures:
        return []
    name = f"Accuracy of {title(attack)} by label and group"
    worst = max(figures, key=lambda f: f[1])
    # an id that no other attack on the page has; its name may hold anything
    named = [plain(v) for v in (attack.name, attack.title, attack.scope, "")]
    ident = f"groups-{digest.of_json(named).removeprefix('sha256:')[:10]}"
    rows = [(n, *map(percent, shares)) for n, *shares in figures]
    table = numbers(name, ("Group", "Accuracy", "Low", "High"), rows)
    if not drawn:
        return [replace(table, folded=name)]
    svg = charts.groups(ident, name, "A line a group; the dashed line is guessing.", rows=figures, xlabel="accuracy",
                        reference=0.5, reference_text="guessing")  # fmt: skip
    return [Chart(ident, name, f"The group at greatest risk is {worst[0]} with {percent(worst[1])}.", svg, table)]


def against_pdtp(found: AgainstPdtp) -> list[Block]:
    """Return the best attack's accuracy on each record over its PDTP: point estimates, from models that took turns."""
    rows = [p for p in found.points if math.isfinite(p[0]) and math.isfinite(p[1])]
    if len(rows) < 2:
        return []
    if len({r[0] for r in rows}) == 1:
        same = f"Records whose PDTP is finite all have the same, {number(rows[0][0])} nats"
        return [Text(f"{same}: attack accuracy is not set against it.")]
    title_ = "Attack accuracy on single records over their PDTP"
    said = (
        "No correlation could be computed"
        if found.pearson is None or math.isnan(found.pearson)
        else (
            f"Records that matter more are {'easier' if found.pearson > 0 else 'no easier'} to guess: "
            f"correlation {number(found.pearson)} over {number(found.n)} records"
        )
    )
    svg = charts.against_pdtp("attack-pdtp", title_, "Mean accuracy over mean PDTP, dotted line: guessing.", rows=rows)
    cells = [(number(x), percent(v)) for x, v in rows]
    table = numbers(f"{title_}; {plain(found.kind, 120)}", ("Mean PDTP, nats", "Mean accuracy"), cells, 0)
    return [Chart("attack-pdtp", title_, f"{said}.", svg, table)]


def false_alarms(found: NullRuns) -> list[Block]:
    """Return how often the limits alarmed where there was nothing to find."""
    said = (
        f"With labels that mean nothing, the limits alarmed in {number(found.alarms)} of {number(found.runs)} "
        f"runs; at most {percent(found.nominal)} is promised, and the true share lies between "
        f"{percent(found.low)} and {percent(found.high)}."
    )
    return [Text(said)]


_ROBUST = ("Who guesses", "Radius", "Members called members", "Others called members", "Difference, with its interval")


def robust_blocks(part: RobustPart | None) -> list[Block]:
    """Return one table of the adversaries."""
    if part is None:
        return []
    rows = []
    for a in part.adversaries:
        e = a.advantage
        apart = "not known" if e.value is None else f"{percent(e.value)}{_limits(e)}"
        radius = "" if a.radius is None else number(a.radius)
        rows.append((plain(a.title, 60), radius, percent(a.inside), percent(a.outside), apart))
    caption = f"Distance to the nearest wrong answer, {plain(part.how, 60)}"
    return [Heading("Robustness"), TableBlock(caption, _ROBUST, rows)]


_FEATURES = ("Who guesses", "Of members", "Of candidates", "Difference, with its interval")


def attribute_blocks(part: AttributesPart | None) -> list[Block]:
    """Return one table a feature: what is guessed of members, of others, and by anybody without the model."""
    if part is None:
        return []
    made: list[Block] = [Heading("Sensitive features")]
    for found in part.attributes:
        rows = [_row(g) for g in (*found.adversaries, found.without_model)]
        caption = (
            f"{plain(found.name, 60)}: who knows everything else about somebody and asks the model with every value"
        )
        made += [TableBlock(caption, _FEATURES, rows), Text(_reading(found))]
        if found.by_value:
            values = [_row(g) for g in found.by_value]
            caption = f"{plain(found.name, 60)}, by its value"
            made.append(TableBlock(caption, ("Value", *_FEATURES[1:]), values, folded="Inversion, by the true value"))
    return made


def _row(guesses: AttributeGuesses) -> Sequence[str]:
    e = guesses.advantage
    limits = _limits(e)
    apart = limits.strip(" ()") or "not known" if e.value is None else f"{percent(e.value)}{limits}"
    return plain(guesses.title, 60), shown(guesses.inside, percent), shown(guesses.outside, percent), apart


def _limits(e: Estimate) -> str:
    return "" if e.low is None or e.high is None else f" ({percent(e.low)} to {percent(e.high)})"


def _reading(found: AttributeResult) -> str:
    said = (
        f"Saying the most frequent of its {found.values} values is right for {shown(found.prior_guess, percent)}. The "
        f"feature alone moves an answer by {number(found.influence)} {plain(found.influence_in, 30)} on average."
    )
    if found.theorem is not None:
        said += f" Normal errors of these sizes would give inversion a difference of {percent(found.theorem)}."
    return said


def ran(attacks: Sequence[AttackResult]) -> list[Ran]:
    """Return the attacks that ran, strongest first: by the larger of AUC and accuracy."""

    def strength(attack: Ran) -> float:
        return max(v for v in (attack[1].auc, estimate(attack[1].accuracy)[0], 0.0) if not math.isnan(v))

    return sorted(((a, a.figures) for a in attacks if a.figures), key=strength, reverse=True)


def title(attack: AttackResult) -> str:
    """Return an attack's plain name."""
    return plain(attack.title or attack.name, 60)


def estimate(value: Estimate | CellAccuracy | None) -> tuple[float, float, float]:
    """Return (value, low, high) of a figure; NaN where absent."""
    ends = (value.value, value.low, value.high) if value else (None, None, None)
    x, low, high = (math.nan if v is None else v for v in ends)
    return x, low, high


def told(value: Estimate) -> str:
    """Return a fraction with its interval in words."""
    x, low, high = estimate(value)
    if math.isnan(x):
        return "not measured"
    if math.isfinite(low) and math.isfinite(high):
        return f"{percent(x)} ({percent(low)} to {percent(high)})"
    return f"{percent(x)}, no interval"


def rate(value: RateAtFpr) -> str:
    """Return a true-positive rate in words."""
    return "not resolvable with this sample" if value.problem else told(value)


def finds_most(attacks: Sequence[Ran]) -> tuple[Ran, float, str] | None:
    """Return the attack that finds most at the smallest false-positive rate that any resolves: (attack, fpr, words).

    What is the best by AUC need not be the best at a small rate; a sentence about a rate names the best at that rate.
    """
    found = [
        (r.fpr, -r.value, i, rate(r))
        for i, (_, figures) in enumerate(attacks)
        for r in figures.tpr_at_fpr
        if r.value is not None and not r.problem
    ]
    if not found:
        return None
    fpr, _, i, words = min(found)
    return attacks[i], fpr, words


def thinned(curve: Curve, most: int = 200) -> Curve:
    """Return every so-manieth point of a curve, its last included."""
    step = max(1, -(-len(curve) // most))
    return [p for i, p in enumerate(curve) if i % step == 0 or i == len(curve) - 1]
