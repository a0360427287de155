"""The evidence, section by section; a section without data is not shown."""

from collections.abc import Callable, Mapping

from privgate import vocabulary
from privgate.evidence import ArtifactPart, InfluencePart, RunPart, RunTrace
from privgate.evidence.figures import fold, number
from privgate.policy.rules import about
from privgate.report import assertions, attack_sections, guarantees, page_one, two_reports, unit_section, words
from privgate.report.blocks import Block, Code, Facts, Heading, List, Section, TableBlock, Text
from privgate.report.report_schema import SCHEMA, DomainFacts, RecipeFacts, ReportDocument, SubjectFacts
from privgate.report.sentences import say
from privgate.report.text import moment, plain, prose, shown
from privgate.run.needs import Need


def findings(doc: ReportDocument) -> Section:
    """Return every rule's finding, worst first; what must hold before any figure counts has a section of its own."""
    told = [a for a in assertions.of(doc) if not a.condition]
    named = {a.finding.rule: a.asked for a in told}
    rows = [
        (a.asked, a.result, a.sentence, words.capital(prose(a.finding.meaning)), plain(a.finding.rule, 80),
         plain(a.finding.mode, 20))
        for a in told
    ]  # fmt: skip
    columns = ("Rule", "Result", "What was found", "What it means", "Id in the policy", "Mode")
    blocks: list[Block] = [TableBlock("Rules, worst first", columns, rows)] if rows else []
    if doc.waivers:
        listed = [
            (named.get(w.rule) or plain(w.rule, 80), plain(w.status, 40), plain(w.reason, 300), number(w.ceiling),
             *(plain(v, 300) for v in (w.requester, w.approver)), moment(w.expires))
            for w in doc.waivers
        ]  # fmt: skip
        heads = ("Rule", "Status", "Reason", "Up to", "Asked by", "Approved by", "Until")
        blocks.append(TableBlock("All waivers", heads, listed))
    full = page_one.steps(doc)
    if len(full) > 1:
        blocks += [Heading("What to do next, in full"), List(full)]
    return Section("findings", "All findings", blocks or [Text("No rule was judged.")])


def model(doc: ReportDocument) -> Section | None:
    """Return the model's facts and what the deployed model hands out."""
    s = doc.subject
    told = (
        ("Records", s.n_records),
        ("People", s.n_units),
        ("Labels", s.n_classes),
        ("Candidates outside the data", s.n_candidates),
    )
    items = [(name, number(count)) for name, count in told if count]
    items += [("Answers", "numbers, one a question")] if s.task == "regression" else []
    items += [*_recipe(s.recipe or RecipeFacts()), *_released(s), *_domain(s.domain)]
    blocks: list[Block] = [Facts(items)]
    if s.release.form != "probabilities" or s.release.temperature != 1:
        blocks.append(
            Text("Measured, attacks included, on what is released and on exact probabilities; the worse counts.")
        )
    return Section("model", "Model and release", [*blocks, *_file(doc)])


def _recipe(recipe: RecipeFacts) -> list[tuple[str, str]]:
    """Return what trains, with which parameters and seed."""
    told = [("Trained by", plain(recipe.trained_by, 120))] if recipe.trained_by else []
    if recipe.settings:
        told.append(("Parameters", plain(", ".join(f"{k} = {v}" for k, v in recipe.settings.items()), 300)))
    if recipe.kind:
        told.append(("Seed", "none recorded" if recipe.seed is None else plain(recipe.seed, 40)))
    return told


def _released(s: SubjectFacts) -> list[tuple[str, str]]:
    release = s.release
    told = [("One query returns", words.released(s))]
    if release.form in ("rounded", "binned"):
        told.append(("Step", number(release.step)))
    if release.form == "top_k":
        told.append(("Labels listed", number(release.k)))
    if release.temperature != 1:
        told.append(("Temperature", number(release.temperature)))
    return told


