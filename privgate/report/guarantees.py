"""What figures rest on: the claim of differential privacy, deletion, engines and theorems, each with its source."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, Context

from privgate.evidence import (
    CertificateNote,
    ClaimsPart,
    EngineShare,
    GuaranteeBound,
    InfluencePart,
    Measurement,
    RecheckRow,
    SeedControl,
    SeedNoise,
)
from privgate.evidence.figures import fold, number, percent, sure
from privgate.evidence.telling import Part
from privgate.report import charts, words
from privgate.report.attack_sections import estimate, ran, thinned, title
from privgate.report.blocks import Block, Chart, Facts, Section, TableBlock, Text, numbers
from privgate.report.charts import Curve
from privgate.report.report_schema import ReportDocument
from privgate.report.text import plain, prose, shown

_CLAIM = {
    "mechanism": "Mechanism",
    "epsilon": "Claimed epsilon",
    "delta": "Claimed delta",
    "adjacency": "Neighbours",
    "unit": "Protected unit",
    "sampling": "How batches are drawn",
    "noise_multiplier": "Noise multiplier",
    "sample_rate": "Sample rate",
    "steps": "Steps",
    "max_grad_norm": "Clipping norm",
    "accountant": "Accountant of the claim",
}
_WORDS = {
    "add_remove": "data sets that differ in one record added or removed",
    "replace_one": "data sets that differ in one record replaced",
    "poisson": "each record independently",
    "fixed_size": "fixed size",
    "shuffled": "shuffled, then cut into batches",
}


def dp(doc: ReportDocument) -> Section | None:
    """Return the claim, the bounds that follow with their hypotheses, and the measurements beside them."""
    part = doc.evidence.claims or ClaimsPart()
    claim = doc.subject.recipe and doc.subject.recipe.dp
    if not part.bounds and not claim:
        return None
    blocks: list[Block] = []
    if claim:
        stated = [(label, getattr(claim, key)) for key, label in _CLAIM.items()]
        words_of = [
            (k, _WORDS.get(v, plain(v, 80)) if isinstance(v, str) else number(v))
            for k, v in stated
            if v not in (None, "")
        ]
        blocks.append(Facts(words_of))
    if part.facts:
        blocks.append(Facts([(plain(f.name, 60), plain(f.value, 160)) for f in part.facts]))
    if part.bounds:
        blocks += [*_chart(part.bounds), _table(part.bounds)]
    alone = (
        "Epsilon alone is not the guarantee: it holds for the neighbours, the unit and the sampling named, under the"
    )
    return Section("dp", "Differential privacy", [*blocks, *_tradeoff(doc, part), Text(f"{alone} conditions listed.")])


def _chart(bounds: Sequence[GuaranteeBound]) -> list[Block]:
    """Return each bound beside what was measured; nothing where nothing was."""
    both = [(plain(b.name, 60), b.bound, estimate(b.measured)[0]) for b in bounds if 0 <= b.bound <= 1]
    both = [b for b in both if not math.isnan(b[2])][:10]
    if not both:
        return []
    title = "What is guaranteed and what was measured"
    broken = [b[0] for b in both if b[2] > b[1]]
    said = "Every measurement stays below its bound"
    if broken:
        said = f"{', '.join(broken)}: the measurement exceeds the bound, so the claim or its conditions do not hold"
    svg = charts.pairs("dp", title, "One line a bound: the bound as a ring, the measurement as a diamond.", rows=both,
                       first="bound", second="measured", xlabel="", percent=True)  # fmt: skip
    rows = [(name, percent(bound), percent(most)) for name, bound, most in both]
    return [Chart("dp", title, f"{said}.", svg, numbers(title, ("Bound on", "Bound", "Measured"), rows))]


def _tradeoff(doc: ReportDocument, part: ClaimsPart) -> list[Block]:
    """Return what any attack can reach under the guarantee, with what attacks and audits did reach."""
    if part.curve is None:
        return []
    limit: Curve = [*zip(part.curve.fpr, part.curve.tpr, strict=True)]
    strongest = [r for r in ran(words.attacks(doc)) if r[1].roc][:2]
    drawn: list[tuple[str, Curve]] = [("no attack can exceed this", thinned(limit))]
    drawn += [(title(a), thinned(f.roc)) for a, f in strongest]
    name = "What any attack can reach, and what these reached"
    over = [label for label, curve in drawn[1:] if any(_above(p, limit) for p in curve)]
    said = (
        f"{', '.join(over)}: single points lie above the bound; whether that is chance is judged by the audit"
        if over
        else "Nothing that was measured lies above the bound"
        if strongest
        else "The bound alone: no attack was run beside it"
    )
    svg = charts.roc("tradeoff", name, "Bound and attacks on two logarithmic axes.", curves=drawn, floor=1e-4)
    rates = (0.001, 0.01, 0.1, 0.5)
    rows = [(label, *(_at(curve, f) for f in rates)) for label, curve in drawn]
    table = numbers(name, ("Curve", *(f"Found at {percent(f)}" for f in rates)), rows)
    return [Chart("tradeoff", name, f"{said}.", svg, table)]


def _above(point: tuple[float, ...], limit: Curve) -> bool:
    """Whether a measured point lies above the bound at the next larger rate that the bound was computed for."""
    fpr, tpr = point[:2]
    return tpr > min((q[1] for q in limit if q[0] >= fpr), default=1.0)


def _at(curve: Curve, fpr: float) -> str:
    below = [p[1] for p in curve if p[0] <= fpr]
    return percent(max(below)) if below else "too fine for the sample"


def _table(bounds: Sequence[GuaranteeBound]) -> TableBlock:
    rows = []
    for b in bounds:
        show = percent if 0 <= b.bound <= 1 else number
        value, low, high = estimate(b.measured)
        told = "not measured" if math.isnan(value) else show(value)
        if math.isfinite(low) and math.isfinite(high):
            told = f"{told} ({show(low)} to {show(high)})"
        prior = "any" if b.prior is None else percent(b.prior)
        conditions = "; ".join(plain(a, 200) for a in b.assumptions)
        rows.append((plain(b.name, 80), number(b.epsilon), number(b.delta), prior, show(b.bound), told, conditions))
    columns = ("Bound on", "Epsilon", "Delta", "Share of members assumed", "Bound", "Measured", "Holds if")
    folded = f"All {len(rows)} bounds with their conditions"
    return TableBlock("Bounds with their conditions", columns, rows, (1, 2, 3, 4, 5), folded)


def deletion(doc: ReportDocument) -> Section | None:
    """Return the capacity at each required probability."""
    claims = doc.evidence.claims
    if claims is None or not claims.deletion:
        return None
    held = claims.deletion
    points = sorted((p.rho, p.capacity) for p in held)
    title = "People who can be erased before a full retraining"
    rho, capacity = points[-1]
    failure = max(r.failure for r in held)
    missing = f", except with probability {number(failure)} over the training's randomness" if failure > 0 else ""
    prior = percent(max(p.prior for p in held))
    said = (
        f"At the stated prior of {prior} and the stated chance of {percent(rho)} that none of them was used, "
        f"{number(capacity)} people can be erased{missing}"
    )
    rows = [(percent(r), number(c)) for r, c in points]
    table = numbers(title, ("Required chance", "People"), rows, 0)
    finite = [p for p in points if math.isfinite(p[1])]
    if len(finite) < 2:
        return Section("deletion", "Deletion capacity", [replace(table, folded="")])
    svg = charts.curve("deletion", title, "People over the required chance.", points=finite,
                       xlabel="required chance that nothing shows (rho)", ylabel="people")  # fmt: skip
    return Section("deletion", "Deletion capacity", [Chart("deletion", title, f"{said}.", svg, table)])


_SOURCES = (
    ("PDTP and DTP", "Long, Bindschaedler, Gunter (2017), Towards Measuring Membership Privacy, section 4"),
    ("Membership inference", "Shokri et al. (2017); Yeom et al. (2020); each attack names its own source"),
    ("Bounds from differential privacy", "Thudi et al. (2023), Bounding Membership Inference"),
)


def methods(doc: ReportDocument) -> Section:
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
    width = 5 if any(s.without_limit for s in shares) else 4
    return [TableBlock("How models without one person were obtained", heads[:width], [r[:width] for r in rows], (1, 2))]


def _theorems(influence: InfluencePart) -> list[Block]:
    blocks: list[Block] = []
    if influence.recheck:
        rows = [
            (_spaced(r.engine), *map(number, (r.checked, r.max_difference, r.tolerance))) for r in influence.recheck
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
        cells = [
            (plain(p.name, 80), number(p.value), number(p.corrected), plain(p.because, 240), plain(p.source, 120))
            for p in influence.as_published
        ]
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


def _measurements(found: Sequence[Measurement]) -> list[Block]:
    """Return what was measured; conditions that several share are listed once, by number."""
    if not found:
        return []
    held = list(dict.fromkeys(plain(a, 200) for m in found for a in m.assumptions))
    columns = ("Measurement", "Result", "Kind", "People or trials", "Where", "Conditions")
    rows = [
        (plain(m.request.key, 120), prose(m.problem, 200) or _interval(m), sure(m),
         f"{number(m.n)} of {number(m.population)}" if m.population else "", plain(m.where, 60),
         ", ".join(str(held.index(plain(a, 200)) + 1) for a in m.assumptions))
        for m in found
    ]  # fmt: skip
    folded = f"All {len(rows)} measurements with their conditions"
    made: list[Block] = [TableBlock("Measurements behind the findings", columns, rows, folded=folded)]
    if held:
        told = [(str(i), text) for i, text in enumerate(held, 1)]
        made.append(TableBlock("Conditions of the measurements", ("No.", "Condition"), told, folded="Their conditions"))
    return made


def _interval(m: Measurement) -> str:
    if m.low == m.high:
        return f"{number(m.low)} {plain(m.unit, 20)} (exact)"
    return f"{number(m.low)} to {number(m.high)} {plain(m.unit, 20)}"
