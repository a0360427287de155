"""Methods: which engine answered, how it was re-checked, which theorem applied, each with its source."""

from privgate.report import reading
from privgate.report.blocks import Block, Section, Table, Text
from privgate.report.reading import Doc
from privgate.report.text import fold, number, percent, plain, real

_SOURCES = (
    ("PDTP and DTP", "Long, Bindschaedler, Gunter (2017), Towards Measuring Membership Privacy, section 4"),
    ("Membership inference", "Shokri et al. (2017); Yeom et al. (2020); each attack names its own source"),
    ("Bounds from differential privacy", "Thudi et al. (2023), Bounding Membership Inference"),
)


def section(doc: Doc) -> Section:
    """Return engines, re-checks, certificates, published bounds beside corrected ones, assumptions and sources."""
    d = reading.detail(doc)
    blocks: list[Block] = []
    shares = reading.rows(d.get("engines"))
    engines = reading.mapping(reading.mapping(doc.get("units")).get("engine"))
    if shares:
        blocks += _shares(shares, reading.mapping(d.get("seeds")))
    elif engines:
        rows = [(plain(k, 60), number(v)) for k, v in engines.items()]
        blocks.append(Table("How models without one person were obtained", ("Engine", "People or records"), rows, (1,)))
    rechecks = reading.rows(d.get("recheck"))
    if rechecks:
        rows_ = [
            (_engine(r), *(number(r.get(k)) for k in ("checked", "max_difference", "tolerance"))) for r in rechecks
        ]
        columns = ("Engine", "Refitted for comparison", "Largest difference, nats", "Allowed, nats")
        blocks.append(Table("Re-check of fast engines against real retraining in this run", columns, rows_, (1, 2, 3)))
        blocks += [Text(said) for r in rechecks if (said := _minimum(reading.mapping(r.get("notes"))))]
    certificates = reading.rows(d.get("certificates"))
    if certificates:
        theorems = [_certificate(c) for c in certificates]
        columns = ("Certificate", "Applied", "Because, or conditions checked", "Source")
        blocks.append(
            Table(
                "Theorems that limit DTP",
                columns,
                theorems,
                folded=f"{_applied(certificates)} of {len(theorems)} theorems applied",
            )
        )
    published = reading.rows(d.get("as_published"))
    if published:
        cells_ = [
            (plain(p.get("name"), 80), number(p.get("value")), number(p.get("corrected")), plain(p.get("because"), 240),
             plain(p.get("source"), 120))
            for p in published
        ]  # fmt: skip
        heads = ("Bound", "As published", "Corrected", "Why", "Source")
        blocks.append(Table("Published bounds, reported only: they approve nothing", heads, cells_, (1, 2)))
    blocks += _measurements(doc)
    blocks.append(Table("Sources", ("What", "Where it is defined"), _SOURCES))
    return Section("methods", "Methods and sources", blocks)


def _shares(shares: list[Doc], seeds: Doc) -> list[Block]:
    """Return which engine answered for how many people, what it handed on and why, and what another seed changes."""
    rows = [
        (
            _engine(s),
            number(s.get("answered")),
            _handed_on(s),
            _reasons(s.get("why")),
            _reasons(s.get("without_limit")),
        )
        for s in shares
    ]
    heads = ("Engine", "People or records", "Handed on", "Because", "Counted as unlimited, because")
    width = len(heads) if any(s.get("without_limit") for s in shares) else len(heads) - 1
    caption = "How models without one person were obtained"
    blocks: list[Block] = [Table(caption, heads[:width], [r[:width] for r in rows], (1, 2))]
    if seeds.get("dependent") is True and "noise_median" in seeds:
        blocks.append(Text(noise(seeds, sum(real(s.get("answered")) for s in shares))))
    return blocks


def noise(seeds: Doc, people: float) -> str:
    """Return what another seed alone changes, so that nobody takes training's noise for a person's influence."""
    middle, most = real(seeds.get("noise_median")), real(seeds.get("noise_floor"))
    return (
        f"Training depends on its seed. With nobody removed, another seed alone changes the answer about half of the "
        f"people by {fold(middle)} or more, about the worst by {fold(most)}; over {number(seeds.get('paired'))} paired "
        f"seeds, the influence of {number(seeds.get('above_noise'))} of {number(people)} exceeds this noise."
        f"{_own_pair(seeds)}"
    )


def _own_pair(seeds: Doc) -> str:
    """Return what the registered seed alone shows: the figures are means over seeds, not about this very model."""
    said = " The figures of influence are means over these seeds, not about this very model."
    if "registered_worst" not in seeds:
        return said
    return (
        f"{said} With the registered seed alone, leaving out one person changes an answer about that person by up to "
        f"{fold(real(seeds['registered_worst']))}, "
        f"for {number(seeds.get('registered_above'))} people beyond the limit; "
        "a single pair measures the seed as well as the person, and nothing is judged by it."
    )


def _handed_on(s: Doc) -> str:
    count, asked = real(s.get("handed_on")), real(s.get("asked"))
    return f"{number(count)} ({percent(count / asked)})" if count > 0 and asked > 0 else number(count)


def _reasons(why: object) -> str:
    return "; ".join(f"{plain(k, 200)} ({number(v)})" for k, v in reading.mapping(why).items())


def _minimum(notes: Doc) -> str:
    """Return how far the delivered model is from the minimum of its own loss; empty for an engine without one."""
    if "distance" not in notes:
        return ""
    return (
        f"The delivered model differs from the minimum of its own loss by at most {number(notes.get('distance'))} nats "
        f"in any answer (allowed: {number(notes.get('allowed'))}; largest component of its gradient: "
        f"{number(notes.get('gradient'))})."
    )


def _engine(row: Doc) -> str:
    return plain(row.get("engine"), 40).replace("_", " ")


def _applied(certificates: list[Doc]) -> int:
    return sum(c.get("applies") is True for c in certificates)


def _certificate(c: Doc) -> tuple[str, str, str, str]:
    applies = c.get("applies") is True
    because = "; ".join(plain(a, 200) for a in c.get("assumptions") or ()) if applies else plain(c.get("because"), 300)
    return plain(c.get("name"), 60).replace("_", " "), "yes" if applies else "no", because, plain(c.get("source"), 160)


def _measurements(doc: Doc) -> list[Block]:
    rows = []
    for m in reading.measurements(doc):
        sure = f"{number(100 * m['confidence'])} % confidence" if m.get("confidence") else "certain"
        kind = {"exact": "exact", "bound": "bound by proof", "confidence": "estimate", "point": "point estimate"}.get(
            str(m.get("kind")), ""
        )
        assumptions = "; ".join(plain(a, 200) for a in m.get("assumptions") or ())
        rows.append(
            (
                plain(reading.mapping(m.get("request")).get("key"), 120),
                plain(m.get("problem"), 200)
                or f"{number(m.get('low'))} to {number(m.get('high'))} {plain(m.get('unit'), 20)}",
                "not measured" if m.get("problem") else (kind if kind == "point estimate" else f"{kind}, {sure}"),
                f"{number(m.get('n'))} of {number(m.get('population'))}" if m.get("population") else "",
                plain(m.get("where"), 60),
                assumptions,
            )
        )
    if not rows:
        return []
    columns = ("Measurement", "Result", "Kind", "Units or trials", "Where", "Conditions")
    return [
        Table(
            "Measurements behind the findings",
            columns,
            rows,
            folded=f"All {len(rows)} measurements with their conditions",
        )
    ]
