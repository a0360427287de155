"""How figures were come by: engines, re-checks, theorems, measurements with their conditions, each with its source."""

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Context

from privgate.evidence import CertificateNote, EngineShare, InfluencePart, Measurement, SeedControl, SeedNoise
from privgate.evidence.figures import fold, number, percent, sure
from privgate.evidence.telling import Part
from privgate.report.page import Block, Section, Text, table
from privgate.report.schema import ReportDocument
from privgate.report.text import plain, prose, shown

_SOURCES = (
    ("PDTP and DTP", "Long, Bindschaedler, Gunter (2017), Towards Measuring Membership Privacy, section 4"),
    ("Membership inference", "Shokri et al. (2017); Yeom et al. (2020); each attack names its own source"),
    ("Bounds from differential privacy", "Thudi et al. (2023), Bounding Membership Inference"),
)


def section(doc: ReportDocument) -> Section:
    """Return engines, re-checks, theorems, published bounds beside corrected ones, measurements and sources."""
    influence, seeds = doc.evidence.influence, doc.evidence.run.seeds
    blocks: list[Block] = []
    if influence:
        blocks += _engines(influence.engines)
        if seeds and seeds.dependent:
            noise = influence.noise
            blocks.append(Text(describe_noise(noise, seeds.paired) if noise else describe_seed(seeds)))
        blocks += _theorems(influence)
    blocks += _measurements(doc.evidence.measurements)
    mathematics = ("Sections of docs/mathematics.md", f"that page in the sources of privgate {plain(doc.privgate, 40)}")
    blocks.append(table("Sources", ("What", "Where it is defined"), [*_SOURCES, mathematics]))
    return Section("methods", "Methods and sources", blocks)


def _engines(shares: Sequence[EngineShare]) -> list[Block]:
    """Return which engine answered for how many people, and what it handed on and why."""

    def reasons(why: Mapping[str, Part]) -> str:
        return "; ".join(f"{plain(k, 200)} ({shown(v)})" for k, v in why.items())

    rows = []
    for s in shares:
        part = f" ({percent(s.handed_on / s.asked)})" if s.handed_on and s.asked else ""
        row = _spaced(s.engine), shown(s.answered), f"{shown(s.handed_on)}{part}"
        rows.append((*row, reasons(s.why), reasons(s.without_limit)))
    heads = ("Engine", "People or records", "Handed on", "Because", "Counted as unlimited, because")
    width = 5 if any(s.without_limit for s in shares) else 4
    caption = "How models without one person were obtained"
    return [table(caption, heads[:width], [r[:width] for r in rows])] if rows else []


def describe_seed(seen: SeedControl) -> str:
    """Return what other seeds alone change, and about which seed the verdict is."""
    other = {"order": "another order of the records", "both": "another seed and order"}.get(seen.coins, "another seed")
    return (
        f"Training draws. With nobody removed, {other} changes the answer about half of the people "
        f"{_by(seen.median, ' or more')}, about the worst {_by(seen.floor)}. The verdict is about this code at this "
        f"seed, and says nothing about others. The released answers were compared with those of "
        f"{number(seen.compared - 1)} models at other seeds."
    )


def describe_noise(found: SeedNoise, paired: int) -> str:
    """Return what another seed alone changes, so that nobody takes training's noise for a person's influence."""
    people = "a suppressed number of" if found.units_above is None else number(found.units_above)
    return (
        f"Training depends on its seed. With nobody removed, another seed alone changes the answer about half of the "
        f"people {_by(found.median, ' or more')}, about the worst {_by(found.floor)}; over {number(paired)} paired "
        f"seeds, the influence of {people} people exceeds this noise. The figures of influence are means over these "
        "seeds, not about this very model."
    )


def _by(nats: float, more: str = "") -> str:
    return f"by {fold(nats)}{more}" if math.isfinite(nats) else "without limit"


