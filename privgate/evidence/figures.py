"""Figures in words: a number with its unit, an interval beside its limit, and what they say together, once."""

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

from privgate.evidence.measurement import BehindInfluence, Measurement

WORDS: Mapping[str, str] = {
    "not_measured": "not measured",
    "unlimited": "unlimited",
    "at_least": "at least {figure}",
    "at_most": "at most {figure}",
    "over": "over {figure}",
    "at_least.open": "at least {figure}, no upper limit known",
    "no_limit": "no limit known",
    "point": "about {figure}, no interval",
    "span": "{low} to {high}",
    "fold": "{factor}-fold",
    "fold.huge": "over 1,000,000-fold",
    "fold.up_to": "up to {high}",
    "fold.span": "{low}- to {high}",
    "nats": "{count} nats",
    "nats.one": "1 nat",
    "limit.none": "none",
    "sure.counted": "counted",
    "sure.certificate": "by certificate",
    "sure.refits": "seen in refits",
    "sure.errors": "within error bounds",
    "sure.exact": "exact",
    "sure.estimate": "estimate",
    "sure.point": "point estimate",
    "sure.searched": "searched",
    "sure.in": "in {where}",
    "sure.level": "{level} % confidence",
    "sure.certain": "certain",
}


def say(key: str, **values: object) -> str:
    """Return the words of a key with their values in place."""
    return WORDS[key].format(**values)


_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def number(value: Any, *, digits: int = 3, against: float = math.nan) -> str:
    """Return a number for people: ``digits`` significant ones, more if it would look equal to ``against``.

    ``against`` is the limit beside which it will stand: 1.00004 must not be printed as 1 next to a limit of 1. What is
    no number reads "not measured".

    >>> number(1.00004, against=1.0), number("inf"), number(48842), number(1e-5)
    ('1.00004', 'unlimited', '48,842', '1×10⁻⁵')
    """
    x = real(value)
    if math.isnan(x):
        return say("not_measured")
    if math.isinf(x):
        return say("unlimited") if x > 0 else "minus infinity"
    if x == int(x) and abs(x) < 1e15:
        return f"{int(x):,}".replace("-", "−")
    while digits < 15 and x != against and f"{x:.{digits}g}" == f"{against:.{digits}g}":
        digits += 1
    shown = f"{x:,.1f}" if 1000 <= abs(x) < 1e15 else f"{x:.{digits}g}"
    if "e" in shown:
        mantissa, exponent = shown.split("e")
        shown = f"{mantissa}×10{str(int(exponent)).translate(_RAISED)}"
    return shown.replace("-", "−")


