"""Methods: which engine answered, how it was re-checked, which theorem applied, each with its source."""

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Context

from privgate.evidence import (
    CertificateNote,
    EngineShare,
    InfluencePart,
    Measurement,
    PublishedBound,
    RecheckRow,
    SeedControl,
    SeedNoise,
)
from privgate.evidence.figures import fold, number, percent, sure
from privgate.evidence.telling import Part
from privgate.report.blocks import Block, Section, TableBlock, Text
from privgate.report.report_schema import ReportDocument
from privgate.report.text import plain, prose, shown

_SOURCES = (
    ("PDTP and DTP", "Long, Bindschaedler, Gunter (2017), Towards Measuring Membership Privacy, section 4"),
    ("Membership inference", "Shokri et al. (2017); Yeom et al. (2020); each attack names its own source"),
    ("Bounds from differential privacy", "Thudi et al. (2023), Bounding Membership Inference"),
)


def section(doc: ReportDocument) -> Section:
    """Return engines, re-checks, certificates, published bounds beside corrected ones, assumptions and sources."""
    influence, seeds = doc.evidence.influence, doc.evidence.run.seeds
    blocks: list[Block] = []
    if influence:
        blocks += _shares(influence.engines)
        if influence.noise and seeds and seeds.dependent:
            blocks.append(Text(noise(influence.noise, seeds.paired)))
        elif seeds and seeds.dependent:
            blocks.append(Text(own_coins(seeds)))
        blocks += _theorems(influence)
    blocks += _measurements(doc.evidence.measurements)
    mathematics = ("Sections of docs/mathematics.md", f"that page in the sources of privgate {plain(doc.privgate, 40)}")
    blocks.append(TableBlock("Sources", ("What", "Where it is defined"), [*_SOURCES, mathematics]))
    return Section("methods", "Methods and sources", blocks)


def _shares(shares: Sequence[EngineShare]) -> list[Block]:
    """Return which engine answered for how many people, and what it handed on and why."""
    if not shares:
        return []
    rows = [
        (_spaced(s.engine), shown(s.answered), _handed_on(s), _reasons(s.why), _reasons(s.without_limit))
        for s in shares
    ]
    heads = ("Engine", "People or records", "Handed on", "Because", "Counted as unlimited, because")
    width = len(heads) if any(s.without_limit for s in shares) else len(heads) - 1
    caption = "How models without one person were obtained"
    return [TableBlock(caption, heads[:width], [r[:width] for r in rows], (1, 2))]


def _theorems(influence: InfluencePart) -> list[Block]:
    blocks: list[Block] = []
    if influence.recheck:
        rows = [
            (_spaced(r.engine), number(r.checked), number(r.max_difference), number(r.tolerance))
            for r in influence.recheck
        ]
        unit = "nats" if influence.sensitivity is None else "deviations of the targets"
        compared = ("Engine", "Refitted for comparison", f"Largest difference, {unit}", f"Allowed, {unit}")
        blocks.append(TableBlock("Closed forms compared with refits in this run", compared, rows, (1, 2, 3)))
        blocks += [Text(_minimum(r)) for r in influence.recheck if "distance" in r.notes]
    if influence.certificates:
        applied = [_certificate(c) for c in influence.certificates if c.applies]
        silent = [_certificate(c) for c in influence.certificates if not c.applies]
        if applied:
            named = ("Certificate", "Conditions checked", "Source")
            blocks.append(TableBlock("Theorems that limit DTP here", named, applied))
        blocks += [Text(_everywhere(c)) for c in influence.certificates if c.guarantee == "every data set"]
        named = ("Certificate", "Does not apply, because", "Source")
        folded = f"{len(silent)} theorems do not apply to this model"
        blocks += [TableBlock("Theorems that do not apply", named, silent, folded=folded)] if silent else []
    if influence.as_published:
        heads = ("Bound", "As published", "Corrected", "Why", "Source")
        cells = [_published(p) for p in influence.as_published]
        blocks.append(TableBlock("Published bounds, reported only: they approve nothing", heads, cells, (1, 2)))
    return blocks


