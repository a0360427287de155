"""Page one: what was decided, why, how sure, what next, and what it does not show."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from privgate.report import reading, words
from privgate.report.reading import Doc
from privgate.report.text import clip, moment, number, plain, real

#: rows of the rule table on page one; the full table is in the evidence
ROWS = 8
#: steps, waivers and changes on page one
LINES = 3
#: outcome -> (tone, symbol); the symbol's shape differs too, because colour alone tells nothing in print
_TONE = {"passed": "good", "warned": "care", "inconclusive": "open", "failed": "bad"}


#: characters on page one, which must print on one sheet: (usual, when it is crowded)
_ROOM = {"why": (420, 270), "how_sure": (330, 200), "meaning": (230, 95), "measured": (80, 62), "title": (80, 60),
         "steps": (260, 125), "waivers": (160, 85), "changes": (280, 130), "fact": (80, 50)}  # fmt: skip


def view(doc: Doc) -> dict[str, Any]:
    """Return what page one says, as text short enough for one sheet of paper."""
    rules, held = words.rules(doc), words.preconditions(doc)
    unheld = [f for f in held if f.get("outcome") != "passed"]
    shown = sorted([*unheld, *rules], key=words.badness)[:ROWS]
    waivers, changed = reading.rows(doc.get("waivers")), changes(doc)
    dense = len(shown) > 5 or (len(shown) > 3 and bool(waivers) and bool(changed))
    room = {k: v[dense] for k, v in _ROOM.items()}
    return {
        "tone": "watch" if doc.get("observed") else _TONE.get(str(doc.get("outcome")), "bad"),
        "decision": _capital(words.decision(doc)),
        "subject": subject(doc),
        "sentence": sentence(doc),
        "why": clip(why(doc), room["why"]),
        "how_sure": clip(how_sure(doc), room["how_sure"]),
        "facts": [(k, clip(v, room["fact"])) for k, v in facts(doc)],
        "rows": [{k: clip(v, room.get(k, 80)) for k, v in row(f).items()} for f in shown],
        "more": max(0, len(unheld) + len(rules) - ROWS),
        "held": _held(held, unheld),
        "steps": [clip(s, room["steps"]) for s in steps(doc)[:LINES]],
        "waivers": [clip(waiver(w), room["waivers"]) for w in waivers[:LINES]],
        "changes": clip(changed, room["changes"]),
        "changes_since": _since(doc),
        "density": "dense" if dense else ("roomy" if len(shown) <= 3 and not waivers else ""),
        "not_shown": [
            *_candidates(held),
            *filter(None, [words.no_attack_limited(doc)]),
            *_not_tested(doc),
            *words.NOT_SHOWN,
        ],
        "verify": verify(doc),
    }


def subject(doc: Doc) -> str:
    """Return "credit, version 3"."""
    s = reading.subject(doc)
    name = plain(s.get("name"), 60) or "unnamed model"
    return f"{name}, version {plain(s.get('version'), 20)}" if s.get("version") else name


def sentence(doc: Doc) -> str:
    """Return the verdict as one sentence that needs no knowledge of the field."""
    rules = words.rules(doc)
    policy = f"“{plain(reading.mapping(doc.get('policy')).get('name'), 40) or 'unnamed'}”"
    outcome = doc.get("outcome")
    if not rules:
        return f"No rule of the policy {policy} was judged, so nothing was shown and the model may not be released."
    met = sum(f.get("outcome") == "passed" for f in rules)
    if outcome == "passed":
        told = "every rule" if met > 1 else "the one rule"
        scope = (
            " It covers questions about a person's own record only; other questions were not bounded."
            if words.direct_only(doc)
            else ""
        )
        return f"The model may be released: {told} of the policy {policy} is met.{scope}"
    if outcome == "warned":
        if met == len(rules):
            return (
                f"The model may be released: every rule of the policy {policy} is met. Conditions listed below deserve "
                "attention."
            )
        return (
            f"The model may be released, with {len(rules) - met} of {len(rules)} rules of the policy {policy} not met "
            "but not enforced or waived."
        )
    if outcome == "inconclusive":
        return (
            f"The model may not be released: the evidence is not enough to show that the policy {policy} is met. "
            "That is not proof of a leak; it counts as not passed."
        )
    broken = sum(f.get("outcome") == "failed" for f in rules)
    if not broken:
        return "The model may not be released: a condition that must hold before any figure counts does not hold."
    return f"The model may not be released: {broken} of {len(rules)} rules of the policy {policy} {_is(broken)} broken."


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def deciding(doc: Doc) -> list[Mapping[str, Any]]:
    """Return the findings that decided: those as bad as the verdict."""
    found = [*words.preconditions(doc), *words.rules(doc)]
    decided = [f for f in found if f.get("outcome") == doc.get("outcome")]
    if doc.get("outcome") == "warned" and not any(f.get("outcome") == "warned" for f in words.rules(doc)):
        # only conditions warn: the rules that were met carry the decision
        return [f for f in words.rules(doc) if f.get("outcome") == "passed"] or decided
    return [f for f in decided if not str(f.get("rule")).startswith("precondition:")] or decided


def why(doc: Doc, *, count_others: bool = True) -> str:
    """Return the reason: the finding that decided, with its numbers and what they mean for a person."""
    decided = deciding(doc)
    if not decided:
        return "No rule was judged."
    f = decided[0]
    if math.isnan(real(f.get("limit"))) or words.measured(f) == "not measured":
        told = f"{words.title(f)}: {plain(f.get('message'))}"
    else:
        told = f"{words.title(f)}: {words.measured(f)}; allowed is {words.limit(f)}"
    meaning = plain(f.get("meaning"))
    others = ""
    if len(decided) > 1 and count_others:
        n = len(decided) - 1
        kind = "rule" if n == 1 else "rules"
        others = f" The other {kind} {_is(n)} met as well." if doc.get("approved") else f" {n} more {kind} below."
    return f"{_stop(told)}{f' {_stop(_capital(meaning))}' if meaning else ''}{others}"


def how_sure(doc: Doc) -> str:
    """Return how certain the deciding figures are, and for how many of all units they speak."""
    keys = {f.get("request") for f in deciding(doc)}
    found = [
        m
        for m in reading.measurements(doc)
        if reading.mapping(m.get("request")).get("key") in keys and not m.get("problem")
    ]
    if not found:
        return "No figure decided this: something that must hold, or be measured, was missing."
    levels = sorted({real(m.get("confidence")) for m in found if m.get("confidence") is not None})
    told = []
    if any(m.get("confidence") is None and m.get("kind") in ("exact", "bound") for m in found):
        told.append("Exact or bounded by proof, under the conditions listed in the evidence.")
    if levels:
        told.append(f"Intervals hold at {number(100 * levels[0])} % confidence.")
    if any(m.get("kind") == "point" for m in found):
        told.append("Some figures are estimates without an interval; they neither approve nor block.")
    least = min(found, key=lambda m: real(m.get("n")) / max(real(m.get("population")), 1.0))
    n, population = real(least.get("n")), real(least.get("population"))
    if 0 < n < population:
        claim = _capital(plain(reading.mapping(reading.detail(doc).get("coverage")).get("claim"), 200))
        told.append(
            f"{number(n)} of {number(population)} were measured. {_stop(claim) or 'Nothing is known of the others.'}"
        )
    elif n > 0:
        bounded = (
            ", some of them only closely enough to show that they are not the largest" if _mode(doc) == "max" else ""
        )
        told.append(f"All {number(n)} were measured{bounded}.")
    return " ".join(told)


def facts(doc: Doc) -> list[tuple[str, str]]:
    """Return what was judged, by whom, until when."""
    s, p = reading.subject(doc), reading.mapping(doc.get("policy"))
    digests = s.get("digests") or {}
    model = digests.get("model") or s.get("model_digest") or digests.get("recipe") or ""
    items = [
        ("Model digest", short(model)),
        ("Policy", f"{plain(p.get('name'), 40)}{_version(p)}, {short(p.get('digest'))}"),
        ("DTP level", _level(doc)),
        ("Decided", moment(doc.get("decided_at")) or "date not recorded"),
        ("Valid until", moment(doc.get("expires")) or "no statement signed yet"),
        ("Signed by", signer(doc)),
        ("Training data", counts(s)),
        ("Measured", {"max": "the exact maximum only", "screen": "screened, not certified"}.get(_mode(doc), "")),
    ]
    return [(k, v) for k, v in items if v]


def _mode(doc: Doc) -> str:
    return str(reading.mapping(reading.detail(doc).get("mode")).get("used"))


def _level(doc: Doc) -> str:
    asked = any(f.get("metric") in ("dtp", "pdtp") for f in words.rules(doc))
    return plain(doc.get("level"), 20) or ("none reached" if asked else "")


def _version(policy: Mapping[str, Any]) -> str:
    return f" {plain(policy['version'], 20)}" if policy.get("version") else ""


def counts(s: Mapping[str, Any]) -> str:
    """Return how many records and people the training data hold."""
    records, units = s.get("n_records"), s.get("n_units")
    if not records:
        return ""
    people = f" of {number(units)} people or units" if units and units != records else ""
    return f"{number(records)} records{people}"


def signer(doc: Doc) -> str:
    """Return who signed, or that nobody did."""
    who = doc.get("signer")
    if isinstance(who, Mapping):
        advisory = " (advisory: the signer also ran the check)" if who.get("advisory") else ""
        return f"{plain(who.get('name') or who.get('key_id'), 60)}{advisory}"
    return plain(who, 60) or "not signed: a signature is a separate step"


def short(digest: Any) -> str:
    """Return the first 12 hexadecimal digits of a digest; all of them are in the trace."""
    text = plain(digest, 80)
    head, _, tail = text.partition(":")
    return f"{head}:{tail[:12]}…" if len(tail) > 12 else text


def row(finding: Mapping[str, Any]) -> dict[str, str]:
    """Return one line of the rule table."""
    outcome = str(finding.get("outcome"))
    precondition = str(finding.get("rule", "")).startswith("precondition:")
    quiet = precondition or words.measured(finding) == "not measured"
    meaning = finding.get("message") if quiet else finding.get("meaning") or finding.get("message")
    waived = f" Waived: {plain(finding['waiver'], 100)}." if finding.get("waiver") else ""
    return {
        "tone": _TONE.get(outcome, "bad"),
        "result": words.RESULT.get(outcome, "Not decided") + (" (waived)" if waived else ""),
        "title": words.title(finding),
        "measured": "—" if precondition else words.measured(finding),
        "limit": "should hold" if precondition else words.limit(finding),
        "meaning": _stop(_capital(plain(meaning))) + waived,
    }


def _held(held: Sequence[Mapping[str, Any]], unheld: Sequence[Mapping[str, Any]]) -> str:
    if not held:
        return "No precondition was checked."
    if not unheld:
        return f"All {len(held)} preconditions hold; they are listed in the evidence."
    return f"{len(held) - len(unheld)} of {len(held)} preconditions hold; the others are in the table."


def steps(doc: Doc) -> list[str]:
    """Return what to do next: the gate's plan with effect and cost, else each rule's own advice."""
    told = []
    for step in reading.rows(doc.get("next_steps")):
        extra = [f"{k}: {plain(step[k], 300)}" for k in ("effect", "cost") if step.get(k)]
        told.append(_stop(_capital(plain(step.get("action"), 300)) + (f" ({'; '.join(extra)})" if extra else "")))
    advice = [plain(f.get("advice"), 400) for f in [*words.preconditions(doc), *words.rules(doc)] if f.get("advice")]
    told += [_stop(_capital(a)) for a in dict.fromkeys(advice)]
    if told:
        return told
    if doc.get("approved"):
        until = f" before {moment(doc.get('expires'))}, and" if doc.get("expires") else ""
        return [f"Sign and promote this version; check again{until} whenever data, code or parameters change."]
    return ["Read the finding above, change the training or supply what is missing, and check again."]


def waiver(w: Mapping[str, Any]) -> str:
    """Return one waiver as a sentence."""
    state = plain(w.get("status"), 40)
    until = f", until {moment(w.get('expires'))}" if w.get("expires") else ""
    people = f", approved by {plain(w.get('approver'), 40)}" if w.get("approver") else ""
    return _stop(
        f"{plain(w.get('rule'), 40)}{f' ({state})' if state else ''}: {plain(w.get('reason'), 300)}{people}{until}"
    )


def changes(doc: Doc) -> str:
    """Return what changed since the last approved version, in one sentence; empty without a comparison."""
    comparison = doc.get("comparison")
    return _stop(plain(comparison.get("summary"))) if isinstance(comparison, Mapping) else ""


def _since(doc: Doc) -> str:
    old = reading.mapping(reading.mapping(doc.get("comparison")).get("old"))
    if old.get("outcome") in ("passed", "warned"):
        return "Since the last approved version"
    return f"Since version {plain(old.get('version'), 20) or 'before'}"


def _candidates(held: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what makes the people that attacks are judged by unfit for it: said here, however many rules there are."""
    names = ("precondition:near_overlap", "precondition:same_population")
    told = [plain(f.get("message"), 220) for f in held if f.get("rule") in names and f.get("outcome") != "passed"]
    return [_stop(_capital(t)) for t in told]


def _not_tested(doc: Doc) -> list[str]:
    tested = words.kinds_tested(doc)
    missing = [k for k in words.ATTACK_KINDS if k not in tested]
    return [f"Not tested: {', '.join(missing)}."] if missing else []


def verify(doc: Doc) -> str:
    """Return the command that checks the statement attached to this version."""
    s = reading.subject(doc)
    uri = plain(s.get("uri"), 120)
    return f"privgate verify {uri}" if uri else ""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _stop(text: str) -> str:
    text = text.rstrip()
    return text if not text or text[-1] in ".!?…]" else f"{text}."
