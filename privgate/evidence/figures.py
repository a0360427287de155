"""Figures in words: a number with its unit, an interval beside its limit, and what they say together, once."""

import math
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

from privgate.evidence.measurement import BehindInfluence, Measurement

NOT_MEASURED, UNLIMITED, CERTIFICATE = "not measured", "unlimited", "by certificate"
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
        return NOT_MEASURED
    if math.isinf(x):
        return UNLIMITED if x > 0 else "minus infinity"
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
    return "over 1,000,000-fold" if x > math.log(1e6) else f"{factor(x)}-fold"


def factor(nats: float) -> str:
    """Return e to the power of a finite number of nats, short: 2.72 for 1."""
    times = math.exp(nats)
    return f"{times:,.0f}" if times >= 100 else f"{times:.3g}"


def percent(fraction: Any, digits: int = 3) -> str:
    """Return a fraction as a percentage: "50.3 %"."""
    x = real(fraction)
    return NOT_MEASURED if math.isnan(x) else f"{100 * x:.{digits}g} %"


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
        return NOT_MEASURED
    if unit_name == "nats":
        return f"{fold(x)} ({_nats(x, against)})" if math.isfinite(x) else UNLIMITED
    if unit_name == "epsilon":
        return f"epsilon {number(x, against=against)}"
    many = {"people": "person", "records": "record"}.get(unit_name, unit_name) if x == 1 else unit_name
    return _short(x, unit_name, against) + (f" {many}" if unit_name not in ("", "fraction") else "")


def _nats(x: float, against: float = math.nan) -> str:
    return "1 nat" if x == 1 else f"{number(x, against=against)} nats"


def interval(value: float, low: float, high: float, *, limit: float, unit_name: str, direction: str) -> str:
    """Return a figure with its interval beside a limit, in one phrase."""
    if math.isnan(low) or math.isnan(high):
        return NOT_MEASURED if math.isnan(value) else f"about {figure(value, unit_name)}, no interval"
    if low == high or number(low, against=limit) == number(high, against=limit):
        # certain within rounding: the end nearer to breaking the limit is the one to show
        end = low if direction == "min" else high
        return UNLIMITED if math.isinf(end) else figure(end, unit_name, against=limit)
    if math.isinf(high):
        nothing = math.isinf(low) or low == 0
        known = f"at least {figure(low, unit_name, against=limit)}, no upper limit known"
        return "no limit known" if nothing else known
    if math.isinf(low):
        return f"at most {figure(high, unit_name, against=limit)}"
    if unit_name == "nats":
        # changes are never below 0: the lower end of an interval that reaches it says nothing
        factors = f"up to {fold(high)}" if (low <= 0) else f"{factor(low)}- to {fold(high)}"
        return f"{factors} ({number(low, against=limit)} to {_nats(high, limit)})"
    words = "" if unit_name in ("", "fraction", "epsilon") else f" {unit_name}"
    before = "epsilon " if unit_name == "epsilon" else ""
    return f"{before}{_short(low, unit_name, limit)} to {_short(high, unit_name, limit)}{words}"


def _short(x: float, unit_name: str, against: float) -> str:
    if unit_name != "fraction":
        return number(x, against=against)
    shown = percent(x) if x == against or percent(x) != percent(against) else percent(x, 8)
    return f"over {shown}" if x > against and shown == percent(against) else shown


def threshold(limit: float, *, unit_name: str, direction: str) -> str:
    """Return the limit in words: "at most 2.72-fold (1 nat)"."""
    if math.isnan(limit):
        return "none"
    return f"at {'least' if direction == 'min' else 'most'} {figure(limit, unit_name)}"


def sure(m: Measurement) -> str:
    """Return how certain a figure is, and what the ends of its interval come from."""
    if m.problem:
        return NOT_MEASURED
    if m.kind == "search":  # what was not found is not certain
        return f"in {m.assumptions[0]}" if m.assumptions else "searched"
    if m.kind == "point":
        return "point estimate"
    if m.kind == "confidence" and not m.confidence:
        return "estimate"
    kind = {"bound": _limited_by(m), "confidence": "estimate"}.get(m.kind, m.kind)
    return f"{kind}, {f'{number(100 * m.confidence)} % confidence' if m.confidence else 'certain'}"


def _limited_by(m: Measurement) -> str:
    """Return what the two ends of an interval come from: what spoke, never what the rule asked for."""
    if m.unit == "records":
        return "counted"
    if not isinstance(m.behind, BehindInfluence):
        return CERTIFICATE
    if math.isinf(m.high) or m.behind.why_no_certificate:
        return "seen in refits"
    direct = any(text.startswith("direct queries only") for text in m.assumptions)
    return "within error bounds" if direct else CERTIFICATE