def own_coins(seen: SeedControl) -> str:
    """Return what other seeds alone change, and about which seed the verdict is."""
    other = {"order": "another order of the records", "both": "another seed and order"}.get(seen.coins, "another seed")
    return (
        f"Training draws. With nobody removed, {other} changes the answer about half of the people "
        f"{_by(seen.median, ' or more')}, about the worst {_by(seen.floor)}. The verdict is about this code at this "
        f"seed, and says nothing about others. The released answers were compared with those of "
        f"{number(seen.compared - 1)} models at other seeds."
    )


def noise(found: SeedNoise, paired: int) -> str:
    """Return what another seed alone changes, so that nobody takes training's noise for a person's influence."""
    return (
        f"Training depends on its seed. With nobody removed, another seed alone changes the answer about half of the "
        f"people {_by(found.median, ' or more')}, about the worst {_by(found.floor)}; over {number(paired)} paired "
        f"seeds, the influence of {_people(found.units_above)} exceeds this noise. The figures of "
        "influence are means over these seeds, not about this very model."
    )


def _by(nats: float, more: str = "") -> str:
    return f"by {fold(nats)}{more}" if math.isfinite(nats) else "without limit"


def _people(count: Part) -> str:
    return "a suppressed number of people" if count is None else f"{number(count)} people"


def _handed_on(s: EngineShare) -> str:
    share = f" ({percent(s.handed_on / s.asked)})" if s.handed_on and s.asked else ""
    return f"{shown(s.handed_on)}{share}"


def _reasons(why: Mapping[str, Part]) -> str:
    return "; ".join(f"{plain(k, 200)} ({shown(v)})" for k, v in why.items())


def _minimum(row: RecheckRow) -> str:
    """Return how far the delivered model is from the minimum of its own loss."""
    return (
        f"The delivered model differs from the minimum of its own loss by at most {number(row.notes['distance'])} nats "
        f"in any answer (allowed: {number(row.notes.get('allowed'))}; largest component of its gradient: "
        f"{number(row.notes.get('gradient'))})."
    )


def _everywhere(c: CertificateNote) -> str:
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


def _certificate(c: CertificateNote) -> tuple[str, str, str]:
    because = "; ".join(prose(a, 200) for a in c.assumptions) if c.applies else prose(c.because, 300)
    return _spaced(c.name), because, plain(c.source, 160)


def _published(p: PublishedBound) -> tuple[str, ...]:
    return plain(p.name, 80), number(p.value), number(p.corrected), plain(p.because, 240), plain(p.source, 120)


def _measurements(found: Sequence[Measurement]) -> list[Block]:
    """Return what was measured; conditions that several share are listed once, by number."""
    if not found:
        return []
    held = list(dict.fromkeys(plain(a, 200) for m in found for a in m.assumptions))
    columns = ("Measurement", "Result", "Kind", "People or trials", "Where", "Conditions")
    rows = [_measurement(m, held) for m in found]
    folded = f"All {len(rows)} measurements with their conditions"
    made = [TableBlock("Measurements behind the findings", columns, rows, folded=folded)]
    if held:
        told = [(str(i), text) for i, text in enumerate(held, 1)]
        made.append(TableBlock("Conditions of the measurements", ("No.", "Condition"), told, folded="Their conditions"))
    return list(made)


def _measurement(m: Measurement, held: Sequence[str]) -> tuple[str, ...]:
    return (
        plain(m.request.key, 120),
        prose(m.problem, 200) or _interval(m),
        sure(m),
        f"{number(m.n)} of {number(m.population)}" if m.population else "",
        plain(m.where, 60),
        ", ".join(str(held.index(plain(a, 200)) + 1) for a in m.assumptions),
    )


def _interval(m: Measurement) -> str:
    if m.low == m.high:
        return f"{number(m.low)} {plain(m.unit, 20)} (exact)"
    return f"{number(m.low)} to {number(m.high)} {plain(m.unit, 20)}"
