"""Coverage and limits: for whom the figures speak, what the run planned, and what it could never conclude."""

from privgate.report import reading
from privgate.report.blocks import Block, Facts, List, Section, Text
from privgate.report.reading import Doc
from privgate.report.text import number, plain, real


def section(doc: Doc) -> Section | None:
    """Return how many units were measured and what follows for the others."""
    d = reading.detail(doc)
    coverage, plan, seeds = (reading.mapping(d.get(k)) for k in ("coverage", "plan", "seeds"))
    never = [plain(n, 400) for n in plan.get("cannot_conclude") or d.get("cannot_conclude") or ()]
    blocks: list[Block] = []
    mode = reading.mapping(d.get("mode"))
    if mode.get("note"):
        blocks.append(Text(_sentence(plain(mode["note"], 400))))
    n, of = coverage.get("n_measured"), coverage.get("n_units")
    if n is not None and of is not None:
        every = n == of
        blocks.append(Text(f"{'All' if every else number(n)} of {number(of)} people or records were measured."
                           if not every else f"All {number(of)} people or records were measured."))  # fmt: skip
        if coverage.get("claim"):
            blocks.append(Text(plain(coverage["claim"], 400)))
        elif not every:
            blocks.append(Text("Nothing is claimed about the others."))
    items = [(_PLAN[k], number(v)) for k, v in plan.items() if k in _PLAN and real(v) > 0]
    items += [
        (_SEEDS.get(k, plain(k, 40).replace("_", " ")), _fact(v))
        for k, v in seeds.items()
        if v not in (None, "", [], 0)
    ]
    if items:
        blocks.append(Facts(items))
    if never:
        blocks += [Text("Said before training: what this policy can never conclude for this model."), List(never)]
    return Section("coverage", "Coverage and limits", blocks) if blocks else None


_SEEDS = {
    "paired": "Seeds, each used with and without the person",
    "moved_by": "Largest change of a probability by another seed",
    "noise_floor": "Noise floor of the worst answer, nats",
    "noise_median": "Noise floor of half of the answers, nats",
    "above_noise": "People above their noise floor",
    "dependent": "Training depends on its seed",
    "compared": "Seeds compared to see whether they matter",
    "registered_worst": "Largest change with the registered seed alone, nats; not judged",
    "registered_above": "People above the limit with the registered seed alone; not judged",
    "note": "Seeds",
}


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _fact(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, int | float) else plain(value, 200)


_PLAN = {
    "retrains": "Trainings planned",
    "leave_one_out": "of these, without one person",
    "ranking": "of these, to rank people (mode screen)",
    "shadows": "of these, on random halves",
    "seconds": "Seconds expected",
}
