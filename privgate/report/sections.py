"""The evidence, section by section; a section without data is not shown."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from privgate import evidence, vocabulary
from privgate.evidence.figures import fold, number, percent
from privgate.policy.rules import about
from privgate.report import assertions, methods, page_one, people
from privgate.report.compare import section as comparison
from privgate.report.page import Block, Code, List, Section, Text, facts, table
from privgate.report.schema import SCHEMA, DomainFacts, ReportDocument
from privgate.report.sentences import say
from privgate.report.text import capital, moment, plain, prose, shown
from privgate.run.needs import Need

#: points (rate of false accusations, share of members found), ascending
Curve = Sequence[tuple[float, ...]]
#: an attack that ran, with what it achieved
Ran = tuple[evidence.AttackResult, evidence.AttackFigures]
#: rates of false accusations at which a table tells points of curves, fractions
_RATES = (0.001, 0.01, 0.1, 0.5)


def findings(doc: ReportDocument) -> Section:
    """Return every rule's finding, worst first; what must hold before any figure counts has a section of its own."""
    told = [a for a in assertions.of(doc) if not a.condition]
    named = {a.finding.rule: a.asked for a in told}
    rows = [
        (a.asked, a.result, a.sentence, capital(prose(a.finding.meaning)), a.finding.rule, a.finding.mode) for a in told
    ]
    columns = ("Rule", "Result", "What was found", "What it means", "Id in the policy", "Mode")
    blocks: list[Block] = [table("Rules, worst first", columns, rows) if rows else Text("No rule was judged.")]
    if doc.waivers:
        heads = ("Rule", "Status", "Reason", "Up to", "Asked by", "Approved by", "Until")
        blocks.append(table("All waivers", heads, [
            (named.get(w.rule) or w.rule, w.status, w.reason, w.ceiling, w.requester, w.approver, moment(w.expires))
            for w in doc.waivers
        ]))  # fmt: skip
    if len(full := page_one.steps(doc)) > 1 or not doc.approved:
        blocks += [Text("What to do next, in full", "heading"), List(full)]
    return Section("findings", "All findings", blocks)


def model(doc: ReportDocument) -> Section:
    """Return the model's facts and what the deployed model hands out."""
    s, release = doc.subject, doc.subject.release
    counts = (("Records", s.n_records), ("People", s.n_units), ("Labels", s.n_classes),
              ("Candidates outside the data", s.n_candidates))  # fmt: skip
    items = [(name, number(count)) for name, count in counts if count]
    items += [("Answers", "numbers, one a question")] if s.task == "regression" else []
    if (recipe := s.recipe) is not None:
        settings = ", ".join(f"{k} = {v}" for k, v in recipe.settings.items())
        seed = "none recorded" if recipe.seed is None else str(recipe.seed)
        items += [("Trained by", recipe.trained_by), ("Parameters", settings), ("Seed", seed if recipe.kind else "")]
    items += [
        ("One query returns", page_one.released(s)),
        ("Step", number(release.step) if release.form in ("rounded", "binned") else ""),
        ("Labels listed", number(release.k) if release.form == "top_k" else ""),
        ("Temperature", number(release.temperature) if release.temperature != 1 else ""),
        ("Questions that may be asked", _domain(s.domain)),
    ]
    blocks: list[Block] = [facts(items)]
    if release.form != "probabilities" or release.temperature != 1:
        said = "Measured, attacks included, on what is released and on exact probabilities; the worse counts."
        blocks.append(Text(said))
    return Section("model", "Model and release", [*blocks, *_file(doc)])


def _domain(domain: DomainFacts | None) -> str:
    if domain is None:
        return "no domain was declared"
    kinds = {
        f"{len(domain.categories or ())} categorical features": domain.categories,
        f"{len(domain.columns or ())} columns, each with its range or its categories": domain.columns,
        f"{len(domain.box or ())} features with a range each": domain.box and not domain.columns,
        f"{domain.queries} listed questions, each asked": domain.queries,
        plain(domain.withheld, 80): domain.withheld,
        f"documents up to {number(domain.max_length)} words": domain.max_length,
        f"feature vectors of norm up to {number(domain.norm)}": domain.norm,
    }
    how = "inferred from the training data, which is a guess" if domain.inferred else "declared"
    return f"{', '.join(kind for kind, stated in kinds.items() if stated) or 'any'} ({how})"