def real(value: Any) -> float:
    """Return the float behind a JSON value; NaN for anything that is none, so that it never looks measured."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return math.nan


def fold(nats: Any) -> str:
    """Return a change in nats as a factor: ``"2.72-fold"``.

    >>> fold(1.0), fold(7.4)
    ('2.72-fold', '1,636-fold')
    """
    x = real(nats)
    if math.isnan(x) or x == math.inf:
        return number(x)
    return say("fold.huge") if x > math.log(1e6) else say("fold", factor=factor(x))


def factor(nats: float) -> str:
    """Return e to the power of a finite number of nats, short: 2.72 for 1."""
    times = math.exp(nats)
    return f"{times:,.0f}" if times >= 100 else f"{times:.3g}"


def percent(fraction: Any, digits: int = 3) -> str:
    """Return a fraction as a percentage: "50.3 %"."""
    x = real(fraction)
    return say("not_measured") if math.isnan(x) else f"{100 * x:.{digits}g} %"


def percent_at_most(fraction: float, digits: int = 2) -> str:
    """Return a fraction as a percentage that is not below it: 0.0104 as "1.1 %"."""
    rounded = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(100 * Decimal(repr(float(fraction))))
    return f"{rounded.normalize():f} %"


def figure(x: float, unit_name: str, *, against: float = math.nan) -> str:
    """Return a number with its unit; nats as a factor first, fractions as percentages.

    >>> figure(1.0, "nats"), figure(0.5, "fraction"), figure(12, "records")
    ('2.72-fold (1 nat)', '50 %', '12 records')
    """
    if math.isnan(x):
        return say("not_measured")
    if unit_name == "nats":
        return f"{fold(x)} ({_nats(x, against)})" if math.isfinite(x) else say("unlimited")
    if unit_name == "epsilon":
        return f"epsilon {number(x, against=against)}"
    many = {"people": "person", "records": "record"}.get(unit_name, unit_name) if x == 1 else unit_name
    return _short(x, unit_name, against) + (f" {many}" if unit_name not in ("", "fraction") else "")


def _nats(x: float, against: float = math.nan) -> str:
    return say("nats.one") if x == 1 else say("nats", count=number(x, against=against))


def interval(value: float, low: float, high: float, *, limit: float, unit_name: str, direction: str) -> str:
    """Return a figure with its interval beside a limit, in one phrase."""
    if math.isnan(low) or math.isnan(high):
        return say("not_measured") if math.isnan(value) else say("point", figure=figure(value, unit_name))
    if low == high or number(low, against=limit) == number(high, against=limit):
        # certain within rounding: the end nearer to breaking the limit is the one to show
        end = low if direction == "min" else high
        return say("unlimited") if math.isinf(end) else figure(end, unit_name, against=limit)
    if math.isinf(high):
        nothing = math.isinf(low) or low == 0
        return say("no_limit") if nothing else say("at_least.open", figure=figure(low, unit_name, against=limit))
    if math.isinf(low):
        return say("at_most", figure=figure(high, unit_name, against=limit))
    if unit_name == "nats":
        # changes are never below 0: the lower end of an interval that reaches it says nothing
        up_to = low <= 0
        factors = say("fold.up_to" if up_to else "fold.span", low=factor(low), high=fold(high))
        return f"{factors} ({say('span', low=number(low, against=limit), high=_nats(high, limit))})"
    words = "" if unit_name in ("", "fraction", "epsilon") else f" {unit_name}"
    before = "epsilon " if unit_name == "epsilon" else ""
    return f"{before}{say('span', low=_short(low, unit_name, limit), high=_short(high, unit_name, limit))}{words}"


def _short(x: float, unit_name: str, against: float) -> str:
    if unit_name != "fraction":
        return number(x, against=against)
    shown = percent(x) if x == against or percent(x) != percent(against) else percent(x, 8)
    return say("over", figure=shown) if x > against and shown == percent(against) else shown


def threshold(limit: float, *, unit_name: str, direction: str) -> str:
    """Return the limit in words: "at most 2.72-fold (1 nat)"."""
    if math.isnan(limit):
        return say("limit.none")
    return say("at_least" if direction == "min" else "at_most", figure=figure(limit, unit_name))


def sure(m: Measurement) -> str:
    """Return how certain a figure is, and what the ends of its interval come from."""
    if m.problem:
        return say("not_measured")
    if m.kind == "search":  # what was not found is not certain
        return say("sure.in", where=m.assumptions[0]) if m.assumptions else say("sure.searched")
    kind = say({"bound": _limited_by(m), "confidence": "sure.estimate"}.get(m.kind, f"sure.{m.kind}"))
    certain = say("sure.level", level=number(100 * m.confidence)) if m.confidence else say("sure.certain")
    return kind if m.kind == "point" else f"{kind}, {certain}"


def _limited_by(m: Measurement) -> str:
    """Return the key of what the two ends of an interval come from: what spoke, never what the rule asked for."""
    if m.unit == "records":
        return "sure.counted"
    if not isinstance(m.behind, BehindInfluence):
        return "sure.certificate"
    if math.isinf(m.high) or m.behind.why_no_certificate:
        return "sure.refits"
    direct = any(text.startswith("direct queries only") for text in m.assumptions)
    return "sure.errors" if direct else "sure.certificate"