def _domain(domain: DomainFacts | None) -> list[tuple[str, str]]:
    if domain is None:
        return [("Questions that may be asked", "no domain was declared")]
    how = "inferred from the training data, which is a guess" if domain.inferred else "declared"
    kinds = []
    if domain.categories:
        kinds.append(f"{len(domain.categories)} categorical features")
    if domain.columns:
        kinds.append(f"{len(domain.columns)} columns, each with its range or its categories")
    elif domain.box:
        kinds.append(f"{len(domain.box)} features with a range each")
    if domain.queries:
        kinds.append(f"{domain.queries} listed questions, each asked")
    if domain.withheld:
        kinds.append(plain(domain.withheld, 80))
    if domain.max_length:
        kinds.append(f"documents up to {number(domain.max_length)} words")
    if domain.norm:
        kinds.append(f"feature vectors of norm up to {number(domain.norm)}")
    return [("Questions that may be asked", f"{', '.join(kinds) or 'any'} ({how})")]


COLUMNS = ("What", "Where", "Records, at least", "Records, at most", "Beside")


def _file(doc: ReportDocument) -> list[Block]:
    """Return what the file carries, and whether that decided anything."""
    part = doc.evidence.artifact
    if part is None:
        return []
    ruled = ", ".join(dict.fromkeys(f.metric for f in doc.findings if Need.LOOKED in about(f.metric).needs))
    made: list[Block] = [Heading("What the file itself carries"), Text(_said(part, ruled))]
    if part.carried:
        rows = [
            (plain(c.what, 90), plain(c.where, 60), *(shown(v) for v in (c.least, c.most, c.beside)))
            for c in part.carried
        ]
        made.append(TableBlock("Traces of single records", COLUMNS, rows, (2, 3, 4)))
    if part.unknown:
        text = "; ".join(plain(u, 160) for u in part.unknown)
        made.append(Text(f"Not read, so that it may carry anybody: {text}."))
    return made


def _said(part: ArtifactPart, ruled: str) -> str:
    what = "stored file" if part.judged == "file" else "model that the recipe trains (no file is stored)"
    decided = (
        f"The rule {ruled} judges this."
        if ruled
        else "No rule judges this: an approval speaks of the model's answers, not of who can download its file."
    )
    if part.how == "bytes":
        return f"The {what} {prose(part.bytes_said)}. Its bytes were searched; nothing of it was run. {decided}"
    if part.problem:
        return f"The {what} could not be walked ({plain(part.problem, 160)}), so that it may carry anybody. {decided}"
    low, high = shown(part.least), shown(part.most)
    span = low if low == high else f"{low} for certain, and at most {high},"
    return f"The {what} carries traces of their own of {span} of {number(part.records)} records. {decided}"


def data(doc: ReportDocument) -> Section | None:
    """Return the preconditions in the order in which they were checked."""
    checked = doc.evidence.preconditions
    if not checked:
        return None
    rows = [(assertions.condition(p.name), say(f"result.{p.outcome}"), prose(p.message)) for p in checked]
    caption = "What must hold before any figure counts, in the order checked"
    table = TableBlock(caption, ("Condition", "Result", "What was found"), rows)
    return Section("data", "Data and conditions", [table])


def coverage(doc: ReportDocument) -> Section | None:
    """Return how many units were measured and what follows for the others."""
    run, influence = doc.evidence.run, doc.evidence.influence
    blocks: list[Block] = []
    if influence and influence.coverage:
        blocks += _covered(influence)
    items = [*_planned(run), *_seeds(run, influence)]
    if items:
        blocks.append(Facts(items))
    if run.cannot_conclude:
        never = [prose(n, 400) for n in run.cannot_conclude]
        blocks += [Text("Said before training: what this policy can never conclude for this model."), List(never)]
    return Section("coverage", "Coverage and limits", blocks) if blocks else None


def _covered(influence: InfluencePart) -> list[Block]:
    coverage = influence.coverage
    if coverage is None:
        return []
    every = coverage.n_measured == coverage.n_units
    of = number(coverage.n_units)
    told = f"All {of}" if every else f"{number(coverage.n_measured)} of {of}"
    claim = plain(coverage.claim, 400) or ("" if every else "Nothing is claimed about the others.")
    return [Text(f"{told} people or records were measured."), *([Text(claim)] if claim else [])]