def _file(doc: ReportDocument) -> list[Block]:
    """Return what the file carries, and whether that decided anything."""
    part = doc.evidence.artifact
    if part is None:
        return []
    ruled = ", ".join(dict.fromkeys(f.metric for f in doc.findings if Need.LOOKED in about(f.metric).needs))
    made: list[Block] = [Text("What the file itself carries", "heading"), Text(_carried(part, ruled))]
    if part.carried:
        rows = [(c.what, c.where, *map(shown, (c.least, c.most, c.beside))) for c in part.carried]
        columns = ("What", "Where", "Records, at least", "Records, at most", "Beside")
        made.append(table("Traces of single records", columns, rows))
    if part.unknown:
        text = "; ".join(plain(u, 160) for u in part.unknown)
        made.append(Text(f"Not read, so that it may carry anybody: {text}."))
    return made


def _carried(part: evidence.ArtifactPart, ruled: str) -> str:
    what = "stored file" if part.judged == "file" else "model that the recipe trains (no file is stored)"
    decided = f"The rule {ruled} judges this."
    if not ruled:
        decided = "No rule judges this: an approval speaks of the model's answers, not of who can download its file."
    if part.how == "bytes":
        return f"The {what} {prose(part.bytes_said)}. Its bytes were searched; nothing of it was run. {decided}"
    if part.problem:
        return f"The {what} could not be walked ({plain(part.problem, 160)}), so that it may carry anybody. {decided}"
    low, high = shown(part.least), shown(part.most)
    span = low if low == high else f"{low} for certain, and at most {high},"
    return f"The {what} carries traces of their own of {span} of {number(part.records)} records. {decided}"


def data(doc: ReportDocument) -> Section | None:
    """Return the preconditions in the order in which they were checked."""
    rows = [(assertions.condition(p.name), say(f"result.{p.outcome}"), prose(p.message))
            for p in doc.evidence.preconditions]  # fmt: skip
    caption = "What must hold before any figure counts, in the order checked"
    made = table(caption, ("Condition", "Result", "What was found"), rows)
    return Section("data", "Data and conditions", [made]) if rows else None


def attacks(doc: ReportDocument) -> Section | None:
    """Return the attacks that ran with their figures and curves, and those that could not run."""
    part = doc.evidence.membership
    blocks = [*_membership(part), *_features(doc.evidence.attributes), *_robustness(doc.evidence.robust)]
    if not blocks:
        return None
    tested = page_one.kinds_tested(doc)
    rows = [(capital(say(f"kind.{k}")), "tested" if k in tested else "not tested") for k in page_one.ATTACK_KINDS]
    return Section("attacks", "Attacks", [*blocks, table("Kinds of attack", ("Kind", "In this run"), rows)])


def _membership(part: evidence.MembershipPart | None) -> list[Block]:
    if part is None or not part.attacks:
        return []
    ranked, blocks = rank_attacks(part.attacks), list[Block]()
    if ranked:
        blocks += [_achieved(ranked), *trace_curves(ranked), *accuracy_by_cell(ranked)]
        blocks += accuracy_over_pdtp(part.against_pdtp) if part.against_pdtp else []
        if found := part.null_runs:
            blocks.append(Text(
                f"With labels that mean nothing, the limits alarmed in {number(found.alarms)} of {number(found.runs)} "
                f"runs; at most {percent(found.nominal)} is promised, and the true share lies between "
                f"{percent(found.low)} and {percent(found.high)}."
            ))  # fmt: skip
        rows = [(title(a), a.threat_model, _tested(a.self_test), a.source) for a, _ in ranked]
        columns = ("Attack", "What the attacker knows", "Self-test", "Source")
        blocks.append(table("How the attacks were run", columns, rows, "How the attacks were run, with sources"))
    failed = [f"{title(a)}: {plain(a.problem, 240)}" for a in part.attacks if not a.figures]
    return [*blocks, Text("Could not run", "heading"), List(failed)] if failed else blocks