def _theorems(influence: InfluencePart) -> list[Block]:
    blocks: list[Block] = []
    if influence.recheck:
        rows = [(_spaced(r.engine), r.checked, r.max_difference, r.tolerance) for r in influence.recheck]
        unit = "nats" if influence.sensitivity is None else "deviations of the targets"
        heads = ("Engine", "Refitted for comparison", f"Largest difference, {unit}", f"Allowed, {unit}")
        blocks.append(table("Closed forms compared with refits in this run", heads, rows))
    for notes in (r.notes for r in influence.recheck if "distance" in r.notes):
        distance, allowed, gradient = (number(notes.get(key)) for key in ("distance", "allowed", "gradient"))
        blocks.append(Text(
            f"The delivered model differs from the minimum of its own loss by at most {distance} nats in any answer "
            f"(allowed: {allowed}; largest component of its gradient: {gradient})."
        ))  # fmt: skip
    conditions = [(_spaced(c.name), "; ".join(prose(a, 200) for a in c.assumptions), c.source)
                  for c in influence.certificates if c.applies]  # fmt: skip
    silent = [(_spaced(c.name), prose(c.because, 300), c.source) for c in influence.certificates if not c.applies]
    if conditions:
        blocks.append(table("Theorems that limit DTP here", ("Theorem", "Conditions checked", "Source"), conditions))
    blocks += [Text(describe_guarantee(c)) for c in influence.certificates if c.guarantee == "every data set"]
    if silent:
        named, folded = ("Theorem", "Does not apply, because", "Source"), "theorems do not apply to this model"
        blocks.append(table("Theorems that do not apply", named, silent, f"{len(silent)} {folded}"))
    if influence.as_published:
        published = [(p.name, p.value, p.corrected, p.because, p.source) for p in influence.as_published]
        columns = ("Bound", "As published", "Corrected", "Why", "Source")
        blocks.append(table("Published bounds, reported only: they approve nothing", columns, published))
    return blocks


def describe_guarantee(c: CertificateNote) -> str:
    """Return that a bound is a property of the training function, and what that buys."""
    # a guarantee is never said smaller than it is
    epsilon = float(Context(prec=4, rounding=ROUND_CEILING).create_decimal_from_float(c.epsilon or 0.0))
    return (
        f"The bound of {_spaced(c.name)} holds for every data set, not for these alone: whatever they are, a person "
        f"changes the probability of any answer at most {fold(epsilon)}. A release that draws one label a "
        "query by these probabilities, with fresh secret randomness, is therefore differentially private at ε = "
        f"{number(epsilon, digits=4)} a query (adding or removing one person, δ = 0; q queries cost q times as much)."
    )


def _spaced(name: str) -> str:
    return plain(name, 60).replace("_", " ")


def _measurements(found: Sequence[Measurement]) -> list[Block]:
    """Return what was measured; conditions that several share are listed once, by number."""
    held = list(dict.fromkeys(a for m in found for a in m.assumptions))
    rows = []
    for m in found:
        exact = f"{number(m.low)} {plain(m.unit, 20)} (exact)"
        ends = exact if m.low == m.high else f"{number(m.low)} to {number(m.high)} {plain(m.unit, 20)}"
        n = f"{number(m.n)} of {number(m.population)}" if m.population else ""
        numbers = ", ".join(str(held.index(a) + 1) for a in m.assumptions)
        rows.append((m.request.key, prose(m.problem, 200) or ends, sure(m), n, m.where, numbers))
    heads = ("Measurement", "Result", "Kind", "People or trials", "Where", "Conditions")
    folded, named = f"All {len(rows)} measurements with their conditions", enumerate(held, 1)
    made: list[Block] = [table("Measurements behind the findings", heads, rows, folded)] if rows else []
    told = [(str(i), text) for i, text in named]
    return (
        [*made, table("Conditions of the measurements", ("No.", "Condition"), told, "Their conditions")]
        if told
        else made
    )