def _planned(run: RunPart) -> list[tuple[str, str]]:
    if run.plan is None:
        return []
    plan = run.plan
    told = (
        ("Trainings planned", plan.retrains),
        ("of these, without one person", plan.leave_one_out),
        ("of these, on random halves", plan.shadows),
        ("Seconds expected", plan.seconds),
    )
    return [(name, number(count)) for name, count in told if count > 0]


def _seeds(run: RunPart, influence: InfluencePart | None) -> list[tuple[str, str]]:
    """Return what is known about seeds; a zero says nothing."""
    seeds, noise = run.seeds, influence and influence.noise
    told: list[tuple[str, float | str | None]] = []
    if seeds:
        told += [
            ("Training depends on its seed", "yes" if seeds.dependent else ""),
            ("Seeds, each used with and without the person", seeds.paired if seeds.paired > 1 else 0),
            ("Largest change of a probability by another seed", seeds.moved_by),
            ("Seeds compared to see whether they matter", 0 if seeds.unread else seeds.compared),
            ("Seeds", seeds.note),
        ]
    if noise:
        told += [
            ("Noise floor of the worst answer", fold(noise.floor)),
            ("Noise floor of half of the answers", fold(noise.median)),
            ("People above their noise floor", noise.units_above),
        ]
    return [(name, plain(v, 200) if isinstance(v, str) else shown(v, number)) for name, v in told if v or v is None]


def trace(doc: ReportDocument) -> Section:
    """Return everything needed to check or repeat this run."""
    trace = doc.evidence.run.trace or RunTrace(versions={})
    digests = {**doc.subject.digests, **trace.digests}
    items = [(f"Digest of the {plain(k, 40)}", plain(v, 80)) for k, v in digests.items() if v]
    items.append((f"Digest of policy {plain(doc.policy.name, 40)}", plain(doc.policy.digest, 80)))
    facts = [
        ("privgate", plain(doc.privgate, 40)),
        ("report schema", SCHEMA),
        ("versions", plain(", ".join(f"{k} {v}" for k, v in trace.versions.items()), 600)),
        ("system", plain(trace.system, 160)),
        ("isolation of training code", plain(doc.evidence.run.isolation, 80)),
        ("seeds", plain(", ".join("none" if v is None else str(v) for v in trace.seeds), 300)),
        ("training calls", number(trace.training_calls) if trace.training_calls else ""),
    ]
    blocks: list[Block] = [Facts([i for i in items if i[1]], wide=True), Facts([f for f in facts if f[1]])]
    if trace.command:
        blocks.append(Code("To run this check again", plain(trace.command, 500)))
    if page_one.verify(doc):
        blocks.append(Code("To verify the statement attached to this version", page_one.verify(doc)))
    return Section("trace", "Trace", blocks)


def glossary(doc: ReportDocument) -> Section:
    """Return the words of this report in plain language."""
    more = (vocabulary.SENSITIVITY,) if doc.subject.task == "regression" else ()
    rows = [(words.capital(w.name), w.meaning) for w in (*vocabulary.WORDS, *vocabulary.TERMS, *more)]
    table = TableBlock("Words of this report", ("Word", "Meaning"), rows, folded=f"{len(rows)} words of this report")
    return Section("glossary", "Glossary", [table])


#: in the order of the report, each by its anchor
CATALOGUE: Mapping[str, Callable[[ReportDocument], Section | None]] = {
    "findings": findings,
    "model": model,
    "data": data,
    "units": unit_section.section,
    "attacks": attack_sections.section,
    "dp": guarantees.dp,
    "deletion": guarantees.deletion,
    "coverage": coverage,
    "comparison": two_reports.section,
    "methods": guarantees.methods,
    "trace": trace,
    "glossary": glossary,
}


def sections(doc: ReportDocument) -> list[Section]:
    """Return all sections for which the document holds data."""
    return [made for section in CATALOGUE.values() if (made := section(doc))]