def rank_attacks(attacks: Iterable[evidence.AttackResult]) -> list[Ran]:
    """Return the attacks that ran, strongest first: by the larger of AUC and accuracy."""

    def strength(attack: Ran) -> float:
        return max(v for v in (attack[1].auc, attack[1].accuracy.value or 0.0, 0.0) if not math.isnan(v))

    return sorted(((a, a.figures) for a in attacks if a.figures), key=strength, reverse=True)


def title(attack: evidence.AttackResult) -> str:
    """Return an attack's plain name."""
    return plain(attack.title or attack.name, 60)


def _achieved(ranked: Sequence[Ran]) -> Block:
    every = [r for _, f in ranked for r in f.tpr_at_fpr]
    rates, resolved = sorted({r.fpr for r in every})[:3], {r.fpr for r in every if not r.problem}
    told = [p for p in rates if p in resolved]
    rows = []
    for a, f in ranked:
        found = {r.fpr: _estimate(r) for r in f.tpr_at_fpr}
        rows.append((title(a), a.scope, f.auc, _estimate(f.accuracy), *(found.get(p, "not measured") for p in told)))
    coarse = " or ".join(percent(p) for p in rates if p not in told)
    why = f"; too few people to resolve {coarse} false accusations" if coarse else ""
    heads = ("Attack", "Against", "AUC (0.5 is guessing)", "Accuracy (50 % is guessing)",
             *(f"Found at {percent(p)} false accusations" for p in told))  # fmt: skip
    return table(f"What each attack achieved, strongest first{why}", heads, rows)


def _estimate(found: evidence.Estimate | None, show: Callable[[float], str] = percent) -> str:
    """Return a figure with its interval, as far as either is known."""
    found = found or evidence.Estimate(value=None)
    ends = "" if found.low is None or found.high is None else f"{show(found.low)} to {show(found.high)}"
    if found.problem:
        return "not resolvable with this sample"
    if found.value is None or math.isnan(found.value):
        return ends or "not measured"
    return f"{show(found.value)} ({ends})" if ends else f"{show(found.value)}, no interval"


def _tested(test: evidence.SelfTest) -> str:
    if test.problem:
        return f"failed: {plain(test.problem, 120)}"
    kinds = {"in probabilities": test.planted, "in shares of votes": test.votes, "in labels": test.labels}
    told = [f"{number(v)} {w}" for w, v in kinds.items() if not math.isnan(v)]
    return f"AUC on a planted leak {', '.join(told)}; {number(test.blind)} on none"


def trace_curves(ranked: Sequence[Ran]) -> list[Block]:
    """Return points of the attacks' ROC curves, and which attack finds most at the smallest rate that any resolves.

    What is the best by AUC need not be the best at a small rate.
    """
    curves = [(title(a), f.roc) for a, f in ranked if f.roc]
    resolved = [(r.fpr, -r.value, title(a), _estimate(r)) for a, f in ranked for r in f.tpr_at_fpr
                if r.value is not None and not r.problem]  # fmt: skip
    blocks: list[Block] = []
    if resolved:
        fpr, _, name, share = min(resolved)
        accused = f"when {percent(fpr)} of the candidates are wrongly accused"
        blocks.append(Text(f"The attack that finds most, {name}, finds {share} of the people in the data {accused}."))
    return [*blocks, _points("Members found against people wrongly accused", curves)] if curves else blocks


def _points(caption: str, curves: Sequence[tuple[str, Curve]]) -> Block:
    rows = [(label, *(_at(points, rate) for rate in _RATES)) for label, points in curves]
    return table(caption, ("Curve", *(f"Found at {percent(rate)}" for rate in _RATES)), rows, caption)


def _at(curve: Curve, rate: float) -> str:
    finest = min((p[0] for p in curve if p[0] > 0), default=1.0)
    return "too fine for the sample" if rate < finest else percent(max(p[1] for p in curve if p[0] <= rate))


