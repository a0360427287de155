"""Coverage and limits: for whom the figures speak, what the run planned, and what it could never conclude."""

from privgate.evidence import InfluencePart, RunPart
from privgate.evidence.figures import fold, number
from privgate.report.blocks import Block, Facts, List, Section, Text
from privgate.report.report_schema import ReportDocument
from privgate.report.text import plain, prose, shown


def section(doc: ReportDocument) -> Section | None:
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


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