def accuracy_by_cell(ranked: Sequence[Ran]) -> list[Block]:
    """Return the attacks' accuracy for each label and group; a column that has only a number is called one."""
    rows = [(title(a), re.sub(r"^(\d+) = ", r"column \1 = ", c.name), *map(percent, (c.value, c.low, c.high)))
            for a, f in ranked for c in (*f.classes, *f.groups)[:12]]  # fmt: skip
    name = "Accuracy by label and group"
    return [table(name, ("Attack", "Label or group", "Accuracy", "Low", "High"), rows, name)] if rows else []


def accuracy_over_pdtp(found: evidence.AgainstPdtp) -> list[Block]:
    """Return the best attack's accuracy on each record over its PDTP: point estimates, from models that took turns."""
    rows = [(x, percent(y)) for x, y in found.points if math.isfinite(x) and math.isfinite(y)]
    if len(rows) < 2:
        return []
    if len({x for x, _ in rows}) == 1:
        same = f"Records whose PDTP is finite all have the same, {number(rows[0][0])} nats"
        return [Text(f"{same}: attack accuracy is not set against it.")]
    said = "No correlation could be computed"
    if found.pearson is not None and not math.isnan(found.pearson):
        easier = "easier" if found.pearson > 0 else "no easier"
        over = f"correlation {number(found.pearson)} over {number(found.n)} records"
        said = f"Records that matter more are {easier} to guess: {over}"
    name, heads = "Attack accuracy on single records over their PDTP", ("Mean PDTP, nats", "Mean accuracy")
    return [Text(f"{said}."), table(f"{name}; {plain(found.kind, 120)}", heads, rows, name)]


_DIFFERENCE = "Difference, with its interval"


def _robustness(part: evidence.RobustPart | None) -> list[Block]:
    if part is None:
        return []
    columns = ("Who guesses", "Radius", "Members called members", "Others called members", _DIFFERENCE)
    rows = [
        (a.title, "" if a.radius is None else a.radius, percent(a.inside), percent(a.outside), _estimate(a.advantage))
        for a in part.adversaries
    ]
    caption = f"Distance to the nearest wrong answer, {plain(part.how, 60)}"
    return [Text("Robustness", "heading"), table(caption, columns, rows)]


def _features(part: evidence.AttributesPart | None) -> list[Block]:
    """Return one table a feature: what is guessed of members, of others, and by anybody without the model."""
    made: list[Block] = [Text("Sensitive features", "heading")] if part else []
    columns = ("Who guesses", "Of members", "Of candidates", _DIFFERENCE)
    for found in part.attributes if part else ():
        name = plain(found.name, 60)
        told, by_value = (
            [(g.title, shown(g.inside, percent), shown(g.outside, percent), _estimate(g.advantage)) for g in rows]
            for rows in ((*found.adversaries, found.without_model), found.by_value)
        )
        caption = f"{name}: who knows everything else about somebody and asks the model with every value"
        moved = f"{number(found.influence)} {plain(found.influence_in, 30)}"
        guessed = f"most frequent of its {found.values} values is right for {shown(found.prior_guess, percent)}"
        said = f"Saying the {guessed}. The feature alone moves an answer by {moved} on average."
        if found.theorem is not None:
            said += f" Normal errors of these sizes would give inversion a difference of {percent(found.theorem)}."
        made += [table(caption, columns, told), Text(said)]
        if by_value:
            heads = ("Value", *columns[1:])
            made.append(table(f"{name}, by its value", heads, by_value, "Inversion, by the true value"))
    return made


_CLAIM = {
    "mechanism": "Mechanism", "epsilon": "Claimed epsilon", "delta": "Claimed delta", "adjacency": "Neighbours",
    "unit": "Protected unit", "sampling": "How batches are drawn", "noise_multiplier": "Noise multiplier",
    "sample_rate": "Sample rate", "steps": "Steps", "max_grad_norm": "Clipping norm",
    "accountant": "Accountant of the claim",
}  # fmt: skip
_WORDS = {
    "add_remove": "data sets that differ in one record added or removed",
    "replace_one": "data sets that differ in one record replaced",
    "poisson": "each record independently",
    "fixed_size": "fixed size",
    "shuffled": "shuffled, then cut into batches",
}


def dp(doc: ReportDocument) -> Section | None:
    """Return the claim, the bounds that follow with their hypotheses, and the measurements beside them."""
    part, claim = doc.evidence.claims or evidence.ClaimsPart(), doc.subject.claim
    if not part.bounds and not claim:
        return None
    stated = {label: getattr(claim, key, None) for key, label in _CLAIM.items()}
    blocks: list[Block] = [facts((label, _WORDS.get(str(v), v)) for label, v in stated.items() if v is not None)]
    blocks += [facts((f.name, f.value) for f in part.facts)] if part.facts else []
    if part.bounds:
        columns = ("Bound on", "Epsilon", "Delta", "Share of members assumed", "Bound", "Measured", "Holds if")
        folded = f"All {len(part.bounds)} bounds with their conditions"
        blocks.append(table("Bounds with their conditions", columns, map(_bound, part.bounds), folded))
    broken = [plain(b.name, 60) for b in part.bounds if b.measured and (b.measured.value or 0) > b.bound]
    if broken:
        why = "the measurement exceeds the bound, so the claim or its conditions do not hold"
        blocks.append(Text(f"{', '.join(broken)}: {why}."))
    alone = "Epsilon alone is not the guarantee: it holds for the neighbours, the unit and the sampling named"
    last = Text(f"{alone}, under the conditions listed.")
    return Section("dp", "Differential privacy", [*blocks, *_tradeoff(doc, part), last])


def _bound(b: evidence.GuaranteeBound) -> tuple[float | str, ...]:
    show = percent if 0 <= b.bound <= 1 else number
    prior = "any" if b.prior is None else percent(b.prior)
    measured = _estimate(b.measured, show)
    return b.name, b.epsilon, b.delta, prior, show(b.bound), measured, "; ".join(b.assumptions)


def _tradeoff(doc: ReportDocument, part: evidence.ClaimsPart) -> list[Block]:
    """Return what any attack can reach under the guarantee, with what attacks did reach."""
    if part.curve is None:
        return []
    limit: Curve = [*zip(part.curve.fpr, part.curve.tpr, strict=True)]
    curves = [(title(a), f.roc) for a, f in rank_attacks(doc.attacks) if f.roc]
    # a point is held against the bound at the next larger rate for which that was computed
    over = [name for name, curve in curves
            if any(tpr > min((t for f, t in limit if f >= fpr), default=1.0) for fpr, tpr in curve)]  # fmt: skip
    said = "Nothing that was measured lies above the bound" if curves else "No attack was run beside the bound"
    if over:
        said = f"{', '.join(over)}: single points lie above the bound; whether that is chance is judged by the audit"
    caption = "What any attack can reach, and what these reached"
    return [Text(f"{said}."), _points(caption, [("no attack can exceed this", limit), *curves])]


def deletion(doc: ReportDocument) -> Section | None:
    """Return the capacity at each required probability."""
    held = sorted(doc.evidence.claims.deletion if doc.evidence.claims else (), key=lambda row: row.rho)
    if not held:
        return None
    most, failure = held[-1], max(r.failure for r in held)
    missing = f", except with probability {number(failure)} over the training's randomness" if failure > 0 else ""
    stated = f"the stated prior of {percent(max(p.prior for p in held))} and the stated chance of {percent(most.rho)}"
    said = f"At {stated} that none of them was used, {number(most.capacity)} people can be erased{missing}."
    rows, heads = [(percent(r.rho), r.capacity) for r in held], ("Required chance", "People")
    told = table("People who can be erased before a full retraining", heads, rows)
    return Section("deletion", "Deletion capacity", [Text(said), told])


def coverage(doc: ReportDocument) -> Section | None:
    """Return how many people were measured, what follows for the others, what was planned and what seeds change."""
    run, influence = doc.evidence.run, doc.evidence.influence
    blocks: list[Block] = _covered(influence) if influence else []
    items: list[tuple[str, float | str | None]] = []
    if plan := run.plan:
        items += [("Trainings planned", plan.retrains), ("of these, without one person", plan.leave_one_out),
                  ("of these, on random halves", plan.shadows), ("Seconds expected", plan.seconds)]  # fmt: skip
    if seeds := run.seeds:
        items += [
            ("Training depends on its seed", "yes" if seeds.dependent else ""),
            ("Seeds, each used with and without the person", seeds.paired if seeds.paired > 1 else 0),
            ("Largest change of a probability by another seed", seeds.moved_by),
            ("Seeds compared to see whether they matter", 0 if seeds.unread else seeds.compared),
            ("Seeds", seeds.note),
        ]
    if influence and (noise := influence.noise):
        items += [
            ("Noise floor of the worst answer", fold(noise.floor)),
            ("Noise floor of half of the answers", fold(noise.median)),
            ("People above their noise floor", noise.units_above),
        ]
    if told := [item for item in items if item[1] or item[1] is None]:  # a zero says nothing
        blocks.append(facts(told))
    if never := [prose(n, 400) for n in run.cannot_conclude]:
        blocks += [Text("Said before training: what this policy can never conclude for this model."), List(never)]
    return Section("coverage", "Coverage and limits", blocks) if blocks else None


def _covered(influence: evidence.InfluencePart) -> list[Block]:
    coverage = influence.coverage
    if coverage is None:
        return []
    every, people = coverage.n_measured == coverage.n_units, number(coverage.n_units)
    told = f"All {people}" if every else f"{number(coverage.n_measured)} of {people}"
    claim = plain(coverage.claim, 400) or ("" if every else "Nothing is claimed about the others.")
    return [Text(f"{told} people or records were measured."), *([Text(claim)] if claim else [])]


def trace(doc: ReportDocument) -> Section:
    """Return everything needed to check or repeat this run."""
    found, policy = doc.evidence.run.trace or evidence.RunTrace(), doc.policy
    named = [(f"Digest of the {plain(k, 40)}", v) for k, v in {**doc.subject.digests, **found.digests}.items()]
    run = [
        ("privgate", doc.privgate),
        ("report schema", SCHEMA),
        ("versions", ", ".join(f"{k} {v}" for k, v in found.versions.items())),
        ("system", found.system),
        ("isolation of training code", doc.evidence.run.isolation),
        ("seeds", ", ".join("none" if v is None else str(v) for v in found.seeds)),
        ("training calls", number(found.training_calls) if found.training_calls else ""),
    ]
    blocks = [facts([*named, (f"Digest of policy {plain(policy.name, 40)}", policy.digest)], wide=True), facts(run)]
    commands = [Code("To run this check again", plain(found.command, 500)),
                Code("To verify the statement attached to this version", page_one.verify(doc))]  # fmt: skip
    return Section("trace", "Trace", [*blocks, *(command for command in commands if command.text)])


def glossary(doc: ReportDocument) -> Section:
    """Return the words of this report in plain language."""
    more = (vocabulary.SENSITIVITY,) if doc.subject.task == "regression" else ()
    rows = [(capital(w.name), w.meaning) for w in (*vocabulary.WORDS, *vocabulary.TERMS, *more)]
    told = table("Words of this report", ("Word", "Meaning"), rows, f"{len(rows)} words of this report")
    return Section("glossary", "Glossary", [told])


#: in the order of the report, each by its anchor
CATALOGUE: Mapping[str, Callable[[ReportDocument], Section | None]] = {
    "findings": findings,
    "model": model,
    "data": data,
    "units": people.section,
    "attacks": attacks,
    "dp": dp,
    "deletion": deletion,
    "coverage": coverage,
    "comparison": comparison,
    "methods": methods.section,
    "trace": trace,
    "glossary": glossary,
}


def sections(doc: ReportDocument) -> list[Section]:
    """Return all sections for which the document holds data."""
    return [made for section in CATALOGUE.values() if (made := section(doc))]
